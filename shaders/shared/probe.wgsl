// Whether SUBGROUP neighbouring threads form a subgroup, in their order: every thread of every workgroup says 1 where it
// is what and where that says, and hears from the threads that it expects.

@group(0) @binding(0) var<storage, read_write> answers: array<u32>;

@compute @workgroup_size(WORKGROUP)
fn probe(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    var holds = size == SUBGROUP && lane == thread % SUBGROUP;
    for (var mask = 1u; mask < min(SUBGROUP, WORKGROUP); mask *= 2u) {
        let heard = subgroupShuffleXor(thread, mask);
        holds = holds && heard == (thread ^ mask);
    }
    answers[id.x * WORKGROUP + thread] = select(0u, 1u, holds);
}

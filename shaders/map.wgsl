// Elementwise formulas. The generated part defines `tr_four(at, count)`: the formulas of the four elements from
// `at` on, of which `count` exist.

@compute @workgroup_size(WORKGROUP)
fn elements(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let at = (tr_group(id, grid) * WORKGROUP + thread) * 4u;
    if (tr_outside(id, grid) || at >= params.elements) {
        return;
    }
    tr_four(at, min(params.elements - at, 4u));
}

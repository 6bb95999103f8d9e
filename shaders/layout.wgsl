// Moving elements: each of the output, or of a range of columns of its rows, is one of the input.
//
//   out[i₀, …, i₅] = x[first + Σ iₖ·STRIDEₖ − start·STRIDE₅]   where start ≤ i₅ < start + len
//
// and elsewhere 0 where CLEAR, else what it was. The compiler knows out's extents and x's strides, and turns
// divisions into products. Values are never computed with: the core binds f32 as it is, and every other dtype as
// whole numbers of 16 or 8 bits, so that each bit pattern survives.
//
// A thread makes four neighbours of the output, and so whole words of it. ALIGNED: they are four neighbours of the
// input too. Traffic: each element is read and written once; writes are coalesced, reads where the input's last axis
// stays last.

const NOWHERE: u32 = 0xffffffffu;

// Element of x that belongs at `index` of out.
fn source(index: u32) -> u32 {
    var rest = index / EXTENT5;
    let column = index - rest * EXTENT5 - params.start;
    if (column >= params.len) {
        return NOWHERE;
    }
    var element = params.first + column * STRIDE5;
    element += rest % EXTENT4 * STRIDE4;
    rest /= EXTENT4;
    element += rest % EXTENT3 * STRIDE3;
    rest /= EXTENT3;
    element += rest % EXTENT2 * STRIDE2;
    rest /= EXTENT2;
    element += rest % EXTENT1 * STRIDE1;
    return element + rest / EXTENT1 * STRIDE0;
}

@compute @workgroup_size(WORKGROUP)
fn strided(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let at = (tr_group(id, grid) * WORKGROUP + thread) * 4u;
    if (tr_outside(id, grid) || at >= params.elements) {
        return;
    }
    if (ALIGNED == 1u) {
        let origin = source(at);
        if (origin != NOWHERE) {
            store4_out(at, load4_x(origin), 4u);
        } else if (CLEAR == 1u) {
            store4_out(at, vec4<f32>(0.0), 4u);
        }
        return;
    }
    var four = vec4<f32>(0.0);
    if (CLEAR == 0u) {
        four = load4_out(at);
    }
    for (var i = 0u; i < 4u && at + i < params.elements; i++) {
        let origin = source(at + i);
        if (origin != NOWHERE) {
            four[i] = load_x(origin);
        }
    }
    store4_out(at, four, 4u);
}

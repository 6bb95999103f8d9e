// 4-bit NormalFloat: BLOCK consecutive elements share a scale, and two codes a byte, the first in its upper half; see ops/quant/nf4.rs.
// A thread makes eight neighbours of four bytes. Bound by traffic.

fn pick(low: f32, high: f32, bit: vec4<bool>) -> vec4<f32> {
    return select(vec4<f32>(low), vec4<f32>(high), bit);
}

// Levels of four codes, by halving: no table is indexed, which would live in memory.
fn levels(code: vec4<u32>) -> vec4<f32> {
    let one = (code & vec4<u32>(1u)) != vec4<u32>(0u);
    let two = (code & vec4<u32>(2u)) != vec4<u32>(0u);
    let four = (code & vec4<u32>(4u)) != vec4<u32>(0u);
    let eight = (code & vec4<u32>(8u)) != vec4<u32>(0u);
    let a = select(pick(-1.0, -0.6961928, one), pick(-0.52507305, -0.3949175, one), two);
    let b = select(pick(-0.28444138, -0.18477343, one), pick(-0.091050036, 0.0, one), two);
    let c = select(pick(0.0795803, 0.1609302, one), pick(0.2461123, 0.33791524, one), two);
    let d = select(pick(0.44070983, 0.562617, one), pick(0.72295684, 1.0, one), two);
    return select(select(a, b, four), select(c, d, four), eight);
}

@compute @workgroup_size(WORKGROUP)
fn values(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let at = (tr_group(id, grid) * WORKGROUP + thread) * 8u;
    if (tr_outside(id, grid) || at >= params.elements) {
        return;
    }
    let bytes = vec4<u32>(load4_pairs(at / 2u));
    let high = levels(bytes >> vec4<u32>(4u));
    let low = levels(bytes & vec4<u32>(15u));
    // Eight divides a block, so one scale serves all.
    let scale = load_scale(params.first_block + at / BLOCK);
    store4_x(at, scale * vec4<f32>(high.x, low.x, high.y, low.y), params.elements - at);
    if (at + 4u < params.elements) {
        store4_x(at + 4u, scale * vec4<f32>(high.z, low.z, high.w, low.w), params.elements - at - 4u);
    }
}

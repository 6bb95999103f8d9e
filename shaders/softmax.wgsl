// Softmax of rows, and its gradient; see ops/softmax.rs. A workgroup makes a row: its threads read neighbouring fours,
// WORKGROUP fours at a time, and are one team (see shared/teams.wgsl). Bound by traffic: x is read three times, the
// second and third from a cache. An element is read and written by one thread, so that the output may be an input.
// In the gradient, x is softmax's result.

const LOWEST: f32 = -3.4e38;

// Four elements, `padding` past the row's end.
fn padded(v: vec4<f32>, column: u32, padding: f32) -> vec4<f32> {
    return select(vec4<f32>(padding), v, column + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(params.columns));
}

@compute @workgroup_size(WORKGROUP)
fn softmax(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    if (tr_outside(id, grid)) {
        return;
    }
    let row = tr_group(id, grid) * params.columns;
    var high = vec4<f32>(LOWEST);
    for (var c = 4u * thread; c < params.columns; c += 4u * WORKGROUP) {
        high = max(high, padded(load4_x(row + c), c, LOWEST));
    }
    let highest = team_max(thread, 0u, max(max(high.x, high.y), max(high.z, high.w)));
    var sums = vec4<f32>();
    for (var c = 4u * thread; c < params.columns; c += 4u * WORKGROUP) {
        sums += padded(exp(load4_x(row + c) - highest), c, 0.0);
    }
    let sum = team_sum(thread, 1u, sums.x + sums.y + sums.z + sums.w);
    for (var c = 4u * thread; c < params.columns; c += 4u * WORKGROUP) {
        let y = exp(load4_x(row + c) - highest) / sum;
        store4_out(row + c, y, min(4u, params.columns - c));
    }
}

@compute @workgroup_size(WORKGROUP)
fn gradient(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    if (tr_outside(id, grid)) {
        return;
    }
    let row = tr_group(id, grid) * params.columns;
    var products = vec4<f32>();
    for (var c = 4u * thread; c < params.columns; c += 4u * WORKGROUP) {
        products += padded(load4_x(row + c) * load4_dy(row + c), c, 0.0);
    }
    let inner = team_sum(thread, 0u, products.x + products.y + products.z + products.w);
    for (var c = 4u * thread; c < params.columns; c += 4u * WORKGROUP) {
        let dx = load4_x(row + c) * (load4_dy(row + c) - inner);
        store4_out(row + c, dx, min(4u, params.columns - c));
    }
}

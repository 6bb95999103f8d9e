// Rotary position embedding; see ops/rope.rs. A thread turns four neighbouring pairs of one head, or copies four
// channels of the heads that don't turn. It reads both halves before it writes them, so that y may be x. Bound by
// traffic.

const HALF: u32 = HEAD_DIM / 2u;
const FOURS_OF_HALF: u32 = (HALF + 3u) / 4u;

@compute @workgroup_size(WORKGROUP)
fn rotate(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let turning = ROTATED * FOURS_OF_HALF;
    let per_row = turning + (params.columns - ROTATED * HEAD_DIM + 3u) / 4u;
    let index = tr_group(id, grid) * WORKGROUP + thread;
    if (tr_outside(id, grid) || index >= params.rows * per_row) {
        return;
    }
    let row = index / per_row;
    let four = index % per_row;
    if (four >= turning) {
        let column = ROTATED * HEAD_DIM + 4u * (four - turning);
        let at = row * params.columns + column;
        store4_y(at, load4_x(at), min(4u, params.columns - column));
        return;
    }
    let d = 4u * (four % FOURS_OF_HALF);
    let at = row * params.columns + (four / FOURS_OF_HALF) * HEAD_DIM + d;
    let position = f32(index_start(0u) + i32((params.first_row + row) % params.time));
    let exponent = vec4<f32>(vec4<u32>(0u, 1u, 2u, 3u) + d) * params.log2_step;
    let angle = position * params.direction * exp2(exponent);
    let a = load4_x(at);
    let b = load4_x(at + HALF);
    let count = min(4u, HALF - d);
    store4_y(at, a * tr_cos4(angle) - b * tr_sin4(angle), count);
    store4_y(at + HALF, b * tr_cos4(angle) + a * tr_sin4(angle), count);
}

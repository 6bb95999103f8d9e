// Rotary position embedding; see ops/rope.rs. A thread turns four neighbouring pairs of one head, or copies four
// channels of the heads that don't turn. It reads both halves before it writes them, so that y may be x. Bound by
// traffic.

const HALF: u32 = HEAD_DIM / 2u;
const FOURS_OF_HALF: u32 = (HALF + 3u) / 4u;

// What a stretch makes of the frequencies of pairs.
fn stretched(frequency: vec4<f32>, pair: vec4<f32>) -> vec4<f32> {
    if (STRETCHED == 0u) {
        return frequency;
    }
    let kept = clamp(
        params.kept_base + params.kept_frequency * frequency + params.kept_pair * pair,
        vec4<f32>(0.0),
        vec4<f32>(1.0),
    );
    return frequency * (kept + (1.0 - kept) * params.rest);
}

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
    let number = params.first_row + row;
    var position = index_start(select(0u, number, EACH == 1u));
    if (EACH == 0u) {
        position += i32(number % params.time);
    }
    let pair = vec4<f32>(vec4<u32>(0u, 1u, 2u, 3u) + d);
    let angle = f32(position) * params.direction * stretched(exp2(pair * params.log2_step), pair);
    var cosine = tr_cos4(angle);
    var sine = tr_sin4(angle);
    if (STRETCHED == 1u) {
        cosine *= params.amplitude;
        sine *= params.amplitude;
    }
    let a = load4_x(at);
    let b = load4_x(at + HALF);
    let count = min(4u, HALF - d);
    store4_y(at, a * cosine - b * sine, count);
    store4_y(at + HALF, b * cosine + a * sine, count);
}

// Block-wise 8-bit storage: BLOCK consecutive elements share a scale. Limited by traffic.
//
// A code is linear, a whole number from -127 to 127, where BASE is 0. Else it is dynamic: its rank counts the
// values of one sign, BASE * 2^k + j for value j of BASE * 2^k in decade k, which are
//
//   10^(k - 6) * (0.1 + 0.9 * (j + 1/2) / (BASE * 2^k)),   k < DECADES;   below them 0, above them 1
//
// BASE is 1 for signed codes, where the rank counts up and down from the code ZERO, and 2 for unsigned ones,
// where it counts from 1.

const LARGEST_LINEAR: f32 = 127.0;
const LOWEST_POWER: f32 = 1e-6;

var<workgroup> partials: array<f32, WORKGROUP>;

// scale[k] = max |x| over block k / largest code. LANES neighbouring threads own a block and read it four elements at a time, side by
// side; a workgroup meets at one barrier.
@compute @workgroup_size(WORKGROUP)
fn scales(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    if (tr_outside(id, grid)) {
        return;
    }
    let lane = thread % LANES;
    let k = tr_group(id, grid) * (WORKGROUP / LANES) + thread / LANES;
    let first = k * BLOCK;
    let end = min(first + BLOCK, params.elements);
    var four = vec4<f32>(0.0);
    for (var at = first + lane * 4u; at < end; at += LANES * 4u) {
        let exists = vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(end - at);
        four = max(four, select(vec4<f32>(0.0), abs(load4_x(at)), exists));
    }
    var largest = max(max(four.x, four.y), max(four.z, four.w));
    if (LANES > 1u) {
        partials[thread] = largest;
        workgroupBarrier();
        if (lane == 0u) {
            for (var i = 1u; i < LANES; i++) {
                largest = max(largest, partials[thread + i]);
            }
        }
    }
    if (lane == 0u && first < params.elements && updates()) {
        store4_scale(params.first_block + k, vec4<f32>(largest / select(1.0, LARGEST_LINEAR, BASE == 0u)), 1u);
    }
}

// Whether codes and scales may be written over. Where they are new, another tensor stands in for the number.
fn updates() -> bool {
    return UPDATE == 0u || load_ok(0u) != 0.0;
}

// Scales of the four elements from `at` on.
fn four_scales(at: u32) -> vec4<f32> {
    if (BLOCK % 4u == 0u) {
        return vec4<f32>(load_scale(params.first_block + at / BLOCK));
    }
    let k = vec4<u32>(at, at + 1u, at + 2u, at + 3u) / BLOCK + params.first_block;
    return vec4<f32>(load_scale(k.x), load_scale(k.y), load_scale(k.z), load_scale(k.w));
}

// Ranks of the values nearest to those of `part`, from 0 to 1. A decade begins halfway between its first value and
// the last of the decade below.
fn ranks(part: vec4<f32>) -> vec4<f32> {
    var power = LOWEST_POWER;
    var count = f32(BASE);
    var start = power * (0.05 + 0.225 / count);
    var counts = vec4<f32>(0.0);
    var slopes = vec4<f32>(0.0);
    for (var k = 0u; k < DECADES; k++) {
        let above = part >= vec4<f32>(start);
        counts = select(counts, vec4<f32>(count), above);
        slopes = select(slopes, vec4<f32>(count / (0.9 * power)), above);
        start = power * (1.0 + 0.9 / count);
        power *= 10.0;
        count *= 2.0;
    }
    let within = floor(part * slopes - counts / 9.0);
    let inside = counts + clamp(within, vec4<f32>(0.0), max(counts - 1.0, vec4<f32>(0.0)));
    return select(inside, vec4<f32>(count), part >= vec4<f32>(1.0 - 0.45 / count));
}

// Values of these ranks.
fn magnitudes(rank: vec4<u32>) -> vec4<f32> {
    var power = LOWEST_POWER;
    var first = BASE;
    var value = vec4<f32>(0.0);
    for (var k = 0u; k < DECADES; k++) {
        let within = (vec4<f32>(rank) - f32(first) + 0.5) / f32(first);
        value = select(value, power * (0.1 + 0.9 * within), rank >= vec4<u32>(first));
        power *= 10.0;
        first *= 2u;
    }
    return select(value, vec4<f32>(1.0), rank >= vec4<u32>(first));
}

// Codes of the values nearest to x / scale.
fn nearest(part: vec4<f32>) -> vec4<f32> {
    if (BASE == 0u) {
        return clamp(round(part), vec4<f32>(-LARGEST_LINEAR), vec4<f32>(LARGEST_LINEAR));
    }
    if (BASE == 2u) {
        return max(ranks(part), vec4<f32>(1.0)) - 1.0;
    }
    // There is no -1: the code before is the last.
    return max(f32(ZERO) + sign(part) * ranks(abs(part)), vec4<f32>(0.0));
}

fn value(code: vec4<f32>) -> vec4<f32> {
    if (BASE == 0u) {
        return code;
    }
    if (BASE == 2u) {
        return magnitudes(vec4<u32>(code) + 1u);
    }
    let rank = code - f32(ZERO);
    return sign(rank) * magnitudes(vec4<u32>(abs(rank)));
}

// code[i]: nearest to x[i] / scale[i div block]; that of 0 where the scale is.
@compute @workgroup_size(WORKGROUP)
fn codes(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let at = (tr_group(id, grid) * WORKGROUP + thread) * 4u;
    if (tr_outside(id, grid) || at >= params.elements || !updates()) {
        return;
    }
    let scale = four_scales(at);
    let some = scale > vec4<f32>(0.0);
    let part = select(vec4<f32>(0.0), load4_x(at) / select(vec4<f32>(1.0), scale, some), some);
    store4_code(at, nearest(part), params.elements - at);
}

// x[i] = value(code[i])·scale[i div block]
@compute @workgroup_size(WORKGROUP)
fn values(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let at = (tr_group(id, grid) * WORKGROUP + thread) * 4u;
    if (tr_outside(id, grid) || at >= params.elements) {
        return;
    }
    store4_x(at, value(load4_code(at)) * four_scales(at), params.elements - at);
}

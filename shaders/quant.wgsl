// Block-wise 8-bit storage: BLOCK consecutive elements share a scale. Limited by traffic.

const LARGEST_CODE: f32 = 127.0;

var<workgroup> partials: array<f32, WORKGROUP>;

// scale[k] = max |x| over block k / 127. LANES neighbouring threads own a block and read it four elements at a time, side by
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
    if (lane == 0u && first < params.elements) {
        store4_scale(params.first_block + k, vec4<f32>(largest / LARGEST_CODE), 1u);
    }
}

// Scales of the four elements from `at` on.
fn four_scales(at: u32) -> vec4<f32> {
    if (BLOCK % 4u == 0u) {
        return vec4<f32>(load_scale(params.first_block + at / BLOCK));
    }
    let k = vec4<u32>(at, at + 1u, at + 2u, at + 3u) / BLOCK + params.first_block;
    return vec4<f32>(load_scale(k.x), load_scale(k.y), load_scale(k.z), load_scale(k.w));
}

// code[i] = round(x[i] / scale[i div block]), ties to even; 0 where the scale is.
@compute @workgroup_size(WORKGROUP)
fn codes(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let at = (tr_group(id, grid) * WORKGROUP + thread) * 4u;
    if (tr_outside(id, grid) || at >= params.elements) {
        return;
    }
    let scale = four_scales(at);
    let some = scale > vec4<f32>(0.0);
    let quotient = round(load4_x(at) / select(vec4<f32>(1.0), scale, some));
    let code = clamp(quotient, vec4<f32>(-LARGEST_CODE), vec4<f32>(LARGEST_CODE));
    store4_code(at, select(vec4<f32>(0.0), code, some), params.elements - at);
}

// x[i] = code[i]·scale[i div block]
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
    store4_x(at, load4_code(at) * four_scales(at), params.elements - at);
}

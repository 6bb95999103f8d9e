// Sums in a fixed order, limited by reading x once. Long sums are cut by shape alone: each piece leaves a partial sum,
// and further launches add those up the same way. A workgroup meets at one barrier at most. Teams are those of
// shared/teams.wgsl.

var<workgroup> quad_partials: array<vec4<f32>, WORKGROUP>;

// Values of the four neighbours from `at` on, 0 past the `left` that exist; squared where SQUARE.
fn terms(at: u32, left: u32) -> vec4<f32> {
    var four = load4_x(at);
    if (left < 4u) {
        four = select(vec4<f32>(0.0), four, vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(left));
    }
    if (SQUARE == 1u) {
        four *= four;
    }
    return four;
}

// out[slot + r·segments + s] = scale·Σ x[r, c] over the c of segment s of row r: SEGMENT columns, the last fewer.
// LANES neighbouring threads own a segment and read it four neighbours at a time, side by side.
@compute @workgroup_size(WORKGROUP)
fn sum_rows(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    if (tr_outside(id, grid)) {
        return;
    }
    let lane = thread % LANES;
    let segment = tr_group(id, grid) * (WORKGROUP / LANES) + thread / LANES;
    var sums = vec4<f32>(0.0);
    if (segment < params.segments) {
        let segments = (params.columns + SEGMENT - 1u) / SEGMENT;
        let row = segment / segments;
        let start = (segment - row * segments) * SEGMENT;
        let count = min(params.columns - start, SEGMENT);
        let first = row * params.columns + start;
        for (var c = lane * 4u; c < count; c += LANES * 4u) {
            sums += terms(first + c, count - c);
        }
    }
    let sum = team_sum(thread, 0u, (sums.x + sums.y) + (sums.z + sums.w));
    if (lane == 0u && segment < params.segments) {
        store4_out(params.slot + segment, vec4<f32>(sum * params.scale), 1u);
    }
}

// out[s, c] = scale·Σ x[r, c] over the rows of strip s: `strip` rows, the last fewer. ADD: += instead of =.
// A thread owns four columns; QUADS neighbouring threads read a row side by side, and the threads past them the
// next rows.
@compute @workgroup_size(WORKGROUP)
fn sum_columns(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    if (tr_outside(id, grid)) {
        return;
    }
    let quads = (params.columns + 3u) / 4u;
    let blocks = (quads + QUADS - 1u) / QUADS;
    let strip = tr_group(id, grid) / blocks;
    let quad = (tr_group(id, grid) - strip * blocks) * QUADS + thread % QUADS;
    let end = min((strip + 1u) * params.strip, params.rows);
    // What lies past the last column is summed too, and not stored.
    var sums = vec4<f32>(0.0);
    if (quad < quads) {
        for (var row = strip * params.strip + thread / QUADS; row < end; row += WORKGROUP / QUADS) {
            sums += load4_x(row * params.columns + quad * 4u);
        }
    }
    quad_partials[thread] = sums;
    workgroupBarrier();
    if (thread < QUADS && quad < quads) {
        for (var i = thread + QUADS; i < WORKGROUP; i += QUADS) {
            sums += quad_partials[i];
        }
        let at = strip * params.columns + quad * 4u;
        sums *= params.scale;
        if (ADD == 1u) {
            sums += load4_out(at);
        }
        store4_out(at, sums, params.columns - quad * 4u);
    }
}

// out[o, c] = scale·Σ x[o, r, c] over the rows r of each of `segments` matrices, in their order; with ADD, scale·(out[o, c] + Σ …). A
// thread owns four columns of one.
@compute @workgroup_size(WORKGROUP)
fn sum_middle(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let quads = (params.columns + 3u) / 4u;
    let index = tr_group(id, grid) * WORKGROUP + thread;
    if (tr_outside(id, grid) || index >= params.segments * quads) {
        return;
    }
    let matrix = index / quads;
    let column = (index - matrix * quads) * 4u;
    let first = matrix * params.rows * params.columns + column;
    let at = matrix * params.columns + column;
    // What lies past the last column is summed too, and not stored.
    var sums = vec4<f32>(-0.0);
    if (ADD == 1u) {
        sums = load4_out(at);
    }
    for (var row = 0u; row < params.rows; row++) {
        sums += load4_x(first + row * params.columns);
    }
    store4_out(at, sums * params.scale, params.columns - column);
}

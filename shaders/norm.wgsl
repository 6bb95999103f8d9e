// Layer norm and RMS norm and their gradients.   x, y, dy, dx (R, C); w, b (C); mean, rstd (R)
//
// Forward and the gradient of x: LANES neighbouring threads own a row, as a team of shared/teams.wgsl, and read it four
// columns at a time, side by side; a workgroup holds as many rows as fit and meets at one barrier a sum at most. The
// row's second and third reading come from the cache, so that traffic is x and y once (12·R·C flops of layer norm to
// 8·R·C bytes in f32).
//
// Gradients of the weights: partial sums over strips of rows, which reduce.wgsl adds up; a thread owns four columns.
//
// An entry's y, dx or partial sums are `out`. Every name is bound in every launch, so that entries share this file.

const QUADS_OF_ROW: u32 = (COLUMNS + 3u) / 4u;

var<workgroup> quad_partials: array<vec4<f32>, WORKGROUP>;

fn sum4(v: vec4<f32>) -> f32 {
    return (v.x + v.y) + (v.z + v.w);
}

// `four` where its columns exist, from `column` on; elsewhere 0.
fn within(four: vec4<f32>, column: u32) -> vec4<f32> {
    if (COLUMNS % 4u == 0u) {
        return four;
    }
    let left = vec4<u32>(COLUMNS - column);
    return select(vec4<f32>(0.0), four, vec4<u32>(0u, 1u, 2u, 3u) < left);
}

// The row of a thread: its number, its first element, the thread's first columns, and the end of the columns, which
// is 0 past the last row.
struct Row {
    index: u32,
    first: u32,
    begin: u32,
    end: u32,
}

fn row_of(group: u32, thread: u32) -> Row {
    let row = group * (WORKGROUP / LANES) + thread / LANES;
    return Row(row, row * COLUMNS, thread % LANES * 4u, select(0u, COLUMNS, row < params.rows));
}

// Whether the thread stores what there is one of in a row.
fn owns(row: Row) -> bool {
    return row.begin == 0u && row.index < params.rows;
}

// mean[r] = Σ x[r,c]/C, rstd[r] = 1/√(Σ (x[r,c] − mean[r])²/C + eps), y[r,c] = (x[r,c] − mean[r])·rstd[r]·w[c] + b[c]
@compute @workgroup_size(WORKGROUP)
fn layer_forward(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    if (tr_outside(id, grid)) {
        return;
    }
    let row = row_of(tr_group(id, grid), thread);
    var sums = vec4<f32>(0.0);
    for (var c = row.begin; c < row.end; c += LANES * 4u) {
        sums += within(load4_x(row.first + c), c);
    }
    let mean = team_sum(thread, 0u, sum4(sums)) / f32(COLUMNS);
    var squares = vec4<f32>(0.0);
    for (var c = row.begin; c < row.end; c += LANES * 4u) {
        let centred = within(load4_x(row.first + c) - mean, c);
        squares += centred * centred;
    }
    let variance = team_sum(thread, 1u, sum4(squares)) / f32(COLUMNS);
    let rstd = 1.0 / sqrt(variance + params.eps);
    for (var c = row.begin; c < row.end; c += LANES * 4u) {
        let normal = (load4_x(row.first + c) - mean) * rstd;
        store4_out(row.first + c, normal * load4_w(c) + load4_b(c), COLUMNS - c);
    }
    if (owns(row)) {
        store_mean(params.first_row + row.index, mean);
        store_rstd(params.first_row + row.index, rstd);
    }
}

// rstd[r] = 1/√(Σ x[r,c]²/C + eps), y[r,c] = x[r,c]·rstd[r]·w[c]
@compute @workgroup_size(WORKGROUP)
fn rms_forward(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    if (tr_outside(id, grid)) {
        return;
    }
    let row = row_of(tr_group(id, grid), thread);
    var squares = vec4<f32>(0.0);
    for (var c = row.begin; c < row.end; c += LANES * 4u) {
        let four = within(load4_x(row.first + c), c);
        squares += four * four;
    }
    let rstd = 1.0 / sqrt(team_sum(thread, 0u, sum4(squares)) / f32(COLUMNS) + params.eps);
    for (var c = row.begin; c < row.end; c += LANES * 4u) {
        store4_out(row.first + c, load4_x(row.first + c) * rstd * load4_w(c), COLUMNS - c);
    }
    if (owns(row)) {
        store_rstd(params.first_row + row.index, rstd);
    }
}

// With normal = (x − mean)·rstd and slope = dy·w:
// dx[r,c] = rstd[r]·(slope[r,c] − Σ slope[r,:]/C − normal[r,c]·Σ slope[r,:]·normal[r,:]/C)
// A thread reads of dy what it writes of dx, before it does: they may share storage.
@compute @workgroup_size(WORKGROUP)
fn layer_backward(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    if (tr_outside(id, grid)) {
        return;
    }
    let row = row_of(tr_group(id, grid), thread);
    let mean = load_mean(params.first_row + row.index);
    let rstd = load_rstd(params.first_row + row.index);
    var slopes = vec4<f32>(0.0);
    var products = vec4<f32>(0.0);
    for (var c = row.begin; c < row.end; c += LANES * 4u) {
        let slope = within(load4_dy(row.first + c) * load4_w(c), c);
        slopes += slope;
        products += slope * within((load4_x(row.first + c) - mean) * rstd, c);
    }
    let means = team_sums(thread, vec2<f32>(sum4(slopes), sum4(products))) / f32(COLUMNS);
    for (var c = row.begin; c < row.end; c += LANES * 4u) {
        let normal = (load4_x(row.first + c) - mean) * rstd;
        let slope = load4_dy(row.first + c) * load4_w(c);
        store4_out(row.first + c, (slope - means.x - normal * means.y) * rstd, COLUMNS - c);
    }
}

// With normal = x·rstd and slope = dy·w: dx[r,c] = rstd[r]·(slope[r,c] − normal[r,c]·Σ slope[r,:]·normal[r,:]/C)
// As above, dx may share dy's storage.
@compute @workgroup_size(WORKGROUP)
fn rms_backward(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    if (tr_outside(id, grid)) {
        return;
    }
    let row = row_of(tr_group(id, grid), thread);
    let rstd = load_rstd(params.first_row + row.index);
    var products = vec4<f32>(0.0);
    for (var c = row.begin; c < row.end; c += LANES * 4u) {
        let slope = within(load4_dy(row.first + c) * load4_w(c), c);
        products += slope * within(load4_x(row.first + c) * rstd, c);
    }
    let mean_product = team_sum(thread, 0u, sum4(products)) / f32(COLUMNS);
    for (var c = row.begin; c < row.end; c += LANES * 4u) {
        let normal = load4_x(row.first + c) * rstd;
        let slope = load4_dy(row.first + c) * load4_w(c);
        store4_out(row.first + c, (slope - normal * mean_product) * rstd, COLUMNS - c);
    }
}

// What a thread sums: one quad of columns, of every WORKGROUP / QUADS-th row of a strip; and where the strip's sum goes.
struct Part {
    quad: u32,
    begin: u32,
    end: u32,
    out: u32,
}

fn part_of(group: u32, thread: u32) -> Part {
    let blocks = (QUADS_OF_ROW + QUADS - 1u) / QUADS;
    let strip = group / blocks;
    let quad = (group - strip * blocks) * QUADS + thread % QUADS;
    let begin = strip * params.strip + thread / QUADS;
    let end = select(0u, min((strip + 1u) * params.strip, params.rows), quad < QUADS_OF_ROW);
    return Part(quad, begin, end, strip * COLUMNS + quad * 4u);
}

// Adds up the parts of a quad in the first of its threads; what lies past the last column is not stored.
fn store_sum(thread: u32, part: Part, first: u32, own: vec4<f32>) {
    quad_partials[thread] = own;
    workgroupBarrier();
    if (thread < QUADS && part.quad < QUADS_OF_ROW) {
        var sum = own;
        for (var i = thread + QUADS; i < WORKGROUP; i += QUADS) {
            sum += quad_partials[i];
        }
        store4_out(first + part.out, sum, COLUMNS - part.quad * 4u);
    }
    // The next sum's parts take the place of these.
    workgroupBarrier();
}

// out[s,c] = Σ dy[r,c]·(x[r,c] − mean[r])·rstd[r] over the rows of strip s, `strip` or in the last fewer; Σ dy[r,c] lies the same
// way from `first_bias` on. QUADS neighbouring threads read a row side by side, and the threads past them the next rows.
@compute @workgroup_size(WORKGROUP)
fn layer_weights(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    if (tr_outside(id, grid)) {
        return;
    }
    let part = part_of(tr_group(id, grid), thread);
    var dw = vec4<f32>(0.0);
    var db = vec4<f32>(0.0);
    for (var row = part.begin; row < part.end; row += WORKGROUP / QUADS) {
        let at = row * COLUMNS + part.quad * 4u;
        let stat = params.first_row + row;
        let slope = load4_dy(at);
        dw += slope * ((load4_x(at) - load_mean(stat)) * load_rstd(stat));
        db += slope;
    }
    store_sum(thread, part, 0u, dw);
    store_sum(thread, part, params.first_bias, db);
}

// out[s,c] = Σ dy[r,c]·x[r,c]·rstd[r] over the rows of strip s, cut as above.
@compute @workgroup_size(WORKGROUP)
fn rms_weights(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    if (tr_outside(id, grid)) {
        return;
    }
    let part = part_of(tr_group(id, grid), thread);
    var dw = vec4<f32>(0.0);
    for (var row = part.begin; row < part.end; row += WORKGROUP / QUADS) {
        let at = row * COLUMNS + part.quad * 4u;
        dw += load4_dy(at) * (load4_x(at) * load_rstd(params.first_row + row));
    }
    store_sum(thread, part, 0u, dw);
}

// Layer norm and RMS norm and their gradients.   x, y, dy, dx (R, C); w, b (C); mean, rstd (R)
//
// Forward and the gradient of x: LANES neighbouring threads own a row and read it four columns at a time, side by
// side; a workgroup holds as many rows as fit and meets at one barrier a sum. The row's second and third reading come
// from the cache, so that traffic is x and y once (12·R·C flops of layer norm to 8·R·C bytes in f32).
//
// Gradients of the weights: partial sums over strips of rows, which reduce.wgsl adds up; a thread owns four columns.
//
// An entry's y, dx or partial sums are `out`. Every name is bound in every launch, so that entries share this file.

const QUADS_OF_ROW: u32 = (COLUMNS + 3u) / 4u;

// Partial sums of a team, twice: the second sum needs no barrier against readers of the first.
var<workgroup> partials: array<f32, 2u * WORKGROUP>;
var<workgroup> pairs: array<vec2<f32>, WORKGROUP>;
var<workgroup> weight_partials: array<vec4<f32>, WORKGROUP>;
var<workgroup> bias_partials: array<vec4<f32>, WORKGROUP>;

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

// Sum over the threads of a row. `turn` is 0 for a kernel's first sum and 1 for its second.
fn team_sum(thread: u32, turn: u32, value: f32) -> f32 {
    if (LANES == 1u) {
        return value;
    }
    let first = turn * WORKGROUP;
    partials[first + thread] = value;
    workgroupBarrier();
    let start = first + thread / LANES * LANES;
    var sum = 0.0;
    for (var i = start; i < start + LANES; i++) {
        sum += partials[i];
    }
    return sum;
}

// Two sums over the threads of a row.
fn team_sums(thread: u32, value: vec2<f32>) -> vec2<f32> {
    if (LANES == 1u) {
        return value;
    }
    pairs[thread] = value;
    workgroupBarrier();
    let start = thread / LANES * LANES;
    var sum = vec2<f32>(0.0);
    for (var i = start; i < start + LANES; i++) {
        sum += pairs[i];
    }
    return sum;
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
    let row = tr_group(id, grid) * (WORKGROUP / LANES) + thread / LANES;
    let first = row * COLUMNS;
    let begin = thread % LANES * 4u;
    // Rows past the last have no columns.
    let end = select(0u, COLUMNS, row < params.rows);
    var sums = vec4<f32>(0.0);
    for (var c = begin; c < end; c += LANES * 4u) {
        sums += within(load4_x(first + c), c);
    }
    let mean = team_sum(thread, 0u, sum4(sums)) / f32(COLUMNS);
    var squares = vec4<f32>(0.0);
    for (var c = begin; c < end; c += LANES * 4u) {
        let centred = within(load4_x(first + c) - mean, c);
        squares += centred * centred;
    }
    let variance = team_sum(thread, 1u, sum4(squares)) / f32(COLUMNS);
    let rstd = 1.0 / sqrt(variance + params.eps);
    for (var c = begin; c < end; c += LANES * 4u) {
        let normal = (load4_x(first + c) - mean) * rstd;
        store4_out(first + c, normal * load4_w(c) + load4_b(c), COLUMNS - c);
    }
    if (begin == 0u && row < params.rows) {
        store_mean(params.first_row + row, mean);
        store_rstd(params.first_row + row, rstd);
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
    let row = tr_group(id, grid) * (WORKGROUP / LANES) + thread / LANES;
    let first = row * COLUMNS;
    let begin = thread % LANES * 4u;
    let end = select(0u, COLUMNS, row < params.rows);
    var squares = vec4<f32>(0.0);
    for (var c = begin; c < end; c += LANES * 4u) {
        let four = within(load4_x(first + c), c);
        squares += four * four;
    }
    let rstd = 1.0 / sqrt(team_sum(thread, 0u, sum4(squares)) / f32(COLUMNS) + params.eps);
    for (var c = begin; c < end; c += LANES * 4u) {
        store4_out(first + c, load4_x(first + c) * rstd * load4_w(c), COLUMNS - c);
    }
    if (begin == 0u && row < params.rows) {
        store_rstd(params.first_row + row, rstd);
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
    let row = tr_group(id, grid) * (WORKGROUP / LANES) + thread / LANES;
    let first = row * COLUMNS;
    let begin = thread % LANES * 4u;
    let end = select(0u, COLUMNS, row < params.rows);
    let mean = load_mean(params.first_row + row);
    let rstd = load_rstd(params.first_row + row);
    var slopes = vec4<f32>(0.0);
    var products = vec4<f32>(0.0);
    for (var c = begin; c < end; c += LANES * 4u) {
        let slope = within(load4_dy(first + c) * load4_w(c), c);
        slopes += slope;
        products += slope * within((load4_x(first + c) - mean) * rstd, c);
    }
    let means = team_sums(thread, vec2<f32>(sum4(slopes), sum4(products))) / f32(COLUMNS);
    for (var c = begin; c < end; c += LANES * 4u) {
        let normal = (load4_x(first + c) - mean) * rstd;
        let slope = load4_dy(first + c) * load4_w(c);
        store4_out(first + c, (slope - means.x - normal * means.y) * rstd, COLUMNS - c);
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
    let row = tr_group(id, grid) * (WORKGROUP / LANES) + thread / LANES;
    let first = row * COLUMNS;
    let begin = thread % LANES * 4u;
    let end = select(0u, COLUMNS, row < params.rows);
    let rstd = load_rstd(params.first_row + row);
    var products = vec4<f32>(0.0);
    for (var c = begin; c < end; c += LANES * 4u) {
        let slope = within(load4_dy(first + c) * load4_w(c), c);
        products += slope * within(load4_x(first + c) * rstd, c);
    }
    let mean_product = team_sum(thread, 0u, sum4(products)) / f32(COLUMNS);
    for (var c = begin; c < end; c += LANES * 4u) {
        let normal = load4_x(first + c) * rstd;
        let slope = load4_dy(first + c) * load4_w(c);
        store4_out(first + c, (slope - normal * mean_product) * rstd, COLUMNS - c);
    }
}

// out[s,c] = Σ dy[r,c]·(x[r,c] − mean[r])·rstd[r] over the rows of strip s, STRIP or in the last fewer; Σ dy[r,c] lies the same
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
    let blocks = (QUADS_OF_ROW + QUADS - 1u) / QUADS;
    let strip = tr_group(id, grid) / blocks;
    let quad = (tr_group(id, grid) - strip * blocks) * QUADS + thread % QUADS;
    let end = min((strip + 1u) * STRIP, params.rows);
    // What lies past the last column is summed too, and not stored.
    var dw = vec4<f32>(0.0);
    var db = vec4<f32>(0.0);
    if (quad < QUADS_OF_ROW) {
        for (var row = strip * STRIP + thread / QUADS; row < end; row += WORKGROUP / QUADS) {
            let at = row * COLUMNS + quad * 4u;
            let stat = params.first_row + row;
            let slope = load4_dy(at);
            dw += slope * ((load4_x(at) - load_mean(stat)) * load_rstd(stat));
            db += slope;
        }
    }
    weight_partials[thread] = dw;
    bias_partials[thread] = db;
    workgroupBarrier();
    if (thread < QUADS && quad < QUADS_OF_ROW) {
        for (var i = thread + QUADS; i < WORKGROUP; i += QUADS) {
            dw += weight_partials[i];
            db += bias_partials[i];
        }
        let at = strip * COLUMNS + quad * 4u;
        store4_out(at, dw, COLUMNS - quad * 4u);
        store4_out(params.first_bias + at, db, COLUMNS - quad * 4u);
    }
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
    let blocks = (QUADS_OF_ROW + QUADS - 1u) / QUADS;
    let strip = tr_group(id, grid) / blocks;
    let quad = (tr_group(id, grid) - strip * blocks) * QUADS + thread % QUADS;
    let end = min((strip + 1u) * STRIP, params.rows);
    var dw = vec4<f32>(0.0);
    if (quad < QUADS_OF_ROW) {
        for (var row = strip * STRIP + thread / QUADS; row < end; row += WORKGROUP / QUADS) {
            let at = row * COLUMNS + quad * 4u;
            dw += load4_dy(at) * (load4_x(at) * load_rstd(params.first_row + row));
        }
    }
    weight_partials[thread] = dw;
    workgroupBarrier();
    if (thread < QUADS && quad < QUADS_OF_ROW) {
        for (var i = thread + QUADS; i < WORKGROUP; i += QUADS) {
            dw += weight_partials[i];
        }
        store4_out(strip * COLUMNS + quad * 4u, dw, COLUMNS - quad * 4u);
    }
}

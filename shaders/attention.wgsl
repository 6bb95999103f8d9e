// Attention. Scores are made in tiles of ROWS by ROWS and never stored. The layout of the tensors and the
// names of their parts are in attention_heads.wgsl.
//
// forward, grad_queries, grad_keys: a workgroup makes the ROWS rows of one head that it owns (queries, or keys in
// grad_keys) and goes over the other rows that attend or are attended to, ROWS at a time. Its threads form a square of
// LANES by LANES; thread (y, x) makes the 4 by 4 products of own rows 4·y + r and other rows x + LANES·j, and four
// channels a slice of its own rows' sums. Both tiles pass through workgroup memory in slices of channels, so that the
// memory, ROWS·(2·(SLICE + 1) + LANES + 1)·16 bytes, doesn't depend on the head's width. Bound by arithmetic:
// 64 multiply-adds for 8 reads of four numbers from workgroup memory; a row of `own`, `other` and `weights` is padded
// by one vector, so that neighbouring threads read different banks.

const LANES: u32 = ROWS / 4u;
const SLICE: u32 = min(LANES, FOURS);
const SLICES: u32 = (FOURS + SLICE - 1u) / SLICE;
const PITCH: u32 = SLICE + 1u;
const WEIGHTS_PITCH: u32 = LANES + 1u;

var<workgroup> own: array<vec4<f32>, ROWS * PITCH>;
var<workgroup> other: array<vec4<f32>, ROWS * PITCH>;
// Vector x of a row holds the weights of other rows x + LANES·(0, 1, 2, 3).
var<workgroup> weights: array<vec4<f32>, ROWS * WEIGHTS_PITCH>;
var<workgroup> largest: array<vec4<f32>, LANES * LANES>;

// Products of the thread's own rows, one a vector, with its other rows.
var<private> products: array<vec4<f32>, 4>;
// Sums of the thread's own rows, by slice and row; grad_keys has two.
var<private> sums: array<vec4<f32>, 8u * SLICES>;

// Puts vector `i` of a slice of a tile in its place.
fn stage(i: u32, v: vec4<f32>, into_own: bool) {
    let place = (i / SLICE) * PITCH + i % SLICE;
    if (into_own) {
        own[place] = v;
    } else {
        other[place] = v;
    }
}

// Rows of vectors: the first from element `at` of dout or of qkv on, and one every `pitch` elements.
struct Rows {
    at: u32,
    pitch: u32,
    of_dout: bool,
}

fn packed_rows(batch: u32, column: u32) -> Rows {
    return Rows(packed_index(batch, 0u, column), PACKED, false);
}

fn dout_rows(batch: u32, head: u32) -> Rows {
    return Rows(out_index(batch, 0u, head), HEADS * HEAD_DIM, true);
}

// Stages a slice of the ROWS rows from `first` on.
fn stage_rows(thread: u32, rows: Rows, first: u32, slice: u32, into_own: bool) {
    for (var i = thread; i < ROWS * SLICE; i += WORKGROUP) {
        let row = first + i / SLICE;
        let four = slice * SLICE + i % SLICE;
        var v = vec4<f32>();
        if (row < params.seq_len && four < FOURS) {
            let at = rows.at + row * rows.pitch + 4u * four;
            if (rows.of_dout) {
                v = within_head(load4_dout(at), four);
            } else {
                v = within_head(load4_qkv(at), four);
            }
        }
        stage(i, v, into_own);
    }
}

fn clear_products() {
    products[0] = vec4<f32>();
    products[1] = vec4<f32>();
    products[2] = vec4<f32>();
    products[3] = vec4<f32>();
}

// Adds a slice's part of own rows times other rows.
fn multiply(thread: u32) {
    let at_own = 4u * (thread / LANES) * PITCH;
    let at_other = (thread % LANES) * PITCH;
    var p0 = products[0];
    var p1 = products[1];
    var p2 = products[2];
    var p3 = products[3];
    for (var c = 0u; c < SLICE; c++) {
        let x0 = other[at_other + c];
        let x1 = other[at_other + LANES * PITCH + c];
        let x2 = other[at_other + 2u * LANES * PITCH + c];
        let x3 = other[at_other + 3u * LANES * PITCH + c];
        let a0 = own[at_own + c];
        p0 += vec4<f32>(dot(a0, x0), dot(a0, x1), dot(a0, x2), dot(a0, x3));
        let a1 = own[at_own + PITCH + c];
        p1 += vec4<f32>(dot(a1, x0), dot(a1, x1), dot(a1, x2), dot(a1, x3));
        let a2 = own[at_own + 2u * PITCH + c];
        p2 += vec4<f32>(dot(a2, x0), dot(a2, x1), dot(a2, x2), dot(a2, x3));
        let a3 = own[at_own + 3u * PITCH + c];
        p3 += vec4<f32>(dot(a3, x0), dot(a3, x1), dot(a3, x2), dot(a3, x3));
    }
    products[0] = p0;
    products[1] = p1;
    products[2] = p2;
    products[3] = p3;
}

// The products of ROWS own rows with ROWS other rows. Own rows that are staged already stay where `keep_own`.
fn multiply_rows(thread: u32, own_rows: Rows, own_first: u32, other_rows: Rows, other_first: u32, keep_own: bool) {
    clear_products();
    for (var slice = 0u; slice < SLICES; slice++) {
        workgroupBarrier();
        if (!keep_own) {
            stage_rows(thread, own_rows, own_first, slice, true);
        }
        stage_rows(thread, other_rows, other_first, slice, false);
        workgroupBarrier();
        multiply(thread);
    }
}

fn store_weights(thread: u32, w0: vec4<f32>, w1: vec4<f32>, w2: vec4<f32>, w3: vec4<f32>) {
    let at = 4u * (thread / LANES) * WEIGHTS_PITCH + thread % LANES;
    weights[at] = w0;
    weights[at + WEIGHTS_PITCH] = w1;
    weights[at + 2u * WEIGHTS_PITCH] = w2;
    weights[at + 3u * WEIGHTS_PITCH] = w3;
}

// Adds weights times the slice of other rows to the sums from `at` on.
fn accumulate(thread: u32, at: u32) {
    let lane = thread % LANES;
    if (lane >= SLICE) {
        return;
    }
    let at_weights = 4u * (thread / LANES) * WEIGHTS_PITCH;
    var s0 = sums[at];
    var s1 = sums[at + 1u];
    var s2 = sums[at + 2u];
    var s3 = sums[at + 3u];
    for (var k = 0u; k < LANES; k++) {
        let x0 = other[k * PITCH + lane];
        let x1 = other[(k + LANES) * PITCH + lane];
        let x2 = other[(k + 2u * LANES) * PITCH + lane];
        let x3 = other[(k + 3u * LANES) * PITCH + lane];
        let w0 = weights[at_weights + k];
        s0 += w0.x * x0 + w0.y * x1 + w0.z * x2 + w0.w * x3;
        let w1 = weights[at_weights + WEIGHTS_PITCH + k];
        s1 += w1.x * x0 + w1.y * x1 + w1.z * x2 + w1.w * x3;
        let w2 = weights[at_weights + 2u * WEIGHTS_PITCH + k];
        s2 += w2.x * x0 + w2.y * x1 + w2.z * x2 + w2.w * x3;
        let w3 = weights[at_weights + 3u * WEIGHTS_PITCH + k];
        s3 += w3.x * x0 + w3.y * x1 + w3.z * x2 + w3.w * x3;
    }
    sums[at] = s0;
    sums[at + 1u] = s1;
    sums[at + 2u] = s2;
    sums[at + 3u] = s3;
}

// Adds weights times ROWS other rows to the sums from `at` on.
fn accumulate_rows(thread: u32, rows: Rows, first: u32, at: u32) {
    for (var slice = 0u; slice < SLICES; slice++) {
        workgroupBarrier();
        stage_rows(thread, rows, first, slice, false);
        workgroupBarrier();
        accumulate(thread, at + 4u * slice);
    }
}

fn clear_sums() {
    for (var i = 0u; i < 8u * SLICES; i++) {
        sums[i] = vec4<f32>();
    }
}

fn store_rows(thread: u32, at: Tile, column: u32, from_sum: u32, factor: f32) {
    for (var slice = 0u; slice < SLICES; slice++) {
        let four = slice * SLICE + thread % LANES;
        for (var r = 0u; r < 4u; r++) {
            let row = at.first + 4u * (thread / LANES) + r;
            if (row < params.seq_len && thread % LANES < SLICE && four < FOURS) {
                let index = packed_index(at.batch, row, column) + 4u * four;
                store4_out(index, sums[from_sum + 4u * slice + r] * factor, min(4u, HEAD_DIM - 4u * four));
            }
        }
    }
}

@compute @workgroup_size(WORKGROUP)
fn forward(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    if (tr_outside(id, grid)) {
        return;
    }
    let at = tile_of(tr_group(id, grid), HEADS, ROWS);
    let queries = packed_rows(at.batch, query_column(at.head));
    let keys = packed_rows(at.batch, key_column(at.head / GROUP));
    let values = packed_rows(at.batch, value_column(at.head / GROUP));
    let query = at.first + 4u * (thread / LANES);
    var highest = vec4<f32>(LOWEST);
    // Of the thread's own columns; all threads of a row rescale by the same factors.
    var total = vec4<f32>();
    clear_sums();
    let begin = first_seen(at.first, ROWS);
    let end = end_of_keys(at.first, ROWS);
    for (var first = begin; first < end; first += ROWS) {
        // One slice of queries stays staged for all keys.
        multiply_rows(thread, queries, at.first, keys, first, SLICES == 1u && first > begin);
        let key = first + thread % LANES + LANES * vec4<u32>(0u, 1u, 2u, 3u);
        let low = vec4<f32>(LOWEST);
        let s0 = select(low, score_of(products[0]), attends(at.batch, query, key));
        let s1 = select(low, score_of(products[1]), attends(at.batch, query + 1u, key));
        let s2 = select(low, score_of(products[2]), attends(at.batch, query + 2u, key));
        let s3 = select(low, score_of(products[3]), attends(at.batch, query + 3u, key));
        largest[thread] = vec4<f32>(
            max(max(s0.x, s0.y), max(s0.z, s0.w)),
            max(max(s1.x, s1.y), max(s1.z, s1.w)),
            max(max(s2.x, s2.y), max(s2.z, s2.w)),
            max(max(s3.x, s3.y), max(s3.z, s3.w)),
        );
        workgroupBarrier();
        var raised = highest;
        for (var lane = 0u; lane < LANES; lane++) {
            raised = max(raised, largest[(thread / LANES) * LANES + lane]);
        }
        let factor = exp2(highest - raised);
        highest = raised;
        let w0 = exp2(s0 - raised.x);
        let w1 = exp2(s1 - raised.y);
        let w2 = exp2(s2 - raised.z);
        let w3 = exp2(s3 - raised.w);
        let one = vec4<f32>(1.0);
        total = total * factor + vec4<f32>(dot(w0, one), dot(w1, one), dot(w2, one), dot(w3, one));
        let row = lse_index(at.batch, at.head, query);
        store_weights(
            thread,
            w0 * kept_keys(row, key),
            w1 * kept_keys(row + 1u, key),
            w2 * kept_keys(row + 2u, key),
            w3 * kept_keys(row + 3u, key),
        );
        for (var i = 0u; i < 4u * SLICES; i++) {
            sums[i] *= factor[i % 4u];
        }
        accumulate_rows(thread, values, first, 0u);
    }
    workgroupBarrier();
    largest[thread] = total;
    workgroupBarrier();
    total = vec4<f32>();
    for (var lane = 0u; lane < LANES; lane++) {
        total += largest[(thread / LANES) * LANES + lane];
    }
    for (var r = 0u; r < 4u; r++) {
        let row = query + r;
        if (row >= params.seq_len) {
            break;
        }
        if (thread % LANES == 0u) {
            store_statistics(lse_index(at.batch, at.head, row), highest[r] * LN_2 + log(total[r]));
        }
        for (var slice = 0u; slice < SLICES; slice++) {
            let four = slice * SLICE + thread % LANES;
            if (thread % LANES < SLICE && four < FOURS) {
                let index = out_index(at.batch, row, at.head) + 4u * four;
                store4_out(index, sums[4u * slice + r] / total[r], min(4u, HEAD_DIM - 4u * four));
            }
        }
    }
}

// Inner product of a row of out with its gradient: what softmax subtracts. One thread a head of a row.
@compute @workgroup_size(WORKGROUP)
fn grad_delta(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let index = tr_group(id, grid) * WORKGROUP + thread;
    if (tr_outside(id, grid) || index >= params.sequences * params.seq_len * HEADS) {
        return;
    }
    let head = index % HEADS;
    let row = index / HEADS;
    var sum = 0.0;
    for (var four = 0u; four < FOURS; four++) {
        let channels = within_head(load4_out(out_index(0u, row, head) + 4u * four), four);
        sum += dot(channels, dout_four(0u, row, head, four));
    }
    store_statistics(delta_index(row / params.seq_len, head, row % params.seq_len), sum);
}

fn statistics_from(first: u32, row: vec4<u32>) -> vec4<f32> {
    let i = first + min(row, vec4<u32>(params.seq_len - 1u));
    return vec4<f32>(load_statistics(i.x), load_statistics(i.y), load_statistics(i.z), load_statistics(i.w));
}

fn probability(score: vec4<f32>, lse2: vec4<f32>, attends: vec4<bool>) -> vec4<f32> {
    return select(vec4<f32>(), exp2(score - lse2), attends);
}

@compute @workgroup_size(WORKGROUP)
fn grad_queries(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    if (tr_outside(id, grid)) {
        return;
    }
    let at = tile_of(tr_group(id, grid), HEADS, ROWS);
    let queries = packed_rows(at.batch, query_column(at.head));
    let keys = packed_rows(at.batch, key_column(at.head / GROUP));
    let values = packed_rows(at.batch, value_column(at.head / GROUP));
    let douts = dout_rows(at.batch, at.head);
    let query = at.first + 4u * (thread / LANES);
    let own_queries = query + vec4<u32>(0u, 1u, 2u, 3u);
    let lse2 = statistics_from(lse_index(at.batch, at.head, 0u), own_queries) * LOG2_E;
    let delta = statistics_from(delta_index(at.batch, at.head, 0u), own_queries);
    let row = lse_index(at.batch, at.head, query);
    clear_sums();
    let end = end_of_keys(at.first, ROWS);
    for (var first = first_seen(at.first, ROWS); first < end; first += ROWS) {
        let key = first + thread % LANES + LANES * vec4<u32>(0u, 1u, 2u, 3u);
        multiply_rows(thread, queries, at.first, keys, first, false);
        let s0 = score_of(products[0]);
        let p0 = probability(s0, vec4<f32>(lse2.x), attends(at.batch, query, key));
        let s1 = score_of(products[1]);
        let p1 = probability(s1, vec4<f32>(lse2.y), attends(at.batch, query + 1u, key));
        let s2 = score_of(products[2]);
        let p2 = probability(s2, vec4<f32>(lse2.z), attends(at.batch, query + 2u, key));
        let s3 = score_of(products[3]);
        let p3 = probability(s3, vec4<f32>(lse2.w), attends(at.batch, query + 3u, key));
        multiply_rows(thread, douts, at.first, values, first, false);
        store_weights(
            thread,
            p0 * slope_of(s0) * (products[0] * kept_keys(row, key) - delta.x),
            p1 * slope_of(s1) * (products[1] * kept_keys(row + 1u, key) - delta.y),
            p2 * slope_of(s2) * (products[2] * kept_keys(row + 2u, key) - delta.z),
            p3 * slope_of(s3) * (products[3] * kept_keys(row + 3u, key) - delta.w),
        );
        accumulate_rows(thread, keys, first, 0u);
    }
    store_rows(thread, at, query_column(at.head), 0u, params.scale);
}

@compute @workgroup_size(WORKGROUP)
fn grad_keys(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    if (tr_outside(id, grid)) {
        return;
    }
    let at = tile_of(tr_group(id, grid), KV_HEADS, ROWS);
    let keys = packed_rows(at.batch, key_column(at.head));
    let values = packed_rows(at.batch, value_column(at.head));
    let key = at.first + 4u * (thread / LANES);
    clear_sums();
    for (var head = at.head * GROUP; head < (at.head + 1u) * GROUP; head++) {
        let queries = packed_rows(at.batch, query_column(head));
        let douts = dout_rows(at.batch, head);
        let end = end_seen(at.first, ROWS);
        for (var first = first_query(at.first, ROWS); first < end; first += ROWS) {
            let query = first + thread % LANES + LANES * vec4<u32>(0u, 1u, 2u, 3u);
            let lse2 = statistics_from(lse_index(at.batch, head, 0u), query) * LOG2_E;
            let delta = statistics_from(delta_index(at.batch, head, 0u), query);
            multiply_rows(thread, keys, at.first, queries, first, false);
            let s0 = score_of(products[0]);
            let p0 = probability(s0, lse2, attended(at.batch, key, query));
            let s1 = score_of(products[1]);
            let p1 = probability(s1, lse2, attended(at.batch, key + 1u, query));
            let s2 = score_of(products[2]);
            let p2 = probability(s2, lse2, attended(at.batch, key + 2u, query));
            let s3 = score_of(products[3]);
            let p3 = probability(s3, lse2, attended(at.batch, key + 3u, query));
            let row = lse_index(at.batch, head, 0u) + query;
            let k0 = kept_queries(row, key);
            let k1 = kept_queries(row, key + 1u);
            let k2 = kept_queries(row, key + 2u);
            let k3 = kept_queries(row, key + 3u);
            store_weights(thread, p0 * k0, p1 * k1, p2 * k2, p3 * k3);
            clear_products();
            for (var slice = 0u; slice < SLICES; slice++) {
                workgroupBarrier();
                stage_rows(thread, values, at.first, slice, true);
                stage_rows(thread, douts, first, slice, false);
                workgroupBarrier();
                multiply(thread);
                accumulate(thread, 4u * slice);
            }
            workgroupBarrier();
            store_weights(
                thread,
                p0 * slope_of(s0) * (products[0] * k0 - delta),
                p1 * slope_of(s1) * (products[1] * k1 - delta),
                p2 * slope_of(s2) * (products[2] * k2 - delta),
                p3 * slope_of(s3) * (products[3] * k3 - delta),
            );
            accumulate_rows(thread, queries, first, 4u * SLICES);
        }
    }
    store_rows(thread, at, value_column(at.head), 0u, 1.0);
    store_rows(thread, at, key_column(at.head), 4u * SLICES, params.scale);
}

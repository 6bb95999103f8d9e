// Causal attention. Scores are made in tiles of ROWS by ROWS and never stored; see ops/attention.rs for the formulas.
//
// Packed projections (B, T, PACKED): HEADS queries, KV_HEADS keys, KV_HEADS values of HEAD_DIM channels a row.
// `statistics` holds numbers of all sequences, also where a launch makes `sequences` of them from `first` on: the logs
// of normalisers, and in the gradient what it subtracts from `deltas` on. Exponentials are of base 2: `params.scale2` is log2(e)/√HEAD_DIM.
//
// forward, grad_queries, grad_keys: a workgroup makes the ROWS rows of one head that it owns (queries, or keys in
// grad_keys) and goes over the other rows that attend or are attended to, ROWS at a time. Its threads form a square of
// LANES by LANES; thread (y, x) makes the 4 by 4 products of own rows 4·y + r and other rows x + LANES·j, and four
// channels a slice of its own rows' sums. Both tiles pass through workgroup memory in slices of channels, so that the
// memory, ROWS·(2·(SLICE + 1) + LANES + 1)·16 bytes, doesn't depend on the head's width. Bound by arithmetic:
// 64 multiply-adds for 8 reads of four numbers from workgroup memory; a row of `own`, `other` and `weights` is padded
// by one vector, so that neighbouring threads read different banks.

const FOURS: u32 = (HEAD_DIM + 3u) / 4u;
const GROUP: u32 = HEADS / KV_HEADS;
const PACKED: u32 = (HEADS + 2u * KV_HEADS) * HEAD_DIM;
const LOWEST: f32 = -3.4e38;
const LN_2: f32 = 0.6931471805599453;
const LOG2_E: f32 = 1.4426950408889634;

fn query_column(head: u32) -> u32 {
    return head * HEAD_DIM;
}

fn key_column(kv_head: u32) -> u32 {
    return (HEADS + kv_head) * HEAD_DIM;
}

fn value_column(kv_head: u32) -> u32 {
    return (HEADS + KV_HEADS + kv_head) * HEAD_DIM;
}

// Zeroes what four channels from vector `four` of a head on have past its end.
fn within_head(v: vec4<f32>, four: u32) -> vec4<f32> {
    if (HEAD_DIM % 4u == 0u) {
        return v;
    }
    return select(vec4<f32>(), v, vec4<u32>(0u, 1u, 2u, 3u) + 4u * four < vec4<u32>(HEAD_DIM));
}

fn packed_four(batch: u32, row: u32, column: u32, four: u32) -> vec4<f32> {
    let at = (batch * params.time + row) * PACKED + column + 4u * four;
    return within_head(load4_qkv(at), four);
}

fn out_index(batch: u32, row: u32, head: u32) -> u32 {
    return ((batch * params.time + row) * HEADS + head) * HEAD_DIM;
}

fn dout_four(batch: u32, row: u32, head: u32, four: u32) -> vec4<f32> {
    return within_head(load4_dout(out_index(batch, row, head) + 4u * four), four);
}

// The log of a query's normaliser.
fn lse_index(batch: u32, head: u32, row: u32) -> u32 {
    return ((params.first + batch) * HEADS + head) * params.time + row;
}

// What the gradient of a query's scores subtracts.
fn delta_index(batch: u32, head: u32, row: u32) -> u32 {
    return params.deltas + lse_index(batch, head, row);
}

// ---- Tiles of rows ----

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

fn stage_packed(thread: u32, batch: u32, first: u32, column: u32, slice: u32, into_own: bool) {
    for (var i = thread; i < ROWS * SLICE; i += WORKGROUP) {
        let row = first + i / SLICE;
        let four = slice * SLICE + i % SLICE;
        var v = vec4<f32>();
        if (row < params.time && four < FOURS) {
            v = packed_four(batch, row, column, four);
        }
        stage(i, v, into_own);
    }
}

fn stage_dout(thread: u32, batch: u32, first: u32, head: u32, slice: u32, into_own: bool) {
    for (var i = thread; i < ROWS * SLICE; i += WORKGROUP) {
        let row = first + i / SLICE;
        let four = slice * SLICE + i % SLICE;
        var v = vec4<f32>();
        if (row < params.time && four < FOURS) {
            v = dout_four(batch, row, head, four);
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

fn clear_sums() {
    for (var i = 0u; i < 8u * SLICES; i++) {
        sums[i] = vec4<f32>();
    }
}

// The workgroup's sequence, head of `heads`, and first own row.
struct Tile {
    batch: u32,
    head: u32,
    first: u32,
}

fn tile(group: u32, heads: u32) -> Tile {
    let tiles = (params.time + ROWS - 1u) / ROWS;
    let of_batch = group / tiles;
    return Tile(of_batch / heads, of_batch % heads, (group % tiles) * ROWS);
}

fn store_rows(thread: u32, at: Tile, column: u32, from_sum: u32, factor: f32) {
    for (var slice = 0u; slice < SLICES; slice++) {
        let four = slice * SLICE + thread % LANES;
        for (var r = 0u; r < 4u; r++) {
            let row = at.first + 4u * (thread / LANES) + r;
            if (row < params.time && thread % LANES < SLICE && four < FOURS) {
                let index = (at.batch * params.time + row) * PACKED + column + 4u * four;
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
    let at = tile(tr_group(id, grid), HEADS);
    let kv_head = at.head / GROUP;
    let query = at.first + 4u * (thread / LANES);
    var highest = vec4<f32>(LOWEST);
    // Of the thread's own columns; all threads of a row rescale by the same factors.
    var total = vec4<f32>();
    clear_sums();
    let end = min(at.first + ROWS, params.time);
    for (var first = 0u; first < end; first += ROWS) {
        clear_products();
        for (var slice = 0u; slice < SLICES; slice++) {
            workgroupBarrier();
            if (SLICES > 1u || first == 0u) {
                stage_packed(thread, at.batch, at.first, query_column(at.head), slice, true);
            }
            stage_packed(thread, at.batch, first, key_column(kv_head), slice, false);
            workgroupBarrier();
            multiply(thread);
        }
        let key = first + thread % LANES + LANES * vec4<u32>(0u, 1u, 2u, 3u);
        let low = vec4<f32>(LOWEST);
        let s0 = select(low, products[0] * params.scale2, key <= vec4<u32>(query));
        let s1 = select(low, products[1] * params.scale2, key <= vec4<u32>(query + 1u));
        let s2 = select(low, products[2] * params.scale2, key <= vec4<u32>(query + 2u));
        let s3 = select(low, products[3] * params.scale2, key <= vec4<u32>(query + 3u));
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
        store_weights(thread, w0, w1, w2, w3);
        for (var slice = 0u; slice < SLICES; slice++) {
            for (var r = 0u; r < 4u; r++) {
                sums[4u * slice + r] *= factor[r];
            }
            workgroupBarrier();
            stage_packed(thread, at.batch, first, value_column(kv_head), slice, false);
            workgroupBarrier();
            accumulate(thread, 4u * slice);
        }
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
        if (row >= params.time) {
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
    if (tr_outside(id, grid) || index >= params.sequences * params.time * HEADS) {
        return;
    }
    let head = index % HEADS;
    let row = index / HEADS;
    var sum = 0.0;
    for (var four = 0u; four < FOURS; four++) {
        let channels = within_head(load4_out(out_index(0u, row, head) + 4u * four), four);
        sum += dot(channels, dout_four(0u, row, head, four));
    }
    store_statistics(delta_index(row / params.time, head, row % params.time), sum);
}

fn statistics_from(first: u32, row: vec4<u32>) -> vec4<f32> {
    let i = first + min(row, vec4<u32>(params.time - 1u));
    return vec4<f32>(load_statistics(i.x), load_statistics(i.y), load_statistics(i.z), load_statistics(i.w));
}

fn probability(product: vec4<f32>, lse2: vec4<f32>, attends: vec4<bool>) -> vec4<f32> {
    return select(vec4<f32>(), exp2(product * params.scale2 - lse2), attends);
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
    let at = tile(tr_group(id, grid), HEADS);
    let kv_head = at.head / GROUP;
    let query = at.first + 4u * (thread / LANES);
    let queries = query + vec4<u32>(0u, 1u, 2u, 3u);
    let lse2 = statistics_from(lse_index(at.batch, at.head, 0u), queries) * LOG2_E;
    let delta = statistics_from(delta_index(at.batch, at.head, 0u), queries);
    clear_sums();
    let end = min(at.first + ROWS, params.time);
    for (var first = 0u; first < end; first += ROWS) {
        let key = first + thread % LANES + LANES * vec4<u32>(0u, 1u, 2u, 3u);
        clear_products();
        for (var slice = 0u; slice < SLICES; slice++) {
            workgroupBarrier();
            stage_packed(thread, at.batch, at.first, query_column(at.head), slice, true);
            stage_packed(thread, at.batch, first, key_column(kv_head), slice, false);
            workgroupBarrier();
            multiply(thread);
        }
        let p0 = probability(products[0], vec4<f32>(lse2.x), key <= vec4<u32>(query));
        let p1 = probability(products[1], vec4<f32>(lse2.y), key <= vec4<u32>(query + 1u));
        let p2 = probability(products[2], vec4<f32>(lse2.z), key <= vec4<u32>(query + 2u));
        let p3 = probability(products[3], vec4<f32>(lse2.w), key <= vec4<u32>(query + 3u));
        clear_products();
        for (var slice = 0u; slice < SLICES; slice++) {
            workgroupBarrier();
            stage_dout(thread, at.batch, at.first, at.head, slice, true);
            stage_packed(thread, at.batch, first, value_column(kv_head), slice, false);
            workgroupBarrier();
            multiply(thread);
        }
        store_weights(
            thread,
            p0 * (products[0] - delta.x),
            p1 * (products[1] - delta.y),
            p2 * (products[2] - delta.z),
            p3 * (products[3] - delta.w),
        );
        for (var slice = 0u; slice < SLICES; slice++) {
            workgroupBarrier();
            stage_packed(thread, at.batch, first, key_column(kv_head), slice, false);
            workgroupBarrier();
            accumulate(thread, 4u * slice);
        }
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
    let at = tile(tr_group(id, grid), KV_HEADS);
    let key = at.first + 4u * (thread / LANES);
    clear_sums();
    for (var head = at.head * GROUP; head < (at.head + 1u) * GROUP; head++) {
        for (var first = at.first; first < params.time; first += ROWS) {
            let query = first + thread % LANES + LANES * vec4<u32>(0u, 1u, 2u, 3u);
            let lse2 = statistics_from(lse_index(at.batch, head, 0u), query) * LOG2_E;
            let delta = statistics_from(delta_index(at.batch, head, 0u), query);
            clear_products();
            for (var slice = 0u; slice < SLICES; slice++) {
                workgroupBarrier();
                stage_packed(thread, at.batch, at.first, key_column(at.head), slice, true);
                stage_packed(thread, at.batch, first, query_column(head), slice, false);
                workgroupBarrier();
                multiply(thread);
            }
            let exists = query < vec4<u32>(params.time);
            let p0 = probability(products[0], lse2, (query >= vec4<u32>(key)) & exists);
            let p1 = probability(products[1], lse2, (query >= vec4<u32>(key + 1u)) & exists);
            let p2 = probability(products[2], lse2, (query >= vec4<u32>(key + 2u)) & exists);
            let p3 = probability(products[3], lse2, (query >= vec4<u32>(key + 3u)) & exists);
            store_weights(thread, p0, p1, p2, p3);
            clear_products();
            for (var slice = 0u; slice < SLICES; slice++) {
                workgroupBarrier();
                stage_packed(thread, at.batch, at.first, value_column(at.head), slice, true);
                stage_dout(thread, at.batch, first, head, slice, false);
                workgroupBarrier();
                multiply(thread);
                accumulate(thread, 4u * slice);
            }
            workgroupBarrier();
            store_weights(
                thread,
                p0 * (products[0] - delta),
                p1 * (products[1] - delta),
                p2 * (products[2] - delta),
                p3 * (products[3] - delta),
            );
            for (var slice = 0u; slice < SLICES; slice++) {
                workgroupBarrier();
                stage_packed(thread, at.batch, first, query_column(head), slice, false);
                workgroupBarrier();
                accumulate(thread, 4u * (SLICES + slice));
            }
        }
    }
    store_rows(thread, at, value_column(at.head), 0u, 1.0);
    store_rows(thread, at, key_column(at.head), 4u * SLICES, params.scale);
}

// ---- Two rows a thread ----
//
// forward_direct, grad_queries_direct, grad_keys_direct: for processors that emulate a GPU. Barriers and workgroup
// memory are slow there, a value that all threads read from one place costs some ten multiply-adds, and registers are
// the thread's own stack. A thread makes two rows of one head (first + thread, and WORKGROUP below), with all channels
// in registers, and the threads of a workgroup go over the other rows together. Bound by reading those: each vector is
// used for both rows, which is 1.8 times as fast as for one. Matrices stand for 16 channels each, because these
// compilers don't unroll loops over arrays.

const BLOCKS: u32 = (FOURS + 3u) / 4u;

struct Head {
    b0: mat4x4<f32>,
    b1: mat4x4<f32>,
    b2: mat4x4<f32>,
    b3: mat4x4<f32>,
    b4: mat4x4<f32>,
    b5: mat4x4<f32>,
    b6: mat4x4<f32>,
    b7: mat4x4<f32>,
}

fn qkv_or_zero(at: u32, four: u32) -> vec4<f32> {
    if (four >= FOURS) {
        return vec4<f32>();
    }
    return within_head(load4_qkv(at + 4u * four), four);
}

fn block_of_qkv(at: u32, block: u32) -> mat4x4<f32> {
    let four = 4u * block;
    return mat4x4<f32>(
        qkv_or_zero(at, four),
        qkv_or_zero(at, four + 1u),
        qkv_or_zero(at, four + 2u),
        qkv_or_zero(at, four + 3u),
    );
}

fn head_of_qkv(at: u32) -> Head {
    var head: Head;
    head.b0 = block_of_qkv(at, 0u);
    if (BLOCKS > 1u) { head.b1 = block_of_qkv(at, 1u); }
    if (BLOCKS > 2u) { head.b2 = block_of_qkv(at, 2u); }
    if (BLOCKS > 3u) { head.b3 = block_of_qkv(at, 3u); }
    if (BLOCKS > 4u) { head.b4 = block_of_qkv(at, 4u); }
    if (BLOCKS > 5u) { head.b5 = block_of_qkv(at, 5u); }
    if (BLOCKS > 6u) { head.b6 = block_of_qkv(at, 6u); }
    if (BLOCKS > 7u) { head.b7 = block_of_qkv(at, 7u); }
    return head;
}

fn dout_or_zero(at: u32, four: u32) -> vec4<f32> {
    if (four >= FOURS) {
        return vec4<f32>();
    }
    return within_head(load4_dout(at + 4u * four), four);
}

fn block_of_dout(at: u32, block: u32) -> mat4x4<f32> {
    let four = 4u * block;
    return mat4x4<f32>(
        dout_or_zero(at, four),
        dout_or_zero(at, four + 1u),
        dout_or_zero(at, four + 2u),
        dout_or_zero(at, four + 3u),
    );
}

fn head_of_dout(at: u32) -> Head {
    var head: Head;
    head.b0 = block_of_dout(at, 0u);
    if (BLOCKS > 1u) { head.b1 = block_of_dout(at, 1u); }
    if (BLOCKS > 2u) { head.b2 = block_of_dout(at, 2u); }
    if (BLOCKS > 3u) { head.b3 = block_of_dout(at, 3u); }
    if (BLOCKS > 4u) { head.b4 = block_of_dout(at, 4u); }
    if (BLOCKS > 5u) { head.b5 = block_of_dout(at, 5u); }
    if (BLOCKS > 6u) { head.b6 = block_of_dout(at, 6u); }
    if (BLOCKS > 7u) { head.b7 = block_of_dout(at, 7u); }
    return head;
}

fn dot_block(a: mat4x4<f32>, b: mat4x4<f32>) -> vec4<f32> {
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3];
}

fn dot_heads(a: ptr<function, Head>, b: ptr<function, Head>) -> f32 {
    var sum = dot_block((*a).b0, (*b).b0);
    if (BLOCKS > 1u) { sum += dot_block((*a).b1, (*b).b1); }
    if (BLOCKS > 2u) { sum += dot_block((*a).b2, (*b).b2); }
    if (BLOCKS > 3u) { sum += dot_block((*a).b3, (*b).b3); }
    if (BLOCKS > 4u) { sum += dot_block((*a).b4, (*b).b4); }
    if (BLOCKS > 5u) { sum += dot_block((*a).b5, (*b).b5); }
    if (BLOCKS > 6u) { sum += dot_block((*a).b6, (*b).b6); }
    if (BLOCKS > 7u) { sum += dot_block((*a).b7, (*b).b7); }
    return (sum.x + sum.y) + (sum.z + sum.w);
}

fn add_head(sum: ptr<function, Head>, weight: f32, x: ptr<function, Head>) {
    (*sum).b0 += (*x).b0 * weight;
    if (BLOCKS > 1u) { (*sum).b1 += (*x).b1 * weight; }
    if (BLOCKS > 2u) { (*sum).b2 += (*x).b2 * weight; }
    if (BLOCKS > 3u) { (*sum).b3 += (*x).b3 * weight; }
    if (BLOCKS > 4u) { (*sum).b4 += (*x).b4 * weight; }
    if (BLOCKS > 5u) { (*sum).b5 += (*x).b5 * weight; }
    if (BLOCKS > 6u) { (*sum).b6 += (*x).b6 * weight; }
    if (BLOCKS > 7u) { (*sum).b7 += (*x).b7 * weight; }
}

fn scale_head(head: ptr<function, Head>, factor: f32) {
    (*head).b0 *= factor;
    if (BLOCKS > 1u) { (*head).b1 *= factor; }
    if (BLOCKS > 2u) { (*head).b2 *= factor; }
    if (BLOCKS > 3u) { (*head).b3 *= factor; }
    if (BLOCKS > 4u) { (*head).b4 *= factor; }
    if (BLOCKS > 5u) { (*head).b5 *= factor; }
    if (BLOCKS > 6u) { (*head).b6 *= factor; }
    if (BLOCKS > 7u) { (*head).b7 *= factor; }
}

fn store_four(at: u32, four: u32, v: vec4<f32>) {
    if (four < FOURS) {
        store4_out(at + 4u * four, v, min(4u, HEAD_DIM - 4u * four));
    }
}

fn store_block(at: u32, block: u32, x: mat4x4<f32>) {
    store_four(at, 4u * block, x[0]);
    store_four(at, 4u * block + 1u, x[1]);
    store_four(at, 4u * block + 2u, x[2]);
    store_four(at, 4u * block + 3u, x[3]);
}

fn store_head(at: u32, head: ptr<function, Head>) {
    store_block(at, 0u, (*head).b0);
    if (BLOCKS > 1u) { store_block(at, 1u, (*head).b1); }
    if (BLOCKS > 2u) { store_block(at, 2u, (*head).b2); }
    if (BLOCKS > 3u) { store_block(at, 3u, (*head).b3); }
    if (BLOCKS > 4u) { store_block(at, 4u, (*head).b4); }
    if (BLOCKS > 5u) { store_block(at, 5u, (*head).b5); }
    if (BLOCKS > 6u) { store_block(at, 6u, (*head).b6); }
    if (BLOCKS > 7u) { store_block(at, 7u, (*head).b7); }
}

fn packed_index(batch: u32, row: u32, column: u32) -> u32 {
    return (batch * params.time + row) * PACKED + column;
}

// The workgroup's sequence, head of `heads`, and first row of two a thread.
fn strip(group: u32, heads: u32) -> Tile {
    let strips = (params.time + 2u * WORKGROUP - 1u) / (2u * WORKGROUP);
    let of_batch = group / strips;
    return Tile(of_batch / heads, of_batch % heads, (group % strips) * 2u * WORKGROUP);
}

// Online softmax of one row: the largest score so far, and the sum of exponentials.
struct Normaliser {
    highest: f32,
    total: f32,
}

// Takes four scores into the normaliser and the sum; gives their weights.
fn weigh(
    state: ptr<function, Normaliser>,
    sum: ptr<function, Head>,
    score: vec4<f32>,
    attends: vec4<bool>,
) -> vec4<f32> {
    let seen = select(vec4<f32>(LOWEST), score, attends);
    let raised = max((*state).highest, max(max(seen.x, seen.y), max(seen.z, seen.w)));
    let factor = exp2((*state).highest - raised);
    let weight = exp2(seen - raised);
    (*state).highest = raised;
    (*state).total = (*state).total * factor + ((weight.x + weight.y) + (weight.z + weight.w));
    scale_head(sum, factor);
    return weight;
}

fn store_query(at: Tile, row: u32, state: Normaliser, sum: ptr<function, Head>) {
    if (row < params.time) {
        store_statistics(lse_index(at.batch, at.head, row), state.highest * LN_2 + log(state.total));
        scale_head(sum, 1.0 / state.total);
        store_head(out_index(at.batch, row, at.head), sum);
    }
}

@compute @workgroup_size(WORKGROUP)
fn forward_direct(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    if (tr_outside(id, grid)) {
        return;
    }
    let at = strip(tr_group(id, grid), HEADS);
    let kv_head = at.head / GROUP;
    let row = at.first + thread;
    let below = row + WORKGROUP;
    let last = params.time - 1u;
    var query = head_of_qkv(packed_index(at.batch, min(row, last), query_column(at.head)));
    scale_head(&query, params.scale2);
    var query_below = head_of_qkv(packed_index(at.batch, min(below, last), query_column(at.head)));
    scale_head(&query_below, params.scale2);
    var sum: Head;
    var sum_below: Head;
    var state = Normaliser(LOWEST, 0.0);
    var state_below = Normaliser(LOWEST, 0.0);
    let end = min(at.first + 2u * WORKGROUP, params.time);
    for (var first = 0u; first < end; first += 4u) {
        let keys = min(first + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(last));
        var other = head_of_qkv(packed_index(at.batch, keys.x, key_column(kv_head)));
        var score = vec4<f32>(dot_heads(&query, &other), 0.0, 0.0, 0.0);
        var score_below = vec4<f32>(dot_heads(&query_below, &other), 0.0, 0.0, 0.0);
        other = head_of_qkv(packed_index(at.batch, keys.y, key_column(kv_head)));
        score.y = dot_heads(&query, &other);
        score_below.y = dot_heads(&query_below, &other);
        other = head_of_qkv(packed_index(at.batch, keys.z, key_column(kv_head)));
        score.z = dot_heads(&query, &other);
        score_below.z = dot_heads(&query_below, &other);
        other = head_of_qkv(packed_index(at.batch, keys.w, key_column(kv_head)));
        score.w = dot_heads(&query, &other);
        score_below.w = dot_heads(&query_below, &other);
        let key = first + vec4<u32>(0u, 1u, 2u, 3u);
        let weight = weigh(&state, &sum, score, key <= vec4<u32>(row));
        let weight_below = weigh(&state_below, &sum_below, score_below, key <= vec4<u32>(below));
        other = head_of_qkv(packed_index(at.batch, keys.x, value_column(kv_head)));
        add_head(&sum, weight.x, &other);
        add_head(&sum_below, weight_below.x, &other);
        other = head_of_qkv(packed_index(at.batch, keys.y, value_column(kv_head)));
        add_head(&sum, weight.y, &other);
        add_head(&sum_below, weight_below.y, &other);
        other = head_of_qkv(packed_index(at.batch, keys.z, value_column(kv_head)));
        add_head(&sum, weight.z, &other);
        add_head(&sum_below, weight_below.z, &other);
        other = head_of_qkv(packed_index(at.batch, keys.w, value_column(kv_head)));
        add_head(&sum, weight.w, &other);
        add_head(&sum_below, weight_below.w, &other);
    }
    store_query(at, row, state, &sum);
    store_query(at, below, state_below, &sum_below);
}

@compute @workgroup_size(WORKGROUP)
fn grad_queries_direct(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    if (tr_outside(id, grid)) {
        return;
    }
    let at = strip(tr_group(id, grid), HEADS);
    let kv_head = at.head / GROUP;
    let rows = at.first + thread + WORKGROUP * vec2<u32>(0u, 1u);
    let read = min(rows, vec2<u32>(params.time - 1u));
    var query = head_of_qkv(packed_index(at.batch, read.x, query_column(at.head)));
    scale_head(&query, params.scale2);
    var query_below = head_of_qkv(packed_index(at.batch, read.y, query_column(at.head)));
    scale_head(&query_below, params.scale2);
    var dout = head_of_dout(out_index(at.batch, read.x, at.head));
    var dout_below = head_of_dout(out_index(at.batch, read.y, at.head));
    let of_lse = read + lse_index(at.batch, at.head, 0u);
    let of_delta = read + delta_index(at.batch, at.head, 0u);
    let lse2 = vec2<f32>(load_statistics(of_lse.x), load_statistics(of_lse.y)) * LOG2_E;
    let delta = vec2<f32>(load_statistics(of_delta.x), load_statistics(of_delta.y));
    var sum: Head;
    var sum_below: Head;
    let end = min(at.first + 2u * WORKGROUP, params.time);
    for (var j = 0u; j < end; j++) {
        var other = head_of_qkv(packed_index(at.batch, j, value_column(kv_head)));
        let dp = vec2<f32>(dot_heads(&dout, &other), dot_heads(&dout_below, &other));
        other = head_of_qkv(packed_index(at.batch, j, key_column(kv_head)));
        let score = vec2<f32>(dot_heads(&query, &other), dot_heads(&query_below, &other));
        let p = select(vec2<f32>(), exp2(score - lse2), vec2<u32>(j) <= rows);
        let dscore = p * (dp - delta);
        add_head(&sum, dscore.x, &other);
        add_head(&sum_below, dscore.y, &other);
    }
    scale_head(&sum, params.scale);
    scale_head(&sum_below, params.scale);
    if (rows.x < params.time) {
        store_head(packed_index(at.batch, rows.x, query_column(at.head)), &sum);
    }
    if (rows.y < params.time) {
        store_head(packed_index(at.batch, rows.y, query_column(at.head)), &sum_below);
    }
}

@compute @workgroup_size(WORKGROUP)
fn grad_keys_direct(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    if (tr_outside(id, grid)) {
        return;
    }
    let at = strip(tr_group(id, grid), KV_HEADS);
    let rows = at.first + thread + WORKGROUP * vec2<u32>(0u, 1u);
    let read = min(rows, vec2<u32>(params.time - 1u));
    var key = head_of_qkv(packed_index(at.batch, read.x, key_column(at.head)));
    scale_head(&key, params.scale2);
    var key_below = head_of_qkv(packed_index(at.batch, read.y, key_column(at.head)));
    scale_head(&key_below, params.scale2);
    var value = head_of_qkv(packed_index(at.batch, read.x, value_column(at.head)));
    var value_below = head_of_qkv(packed_index(at.batch, read.y, value_column(at.head)));
    var dkey: Head;
    var dkey_below: Head;
    var dvalue: Head;
    var dvalue_below: Head;
    for (var head = at.head * GROUP; head < (at.head + 1u) * GROUP; head++) {
        for (var i = at.first; i < params.time; i++) {
            let lse2 = load_statistics(lse_index(at.batch, head, i)) * LOG2_E;
            let delta = load_statistics(delta_index(at.batch, head, i));
            var query = head_of_qkv(packed_index(at.batch, i, query_column(head)));
            let score = vec2<f32>(dot_heads(&key, &query), dot_heads(&key_below, &query));
            let p = select(vec2<f32>(), exp2(score - lse2), vec2<u32>(i) >= rows);
            var dout = head_of_dout(out_index(at.batch, i, head));
            let dp = vec2<f32>(dot_heads(&value, &dout), dot_heads(&value_below, &dout));
            let dscore = p * (dp - delta);
            add_head(&dvalue, p.x, &dout);
            add_head(&dvalue_below, p.y, &dout);
            add_head(&dkey, dscore.x, &query);
            add_head(&dkey_below, dscore.y, &query);
        }
    }
    scale_head(&dkey, params.scale);
    scale_head(&dkey_below, params.scale);
    if (rows.x < params.time) {
        store_head(packed_index(at.batch, rows.x, key_column(at.head)), &dkey);
        store_head(packed_index(at.batch, rows.x, value_column(at.head)), &dvalue);
    }
    if (rows.y < params.time) {
        store_head(packed_index(at.batch, rows.y, key_column(at.head)), &dkey_below);
        store_head(packed_index(at.batch, rows.y, value_column(at.head)), &dvalue_below);
    }
}

// ---- Decoding with a cache ----

const CACHE_COLUMNS: u32 = KV_HEADS * HEAD_DIM;
const CACHE_FOURS: u32 = (CACHE_COLUMNS + 3u) / 4u;

fn cache_index(batch: u32, row: u32) -> u32 {
    return (batch * params.capacity + row) * CACHE_COLUMNS;
}

// Copies the new positions' keys and values to the caches, four of a row a thread.
@compute @workgroup_size(WORKGROUP)
fn append(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let index = tr_group(id, grid) * WORKGROUP + thread;
    if (tr_outside(id, grid) || index >= params.sequences * params.time * CACHE_FOURS) {
        return;
    }
    let row = index / CACHE_FOURS;
    let column = 4u * (index % CACHE_FOURS);
    let to = cache_index(row / params.time, u32(load_position(0u)) + row % params.time) + column;
    let key = row * PACKED + key_column(0u) + column;
    let count = min(4u, CACHE_COLUMNS - column);
    store4_keys(to, load4_qkv(key), count);
    store4_values(to, load4_qkv(key + CACHE_COLUMNS), count);
}

// Threads of a workgroup that share the channels of a sum, and how many keys they take at a time.
const PARTS: u32 = WORKGROUP / FOURS;

var<workgroup> cached_end: u32;
var<workgroup> query_fours: array<vec4<f32>, FOURS>;
var<workgroup> scores: array<f32, WORKGROUP>;
var<workgroup> part_sums: array<vec4<f32>, WORKGROUP>;

// A workgroup makes one head of one new position. It goes over the cached positions WORKGROUP at a time: a thread
// makes the score of one, then four channels of the sum over every PARTS-th. Bound by reading the cache once.
@compute @workgroup_size(WORKGROUP)
fn cached(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    if (tr_outside(id, grid)) {
        return;
    }
    let group = tr_group(id, grid);
    let head = group % HEADS;
    let batch = group / HEADS / params.time;
    let row = (group / HEADS) % params.time;
    let column = (head / GROUP) * HEAD_DIM;
    if (thread == 0u) {
        cached_end = u32(load_position(0u)) + row + 1u;
    }
    if (thread < FOURS) {
        query_fours[thread] = packed_four(batch, row, query_column(head), thread) * params.scale2;
    }
    // The barriers below need a bound that is known to be the same for all threads.
    let end = workgroupUniformLoad(&cached_end);
    let four = thread % FOURS;
    var highest = LOWEST;
    var total = 0.0;
    var sum = vec4<f32>();
    for (var first = 0u; first < end; first += WORKGROUP) {
        let count = min(WORKGROUP, end - first);
        var score = LOWEST;
        if (thread < count) {
            let at = cache_index(batch, first + thread) + column;
            score = 0.0;
            for (var c = 0u; c < FOURS; c++) {
                score += dot(query_fours[c], within_head(load4_keys(at + 4u * c), c));
            }
        }
        workgroupBarrier();
        scores[thread] = score;
        workgroupBarrier();
        var raised = highest;
        for (var k = 0u; k < WORKGROUP; k++) {
            raised = max(raised, scores[k]);
        }
        let factor = exp2(highest - raised);
        let weight = exp2(score - raised);
        highest = raised;
        workgroupBarrier();
        scores[thread] = weight;
        workgroupBarrier();
        total = total * factor + weight;
        sum *= factor;
        for (var k = thread / FOURS; k < count && thread < PARTS * FOURS; k += PARTS) {
            sum += scores[k] * within_head(load4_values(cache_index(batch, first + k) + column + 4u * four), four);
        }
    }
    workgroupBarrier();
    scores[thread] = total;
    part_sums[thread] = sum;
    workgroupBarrier();
    if (thread >= FOURS) {
        return;
    }
    total = 0.0;
    for (var k = 0u; k < WORKGROUP; k++) {
        total += scores[k];
    }
    for (var part = 1u; part < PARTS; part++) {
        sum += part_sums[part * FOURS + thread];
    }
    store4_out(out_index(batch, row, head) + 4u * thread, sum / total, min(4u, HEAD_DIM - 4u * thread));
}

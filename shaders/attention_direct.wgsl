// Attention, two rows a thread; what it shares with the tiles of attention.wgsl is in attention_heads.wgsl.
//
// forward_direct, grad_queries_direct, grad_keys_direct: for processors that emulate a GPU. Barriers and workgroup
// memory are slow there, a value that all threads read from one place costs some ten multiply-adds, and registers are
// the thread's own stack. A thread makes two rows of one head (first + thread, and WORKGROUP below), with all channels
// in registers, and the threads of a workgroup go over the other rows together. Bound by reading those: each vector is
// used for both rows, which is 1.8 times as fast as for one. Where the threads are a SUBGROUP, each loads some of the
// other rows and passes them on in registers, because such a processor loads a lane at a time. Matrices stand for 16
// channels each, because these compilers don't unroll loops over arrays.

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

// Four channels of a head that begins at `at` of dout or of qkv, zero past its end.
fn four_of(at: u32, four: u32, of_dout: bool) -> vec4<f32> {
    if (four >= FOURS) {
        return vec4<f32>();
    }
    if (of_dout) {
        return within_head(load4_dout(at + 4u * four), four);
    }
    return within_head(load4_qkv(at + 4u * four), four);
}

fn block_of(at: u32, block: u32, of_dout: bool) -> mat4x4<f32> {
    let four = 4u * block;
    return mat4x4<f32>(
        four_of(at, four, of_dout),
        four_of(at, four + 1u, of_dout),
        four_of(at, four + 2u, of_dout),
        four_of(at, four + 3u, of_dout),
    );
}

fn head_of(at: u32, of_dout: bool) -> Head {
    var head: Head;
    head.b0 = block_of(at, 0u, of_dout);
    if (BLOCKS > 1u) { head.b1 = block_of(at, 1u, of_dout); }
    if (BLOCKS > 2u) { head.b2 = block_of(at, 2u, of_dout); }
    if (BLOCKS > 3u) { head.b3 = block_of(at, 3u, of_dout); }
    if (BLOCKS > 4u) { head.b4 = block_of(at, 4u, of_dout); }
    if (BLOCKS > 5u) { head.b5 = block_of(at, 5u, of_dout); }
    if (BLOCKS > 6u) { head.b6 = block_of(at, 6u, of_dout); }
    if (BLOCKS > 7u) { head.b7 = block_of(at, 7u, of_dout); }
    return head;
}

fn head_of_qkv(batch: u32, row: u32, column: u32) -> Head {
    return head_of(packed_index(batch, row, column), false);
}

fn head_of_dout(batch: u32, row: u32, head: u32) -> Head {
    return head_of(out_index(batch, row, head), true);
}

// The head that thread `lane` of the subgroup has.
fn head_of_lane(own: ptr<function, Head>, lane: u32) -> Head {
    var head: Head;
    head.b0 = block_of_lane((*own).b0, lane);
    if (BLOCKS > 1u) { head.b1 = block_of_lane((*own).b1, lane); }
    if (BLOCKS > 2u) { head.b2 = block_of_lane((*own).b2, lane); }
    if (BLOCKS > 3u) { head.b3 = block_of_lane((*own).b3, lane); }
    if (BLOCKS > 4u) { head.b4 = block_of_lane((*own).b4, lane); }
    if (BLOCKS > 5u) { head.b5 = block_of_lane((*own).b5, lane); }
    if (BLOCKS > 6u) { head.b6 = block_of_lane((*own).b6, lane); }
    if (BLOCKS > 7u) { head.b7 = block_of_lane((*own).b7, lane); }
    return head;
}

// Keys that are read at a time, with their values.
const KEYS: u32 = 4u;

// What a thread loads of KEYS keys for its subgroup, in which `column` names the first half's part of a row, and
// `later` that of the others.
fn own_of_keys(batch: u32, first: u32, thread: u32, column: u32, later: u32) -> Head {
    if (SUBGROUP == 1u) {
        return Head();
    }
    let row = min(first + thread % KEYS, params.seq_len - 1u);
    return head_of_qkv(batch, row, select(column, later, thread >= KEYS));
}

// A part of another row: what thread `lane` has loaded of it, or, where threads pass nothing on, loaded by each.
fn other_head(own: ptr<function, Head>, lane: u32, batch: u32, row: u32, column: u32) -> Head {
    if (SUBGROUP == 1u) {
        return head_of_qkv(batch, row, column);
    }
    return head_of_lane(own, lane);
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

// Scores of both of the thread's rows, which are scaled already, from their products with another.
fn pair_of(product: f32, below: f32) -> vec2<f32> {
    return capped(vec4<f32>(product, below, 0.0, 0.0)).xy;
}

fn slope_of_pair(score: vec2<f32>) -> vec2<f32> {
    return slope_of(score.xyxy).xy;
}

// Rows that a workgroup makes.
const STRIP: u32 = 2u * WORKGROUP;

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
    if (row < params.seq_len) {
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
    let at = tile_of(tr_group(id, grid), HEADS, STRIP);
    let kv_head = at.head / GROUP;
    let row = at.first + thread;
    let below = row + WORKGROUP;
    let last = params.seq_len - 1u;
    var query = head_of_qkv(at.batch, min(row, last), query_column(at.head));
    scale_head(&query, params.prescale);
    var query_below = head_of_qkv(at.batch, min(below, last), query_column(at.head));
    scale_head(&query_below, params.prescale);
    var sum: Head;
    var sum_below: Head;
    var state = Normaliser(LOWEST, 0.0);
    var state_below = Normaliser(LOWEST, 0.0);
    let end = end_of_keys(at.first, STRIP);
    for (var first = first_seen(at.first, KEYS); first < end; first += KEYS) {
        var own = own_of_keys(at.batch, first, thread, key_column(kv_head), value_column(kv_head));
        let keys = min(first + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(last));
        var other = other_head(&own, 0u, at.batch, keys.x, key_column(kv_head));
        var score = vec4<f32>(dot_heads(&query, &other), 0.0, 0.0, 0.0);
        var score_below = vec4<f32>(dot_heads(&query_below, &other), 0.0, 0.0, 0.0);
        other = other_head(&own, 1u, at.batch, keys.y, key_column(kv_head));
        score.y = dot_heads(&query, &other);
        score_below.y = dot_heads(&query_below, &other);
        other = other_head(&own, 2u, at.batch, keys.z, key_column(kv_head));
        score.z = dot_heads(&query, &other);
        score_below.z = dot_heads(&query_below, &other);
        other = other_head(&own, 3u, at.batch, keys.w, key_column(kv_head));
        score.w = dot_heads(&query, &other);
        score_below.w = dot_heads(&query_below, &other);
        let key = first + vec4<u32>(0u, 1u, 2u, 3u);
        let number = lse_index(at.batch, at.head, 0u);
        let weight = weigh(&state, &sum, capped(score), attends(at.batch, row, key)) * kept_keys(number + row, key);
        let weight_below =
            weigh(&state_below, &sum_below, capped(score_below), attends(at.batch, below, key)) * kept_keys(number + below, key);
        other = other_head(&own, KEYS, at.batch, keys.x, value_column(kv_head));
        add_head(&sum, weight.x, &other);
        add_head(&sum_below, weight_below.x, &other);
        other = other_head(&own, KEYS + 1u, at.batch, keys.y, value_column(kv_head));
        add_head(&sum, weight.y, &other);
        add_head(&sum_below, weight_below.y, &other);
        other = other_head(&own, KEYS + 2u, at.batch, keys.z, value_column(kv_head));
        add_head(&sum, weight.z, &other);
        add_head(&sum_below, weight_below.z, &other);
        other = other_head(&own, KEYS + 3u, at.batch, keys.w, value_column(kv_head));
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
    let at = tile_of(tr_group(id, grid), HEADS, STRIP);
    let kv_head = at.head / GROUP;
    let rows = at.first + thread + WORKGROUP * vec2<u32>(0u, 1u);
    let read = min(rows, vec2<u32>(params.seq_len - 1u));
    var query = head_of_qkv(at.batch, read.x, query_column(at.head));
    scale_head(&query, params.prescale);
    var query_below = head_of_qkv(at.batch, read.y, query_column(at.head));
    scale_head(&query_below, params.prescale);
    var dout = head_of_dout(at.batch, read.x, at.head);
    var dout_below = head_of_dout(at.batch, read.y, at.head);
    let of_lse = read + lse_index(at.batch, at.head, 0u);
    let of_delta = read + delta_index(at.batch, at.head, 0u);
    let lse2 = vec2<f32>(load_statistics(of_lse.x), load_statistics(of_lse.y)) * LOG2_E;
    let delta = vec2<f32>(load_statistics(of_delta.x), load_statistics(of_delta.y));
    var sum: Head;
    var sum_below: Head;
    let end = end_of_keys(at.first, STRIP);
    for (var first = first_seen(at.first, 1u); first < end; first += KEYS) {
        var own = own_of_keys(at.batch, first, thread, value_column(kv_head), key_column(kv_head));
        for (var j = first; j < min(first + KEYS, end); j++) {
            var other = other_head(&own, j - first, at.batch, j, value_column(kv_head));
            let dp = vec2<f32>(dot_heads(&dout, &other), dot_heads(&dout_below, &other));
            other = other_head(&own, KEYS + j - first, at.batch, j, key_column(kv_head));
            let score = pair_of(dot_heads(&query, &other), dot_heads(&query_below, &other));
            let keys = vec4<u32>(j);
            let seen = vec2<bool>(attends(at.batch, rows.x, keys).x, attends(at.batch, rows.y, keys).x);
            let p = select(vec2<f32>(), exp2(score - lse2), seen);
            let number = lse_index(at.batch, at.head, 0u) + rows;
            let kept_pair = vec2<f32>(kept(number.x, j), kept(number.y, j));
            let dscore = p * slope_of_pair(score) * (dp * kept_pair - delta);
            add_head(&sum, dscore.x, &other);
            add_head(&sum_below, dscore.y, &other);
        }
    }
    scale_head(&sum, params.scale);
    scale_head(&sum_below, params.scale);
    if (rows.x < params.seq_len) {
        store_head(packed_index(at.batch, rows.x, query_column(at.head)), &sum);
    }
    if (rows.y < params.seq_len) {
        store_head(packed_index(at.batch, rows.y, query_column(at.head)), &sum_below);
    }
}

// Queries that are read at a time, one by each thread where they pass them on.
const QUERIES: u32 = WORKGROUP;

// What the gradient of keys reads of a query beside its row: log2 of its normaliser, and what its scores subtract.
fn numbers_of(batch: u32, row: u32, head: u32) -> vec4<f32> {
    let lse2 = load_statistics(lse_index(batch, head, row)) * LOG2_E;
    return vec4<f32>(lse2, load_statistics(delta_index(batch, head, row)), 0.0, 0.0);
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
    let at = tile_of(tr_group(id, grid), KV_HEADS, STRIP);
    let rows = at.first + thread + WORKGROUP * vec2<u32>(0u, 1u);
    let read = min(rows, vec2<u32>(params.seq_len - 1u));
    var key = head_of_qkv(at.batch, read.x, key_column(at.head));
    scale_head(&key, params.prescale);
    var key_below = head_of_qkv(at.batch, read.y, key_column(at.head));
    scale_head(&key_below, params.prescale);
    var value = head_of_qkv(at.batch, read.x, value_column(at.head));
    var value_below = head_of_qkv(at.batch, read.y, value_column(at.head));
    var dkey: Head;
    var dkey_below: Head;
    var dvalue: Head;
    var dvalue_below: Head;
    for (var head = at.head * GROUP; head < (at.head + 1u) * GROUP; head++) {
        let end = end_seen(at.first, STRIP);
        for (var first = first_query(at.first, 1u); first < end; first += QUERIES) {
            var own: Head;
            var own_dout: Head;
            var own_numbers: vec4<f32>;
            if (SUBGROUP > 1u) {
                let row = min(first + thread, params.seq_len - 1u);
                own = head_of_qkv(at.batch, row, query_column(head));
                own_dout = head_of_dout(at.batch, row, head);
                own_numbers = numbers_of(at.batch, row, head);
            }
            for (var i = first; i < min(first + QUERIES, end); i++) {
                var query = other_head(&own, i - first, at.batch, i, query_column(head));
                var dout: Head;
                var numbers: vec4<f32>;
                if (SUBGROUP > 1u) {
                    dout = head_of_lane(&own_dout, i - first);
                    numbers = of_lane(own_numbers, i - first);
                } else {
                    dout = head_of_dout(at.batch, i, head);
                    numbers = numbers_of(at.batch, i, head);
                }
                let score = pair_of(dot_heads(&key, &query), dot_heads(&key_below, &query));
                let queries = vec4<u32>(i);
                let seen = vec2<bool>(attended(at.batch, rows.x, queries).x, attended(at.batch, rows.y, queries).x);
                let p = select(vec2<f32>(), exp2(score - numbers.x), seen);
                let number = lse_index(at.batch, head, i);
                let k = vec2<f32>(kept(number, rows.x), kept(number, rows.y));
                let dp = vec2<f32>(dot_heads(&value, &dout), dot_heads(&value_below, &dout));
                let dscore = p * slope_of_pair(score) * (dp * k - numbers.y);
                add_head(&dvalue, p.x * k.x, &dout);
                add_head(&dvalue_below, p.y * k.y, &dout);
                add_head(&dkey, dscore.x, &query);
                add_head(&dkey_below, dscore.y, &query);
            }
        }
    }
    scale_head(&dkey, params.scale);
    scale_head(&dkey_below, params.scale);
    if (rows.x < params.seq_len) {
        store_head(packed_index(at.batch, rows.x, key_column(at.head)), &dkey);
        store_head(packed_index(at.batch, rows.x, value_column(at.head)), &dvalue);
    }
    if (rows.y < params.seq_len) {
        store_head(packed_index(at.batch, rows.y, key_column(at.head)), &dkey_below);
        store_head(packed_index(at.batch, rows.y, value_column(at.head)), &dvalue_below);
    }
}

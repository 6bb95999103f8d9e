// What the attention kernels share; see ops/attention.rs for the formulas.
//
// Packed projections (B, T, PACKED): HEADS queries, KV_HEADS keys, KV_HEADS values of HEAD_DIM channels a row.
// `statistics` holds numbers of all sequences, also where a launch makes `sequences` of them from `first` on: the logs
// of normalisers, and in the gradient what it subtracts from `deltas` on. Exponentials are of base 2, and so are scores: log2(e)
// times those of the formulas. `params.prescale` brings a product of a query and a key to its score; where scores are CAPPED, to
// what tanh is taken of, and `params.cap2` is the most that a score comes to.

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

fn score_of(product: vec4<f32>) -> vec4<f32> {
    return capped(product * params.prescale);
}

fn capped(x: vec4<f32>) -> vec4<f32> {
    if (CAPPED == 0u) {
        return x;
    }
    return params.cap2 * vec4<f32>(tr_tanh(x.x), tr_tanh(x.y), tr_tanh(x.z), tr_tanh(x.w));
}

// What a score grows by with the product it's made of, `params.scale` apart.
fn slope_of(score: vec4<f32>) -> vec4<f32> {
    if (CAPPED == 0u) {
        return vec4<f32>(1.0);
    }
    let part = score / params.cap2;
    return 1.0 - part * part;
}

fn packed_four(batch: u32, row: u32, column: u32, four: u32) -> vec4<f32> {
    return within_head(load4_qkv(packed_index(batch, row, column) + 4u * four), four);
}

fn out_index(batch: u32, row: u32, head: u32) -> u32 {
    return ((batch * params.seq_len + row) * HEADS + head) * HEAD_DIM;
}

fn dout_four(batch: u32, row: u32, head: u32, four: u32) -> vec4<f32> {
    return within_head(load4_dout(out_index(batch, row, head) + 4u * four), four);
}

// The log of a query's normaliser.
fn lse_index(batch: u32, head: u32, row: u32) -> u32 {
    return ((params.first + batch) * HEADS + head) * params.seq_len + row;
}

// What the gradient of a query's scores subtracts.
fn delta_index(batch: u32, head: u32, row: u32) -> u32 {
    return params.deltas + lse_index(batch, head, row);
}

fn packed_index(batch: u32, row: u32, column: u32) -> u32 {
    return (batch * params.seq_len + row) * PACKED + column;
}

// The workgroup's sequence, head of `heads`, and first of its `rows` own rows.
struct Tile {
    batch: u32,
    head: u32,
    first: u32,
}

fn tile_of(group: u32, heads: u32, rows: u32) -> Tile {
    let tiles = (params.seq_len + rows - 1u) / rows;
    let of_batch = group / tiles;
    return Tile(of_batch / heads, of_batch % heads, (group % tiles) * rows);
}

// ---- Which pairs of a query and a key count: ops/attention/mask.rs ----

// Other rows that some of the `rows` own rows from `first` on attends to, or is attended to by: from a multiple of `step` on.
fn first_seen(first: u32, step: u32) -> u32 {
    if (WINDOW == 0u) {
        return 0u;
    }
    return (first - min(first, WINDOW - 1u)) / step * step;
}

fn end_seen(first: u32, rows: u32) -> u32 {
    if (WINDOW == 0u) {
        return params.seq_len;
    }
    return min(first + rows - 1u + WINDOW, params.seq_len);
}

fn end_of_keys(first: u32, rows: u32) -> u32 {
    if (CAUSAL == 1u) {
        return min(first + rows, params.seq_len);
    }
    return end_seen(first, rows);
}

fn first_query(first: u32, step: u32) -> u32 {
    if (CAUSAL == 1u) {
        return first / step * step;
    }
    return first_seen(first, step);
}

fn document_of(batch: u32, row: u32) -> i32 {
    return index_documents((params.first + batch) * params.seq_len + min(row, params.seq_len - 1u));
}

// Whether two rows are within the window and in one document.
fn near(batch: u32, own: u32, other: vec4<u32>) -> vec4<bool> {
    var seen = vec4<bool>(true);
    if (WINDOW > 0u) {
        seen = (other + WINDOW > vec4<u32>(own)) & (vec4<u32>(own + WINDOW) > other);
    }
    if (DOCUMENTS == 1u) {
        let documents = vec4<i32>(
            document_of(batch, other.x),
            document_of(batch, other.y),
            document_of(batch, other.z),
            document_of(batch, other.w),
        );
        seen &= documents == vec4<i32>(document_of(batch, own));
    }
    return seen;
}

// Which of four keys a query attends to.
fn attends(batch: u32, query: u32, key: vec4<u32>) -> vec4<bool> {
    if (CAUSAL == 1u) {
        return (key <= vec4<u32>(query)) & near(batch, query, key);
    }
    return (key < vec4<u32>(params.seq_len)) & near(batch, query, key);
}

// Which of four queries attend to a key.
fn attended(batch: u32, key: u32, query: vec4<u32>) -> vec4<bool> {
    let exists = query < vec4<u32>(params.seq_len);
    if (CAUSAL == 1u) {
        return (query >= vec4<u32>(key)) & exists & near(batch, key, query);
    }
    return exists & near(batch, key, query);
}

// What the probability of a pair is multiplied by; `row` counts queries over all heads and sequences, as lse_index does.
fn kept(row: u32, key: u32) -> f32 {
    if (DROPOUT == 0u) {
        return 1.0;
    }
    let words = tr_random_words(row * ((params.seq_len + 3u) / 4u) + key / 4u, params.stream);
    let draw = f32(words[key & 3u] >> 8u) / 16777216.0;
    return select(1.0 / (1.0 - params.dropped), 0.0, draw < params.dropped);
}

fn kept_keys(row: u32, key: vec4<u32>) -> vec4<f32> {
    if (DROPOUT == 0u) {
        return vec4<f32>(1.0);
    }
    return vec4<f32>(kept(row, key.x), kept(row, key.y), kept(row, key.z), kept(row, key.w));
}

fn kept_queries(row: vec4<u32>, key: u32) -> vec4<f32> {
    if (DROPOUT == 0u) {
        return vec4<f32>(1.0);
    }
    return vec4<f32>(kept(row.x, key), kept(row.y, key), kept(row.z, key), kept(row.w, key));
}

// What the attention kernels share; see ops/attention.rs for the formulas.
//
// Packed projections (B, T, PACKED): HEADS queries, KV_HEADS keys, KV_HEADS values of HEAD_DIM channels a row.
// `statistics` holds numbers of all sequences, also where a launch makes `sequences` of them from `first` on: the logs
// of normalisers, and in the gradient what it subtracts from `deltas` on. Exponentials are of base 2: `params.scale2`
// is log2(e)/√HEAD_DIM.

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
    return within_head(load4_qkv(packed_index(batch, row, column) + 4u * four), four);
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

fn packed_index(batch: u32, row: u32, column: u32) -> u32 {
    return (batch * params.time + row) * PACKED + column;
}

// The workgroup's sequence, head of `heads`, and first of its `rows` own rows.
struct Tile {
    batch: u32,
    head: u32,
    first: u32,
}

fn tile_of(group: u32, heads: u32, rows: u32) -> Tile {
    let tiles = (params.time + rows - 1u) / rows;
    let of_batch = group / tiles;
    return Tile(of_batch / heads, of_batch % heads, (group % tiles) * rows);
}

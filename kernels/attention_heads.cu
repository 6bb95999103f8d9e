// What all attention kernels know of heads and masks; see ops/attention.rs for the formulas.
//
// Packed projections (B, T, PACKED): HEADS queries, KV_HEADS keys, KV_HEADS values of HEAD_DIM channels a row.
// `statistics` holds numbers of all sequences, also where a launch makes `sequences` of them from `first` on: the logs of
// normalisers, and in the gradient what it subtracts from `deltas` on. Exponentials are of base 2, and so are scores: log2(e)
// times those of the formulas. `prescale` brings a product of a query and a key to its score; where scores are CAPPED, to what
// tanh is taken of, and `cap2` is the most that a score comes to.

constexpr unsigned FOURS = (HEAD_DIM + 3) / 4;
constexpr unsigned GROUP = HEADS / KV_HEADS;
constexpr unsigned PACKED = (HEADS + 2 * KV_HEADS) * HEAD_DIM;
constexpr float LOWEST = -3.4e38f;
constexpr float LN_2 = 0.6931471805599453f;
constexpr float LOG2_E = 1.4426950408889634f;

__device__ unsigned query_column(unsigned head) { return head * HEAD_DIM; }
__device__ unsigned key_column(unsigned kv_head) { return (HEADS + kv_head) * HEAD_DIM; }
__device__ unsigned value_column(unsigned kv_head) { return (HEADS + KV_HEADS + kv_head) * HEAD_DIM; }

// Zeroes what four channels from vector `vector` of a head on have past its end.
__device__ Four within_head(Four v, unsigned vector) { return first_of(v, HEAD_DIM - 4 * vector, 0.0f); }

__device__ Four packed_four(const Args &args, unsigned batch, unsigned row, unsigned column, unsigned vector) {
    const unsigned at = (batch * args.seq_len + row) * PACKED + column + 4 * vector;
    return within_head(args.qkv.load4(at), vector);
}

__device__ unsigned out_index(const Args &args, unsigned batch, unsigned row, unsigned head) {
    return ((batch * args.seq_len + row) * HEADS + head) * HEAD_DIM;
}

__device__ Four dout_four(const Args &args, unsigned batch, unsigned row, unsigned head, unsigned vector) {
    return within_head(args.dout.load4(out_index(args, batch, row, head) + 4 * vector), vector);
}

// The log of a query's normaliser.
__device__ unsigned lse_index(const Args &args, unsigned batch, unsigned head, unsigned row) {
    return ((args.first + batch) * HEADS + head) * args.seq_len + row;
}

// What the gradient of a query's scores subtracts.
__device__ unsigned delta_index(const Args &args, unsigned batch, unsigned head, unsigned row) {
    return args.deltas + lse_index(args, batch, head, row);
}

__device__ float capped(const Args &args, float x) { return CAPPED ? args.cap2 * tanhf(x) : x; }

__device__ float score_of(const Args &args, float product) { return capped(args, product * args.prescale); }

// What a score grows by with the product it's made of, `scale` apart.
__device__ float slope_of(const Args &args, float score) {
    const float part = CAPPED ? score / args.cap2 : 0.0f;
    return 1.0f - part * part;
}

// Number `row` of a head's statistics; of a row past the last, the last one's.
__device__ float statistic(const Args &args, unsigned first, unsigned row) {
    return args.statistics.load(first + smaller(row, args.seq_len - 1));
}

// The block's sequence, head of `heads`, and first own row.
struct Tile {
    unsigned batch, head, first;
};

__device__ Tile tile_of(const Args &args, unsigned heads) {
    const unsigned group = args.first_group + blockIdx.x;
    const unsigned tiles = (args.seq_len + ROWS - 1) / ROWS;
    const unsigned of_batch = group / tiles;
    return Tile{of_batch / heads, of_batch % heads, group % tiles * ROWS};
}

// ---- Which pairs of a query and a key count: ops/attention/mask.rs ----

// Other rows that some of `rows` own rows from `first` on attends to, or is attended to by: from a multiple of `step` on.
__device__ unsigned first_seen(unsigned first, unsigned step) {
    return WINDOW == 0 ? 0 : (first - smaller(first, WINDOW - 1)) / step * step;
}

__device__ unsigned end_seen(const Args &args, unsigned first, unsigned rows) {
    return WINDOW == 0 ? args.seq_len : smaller(first + rows - 1 + WINDOW, args.seq_len);
}

__device__ unsigned end_of_keys(const Args &args, unsigned first, unsigned rows) {
    return CAUSAL ? smaller(first + rows, args.seq_len) : end_seen(args, first, rows);
}

__device__ unsigned first_query(unsigned first, unsigned step) {
    return CAUSAL ? first / step * step : first_seen(first, step);
}

// A word as it is; of a tensor that stands for one that isn't there, and isn't read, anything.
template <class T> __device__ unsigned word_of(T x) { return unsigned(tr_value(x)); }
__device__ unsigned word_of(int x) { return unsigned(x); }
__device__ unsigned word_of(unsigned x) { return x; }

__device__ unsigned document_of(const Args &args, unsigned batch, unsigned row) {
    return word_of(args.documents.raw((args.first + batch) * args.seq_len + smaller(row, args.seq_len - 1)));
}

// Whether two rows are within the window and in one document.
__device__ bool near(const Args &args, unsigned batch, unsigned own, unsigned other) {
    const bool within = WINDOW == 0 || (other + WINDOW > own && own + WINDOW > other);
    return within && (!DOCUMENTS || document_of(args, batch, own) == document_of(args, batch, other));
}

__device__ bool attends(const Args &args, unsigned batch, unsigned query, unsigned key) {
    return (CAUSAL ? key <= query : key < args.seq_len) && near(args, batch, query, key);
}

// The same for a query that may lie past the last.
__device__ bool attended(const Args &args, unsigned batch, unsigned key, unsigned query) {
    return (!CAUSAL || query >= key) && query < args.seq_len && near(args, batch, key, query);
}

// What the key of random numbers is where another tensor may stand for it.
struct Words {
    unsigned word[4];
    __device__ unsigned raw(unsigned i) const { return word[i]; }
};

// What the probability of a pair is multiplied by; `row` counts queries over all heads and sequences, as lse_index does.
__device__ float kept(const Args &args, unsigned row, unsigned key) {
    if (!DROPOUT) {
        return 1.0f;
    }
    const auto word = [&](unsigned i) { return word_of(args.key.raw(i)); };
    const Words words = {{word(0), word(1), word(2), word(3)}};
    const float draw = tr_uniform_at(words, args.stream, row * ((args.seq_len + 3) / 4) + key / 4, key & 3);
    return draw < args.dropped ? 0.0f : 1.0f / (1.0f - args.dropped);
}

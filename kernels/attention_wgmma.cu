// Attention on Hopper's tensor cores, of 16-bit projections; comes after attention_heads.cu, which says how tensors are laid out.
//
// A block makes tile after tile of ROWS queries of one head. One thread has the copy engine bring the queries, and then keys
// and values of KEYS positions into a ring of SLOTS, in the order in which they're read; two groups of four warps make half of the
// queries each. A group multiplies the next keys before it weighs the values of those before, and makes weights of scores
// while its values are weighed. The groups take turns at the tensor cores, so that one multiplies while the other makes weights.
// For each slot there are two barriers: it's full once all bytes have come, and empty once all warps have read it. Bound by
// arithmetic.
//
// Tiles lie in shared memory as slabs of 64 channels, in rows of 128 bytes that the copy engine swizzles. What lies outside of a
// sequence is zero. Weights stay in registers: as sums leave tensor cores, they are factors of the next product.

#include "attention_heads.cu"

using Element = decltype(Args::qkv)::Element;

constexpr unsigned CONSUMERS = 2;
constexpr unsigned KEYS = ROWS;
// Rows that a group of warps makes, and summed indices of one instruction.
constexpr unsigned PART = ROWS / CONSUMERS;
constexpr unsigned STEP = 16;
// Channels of a slab; the swizzle repeats after eight rows.
constexpr unsigned SLAB = 64;
constexpr unsigned ROW_BYTES = SLAB * sizeof(Element);
constexpr unsigned REPEAT_BYTES = 8 * ROW_BYTES;
constexpr unsigned TILE_BYTES = ROWS * HEAD_DIM * sizeof(Element);
constexpr unsigned BARRIER_BYTES = 8;
constexpr unsigned WARPS = CONSUMERS * WARP_GROUP / WARP;

static_assert(PART == 64 && HEAD_DIM % SLAB == 0 && WORKGROUP == (CONSUMERS + 1) * WARP_GROUP, "as boxes and warps are");

// A part of a tile of TALL rows, for the tensor cores, from a row and a channel on. The leading offset is that from a slab to
// the next where channels are along the product, and unused where they're summed; the stride is that from one repeat of the
// swizzle to the next. Bit 62 says that rows of 128 bytes are swizzled.
template <unsigned TALL> __device__ unsigned long long part(unsigned tile, unsigned row, unsigned channel) {
    constexpr unsigned long long LEADING = TALL * ROW_BYTES / 16;
    constexpr unsigned long long STRIDE = REPEAT_BYTES / 16;
    const unsigned within =
        channel / SLAB * TALL * ROW_BYTES + row * ROW_BYTES + channel % SLAB * unsigned(sizeof(Element));
    return tile / 16 + within / 16 | LEADING << 16 | STRIDE << 32 | 1ull << 62;
}

// Begins to copy a head's channels of as many rows as a box has.
template <unsigned TALL>
__device__ void bring(unsigned to, const TensorMap &map, unsigned barrier, unsigned column, unsigned row, unsigned batch) {
#pragma unroll
    for (unsigned channel = 0; channel < HEAD_DIM; channel += SLAB) {
        tr_copy_box(to + channel / SLAB * TALL * ROW_BYTES, map, barrier, column + channel, row, batch);
    }
}

// Shared memory: a tile of queries and the slots, then the barriers of each; and the slot whose turn it is.
struct Ring {
    unsigned shared, slot, round;

    __device__ unsigned queries() const { return shared; }
    __device__ unsigned tile() const { return shared + (1 + slot) * TILE_BYTES; }
    __device__ unsigned barrier(unsigned which) const { return shared + (1 + SLOTS) * TILE_BYTES + which * BARRIER_BYTES; }
    __device__ unsigned full() const { return barrier(slot); }
    __device__ unsigned empty() const { return barrier(SLOTS + slot); }
    __device__ unsigned queries_full() const { return barrier(2 * SLOTS); }
    __device__ unsigned queries_empty() const { return barrier(2 * SLOTS + 1); }
    // Of a group of warps, for which the other one arrives.
    __device__ unsigned turn(unsigned consumer) const { return barrier(2 * SLOTS + 2 + consumer); }

    __device__ void next() {
        slot++;
        if (slot == SLOTS) {
            slot = 0;
            round++;
        }
    }
};

// A tile of queries, and the keys that some of them attend to.
struct Span {
    Tile at;
    unsigned begin, end;
};

// The block's tile in a round. Where tiles have more keys the later their queries are, they go from those with the most on,
// and rounds go through the blocks in turns of direction, so that blocks have about as many keys; else by heads, which share keys.
__device__ bool span_of(const Args &args, unsigned round, Span &span) {
    const unsigned tiles = (args.seq_len + ROWS - 1) / ROWS;
    const bool grows = CAUSAL && WINDOW == 0;
    const unsigned block = grows && round % 2 == 1 ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
    const unsigned group = args.first_group + round * gridDim.x + block;
    if (group >= args.end_group) {
        return false;
    }
    const unsigned heads = args.sequences * HEADS;
    const unsigned of_batch = grows ? group % heads : group / tiles;
    const unsigned tile = grows ? tiles - 1 - group / heads : group % tiles;
    span.at = Tile{of_batch / HEADS, of_batch % HEADS, tile * ROWS};
    span.begin = first_seen(span.at.first, KEYS);
    span.end = end_of_keys(args, span.at.first, ROWS);
    return true;
}

__device__ unsigned rounds(const Args &args) { return (args.end_group - args.first_group + gridDim.x - 1) / gridDim.x; }

__device__ void bring_next(const Args &args, Ring &ring, unsigned column, unsigned row, unsigned batch) {
    // In the first round, all are empty.
    tr_wait_phase(ring.empty(), (ring.round + 1) % 2);
    tr_arrive_for(ring.full(), TILE_BYTES);
    bring<KEYS>(ring.tile(), args.rows, ring.full(), column, row, batch);
    ring.next();
}

__device__ void produce(const Args &args, Ring ring) {
    tr_prefetch(args.rows);
    unsigned tiles = 0;
    for (unsigned round = 0; round < rounds(args); round++) {
        Span span;
        if (!span_of(args, round, span)) {
            continue;
        }
        const Tile at = span.at;
        const unsigned kv_head = at.head / GROUP;
        tr_wait_phase(ring.queries_empty(), (tiles + 1) % 2);
        tr_arrive_for(ring.queries_full(), TILE_BYTES);
        bring<ROWS>(ring.queries(), args.rows, ring.queries_full(), query_column(at.head), at.first, at.batch);
        bring_next(args, ring, key_column(kv_head), span.begin, at.batch);
        for (unsigned first = span.begin; first < span.end; first += KEYS) {
            if (first + KEYS < span.end) {
                bring_next(args, ring, key_column(kv_head), first + KEYS, at.batch);
            }
            bring_next(args, ring, value_column(kv_head), first, at.batch);
        }
        tiles++;
    }
}

constexpr unsigned SCORES = KEYS / 2;
constexpr unsigned SUMS = HEAD_DIM / 2;
using Factors = unsigned[KEYS / STEP][4];

// The first of a thread's two rows in its group's, 8 apart, and the first of its two neighbouring columns of each eight.
__device__ unsigned row_of_thread() { return threadIdx.x % WARP_GROUP / WARP * 16 + threadIdx.x % WARP / 4; }
__device__ unsigned column_of_thread() { return threadIdx.x % 4 * 2; }

// Sums of 64 × 16·N lie in a group as factors of 64 × 16·N do.
template <unsigned N> __device__ void round_factors(unsigned (&factors)[N][4], const float (&sums)[8 * N]) {
#pragma unroll
    for (unsigned i = 0; i < N; i++) {
#pragma unroll
        for (unsigned j = 0; j < 4; j++) {
            factors[i][j] = tr_round_pair<Element>(sums[8 * i + 2 * j], sums[8 * i + 2 * j + 1]);
        }
    }
}

// What a group of warps knows of its queries.
struct Softmax {
    // Largest products so far and sums of weights, the thread's own columns' alone, of two rows.
    float highest[2], total[2];
};

// The score of a key that isn't attended to: minus infinity.
__device__ float never() { return __uint_as_float(0xff800000u); }

// Whether the rows of a group from `query` on attend to all keys from `key` on.
__device__ bool attend_all(const Args &args, unsigned query, unsigned key) {
    const bool behind = CAUSAL ? key + KEYS <= query + 1 : key + KEYS <= args.seq_len;
    const bool within = WINDOW == 0 || (key + WINDOW > query + PART - 1 && query + WINDOW > key + KEYS - 1);
    return behind && within;
}

// Makes weights of products with the keys from `first` on; `factor` is what the sums before them shrink by.
__device__ void weigh(const Args &args, const Tile &at, unsigned part_first, unsigned first, float (&scores)[SCORES],
                      Softmax &softmax, float (&factor)[2]) {
    const unsigned query = part_first + row_of_thread();
    const bool all = !DOCUMENTS && attend_all(args, part_first, first);
    if (!all && (DOCUMENTS || WINDOW > 0)) {
        // A bit for each key of a row: what they are compared by takes more registers than there are.
        unsigned seen[2] = {0, 0};
#pragma unroll 4
        for (unsigned j = 0; j < KEYS / 4; j++) {
            const unsigned key = first + j / 2 * 8 + column_of_thread() + j % 2;
            seen[0] |= unsigned(attends(args, at.batch, query, key)) << j;
            seen[1] |= unsigned(attends(args, at.batch, query + 8, key)) << j;
        }
#pragma unroll
        for (unsigned i = 0; i < SCORES; i++) {
            scores[i] = (seen[i / 2 % 2] >> (i / 4 * 2 + i % 2) & 1) != 0 ? scores[i] : never();
        }
    } else if (!all) {
#pragma unroll
        for (unsigned i = 0; i < SCORES; i++) {
            const unsigned key = first + i / 4 * 8 + column_of_thread() + i % 2;
            scores[i] = attends(args, at.batch, query + i / 2 % 2 * 8, key) ? scores[i] : never();
        }
    }
    float shift[2];
#pragma unroll
    for (unsigned r = 0; r < 2; r++) {
        float raised = softmax.highest[r];
#pragma unroll
        for (unsigned i = 0; i < SCORES; i += 4) {
            raised = fmaxf(raised, fmaxf(scores[i + 2 * r], scores[i + 2 * r + 1]));
        }
        raised = tr_fold_lanes<Max, 4>(raised);
        // A row that attends to none so far has no weights, and no largest product to take them from.
        shift[r] = raised == never() ? 0.0f : raised * args.prescale;
        factor[r] = tr_exp2_in_place(softmax.highest[r] * args.prescale - shift[r]);
        softmax.highest[r] = raised;
        softmax.total[r] *= factor[r];
    }
#pragma unroll
    for (unsigned i = 0; i < SCORES; i++) {
        scores[i] = tr_exp2_in_place(scores[i] * args.prescale - shift[i / 2 % 2]);
        softmax.total[i / 2 % 2] += scores[i];
    }
}

__device__ void begin_scores(const Ring &ring, unsigned consumer, float (&scores)[SCORES]) {
#pragma unroll
    for (unsigned d = 0; d < HEAD_DIM; d += STEP) {
        const unsigned long long queries = part<ROWS>(ring.queries(), consumer * PART, d);
        const unsigned long long keys = part<KEYS>(ring.tile(), 0, d);
        if (d == 0) {
            tr_multiply_anew<Element, false, false>(scores, queries, keys);
        } else {
            tr_multiply_async<Element, false, false>(scores, queries, keys);
        }
    }
    tr_commit_products();
}

__device__ void begin_sums(const Ring &ring, float (&sums)[SUMS], const Factors &factors) {
#pragma unroll
    for (unsigned i = 0; i < KEYS / STEP; i++) {
        tr_multiply_registers<Element, true>(sums, factors[i], part<KEYS>(ring.tile(), i * STEP, 0));
    }
    tr_commit_products();
}

__device__ void arrive_once(unsigned barrier) {
    if (threadIdx.x % WARP == 0) {
        tr_arrive(barrier);
    }
}

__device__ void store_queries(const Args &args, const Tile &at, unsigned first, const float (&sums)[SUMS],
                              const Softmax &softmax) {
#pragma unroll
    for (unsigned r = 0; r < 2; r++) {
        const float total = tr_fold_lanes<Sum, 4>(softmax.total[r]);
        const unsigned row = first + row_of_thread() + 8 * r;
        if (row >= args.seq_len) {
            continue;
        }
        const unsigned to = out_index(args, at.batch, row, at.head) + column_of_thread();
        const float share = 1.0f / total;
#pragma unroll
        for (unsigned i = 0; i < SUMS; i += 4) {
            args.out.store2(to + 2 * i, sums[i + 2 * r] * share, sums[i + 2 * r + 1] * share, 2);
        }
        if (column_of_thread() == 0) {
            const float lse = softmax.highest[r] * args.prescale * LN_2 + logf(total);
            args.statistics.store(lse_index(args, at.batch, at.head, row), lse);
        }
    }
}

__device__ void consume(const Args &args, Ring ring, unsigned consumer) {
    unsigned tiles = 0;
    unsigned turns = 0;
    // The first group's first turn is the first of all.
    const auto take_turn = [&] { tr_wait_phase(ring.turn(consumer), (turns + 1 + consumer) % 2); };
    const auto pass_turn = [&] {
        arrive_once(ring.turn(1 - consumer));
        turns++;
    };
    for (unsigned round = 0; round < rounds(args); round++) {
        Span span;
        if (!span_of(args, round, span)) {
            continue;
        }
        const Tile at = span.at;
        const unsigned first_query = at.first + consumer * PART;
        Softmax softmax{{never(), never()}, {0.0f, 0.0f}};
        float factor[2];
        float scores[SCORES];
        float sums[SUMS];
        Factors factors;
#pragma unroll
        for (unsigned i = 0; i < SUMS; i++) {
            sums[i] = 0.0f;
        }
        tr_wait_phase(ring.queries_full(), tiles % 2);
        tr_wait_phase(ring.full(), ring.round % 2);
        take_turn();
        tr_show_sums();
        begin_scores(ring, consumer, scores);
        pass_turn();
        tr_finish_sets<0>(scores);
        arrive_once(ring.empty());
        ring.next();
        weigh(args, at, first_query, span.begin, scores, softmax, factor);
        take_turn();
        round_factors(factors, scores);
        for (unsigned first = span.begin + KEYS; first < span.end; first += KEYS) {
            const unsigned keys_empty = ring.empty();
            tr_wait_phase(ring.full(), ring.round % 2);
            tr_show_registers(sums);
            tr_show_registers(factors);
            tr_show_sums();
            begin_scores(ring, consumer, scores);
            ring.next();
            tr_wait_phase(ring.full(), ring.round % 2);
            tr_show_sums();
            begin_sums(ring, sums, factors);
            pass_turn();
            tr_finish_sets<1>(scores);
            arrive_once(keys_empty);
            weigh(args, at, first_query, first, scores, softmax, factor);
            // Here, so that the compiler doesn't let weights wait for the sums.
            take_turn();
            tr_finish_sets<0>(sums);
            arrive_once(ring.empty());
            ring.next();
            round_factors(factors, scores);
#pragma unroll
            for (unsigned i = 0; i < SUMS; i++) {
                sums[i] *= factor[i / 2 % 2];
            }
        }
        // Nothing reads the queries any more.
        arrive_once(ring.queries_empty());
        tr_wait_phase(ring.full(), ring.round % 2);
        tr_show_registers(sums);
        tr_show_registers(factors);
        tr_show_sums();
        begin_sums(ring, sums, factors);
        pass_turn();
        tr_finish_sets<0>(sums);
        arrive_once(ring.empty());
        ring.next();
        store_queries(args, at, first_query, sums, softmax);
        tiles++;
    }
}

__device__ void forward_wgmma(const Args &args) {
    Ring ring{tr_dynamic_shared(), 0, 0};
    if (threadIdx.x == 0) {
        for (unsigned slot = 0; slot < SLOTS; slot++) {
            tr_init_barrier(ring.barrier(slot), 1);
            tr_init_barrier(ring.barrier(SLOTS + slot), WARPS);
        }
        tr_init_barrier(ring.queries_full(), 1);
        tr_init_barrier(ring.queries_empty(), WARPS);
        for (unsigned consumer = 0; consumer < CONSUMERS; consumer++) {
            tr_init_barrier(ring.turn(consumer), WARPS / CONSUMERS);
        }
        tr_show_barriers();
    }
    __syncthreads();
    // Sums take more registers than all threads could have, and copies need few.
    if (threadIdx.x < WARP_GROUP) {
        tr_fewer_registers<24>();
        if (threadIdx.x == 0) {
            produce(args, ring);
        }
    } else {
        tr_more_registers<240>();
        consume(args, ring, threadIdx.x / WARP_GROUP - 1);
    }
}

// The gradient of attention on Hopper's tensor cores, of 16-bit projections; comes after attention_wgmma.cu.
//
// A block makes the gradients of KEYS keys and values of a head, whose scores it recomputes once for all three gradients: it
// goes over the queries that attend to them, QUERIES at a time. Two groups of four warps have half of the keys each. Scores lie
// across, keys down, so that weights and slopes are factors of the keys' gradients where they are, in registers. The slopes also
// pass through shared memory, and each group makes the queries' gradient from all of them, for half of the channels.
//
// A query's gradient is a sum over blocks. They add to it in a fixed order, from the last keys that it attends to down: `partial`
// has the sum so far, as registers lie, and `counts` how many blocks have added to the 16 queries and half of the channels that a
// warp makes. The last one stores the gradient. Blocks begin work by tickets, in this order too, so that none waits for one that
// hasn't begun. With causal masks, the blocks of a head that run together come to their queries in this order by themselves.
//
// One thread has the copy engine bring queries and the gradients of their values into STAGES, and a warp brings their statistics.
// Bound by arithmetic.

#include "attention_wgmma.cu"

constexpr unsigned STAGES = SLOTS;
constexpr unsigned QUERIES = 64;
constexpr unsigned QUERY_BYTES = QUERIES * HEAD_DIM * sizeof(Element);
constexpr unsigned STATISTICS_BYTES = 2 * QUERIES * sizeof(float);
// Buffers of slopes: one is written while products read the other.
constexpr unsigned BUFFERS = 2;
constexpr unsigned SLOPE_BYTES = KEYS * QUERIES * sizeof(Element);
constexpr unsigned KEYS_AT = 0;
constexpr unsigned VALUES_AT = KEYS_AT + TILE_BYTES;
constexpr unsigned STAGES_AT = VALUES_AT + TILE_BYTES;
constexpr unsigned SLOPES_AT = STAGES_AT + STAGES * 2 * QUERY_BYTES;
constexpr unsigned STATISTICS_AT = SLOPES_AT + BUFFERS * SLOPE_BYTES;
constexpr unsigned BARRIERS_AT = STATISTICS_AT + STAGES * STATISTICS_BYTES;
// Channels of a query's gradient that a group of warps makes.
constexpr unsigned HALF = HEAD_DIM / CONSUMERS;

static_assert(QUERIES == SLAB && QUERIES == PART, "as boxes and products are");

// Shared memory, and the stage and the buffer whose turns they are.
struct Room {
    unsigned shared, stage, round, step;

    __device__ unsigned keys() const { return shared + KEYS_AT; }
    __device__ unsigned values() const { return shared + VALUES_AT; }
    __device__ unsigned queries() const { return shared + STAGES_AT + stage * 2 * QUERY_BYTES; }
    __device__ unsigned gradients() const { return queries() + QUERY_BYTES; }
    __device__ unsigned slopes() const { return shared + SLOPES_AT + step % BUFFERS * SLOPE_BYTES; }
    // Logs of normalisers of base 2, then what slopes subtract.
    __device__ unsigned statistics() const { return shared + STATISTICS_AT + stage * STATISTICS_BYTES; }
    __device__ unsigned barrier(unsigned which) const { return shared + BARRIERS_AT + which * BARRIER_BYTES; }
    __device__ unsigned full() const { return barrier(stage); }
    __device__ unsigned empty() const { return barrier(STAGES + stage); }
    __device__ unsigned slopes_full() const { return barrier(2 * STAGES + step % BUFFERS); }
    __device__ unsigned keys_full() const { return barrier(2 * STAGES + BUFFERS); }

    __device__ void next() {
        step++;
        stage++;
        if (stage == STAGES) {
            stage = 0;
            round++;
        }
    }
};

// Calls for each tile of queries that attends to the block's keys, with its head and its first query.
template <class Each> __device__ void each_tile(const Args &args, const Tile &at, Each each) {
    const unsigned begin = first_query(at.first, QUERIES);
    const unsigned end = end_seen(args, at.first, KEYS);
    for (unsigned head = at.head * GROUP; head < (at.head + 1) * GROUP; head++) {
        for (unsigned first = begin; first < end; first += QUERIES) {
            each(head, first);
        }
    }
}

__device__ void produce_queries(const Args &args, Room room, const Tile &at) {
    tr_prefetch(args.rows);
    tr_prefetch(args.gradients);
    tr_arrive_for(room.keys_full(), 2 * TILE_BYTES);
#pragma unroll
    for (unsigned i = 0; i < KEYS; i += QUERIES) {
        const unsigned down = i * ROW_BYTES;
        bring<KEYS>(room.keys() + down, args.rows, room.keys_full(), key_column(at.head), at.first + i, at.batch);
        bring<KEYS>(room.values() + down, args.rows, room.keys_full(), value_column(at.head), at.first + i, at.batch);
    }
    each_tile(args, at, [&](unsigned head, unsigned first) {
        tr_wait_phase(room.empty(), (room.round + 1) % 2);
        tr_arrive_for(room.full(), 2 * QUERY_BYTES);
        bring<QUERIES>(room.queries(), args.rows, room.full(), query_column(head), first, at.batch);
        bring<QUERIES>(room.gradients(), args.gradients, room.full(), head * HEAD_DIM, first, at.batch);
        room.next();
    });
}

__device__ void produce_statistics(const Args &args, Room room, const Tile &at) {
    const unsigned lane = threadIdx.x % WARP;
    each_tile(args, at, [&](unsigned head, unsigned first) {
        const unsigned of_lse = lse_index(args, at.batch, head, 0);
        const unsigned of_delta = delta_index(args, at.batch, head, 0);
        tr_wait_phase(room.empty(), (room.round + 1) % 2);
#pragma unroll
        for (unsigned i = lane; i < QUERIES; i += WARP) {
            const unsigned to = room.statistics() + i * unsigned(sizeof(float));
            tr_store_word(to, __float_as_uint(statistic(args, of_lse, first + i) * LOG2_E));
            tr_store_word(to + QUERIES * unsigned(sizeof(float)), __float_as_uint(statistic(args, of_delta, first + i)));
        }
        tr_meet_warp();
        arrive_once(room.full());
        room.next();
    });
}

constexpr unsigned PAIRS = QUERIES / 2;
constexpr unsigned OF_QUERIES = HALF / 2;
using Slopes = unsigned[QUERIES / STEP][4];

// Numbers of two neighbouring queries of the stage's: of the first statistic, or of the second.
__device__ Two statistics_of(const Room &room, unsigned column, unsigned which) {
    const unsigned words = which * QUERIES + column;
    Two two;
    tr_load_two(room.statistics() + words * unsigned(sizeof(float)), two.x, two.y);
    return two;
}

__device__ bool counts_pair(const Args &args, const Tile &at, unsigned query, unsigned key) {
    return query < args.seq_len && attends(args, at.batch, query, key);
}

// Zeroes the weights of pairs that don't count, of the group's keys and the queries from `first` on.
__device__ void mask_weights(const Args &args, const Tile &at, unsigned group_key, unsigned first, float (&weights)[PAIRS]) {
    const unsigned key = group_key + row_of_thread();
    const bool behind = first + QUERIES <= args.seq_len && group_key + PART <= (CAUSAL ? first + 1 : args.seq_len);
    const bool within = WINDOW == 0 || (group_key + WINDOW > first + QUERIES - 1 && first + WINDOW > group_key + PART - 1);
    if (!DOCUMENTS && behind && within) {
        return;
    }
    if (DOCUMENTS || WINDOW > 0) {
        unsigned counted[2] = {0, 0};
#pragma unroll 4
        for (unsigned j = 0; j < QUERIES / 4; j++) {
            const unsigned query = first + j / 2 * 8 + column_of_thread() + j % 2;
            counted[0] |= unsigned(counts_pair(args, at, query, key)) << j;
            counted[1] |= unsigned(counts_pair(args, at, query, key + 8)) << j;
        }
#pragma unroll
        for (unsigned i = 0; i < PAIRS; i++) {
            weights[i] = (counted[i / 2 % 2] >> (i / 4 * 2 + i % 2) & 1) != 0 ? weights[i] : 0.0f;
        }
    } else {
#pragma unroll
        for (unsigned i = 0; i < PAIRS; i++) {
            const unsigned query = first + i / 4 * 8 + column_of_thread() + i % 2;
            weights[i] = counts_pair(args, at, query, key + i / 2 % 2 * 8) ? weights[i] : 0.0f;
        }
    }
}

// Begins products of the group's rows of a tile of keys or values with a tile of queries or gradients.
__device__ void begin_products(unsigned own, unsigned consumer, unsigned other, float (&products)[PAIRS]) {
#pragma unroll
    for (unsigned d = 0; d < HEAD_DIM; d += STEP) {
        const unsigned long long rows = part<KEYS>(own, consumer * PART, d);
        const unsigned long long columns = part<QUERIES>(other, 0, d);
        if (d == 0) {
            tr_multiply_anew<Element, false, false>(products, rows, columns);
        } else {
            tr_multiply_async<Element, false, false>(products, rows, columns);
        }
    }
    tr_commit_products();
}

__device__ void begin_gradients(float (&sums)[SUMS], const Slopes &factors, unsigned other) {
#pragma unroll
    for (unsigned i = 0; i < QUERIES / STEP; i++) {
        tr_multiply_registers<Element, true>(sums, factors[i], part<QUERIES>(other, i * STEP, 0));
    }
    tr_commit_products();
}

// Writes the group's slopes to the buffer, a row of queries for each key, as the copy engine would swizzle it.
__device__ void share_slopes(const Room &room, unsigned consumer, const Slopes &slopes) {
#pragma unroll
    for (unsigned i = 0; i < QUERIES / STEP; i++) {
#pragma unroll
        for (unsigned j = 0; j < 4; j++) {
            const unsigned row = consumer * PART + row_of_thread() + j % 2 * 8;
            const unsigned column = (2 * i + j / 2) * 8 + column_of_thread();
            const unsigned chunk = column / 8 ^ row % 8;
            tr_store_word(room.slopes() + row * ROW_BYTES + chunk * 16 + column % 8 * unsigned(sizeof(Element)), slopes[i][j]);
        }
    }
    tr_show_stores();
    tr_meet_warp();
    arrive_once(room.slopes_full());
}

// Which tiles of keys add to a tile of queries, from the last down.
__device__ unsigned last_keys(const Args &args, unsigned first) {
    const unsigned end = CAUSAL ? first + 1 : end_seen(args, first, QUERIES);
    return (end - 1) / KEYS;
}

__device__ unsigned first_keys(unsigned first) { return first_seen(first, KEYS) / KEYS; }

// The queries' gradient of 16 queries and half of the channels, as a warp has it.
struct Share {
    // Which count it is, and where its part of the sum begins.
    unsigned count, partial;
    // How many blocks come before this one, and whether none comes after it.
    unsigned before;
    bool last;
};

__device__ Share share_of(const Args &args, const Tile &at, unsigned consumer, unsigned head, unsigned first) {
    const unsigned tiles = (args.seq_len + QUERIES - 1) / QUERIES;
    const unsigned part = ((at.batch * HEADS + head) * tiles + first / QUERIES) * CONSUMERS + consumer;
    const unsigned thread = threadIdx.x % WARP_GROUP;
    const unsigned own = at.first / KEYS;
    return Share{
        1 + part * (WARP_GROUP / WARP) + thread / WARP,
        (part * WARP_GROUP * (OF_QUERIES / 4) + thread) * 4,
        last_keys(args, first) - own,
        own == first_keys(first),
    };
}

// Waits until the blocks before this one have added to the sum.
__device__ void await_share(const Args &args, const Share &share) {
    if (share.before > 0) {
        tr_wait_count(args.counts, share.count, share.before);
    }
}

__device__ void begin_share(const Args &args, const Share &share, float (&sums)[OF_QUERIES]) {
#pragma unroll
    for (unsigned i = 0; i < OF_QUERIES; i += 4) {
        const Four four_of = share.before > 0 ? args.partial.load4(share.partial + i * WARP_GROUP) : four(0.0f);
        sums[i] = four_of.x;
        sums[i + 1] = four_of.y;
        sums[i + 2] = four_of.z;
        sums[i + 3] = four_of.w;
    }
}

// A count to pass on, and its value; 0 where there's none.
struct Passed {
    unsigned count, value;
};

// Lets the next block add to a sum that this one has stored. Its stores take time to be seen, so other work has begun before.
__device__ void pass_share(const Args &args, const Passed &passed) {
    if (passed.value > 0) {
        tr_pass_count(args.counts, passed.count, passed.value);
    }
}

__device__ void end_share(const Args &args, const Share &share, const float (&sums)[OF_QUERIES], unsigned to, unsigned row) {
    if (!share.last) {
#pragma unroll
        for (unsigned i = 0; i < OF_QUERIES; i += 4) {
            const Four four_of = {sums[i], sums[i + 1], sums[i + 2], sums[i + 3]};
            args.partial.store4(share.partial + i * WARP_GROUP, four_of, 4);
        }
        return;
    }
#pragma unroll
    for (unsigned i = 0; i < OF_QUERIES; i += 2) {
        const unsigned down = i / 2 % 2 * 8;
        if (row + down < args.seq_len) {
            args.out.store2(to + down * PACKED + i / 4 * 8, sums[i] * args.scale, sums[i + 1] * args.scale, 2);
        }
    }
}

__device__ void store_keys(const Args &args, const Tile &at, unsigned column, unsigned first, const float (&sums)[SUMS],
                           float factor) {
#pragma unroll
    for (unsigned r = 0; r < 2; r++) {
        const unsigned row = first + row_of_thread() + 8 * r;
        if (row < args.seq_len) {
            const unsigned to = (at.batch * args.seq_len + row) * PACKED + column + column_of_thread();
#pragma unroll
            for (unsigned i = 0; i < SUMS; i += 4) {
                args.out.store2(to + 2 * i, sums[i + 2 * r] * factor, sums[i + 2 * r + 1] * factor, 2);
            }
        }
    }
}

__device__ void consume_queries(const Args &args, Room room, const Tile &at, unsigned consumer) {
    const unsigned group_key = at.first + consumer * PART;
    float dvalues[SUMS], dkeys[SUMS];
#pragma unroll
    for (unsigned i = 0; i < SUMS; i++) {
        dvalues[i] = 0.0f;
        dkeys[i] = 0.0f;
    }
    tr_show_registers(dvalues);
    tr_show_registers(dkeys);
    tr_wait_phase(room.keys_full(), 0);
    // Of the queries before.
    Passed passed{0, 0};
    each_tile(args, at, [&](unsigned head, unsigned first) {
        float weights[PAIRS], slopes[PAIRS];
        Slopes rounded_weights, rounded_slopes;
        tr_wait_phase(room.full(), room.round % 2);
        tr_show_sums();
        begin_products(room.keys(), consumer, room.queries(), weights);
        begin_products(room.values(), consumer, room.gradients(), slopes);
        pass_share(args, passed);
        const Share share = share_of(args, at, consumer, head, first);
        await_share(args, share);
        tr_finish_sets<1>(weights);
#pragma unroll
        for (unsigned i = 0; i < PAIRS; i += 4) {
            const Two lse2 = statistics_of(room, i / 4 * 8 + column_of_thread(), 0);
            weights[i] = tr_exp2_in_place(weights[i] * args.prescale - lse2.x);
            weights[i + 1] = tr_exp2_in_place(weights[i + 1] * args.prescale - lse2.y);
            weights[i + 2] = tr_exp2_in_place(weights[i + 2] * args.prescale - lse2.x);
            weights[i + 3] = tr_exp2_in_place(weights[i + 3] * args.prescale - lse2.y);
        }
        mask_weights(args, at, group_key, first, weights);
        round_factors(rounded_weights, weights);
        tr_show_registers(rounded_weights);
        tr_show_sums();
        begin_gradients(dvalues, rounded_weights, room.gradients());
        tr_finish_sets<1>(slopes);
#pragma unroll
        for (unsigned i = 0; i < PAIRS; i += 4) {
            const Two delta = statistics_of(room, i / 4 * 8 + column_of_thread(), 1);
            slopes[i] = weights[i] * (slopes[i] - delta.x);
            slopes[i + 1] = weights[i + 1] * (slopes[i + 1] - delta.y);
            slopes[i + 2] = weights[i + 2] * (slopes[i + 2] - delta.x);
            slopes[i + 3] = weights[i + 3] * (slopes[i + 3] - delta.y);
        }
        round_factors(rounded_slopes, slopes);
        // The other group shared its slopes of the other buffer after it was done with this one.
        share_slopes(room, consumer, rounded_slopes);
        tr_show_registers(rounded_slopes);
        tr_show_sums();
        begin_gradients(dkeys, rounded_slopes, room.queries());
        float dqueries[OF_QUERIES];
        begin_share(args, share, dqueries);
        tr_wait_phase(room.slopes_full(), room.step / BUFFERS % 2);
        tr_show_registers(dqueries);
        tr_show_sums();
#pragma unroll
        for (unsigned k = 0; k < KEYS; k += STEP) {
            const unsigned long long rows = part<KEYS>(room.slopes(), k, 0);
            const unsigned long long columns = part<KEYS>(room.keys(), k, consumer * HALF);
            tr_multiply_async<Element, true, true>(dqueries, rows, columns);
        }
        tr_commit_products();
        tr_wait_products<1>();
        arrive_once(room.empty());
        tr_finish_sets<0>(dqueries);
        const unsigned row = first + row_of_thread();
        const unsigned column = query_column(head) + consumer * HALF + column_of_thread();
        end_share(args, share, dqueries, (at.batch * args.seq_len + row) * PACKED + column, row);
        passed = Passed{share.count, share.last ? 0 : share.before + 1};
        room.next();
    });
    pass_share(args, passed);
    tr_finish_sets<0>(dvalues);
    tr_finish_sets<0>(dkeys);
    store_keys(args, at, value_column(at.head), group_key, dvalues, 1.0f);
    store_keys(args, at, key_column(at.head), group_key, dkeys, args.scale);
}

__shared__ Shared<unsigned, 1> ticket;

__device__ void grad_wgmma(const Args &args) {
    Room room{tr_dynamic_shared(), 0, 0, 0};
    if (threadIdx.x == 0) {
        for (unsigned stage = 0; stage < STAGES; stage++) {
            tr_init_barrier(room.barrier(stage), 2);
            tr_init_barrier(room.barrier(STAGES + stage), WARPS);
        }
        for (unsigned buffer = 0; buffer < BUFFERS; buffer++) {
            tr_init_barrier(room.barrier(2 * STAGES + buffer), WARPS);
        }
        tr_init_barrier(room.keys_full(), 1);
        tr_show_barriers();
        ticket[0] = tr_take_ticket(args.counts, 0);
    }
    __syncthreads();
    const unsigned tiles = (args.seq_len + KEYS - 1) / KEYS;
    const unsigned number = ticket[0];
    const unsigned of_batch = number / tiles;
    const Tile at{of_batch / KV_HEADS, of_batch % KV_HEADS, (tiles - 1 - number % tiles) * KEYS};
    // Sums take more registers than all threads could have, and copies need few.
    if (threadIdx.x < WARP_GROUP) {
        tr_fewer_registers<24>();
        if (threadIdx.x == 0) {
            produce_queries(args, room, at);
        } else if (threadIdx.x / WARP == 1) {
            produce_statistics(args, room, at);
        }
    } else {
        tr_more_registers<240>();
        consume_queries(args, room, at, threadIdx.x / WARP_GROUP - 1);
    }
}

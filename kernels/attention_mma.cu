// Attention of 16-bit projections on tensor cores; comes after attention_heads.cu, which says how tensors are laid out.
//
// A block makes the ROWS rows of one head that it owns, 16 or 32 a warp, and goes over the other rows that attend or are
// attended to. Rows pass through shared memory in chunks of eight channels, 16 bytes, swizzled so that the eight that
// `ldmatrix` reads at once lie in different banks. Scores stay in registers: as products leave tensor cores, they are
// weights for the next ones, rounded to the projections' dtype. Bound by arithmetic, and by reads of shared memory: backend-cuda's
// bounds.tsv says how far.

#include "attention_heads.cu"

using Element = decltype(Args::qkv)::Element;

constexpr unsigned CHUNK = 8;
constexpr unsigned CHUNKS_OF_ROW = HEAD_DIM / CHUNK;
// Other rows at a time in the forward pass.
constexpr unsigned OTHERS = 64;
// The same in the gradients, and how often there is room for them in 48 KiB beside own rows and their partners.
constexpr unsigned FEW = OTHERS / 2;
constexpr unsigned STAGES = HEAD_DIM > 64 ? 1 : 2;
constexpr unsigned CHUNKS_OF_FEW = FEW * CHUNKS_OF_ROW;
// What one instruction makes: 16 rows, of which a lane has two, 8 further, by 8 columns, of which it has two neighbours.
constexpr unsigned MMA_ROWS = 16;
constexpr unsigned MMA_COLUMNS = 8;
constexpr unsigned MMA_K = 16;
// Bands of MMA_ROWS own rows that a warp has: what it reads of other rows serves all of them. A lane's rows are eight apart.
constexpr unsigned BANDS = ROWS / MMA_ROWS / (WORKGROUP / WARP);
constexpr unsigned WARP_ROWS = BANDS * MMA_ROWS;
constexpr unsigned LANE_ROWS = 2 * BANDS;

using Own = Shared<Chunk, ROWS * CHUNKS_OF_ROW>;
using Tall = Shared<Chunk, OTHERS * CHUNKS_OF_ROW>;
using Short = Shared<Chunk, STAGES * CHUNKS_OF_FEW>;

__shared__ Own own_rows;
// Values or gradients that belong to own rows.
__shared__ Own own_partners;
__shared__ Tall key_rows;
__shared__ Tall value_rows;
__shared__ Short other_rows;
__shared__ Short other_partners;

// Place of a chunk of a row.
__device__ unsigned place(unsigned row, unsigned chunk) {
    constexpr unsigned SWIZZLED = CHUNKS_OF_ROW < CHUNK ? CHUNKS_OF_ROW : CHUNK;
    return row * CHUNKS_OF_ROW + (chunk ^ (row / (CHUNK / SWIZZLED) % SWIZZLED));
}

// Begins to copy COUNT rows from `row` on, which lie STRIDE elements apart from element `first` on, into a tile from chunk
// `at` on. A thread copies the same chunk of several rows, so that where they lie is found once.
template <unsigned COUNT, unsigned STRIDE, class Tile, class Stored>
__device__ void copy_rows(const Args &args, Tile &to, unsigned at, const Stored &stored, unsigned first, unsigned row) {
    constexpr unsigned TOGETHER = WORKGROUP / CHUNKS_OF_ROW;
    const unsigned chunk = threadIdx.x % CHUNKS_OF_ROW;
    const unsigned own = threadIdx.x / CHUNKS_OF_ROW;
    const unsigned from = first + (row + own) * STRIDE + CHUNK * chunk;
#pragma unroll
    for (unsigned done = 0; done < COUNT; done += TOGETHER) {
        if (TOGETHER <= COUNT || own < COUNT) {
            const bool exists = row + own + done < args.seq_len;
            tr_copy_async(to, at + place(own + done, chunk), stored, from, exists, done * STRIDE);
        }
    }
}

template <unsigned COUNT, class Tile>
__device__ void copy_packed(const Args &args, Tile &to, unsigned batch, unsigned column, unsigned row, unsigned at = 0) {
    copy_rows<COUNT, PACKED>(args, to, at, args.qkv, batch * args.seq_len * PACKED + column, row);
}

template <unsigned COUNT, class Tile>
__device__ void copy_dout(const Args &args, Tile &to, unsigned batch, unsigned head, unsigned row, unsigned at = 0) {
    copy_rows<COUNT, HEADS * HEAD_DIM>(args, to, at, args.dout, out_index(args, batch, 0, head), row);
}

// The warp's first row in the block's, the first of a lane's rows in the warp's, and the first of its two columns.
__device__ unsigned rows_of_warp() { return threadIdx.x / WARP * WARP_ROWS; }
__device__ unsigned row_of_lane() { return threadIdx.x % WARP / 4; }
__device__ unsigned column_of_lane() { return threadIdx.x % 4 * 2; }

template <unsigned COLUMNS> using Scores = float[BANDS][COLUMNS / MMA_COLUMNS][4];

// Applies f(value, row, column) to all of a warp's values: own row `row` of the lane's, column of the tile's.
template <unsigned BLOCKS, class F> __device__ void each_score(float (&scores)[BANDS][BLOCKS][4], F f) {
#pragma unroll
    for (unsigned i = 0; i < BANDS; i++) {
#pragma unroll
        for (unsigned j = 0; j < BLOCKS; j++) {
#pragma unroll
            for (unsigned r = 0; r < 4; r++) {
                scores[i][j][r] = f(scores[i][j][r], 2 * i + r / 2, j * MMA_COLUMNS + column_of_lane() + r % 2);
            }
        }
    }
}

template <unsigned BLOCKS> __device__ void clear(float (&sums)[BANDS][BLOCKS][4]) {
    each_score(sums, [](float, unsigned, unsigned) { return 0.0f; });
}

// Applies f(value, other value) to all of a warp's values.
template <unsigned BLOCKS, class F>
__device__ void each_pair(float (&values)[BANDS][BLOCKS][4], const float (&others)[BANDS][BLOCKS][4], F f) {
#pragma unroll
    for (unsigned i = 0; i < BANDS; i++) {
#pragma unroll
        for (unsigned j = 0; j < BLOCKS; j++) {
#pragma unroll
            for (unsigned r = 0; r < 4; r++) {
                values[i][j][r] = f(values[i][j][r], others[i][j][r]);
            }
        }
    }
}

// Multiplies values by others.
template <unsigned BLOCKS>
__device__ void scale(float (&values)[BANDS][BLOCKS][4], const float (&by)[BANDS][BLOCKS][4]) {
    each_pair(values, by, [](float value, float factor) { return value * factor; });
}

// What makes an exponent of 2 of a score. Products that aren't capped are scaled as late as here, by the multiply-add that
// subtracts from the exponent.
__device__ float to_power(const Args &args) { return CAPPED ? 1.0f : args.prescale; }

// Makes scores of products, where they are capped, and what each grows by with its product.
template <unsigned BLOCKS>
__device__ void make_scores(const Args &args, float (&products)[BANDS][BLOCKS][4], float (&slopes)[BANDS][BLOCKS][4]) {
    if (CAPPED) {
        each_score(products, [&](float product, unsigned, unsigned) { return score_of(args, product); });
        each_pair(slopes, products, [&](float, float score) { return slope_of(args, score); });
    }
}

// Inner products of the warp's own rows with other rows, which lie from chunk `from` on.
template <unsigned BLOCKS, class Other>
__device__ void multiply_rows(float (&products)[BANDS][BLOCKS][4], Own &own, Other &other, unsigned from = 0) {
    const unsigned lane = threadIdx.x % WARP;
    const unsigned matrix = lane / 8;
    clear(products);
    // Four at a time are a head of 64: addresses of all of a wider one's channels take more registers than there are.
#pragma unroll 4
    for (unsigned d = 0; d < HEAD_DIM; d += MMA_K) {
        unsigned rows[BANDS][4];
#pragma unroll
        for (unsigned i = 0; i < BANDS; i++) {
            const unsigned row = rows_of_warp() + i * MMA_ROWS + matrix % 2 * 8 + lane % 8;
            tr_load_matrices<false>(rows[i], own, place(row, d / CHUNK + matrix / 2));
        }
#pragma unroll
        for (unsigned j = 0; j < BLOCKS; j += 2) {
            unsigned columns[4];
            const unsigned row = j * MMA_COLUMNS + matrix / 2 * 8 + lane % 8;
            tr_load_matrices<false>(columns, other, from + place(row, d / CHUNK + matrix % 2));
#pragma unroll
            for (unsigned i = 0; i < BANDS; i++) {
                tr_multiply_add<Element>(products[i][j], rows[i], columns[0], columns[1]);
                tr_multiply_add<Element>(products[i][j + 1], rows[i], columns[2], columns[3]);
            }
        }
    }
}

// Adds other rows, which lie from chunk `from` on, times their weights to the sums of the warp's own rows.
template <unsigned BLOCKS, class Other>
__device__ void weigh_rows(Scores<HEAD_DIM> &sums, const float (&weights)[BANDS][BLOCKS][4], Other &other,
                           unsigned from = 0) {
    const unsigned lane = threadIdx.x % WARP;
    const unsigned matrix = lane / 8;
#pragma unroll
    for (unsigned j = 0; j < BLOCKS; j += 2) {
        // Sums of 16 × 8 lie in a warp as halves of its 16 × 16 factors do.
        unsigned rows[BANDS][4];
#pragma unroll
        for (unsigned i = 0; i < BANDS; i++) {
#pragma unroll
            for (unsigned part = 0; part < 4; part++) {
                const float(&pairs)[4] = weights[i][j + part / 2];
                rows[i][part] = tr_round_pair<Element>(pairs[part % 2 * 2], pairs[part % 2 * 2 + 1]);
            }
        }
        const unsigned row = j * MMA_COLUMNS + matrix % 2 * 8 + lane % 8;
#pragma unroll
        for (unsigned d = 0; d < HEAD_DIM / MMA_COLUMNS; d += 2) {
            unsigned columns[4];
            tr_load_matrices<true>(columns, other, from + place(row, d + matrix / 2));
#pragma unroll
            for (unsigned i = 0; i < BANDS; i++) {
                tr_multiply_add<Element>(sums[i][d], rows[i], columns[0], columns[1]);
                tr_multiply_add<Element>(sums[i][d + 1], rows[i], columns[2], columns[3]);
            }
        }
    }
}

// Stores own row `row` of a lane's, from element `first` on, times a factor.
__device__ void store_row(const Args &args, unsigned first, const Scores<HEAD_DIM> &sums, unsigned row, float factor) {
    const unsigned half = row % 2;
#pragma unroll
    for (unsigned j = 0; j < HEAD_DIM / MMA_COLUMNS; j++) {
        const unsigned to = first + j * MMA_COLUMNS + column_of_lane();
        const float(&four)[4] = sums[row / 2][j];
        args.out.store2(to, four[2 * half] * factor, four[2 * half + 1] * factor, 2);
    }
}

// Over the four lanes that share a row.
template <class Fold> __device__ float fold_row(float value) { return tr_fold_lanes<Fold, 4>(value); }

// Whether all of the warp's queries from `query` on attend to all keys from `key` on, so that none needs its own test.
template <unsigned QUERIES, unsigned KEYS> __device__ bool all_attend(const Args &args, unsigned query, unsigned key) {
    const bool exist = query + QUERIES <= args.seq_len && key + KEYS <= args.seq_len;
    const bool before = !CAUSAL || key + KEYS <= query + 1;
    const bool within = WINDOW == 0 || (query + QUERIES <= key + WINDOW && key + KEYS <= query + WINDOW);
    return !DOCUMENTS && exist && before && within;
}

// The block's queries. The last of a head attend to most keys where attention is causal, and come first: what begins last is short.
__device__ Tile tile_of_queries(const Args &args) {
    Tile at = tile_of(args, HEADS);
    if (CAUSAL) {
        at.first = (args.seq_len - 1) / ROWS * ROWS - at.first;
    }
    return at;
}

__device__ void forward_mma(const Args &args) {
    const Tile at = tile_of_queries(args);
    const unsigned kv_head = at.head / GROUP;
    const unsigned query = at.first + rows_of_warp() + row_of_lane();
    const unsigned begin = first_seen(at.first, OTHERS);
    const unsigned end = end_of_keys(args, at.first, ROWS);
    copy_packed<ROWS>(args, own_rows, at.batch, query_column(at.head), at.first);
    copy_packed<OTHERS>(args, key_rows, at.batch, key_column(kv_head), begin);
    tr_commit_copies();
    copy_packed<OTHERS>(args, value_rows, at.batch, value_column(kv_head), begin);
    tr_commit_copies();
    // The highest score of a row, as it is and as an exponent of 2; and the sum of the lane's own columns: all lanes of a row
    // rescale by the same factors.
    float highest[LANE_ROWS], top[LANE_ROWS], total[LANE_ROWS];
#pragma unroll
    for (unsigned r = 0; r < LANE_ROWS; r++) {
        highest[r] = LOWEST;
        top[r] = 0.0f;
        total[r] = 0.0f;
    }
    Scores<HEAD_DIM> sums;
    clear(sums);
    for (unsigned first = begin; first < end; first += OTHERS) {
        // The keys have come; values may be on their way.
        tr_wait_copies<1>();
        __syncthreads();
        Scores<OTHERS> scores;
        multiply_rows(scores, own_rows, key_rows);
        __syncthreads();
        if (first + OTHERS < end) {
            copy_packed<OTHERS>(args, key_rows, at.batch, key_column(kv_head), first + OTHERS);
        }
        tr_commit_copies();
        if (CAPPED) {
            each_score(scores, [&](float product, unsigned, unsigned) { return score_of(args, product); });
        }
        if (!all_attend<WARP_ROWS, OTHERS>(args, at.first + rows_of_warp(), first)) {
            each_score(scores, [&](float score, unsigned r, unsigned column) {
                return attends(args, at.batch, query + 8 * r, first + column) ? score : LOWEST;
            });
        }
        float raised[LANE_ROWS];
#pragma unroll
        for (unsigned r = 0; r < LANE_ROWS; r++) {
            raised[r] = highest[r];
        }
        each_score(scores, [&](float score, unsigned r, unsigned) {
            raised[r] = fmaxf(raised[r], score);
            return score;
        });
        float factor[LANE_ROWS];
#pragma unroll
        for (unsigned r = 0; r < LANE_ROWS; r++) {
            raised[r] = fold_row<Max>(raised[r]);
            // A row that has met no key it attends to keeps sums of zero: its scores are far below 0 once they are scaled.
            top[r] = raised[r] == LOWEST ? 0.0f : raised[r] * to_power(args);
            factor[r] = tr_exp2(highest[r] * to_power(args) - top[r]);
            highest[r] = raised[r];
            total[r] *= factor[r];
        }
        each_score(scores, [&](float score, unsigned r, unsigned) {
            const float weight = tr_exp2(score * to_power(args) - top[r]);
            total[r] += weight;
            return weight;
        });
        if (DROPOUT) {
            const unsigned row = lse_index(args, at.batch, at.head, query);
            // The factor of those that are kept comes last: the largest weight is 1, which 16 bits hold exactly.
            each_score(scores, [&](float weight, unsigned r, unsigned column) {
                return kept(args, row + 8 * r, first + column) > 0.0f ? weight : 0.0f;
            });
        }
        each_score(sums, [&](float sum, unsigned r, unsigned) { return sum * factor[r]; });
        // The values have come; the next keys may be on their way.
        tr_wait_copies<1>();
        __syncthreads();
        weigh_rows(sums, scores, value_rows);
        __syncthreads();
        if (first + OTHERS < end) {
            copy_packed<OTHERS>(args, value_rows, at.batch, value_column(kv_head), first + OTHERS);
        }
        tr_commit_copies();
    }
#pragma unroll
    for (unsigned r = 0; r < LANE_ROWS; r++) {
        total[r] = fold_row<Sum>(total[r]);
        const unsigned row = query + 8 * r;
        if (row < args.seq_len) {
            const float left = DROPOUT ? total[r] * (1.0f - args.dropped) : total[r];
            store_row(args, out_index(args, at.batch, row, at.head), sums, r, 1.0f / left);
            if (column_of_lane() == 0) {
                const float lse = top[r] * LN_2 + logf(total[r]);
                args.statistics.store(lse_index(args, at.batch, at.head, row), lse);
            }
        }
    }
}

__device__ void store_own(const Args &args, const Tile &at, unsigned column, const Scores<HEAD_DIM> &sums, float factor) {
#pragma unroll
    for (unsigned r = 0; r < LANE_ROWS; r++) {
        const unsigned row = at.first + rows_of_warp() + row_of_lane() + 8 * r;
        if (row < args.seq_len) {
            store_row(args, (at.batch * args.seq_len + row) * PACKED + column, sums, r, factor);
        }
    }
}

// Both gradients multiply a stage of other rows while the next ones come. Of wide heads, there is room for one stage.
__device__ void grad_queries_mma(const Args &args) {
    const Tile at = tile_of_queries(args);
    const unsigned kv_head = at.head / GROUP;
    const unsigned query = at.first + rows_of_warp() + row_of_lane();
    const unsigned end = end_of_keys(args, at.first, ROWS);
    const auto bring = [&](unsigned first, unsigned stage) {
        if (first < end) {
            copy_packed<FEW>(args, other_rows, at.batch, key_column(kv_head), first, stage * CHUNKS_OF_FEW);
            copy_packed<FEW>(args, other_partners, at.batch, value_column(kv_head), first, stage * CHUNKS_OF_FEW);
        }
        tr_commit_copies();
    };
    float lse2[LANE_ROWS], delta[LANE_ROWS];
#pragma unroll
    for (unsigned r = 0; r < LANE_ROWS; r++) {
        lse2[r] = statistic(args, lse_index(args, at.batch, at.head, 0), query + 8 * r) * LOG2_E;
        delta[r] = statistic(args, delta_index(args, at.batch, at.head, 0), query + 8 * r);
    }
    copy_packed<ROWS>(args, own_rows, at.batch, query_column(at.head), at.first);
    copy_dout<ROWS>(args, own_partners, at.batch, at.head, at.first);
    unsigned first = first_seen(at.first, FEW);
    bring(first, 0);
    Scores<HEAD_DIM> sums;
    clear(sums);
    for (unsigned stage = 0; first < end; stage = (stage + 1) % STAGES) {
        tr_wait_copies<0>();
        // All threads are done with the stage before this one, too.
        __syncthreads();
        if (STAGES > 1) {
            bring(first + FEW, (stage + 1) % STAGES);
        }
        Scores<FEW> probability, slope, of_score;
        multiply_rows(probability, own_rows, other_rows, stage * CHUNKS_OF_FEW);
        make_scores(args, probability, of_score);
        if (!all_attend<WARP_ROWS, FEW>(args, at.first + rows_of_warp(), first)) {
            each_score(probability, [&](float score, unsigned r, unsigned column) {
                return attends(args, at.batch, query + 8 * r, first + column) ? score : LOWEST;
            });
        }
        each_score(probability, [&](float score, unsigned r, unsigned) {
            return tr_exp2(score * to_power(args) - lse2[r]);
        });
        multiply_rows(slope, own_partners, other_partners, stage * CHUNKS_OF_FEW);
        if (DROPOUT) {
            const unsigned row = lse_index(args, at.batch, at.head, query);
            each_score(slope, [&](float product, unsigned r, unsigned column) {
                return product * kept(args, row + 8 * r, first + column);
            });
        }
        each_score(slope, [&](float product, unsigned r, unsigned) { return product - delta[r]; });
        scale(slope, probability);
        if (CAPPED) {
            scale(slope, of_score);
        }
        weigh_rows(sums, slope, other_rows, stage * CHUNKS_OF_FEW);
        first += FEW;
        if (STAGES == 1) {
            __syncthreads();
            bring(first, 0);
        }
    }
    store_own(args, at, query_column(at.head), sums, args.scale);
}

// A query's log of its normaliser, and what its slopes subtract.
struct Statistics {
    float lse, delta;
};

// Those of a stage's queries.
__shared__ Shared<float, STAGES == 1 ? 1 : STAGES * FEW> lse_of_query;
__shared__ Shared<float, STAGES == 1 ? 1 : STAGES * FEW> delta_of_query;

__device__ void grad_keys_mma(const Args &args) {
    const Tile at = tile_of(args, KV_HEADS);
    const unsigned key = at.first + rows_of_warp() + row_of_lane();
    const unsigned begin = first_query(at.first, FEW);
    const unsigned end = end_seen(args, at.first, ROWS);
    const unsigned end_of_heads = (at.head + 1) * GROUP;
    const auto bring = [&](unsigned head, unsigned first, unsigned stage) {
        if (head < end_of_heads) {
            copy_packed<FEW>(args, other_rows, at.batch, query_column(head), first, stage * CHUNKS_OF_FEW);
            copy_dout<FEW>(args, other_partners, at.batch, head, first, stage * CHUNKS_OF_FEW);
            if (STAGES > 1 && threadIdx.x < FEW) {
                const unsigned to = stage * FEW + threadIdx.x;
                const unsigned query = smaller(first + threadIdx.x, args.seq_len - 1);
                tr_copy_word_async(lse_of_query, to, args.statistics, lse_index(args, at.batch, head, query));
                tr_copy_word_async(delta_of_query, to, args.statistics, delta_index(args, at.batch, head, query));
            }
        }
        tr_commit_copies();
    };
    copy_packed<ROWS>(args, own_rows, at.batch, key_column(at.head), at.first);
    copy_packed<ROWS>(args, own_partners, at.batch, value_column(at.head), at.first);
    unsigned head = at.head * GROUP;
    unsigned first = begin;
    bring(head, first, 0);
    Scores<HEAD_DIM> dvalues, dkeys;
    clear(dvalues);
    clear(dkeys);
    for (unsigned stage = 0; head < end_of_heads; stage = (stage + 1) % STAGES) {
        const bool last = first + FEW >= end;
        const unsigned next = last ? begin : first + FEW;
        const unsigned next_head = last ? head + 1 : head;
        tr_wait_copies<0>();
        __syncthreads();
        if (STAGES > 1) {
            bring(next_head, next, (stage + 1) % STAGES);
        }
        const auto statistics = [&](unsigned column) {
            if constexpr (STAGES > 1) {
                return Statistics{lse_of_query[stage * FEW + column], delta_of_query[stage * FEW + column]};
            } else {
                return Statistics{statistic(args, lse_index(args, at.batch, head, 0), first + column),
                                  statistic(args, delta_index(args, at.batch, head, 0), first + column)};
            }
        };
        Scores<FEW> probability, slope, of_score;
        multiply_rows(probability, own_rows, other_rows, stage * CHUNKS_OF_FEW);
        make_scores(args, probability, of_score);
        if (!all_attend<FEW, WARP_ROWS>(args, first, at.first + rows_of_warp())) {
            each_score(probability, [&](float score, unsigned r, unsigned column) {
                return attended(args, at.batch, key + 8 * r, first + column) ? score : LOWEST;
            });
        }
        each_score(probability, [&](float score, unsigned, unsigned column) {
            return tr_exp2(score * to_power(args) - statistics(column).lse * LOG2_E);
        });
        multiply_rows(slope, own_partners, other_partners, stage * CHUNKS_OF_FEW);
        if (DROPOUT) {
            const unsigned row = lse_index(args, at.batch, head, first);
            const auto factor = [&](unsigned r, unsigned column) { return kept(args, row + column, key + 8 * r); };
            each_score(slope, [&](float product, unsigned r, unsigned column) { return product * factor(r, column); });
            Scores<FEW> dropped;
            each_score(dropped, [&](float, unsigned r, unsigned column) { return factor(r, column); });
            scale(dropped, probability);
            weigh_rows(dvalues, dropped, other_partners, stage * CHUNKS_OF_FEW);
        } else {
            weigh_rows(dvalues, probability, other_partners, stage * CHUNKS_OF_FEW);
        }
        each_score(slope, [&](float product, unsigned, unsigned column) { return product - statistics(column).delta; });
        scale(slope, probability);
        if (CAPPED) {
            scale(slope, of_score);
        }
        weigh_rows(dkeys, slope, other_rows, stage * CHUNKS_OF_FEW);
        head = next_head;
        first = next;
        if (STAGES == 1) {
            __syncthreads();
            bring(head, first, 0);
        }
    }
    store_own(args, at, value_column(at.head), dvalues, 1.0f);
    store_own(args, at, key_column(at.head), dkeys, args.scale);
}

// Attention; comes after attention_heads.cu. Scores are made in tiles of ROWS by ROWS and never stored.
//
// forward, grad_queries, grad_keys: a block makes the ROWS rows of one head that it owns (queries, or keys in grad_keys) and
// goes over the other rows that attend or are attended to, ROWS at a time. Its threads form a square of LANES by LANES;
// thread (y, x) makes the 4 by 4 products of own rows 4·y + r and other rows x + LANES·j, and four channels a slice of its
// own rows' sums. Both tiles pass through shared memory in slices of channels, so that the memory, ROWS·(2·(SLICE + 1) +
// LANES + 1)·16 bytes, doesn't depend on the head's width. Bound by arithmetic: 64 multiply-adds for 8 reads of four
// numbers from shared memory; rows are padded by one vector, so that neighbouring threads read different banks.

#include "attention_heads.cu"

// ---- Tiles of rows ----

constexpr unsigned LANES = ROWS / 4;
constexpr unsigned SLICE = LANES < FOURS ? LANES : FOURS;
constexpr unsigned SLICES = (FOURS + SLICE - 1) / SLICE;
constexpr unsigned PITCH = SLICE + 1;
constexpr unsigned WEIGHTS_PITCH = LANES + 1;

using Rows = Shared<Four, ROWS * PITCH>;

__shared__ Rows own;
__shared__ Rows other;
// Vector x of a row holds the weights of other rows x + LANES·(0, 1, 2, 3).
__shared__ Shared<Four, ROWS * WEIGHTS_PITCH> weights;
__shared__ Shared<Four, LANES * LANES> partials;

// Products of a thread's own rows, one a vector, with its other rows.
struct Products {
    Four row[4];
};

// Sums of a thread's own rows, by slice and row.
struct Sums {
    Four slice[SLICES][4];
};

__device__ void clear(Sums &sums) {
#pragma unroll
    for (unsigned slice = 0; slice < SLICES; slice++) {
#pragma unroll
        for (unsigned r = 0; r < 4; r++) {
            sums.slice[slice][r] = four(0.0f);
        }
    }
}

__device__ void clear(Products &products) {
#pragma unroll
    for (unsigned r = 0; r < 4; r++) {
        products.row[r] = four(0.0f);
    }
}

// Brings a slice of a tile of rows from `first` on into shared memory; `row_of(row, vector)` reads it.
template <class Read> __device__ void stage(const Args &args, Rows &tile, unsigned first, unsigned slice, Read row_of) {
    for (unsigned i = threadIdx.x; i < ROWS * SLICE; i += WORKGROUP) {
        const unsigned row = first + i / SLICE;
        const unsigned vector = slice * SLICE + i % SLICE;
        const bool exists = row < args.seq_len && vector < FOURS;
        tile[i / SLICE * PITCH + i % SLICE] = exists ? row_of(row, vector) : four(0.0f);
    }
}

__device__ void stage_packed(const Args &args, Rows &tile, unsigned batch, unsigned first, unsigned column,
                             unsigned slice) {
    stage(args, tile, first, slice,
          [&](unsigned row, unsigned vector) { return packed_four(args, batch, row, column, vector); });
}

__device__ void stage_dout(const Args &args, Rows &tile, unsigned batch, unsigned first, unsigned head,
                           unsigned slice) {
    stage(args, tile, first, slice,
          [&](unsigned row, unsigned vector) { return dout_four(args, batch, row, head, vector); });
}

// Adds a slice's part of own rows times other rows.
__device__ void multiply(Products &products) {
    const unsigned at_own = 4 * (threadIdx.x / LANES) * PITCH;
    const unsigned at_other = threadIdx.x % LANES * PITCH;
    for (unsigned c = 0; c < SLICE; c++) {
        const Four x0 = other[at_other + c];
        const Four x1 = other[at_other + LANES * PITCH + c];
        const Four x2 = other[at_other + 2 * LANES * PITCH + c];
        const Four x3 = other[at_other + 3 * LANES * PITCH + c];
#pragma unroll
        for (unsigned r = 0; r < 4; r++) {
            const Four a = own[at_own + r * PITCH + c];
            products.row[r] += Four{dot(a, x0), dot(a, x1), dot(a, x2), dot(a, x3)};
        }
    }
}

__device__ void store_weights(const Products &products) {
    const unsigned at = 4 * (threadIdx.x / LANES) * WEIGHTS_PITCH + threadIdx.x % LANES;
#pragma unroll
    for (unsigned r = 0; r < 4; r++) {
        weights[at + r * WEIGHTS_PITCH] = products.row[r];
    }
}

// Adds weights times the slice of other rows to the sums.
__device__ void accumulate(Four (&sums)[4]) {
    const unsigned lane = threadIdx.x % LANES;
    if (lane >= SLICE) {
        return;
    }
    const unsigned at = 4 * (threadIdx.x / LANES) * WEIGHTS_PITCH;
    for (unsigned k = 0; k < LANES; k++) {
        const Four x0 = other[k * PITCH + lane];
        const Four x1 = other[(k + LANES) * PITCH + lane];
        const Four x2 = other[(k + 2 * LANES) * PITCH + lane];
        const Four x3 = other[(k + 3 * LANES) * PITCH + lane];
#pragma unroll
        for (unsigned r = 0; r < 4; r++) {
            const Four w = weights[at + r * WEIGHTS_PITCH + k];
            sums[r] += x0 * w.x + x1 * w.y + x2 * w.z + x3 * w.w;
        }
    }
}

// The first of a thread's own rows, and other row j of its products.
__device__ unsigned own_row(const Tile &at) { return at.first + 4 * (threadIdx.x / LANES); }
__device__ unsigned other_row(unsigned first, unsigned j) { return first + threadIdx.x % LANES + LANES * j; }

// Applies f(product, own row r, other row j) to all products.
template <class F> __device__ void each(Products &products, F f) {
#pragma unroll
    for (unsigned r = 0; r < 4; r++) {
        Four &p = products.row[r];
        p = Four{f(p.x, r, 0), f(p.y, r, 1), f(p.z, r, 2), f(p.w, r, 3)};
    }
}

// Multiplies products by factors.
__device__ void scale(Products &products, const Products &by) {
#pragma unroll
    for (unsigned r = 0; r < 4; r++) {
        products.row[r] *= by.row[r];
    }
}

// Makes scores of products, and where they are capped what each grows by with its product.
__device__ void make_scores(const Args &args, Products &products, Products &slopes) {
    each(products, [&](float product, unsigned, unsigned) { return score_of(args, product); });
    if (CAPPED) {
        slopes = products;
        each(slopes, [&](float score, unsigned, unsigned) { return slope_of(args, score); });
    }
}

__device__ void store_rows(const Args &args, const Tile &at, unsigned column, const Sums &sums, float factor) {
    const unsigned lane = threadIdx.x % LANES;
#pragma unroll
    for (unsigned slice = 0; slice < SLICES; slice++) {
        const unsigned vector = slice * SLICE + lane;
#pragma unroll
        for (unsigned r = 0; r < 4; r++) {
            const unsigned row = own_row(at) + r;
            if (row < args.seq_len && lane < SLICE && vector < FOURS) {
                const unsigned index = (at.batch * args.seq_len + row) * PACKED + column + 4 * vector;
                args.out.store4(index, sums.slice[slice][r] * factor, HEAD_DIM - 4 * vector);
            }
        }
    }
}

__device__ void forward(const Args &args) {
    const Tile at = tile_of(args, HEADS);
    const unsigned kv_head = at.head / GROUP;
    const unsigned query = own_row(at);
    const unsigned lane = threadIdx.x % LANES;
    const unsigned line = threadIdx.x / LANES * LANES;
    Four highest = four(LOWEST);
    // Of the thread's own columns; all threads of a row rescale by the same factors.
    Four total = four(0.0f);
    Sums sums;
    clear(sums);
    const unsigned begin = first_seen(at.first, ROWS);
    const unsigned end = end_of_keys(args, at.first, ROWS);
    for (unsigned first = begin; first < end; first += ROWS) {
        Products scores;
        clear(scores);
        for (unsigned slice = 0; slice < SLICES; slice++) {
            __syncthreads();
            if (SLICES > 1 || first == begin) {
                stage_packed(args, own, at.batch, at.first, query_column(at.head), slice);
            }
            stage_packed(args, other, at.batch, first, key_column(kv_head), slice);
            __syncthreads();
            multiply(scores);
        }
        each(scores, [&](float product, unsigned r, unsigned j) {
            return attends(args, at.batch, query + r, other_row(first, j)) ? score_of(args, product) : LOWEST;
        });
        partials[threadIdx.x] =
            Four{max_of(scores.row[0]), max_of(scores.row[1]), max_of(scores.row[2]), max_of(scores.row[3])};
        __syncthreads();
        Four raised = highest;
        for (unsigned i = 0; i < LANES; i++) {
            raised = max(raised, partials[line + i]);
        }
        const Four factor = exp2(highest - raised);
        highest = raised;
        const float top[4] = {raised.x, raised.y, raised.z, raised.w};
        each(scores, [&](float score, unsigned r, unsigned) { return exp2f(score - top[r]); });
        total = total * factor + Four{sum_of(scores.row[0]), sum_of(scores.row[1]), sum_of(scores.row[2]),
                                      sum_of(scores.row[3])};
        if (DROPOUT) {
            const unsigned row = lse_index(args, at.batch, at.head, query);
            each(scores, [&](float weight, unsigned r, unsigned j) {
                return weight * kept(args, row + r, other_row(first, j));
            });
        }
        store_weights(scores);
#pragma unroll
        for (unsigned slice = 0; slice < SLICES; slice++) {
            sums.slice[slice][0] *= factor.x;
            sums.slice[slice][1] *= factor.y;
            sums.slice[slice][2] *= factor.z;
            sums.slice[slice][3] *= factor.w;
            __syncthreads();
            stage_packed(args, other, at.batch, first, value_column(kv_head), slice);
            __syncthreads();
            accumulate(sums.slice[slice]);
        }
    }
    partials[threadIdx.x] = total;
    __syncthreads();
    total = four(0.0f);
    for (unsigned i = 0; i < LANES; i++) {
        total += partials[line + i];
    }
    const float tops[4] = {highest.x, highest.y, highest.z, highest.w};
    const float totals[4] = {total.x, total.y, total.z, total.w};
#pragma unroll
    for (unsigned r = 0; r < 4; r++) {
        const unsigned row = query + r;
        if (row >= args.seq_len) {
            continue;
        }
        if (lane == 0) {
            args.statistics.store(lse_index(args, at.batch, at.head, row), tops[r] * LN_2 + logf(totals[r]));
        }
#pragma unroll
        for (unsigned slice = 0; slice < SLICES; slice++) {
            const unsigned vector = slice * SLICE + lane;
            if (lane < SLICE && vector < FOURS) {
                const unsigned index = out_index(args, at.batch, row, at.head) + 4 * vector;
                args.out.store4(index, sums.slice[slice][r] / totals[r], HEAD_DIM - 4 * vector);
            }
        }
    }
}

// Inner product of a row of out with its gradient: what softmax subtracts. One thread a head of a row.
__device__ void grad_delta(const Args &args) {
    const unsigned index = (args.first_group + blockIdx.x) * WORKGROUP + threadIdx.x;
    if (index >= args.sequences * args.seq_len * HEADS) {
        return;
    }
    const unsigned head = index % HEADS;
    const unsigned row = index / HEADS;
    float sum = 0.0f;
    for (unsigned vector = 0; vector < FOURS; vector++) {
        const Four channels = within_head(args.out.load4(out_index(args, 0, row, head) + 4 * vector), vector);
        sum += dot(channels, dout_four(args, 0, row, head, vector));
    }
    args.statistics.store(delta_index(args, row / args.seq_len, head, row % args.seq_len), sum);
}

// Products of the tile's own rows from `own_column` on with those from `first` and `other_column` on.
__device__ void products(const Args &args, const Tile &at, unsigned own_column, unsigned first, unsigned other_column,
                         Products &found) {
    clear(found);
    for (unsigned slice = 0; slice < SLICES; slice++) {
        __syncthreads();
        stage_packed(args, own, at.batch, at.first, own_column, slice);
        stage_packed(args, other, at.batch, first, other_column, slice);
        __syncthreads();
        multiply(found);
    }
}

// Adds the rows from `first` and `column` on to the sums, by the weights that were stored.
__device__ void weigh(const Args &args, const Tile &at, unsigned first, unsigned column, Sums &sums) {
#pragma unroll
    for (unsigned slice = 0; slice < SLICES; slice++) {
        __syncthreads();
        stage_packed(args, other, at.batch, first, column, slice);
        __syncthreads();
        accumulate(sums.slice[slice]);
    }
}

__device__ void grad_queries(const Args &args) {
    const Tile at = tile_of(args, HEADS);
    const unsigned kv_head = at.head / GROUP;
    const unsigned query = own_row(at);
    float lse2[4], delta[4];
#pragma unroll
    for (unsigned r = 0; r < 4; r++) {
        lse2[r] = statistic(args, lse_index(args, at.batch, at.head, 0), query + r) * LOG2_E;
        delta[r] = statistic(args, delta_index(args, at.batch, at.head, 0), query + r);
    }
    Sums sums;
    clear(sums);
    const unsigned end = end_of_keys(args, at.first, ROWS);
    for (unsigned first = first_seen(at.first, ROWS); first < end; first += ROWS) {
        Products probability, slope, of_score;
        products(args, at, query_column(at.head), first, key_column(kv_head), probability);
        make_scores(args, probability, of_score);
        each(probability, [&](float score, unsigned r, unsigned j) {
            const bool seen = attends(args, at.batch, query + r, other_row(first, j));
            return seen ? exp2f(score - lse2[r]) : 0.0f;
        });
        clear(slope);
        for (unsigned slice = 0; slice < SLICES; slice++) {
            __syncthreads();
            stage_dout(args, own, at.batch, at.first, at.head, slice);
            stage_packed(args, other, at.batch, first, value_column(kv_head), slice);
            __syncthreads();
            multiply(slope);
        }
        if (DROPOUT) {
            const unsigned row = lse_index(args, at.batch, at.head, query);
            each(slope, [&](float product, unsigned r, unsigned j) {
                return product * kept(args, row + r, other_row(first, j));
            });
        }
#pragma unroll
        for (unsigned r = 0; r < 4; r++) {
            slope.row[r] = probability.row[r] * (slope.row[r] - delta[r]);
        }
        if (CAPPED) {
            scale(slope, of_score);
        }
        store_weights(slope);
        weigh(args, at, first, key_column(kv_head), sums);
    }
    store_rows(args, at, query_column(at.head), sums, args.scale);
}

__device__ void grad_keys(const Args &args) {
    const Tile at = tile_of(args, KV_HEADS);
    const unsigned key = own_row(at);
    Sums dvalues, dkeys;
    clear(dvalues);
    clear(dkeys);
    for (unsigned head = at.head * GROUP; head < (at.head + 1) * GROUP; head++) {
        const unsigned end = end_seen(args, at.first, ROWS);
        for (unsigned first = first_query(at.first, ROWS); first < end; first += ROWS) {
            float lse2[4], delta[4];
#pragma unroll
            for (unsigned j = 0; j < 4; j++) {
                lse2[j] = statistic(args, lse_index(args, at.batch, head, 0), other_row(first, j)) * LOG2_E;
                delta[j] = statistic(args, delta_index(args, at.batch, head, 0), other_row(first, j));
            }
            Products probability, slope, of_score;
            products(args, at, key_column(at.head), first, query_column(head), probability);
            make_scores(args, probability, of_score);
            each(probability, [&](float score, unsigned r, unsigned j) {
                const unsigned query = other_row(first, j);
                const bool seen = attended(args, at.batch, key + r, query);
                return seen ? exp2f(score - lse2[j]) : 0.0f;
            });
            Products factor;
            if (DROPOUT) {
                const unsigned row = lse_index(args, at.batch, head, 0);
                each(factor, [&](float, unsigned r, unsigned j) {
                    return kept(args, row + other_row(first, j), key + r);
                });
                Products dropped = probability;
                scale(dropped, factor);
                store_weights(dropped);
            } else {
                store_weights(probability);
            }
            clear(slope);
#pragma unroll
            for (unsigned slice = 0; slice < SLICES; slice++) {
                __syncthreads();
                stage_packed(args, own, at.batch, at.first, value_column(at.head), slice);
                stage_dout(args, other, at.batch, first, head, slice);
                __syncthreads();
                multiply(slope);
                accumulate(dvalues.slice[slice]);
            }
            __syncthreads();
            if (DROPOUT) {
                scale(slope, factor);
            }
            each(slope, [&](float product, unsigned, unsigned j) { return product - delta[j]; });
#pragma unroll
            for (unsigned r = 0; r < 4; r++) {
                slope.row[r] *= probability.row[r];
            }
            if (CAPPED) {
                scale(slope, of_score);
            }
            store_weights(slope);
            weigh(args, at, first, query_column(head), dkeys);
        }
    }
    store_rows(args, at, value_column(at.head), dvalues, 1.0f);
    store_rows(args, at, key_column(at.head), dkeys, args.scale);
}

// ---- Decoding with a cache ----

constexpr unsigned CACHE_COLUMNS = KV_HEADS * HEAD_DIM;
constexpr unsigned CACHE_FOURS = (CACHE_COLUMNS + 3) / 4;

__device__ unsigned cache_index(const Args &args, unsigned batch, unsigned row) {
    return (batch * args.capacity + row) * CACHE_COLUMNS;
}

// Copies the new positions' keys and values to the caches, four of a row a thread.
__device__ void append(const Args &args) {
    const unsigned index = (args.first_group + blockIdx.x) * WORKGROUP + threadIdx.x;
    if (index >= args.sequences * args.seq_len * CACHE_FOURS) {
        return;
    }
    const unsigned row = index / CACHE_FOURS;
    const unsigned column = 4 * (index % CACHE_FOURS);
    const unsigned position = unsigned(args.position.load(0)) + row % args.seq_len;
    const unsigned to = cache_index(args, row / args.seq_len, position) + column;
    const unsigned from = row * PACKED + key_column(0) + column;
    args.keys.store4(to, args.qkv.load4(from), CACHE_COLUMNS - column);
    args.values.store4(to, args.qkv.load4(from + CACHE_COLUMNS), CACHE_COLUMNS - column);
}

// Parts that the threads of a block make of a sum, with a thread for every four channels.
constexpr unsigned PARTS = WORKGROUP / FOURS > 0 ? WORKGROUP / FOURS : 1;

__shared__ Shared<Four, FOURS> query_fours;
__shared__ Shared<float, WORKGROUP> scores;
__shared__ Shared<Four, WORKGROUP> part_sums;

// A block makes one head of one new position. It goes over the cached positions WORKGROUP at a time: a thread makes the
// score of one, then four channels of the sum over every PARTS-th. Bound by reading the cache once.
__device__ void cached(const Args &args) {
    const unsigned group = args.first_group + blockIdx.x;
    const unsigned head = group % HEADS;
    const unsigned batch = group / HEADS / args.seq_len;
    const unsigned row = group / HEADS % args.seq_len;
    const unsigned column = head / GROUP * HEAD_DIM;
    const unsigned end = unsigned(args.position.load(0)) + row + 1;
    const unsigned begin = WINDOW == 0 ? 0 : end - smaller(end, WINDOW);
    if (threadIdx.x < FOURS) {
        query_fours[threadIdx.x] = packed_four(args, batch, row, query_column(head), threadIdx.x) * args.prescale;
    }
    __syncthreads();
    const unsigned vector = threadIdx.x % FOURS;
    float highest = LOWEST;
    float total = 0.0f;
    Four sum = four(0.0f);
    for (unsigned first = begin; first < end; first += WORKGROUP) {
        const unsigned count = smaller(WORKGROUP, end - first);
        float score = LOWEST;
        if (threadIdx.x < count) {
            const unsigned at = cache_index(args, batch, first + threadIdx.x) + column;
            score = 0.0f;
            for (unsigned c = 0; c < FOURS; c++) {
                score += dot(query_fours[c], within_head(args.keys.load4(at + 4 * c), c));
            }
            score = capped(args, score);
        }
        __syncthreads();
        scores[threadIdx.x] = score;
        __syncthreads();
        float raised = highest;
        for (unsigned k = 0; k < WORKGROUP; k++) {
            raised = fmaxf(raised, scores[k]);
        }
        const float factor = exp2f(highest - raised);
        const float weight = exp2f(score - raised);
        highest = raised;
        __syncthreads();
        scores[threadIdx.x] = weight;
        __syncthreads();
        total = total * factor + weight;
        sum *= factor;
        for (unsigned k = threadIdx.x / FOURS; k < count && threadIdx.x < PARTS * FOURS; k += PARTS) {
            const unsigned at = cache_index(args, batch, first + k) + column + 4 * vector;
            sum += within_head(args.values.load4(at), vector) * scores[k];
        }
    }
    __syncthreads();
    scores[threadIdx.x] = total;
    part_sums[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x >= FOURS) {
        return;
    }
    total = 0.0f;
    for (unsigned k = 0; k < WORKGROUP; k++) {
        total += scores[k];
    }
    for (unsigned part = 1; part < PARTS; part++) {
        sum += part_sums[part * FOURS + threadIdx.x];
    }
    const unsigned at = out_index(args, batch, row, head) + 4 * threadIdx.x;
    args.out.store4(at, sum / total, HEAD_DIM - 4 * threadIdx.x);
}

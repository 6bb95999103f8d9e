// Layer norm and RMS norm and their gradients.   x, y, dy, dx (R, C); w, b (C); mean, rstd (R)
//
// Forward and the gradient of x: LANES neighbouring threads own a row and read it four columns at a time, side by side,
// and add up by shuffles; a block holds as many rows as fit. The row's second and third reading come from the cache, so
// that traffic is x and y once (12·R·C flops of layer norm to 8·R·C bytes in f32).
//
// Gradients of the weights: partial sums over strips of rows, which reduce.cu adds up; a thread owns four columns. Where registers
// hold a row's share of a warp's threads, the gradient of x is made from the same reading, a warp for each row, and the blocks that
// come last add up the strips of all.
//
// An entry's y, dx or partial sums are `out`. Every name is bound in every launch, so that entries share this file.

constexpr unsigned WARPS = (WORKGROUP + WARP - 1) / WARP;
constexpr unsigned QUADS_OF_ROW = (COLUMNS + 3) / 4;

// One for each of a kernel's sums: a second needs no barrier against readers of the first.
__shared__ Shared<float, WARPS> first_sums;
__shared__ Shared<float, WARPS> second_sums;
__shared__ Shared<Four, WORKGROUP> weight_partials;
__shared__ Shared<Four, WORKGROUP> bias_partials;

// The thread's row, its first element, and the columns the thread begins and ends with. Rows past the last have none.
struct Part {
    unsigned row, first, begin, end;
};

__device__ Part part_of(const Args &args) {
    const unsigned row = (args.first_group + blockIdx.x) * (WORKGROUP / LANES) + threadIdx.x / LANES;
    return Part{row, row * COLUMNS, 4 * (threadIdx.x % LANES), row < args.rows ? COLUMNS : 0};
}

// mean[r] = Σ x[r,c]/C, rstd[r] = 1/√(Σ (x[r,c] − mean[r])²/C + eps), y[r,c] = (x[r,c] − mean[r])·rstd[r]·w[c] + b[c]
__device__ void layer_forward(const Args &args) {
    const Part at = part_of(args);
    float sum = 0.0f;
    for (unsigned c = at.begin; c < at.end; c += 4 * LANES) {
        sum += sum_of(first_of(args.x.load4(at.first + c), COLUMNS - c, 0.0f));
    }
    const float mean = tr_fold<Sum, LANES, WORKGROUP>(sum, first_sums) / COLUMNS;
    float squares = 0.0f;
    for (unsigned c = at.begin; c < at.end; c += 4 * LANES) {
        const Four centred = first_of(args.x.load4(at.first + c) - mean, COLUMNS - c, 0.0f);
        squares += dot(centred, centred);
    }
    const float variance = tr_fold<Sum, LANES, WORKGROUP>(squares, second_sums) / COLUMNS;
    const float rstd = 1.0f / sqrtf(variance + args.eps);
    for (unsigned c = at.begin; c < at.end; c += 4 * LANES) {
        const Four normal = (args.x.load4(at.first + c) - mean) * rstd;
        args.out.store4(at.first + c, normal * args.w.load4(c) + args.b.load4(c), COLUMNS - c);
    }
    if (at.begin == 0 && at.row < args.rows) {
        args.mean.store(args.first_row + at.row, mean);
        args.rstd.store(args.first_row + at.row, rstd);
    }
}

// rstd[r] = 1/√(Σ x[r,c]²/C + eps), y[r,c] = x[r,c]·rstd[r]·w[c]
__device__ void rms_forward(const Args &args) {
    const Part at = part_of(args);
    float squares = 0.0f;
    for (unsigned c = at.begin; c < at.end; c += 4 * LANES) {
        const Four x = first_of(args.x.load4(at.first + c), COLUMNS - c, 0.0f);
        squares += dot(x, x);
    }
    const float rstd = 1.0f / sqrtf(tr_fold<Sum, LANES, WORKGROUP>(squares, first_sums) / COLUMNS + args.eps);
    for (unsigned c = at.begin; c < at.end; c += 4 * LANES) {
        args.out.store4(at.first + c, args.x.load4(at.first + c) * rstd * args.w.load4(c), COLUMNS - c);
    }
    if (at.begin == 0 && at.row < args.rows) {
        args.rstd.store(args.first_row + at.row, rstd);
    }
}

// The gradient of x that came past the norm, where there's one.
__device__ Four residual_of(const Args &args, unsigned at) { return RESIDUAL ? args.residual.load4(at) : four(0.0f); }

// With normal = (x − mean)·rstd and slope = dy·w:
// dx[r,c] = rstd[r]·(slope[r,c] − Σ slope[r,:]/C − normal[r,c]·Σ slope[r,:]·normal[r,:]/C) (+ residual[r,c])
// A thread reads of dy what it writes of dx, before it does: they may share storage.
__device__ void layer_backward(const Args &args) {
    const Part at = part_of(args);
    const bool exists = at.row < args.rows;
    const float mean = exists ? args.mean.load(args.first_row + at.row) : 0.0f;
    const float rstd = exists ? args.rstd.load(args.first_row + at.row) : 0.0f;
    float slopes = 0.0f;
    float products = 0.0f;
    for (unsigned c = at.begin; c < at.end; c += 4 * LANES) {
        const Four slope = first_of(args.dy.load4(at.first + c) * args.w.load4(c), COLUMNS - c, 0.0f);
        const Four normal = first_of((args.x.load4(at.first + c) - mean) * rstd, COLUMNS - c, 0.0f);
        slopes += sum_of(slope);
        products += dot(slope, normal);
    }
    const float mean_slope = tr_fold<Sum, LANES, WORKGROUP>(slopes, first_sums) / COLUMNS;
    const float mean_product = tr_fold<Sum, LANES, WORKGROUP>(products, second_sums) / COLUMNS;
    for (unsigned c = at.begin; c < at.end; c += 4 * LANES) {
        const Four normal = (args.x.load4(at.first + c) - mean) * rstd;
        const Four slope = args.dy.load4(at.first + c) * args.w.load4(c);
        const Four dx = (slope - mean_slope - normal * mean_product) * rstd;
        args.out.store4(at.first + c, dx + residual_of(args, at.first + c), COLUMNS - c);
    }
}

// With normal = x·rstd and slope = dy·w:
// dx[r,c] = rstd[r]·(slope[r,c] − normal[r,c]·Σ slope[r,:]·normal[r,:]/C) (+ residual[r,c])
// As above, dx may share dy's storage.
__device__ void rms_backward(const Args &args) {
    const Part at = part_of(args);
    const float rstd = at.row < args.rows ? args.rstd.load(args.first_row + at.row) : 0.0f;
    float products = 0.0f;
    for (unsigned c = at.begin; c < at.end; c += 4 * LANES) {
        const Four slope = first_of(args.dy.load4(at.first + c) * args.w.load4(c), COLUMNS - c, 0.0f);
        products += dot(slope, first_of(args.x.load4(at.first + c) * rstd, COLUMNS - c, 0.0f));
    }
    const float mean_product = tr_fold<Sum, LANES, WORKGROUP>(products, first_sums) / COLUMNS;
    for (unsigned c = at.begin; c < at.end; c += 4 * LANES) {
        const Four normal = args.x.load4(at.first + c) * rstd;
        const Four slope = args.dy.load4(at.first + c) * args.w.load4(c);
        const Four dx = (slope - normal * mean_product) * rstd;
        args.out.store4(at.first + c, dx + residual_of(args, at.first + c), COLUMNS - c);
    }
}

// Sums over the rows of a strip, `strip` or in the last fewer, of dy·normal and of dy, where normal(row, x) is the
// normalised x. They lie in `out` by strip, those of dy from `first_bias` on. QUADS neighbouring threads read a row side by
// side, and the threads past them the next rows. What lies past the last column is summed too, and not stored.
template <bool BIASED, class Normal> __device__ void sum_strip(const Args &args, Normal normal) {
    constexpr unsigned BLOCKS = (QUADS_OF_ROW + QUADS - 1) / QUADS;
    const unsigned group = args.first_group + blockIdx.x;
    const unsigned strip = group / BLOCKS;
    const unsigned quad = (group - strip * BLOCKS) * QUADS + threadIdx.x % QUADS;
    const unsigned end = smaller((strip + 1) * args.strip, args.rows);
    Four dw = four(0.0f);
    Four db = four(0.0f);
    if (quad < QUADS_OF_ROW) {
        for (unsigned row = strip * args.strip + threadIdx.x / QUADS; row < end; row += WORKGROUP / QUADS) {
            const unsigned at = row * COLUMNS + 4 * quad;
            const Four slope = args.dy.load4(at);
            dw += slope * normal(args.first_row + row, args.x.load4(at));
            db += slope;
        }
    }
    weight_partials[threadIdx.x] = dw;
    if (BIASED) {
        bias_partials[threadIdx.x] = db;
    }
    __syncthreads();
    if (threadIdx.x >= QUADS || quad >= QUADS_OF_ROW) {
        return;
    }
    for (unsigned i = threadIdx.x + QUADS; i < WORKGROUP; i += QUADS) {
        dw += weight_partials[i];
        if (BIASED) {
            db += bias_partials[i];
        }
    }
    const unsigned at = strip * COLUMNS + 4 * quad;
    args.out.store4(at, dw, COLUMNS - 4 * quad);
    if (BIASED) {
        args.out.store4(args.first_bias + at, db, COLUMNS - 4 * quad);
    }
}

__device__ void layer_weights(const Args &args) {
    sum_strip<true>(args, [&](unsigned row, Four x) { return (x - args.mean.load(row)) * args.rstd.load(row); });
}

__device__ void rms_weights(const Args &args) {
    sum_strip<false>(args, [&](unsigned row, Four x) { return x * args.rstd.load(row); });
}

// Fours of a row that a thread of its warp has, and warps whose sums are in shared memory at once.
constexpr unsigned OWN = (QUADS_OF_ROW + WARP - 1) / WARP;
constexpr unsigned HALF_OF_WARPS = WARPS > 1 ? WARPS / 2 : 1;

// Longer rows have other entries.
__shared__ Shared<Four, COLUMNS <= 1024 ? HALF_OF_WARPS * OWN * WARP : 1> sums_of_warps;

// Adds up the sums of a strip's warps, and stores them: those of the upper half of the warps are added to the lower half's, and
// these in the warps' order.
__device__ void store_strip(const Args &args, unsigned first, const Four (&sums)[OWN]) {
    const unsigned lane = threadIdx.x % WARP;
    const unsigned warp = threadIdx.x / WARP;
    const unsigned at = warp % HALF_OF_WARPS * (OWN * WARP) + lane;
    // The readers of other sums are done.
    __syncthreads();
    if (warp >= HALF_OF_WARPS) {
#pragma unroll
        for (unsigned i = 0; i < OWN; i++) {
            sums_of_warps[at + i * WARP] = sums[i];
        }
    }
    __syncthreads();
    if (warp < HALF_OF_WARPS) {
#pragma unroll
        for (unsigned i = 0; i < OWN; i++) {
            sums_of_warps[at + i * WARP] = sums[i] + sums_of_warps[at + i * WARP];
        }
    }
    __syncthreads();
    for (unsigned quad = threadIdx.x; quad < QUADS_OF_ROW; quad += WORKGROUP) {
        Four sum = sums_of_warps[quad];
        for (unsigned i = 1; i < HALF_OF_WARPS; i++) {
            sum += sums_of_warps[i * (OWN * WARP) + quad];
        }
        tr_leave(args.sums, first + 4 * quad, sum, COLUMNS - 4 * quad);
    }
}

// Blocks that have left sums of strips, by part, and those that have left a part's.
static __device__ Counter arrived[PARTS + 1];
__shared__ Shared<unsigned, 1> is_last;

// The weights' gradients, of the sums of all strips. Strips belong to PARTS parts in turn. The block that comes last of a part's adds
// up its strips, and the one that comes last of these the parts: in the order of reduce.cu's sums of columns, whatever the blocks' order.
template <bool LAYER> __device__ void sum_strips(const Args &args, unsigned strip) {
    constexpr unsigned QUADS_OF_ALL = (LAYER ? 2 : 1) * QUADS_OF_ROW;
    const unsigned strips = (args.rows + args.strip - 1) / args.strip;
    const unsigned part = strip % PARTS;
    if (!tr_comes_last(arrived[part], (strips - part + PARTS - 1) / PARTS, is_last)) {
        return;
    }
    for (unsigned i = threadIdx.x; i < QUADS_OF_ALL; i += WORKGROUP) {
        const unsigned quad = i % QUADS_OF_ROW;
        const unsigned first = (i < QUADS_OF_ROW ? 0 : args.first_bias) + 4 * quad;
        Four sum = four(0.0f);
#pragma unroll 8
        for (unsigned other = part; other < strips; other += PARTS) {
            sum += tr_left(args.sums, first + other * COLUMNS);
        }
        tr_leave(args.sums, first + part * COLUMNS, sum, COLUMNS - 4 * quad);
    }
    const unsigned parts = smaller(strips, PARTS);
    if (!tr_comes_last(arrived[PARTS], parts, is_last)) {
        return;
    }
    for (unsigned i = threadIdx.x; i < QUADS_OF_ALL; i += WORKGROUP) {
        const unsigned quad = i % QUADS_OF_ROW;
        const unsigned first = (i < QUADS_OF_ROW ? 0 : args.first_bias) + 4 * quad;
        Four sum = tr_left(args.sums, first);
        for (unsigned other = 1; other < parts; other++) {
            sum += tr_left(args.sums, first + other * COLUMNS);
        }
        if (i < QUADS_OF_ROW) {
            args.dw.store4(4 * quad, sum, COLUMNS - 4 * quad);
        } else {
            args.db.store4(4 * quad, sum, COLUMNS - 4 * quad);
        }
    }
}

// All gradients of a strip's rows: dx as above, and what sum_strip leaves, in `sums`; and in the end those of the weights.
template <bool LAYER> __device__ void strip_gradients(const Args &args) {
    const unsigned lane = threadIdx.x % WARP;
    const unsigned strip = args.first_group + blockIdx.x;
    const unsigned end = smaller((strip + 1) * args.strip, args.rows);
    Four dw[OWN];
    Four db[OWN];
#pragma unroll
    for (unsigned i = 0; i < OWN; i++) {
        dw[i] = four(0.0f);
        db[i] = four(0.0f);
    }
    for (unsigned row = strip * args.strip + threadIdx.x / WARP; row < end; row += WARPS) {
        const unsigned first = row * COLUMNS;
        const float mean = LAYER ? args.mean.load(args.first_row + row) : 0.0f;
        const float rstd = args.rstd.load(args.first_row + row);
        float slopes = 0.0f;
        float products = 0.0f;
#pragma unroll
        for (unsigned i = 0; i < OWN; i++) {
            const unsigned c = 4 * (lane + i * WARP);
            if (c < COLUMNS) {
                const Four slope = first_of(args.dy.load4(first + c) * args.w.load4(c), COLUMNS - c, 0.0f);
                const Four normal = first_of((args.x.load4(first + c) - mean) * rstd, COLUMNS - c, 0.0f);
                slopes += sum_of(slope);
                products += dot(slope, normal);
            }
        }
        const float mean_slope = LAYER ? tr_fold_lanes<Sum, WARP>(slopes) / COLUMNS : 0.0f;
        const float mean_product = tr_fold_lanes<Sum, WARP>(products) / COLUMNS;
#pragma unroll
        for (unsigned i = 0; i < OWN; i++) {
            const unsigned c = 4 * (lane + i * WARP);
            if (c < COLUMNS) {
                const Four dy = args.dy.load4(first + c);
                const Four normal = (args.x.load4(first + c) - mean) * rstd;
                // What lies past the last column is summed too, and not stored.
                dw[i] += dy * normal;
                db[i] += dy;
                const Four dx = (dy * args.w.load4(c) - mean_slope - normal * mean_product) * rstd;
                args.out.store4(first + c, dx + residual_of(args, first + c), COLUMNS - c);
            }
        }
    }
    store_strip(args, strip * COLUMNS, dw);
    if (LAYER) {
        store_strip(args, args.first_bias + strip * COLUMNS, db);
    }
    sum_strips<LAYER>(args, strip);
}

__device__ void layer_gradients(const Args &args) { strip_gradients<true>(args); }

__device__ void rms_gradients(const Args &args) { strip_gradients<false>(args); }

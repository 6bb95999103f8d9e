// Sums in a fixed order, bound by reading x once. Long sums are cut by shape alone: each piece leaves a partial sum, and
// further launches, or blocks that come last, add those up the same way.

__shared__ Shared<float, (WORKGROUP + WARP - 1) / WARP> warps;
__shared__ Shared<Four, WORKGROUP> partials;

// out[slot + r·segments + s] = scale·Σ x[r, c] over the c of segment s of row r: SEGMENT columns, the last fewer; of the
// squares where SQUARE. LANES neighbouring threads own a segment and read it four neighbours at a time, side by side.
__device__ void sum_rows(const Args &args) {
    const unsigned lane = threadIdx.x % LANES;
    const unsigned segment = (args.first_group + blockIdx.x) * (WORKGROUP / LANES) + threadIdx.x / LANES;
    Four sums = four(0.0f);
    if (segment < args.segments) {
        const unsigned segments = (args.columns + SEGMENT - 1) / SEGMENT;
        const unsigned row = segment / segments;
        const unsigned start = (segment - row * segments) * SEGMENT;
        const unsigned count = smaller(args.columns - start, SEGMENT);
        const unsigned first = row * args.columns + start;
        for (unsigned c = 4 * lane; c < count; c += 4 * LANES) {
            const Four x = first_of(args.x.load4(first + c), count - c, 0.0f);
            sums += SQUARE ? x * x : x;
        }
    }
    const float sum = tr_fold<Sum, LANES, WORKGROUP>(sum_of(sums), warps);
    if (lane == 0 && segment < args.segments) {
        args.out.store(args.slot + segment, sum * args.scale);
    }
}

// Σ load(row) over rows begin to end, complete in the first QUADS threads: a thread owns four columns, QUADS neighbouring threads
// read a row side by side, and the threads past them the next rows.
template <class Load> __device__ Four sum_of_strip(unsigned begin, unsigned end, Load load) {
    Four sums = four(0.0f);
    for (unsigned row = begin + threadIdx.x / QUADS; row < end; row += WORKGROUP / QUADS) {
        sums += load(row);
    }
    partials[threadIdx.x] = sums;
    __syncthreads();
    if (threadIdx.x < QUADS) {
        for (unsigned i = threadIdx.x + QUADS; i < WORKGROUP; i += QUADS) {
            sums += partials[i];
        }
    }
    return sums;
}

// Blocks that have left sums of strips, by the columns that they are of.
static __device__ Counter arrived[COUNTERS > 0 ? COUNTERS : 1];
__shared__ Shared<unsigned, 1> is_last;

// out[s, c] = scale·Σ x[r, c] over the rows of strip s: `strip` rows, the last fewer. ADD: += instead of =. With COUNTERS, the block
// that comes last adds up the strips of its columns, and out is one row. What lies past the last column is summed too, and not stored.
__device__ void sum_columns(const Args &args) {
    const unsigned quads = (args.columns + 3) / 4;
    const unsigned blocks = (quads + QUADS - 1) / QUADS;
    const unsigned group = args.first_group + blockIdx.x;
    const unsigned strip = group / blocks;
    const unsigned block = group - strip * blocks;
    const unsigned quad = block * QUADS + threadIdx.x % QUADS;
    const unsigned left = quad < quads ? args.columns - 4 * quad : 0;
    const unsigned begin = strip * args.strip;
    const unsigned end = smaller(begin + args.strip, args.rows);
    const bool stores = threadIdx.x < QUADS && left > 0;
    Four sums = sum_of_strip(begin, left > 0 ? end : 0, [&](unsigned row) { return args.x.load4(row * args.columns + 4 * quad); });
    unsigned at = strip * args.columns + 4 * quad;
    if constexpr (COUNTERS > 0) {
        if (stores) {
            tr_leave(args.sums, at, sums, left);
        }
        const unsigned strips = (args.rows + args.strip - 1) / args.strip;
        if (!tr_comes_last(arrived[block], strips, is_last)) {
            return;
        }
        sums = sum_of_strip(0, left > 0 ? strips : 0, [&](unsigned row) { return tr_left(args.sums, row * args.columns + 4 * quad); });
        at = 4 * quad;
    }
    if (stores) {
        sums *= args.scale;
        if (ADD) {
            sums += args.out.load4(at);
        }
        args.out.store4(at, sums, left);
    }
}

// out[o, c] = scale·Σ x[o, r, c] over the rows r of each of `segments` matrices, in their order; with ADD, scale·(out[o, c] + Σ …). A
// thread owns four columns of one.
__device__ void sum_middle(const Args &args) {
    const unsigned quads = (args.columns + 3) / 4;
    const unsigned index = (args.first_group + blockIdx.x) * WORKGROUP + threadIdx.x;
    if (index >= args.segments * quads) {
        return;
    }
    const unsigned matrix = index / quads;
    const unsigned column = 4 * (index - matrix * quads);
    const unsigned first = matrix * args.rows * args.columns + column;
    const unsigned at = matrix * args.columns + column;
    // What lies past the last column is summed too, and not stored.
    Four sums = ADD ? args.out.load4(at) : four(-0.0f);
    for (unsigned row = 0; row < args.rows; row++) {
        sums += args.x.load4(first + row * args.columns);
    }
    args.out.store4(at, sums * args.scale, args.columns - column);
}

// Matrix products.   M rows, N columns, K summed
//
//   out[m,n] = Σₖ lhs[m,k] · rhs[k,n]  (+ bias[n])  (+ out[m,n])
//
// With EPILOGUE, that is rounded as `out` is, goes to `product` where KEEPS_PRODUCT, and `out` gets what tr_epilogue makes of
// it and, where BESIDE, of the element beside it.
//
// Everything is in blocks of 4 × 4. A block that lies across an edge is read with its indices held inside, and what lies
// outside is zero along K and never stored along M and N. Sums begin with what is accumulated to and go up in K.
//
// | entry | a thread makes | for |
// |---|---|---|
// | `tiled` | THREAD_M × THREAD_N of a tile that its block holds in shared memory | f32 |
// | `narrow` | a slice of K of a block | few rows, as in decoding: reads rhs once, bound by traffic |
// | `add_slices` | four elements | sums over K that other entries made in slices, where the output has too few tiles |

// Four rows of four.
struct Block {
    Four row[4];
};

__device__ Block transposed(Block b) {
    return Block{{
        Four{b.row[0].x, b.row[1].x, b.row[2].x, b.row[3].x},
        Four{b.row[0].y, b.row[1].y, b.row[2].y, b.row[3].y},
        Four{b.row[0].z, b.row[1].z, b.row[2].z, b.row[3].z},
        Four{b.row[0].w, b.row[1].w, b.row[2].w, b.row[3].w},
    }};
}

struct Corner {
    unsigned row, column;
    // Summed indices.
    unsigned k, end;
    // First elements of the matrices.
    unsigned lhs, rhs, out;
};

// Blocks of threads count tiles along N first, then along M, then matrices, then slices of K.
__device__ Corner corner(const Args &args) {
    const unsigned group = args.first_group + blockIdx.x;
    const unsigned tiles = args.tiles_m * args.tiles_n;
    const unsigned stacked = group / tiles;
    const unsigned tile = group - stacked * tiles;
    const unsigned down = tile / args.tiles_n;
    const unsigned slice = stacked / args.batch;
    const unsigned matrix = stacked - slice * args.batch;
    const unsigned k = slice * args.slice;
    return Corner{
        down * TILE_M,
        (tile - down * args.tiles_n) * TILE_N,
        k,
        smaller(k + args.slice, args.k),
        args.lhs_first + matrix * args.lhs_stride,
        args.rhs_first + matrix * args.rhs_stride,
        args.out_first + stacked * args.out_stride,
    };
}

// First index of a block, held inside an axis.
__device__ unsigned held(unsigned index, unsigned extent) { return smaller(index, (extent - 1) & ~3u); }

// Four neighbours of a stored row from `inner` on; past the row's end, its last.
template <bool FOUR, class Stored>
__device__ Four neighbours(const Stored &stored, unsigned row, unsigned inner, unsigned extent) {
    if (FOUR) {
        return stored.load4(row + inner);
    }
    const auto one = [&](unsigned lane) { return stored.load(row + smaller(inner + lane, extent - 1)); };
    return Four{one(0), one(1), one(2), one(3)};
}

// Four stored rows from `outer` on, four neighbours of each.
template <bool FOUR, class Stored>
__device__ Block stored_block(const Stored &stored, unsigned first, unsigned stride, unsigned outer, unsigned rows,
                              unsigned inner, unsigned columns) {
    Block block;
#pragma unroll
    for (unsigned i = 0; i < 4; i++) {
        const unsigned row = first + smaller(outer + i, rows - 1) * stride;
        block.row[i] = neighbours<FOUR>(stored, row, inner, columns);
    }
    return block;
}

// Row i is lhs[row.., k + i], zero past K.
__device__ Block lhs_block(const Args &args, unsigned first, unsigned row, unsigned k) {
    Block block;
    if (LHS_TRANSPOSED) {
        block = stored_block<LHS_FOUR>(args.lhs, first, args.lhs_row, k, args.k, held(row, args.m), args.m);
    } else {
        block = transposed(stored_block<LHS_FOUR>(args.lhs, first, args.lhs_row, row, args.m, k, args.k));
    }
#pragma unroll
    for (unsigned i = 0; i < 4; i++) {
        // Chosen and not multiplied, which would keep what isn't finite.
        block.row[i] = WHOLE_K || k + i < args.k ? block.row[i] : four(0.0f);
    }
    return block;
}

// Row i is rhs[k + i, column..], zero past K.
__device__ Block rhs_block(const Args &args, unsigned first, unsigned k, unsigned column) {
    Block block;
    if (RHS_TRANSPOSED) {
        block = transposed(stored_block<RHS_FOUR>(args.rhs, first, args.rhs_row, column, args.n, k, args.k));
    } else {
        block = stored_block<RHS_FOUR>(args.rhs, first, args.rhs_row, k, args.k, held(column, args.n), args.n);
    }
#pragma unroll
    for (unsigned i = 0; i < 4; i++) {
        block.row[i] = WHOLE_K || k + i < args.k ? block.row[i] : four(0.0f);
    }
    return block;
}

// What a block of sums begins with.
__device__ Block begin(const Args &args, unsigned first, unsigned row, unsigned column) {
    Block block{{four(0.0f), four(0.0f), four(0.0f), four(0.0f)}};
    if (ACCUMULATE) {
#pragma unroll
        for (unsigned i = 0; i < 4; i++) {
            const unsigned line = smaller(row + i, args.m - 1) * args.out_row;
            block.row[i] = args.out.load4(first + line + held(column, args.n));
        }
    }
    return block;
}

__device__ Four bias_of(const Args &args, unsigned column) {
    return BIAS ? args.bias.load4(args.bias_first + column) : four(0.0f);
}

// The first `count` of four complete sums, on their way to elements `at` and on of the output.
__device__ void store(const Args &args, unsigned at, Four sums, unsigned count) {
    if (EPILOGUE) {
        if (KEEPS_PRODUCT) {
            args.product.store4(at, sums, count);
        }
        const Four beside = BESIDE ? args.beside.load4(at) : four(0.0f);
        const auto of = [&](float sum, float beside) { return tr_epilogue(args.out.rounded(sum), beside); };
        sums = Four{of(sums.x, beside.x), of(sums.y, beside.y), of(sums.z, beside.z), of(sums.w, beside.w)};
    }
    args.out.store4(at, sums, count);
}

// The same of two.
__device__ void store(const Args &args, unsigned at, Two sums, unsigned count) {
    if (EPILOGUE) {
        if (KEEPS_PRODUCT) {
            args.product.store2(at, sums.x, sums.y, count);
        }
        const Two beside = BESIDE ? args.beside.load2(at, count) : Two{0.0f, 0.0f};
        sums = Two{tr_epilogue(args.out.rounded(sums.x), beside.x), tr_epilogue(args.out.rounded(sums.y), beside.y)};
    }
    args.out.store2(at, sums.x, sums.y, count);
}

// The bias of the first `count` of two columns.
__device__ Two bias_of(const Args &args, unsigned column, unsigned count) {
    const float first = BIAS ? args.bias.load(args.bias_first + column) : 0.0f;
    return Two{first, BIAS && count > 1 ? args.bias.load(args.bias_first + column + 1) : 0.0f};
}

// Stores the part of a block that exists.
__device__ void finish(const Args &args, unsigned first, unsigned row, unsigned column, const Block &block) {
    if (column >= args.n) {
        return;
    }
    const Four bias = bias_of(args, column);
#pragma unroll
    for (unsigned i = 0; i < 4; i++) {
        if (row + i < args.m) {
            store(args, first + (row + i) * args.out_row + column, block.row[i] + bias, args.n - column);
        }
    }
}

constexpr unsigned ACROSS = TILE_N / THREAD_N;
constexpr unsigned DOWN = TILE_M / THREAD_M;
constexpr unsigned BLOCKS_M = TILE_M / 4;
constexpr unsigned BLOCKS_N = TILE_N / 4;
constexpr unsigned BLOCKS_K = TILE_K / 4;
constexpr unsigned OWN_M = THREAD_M / 4;
constexpr unsigned OWN_N = THREAD_N / 4;
// Summed indices between two branches; with more, registers spill: slopes beside a product on Turing, and addresses on Blackwell for desks.
#if __CUDA_ARCH__ >= 1200
constexpr unsigned UNROLLED = 2;
#else
constexpr unsigned UNROLLED = EPILOGUE ? 2 : 4;
#endif

// (K, M) and (K, N), four neighbours along M or N together.
__shared__ Shared<Four, TILE_K * BLOCKS_M> lhs_tile;
__shared__ Shared<Four, TILE_K * BLOCKS_N> rhs_tile;

// Brings the tiles of summed indices k.. into shared memory.
__device__ void stage(const Args &args, const Corner &at, unsigned k) {
    for (unsigned block = threadIdx.x; block < BLOCKS_M * BLOCKS_K; block += WORKGROUP) {
        const unsigned m = LHS_TRANSPOSED ? block % BLOCKS_M : block / BLOCKS_K;
        const unsigned l = 4 * (LHS_TRANSPOSED ? block / BLOCKS_M : block % BLOCKS_K);
        Block values{{four(0.0f), four(0.0f), four(0.0f), four(0.0f)}};
        if (k + l < at.end) {
            values = lhs_block(args, at.lhs, at.row + 4 * m, k + l);
        }
#pragma unroll
        for (unsigned i = 0; i < 4; i++) {
            lhs_tile[(l + i) * BLOCKS_M + m] = values.row[i];
        }
    }
    for (unsigned block = threadIdx.x; block < BLOCKS_N * BLOCKS_K; block += WORKGROUP) {
        const unsigned n = RHS_TRANSPOSED ? block / BLOCKS_K : block % BLOCKS_N;
        const unsigned l = 4 * (RHS_TRANSPOSED ? block % BLOCKS_K : block / BLOCKS_N);
        Block values{{four(0.0f), four(0.0f), four(0.0f), four(0.0f)}};
        if (k + l < at.end) {
            values = rhs_block(args, at.rhs, k + l, at.column + 4 * n);
        }
#pragma unroll
        for (unsigned i = 0; i < 4; i++) {
            rhs_tile[(l + i) * BLOCKS_N + n] = values.row[i];
        }
    }
}

__device__ void multiply(Four rows, Four columns, Block &sums) {
    sums.row[0] += columns * rows.x;
    sums.row[1] += columns * rows.y;
    sums.row[2] += columns * rows.z;
    sums.row[3] += columns * rows.w;
}

__device__ void tiled(const Args &args) {
    const Corner at = corner(args);
    const unsigned across = threadIdx.x % ACROSS;
    const unsigned down = threadIdx.x / ACROSS;
    Block sums[OWN_M][OWN_N];
#pragma unroll
    for (unsigned i = 0; i < OWN_M; i++) {
#pragma unroll
        for (unsigned j = 0; j < OWN_N; j++) {
            sums[i][j] = begin(args, at.out, at.row + 4 * (down + i * DOWN), at.column + 4 * (across + j * ACROSS));
        }
    }
    for (unsigned k = at.k; k < at.end; k += TILE_K) {
        stage(args, at, k);
        __syncthreads();
#pragma unroll UNROLLED
        for (unsigned l = 0; l < TILE_K; l++) {
            Four columns[OWN_N];
#pragma unroll
            for (unsigned j = 0; j < OWN_N; j++) {
                columns[j] = rhs_tile[l * BLOCKS_N + across + j * ACROSS];
            }
#pragma unroll
            for (unsigned i = 0; i < OWN_M; i++) {
                const Four rows = lhs_tile[l * BLOCKS_M + down + i * DOWN];
#pragma unroll
                for (unsigned j = 0; j < OWN_N; j++) {
                    multiply(rows, columns[j], sums[i][j]);
                }
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (unsigned i = 0; i < OWN_M; i++) {
#pragma unroll
        for (unsigned j = 0; j < OWN_N; j++) {
            const unsigned column = at.column + 4 * (across + j * ACROSS);
            finish(args, at.out, at.row + 4 * (down + i * DOWN), column, sums[i][j]);
        }
    }
}

// Slices of K that the threads of a block take of one block of sums.
constexpr unsigned SLICES = WORKGROUP / BLOCKS_N > 0 ? WORKGROUP / BLOCKS_N : 1;

__shared__ Shared<Block, WORKGROUP> parts;

// A tile has four rows. Neighbouring threads read neighbouring elements of rhs, so they go along K where it is stored
// (N, K), and along N where it is stored (K, N).
__device__ void narrow(const Args &args) {
    const Corner at = corner(args);
    const unsigned lane = RHS_TRANSPOSED ? threadIdx.x % SLICES : threadIdx.x / BLOCKS_N;
    const unsigned block = RHS_TRANSPOSED ? threadIdx.x / SLICES : threadIdx.x % BLOCKS_N;
    const unsigned column = at.column + 4 * block;
    Block sum{{four(0.0f), four(0.0f), four(0.0f), four(0.0f)}};
    if (column < args.n) {
        for (unsigned k = at.k + 4 * lane; k < at.end; k += 4 * SLICES) {
            const Block rows = lhs_block(args, at.lhs, at.row, k);
            const Block columns = rhs_block(args, at.rhs, k, column);
#pragma unroll
            for (unsigned i = 0; i < 4; i++) {
                multiply(rows.row[i], columns.row[i], sum);
            }
        }
    }
    parts[block * SLICES + lane] = sum;
    __syncthreads();
    if (lane == 0 && column < args.n) {
        Block total = begin(args, at.out, at.row, column);
        for (unsigned slice = 0; slice < SLICES; slice++) {
            const Block part = parts[block * SLICES + slice];
#pragma unroll
            for (unsigned i = 0; i < 4; i++) {
                total.row[i] += part.row[i];
            }
        }
        finish(args, at.out, at.row, column, total);
    }
}

// Adds slices of K in their order: lhs holds them one after the other, each with all matrices (M, N).
__device__ void add_slices(const Args &args) {
    const unsigned blocks = (args.n + 3) / 4;
    const unsigned block = (args.first_group + blockIdx.x) * WORKGROUP + threadIdx.x;
    const unsigned line = block / blocks;
    const unsigned matrix = line / args.m;
    if (matrix >= args.batch) {
        return;
    }
    const unsigned column = 4 * (block - line * blocks);
    const unsigned row = line - matrix * args.m;
    const unsigned at = args.out_first + matrix * args.out_stride + row * args.out_row + column;
    Four sum = ACCUMULATE ? args.out.load4(at) : four(0.0f);
    for (unsigned slice = 0; slice < args.slice; slice++) {
        sum += args.lhs.load4((slice * args.batch * args.m + line) * args.n + column);
    }
    store(args, at, sum + bias_of(args, column), args.n - column);
}

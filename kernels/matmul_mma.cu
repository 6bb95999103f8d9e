// Matrix products on tensor cores, of 16-bit operands or of f32 that is rounded to TF32; comes after matmul.cu, whose corner
// it takes.
//
// A block makes TILE_M × TILE_N with four warps, a quarter each. Tiles of TILE_K summed indices pass through shared memory
// in STAGES turns: while one is multiplied, the copies of the next ones are on their way. Shared memory is in chunks of
// 16 bytes. A tile keeps the order in which its operand is stored. Where that isn't the order of the product, `ldmatrix`
// turns elements of 16 bits, and those of f32 are read one by one. Chunks are swizzled, so that those that a warp reads at
// once lie in different banks. Bound by arithmetic.
//
// With SUMS_LHS, a block of the first columns also multiplies its rows of lhs by ones: their sums over K.
//
// Stored rows begin at multiples of a chunk's elements, and their extents are such. What lies outside is zero in shared
// memory.

#include "matmul.cu"

using Element = decltype(Args::lhs)::Element;

constexpr unsigned STAGES = 3;
// Elements of a chunk, and chunks that lie in all banks together.
constexpr unsigned CHUNK = sizeof(Chunk) / sizeof(Element);
constexpr unsigned PASS = 8;
constexpr bool WIDE = sizeof(Element) == sizeof(float);
constexpr unsigned WARPS_M = 2;
constexpr unsigned WARPS_N = 2;
// Rows and columns of a warp's part, and what one instruction makes of it.
constexpr unsigned PART_M = TILE_M / WARPS_M;
constexpr unsigned PART_N = TILE_N / WARPS_N;
constexpr unsigned MMA_M = 16;
constexpr unsigned MMA_N = 8;
constexpr unsigned MMA_K = 2 * CHUNK;

// A tile of an operand. ALONG_K: its rows are EXTENT rows or columns of the product, and go along K; otherwise they are
// summed indices.
template <bool ALONG_K, unsigned EXTENT> struct Staged {
    static constexpr unsigned PER_ROW = (ALONG_K ? TILE_K : EXTENT) / CHUNK;
    static constexpr unsigned CHUNKS = TILE_K * EXTENT / CHUNK;

    // Place of a chunk of a row.
    static __device__ unsigned place(unsigned row, unsigned chunk) {
        // As many rows as one pass over all banks holds; and neighbouring chunks of a row that are read with the same ones of
        // the next rows.
        constexpr unsigned ROWS = PER_ROW < PASS ? PASS / PER_ROW : 1;
        constexpr unsigned TOGETHER = WIDE && !ALONG_K ? 2 : 1;
        return row * PER_ROW + (chunk ^ (row / ROWS * TOGETHER % (PER_ROW < PASS ? PER_ROW : PASS)));
    }

    // Begins to copy a tile from `extent` on along the product and `k` on along K.
    template <class Tiles, class Stored>
    static __device__ void copy(Tiles &tiles, unsigned to, const Stored &stored, unsigned first, unsigned stride,
                                unsigned extent, unsigned extent_end, unsigned k, unsigned k_end) {
        for (unsigned i = threadIdx.x; i < CHUNKS; i += WORKGROUP) {
            const unsigned row = i / PER_ROW;
            const unsigned chunk = i % PER_ROW;
            const unsigned outer = (ALONG_K ? extent : k) + row;
            const unsigned inner = (ALONG_K ? k : extent) + CHUNK * chunk;
            const bool exists = outer < (ALONG_K ? extent_end : k_end) && inner < (ALONG_K ? k_end : extent_end);
            tr_copy_async(tiles, to + place(row, chunk), stored, exists ? first + outer * stride + inner : 0, exists);
        }
    }

    // Four matrices of 8 rows and a chunk along K, from `extent` and `k` on: a lane gets a word of each, of row lane / 4. The
    // second lies a chunk further along K where K_FIRST and 8 along the product otherwise, the third the other way, the
    // fourth both.
    template <bool K_FIRST, class Tiles>
    static __device__ void load(unsigned (&fragment)[4], Tiles &tiles, unsigned from, unsigned extent, unsigned k) {
        const unsigned lane = threadIdx.x % WARP;
        if constexpr (WIDE && !ALONG_K) {
#pragma unroll
            for (unsigned matrix = 0; matrix < 4; matrix++) {
                const unsigned along_k = k + CHUNK * (K_FIRST ? matrix % 2 : matrix / 2) + lane % 4;
                const unsigned along = extent + 8 * (K_FIRST ? matrix / 2 : matrix % 2) + lane / 4;
                fragment[matrix] = tr_word(tiles, from + place(along_k, along / CHUNK), along % CHUNK);
            }
        } else {
            const unsigned matrix = lane / 8;
            const unsigned along_k = k + CHUNK * (K_FIRST ? matrix % 2 : matrix / 2);
            const unsigned along = extent + 8 * (K_FIRST ? matrix / 2 : matrix % 2);
            const unsigned row = (ALONG_K ? along : along_k) + lane % 8;
            const unsigned chunk = (ALONG_K ? along_k : along) / CHUNK;
            tr_load_matrices<!ALONG_K>(fragment, tiles, from + place(row, chunk));
        }
        if constexpr (WIDE) {
#pragma unroll
            for (unsigned matrix = 0; matrix < 4; matrix++) {
                fragment[matrix] = tr_round_tf32(fragment[matrix]);
            }
        }
    }
};

using Left = Staged<!LHS_TRANSPOSED, TILE_M>;
using Right = Staged<RHS_TRANSPOSED, TILE_N>;

// A word of ones.
template <class T> constexpr unsigned ones = 0x3f800000u;
template <> constexpr unsigned ones<Bf16> = 0x3f803f80u;
template <> constexpr unsigned ones<F16> = 0x3c003c00u;

__shared__ Shared<Chunk, STAGES * Left::CHUNKS> left;
__shared__ Shared<Chunk, STAGES * Right::CHUNKS> right;

__device__ void mma(const Args &args) {
    const Corner at = corner(args);
    const unsigned warp = threadIdx.x / WARP;
    const unsigned row_of_warp = warp / WARPS_N * PART_M;
    const unsigned column_of_warp = warp % WARPS_N * PART_N;
    // A lane has two neighbouring columns of two rows of each.
    const unsigned own_row = at.row + row_of_warp + threadIdx.x % WARP / 4;
    const unsigned own_column = at.column + column_of_warp + threadIdx.x % 4 * 2;
    float sums[PART_M / MMA_M][PART_N / MMA_N][4];
#pragma unroll
    for (unsigned i = 0; i < PART_M / MMA_M; i++) {
#pragma unroll
        for (unsigned j = 0; j < PART_N / MMA_N; j++) {
#pragma unroll
            for (unsigned r = 0; r < 4; r++) {
                const unsigned row = own_row + i * MMA_M + r / 2 * 8;
                const unsigned column = own_column + j * MMA_N + r % 2;
                const bool added = ACCUMULATE && row < args.m && column < args.n;
                sums[i][j][r] = added ? args.out.load(at.out + row * args.out_row + column) : 0.0f;
            }
        }
    }
    // One of the warps that hold the same rows sums them.
    const bool sums_lhs = SUMS_LHS && at.column + column_of_warp == 0;
    float lhs_sums[PART_M / MMA_M][4];
#pragma unroll
    for (unsigned i = 0; i < PART_M / MMA_M; i++) {
#pragma unroll
        for (unsigned r = 0; r < 4; r++) {
            lhs_sums[i][r] = 0.0f;
        }
    }
    const auto copy = [&](unsigned k, unsigned stage) {
        if (k < at.end) {
            Left::copy(left, stage * Left::CHUNKS, args.lhs, at.lhs, args.lhs_row, at.row, args.m, k, at.end);
            Right::copy(right, stage * Right::CHUNKS, args.rhs, at.rhs, args.rhs_row, at.column, args.n, k, at.end);
        }
        tr_commit_copies();
    };
    for (unsigned stage = 0; stage + 1 < STAGES; stage++) {
        copy(at.k + stage * TILE_K, stage);
    }
    unsigned stage = 0;
    for (unsigned k = at.k; k < at.end; k += TILE_K) {
        // All but the newest have come; and all threads are done with the tile that the next copies replace.
        tr_wait_copies<STAGES - 2>();
        __syncthreads();
        copy(k + (STAGES - 1) * TILE_K, (stage + STAGES - 1) % STAGES);
#pragma unroll
        for (unsigned l = 0; l < TILE_K; l += MMA_K) {
            unsigned rows[PART_M / MMA_M][4];
            unsigned columns[PART_N / (2 * MMA_N)][4];
#pragma unroll
            for (unsigned i = 0; i < PART_M / MMA_M; i++) {
                Left::load<false>(rows[i], left, stage * Left::CHUNKS, row_of_warp + i * MMA_M, l);
            }
#pragma unroll
            for (unsigned j = 0; j < PART_N / (2 * MMA_N); j++) {
                Right::load<true>(columns[j], right, stage * Right::CHUNKS, column_of_warp + j * 2 * MMA_N, l);
            }
#pragma unroll
            for (unsigned i = 0; i < PART_M / MMA_M; i++) {
#pragma unroll
                for (unsigned j = 0; j < PART_N / MMA_N; j++) {
                    const unsigned first = j % 2 * 2;
                    tr_multiply_add<Element>(sums[i][j], rows[i], columns[j / 2][first], columns[j / 2][first + 1]);
                }
            }
            if (sums_lhs) {
#pragma unroll
                for (unsigned i = 0; i < PART_M / MMA_M; i++) {
                    tr_multiply_add<Element>(lhs_sums[i], rows[i], ones<Element>, ones<Element>);
                }
            }
        }
        stage = (stage + 1) % STAGES;
    }
#pragma unroll
    for (unsigned j = 0; j < PART_N / MMA_N; j++) {
        const unsigned column = own_column + j * MMA_N;
        if (column >= args.n) {
            continue;
        }
        const unsigned count = args.n - column;
        const Two bias = bias_of(args, column, count);
#pragma unroll
        for (unsigned i = 0; i < PART_M / MMA_M; i++) {
#pragma unroll
            for (unsigned half = 0; half < 2; half++) {
                const unsigned row = own_row + i * MMA_M + half * 8;
                if (row < args.m) {
                    const unsigned to = at.out + row * args.out_row + column;
                    const Two pair{sums[i][j][2 * half] + bias.x, sums[i][j][2 * half + 1] + bias.y};
                    store(args, to, pair, count);
                }
            }
        }
    }
    if (sums_lhs && threadIdx.x % 4 == 0) {
        const unsigned slice = at.k / args.slice;
#pragma unroll
        for (unsigned i = 0; i < PART_M / MMA_M; i++) {
#pragma unroll
            for (unsigned half = 0; half < 2; half++) {
                const unsigned row = own_row + i * MMA_M + half * 8;
                if (row < args.m) {
                    args.lhs_sums.store(slice * args.m + row, lhs_sums[i][2 * half]);
                }
            }
        }
    }
}

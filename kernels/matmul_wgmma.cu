// Matrix products on Hopper's tensor cores, of 16-bit operands; comes after matmul.cu.
//
// A block makes tile after tile of TILE_M × TILE_N. One thread has the copy engine bring boxes of TILE_K summed indices into
// a ring of STAGES; two groups of four warps multiply half of a tile's rows each, straight from shared memory, and keep the
// sums in registers. The copies run ahead, into the next tile while sums are stored. For each stage there are two barriers:
// it's full once all bytes have come, and empty once all warps have read it. Bound by arithmetic.
//
// Blocks of a CLUSTER make tiles of the same columns at the same time: each brings a part of rhs to all of them. So a stage is empty
// once the warps of all have read it.
//
// Of each tile the first group is some stages ahead of the second. So tensor cores multiply for one group while the other stores.
// Where OUT_BOXED, a warp puts sums that are complete on a desk in shared memory, from where the copy engine brings them to
// memory while the warp goes on.
//
// Where SLICED, a tile's sums over K are made in slices of `slice`, each by a block: its warps leave them in `slices` as registers lie, and
// who comes last of a tile's warps that make the same adds up all of them, in their order.
//
// With SUMS_LHS, blocks of the first columns also multiply their rows of lhs by ones, eight columns of them: their sums over K.
//
// A stage holds both operands in the order in which they're stored, in rows of 128 bytes that the copy engine swizzles: 64
// summed indices of a row or column of the product, or 64 rows or columns of a summed index. What lies outside is zero.

#include "matmul.cu"

using Element = decltype(Args::lhs)::Element;

constexpr unsigned CONSUMERS = 2;
// Rows of the product that a group of warps makes, and summed indices of one instruction.
constexpr unsigned PART_M = TILE_M / CONSUMERS;
constexpr unsigned STEP_K = 16;
// Elements of a swizzled row; the swizzle repeats after eight rows.
constexpr unsigned ROW = 64;
constexpr unsigned ROW_BYTES = ROW * sizeof(Element);
constexpr unsigned REPEAT_BYTES = 8 * ROW_BYTES;
constexpr unsigned LHS_BYTES = TILE_M * ROW_BYTES;
constexpr unsigned STAGE_BYTES = LHS_BYTES + TILE_N * ROW_BYTES;
constexpr unsigned BARRIER_BYTES = 8;
// Barriers of the stages, that of who is ahead, and one to fill 16 bytes.
constexpr unsigned BARRIERS = 2 * STAGES + 2;
// Stages by which the first group is ahead; as many are left that copies can be ahead of it.
constexpr unsigned AHEAD = STAGES / 2;
// A word of ones, and bytes of as many ones as an instruction multiplies by.
__device__ unsigned word_of_ones() { return tr_round_pair<Element>(1.0f, 1.0f); }
constexpr unsigned ONES_BYTES = 8 * STEP_K * sizeof(Element);
// A warp's desk has a box for each row of 64 columns, of the warp's rows.
constexpr unsigned WARP_M = 16;
constexpr unsigned BOX_BYTES = WARP_M * ROW_BYTES;
constexpr unsigned DESK_BOXES = 2;
constexpr unsigned DESK_BYTES = OUT_BOXED ? DESK_BOXES * BOX_BYTES : 0;
constexpr unsigned DESKS = CONSUMERS * WARP_GROUP / WARP;
// Tiles down that neighbouring blocks make of the same columns, so that they find operands in the cache.
constexpr unsigned TILES_DOWN = 16;

static_assert(TILE_K == ROW && PART_M == ROW && WORKGROUP == (CONSUMERS + 1) * WARP_GROUP, "as boxes and warps are");

// Where a tile lies in the product.
struct Tile {
    unsigned row, column, matrix;
    // Summed indices.
    unsigned k, end;
    // First element of the matrix of sums.
    unsigned out;
    // Its number among those of one slice, and that of its slice.
    unsigned number, slice;
};

// Tiles count as those of matmul.cu do, but for the order within a matrix.
__device__ Tile tile_of(const Args &args, unsigned group) {
    const unsigned tiles = args.tiles_m * args.tiles_n;
    const unsigned stacked = group / tiles;
    const unsigned tile = group - stacked * tiles;
    const unsigned first = tile / (TILES_DOWN * args.tiles_n) * TILES_DOWN;
    const unsigned rows = smaller(args.tiles_m - first, TILES_DOWN);
    const unsigned within = tile - first * args.tiles_n;
    const unsigned across = within / rows;
    const unsigned slice = stacked / args.batch;
    const unsigned k = slice * args.slice;
    const unsigned matrix = stacked - slice * args.batch;
    return Tile{
        (first + within - across * rows) * TILE_M,
        across * TILE_N,
        matrix,
        k,
        smaller(k + args.slice, args.k),
        args.out_first + (SLICED ? matrix : stacked) * args.out_stride,
        matrix * tiles + tile,
        slice,
    };
}

// The ring of stages and the stage whose turn it is; then desks, barriers and, where they're needed, ones.
struct Ring {
    unsigned shared, stage, round;

    __device__ unsigned lhs() const { return shared + stage * STAGE_BYTES; }
    __device__ unsigned rhs() const { return lhs() + LHS_BYTES; }
    __device__ unsigned full() const { return full_of(stage); }
    __device__ unsigned empty() const { return full() + STAGES * BARRIER_BYTES; }
    __device__ unsigned desk(unsigned warp) const { return shared + STAGES * STAGE_BYTES + warp * DESK_BYTES; }
    __device__ unsigned full_of(unsigned which) const { return desk(DESKS) + which * BARRIER_BYTES; }
    __device__ unsigned ahead() const { return full_of(2 * STAGES); }
    __device__ unsigned ones() const { return full_of(BARRIERS); }

    __device__ void next() {
        stage++;
        if (stage == STAGES) {
            stage = 0;
            round++;
        }
    }
};

// Begins to copy a tile of an operand to so many blocks, from `extent` on along the product and `k` on along K.
template <bool ALONG_K, unsigned EXTENT, unsigned BLOCKS>
__device__ void bring(unsigned to, const TensorMap &map, unsigned barrier, unsigned extent, unsigned k, unsigned matrix) {
    const auto copy = [&](unsigned to, unsigned x, unsigned y) {
        if constexpr (BLOCKS > 1) {
            tr_copy_box_to_all<BLOCKS>(to, map, barrier, x, y, matrix);
        } else {
            tr_copy_box(to, map, barrier, x, y, matrix);
        }
    };
    if constexpr (ALONG_K) {
        copy(to, k, extent);
    } else {
#pragma unroll
        for (unsigned i = 0; i < EXTENT; i += ROW) {
            copy(to + i * ROW_BYTES, extent + i, k);
        }
    }
}

__device__ void produce(const Args &args, Ring ring) {
    tr_prefetch(args.lhs_tiles);
    tr_prefetch(args.rhs_tiles);
    constexpr unsigned BROUGHT_N = TILE_N / CLUSTER;
    const unsigned brought = blockIdx.x % CLUSTER * BROUGHT_N;
    for (unsigned group = args.first_group + blockIdx.x; group < args.end_group; group += gridDim.x) {
        const Tile at = tile_of(args, group);
        for (unsigned k = at.k; k < at.end; k += TILE_K) {
            // In the first round, all are empty.
            tr_wait_phase(ring.empty(), (ring.round + 1) % 2);
            tr_arrive_for(ring.full(), STAGE_BYTES);
            bring<!LHS_TRANSPOSED, TILE_M, 1>(ring.lhs(), args.lhs_tiles, ring.full(), at.row, k, at.matrix);
            bring<RHS_TRANSPOSED, BROUGHT_N, CLUSTER>(ring.rhs() + brought * ROW_BYTES, args.rhs_tiles, ring.full(),
                                                      at.column + brought, k, at.matrix);
            ring.next();
        }
    }
}

// A part of an operand in shared memory, for the tensor cores: from `extent` on along the product and `k` on along K. Its
// fields count 16 bytes, the first of them from address 0 on. The leading offset is that from ROW indices along the product
// to the next, where those are neighbours, and unused where they aren't; the stride is that from one repeat of the swizzle
// to the next. Bit 62 says that rows of 128 bytes are swizzled.
template <bool ALONG_K> __device__ unsigned long long part(unsigned tile, unsigned extent, unsigned k) {
    constexpr unsigned long long LEADING = ROW * ROW_BYTES / 16;
    constexpr unsigned long long STRIDE = REPEAT_BYTES / 16;
    const unsigned within = extent * ROW_BYTES + k * (ALONG_K ? unsigned(sizeof(Element)) : ROW_BYTES);
    return tile / 16 + within / 16 | LEADING << 16 | STRIDE << 32 | 1ull << 62;
}

// All ones: eight columns of 16 bytes, and as much for the next eight summed indices. Nothing is swizzled.
__device__ unsigned long long part_of_ones(unsigned ones) {
    constexpr unsigned long long APART = ONES_BYTES / 2 / 16;
    return ones / 16 | APART << 16 | APART << 32;
}

// A thread of a group has two neighbouring columns of each eight, of two rows.
constexpr unsigned SUMS = TILE_N / 2;
constexpr unsigned LHS_SUMS = 4;

// Loaded one by one: where pairs take a branch, the compiler (13.0) finds sums written between products, and makes these wait
// for each other.
template <bool ADDED>
__device__ void begin_sums(const Args &args, const Tile &at, unsigned row, unsigned first_column, float (&sums)[SUMS]) {
#pragma unroll
    for (unsigned i = 0; i < SUMS; i++) {
        const unsigned own_row = row + i / 2 % 2 * 8;
        const unsigned column = first_column + i / 4 * 8 + i % 2;
        const bool added = ADDED && own_row < args.m && column < args.n;
        sums[i] = added ? args.out.load(at.out + own_row * args.out_row + column) : 0.0f;
    }
}

// The warp's number among those that multiply.
__device__ unsigned own_warp() { return threadIdx.x / WARP - WARP_GROUP / WARP; }

// Stores a warp's sums by boxes. The desk is used again once the boxes before have been read.
template <class Stored>
__device__ void store_boxes(const TensorMap &map, const Tile &at, unsigned desk, unsigned columns, const float (&sums)[SUMS]) {
    constexpr unsigned SUMS_OF_ROW = ROW / 2;
    const unsigned lane = threadIdx.x % WARP;
    // A lane says where 16 bytes go, of row lane % 16 and of the left or the right half of 16 columns.
    const unsigned row = desk + lane % WARP_M * ROW_BYTES;
#pragma unroll
    for (unsigned first = 0; first < SUMS; first += DESK_BOXES * SUMS_OF_ROW) {
        const unsigned column = at.column + 2 * first;
        if (column >= columns) {
            break;
        }
        if (lane == 0) {
            tr_wait_boxes_read();
        }
        tr_meet_warp();
#pragma unroll
        for (unsigned i = 0; i < DESK_BOXES * SUMS_OF_ROW; i += 8) {
            const unsigned chunk = (i % SUMS_OF_ROW / 4 + lane / WARP_M) ^ lane % 8;
            const float *eight = sums + first + i;
            tr_store_matrices(row + i / SUMS_OF_ROW * BOX_BYTES + 16 * chunk, tr_round_pair<Stored>(eight[0], eight[1]),
                              tr_round_pair<Stored>(eight[2], eight[3]), tr_round_pair<Stored>(eight[4], eight[5]),
                              tr_round_pair<Stored>(eight[6], eight[7]));
        }
        tr_show_stores();
        tr_meet_warp();
        if (lane == 0) {
#pragma unroll
            for (unsigned box = 0; box < DESK_BOXES; box++) {
                tr_store_box(map, desk + box * BOX_BYTES, column + box * ROW, at.row + own_warp() * WARP_M, at.matrix);
            }
        }
    }
}

// Two neighbours of 16 bits that lie in a word.
template <class T> __device__ Two two_of(unsigned word) {
    return Two{tr_value(T{(unsigned short)word}), tr_value(T{(unsigned short)(word >> 16)})};
}

// The compiler (13.0) would cut the word in halves first.
template <> __device__ Two two_of<Bf16>(unsigned word) {
    return Two{__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u)};
}

// Pairs of a tensor from an even element on. Instructions that read them differ in a constant alone.
template <class T> struct Pairs {
    Tensor<unsigned, 1> words;

    template <class Stored>
    __device__ Pairs(const Stored &stored, unsigned first)
        : words{reinterpret_cast<unsigned *>(stored.data + first), (stored.elements - first) / 2} {}

    // That of elements `at` and the next from the first on.
    __device__ Two load(unsigned at) const { return two_of<T>(words.raw(at / 2)); }
};

template <> struct Pairs<float> {
    Tensor<float, 4> elements;

    __device__ Pairs(const Tensor<float, 4> &stored, unsigned first) : elements{stored.data + first, stored.elements - first} {}

    __device__ Two load(unsigned at) const { return elements.load2(at, 2); }
};

// Adds the bias to sums, of which all or none of eight columns exist.
__device__ void add_bias(const Args &args, unsigned first_column, float (&sums)[SUMS]) {
    const Pairs<decltype(Args::bias)::Element> bias(args.bias, args.bias_first + first_column);
#pragma unroll
    for (unsigned i = 0; i < SUMS; i += 4) {
        if (WHOLE_N || first_column + 2 * i < args.n) {
            const Two two = bias.load(2 * i);
            sums[i] += two.x;
            sums[i + 1] += two.y;
            sums[i + 2] += two.x;
            sums[i + 3] += two.y;
        }
    }
}

// Makes of sums, as they are rounded, what the epilogue makes of them. Rows that don't exist read what is beside the last.
template <class Of>
__device__ void apply_epilogue(const Of &args, const Tile &at, unsigned row, unsigned first_column, float (&sums)[SUMS]) {
    using Stored = typename decltype(Of::out)::Element;
    const auto beside = [&](unsigned row) {
        const unsigned first = at.out + smaller(row, args.m - 1) * args.out_row + first_column;
        return Pairs<typename decltype(Of::beside)::Element>(args.beside, first);
    };
    const auto upper = beside(row), lower = beside(row + 8);
#pragma unroll
    for (unsigned i = 0; i < SUMS; i += 2) {
        const unsigned further = i / 4 * 8;
        Two of{0.0f, 0.0f};
        if (BESIDE && (WHOLE_N || first_column + further < args.n)) {
            of = (i / 2 % 2 == 0 ? upper : lower).load(further);
        }
        const Two rounded = two_of<Stored>(tr_round_pair<Stored>(sums[i], sums[i + 1]));
        sums[i] = tr_epilogue(rounded.x, of.x);
        sums[i + 1] = tr_epilogue(rounded.y, of.y);
    }
}

// Stores sums that are complete. What makes boxes of them has names that there are only with OUT_BOXED.
template <class Of>
__device__ void store_sums(const Of &args, const Tile &at, unsigned desk, unsigned row, unsigned first_column,
                           float (&sums)[SUMS]) {
    if constexpr (OUT_BOXED) {
        using Stored = typename decltype(Of::out)::Element;
        if constexpr (BIAS) {
            add_bias(args, first_column, sums);
        }
        if constexpr (KEEPS_PRODUCT) {
            store_boxes<Stored>(args.product_tiles, at, desk, args.n, sums);
        }
        if constexpr (EPILOGUE) {
            apply_epilogue(args, at, row, first_column, sums);
        }
        store_boxes<Stored>(args.out_tiles, at, desk, args.n, sums);
        return;
    }
#pragma unroll
    for (unsigned i = 0; i < SUMS; i += 2) {
        const unsigned column = first_column + i / 4 * 8, own_row = row + i / 2 % 2 * 8;
        if (own_row < args.m && column < args.n) {
            const unsigned count = args.n - column;
            const Two bias = bias_of(args, column, count);
            store(args, at.out + own_row * args.out_row + column, Two{sums[i] + bias.x, sums[i + 1] + bias.y}, count);
        }
    }
}

// Stores the sums of a tile's rows of lhs, of which all columns are alike: those of a slice behind those of the slices before it.
__device__ void store_lhs_sums(const Args &args, unsigned slice, unsigned row, const float (&sums)[LHS_SUMS]) {
    if (threadIdx.x % 4 == 0) {
#pragma unroll
        for (unsigned half = 0; half < 2; half++) {
            if (row + half * 8 < args.m) {
                args.lhs_sums.store(slice * args.m + row + half * 8, sums[2 * half]);
            }
        }
    }
}

// Warps that have left their part of a tile's slice, by tile and warp.
static __device__ Counter arrived[SLICED ? MOST_SLICED * DESKS : 1];

// Leaves a warp's sums of a slice of K. The last adds up all slices in their order, from what is accumulated to on, and stores that.
__device__ void finish_slice(const Args &args, const Tile &at, unsigned desk, unsigned row, unsigned column,
                             const float (&sums)[SUMS], bool sums_lhs, const float (&lhs_sums)[LHS_SUMS]) {
    constexpr unsigned OF_WARP = (SUMS + (SUMS_LHS ? LHS_SUMS : 0)) * WARP;
    const unsigned own = at.number * DESKS + own_warp();
    const unsigned warps = args.batch * args.tiles_m * args.tiles_n * DESKS;
    const unsigned first = own * OF_WARP + threadIdx.x % WARP * 4;
#pragma unroll
    for (unsigned i = 0; i < SUMS; i += 4) {
        const Four quad{sums[i], sums[i + 1], sums[i + 2], sums[i + 3]};
        tr_leave(args.slices, at.slice * warps * OF_WARP + first + i * WARP, quad, 4);
    }
    if (sums_lhs) {
        const Four quad{lhs_sums[0], lhs_sums[1], lhs_sums[2], lhs_sums[3]};
        tr_leave(args.slices, at.slice * warps * OF_WARP + first + SUMS * WARP, quad, 4);
    }
    const unsigned slices = (args.k + args.slice - 1) / args.slice;
    if (!tr_warp_comes_last(arrived[own], slices)) {
        return;
    }
    float total[SUMS];
    begin_sums<ACCUMULATE>(args, at, row, column, total);
    for (unsigned slice = 0; slice < slices; slice++) {
#pragma unroll
        for (unsigned i = 0; i < SUMS; i += 4) {
            const Four quad = tr_left(args.slices, slice * warps * OF_WARP + first + i * WARP);
            total[i] += quad.x;
            total[i + 1] += quad.y;
            total[i + 2] += quad.z;
            total[i + 3] += quad.w;
        }
    }
    store_sums(args, at, desk, row, column, total);
    if (sums_lhs) {
        Four quad = four(0.0f);
        for (unsigned slice = 0; slice < slices; slice++) {
            quad += tr_left(args.slices, slice * warps * OF_WARP + first + SUMS * WARP);
        }
        const float of_all[LHS_SUMS] = {quad.x, quad.y, quad.z, quad.w};
        store_lhs_sums(args, 0, row, of_all);
    }
}

// Says for a warp that it has read a stage, to all blocks that bring parts of it.
__device__ void give_back(unsigned empty) {
    const unsigned lane = threadIdx.x % WARP;
    if (CLUSTER > 1 && lane < CLUSTER) {
        tr_arrive_within(empty, lane);
    } else if (lane == 0) {
        tr_arrive(empty);
    }
}

// Adds the products of a tile's summed indices to the sums of a group's part, and where SUMMED to those of its rows of lhs. Once it
// has come to `ahead`, the other group may begin.
template <bool SUMMED>
__device__ void multiply(const Tile &at, Ring &ring, unsigned consumer, unsigned ahead, float (&sums)[SUMS],
                         float (&lhs_sums)[LHS_SUMS]) {
    const unsigned lane = threadIdx.x % WARP;
    unsigned read = ring.empty();
    if constexpr (SUMMED) {
        tr_show_registers(lhs_sums);
    }
    for (unsigned k = at.k; k < at.end; k += TILE_K) {
        tr_wait_phase(ring.full(), ring.round % 2);
        tr_show_sums();
#pragma unroll
        for (unsigned l = 0; l < TILE_K; l += STEP_K) {
            const unsigned long long rows = part<!LHS_TRANSPOSED>(ring.lhs(), consumer * PART_M, l);
            const unsigned long long columns = part<RHS_TRANSPOSED>(ring.rhs(), 0, l);
            tr_multiply_async<Element, LHS_TRANSPOSED, !RHS_TRANSPOSED>(sums, rows, columns);
            if constexpr (SUMMED) {
                tr_multiply_async<Element, LHS_TRANSPOSED, false>(lhs_sums, rows, part_of_ones(ring.ones()));
            }
        }
        tr_commit_products();
        // While these are made, the stage before them is read no more.
        tr_wait_products<1>();
        if (k > at.k) {
            give_back(read);
        }
        if (lane == 0 && k == ahead) {
            tr_arrive(ring.ahead());
        }
        read = ring.empty();
        ring.next();
    }
    tr_finish_products(sums);
    if constexpr (SUMMED) {
        tr_finish_products(lhs_sums);
    }
    give_back(read);
}

__device__ void consume(const Args &args, Ring ring, unsigned consumer) {
    const unsigned lane = threadIdx.x % WARP;
    const unsigned own_row = own_warp() * WARP_M + lane / 4;
    const unsigned desk = ring.desk(own_warp());
    unsigned turns = 0;
    for (unsigned group = args.first_group + blockIdx.x; group < args.end_group; group += gridDim.x) {
        const Tile at = tile_of(args, group);
        const unsigned row = at.row + own_row;
        const unsigned column = at.column + lane % 4 * 2;
        float sums[SUMS];
        begin_sums<ACCUMULATE && !SLICED>(args, at, row, column, sums);
        // With so many stages, the ring holds the first group back before it says the same of the next tile.
        const bool takes_turns = at.end - at.k > (STAGES - AHEAD) * TILE_K;
        if (takes_turns && consumer == 1) {
            tr_wait_phase(ring.ahead(), turns % 2);
        }
        turns += takes_turns;
        const unsigned ahead = takes_turns && consumer == 0 ? at.k + AHEAD * TILE_K : args.k;
        const bool sums_lhs = SUMS_LHS && at.column == 0;
        float lhs_sums[LHS_SUMS] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (sums_lhs) {
            multiply<SUMS_LHS>(at, ring, consumer, ahead, sums, lhs_sums);
        } else {
            multiply<false>(at, ring, consumer, ahead, sums, lhs_sums);
        }
        if constexpr (SLICED) {
            finish_slice(args, at, desk, row, column, sums, sums_lhs, lhs_sums);
        } else {
            store_sums(args, at, desk, row, column, sums);
            if (sums_lhs) {
                store_lhs_sums(args, at.slice, row, lhs_sums);
            }
        }
    }
    if (OUT_BOXED && lane == 0) {
        tr_wait_boxes_read();
    }
}

__device__ void wgmma(const Args &args) {
    Ring ring{tr_dynamic_shared(), 0, 0};
    if (threadIdx.x == 0) {
        for (unsigned stage = 0; stage < STAGES; stage++) {
            tr_init_barrier(ring.full_of(stage), 1);
            tr_init_barrier(ring.full_of(STAGES + stage), CLUSTER * DESKS);
        }
        tr_init_barrier(ring.ahead(), WARP_GROUP / WARP);
        tr_show_barriers();
    }
    if (SUMS_LHS && threadIdx.x < ONES_BYTES / sizeof(unsigned)) {
        tr_store_word(ring.ones() + threadIdx.x * unsigned(sizeof(unsigned)), word_of_ones());
        tr_show_stores();
    }
    if (CLUSTER > 1) {
        tr_meet_cluster();
    } else {
        __syncthreads();
    }
    // Sums take more registers than all threads could have, and copies need few.
    if (threadIdx.x < WARP_GROUP) {
        tr_fewer_registers<40>();
        if (threadIdx.x == 0) {
            produce(args, ring);
        }
    } else {
        tr_more_registers<232>();
        consume(args, ring, threadIdx.x / WARP_GROUP - 1);
    }
    if (CLUSTER > 1) {
        // Others arrive at barriers of this block until they have read what it brought them.
        tr_meet_cluster();
    }
}

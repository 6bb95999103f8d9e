// Hopper's barriers, copy engine and products by groups of warps, on a processor; comes after tensor_cores.h.
//
// What is asynchronous happens as late as it may: a copy when somebody waits for its barrier, a product when its sums are
// waited for, and until then sums aren't numbers. A missing wait is found whatever the order of threads: a warp knows of
// what others did by what it waited for, and each 16 bytes of shared memory know who copied to them and who read them.

constexpr unsigned WARP_GROUP = 128;

// ---- Who knows of what ----

constexpr unsigned TR_WARPS = TR_MOST_THREADS / TR_WARP;
constexpr unsigned TR_MOST_BARRIERS = 32;

// How far each warp had come, and how many phases of each barrier had ended.
struct TrClock {
    unsigned of[TR_WARPS + TR_MOST_BARRIERS];

    void join(const TrClock &other) {
        for (unsigned i = 0; i < TR_WARPS + TR_MOST_BARRIERS; i++) of[i] = of[i] < other.of[i] ? other.of[i] : of[i];
    }
};

static TrClock tr_clocks[TR_WARPS];

inline TrClock &tr_clock() { return tr_clocks[threadIdx.x / TR_WARP]; }

// ---- Shared memory whose size the launch says ----

constexpr unsigned TR_DYNAMIC_BYTES = 227 << 10;
// No address is 0, and swizzling repeats from here on.
constexpr unsigned TR_FIRST_ADDRESS = 1024;
constexpr unsigned TR_UNFINISHED = ~0u;

// 16 bytes that move together.
struct TrPiece {
    // The barrier of the copy that wrote them and its phase, counted from 1; 0 where none did.
    unsigned barrier, phase, copied_line;
    // How far each warp had come when it was done with reading.
    unsigned read[TR_WARPS], read_line;
};

alignas(16) static unsigned char tr_dynamic[TR_DYNAMIC_BYTES];
static TrPiece tr_pieces[TR_DYNAMIC_BYTES / sizeof(Chunk)];

inline unsigned tr_dynamic_shared() { return TR_FIRST_ADDRESS; }

inline TrPiece &tr_piece(unsigned address, const char *file, unsigned line) {
    const unsigned at = address - TR_FIRST_ADDRESS;
    if (at >= tr.shared_bytes) tr_fail(file, line, "uses byte %u of the shared memory, which has %u", at, tr.shared_bytes);
    return tr_pieces[at / sizeof(Chunk)];
}

// Where rows of so many pieces are swizzled: bits of an address from 4 on change with those from 7 on.
inline unsigned tr_swizzled(unsigned address, unsigned pieces) { return address ^ (address >> 7 & (pieces - 1)) << 4; }

// ---- Barriers ----

struct TrBarrier {
    unsigned address, arrivals, by;
    unsigned long long epoch;
    bool shown;
    // Of the phase that hasn't ended.
    unsigned phase, missing;
    unsigned long long announced, coming;
    TrClock arrived, ended;
};

// A tensor as the copy engine knows it, with the fields that the emulated driver writes.
struct alignas(128) TensorMap {
    const unsigned char *first;
    // Innermost first; bytes from one index to the next of all but the innermost.
    unsigned long long extents[3], strides[2];
    unsigned box[3], element_bytes, pieces;
};

// A copy on its way.
struct TrBox {
    const TensorMap *map;
    unsigned to, barrier, from[3];
};

constexpr unsigned TR_MOST_BOXES = 256;
static TrBarrier tr_barriers[TR_MOST_BARRIERS];
static TrBox tr_boxes[TR_MOST_BOXES];
static unsigned tr_barrier_count, tr_box_count;

inline void tr_init_barrier(unsigned address, unsigned arrivals, unsigned line = __builtin_LINE(),
                            const char *file = __builtin_FILE()) {
    tr_piece(address, file, line);
    if (address % 8 != 0) tr_fail(file, line, "sets up a barrier at address %u, which is no multiple of 8", address);
    if (tr_barrier_count == TR_MOST_BARRIERS) tr_fail(file, line, "sets up more than %u barriers", TR_MOST_BARRIERS);
    TrBarrier &barrier = tr_barriers[tr_barrier_count++];
    barrier = TrBarrier{};
    barrier.address = address;
    barrier.arrivals = barrier.missing = arrivals;
    barrier.by = threadIdx.x;
    barrier.epoch = tr.epoch;
}

inline void tr_show_barriers() {
    for (unsigned i = 0; i < tr_barrier_count; i++) tr_barriers[i].shown |= tr_barriers[i].by == threadIdx.x;
}

inline TrBarrier &tr_barrier(unsigned address, const char *file, unsigned line) {
    for (unsigned i = 0; i < tr_barrier_count; i++) {
        TrBarrier &barrier = tr_barriers[i];
        if (barrier.address != address) continue;
        if (barrier.epoch == tr.epoch && barrier.by != threadIdx.x) {
            tr_fail(file, line, "uses a barrier that thread %u set up, without a barrier of the block between", barrier.by);
        }
        return barrier;
    }
    tr_fail(file, line, "uses a barrier at address %u, where none was set up", address);
}

// Bytes of a box, inside of the tensor or not.
inline unsigned tr_box_bytes(const TensorMap &map) { return map.box[0] * map.box[1] * map.box[2] * map.element_bytes; }

// Makes a copy.
inline void tr_land(const TrBox &box) {
    const TensorMap &map = *box.map;
    unsigned to = box.to;
    for (unsigned z = box.from[2]; z < box.from[2] + map.box[2]; z++) {
        for (unsigned y = box.from[1]; y < box.from[1] + map.box[1]; y++) {
            for (unsigned x = box.from[0]; x < box.from[0] + map.box[0]; x++, to += map.element_bytes) {
                unsigned char *place = tr_dynamic + (tr_swizzled(to, map.pieces) - TR_FIRST_ADDRESS);
                const bool exists = x < map.extents[0] && y < map.extents[1] && z < map.extents[2];
                const unsigned char *from = map.first + z * map.strides[1] + y * map.strides[0] + x * map.element_bytes;
                exists ? memcpy(place, from, map.element_bytes) : memset(place, 0, map.element_bytes);
            }
        }
    }
}

// Ends a barrier's phase, with its copies, where nothing is missing.
inline void tr_end_phase(unsigned index) {
    TrBarrier &barrier = tr_barriers[index];
    if (barrier.missing > 0 || barrier.coming != barrier.announced) return;
    unsigned left = 0;
    for (unsigned i = 0; i < tr_box_count; i++) {
        if (tr_boxes[i].barrier == index) {
            tr_land(tr_boxes[i]);
        } else {
            tr_boxes[left++] = tr_boxes[i];
        }
    }
    tr_box_count = left;
    barrier.ended.join(barrier.arrived);
    barrier.ended.of[TR_WARPS + index] = ++barrier.phase;
    barrier.missing = barrier.arrivals;
    barrier.announced = barrier.coming = 0;
}

inline void tr_hold_bytes(const TrBarrier &barrier, const char *file, unsigned line) {
    if (barrier.missing == 0 && barrier.coming > barrier.announced) {
        tr_fail(file, line, "lets %llu bytes come to a barrier that waits for %llu", barrier.coming, barrier.announced);
    }
}

inline void tr_arrive_for(unsigned address, unsigned bytes, unsigned line = __builtin_LINE(),
                          const char *file = __builtin_FILE()) {
    TrBarrier &barrier = tr_barrier(address, file, line);
    if (barrier.missing == 0) tr_fail(file, line, "arrives at a barrier for whose phase all have arrived");
    barrier.missing--;
    barrier.announced += bytes;
    barrier.arrived.join(tr_clock());
    tr_clock().of[threadIdx.x / TR_WARP]++;
    tr_hold_bytes(barrier, file, line);
    // Bytes come when they're waited for.
    if (barrier.announced == 0) tr_end_phase(&barrier - tr_barriers);
}

inline void tr_arrive(unsigned address, unsigned line = __builtin_LINE(), const char *file = __builtin_FILE()) {
    tr_arrive_for(address, 0, line, file);
}

struct TrPhase {
    unsigned index, parity;
};

inline void tr_wait_phase(unsigned address, unsigned parity, unsigned line = __builtin_LINE(),
                          const char *file = __builtin_FILE()) {
    const TrBarrier &barrier = tr_barrier(address, file, line);
    const TrPhase phase{unsigned(&barrier - tr_barriers), parity};
    const auto ended = [](const void *of) {
        const TrPhase &phase = *static_cast<const TrPhase *>(of);
        if (tr_barriers[phase.index].phase % 2 == phase.parity) tr_end_phase(phase.index);
        return tr_barriers[phase.index].phase % 2 != phase.parity;
    };
    if (!ended(&phase)) tr_wait_until(ended, &phase, "a phase of a barrier that never ends", line, file);
    tr_clock().join(barrier.ended);
}

// ---- Copies of boxes ----

inline void tr_prefetch(const TensorMap &) {}

inline void tr_copy_box(unsigned to, const TensorMap &map, unsigned address, unsigned x, unsigned y, unsigned z,
                        unsigned line = __builtin_LINE(), const char *file = __builtin_FILE()) {
    TrBarrier &barrier = tr_barrier(address, file, line);
    if (!barrier.shown) tr_fail(file, line, "names a barrier to the copy engine that wasn't shown to it");
    if (to % 128 != 0) tr_fail(file, line, "copies a box to address %u, which is no multiple of 128", to);
    if (tr_box_count == TR_MOST_BOXES) tr_fail(file, line, "begins more than %u copies", TR_MOST_BOXES);
    const unsigned bytes = tr_box_bytes(map), index = &barrier - tr_barriers;
    for (unsigned at = to; at < to + bytes; at += sizeof(Chunk)) {
        TrPiece &piece = tr_piece(at, file, line);
        if (piece.phase > tr_clock().of[TR_WARPS + piece.barrier]) {
            tr_fail(file, line, "copies to where a copy of line %u may still be on its way", piece.copied_line);
        }
        for (unsigned warp = 0; warp < TR_WARPS; warp++) {
            if (piece.read[warp] > tr_clock().of[warp]) {
                tr_fail(file, line, "copies to what warp %u may still read at line %u", warp, piece.read_line);
            }
        }
        piece = TrPiece{index, barrier.phase + 1, line};
    }
    barrier.coming += bytes;
    tr_hold_bytes(barrier, file, line);
    tr_boxes[tr_box_count++] = TrBox{&map, to, index, {x, y, z}};
}

// ---- Products by groups of warps ----

template <unsigned N> void tr_fewer_registers() { static_assert(N % 8 == 0 && N >= 24 && N <= 256); }
template <unsigned N> void tr_more_registers() { static_assert(N % 8 == 0 && N >= 24 && N <= 256); }

constexpr unsigned TR_MMA_M = 64;
constexpr unsigned TR_MMA_K = 16;
constexpr unsigned TR_MOST_N = 256;
// Elements of 16 bits in a piece.
constexpr unsigned TR_PIECE = 8;
constexpr unsigned TR_MOST_PRODUCTS = 16;

// A product on its way, of a group of warps.
struct TrProduct {
    unsigned columns, line;
    // Where its operands' pieces lie, and which of its warps are done with them.
    unsigned a[TR_MMA_M * TR_MMA_K / TR_PIECE], b[TR_MOST_N * TR_MMA_K / TR_PIECE];
    bool done[WARP_GROUP / TR_WARP];
    // What they held, once somebody has waited for it.
    void (*read)(TrProduct &);
    bool was_read;
    float rows[TR_MMA_M][TR_MMA_K], by_column[TR_MOST_N][TR_MMA_K];
};

struct TrGroup {
    // Products so far, and threads that have come for the next one, with what the first of them brought.
    unsigned begun, came, line;
    const char *file;
    unsigned long long a, b;
    TrProduct products[TR_MOST_PRODUCTS];
};

// A thread's sums, while they aren't its own.
struct TrSums {
    float *own;
    unsigned count;
    float value[TR_MOST_N / 2];
    unsigned begun, finished, sets;
    // Products before the end of each of the newest sets.
    unsigned ends[TR_MOST_PRODUCTS];
    bool shown;
};

static TrGroup tr_groups[TR_MOST_THREADS / WARP_GROUP];
static TrSums tr_sums[TR_MOST_THREADS];

// Address of the piece with element (along, k) of an operand, whose layout is the canonical one of the PTX manual.
inline unsigned tr_operand_piece(unsigned long long descriptor, bool turned, unsigned along, unsigned k) {
    const auto field = [&](unsigned bit) { return unsigned(descriptor >> bit & 0x3fff) << 4; };
    const unsigned start = field(0), leading = field(16), stride = field(32), mode = unsigned(descriptor >> 62);
    // Pieces of a row that is swizzled as a whole: 8, 4 or 2.
    const unsigned pieces = mode == 0 ? 1 : 16 >> mode;
    const unsigned row_bytes = pieces * sizeof(Chunk), chunk = along / TR_PIECE;
    unsigned offset;
    if (!turned) {
        offset = along % 8 * row_bytes + along / 8 * stride + k / TR_PIECE * (mode == 0 ? leading : sizeof(Chunk));
    } else if (mode == 0) {
        offset = chunk * stride + k % 8 * row_bytes + k / 8 * leading;
    } else {
        offset = chunk % pieces * sizeof(Chunk) + chunk / pieces * leading + k % 8 * row_bytes + k / 8 * stride;
    }
    return tr_swizzled(start + offset, pieces);
}

// Calls for each piece of an operand, with its number and the place of its first element.
template <class Each> void tr_each_piece(bool turned, unsigned extent, const Each &each) {
    unsigned number = 0;
    for (unsigned along = 0; along < extent; along += turned ? TR_PIECE : 1) {
        for (unsigned k = 0; k < TR_MMA_K; k += turned ? 1 : TR_PIECE) each(number++, along, k);
    }
}

// All pieces of a product.
template <class Each> void tr_each_operand(const TrProduct &product, const Each &each) {
    for (const unsigned address : product.a) each(address);
    for (unsigned i = 0; i < product.columns * TR_MMA_K / TR_PIECE; i++) each(product.b[i]);
}

template <class T, bool TURNED>
void tr_read_operand(const unsigned *pieces, unsigned extent, float (*to)[TR_MMA_K]) {
    tr_each_piece(TURNED, extent, [&](unsigned number, unsigned along, unsigned k) {
        T element[TR_PIECE];
        memcpy(element, tr_dynamic + (pieces[number] - TR_FIRST_ADDRESS), sizeof element);
        for (unsigned i = 0; i < TR_PIECE; i++) to[along + (TURNED ? i : 0)][k + (TURNED ? 0 : i)] = tr_value(element[i]);
    });
}

// Begins a product for its group, of which all threads have come.
template <class T, bool A_TURNED, bool B_TURNED>
void tr_begin_product(TrGroup &group, unsigned columns, const char *file, unsigned line) {
    const unsigned first_warp = threadIdx.x / WARP_GROUP * (WARP_GROUP / TR_WARP);
    for (unsigned i = 0; i < WARP_GROUP; i++) {
        const TrSums &sums = tr_sums[first_warp * TR_WARP + i];
        if (sums.begun - sums.finished < TR_MOST_PRODUCTS) continue;
        tr_fail(file, line, "begins more than %u products before one is finished", TR_MOST_PRODUCTS);
    }
    TrProduct &product = group.products[group.begun % TR_MOST_PRODUCTS];
    product.columns = columns;
    product.line = line;
    product.was_read = false;
    memset(product.done, 0, sizeof product.done);
    product.read = [](TrProduct &product) {
        tr_read_operand<T, A_TURNED>(product.a, TR_MMA_M, product.rows);
        tr_read_operand<T, B_TURNED>(product.b, product.columns, product.by_column);
    };
    tr_each_piece(A_TURNED, TR_MMA_M, [&](unsigned number, unsigned along, unsigned k) {
        product.a[number] = tr_operand_piece(group.a, A_TURNED, along, k);
    });
    tr_each_piece(B_TURNED, columns, [&](unsigned number, unsigned along, unsigned k) {
        product.b[number] = tr_operand_piece(group.b, B_TURNED, along, k);
    });
    tr_each_operand(product, [&](unsigned address) {
        TrPiece &piece = tr_piece(address, file, line);
        if (piece.phase == 0) tr_fail(file, line, "multiplies what nobody has copied to shared memory");
        for (unsigned warp = first_warp; warp < first_warp + WARP_GROUP / TR_WARP; warp++) {
            if (piece.phase > tr_clocks[warp].of[TR_WARPS + piece.barrier]) {
                tr_fail(file, line, "multiplies what the copy of line %u brings, for which warp %u hasn't waited",
                        piece.copied_line, warp);
            }
            piece.read[warp] = TR_UNFINISHED;
        }
        piece.read_line = line;
    });
    group.begun++;
}

inline void tr_show_sums() { tr_sums[threadIdx.x].shown = true; }

struct TrTurn {
    const TrGroup *group;
    unsigned number;
};

template <class T, bool A_TURNED, bool B_TURNED, unsigned N>
void tr_multiply_async(float (&sums)[N], unsigned long long a, unsigned long long b, unsigned line = __builtin_LINE(),
                       const char *file = __builtin_FILE()) {
    TrSums &own = tr_sums[threadIdx.x];
    const bool unfinished = own.begun != own.finished;
    if (unfinished && own.own != sums) tr_fail(file, line, "begins a product with other sums than the unfinished ones");
    const bool as_left = own.own == sums && (unfinished || memcmp(sums, own.value, sizeof sums) == 0);
    if (!own.shown && !as_left) tr_fail(file, line, "multiplies into sums that it has written and not shown");
    // A base offset is for what isn't swizzled from a multiple of the repeat on.
    constexpr unsigned long long FIELDS = 0x3fffull | 0x3fffull << 16 | 0x3fffull << 32 | 3ull << 62;
    if (((a | b) & ~FIELDS) != 0) tr_fail(file, line, "has bits between a descriptor's fields");
    TrGroup &group = tr_groups[threadIdx.x / WARP_GROUP];
    if (group.came == 0) {
        group.line = line;
        group.file = file;
        group.a = a;
        group.b = b;
    } else if (group.line != line || group.file != file || group.a != a || group.b != b) {
        tr_fail(file, line, "multiplies something else than its group, which is at line %u", group.line);
    }
    const TrTurn turn{&group, group.begun};
    if (++group.came == WARP_GROUP) {
        tr_begin_product<T, A_TURNED, B_TURNED>(group, 2 * N, file, line);
        group.came = 0;
    } else {
        const auto begun = [](const void *of) {
            const TrTurn &turn = *static_cast<const TrTurn *>(of);
            return turn.group->begun != turn.number;
        };
        tr_wait_until(begun, &turn, "its group of warps, of which some don't come", line, file);
    }
    if (!unfinished) memcpy(own.value, sums, sizeof sums);
    own.own = sums;
    own.count = N;
    own.begun++;
    own.shown = false;
    for (float &sum : sums) sum = __uint_as_float(0x7fc00000u);
}

inline void tr_commit_products() {
    TrSums &own = tr_sums[threadIdx.x];
    own.ends[own.sets++ % TR_MOST_PRODUCTS] = own.begun;
}

// Adds a product to the thread's sums, and lets its warp be done with reading.
inline void tr_finish_product(TrSums &own, TrGroup &group) {
    const unsigned thread = threadIdx.x % WARP_GROUP, lane = thread % TR_WARP, warp = threadIdx.x / TR_WARP;
    TrProduct &product = group.products[own.finished++ % TR_MOST_PRODUCTS];
    if (!product.was_read) product.read(product);
    product.was_read = true;
    for (unsigned i = 0; i < product.columns / 2; i++) {
        const float *row = product.rows[thread / TR_WARP * 16 + lane / 4 + i / 2 % 2 * 8];
        const float *column = product.by_column[i / 4 * 8 + lane % 4 * 2 + i % 2];
        float sum = 0.0f;
        for (unsigned k = 0; k < TR_MMA_K; k++) sum += row[k] * column[k];
        own.value[i] += sum;
    }
    if (product.done[thread / TR_WARP]) return;
    product.done[thread / TR_WARP] = true;
    const auto mark = [&](const TrProduct &product, unsigned read) {
        tr_each_operand(product, [&](unsigned address) {
            tr_pieces[(address - TR_FIRST_ADDRESS) / sizeof(Chunk)].read[warp] = read;
        });
    };
    mark(product, tr_clock().of[warp]);
    // Later ones may read the same.
    for (unsigned i = own.finished; i < own.begun; i++) mark(group.products[i % TR_MOST_PRODUCTS], TR_UNFINISHED);
}

template <unsigned NEWEST> void tr_wait_products() {
    TrSums &own = tr_sums[threadIdx.x];
    if (own.sets <= NEWEST) return;
    const unsigned end = own.ends[(own.sets - NEWEST - 1) % TR_MOST_PRODUCTS];
    const bool some = own.finished < end;
    while (own.finished < end) tr_finish_product(own, tr_groups[threadIdx.x / WARP_GROUP]);
    if (some && own.finished == own.begun) memcpy(own.own, own.value, own.count * sizeof(float));
}

template <unsigned N> void tr_finish_products(float (&)[N]) { tr_wait_products<0>(); }

// ---- Blocks ----

static void tr_begin_async() {
    if (tr.shared_bytes == 0) return;
    memset(tr_clocks, 0, sizeof tr_clocks);
    for (unsigned warp = 0; warp < TR_WARPS; warp++) tr_clocks[warp].of[warp] = 1;
    memset(tr_pieces, 0, sizeof tr_pieces);
    // What is left there by others isn't numbers.
    memset(tr_dynamic, 0xff, sizeof tr_dynamic);
    tr_barrier_count = tr_box_count = 0;
    for (TrGroup &group : tr_groups) group.begun = group.came = 0;
    for (unsigned i = 0; i < tr.threads; i++) tr_sums[i] = TrSums{};
}

static void tr_meet_async() {
    if (tr.shared_bytes == 0) return;
    TrClock all{};
    for (const TrClock &clock : tr_clocks) all.join(clock);
    for (unsigned warp = 0; warp < TR_WARPS; warp++) {
        tr_clocks[warp] = all;
        tr_clocks[warp].of[warp]++;
    }
}

// Hopper's barriers and copy engine, on a processor; comes after tensor_cores.h.
//
// What is asynchronous happens as late as it may: a copy when somebody waits for its barrier. A missing wait is found whatever
// the order of threads: a warp knows of what others did by what it waited for, and each 16 bytes of shared memory know who
// copied to them and who read them.

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

inline TrClock &tr_clock() { return tr_clocks[tr_self / TR_WARP]; }

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
    // How far each warp had come when it stored words there, 0 where it didn't; and of each word the thread that did, counted
    // from 1, with the times that it had shown its stores by then.
    unsigned stored[TR_WARPS], stored_line, storer[4], shows[4];
};

// Of each block of a cluster, which count their bytes from the same address on.
constexpr unsigned TR_MOST_TOGETHER = 2;
alignas(16) static unsigned char tr_dynamic[TR_MOST_TOGETHER][TR_DYNAMIC_BYTES];
static TrPiece tr_pieces[TR_MOST_TOGETHER][TR_DYNAMIC_BYTES / sizeof(Chunk)];

inline unsigned tr_dynamic_shared() { return TR_FIRST_ADDRESS; }

inline unsigned char *tr_at(unsigned address) { return tr_dynamic[tr_rank] + (address - TR_FIRST_ADDRESS); }

inline TrPiece &tr_piece_at(unsigned address) { return tr_pieces[tr_rank][(address - TR_FIRST_ADDRESS) / sizeof(Chunk)]; }

inline TrPiece &tr_piece(unsigned address, const char *file, unsigned line) {
    const unsigned at = address - TR_FIRST_ADDRESS;
    if (at >= tr.shared_bytes) tr_fail(file, line, "uses byte %u of the shared memory, which has %u", at, tr.shared_bytes);
    return tr_piece_at(address);
}

// While it lives, a thread uses the shared memory of another block of its cluster.
struct TrWithin {
    unsigned own = tr_rank;

    TrWithin(unsigned rank, const char *file, unsigned line) {
        bool ended = true;
        for (unsigned i = 0; i < tr.block_threads; i++) ended &= tr.thread[rank * tr.block_threads + i].state == TrState::Done;
        if (ended) tr_fail(file, line, "uses the shared memory of block %u, which has ended", tr.first_block + rank);
        tr_rank = rank;
    }

    ~TrWithin() { tr_rank = own; }
};

// Where rows of so many pieces are swizzled: bits of an address from 4 on change with those from 7 on.
inline unsigned tr_swizzled(unsigned address, unsigned pieces) { return address ^ (address >> 7 & (pieces - 1)) << 4; }

// ---- Barriers ----

struct TrBarrier {
    unsigned block, address, arrivals, by;
    unsigned long long epoch, cluster_epoch;
    bool shown;
    // Of the phase that hasn't ended.
    unsigned phase, missing;
    unsigned long long announced, coming;
    TrClock arrived, ended;
};

// A tensor as the copy engine knows it, with the fields that the emulated driver writes.
struct alignas(128) TensorMap {
    unsigned char *first;
    // Innermost first; bytes from one index to the next of all but the innermost.
    unsigned long long extents[3], strides[2];
    unsigned box[3], element_bytes, pieces;
};

// A copy on its way.
struct TrBox {
    const TensorMap *map;
    unsigned block, to, barrier, from[3];
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
    barrier.block = tr_rank;
    barrier.address = address;
    barrier.arrivals = barrier.missing = arrivals;
    barrier.by = tr_self;
    barrier.epoch = tr.epoch;
    barrier.cluster_epoch = tr.cluster_epoch;
}

inline void tr_show_barriers() {
    for (unsigned i = 0; i < tr_barrier_count; i++) tr_barriers[i].shown |= tr_barriers[i].by == tr_self;
}

inline TrBarrier &tr_barrier(unsigned address, const char *file, unsigned line) {
    for (unsigned i = 0; i < tr_barrier_count; i++) {
        TrBarrier &barrier = tr_barriers[i];
        if (barrier.block != tr_rank || barrier.address != address) continue;
        if (barrier.block != tr_self / tr.block_threads && barrier.cluster_epoch == tr.cluster_epoch) {
            tr_fail(file, line, "uses a barrier of block %u, without a barrier of the cluster since it was set up",
                    tr.first_block + barrier.block);
        }
        if (barrier.epoch == tr.epoch && barrier.by != tr_self) {
            tr_fail(file, line, "uses a barrier that thread %u set up, without a barrier of the block between", tr_thread_of(barrier.by));
        }
        return barrier;
    }
    tr_fail(file, line, "uses a barrier at address %u, where none was set up", address);
}

// Bytes of a box, inside of the tensor or not.
inline unsigned tr_box_bytes(const TensorMap &map) { return map.box[0] * map.box[1] * map.box[2] * map.element_bytes; }

// Calls for each element of a box that begins at these indices: with its place in a block's shared memory, that in the tensor, and
// whether it exists there.
template <class Each>
void tr_each_element(const TensorMap &map, const unsigned (&first)[3], unsigned block, unsigned shared, const Each &each) {
    for (unsigned z = first[2]; z < first[2] + map.box[2]; z++) {
        for (unsigned y = first[1]; y < first[1] + map.box[1]; y++) {
            for (unsigned x = first[0]; x < first[0] + map.box[0]; x++, shared += map.element_bytes) {
                unsigned char *place = tr_dynamic[block] + (tr_swizzled(shared, map.pieces) - TR_FIRST_ADDRESS);
                const bool exists = x < map.extents[0] && y < map.extents[1] && z < map.extents[2];
                each(place, map.first + z * map.strides[1] + y * map.strides[0] + x * map.element_bytes, exists);
            }
        }
    }
}

// Makes a copy.
inline void tr_land(const TrBox &box) {
    const unsigned bytes = box.map->element_bytes;
    tr_each_element(*box.map, box.from, box.block, box.to, [&](unsigned char *place, const unsigned char *from, bool exists) {
        exists ? memcpy(place, from, bytes) : memset(place, 0, bytes);
    });
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
    tr_clock().of[tr_self / TR_WARP]++;
    tr_hold_bytes(barrier, file, line);
    // Bytes come when they're waited for.
    if (barrier.announced == 0) tr_end_phase(&barrier - tr_barriers);
}

inline void tr_arrive(unsigned address, unsigned line = __builtin_LINE(), const char *file = __builtin_FILE()) {
    tr_arrive_for(address, 0, line, file);
}

// Arrives at a barrier of a block of the cluster.
inline void tr_arrive_within(unsigned address, unsigned rank, unsigned line = __builtin_LINE(),
                             const char *file = __builtin_FILE()) {
    const TrWithin within(rank, file, line);
    tr_arrive(address, line, file);
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

// ---- Words ----

// How often each thread has shown its stores to the copy engine and to products.
static unsigned tr_shows[TR_MOST_THREADS];

// Holds that the warp knows of all that was stored in a piece.
inline void tr_hold_stores(const TrPiece &piece, const char *verb, const char *file, unsigned line) {
    for (unsigned warp = 0; warp < TR_WARPS; warp++) {
        if (piece.stored[warp] <= tr_clock().of[warp]) continue;
        tr_fail(file, line, "%s what warp %u stores at line %u, for which it hasn't waited", verb, warp, piece.stored_line);
    }
}

inline void tr_store_word(unsigned address, unsigned word, unsigned line = __builtin_LINE(),
                          const char *file = __builtin_FILE()) {
    TrPiece &piece = tr_piece(address, file, line);
    if (address % sizeof word != 0) tr_fail(file, line, "stores a word at address %u", address);
    if (piece.phase > tr_clock().of[TR_WARPS + piece.barrier]) {
        tr_fail(file, line, "stores to where a copy of line %u may still be on its way", piece.copied_line);
    }
    for (unsigned warp = 0; warp < TR_WARPS; warp++) {
        if (piece.read[warp] <= tr_clock().of[warp]) continue;
        tr_fail(file, line, "stores to what warp %u may still read at line %u", warp, piece.read_line);
    }
    tr_hold_stores(piece, "stores to", file, line);
    const unsigned warp = tr_self / TR_WARP, which = address / sizeof word % 4;
    piece.stored[warp] = tr_clock().of[warp];
    piece.stored_line = line;
    piece.storer[which] = tr_self + 1;
    piece.shows[which] = tr_shows[tr_self];
    memcpy(tr_at(address), &word, sizeof word);
}

inline void tr_load_two(unsigned address, float &first, float &second, unsigned line = __builtin_LINE(),
                        const char *file = __builtin_FILE()) {
    TrPiece &piece = tr_piece(address, file, line);
    if (address % (2 * sizeof first) != 0) tr_fail(file, line, "loads two words at address %u", address);
    const unsigned which = address / sizeof first % 4;
    if (piece.storer[which] == 0 || piece.storer[which + 1] == 0) tr_fail(file, line, "loads what nobody has stored");
    tr_hold_stores(piece, "loads", file, line);
    const unsigned warp = tr_self / TR_WARP;
    if (piece.read[warp] < tr_clock().of[warp]) piece.read[warp] = tr_clock().of[warp];
    piece.read_line = line;
    memcpy(&first, tr_at(address), sizeof first);
    memcpy(&second, tr_at(address) + sizeof first, sizeof second);
}

inline void tr_show_stores() { tr_shows[tr_self]++; }

inline void tr_meet_warp(unsigned line = __builtin_LINE(), const char *file = __builtin_FILE()) {
    TrExchange<unsigned>(0, line, file);
}

// ---- Counts that blocks share ----

// What a thread waited for last.
struct TrCount {
    const void *data;
    unsigned index, value;
};

static TrCount tr_counts[TR_MOST_THREADS];

template <class Counts> unsigned tr_take_ticket(const Counts &counts, unsigned index) {
    const unsigned ticket = counts.raw(index);
    counts.set(index, ticket + 1);
    return ticket;
}

// Blocks run one after the other here: a count of blocks that come later never comes.
template <class Counts>
void tr_wait_count(const Counts &counts, unsigned index, unsigned value, unsigned line = __builtin_LINE(),
                   const char *file = __builtin_FILE()) {
    counts.raw(index, line, file);
    const TrCount wanted{counts.data, index, value};
    const auto came = [](const void *of) {
        const TrCount &wanted = *static_cast<const TrCount *>(of);
        return static_cast<const unsigned *>(wanted.data)[wanted.index] == wanted.value;
    };
    if (!came(&wanted)) tr_wait_until(came, &wanted, "a count that no block before it passes on", line, file);
    tr_counts[tr_self] = wanted;
}

template <class Counts>
void tr_pass_count(const Counts &counts, unsigned index, unsigned value, unsigned line = __builtin_LINE(),
                   const char *file = __builtin_FILE()) {
    tr_meet_warp(line, file);
    const TrCount &waited = tr_counts[tr_self];
    const bool after = waited.data == counts.data && waited.index == index && waited.value == value - 1;
    if (value > 1 && !after) tr_fail(file, line, "passes on a count that it hasn't waited for");
    if (tr_self % TR_WARP == 0) counts.set(index, value, line, file);
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
        tr_hold_stores(piece, "copies to", file, line);
        piece = TrPiece{index, barrier.phase + 1, line};
    }
    barrier.coming += bytes;
    tr_hold_bytes(barrier, file, line);
    tr_boxes[tr_box_count++] = TrBox{&map, tr_rank, to, index, {x, y, z}};
}

// Begins to copy a box to the same place of all BLOCKS of the cluster, each of whose barriers counts its bytes.
template <unsigned BLOCKS>
void tr_copy_box_to_all(unsigned to, const TensorMap &map, unsigned address, unsigned x, unsigned y, unsigned z,
                        unsigned line = __builtin_LINE(), const char *file = __builtin_FILE()) {
    for (unsigned rank = 0; rank < BLOCKS; rank++) {
        const TrWithin within(rank, file, line);
        tr_copy_box(to, map, address, x, y, z, line, file);
    }
}

// ---- Boxes that are stored ----

// A box on its way to a tensor: it's read when its thread waits for that.
struct TrStoredBox {
    const TensorMap *map;
    unsigned block, from, to[3], thread, line;
    const char *file;
};

static TrStoredBox tr_stored_boxes[TR_MOST_BOXES];
static unsigned tr_stored_box_count;

inline void tr_store_matrices(unsigned address, unsigned first, unsigned second, unsigned third, unsigned fourth,
                              unsigned line = __builtin_LINE(), const char *file = __builtin_FILE()) {
    struct Words {
        unsigned of[4];
    };
    if (address % sizeof(Chunk) != 0) tr_fail(file, line, "stores a row of a matrix at address %u", address);
    const TrExchange<Words> words(Words{{first, second, third, fourth}}, line, file);
    const unsigned lane = tr_self % TR_WARP;
    for (unsigned i = 0; i < 4; i++) {
        tr_store_word(address + i * sizeof(unsigned), words.of(lane % 8 * 4 + i).of[lane / 8], line, file);
    }
}

inline void tr_store_box(const TensorMap &map, unsigned from, unsigned x, unsigned y, unsigned z,
                         unsigned line = __builtin_LINE(), const char *file = __builtin_FILE()) {
    if (from % 128 != 0) tr_fail(file, line, "stores a box from address %u, which is no multiple of 128", from);
    if (tr_stored_box_count == TR_MOST_BOXES) tr_fail(file, line, "stores more than %u boxes at once", TR_MOST_BOXES);
    for (unsigned at = from; at < from + tr_box_bytes(map); at += sizeof(Chunk)) {
        TrPiece &piece = tr_piece(at, file, line);
        tr_hold_stores(piece, "stores a box of", file, line);
        for (unsigned i = 0; i < 4; i++) {
            if (piece.storer[i] == 0) tr_fail(file, line, "stores a box of what nobody has put there");
            if (tr_shows[piece.storer[i] - 1] != piece.shows[i]) continue;
            tr_fail(file, line, "stores a box of what thread %u stored at line %u and hasn't shown", tr_thread_of(piece.storer[i] - 1),
                    piece.stored_line);
        }
        piece.read[tr_self / TR_WARP] = TR_UNFINISHED;
        piece.read_line = line;
    }
    tr_stored_boxes[tr_stored_box_count++] = TrStoredBox{&map, tr_rank, from, {x, y, z}, tr_self, line, file};
}

// Copies a box to its tensor.
inline void tr_bring_out(const TrStoredBox &box) {
    const unsigned bytes = box.map->element_bytes;
    tr_each_element(*box.map, box.to, box.block, box.from, [&](const unsigned char *place, unsigned char *to, bool exists) {
        if (exists) memcpy(to, place, bytes);
    });
}

inline void tr_wait_boxes_read() {
    unsigned left = 0;
    for (unsigned i = 0; i < tr_stored_box_count; i++) {
        const TrStoredBox box = tr_stored_boxes[i];
        if (box.thread != tr_self) {
            tr_stored_boxes[left++] = box;
            continue;
        }
        tr_bring_out(box);
        for (unsigned at = 0; at < tr_box_bytes(*box.map); at += sizeof(Chunk)) {
            const unsigned warp = tr_self / TR_WARP;
            tr_piece_at(box.from + at).read[warp] = tr_clock().of[warp];
        }
    }
    tr_stored_box_count = left;
}

// Holds that a block didn't end before its boxes were read.
static void tr_end_async() {
    if (tr.shared_bytes == 0 || tr_stored_box_count == 0) return;
    const TrStoredBox &box = tr_stored_boxes[0];
    snprintf(tr.report, tr.report_bytes, "%s:%u: thread %u of block %u ends before the box that it stores has been read",
             box.file, box.line, tr_thread_of(box.thread), tr_block_of(box.thread));
    tr.failed = true;
}

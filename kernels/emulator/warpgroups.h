// Products by groups of warps, on a processor; comes after hopper.h.
//
// A product is made when its sums are waited for, and until then they aren't numbers.

template <unsigned N> void tr_fewer_registers() { static_assert(N % 8 == 0 && N >= 24 && N <= 256); }
template <unsigned N> void tr_more_registers() { static_assert(N % 8 == 0 && N >= 24 && N <= 256); }

constexpr unsigned TR_MMA_M = 64;
constexpr unsigned TR_MMA_K = 16;
constexpr unsigned TR_MOST_N = 256;
// Elements of 16 bits in a piece.
constexpr unsigned TR_PIECE = 8;
constexpr unsigned TR_MOST_PRODUCTS = 32;

// A thread's factors of a product that are in registers.
using TrFactors = const unsigned (*)[4];

// A product on its way, of a group of warps.
struct TrProduct {
    unsigned columns, line;
    // Where its operands' pieces lie, the first's unless it's in registers, and which of its warps are done with them.
    unsigned a[TR_MMA_M * TR_MMA_K / TR_PIECE], b[TR_MOST_N * TR_MMA_K / TR_PIECE];
    bool in_registers;
    TrFactors factors[WARP_GROUP];
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
    TrFactors factors[WARP_GROUP];
    TrProduct products[TR_MOST_PRODUCTS];
};

constexpr unsigned TR_MOST_ARRAYS = 8;

// Sums of a thread, while they aren't its own, and as they were left or shown.
struct TrSums {
    float *own;
    unsigned count;
    float value[TR_MOST_N / 2];
    // Products that go on to them.
    unsigned unfinished;
    // To be shown by the next fence.
    bool written;
};

// Factors in registers that a thread has shown.
struct TrShown {
    const unsigned *own;
    unsigned count, value[TR_MOST_N / 2];
    bool written;
};

// What a thread has of products.
struct TrThreadProducts {
    TrSums sums[TR_MOST_ARRAYS];
    TrShown factors[TR_MOST_ARRAYS];
    unsigned next_sums, next_factors;
    unsigned begun, finished, sets;
    // Products before the end of each of the newest sets, and the sums of each unfinished product.
    unsigned ends[TR_MOST_PRODUCTS], into[TR_MOST_PRODUCTS];
    // Whether what the thread has written was shown since the last product, and since it waited for one.
    bool shown, shown_since_wait;

    // The place of an array of sums, of the oldest that's free where it has none.
    TrSums &place(float *own, unsigned count, const char *file, unsigned line) {
        for (TrSums &place : sums) {
            if (place.own == own && place.count == count) return place;
        }
        for (unsigned i = 0; i < TR_MOST_ARRAYS; i++) {
            TrSums &place = sums[next_sums++ % TR_MOST_ARRAYS];
            if (place.unfinished > 0) continue;
            place.own = own;
            place.count = count;
            place.written = false;
            // Like nothing that a thread has.
            for (float &value : place.value) value = __uint_as_float(0x7fc00001u);
            return place;
        }
        tr_fail(file, line, "has products go on to more than %u arrays of sums", TR_MOST_ARRAYS);
    }
};

static TrGroup tr_groups[TR_MOST_THREADS / WARP_GROUP];
static TrThreadProducts tr_thread_products[TR_MOST_THREADS];

inline TrThreadProducts &tr_own_products() { return tr_thread_products[tr_self]; }

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
    for (const unsigned address : product.a) {
        if (!product.in_registers) each(address);
    }
    for (unsigned i = 0; i < product.columns * TR_MMA_K / TR_PIECE; i++) each(product.b[i]);
}

template <class T, bool TURNED>
void tr_read_operand(const unsigned *pieces, unsigned extent, float (*to)[TR_MMA_K]) {
    tr_each_piece(TURNED, extent, [&](unsigned number, unsigned along, unsigned k) {
        T element[TR_PIECE];
        memcpy(element, tr_at(pieces[number]), sizeof element);
        for (unsigned i = 0; i < TR_PIECE; i++) to[along + (TURNED ? i : 0)][k + (TURNED ? 0 : i)] = tr_value(element[i]);
    });
}

// Reads an operand of registers, a thread's words as a lane of mma.m16n8k16 has them.
template <class T> void tr_read_factors(const TrProduct &product, float (*to)[TR_MMA_K]) {
    for (unsigned thread = 0; thread < WARP_GROUP; thread++) {
        for (unsigned i = 0; i < 4; i++) {
            const unsigned word = (*product.factors[thread])[i];
            float *row = to[thread / TR_WARP * 16 + thread % TR_WARP / 4 + i % 2 * 8] + thread % 4 * 2 + i / 2 * 8;
            row[0] = tr_value(T{(unsigned short)word});
            row[1] = tr_value(T{(unsigned short)(word >> 16)});
        }
    }
}

// Begins a product for its group, of which all threads have come.
template <class T, bool A_TURNED, bool B_TURNED>
void tr_begin_product(TrGroup &group, unsigned columns, bool in_registers, const char *file, unsigned line) {
    const unsigned first_warp = tr_self / WARP_GROUP * (WARP_GROUP / TR_WARP);
    for (unsigned i = 0; i < WARP_GROUP; i++) {
        const TrThreadProducts &products = tr_thread_products[first_warp * TR_WARP + i];
        if (products.begun - products.finished < TR_MOST_PRODUCTS) continue;
        tr_fail(file, line, "begins more than %u products before one is finished", TR_MOST_PRODUCTS);
    }
    TrProduct &product = group.products[group.begun % TR_MOST_PRODUCTS];
    product.columns = columns;
    product.line = line;
    product.was_read = false;
    product.in_registers = in_registers;
    memcpy(product.factors, group.factors, sizeof group.factors);
    memset(product.done, 0, sizeof product.done);
    product.read = [](TrProduct &product) {
        if (product.in_registers) tr_read_factors<T>(product, product.rows);
        else tr_read_operand<T, A_TURNED>(product.a, TR_MMA_M, product.rows);
        tr_read_operand<T, B_TURNED>(product.b, product.columns, product.by_column);
    };
    if (!in_registers) {
        tr_each_piece(A_TURNED, TR_MMA_M, [&](unsigned number, unsigned along, unsigned k) {
            product.a[number] = tr_operand_piece(group.a, A_TURNED, along, k);
        });
    }
    tr_each_piece(B_TURNED, columns, [&](unsigned number, unsigned along, unsigned k) {
        product.b[number] = tr_operand_piece(group.b, B_TURNED, along, k);
    });
    tr_each_operand(product, [&](unsigned address) {
        TrPiece &piece = tr_piece(address, file, line);
        bool stored = false;
        for (unsigned i = 0; i < 4; i++) {
            const unsigned storer = piece.storer[i];
            if (storer > 0 && tr_shows[storer - 1] == piece.shows[i]) {
                tr_fail(file, line, "multiplies what thread %u stored at line %u and hasn't shown", storer - 1, piece.stored_line);
            }
            stored |= storer > 0;
        }
        if (piece.phase == 0 && !stored) tr_fail(file, line, "multiplies what nobody has brought to shared memory");
        for (unsigned warp = first_warp; warp < first_warp + WARP_GROUP / TR_WARP; warp++) {
            if (piece.phase > tr_clocks[warp].of[TR_WARPS + piece.barrier]) {
                tr_fail(file, line, "multiplies what the copy of line %u brings, for which warp %u hasn't waited",
                        piece.copied_line, warp);
            }
            for (unsigned by = 0; by < TR_WARPS; by++) {
                if (piece.stored[by] <= tr_clocks[warp].of[by]) continue;
                tr_fail(file, line, "multiplies what warp %u stores at line %u, for which warp %u hasn't waited", by,
                        piece.stored_line, warp);
            }
            piece.read[warp] = TR_UNFINISHED;
        }
        piece.read_line = line;
    });
    group.begun++;
}

// Remembers what products may use once it is shown: sums or factors.
template <unsigned N>
void tr_show_registers(float (&sums)[N], unsigned line = __builtin_LINE(), const char *file = __builtin_FILE()) {
    TrSums &place = tr_own_products().place(sums, N, file, line);
    if (place.unfinished > 0) tr_fail(file, line, "shows sums that a product goes on to");
    memcpy(place.value, sums, sizeof sums);
    place.written = true;
}

template <unsigned N> void tr_show_registers(unsigned (&factors)[N][4]) {
    TrThreadProducts &own = tr_own_products();
    TrShown *place = nullptr;
    for (TrShown &shown : own.factors) place = shown.own == factors[0] ? &shown : place;
    if (place == nullptr) place = &own.factors[own.next_factors++ % TR_MOST_ARRAYS];
    *place = TrShown{factors[0], 4 * N, {}, true};
    memcpy(place->value, factors, sizeof factors);
}

inline void tr_show_sums() {
    TrThreadProducts &own = tr_own_products();
    own.shown = own.shown_since_wait = true;
    for (TrSums &sums : own.sums) sums.written = false;
    for (TrShown &factors : own.factors) factors.written = false;
}

struct TrTurn {
    const TrGroup *group;
    unsigned number;
};

// Begins a product with the thread's group: sums are added to, or made ANEW, and the first operand is in shared memory or, where
// they aren't null, in registers.
template <class T, bool A_TURNED, bool B_TURNED, bool ANEW, unsigned N>
void tr_join_product(float (&sums)[N], unsigned long long a, TrFactors factors, unsigned long long b, unsigned line,
                     const char *file) {
    TrThreadProducts &own = tr_own_products();
    TrSums &place = own.place(sums, N, file, line);
    const bool unfinished = place.unfinished > 0;
    if (ANEW && unfinished) tr_fail(file, line, "makes sums anew that a product goes on to");
    const bool same = !place.written && memcmp(sums, place.value, sizeof sums) == 0;
    const bool as_left = unfinished || (ANEW ? own.shown_since_wait : same);
    if (!own.shown && !as_left) tr_fail(file, line, "multiplies into sums that it has written and not shown");
    if (factors != nullptr) {
        bool shown = false;
        for (const TrShown &known : own.factors) {
            const unsigned *first = *factors;
            if (known.own == nullptr || known.written || first < known.own || first >= known.own + known.count) continue;
            shown |= memcmp(first, known.value + (first - known.own), sizeof *factors) == 0;
        }
        if (!shown) tr_fail(file, line, "multiplies factors that it has written and not shown");
    }
    // A base offset is for what isn't swizzled from a multiple of the repeat on.
    constexpr unsigned long long FIELDS = 0x3fffull | 0x3fffull << 16 | 0x3fffull << 32 | 3ull << 62;
    if (((a | b) & ~FIELDS) != 0) tr_fail(file, line, "has bits between a descriptor's fields");
    TrGroup &group = tr_groups[tr_self / WARP_GROUP];
    if (group.came == 0) {
        group.line = line;
        group.file = file;
        group.a = a;
        group.b = b;
    } else if (group.line != line || group.file != file || group.a != a || group.b != b) {
        tr_fail(file, line, "multiplies something else than its group, which is at line %u", group.line);
    }
    group.factors[tr_self % WARP_GROUP] = factors;
    const TrTurn turn{&group, group.begun};
    if (++group.came == WARP_GROUP) {
        tr_begin_product<T, A_TURNED, B_TURNED>(group, 2 * N, factors != nullptr, file, line);
        group.came = 0;
    } else {
        const auto begun = [](const void *of) {
            const TrTurn &turn = *static_cast<const TrTurn *>(of);
            return turn.group->begun != turn.number;
        };
        tr_wait_until(begun, &turn, "its group of warps, of which some don't come", line, file);
    }
    if (!unfinished) memcpy(place.value, sums, sizeof sums);
    if (ANEW) memset(place.value, 0, sizeof sums);
    place.unfinished++;
    own.into[own.begun++ % TR_MOST_PRODUCTS] = &place - own.sums;
    own.shown = false;
    for (float &sum : sums) sum = __uint_as_float(0x7fc00000u);
}

template <class T, bool A_TURNED, bool B_TURNED, unsigned N>
void tr_multiply_async(float (&sums)[N], unsigned long long a, unsigned long long b, unsigned line = __builtin_LINE(),
                       const char *file = __builtin_FILE()) {
    tr_join_product<T, A_TURNED, B_TURNED, false>(sums, a, nullptr, b, line, file);
}

template <class T, bool A_TURNED, bool B_TURNED, unsigned N>
void tr_multiply_anew(float (&sums)[N], unsigned long long a, unsigned long long b, unsigned line = __builtin_LINE(),
                      const char *file = __builtin_FILE()) {
    tr_join_product<T, A_TURNED, B_TURNED, true>(sums, a, nullptr, b, line, file);
}

template <class T, bool B_TURNED, unsigned N>
void tr_multiply_registers(float (&sums)[N], const unsigned (&a)[4], unsigned long long b, unsigned line = __builtin_LINE(),
                           const char *file = __builtin_FILE()) {
    tr_join_product<T, false, B_TURNED, false>(sums, 0, &a, b, line, file);
}

inline void tr_commit_products() {
    TrThreadProducts &own = tr_own_products();
    own.ends[own.sets++ % TR_MOST_PRODUCTS] = own.begun;
}

// Adds a product to the thread's sums, and lets its warp be done with reading.
inline void tr_finish_product(TrThreadProducts &own, TrGroup &group) {
    const unsigned thread = tr_self % WARP_GROUP, lane = thread % TR_WARP, warp = tr_self / TR_WARP;
    TrSums &sums = own.sums[own.into[own.finished % TR_MOST_PRODUCTS]];
    TrProduct &product = group.products[own.finished++ % TR_MOST_PRODUCTS];
    if (!product.was_read) product.read(product);
    product.was_read = true;
    for (unsigned i = 0; i < product.columns / 2; i++) {
        const float *row = product.rows[thread / TR_WARP * 16 + lane / 4 + i / 2 % 2 * 8];
        const float *column = product.by_column[i / 4 * 8 + lane % 4 * 2 + i % 2];
        float sum = 0.0f;
        for (unsigned k = 0; k < TR_MMA_K; k++) sum += row[k] * column[k];
        sums.value[i] += sum;
    }
    if (--sums.unfinished == 0) memcpy(sums.own, sums.value, sums.count * sizeof(float));
    if (product.done[thread / TR_WARP]) return;
    product.done[thread / TR_WARP] = true;
    const auto mark = [&](const TrProduct &product, unsigned read) {
        tr_each_operand(product, [&](unsigned address) {
            tr_piece_at(address).read[warp] = read;
        });
    };
    mark(product, tr_clock().of[warp]);
    // Later ones may read the same.
    for (unsigned i = own.finished; i < own.begun; i++) mark(group.products[i % TR_MOST_PRODUCTS], TR_UNFINISHED);
}

template <unsigned NEWEST> void tr_wait_products() {
    TrThreadProducts &own = tr_own_products();
    own.shown_since_wait = false;
    if (own.sets <= NEWEST) return;
    const unsigned end = own.ends[(own.sets - NEWEST - 1) % TR_MOST_PRODUCTS];
    while (own.finished < end) tr_finish_product(own, tr_groups[tr_self / WARP_GROUP]);
}

template <unsigned NEWEST, unsigned N> void tr_finish_sets(float (&)[N]) { tr_wait_products<NEWEST>(); }

template <unsigned N> void tr_finish_products(float (&)[N]) { tr_wait_products<0>(); }

inline float tr_exp2_in_place(float x) { return tr_exp2(x); }

// ---- Blocks ----

static void tr_begin_async() {
    if (tr.shared_bytes == 0) return;
    memset(tr_clocks, 0, sizeof tr_clocks);
    for (unsigned warp = 0; warp < TR_WARPS; warp++) tr_clocks[warp].of[warp] = 1;
    memset(tr_pieces, 0, sizeof tr_pieces);
    memset(tr_shows, 0, sizeof tr_shows);
    memset(tr_counts, 0, sizeof tr_counts);
    // What is left there by others isn't numbers.
    memset(tr_dynamic, 0xff, sizeof tr_dynamic);
    tr_barrier_count = tr_box_count = tr_stored_box_count = 0;
    for (TrGroup &group : tr_groups) group.begun = group.came = 0;
    for (unsigned i = 0; i < tr.threads; i++) tr_thread_products[i] = TrThreadProducts{};
}

static void tr_meet_async(unsigned first, unsigned threads) {
    if (tr.shared_bytes == 0) return;
    TrClock all{};
    for (unsigned warp = first / TR_WARP; warp < (first + threads) / TR_WARP; warp++) all.join(tr_clocks[warp]);
    for (unsigned warp = first / TR_WARP; warp < (first + threads) / TR_WARP; warp++) {
        tr_clocks[warp] = all;
        tr_clocks[warp].of[warp]++;
    }
}

// Copies to shared memory beside other work, and tensor cores, on a processor; comes after cuda_on_cpu.h.

// ---- Copies beside other work ----

// 16 bytes.
struct alignas(16) Chunk {
    unsigned word[4];
};

// A copy to shared memory that has begun. It is made when it's waited for, so that who forgets to wait reads what was
// there before.
struct TrCopy {
    void (*make)(const TrCopy &);
    void *tile;
    TrAt to;
    Chunk value;
    unsigned group;
};

constexpr unsigned TR_MOST_COPIES = 64;

struct TrCopies {
    alignas(TrCopy) unsigned char storage[TR_MOST_COPIES * sizeof(TrCopy)];
    unsigned count, group;

    TrCopy *list() { return reinterpret_cast<TrCopy *>(storage); }
};

static TrCopies tr_copies[TR_MOST_THREADS];

static void tr_forget_copies(unsigned thread) { tr_copies[thread].count = 0; }

inline void tr_begin_copy(void (*make)(const TrCopy &), void *tile, TrAt to, Chunk value) {
    TrCopies &copies = tr_copies[tr_self];
    if (copies.count == TR_MOST_COPIES) tr_fail(to.file, to.line, "begins more than %u copies", TR_MOST_COPIES);
    copies.list()[copies.count++] = TrCopy{make, tile, to, value, copies.group};
}

template <unsigned N, class Stored>
void tr_copy_async(Shared<Chunk, N> &tile, TrAt to, const Stored &stored, unsigned from, bool exists, unsigned further = 0) {
    constexpr unsigned ELEMENTS = sizeof(Chunk) / sizeof(typename Stored::Element);
    Chunk value{};
    if (exists) {
        from += further;
        if (from % ELEMENTS != 0) tr_fail(to.file, to.line, "copies %u from element %u, which is no multiple of them", ELEMENTS, from);
        tr_holds(&stored, from, ELEMENTS, stored.elements, "copies", to.file, to.line);
        memcpy(&value, stored.data + from, sizeof value);
    }
    const auto make = [](const TrCopy &copy) { static_cast<Shared<Chunk, N> *>(copy.tile)->write(copy.to, copy.value); };
    tr_begin_copy(make, &tile, to, value);
}

template <unsigned N, class Stored>
void tr_copy_word_async(Shared<float, N> &array, TrAt to, const Stored &stored, unsigned from) {
    tr_holds(&stored, from, 1, stored.elements, "copies", to.file, to.line);
    Chunk value{};
    memcpy(&value, stored.data + from, sizeof(float));
    const auto make = [](const TrCopy &copy) {
        static_cast<Shared<float, N> *>(copy.tile)->write(copy.to, __uint_as_float(copy.value.word[0]));
    };
    tr_begin_copy(make, &array, to, value);
}

template <unsigned N> unsigned tr_word(Shared<Chunk, N> &tile, TrAt index, unsigned word) {
    return tile.read(index).word[word];
}

inline void tr_commit_copies() { tr_copies[tr_self].group++; }

template <unsigned NEWEST> void tr_wait_copies() {
    TrCopies &copies = tr_copies[tr_self];
    unsigned left = 0;
    for (unsigned i = 0; i < copies.count; i++) {
        const TrCopy copy = copies.list()[i];
        if (copy.group + NEWEST < copies.group) {
            copy.make(copy);
        } else {
            copies.list()[left++] = copy;
        }
    }
    copies.count = left;
}

// ---- Tensor cores, in the layouts of the PTX manual ----

template <bool TURNED, unsigned N>
void tr_load_matrices(unsigned (&to)[4], Shared<Chunk, N> &tile, TrAt at) {
    const TrExchange<Chunk> rows(tile.read(at), at.line, at.file);
    const unsigned lane = threadIdx.x % TR_WARP;
    for (unsigned matrix = 0; matrix < 4; matrix++) {
        if (!TURNED) {
            to[matrix] = rows.of(8 * matrix + lane / 4).word[lane % 4];
            continue;
        }
        const auto element = [&](unsigned row) {
            const unsigned word = rows.of(8 * matrix + row).word[lane / 4 / 2];
            return lane / 4 % 2 == 0 ? word & 0xffffu : word >> 16;
        };
        to[matrix] = element(lane % 4 * 2) | element(lane % 4 * 2 + 1) << 16;
    }
}

template <class T> unsigned tr_round_pair(float low, float high) {
    T pair[2];
    tr_round(low, pair[0]);
    tr_round(high, pair[1]);
    return pair[0].bits | unsigned(pair[1].bits) << 16;
}

// Words of a lane's operands.
struct TrFragments {
    unsigned a[4], b[2];
};

template <class T>
void tr_multiply_add(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1,
                     unsigned line = __builtin_LINE(), const char *file = __builtin_FILE()) {
    // A word holds one element where that is a float, else two neighbours along K. Lanes of four share a row, and eight
    // words of it are in two registers of each.
    constexpr unsigned PER_WORD = sizeof(unsigned) / sizeof(T);
    constexpr unsigned K = 8 * PER_WORD;
    const TrExchange<TrFragments> fragments({{a[0], a[1], a[2], a[3]}, {b0, b1}}, line, file);
    const auto value = [](unsigned word, unsigned index) {
        if constexpr (PER_WORD == 1) {
            // What the rounding left; the hardware ignores the rest.
            return __uint_as_float(word & ~0x1fffu);
        } else {
            return tr_value(T{(unsigned short)(word >> 16 * index)});
        }
    };
    const unsigned lane = threadIdx.x % TR_WARP;
    for (unsigned r = 0; r < 4; r++) {
        const unsigned column = lane % 4 * 2 + r % 2;
        float sum = 0.0f;
        for (unsigned k = 0; k < K; k++) {
            const unsigned word = k / PER_WORD;
            const unsigned own_a = fragments.of(lane / 4 * 4 + word % 4).a[r / 2 + word / 4 * 2];
            const unsigned own_b = fragments.of(column * 4 + word % 4).b[word / 4];
            sum += value(own_a, k % PER_WORD) * value(own_b, k % PER_WORD);
        }
        sums[r] += sum;
    }
}

inline unsigned tr_round_tf32(unsigned bits) { return (bits + 0x1000u) & ~0x1fffu; }

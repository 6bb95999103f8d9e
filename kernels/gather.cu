// Rows of a table by index, and the sum of gradients into them.   V rows, C columns (COLUMNS), R ids
//
// Every name is bound in every launch, so that entries share this file.

constexpr unsigned QUADS_OF_ROW = (COLUMNS + 3) / 4;

// out[r, :] = table[ids[r], :]. The table's bound rows are `rows` from `first_row` on; rows of out whose ids are elsewhere
// become 0 where CLEAR (so that an id outside the table gives zeros), else stay. A thread makes four neighbours of out.
// Traffic: C elements read and written an id.
__device__ void embedding(const Args &args) {
    const unsigned at = (args.first_group + blockIdx.x) * (4 * WORKGROUP) + 4 * threadIdx.x;
    if (at >= args.elements) {
        return;
    }
    const auto row_of = [&](unsigned r) { return unsigned(args.ids.raw(args.first_id + r)) - args.first_row; };
    if (COLUMNS % 4 == 0) {
        const unsigned r = at / COLUMNS;
        const unsigned row = row_of(r);
        if (row < args.rows) {
            args.out.store4(at, args.table.load4(row * COLUMNS + (at - r * COLUMNS)), 4);
        } else if (CLEAR) {
            args.out.store4(at, four(0.0f), 4);
        }
        return;
    }
    for (unsigned element = at; element < at + 4 && element < args.elements; element++) {
        const unsigned r = element / COLUMNS;
        const unsigned row = row_of(r);
        if (row < args.rows) {
            args.out.store(element, args.table.load(row * COLUMNS + (element - r * COLUMNS)));
        } else if (CLEAR) {
            args.out.store(element, 0.0f);
        }
    }
}

// The gradient sorts (id, r) pairs, so that each table row finds its own r next to each other and in order: blocks of
// WORKGROUP pairs by counting smaller ones, then two runs at a time into one by binary search of each pair in the other
// run. An id outside the table becomes the table's number of rows, and is summed nowhere. About R·(WORKGROUP + log₂² R)
// comparisons, no atomics.

__shared__ Shared<unsigned, WORKGROUP> keys;

__device__ void sort_block(const Args &args) {
    const unsigned first = (args.first_group + blockIdx.x) * WORKGROUP;
    const unsigned count = smaller(args.count - first, WORKGROUP);
    unsigned key = 0;
    if (threadIdx.x < count) {
        key = smaller(unsigned(args.ids.raw(args.first_id + first + threadIdx.x)), args.table_rows);
    }
    keys[threadIdx.x] = key;
    __syncthreads();
    if (threadIdx.x < count) {
        unsigned place = first;
        for (unsigned i = 0; i < count; i++) {
            const unsigned other = keys[i];
            place += other < key || (other == key && i < threadIdx.x);
        }
        args.blocks.set(2 * place, int(key));
        args.blocks.set(2 * place + 1, int(first + threadIdx.x));
    }
}

// Pairs of the run from `first` on whose id is less than `key`, or no more where `equal`.
__device__ unsigned before(const Args &args, unsigned first, unsigned key, bool equal) {
    unsigned low = first;
    unsigned high = smaller(first + args.run, args.count);
    while (low < high) {
        const unsigned middle = (low + high) / 2;
        const unsigned other = unsigned(args.blocks.raw(2 * middle));
        if (other < key || (equal && other == key)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low - first;
}

// Sorted runs of `run` pairs in `blocks` become runs of twice as many in `sorted`.
__device__ void merge_runs(const Args &args) {
    const unsigned at = (args.first_group + blockIdx.x) * WORKGROUP + threadIdx.x;
    if (at >= args.count) {
        return;
    }
    const unsigned key = unsigned(args.blocks.raw(2 * at));
    const unsigned number = at / args.run;
    const unsigned other = (number ^ 1) * args.run;
    unsigned place = at;
    if (number % 2 == 1) {
        place += before(args, other, key, true) - args.run;
    } else if (other < args.count) {
        place += before(args, other, key, false);
    }
    args.sorted.set(2 * place, int(key));
    args.sorted.set(2 * place + 1, args.blocks.raw(2 * at + 1));
}

__device__ unsigned sorted_id(const Args &args, unsigned at) { return unsigned(args.sorted.raw(2 * at)); }

__device__ unsigned sorted_row(const Args &args, unsigned at) { return unsigned(args.sorted.raw(2 * at + 1)); }

// Sorted pairs are summed in chunks of CHUNK, so that a frequent id keeps many threads busy. A thread owns four columns of
// a chunk.
struct Piece {
    unsigned chunk;
    // Pairs of the chunk; none where `begin` is past the last.
    unsigned begin, end;
    // First of the columns.
    unsigned column;
};

__device__ Piece piece(const Args &args) {
    const unsigned index = (args.first_group + blockIdx.x) * WORKGROUP + threadIdx.x;
    const unsigned chunk = index / QUADS_OF_ROW;
    const unsigned begin = chunk * CHUNK;
    return Piece{chunk, begin, smaller(begin + CHUNK, args.count), 4 * (index - chunk * QUADS_OF_ROW)};
}

// `heads` first: the sum of the pairs that continue the id before the chunk, where there are any.
__device__ void sum_heads(const Args &args) {
    const auto [chunk, begin, end, c] = piece(args);
    if (begin >= args.count) {
        return;
    }
    Four sum = four(0.0f);
    if (chunk > 0) {
        const unsigned key = sorted_id(args, begin - 1);
        for (unsigned at = begin; at < end && sorted_id(args, at) == key; at++) {
            sum += args.dy.load4(sorted_row(args, at) * COLUMNS + c);
        }
    }
    args.heads.store4(chunk * COLUMNS + c, sum, COLUMNS - c);
}

// table[id, :] += Σ dy[r, :] over the pairs of every id that begins in the chunk, and the heads of the chunks it goes on
// in. The table's bound rows are `rows` from `first_row` on. Traffic: dy once, and the table's rows that occur.
__device__ void sum_runs(const Args &args) {
    const auto [chunk, begin, end, c] = piece(args);
    if (begin >= args.count) {
        return;
    }
    unsigned at = begin;
    if (chunk > 0) {
        const unsigned key = sorted_id(args, begin - 1);
        while (at < end && sorted_id(args, at) == key) {
            at++;
        }
    }
    while (at < end) {
        const unsigned key = sorted_id(args, at);
        const unsigned row = key - args.first_row;
        Four sum = four(0.0f);
        for (; at < end && sorted_id(args, at) == key; at++) {
            if (row < args.rows) {
                sum += args.dy.load4(sorted_row(args, at) * COLUMNS + c);
            }
        }
        if (row >= args.rows) {
            continue;
        }
        if (at == end) {
            for (unsigned next = end; next < args.count && sorted_id(args, next) == key; next += CHUNK) {
                sum += args.heads.load4(next / CHUNK * COLUMNS + c);
            }
        }
        const unsigned element = row * COLUMNS + c;
        args.table.store4(element, args.table.load4(element) + sum, COLUMNS - c);
    }
}

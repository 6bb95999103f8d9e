// Blocks and warps that leave something for the last of them: the twin of the same functions in shared/device.cuh; comes after
// cuda_on_cpu.h.
//
// What a GPU's fences order can't go wrong here, where blocks run one after the other. So the rules that those rely on are held
// instead: who leaves something is counted after it, and only the last of all reads what others have left.

// Where something happened.
struct TrPlace {
    unsigned line, thread, block;
    const char *file;
};

// How many have come, and of how many, from the first one in a launch on.
struct Counter {
    unsigned come, all;
    bool complete;
    // The one that came last, and the next counter of the launch.
    TrPlace at;
    Counter *next;
};

// Counters of the launch; and of the block that runs, where warps have left what they weren't counted for yet, and which came last.
static Counter *tr_counters;
static TrPlace tr_leaving[TR_MOST_THREADS / TR_WARP];
static bool tr_last[TR_MOST_THREADS / TR_WARP];

static void tr_begin_counts() {
    memset(tr_leaving, 0, sizeof tr_leaving);
    memset(tr_last, 0, sizeof tr_last);
}

// Ends a block.
static void tr_end_leaving() {
    for (const TrPlace &left : tr_leaving) {
        if (left.file == nullptr) continue;
        snprintf(tr.report, tr.report_bytes, "%s:%u: thread %u of block %u leaves something and isn't counted after it", left.file,
                 left.line, left.thread, left.block);
        tr.failed = true;
        return;
    }
}

// Ends a launch: each counter is zero, as the next launch needs it.
static bool tr_end_counts() {
    bool zero = true;
    for (; tr_counters != nullptr; tr_counters = tr_counters->next) {
        Counter &counter = *tr_counters;
        if (counter.come != 0 && zero && !tr.failed) {
            snprintf(tr.report, tr.report_bytes, "%s:%u: thread %u of block %u waits for %u to come to a counter, %u do",
                     counter.at.file, counter.at.line, counter.at.thread, counter.at.block, counter.all, counter.come);
            zero = false;
        }
        counter.come = counter.all = 0;
        counter.complete = false;
    }
    return zero;
}

static bool tr_count_in(Counter &counter, unsigned all, unsigned line, const char *file) {
    if (counter.all == 0) {
        counter.all = all;
        counter.next = tr_counters;
        tr_counters = &counter;
    }
    if (counter.all != all) tr_fail(file, line, "waits for %u at a counter to which %u come", all, counter.all);
    if (counter.complete) tr_fail(file, line, "comes to a counter to which all %u have come", all);
    counter.at = TrPlace{line, threadIdx.x, blockIdx.x, file};
    counter.complete = ++counter.come == all;
    if (counter.complete) counter.come = 0;
    return counter.complete;
}

inline bool tr_comes_last(Counter &counter, unsigned all, Shared<unsigned, 1> &last, unsigned line = __builtin_LINE(),
                          const char *file = __builtin_FILE()) {
    __syncthreads(line, file);
    if (threadIdx.x == 0) {
        const bool own = tr_count_in(counter, all, line, file);
        memset(tr_leaving, 0, sizeof tr_leaving);
        memset(tr_last, own, sizeof tr_last);
        last.write(TrAt(0, line, file), own);
    }
    __syncthreads(line, file);
    return last.read(TrAt(0, line, file)) != 0;
}

inline bool tr_warp_comes_last(Counter &counter, unsigned all, unsigned line = __builtin_LINE(),
                               const char *file = __builtin_FILE()) {
    TrExchange<unsigned>(0, line, file);
    const unsigned warp = tr_self / TR_WARP;
    if (threadIdx.x % TR_WARP == 0) {
        tr_last[warp] = tr_count_in(counter, all, line, file);
        tr_leaving[warp].file = nullptr;
    }
    return TrExchange<unsigned>(tr_last[warp], line, file).of(0) != 0;
}

template <class Stored, class Value>
void tr_leave(const Stored &stored, unsigned at, const Value &value, unsigned count, unsigned line = __builtin_LINE(),
              const char *file = __builtin_FILE()) {
    tr_leaving[tr_self / TR_WARP] = TrPlace{line, threadIdx.x, blockIdx.x, file};
    stored.store4(at, value, count, line, file);
}

template <class Stored>
auto tr_left(const Stored &stored, unsigned at, unsigned line = __builtin_LINE(), const char *file = __builtin_FILE()) {
    if (!tr_last[tr_self / TR_WARP]) tr_fail(file, line, "reads what others have left, and isn't the last");
    return stored.load4(at, line, file);
}

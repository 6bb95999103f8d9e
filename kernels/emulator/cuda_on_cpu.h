// CUDA's execution model on a processor, so that kernels are tested where there is no GPU; the twin of
// shared/device.cuh. Written before kernels and compiled with them as C++.
//
// A thread of a block is a fiber: it runs until it waits for others, and then the next one runs. Which one is next is
// shuffled by a seed, and so is the order of blocks, which run one after the other. Threads of a warp meet at shuffles,
// those of a block at barriers; blocks of a cluster run together. Shared memory remembers who read and wrote each element since the last barrier, and tensors
// know their extent, so that what is luck on a GPU is an error here, with its line: a missing barrier, shared memory that
// nobody wrote, an access out of bounds, a barrier or a shuffle that some threads don't reach.

#include <cmath>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <sys/mman.h>

#define __device__ inline
#define __shared__ static
#define TR_HERE , unsigned line = __builtin_LINE(), const char *file = __builtin_FILE()
#define TR_HOLDS(index, count, verb) tr_holds(this, index, count, elements, verb, file, line)
#define TR_ALIGNED(index) \
    if (index % 4 != 0) tr_fail(file, line, "moves four from element %u, which is no multiple of four", index)

struct TrIndex {
    unsigned x;
};

static TrIndex threadIdx, blockIdx, gridDim;
// The thread that runs, counted through all blocks of its cluster, and the number of its block among them.
static unsigned tr_self, tr_rank;

// ---- Fibers ----

#if defined(__x86_64__) && !defined(TR_PORTABLE)

// Stores the registers that a function keeps and the stack's top at `*from`, and goes on at `to`.
extern "C" __attribute__((visibility("hidden"))) void tr_switch(void **from, void *to);

asm(R"(
    .text
    .globl tr_switch
    .hidden tr_switch
    .type tr_switch, @function
tr_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");

struct TrFiber {
    void *top;

    void begin(char *stack, size_t bytes, void (*entry)()) {
        constexpr int REGISTERS = 6;
        void **place = reinterpret_cast<void **>(stack + bytes);
        *--place = nullptr;
        *--place = reinterpret_cast<void *>(entry);
        for (int i = 0; i < REGISTERS; i++) *--place = nullptr;
        top = place;
    }

    void go_on(TrFiber &next) { tr_switch(&top, next.top); }
};

#else

#include <ucontext.h>

struct TrFiber {
    ucontext_t context;

    void begin(char *stack, size_t bytes, void (*entry)()) {
        getcontext(&context);
        context.uc_stack.ss_sp = stack;
        context.uc_stack.ss_size = bytes;
        context.uc_link = nullptr;
        makecontext(&context, entry, 0);
    }

    void go_on(TrFiber &next) { swapcontext(&context, &next.context); }
};

#endif

// ---- A launch ----

constexpr unsigned TR_WARP = 32;
constexpr unsigned TR_MOST_THREADS = 1024;
constexpr size_t TR_STACK = 128 << 10;
// Most bytes that a lane gives to the others at once.
constexpr size_t TR_EXCHANGE = 24;

enum class TrState { Ready, AtWarp, AtBlock, AtCluster, Until, Done };

struct TrThread {
    TrFiber fiber;
    TrState state;
    // Where it waits.
    unsigned line;
    const char *file;
    // Until when, where that's a condition, and words for it.
    bool (*until)(const void *);
    const void *of;
    const char *words;
};

// An operand's name, and where its tensor lies in the arguments.
struct TrOperand {
    const char *name;
    size_t offset;
};

struct TrLaunch {
    void (*kernel)(const void *);
    const void *args;
    // Those of the block that runs, where several launches run as one.
    const void *own;
    const TrOperand *operands;
    unsigned operand_count;
    // Of all blocks that run together, those of one of them, and the first of these blocks.
    unsigned threads, block_threads, first_block;
    // Of shared memory whose size the launch says.
    unsigned shared_bytes;
    char *report;
    size_t report_bytes;
    bool failed;
    TrFiber scheduler;
    TrThread thread[TR_MOST_THREADS];
    char *stacks;
    // Barriers passed so far, in all blocks, and those passed when this block began.
    unsigned long long epoch, first_epoch;
    // Barriers passed by all blocks of a cluster.
    unsigned long long cluster_epoch;
    // What lanes give each other, in turns: a lane may be one shuffle ahead.
    unsigned char exchange[TR_MOST_THREADS][2][TR_EXCHANGE];
    unsigned turn[TR_MOST_THREADS];
};

static TrLaunch tr;

// Where a thread is, counted through all blocks of its cluster.
static unsigned tr_thread_of(unsigned self) { return self % tr.block_threads; }
static unsigned tr_block_of(unsigned self) { return tr.first_block + self / tr.block_threads; }

// Ends the launch with a message.
[[noreturn]] static void tr_fail(const char *file, unsigned line, const char *format, ...) {
    int written = snprintf(tr.report, tr.report_bytes, "%s:%u: thread %u of block %u ", file, line, threadIdx.x,
                           blockIdx.x);
    va_list words;
    va_start(words, format);
    vsnprintf(tr.report + written, tr.report_bytes - written, format, words);
    va_end(words);
    tr.failed = true;
    tr.thread[tr_self].fiber.go_on(tr.scheduler);
    __builtin_unreachable();
}

static void tr_wait(TrState state, unsigned line, const char *file) {
    const unsigned own = tr_self;
    TrThread &thread = tr.thread[own];
    thread.state = state;
    thread.line = line;
    thread.file = file;
    thread.fiber.go_on(tr.scheduler);
}

// Waits until a condition holds. It's asked between turns of threads, and fails nothing.
static void tr_wait_until(bool (*until)(const void *), const void *of, const char *words, unsigned line, const char *file) {
    TrThread &thread = tr.thread[tr_self];
    thread.until = until;
    thread.of = of;
    thread.words = words;
    tr_wait(TrState::Until, line, file);
}

static void tr_run_thread() {
    tr.kernel(tr.args);
    tr.thread[tr_self].state = TrState::Done;
    tr.thread[tr_self].fiber.go_on(tr.scheduler);
}

inline void __syncthreads(unsigned line = __builtin_LINE(), const char *file = __builtin_FILE()) {
    tr_wait(TrState::AtBlock, line, file);
}

inline void tr_meet_cluster(unsigned line = __builtin_LINE(), const char *file = __builtin_FILE()) {
    tr_wait(TrState::AtCluster, line, file);
}

// Gives a value to the other lanes of the warp, once all have come. `of(lane)` is what lane number `lane` gave.
template <class T> struct TrExchange {
    unsigned turn;

    TrExchange(const T &value, unsigned line, const char *file) : turn(tr.turn[tr_self]++ & 1) {
        static_assert(sizeof(T) <= TR_EXCHANGE);
        memcpy(tr.exchange[tr_self][turn], &value, sizeof(T));
        tr_wait(TrState::AtWarp, line, file);
    }

    T of(unsigned lane) const {
        T value;
        memcpy(&value, tr.exchange[tr_self / TR_WARP * TR_WARP + lane][turn], sizeof(T));
        return value;
    }
};

template <class T>
T __shfl_xor_sync(unsigned, T value, int mask, unsigned line = __builtin_LINE(),
                  const char *file = __builtin_FILE()) {
    return TrExchange<T>(value, line, file).of(tr_self % TR_WARP ^ unsigned(mask));
}

// Runs the threads of a warp until each has ended or waits for its block.
static void tr_run_warp(unsigned first, unsigned shuffle) {
    const unsigned lanes = tr.threads - first < TR_WARP ? tr.threads - first : TR_WARP;
    for (;;) {
        for (unsigned i = 0; i < TR_WARP; i++) {
            const unsigned lane = (i * (shuffle | 1) + (shuffle >> 5)) % TR_WARP;
            if (lane >= lanes || tr.thread[first + lane].state != TrState::Ready) continue;
            tr_self = first + lane;
            tr_rank = tr_self / tr.block_threads;
            threadIdx.x = tr_thread_of(tr_self);
            blockIdx.x = tr_block_of(tr_self);
            tr.scheduler.go_on(tr.thread[first + lane].fiber);
            if (tr.failed) return;
        }
        unsigned waiting = 0, meeting = 0;
        bool later = false;
        for (unsigned i = first; i < first + lanes; i++) {
            waiting += tr.thread[i].state == TrState::AtWarp;
            meeting = tr.thread[i].state == TrState::AtWarp ? i : meeting;
            later |= tr.thread[i].state == TrState::Until;
        }
        if (waiting == 0 || later) return;
        for (unsigned i = first; i < first + lanes; i++) {
            const TrThread &at = tr.thread[meeting];
            if (tr.thread[i].state != TrState::AtWarp || tr.thread[i].line != at.line || tr.thread[i].file != at.file) {
                snprintf(tr.report, tr.report_bytes, "%s:%u: thread %u of block %u waits for its warp, thread %u does not",
                         at.file, at.line, tr_thread_of(meeting), tr_block_of(meeting), tr_thread_of(i));
                tr.failed = true;
                return;
            }
        }
        for (unsigned i = first; i < first + lanes; i++) tr.thread[i].state = TrState::Ready;
    }
}

// Lets threads go on whose conditions hold by now. Where none does and nothing else can happen, that's the launch's end.
static bool tr_go_on() {
    bool some = false, stuck = false;
    for (unsigned i = 0; i < tr.threads; i++) {
        TrThread &thread = tr.thread[i];
        if (thread.state != TrState::Until) continue;
        const bool holds = thread.until(thread.of);
        thread.state = holds ? TrState::Ready : TrState::Until;
        some |= holds;
        stuck |= !holds;
    }
    if (some || !stuck) return some;
    // What each waits for that isn't at the same place as the one before.
    tr.failed = true;
    const TrThread *before = nullptr;
    size_t written = 0;
    for (unsigned i = 0; i < tr.threads && written < tr.report_bytes; i++) {
        const TrThread &thread = tr.thread[i];
        if (thread.state != TrState::Until) continue;
        if (before != nullptr && before->line == thread.line && before->file == thread.file) continue;
        written += snprintf(tr.report + written, tr.report_bytes - written, "%s%s:%u: thread %u of block %u waits for %s",
                            before == nullptr ? "" : "; ", thread.file, thread.line, tr_thread_of(i), tr_block_of(i),
                            thread.words);
        before = &thread;
    }
    return false;
}

static void tr_forget_copies(unsigned thread);
static void tr_begin_async();
static void tr_meet_async(unsigned first, unsigned threads);
static void tr_end_async();
static void tr_begin_counts();
static void tr_end_leaving();
static bool tr_end_counts();

// Lets these threads go on where all wait at one barrier.
static bool tr_meet(unsigned first, unsigned threads, TrState state) {
    for (unsigned i = first; i < first + threads; i++) {
        const TrThread &thread = tr.thread[i], &at = tr.thread[first];
        if (thread.state != state || thread.line != at.line || thread.file != at.file) return false;
    }
    for (unsigned i = first; i < first + threads; i++) tr.thread[i].state = TrState::Ready;
    tr.epoch++;
    tr_meet_async(first, threads);
    return true;
}

static bool tr_meet_blocks() {
    bool some = false;
    for (unsigned first = 0; first < tr.threads; first += tr.block_threads) {
        some |= tr_meet(first, tr.block_threads, TrState::AtBlock);
    }
    if (some || !tr_meet(0, tr.threads, TrState::AtCluster)) return some;
    tr.cluster_epoch++;
    return true;
}

// Runs the blocks of a cluster: most have one.
static void tr_run_cluster(unsigned shuffle) {
    tr.first_epoch = ++tr.epoch;
    for (unsigned i = 0; i < tr.threads; i++) {
        tr.thread[i].state = TrState::Ready;
        tr.thread[i].fiber.begin(tr.stacks + i * TR_STACK, TR_STACK, tr_run_thread);
        tr.turn[i] = 0;
        tr_forget_copies(i);
    }
    tr_begin_async();
    tr_begin_counts();
    const unsigned warps = (tr.threads + TR_WARP - 1) / TR_WARP;
    for (;;) {
        for (unsigned i = 0; i < warps; i++) {
            tr_run_warp((i + shuffle) % warps * TR_WARP, shuffle);
            if (tr.failed) return;
        }
        unsigned done = 0, meeting = 0;
        for (unsigned i = 0; i < tr.threads; i++) {
            done += tr.thread[i].state == TrState::Done;
            meeting = tr.thread[i].state == TrState::Done ? meeting : i;
        }
        if (done == tr.threads) {
            tr_end_async();
            return tr_end_leaving();
        }
        shuffle = shuffle * 1664525u + 1013904223u;
        if (tr_meet_blocks() || tr_go_on()) continue;
        if (tr.failed) return;
        const TrThread &at = tr.thread[meeting];
        for (unsigned i = 0; i < tr.threads; i++) {
            const TrThread &thread = tr.thread[i];
            if (thread.state != TrState::Done && thread.line == at.line && thread.file == at.file) continue;
            snprintf(tr.report, tr.report_bytes, "%s:%u: thread %u of block %u waits at a barrier, thread %u does not", at.file,
                     at.line, tr_thread_of(meeting), tr_block_of(meeting), tr_thread_of(i));
            tr.failed = true;
            return;
        }
    }
}

// Runs a kernel. False, and words in `report`, where it did what a GPU doesn't promise to do well.
static bool tr_launch(void (*kernel)(const void *), const void *args, const TrOperand *operands, unsigned operand_count,
                      unsigned threads, unsigned together, unsigned shared_bytes, unsigned blocks, unsigned seed,
                      char *report, size_t report_bytes) {
    if (tr.stacks == nullptr) {
        void *stacks = mmap(nullptr, TR_STACK * TR_MOST_THREADS, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stacks == MAP_FAILED) {
            snprintf(report, report_bytes, "there's no memory for the threads' stacks");
            return false;
        }
        tr.stacks = static_cast<char *>(stacks);
    }
    tr.kernel = kernel;
    tr.args = args;
    tr.own = args;
    tr.operands = operands;
    tr.operand_count = operand_count;
    tr.threads = threads * together;
    tr.block_threads = threads;
    tr.shared_bytes = shared_bytes;
    tr.report = report;
    tr.report_bytes = report_bytes;
    tr.failed = false;
    gridDim.x = blocks;
    if (blocks % together != 0) {
        snprintf(report, report_bytes, "%u blocks are no whole clusters of %u", blocks, together);
        return false;
    }
    // Clusters come in some order: from one of them on, up or down.
    const unsigned clusters = blocks / together;
    const unsigned order = seed * 1664525u + 1013904223u, down = order >> 31;
    for (unsigned i = 0; i < clusters && !tr.failed; i++) {
        const unsigned turn = ((order >> 8) % clusters + i) % clusters;
        tr.first_block = (down ? clusters - 1 - turn : turn) * together;
        seed = seed * 1664525u + 1013904223u;
        tr_run_cluster(seed >> 8);
    }
    return tr_end_counts() && !tr.failed;
}

// ---- Checked memory ----

static void tr_holds(const void *tensor, unsigned long long index, unsigned count, unsigned long long elements,
                     const char *verb, const char *file, unsigned line) {
    if (index + count <= elements) return;
    const size_t offset = static_cast<const char *>(tensor) - static_cast<const char *>(tr.own);
    const char *name = "a tensor";
    for (unsigned i = 0; i < tr.operand_count; i++) {
        if (tr.operands[i].offset == offset) name = tr.operands[i].name;
    }
    tr_fail(file, line, "%s %u from element %llu of `%s`, which has %llu", verb, count, index, name, elements);
}

// An index with the place where it's used.
struct TrAt {
    unsigned index, line;
    const char *file;

    TrAt(unsigned index, unsigned line = __builtin_LINE(), const char *file = __builtin_FILE())
        : index(index), line(line), file(file) {}
};

// Who touched an element last.
struct TrMark {
    unsigned long long written, read;
    unsigned short writer, reader;
    unsigned written_line, read_line;
};

constexpr unsigned short TR_SEVERAL = 0xffff;

template <class T, unsigned N> struct Shared {
    T data[N];
    TrMark marks[N];

    TrMark &mark(TrAt at) {
        if (at.index >= N) tr_fail(at.file, at.line, "uses element %u of a shared array of %u", at.index, N);
        if (tr.threads > tr.block_threads) tr_fail(at.file, at.line, "uses a shared array, which blocks of a cluster share here");
        return marks[at.index];
    }

    void race(TrAt at, const char *verb, unsigned short other, const char *other_verb, unsigned line) {
        char who[32] = "several threads";
        if (other != TR_SEVERAL) snprintf(who, sizeof who, "thread %u", other);
        tr_fail(at.file, at.line, "%s element %u of a shared array that %s %s at line %u, without a barrier between", verb,
                at.index, who, other_verb, line);
    }

    T read(TrAt at) {
        TrMark &m = mark(at);
        const unsigned short own = tr_self;
        if (m.written < tr.first_epoch) tr_fail(at.file, at.line, "reads element %u of a shared array, which none wrote", at.index);
        if (m.written == tr.epoch && m.writer != own) race(at, "reads", m.writer, "wrote", m.written_line);
        m.reader = m.read == tr.epoch && m.reader != own ? TR_SEVERAL : own;
        m.read = tr.epoch;
        m.read_line = at.line;
        return data[at.index];
    }

    void write(TrAt at, T value) {
        TrMark &m = mark(at);
        const unsigned short own = tr_self;
        if (m.written == tr.epoch && m.writer != own) race(at, "writes", m.writer, "wrote", m.written_line);
        if (m.read == tr.epoch && m.reader != own) race(at, "writes", m.reader, "read", m.read_line);
        m.written = tr.epoch;
        m.writer = own;
        m.written_line = at.line;
        data[at.index] = value;
    }

    struct Element {
        Shared &array;
        TrAt at;

        operator T() const { return array.read(at); }
        void operator=(T value) const { array.write(at, value); }
    };

    Element operator[](TrAt at) { return Element{*this, at}; }
};

// ---- Functions of the device ----

inline unsigned __float_as_uint(float x) {
    unsigned bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

inline float __uint_as_float(unsigned bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// Never joined with a sum, on a GPU and, as it's compiled, here.
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

// As on a GPU, zero below the least normal number.
inline float tr_exp2(float x) { return x < -126.0f ? 0.0f : exp2f(x); }

// As far off as a GPU's may be, up or down.
inline float tr_short_tanh(float x) {
    const float off = __float_as_uint(x) & 1 ? 0x1p-11f : -0x1p-11f;
    return tanhf(x) * (1.0f + off);
}

inline float tr_short_sigmoid(float x) {
    const float off = __float_as_uint(x) & 1 ? 0x1p-20f : -0x1p-20f;
    return (1.0f + off) / (1.0f + tr_exp2(-1.44269504f * x));
}

inline float tr_half_to_float(unsigned short bits) {
    const unsigned sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
    if (magnitude >= 0x7c00u) return __uint_as_float(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    // Half exponents begin 112 later; a multiplication also takes those below.
    const float value = __uint_as_float(magnitude << 13) * 0x1p112f;
    return __uint_as_float(sign | __float_as_uint(value));
}

// To nearest, ties to even.
inline unsigned short tr_float_to_half(float x) {
    const unsigned bits = __float_as_uint(x), sign = bits >> 16 & 0x8000u;
    const float magnitude = __uint_as_float(bits & 0x7fffffffu);
    if (magnitude != magnitude) return (unsigned short)(sign | 0x7e00u);
    // From half of a last place past the largest half on.
    if (magnitude >= 65520.0f) return (unsigned short)(sign | 0x7c00u);
    // Below the least normal half, places are of 2^-24: adding 2^-1 rounds to them.
    if (magnitude < 0x1p-14f) return (unsigned short)(sign | (__float_as_uint(magnitude + 0.5f) - __float_as_uint(0.5f)));
    const unsigned m = __float_as_uint(magnitude);
    return (unsigned short)(sign | ((m + 0xfffu + (m >> 13 & 1u)) - (112u << 23)) >> 13);
}

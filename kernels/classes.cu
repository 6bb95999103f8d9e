// Softmax cross-entropy over classes, accuracy and gradient; see ops/cross_entropy.rs. LANES neighbouring threads own a row
// of `columns` logits and read it four neighbours at a time. Bound by traffic: a row is read once, and in the gradient a
// second time from a cache. Entries that go over all rows are one block.

constexpr unsigned WARPS = (WORKGROUP + WARP - 1) / WARP;
constexpr float LOWEST = -3.4e38f;

__shared__ Shared<float, WARPS> maxima;
__shared__ Shared<float, WARPS> totals;
__shared__ Shared<float, WARPS> counts;

// A row's label, −1 where it doesn't count. One out of range reads some logit and writes nothing else.
__device__ int label_of(const Args &args, unsigned row) {
    const int label = row < args.rows ? args.labels.raw(args.first + row) : -1;
    return label < int(args.columns) ? label : int(args.columns) - 1;
}

// Of the logits that this thread reads, the largest, and the sum of exponentials from there (online softmax, Milakov and
// Gimelshein 2018).
__device__ Two largest_and_sum(const Args &args, unsigned first, unsigned lane) {
    float largest = LOWEST;
    float sum = 0.0f;
    for (unsigned c = 4 * lane; c < args.columns; c += 4 * LANES) {
        const unsigned left = args.columns - c;
        const Four x = first_of(args.logits.load4(first + c), left, LOWEST);
        const float next = fmaxf(largest, max_of(x));
        sum = sum * expf(largest - next) + sum_of(first_of(exp(x - next), left, 0.0f));
        largest = next;
    }
    return Two{largest, sum};
}

// sums[r] = the row's loss, sums[all + r] = 1 where its largest logit is the label's; 0 where it doesn't count.
__device__ void score_rows(const Args &args) {
    const unsigned lane = threadIdx.x % LANES;
    const unsigned row = (args.first_group + blockIdx.x) * (WORKGROUP / LANES) + threadIdx.x / LANES;
    const int label = label_of(args, row);
    const unsigned first = smaller(row, args.rows - 1) * args.columns;
    const float logit = args.logits.load(first + (label < 0 ? 0 : label));
    const Two own = largest_and_sum(args, first, lane);
    // Whether some logit comes before the label's: a larger one, or an equal one of an earlier class.
    float before = 0.0f;
    for (unsigned c = 4 * lane; c < args.columns; c += 4 * LANES) {
        const Four x = first_of(args.logits.load4(first + c), args.columns - c, LOWEST);
        const auto comes = [&](float value, unsigned at) {
            return value > logit || (value == logit && int(c + at) < label);
        };
        before = comes(x.x, 0) || comes(x.y, 1) || comes(x.z, 2) || comes(x.w, 3) ? 1.0f : before;
    }
    const float top = tr_fold<Max, LANES, WORKGROUP>(own.x, maxima);
    const float total = tr_fold<Sum, LANES, WORKGROUP>(own.y * expf(own.x - top), totals);
    const float beaten = tr_fold<Max, LANES, WORKGROUP>(before, counts);
    if (lane == 0 && row < args.rows) {
        args.sums.store(args.sum + row, label < 0 ? 0.0f : logf(total) + top - logit);
        args.sums.store(args.all + args.sum + row, label < 0 ? 0.0f : 1.0f - beaten);
    }
}

// Rows that count, at least 1. Whole numbers are exact in f32 up to 2^24.
__device__ float counted(const Args &args) {
    float own = 0.0f;
    for (unsigned row = threadIdx.x; row < args.rows; row += WORKGROUP) {
        own += args.labels.raw(row) >= 0 ? 1.0f : 0.0f;
    }
    return fmaxf(tr_fold<Sum, WORKGROUP, WORKGROUP>(own, counts), 1.0f);
}

// Rows are added in an order that depends on their number alone.
__device__ void add_scores(const Args &args) {
    float loss = 0.0f;
    float hits = 0.0f;
    for (unsigned row = threadIdx.x; row < args.rows; row += WORKGROUP) {
        loss += args.sums.load(row);
        hits += args.sums.load(args.all + row);
    }
    const float rows = counted(args);
    loss = tr_fold<Sum, WORKGROUP, WORKGROUP>(loss, totals);
    hits = tr_fold<Sum, WORKGROUP, WORKGROUP>(hits, maxima);
    if (threadIdx.x == 0) {
        args.loss.store(0, loss / rows);
        args.accuracy.store(0, hits / rows);
    }
}

// sums[0] = the gradient of one row's loss.
__device__ void find_slope(const Args &args) {
    const float rows = counted(args);
    if (threadIdx.x == 0) {
        args.sums.store(0, args.dloss.load(0) / rows);
    }
}

// An element is read and written by one thread, so that the gradient may take the logits' place.
__device__ void gradients(const Args &args) {
    const unsigned lane = threadIdx.x % LANES;
    const unsigned row = (args.first_group + blockIdx.x) * (WORKGROUP / LANES) + threadIdx.x / LANES;
    const int label = label_of(args, row);
    const unsigned first = smaller(row, args.rows - 1) * args.columns;
    const Two own = largest_and_sum(args, first, lane);
    const float top = tr_fold<Max, LANES, WORKGROUP>(own.x, maxima);
    const float total = tr_fold<Sum, LANES, WORKGROUP>(own.y * expf(own.x - top), totals);
    if (row >= args.rows) {
        return;
    }
    const float slope = label < 0 ? 0.0f : args.sums.load(0);
    for (unsigned c = 4 * lane; c < args.columns; c += 4 * LANES) {
        const auto hit = [&](unsigned at) { return int(c + at) == label ? 1.0f : 0.0f; };
        const Four powers = exp(args.logits.load4(first + c) - top) / total;
        args.dlogits.store4(first + c, (powers - Four{hit(0), hit(1), hit(2), hit(3)}) * slope, args.columns - c);
    }
}

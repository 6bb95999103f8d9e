// Cross-entropy of rows of logits, of which a chunk is held at a time.   V real columns of `padded`
//
//   losses[r]   = log Σᵥ exp(logits[r,v]) − logits[r,target[r]],  0 where target[r] < 0
//   logits[r,v] = (exp(logits[r,v]) / Σᵤ exp(logits[r,u]) − [v = target[r]]) · dloss / rows that count
//   where logits are CAPPED: with cap·tanh(logits / cap) for them, and its slope as one more factor
//   loss        = Σᵣ losses[r] / rows that count
//
// Bound by traffic. Where HELD fours of each thread are a whole row, a block reads it once and keeps it in registers. Otherwise
// it goes over the row twice: first the largest logit and the sum of exponentials, kept together as in online softmax
// (Milakov and Gimelshein 2018), then the gradient. That takes the logits' place: in the 16 bits of the operands that it's
// multiplied with, where they have such.

constexpr unsigned WARPS = (WORKGROUP + WARP - 1) / WARP;
constexpr float LOWEST = -3.4e38f;
// Elements of the gradient where one logit lies: a row's gradient begins where its logits do, and may be narrower.
constexpr unsigned APART = sizeof(float) / sizeof(decltype(Args::gradient)::Element);

__shared__ Shared<float, WARPS> maxima;
__shared__ Shared<float, WARPS> sums;

// scale = rows that count, and the gradient of one row's loss. Numbers of rows are exact in f32 up to 2^24.
__device__ void count(const Args &args) {
    float counted = 0.0f;
    for (unsigned row = threadIdx.x; row < args.rows; row += WORKGROUP) {
        counted += args.targets.raw(row) >= 0 ? 1.0f : 0.0f;
    }
    counted = tr_fold<Sum, WORKGROUP, WORKGROUP>(counted, sums);
    if (threadIdx.x == 0) {
        const float rows = fmaxf(counted, 1.0f);
        args.scale.store(0, rows);
        if (GRADIENT) {
            args.scale.store(1, args.dloss.load(0) / rows);
        }
    }
}

__device__ float capped(const Args &args, float x) { return CAPPED ? args.cap * tanhf(x / args.cap) : x; }

__device__ Four capped(const Args &args, Four x) {
    return CAPPED ? Four{capped(args, x.x), capped(args, x.y), capped(args, x.z), capped(args, x.w)} : x;
}

constexpr unsigned FOURS = HELD > 0 ? HELD : 1;

// The loss of a row that the block's registers hold, and its gradient.
__device__ void normalise_held(const Args &args) {
    const unsigned row = args.first_group + blockIdx.x;
    const unsigned first = row * args.padded;
    const int target = args.targets.raw(args.first + row);
    const bool counts = target >= 0;
    const auto column_of = [](unsigned i) { return 4 * (threadIdx.x + i * WORKGROUP); };
    Four held[FOURS];
    float largest = LOWEST;
#pragma unroll
    for (unsigned i = 0; i < FOURS; i++) {
        const unsigned column = column_of(i);
        held[i] = four(LOWEST);
        if (column < args.vocab) {
            held[i] = first_of(args.logits.load4(first + column), args.vocab - column, LOWEST);
        }
        largest = fmaxf(largest, max_of(held[i]));
    }
    const float top = tr_fold<Max, WORKGROUP, WORKGROUP>(largest, maxima);
    float logit = 0.0f;
    if (threadIdx.x == 0) {
        logit = args.logits.load(first + smaller(counts ? target : 0, args.vocab - 1));
    }
    float sum = 0.0f;
#pragma unroll
    for (unsigned i = 0; i < FOURS; i++) {
        held[i] = exp(held[i] - top);
        sum += sum_of(held[i]);
    }
    // The target's logit is read before any is overwritten: all threads wait for the sum.
    const float total = tr_fold<Sum, WORKGROUP, WORKGROUP>(sum, sums);
    if (WORKGROUP <= WARP) {
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        args.losses.store(args.first + row, counts ? logf(total) + top - logit : 0.0f);
    }
    const float slope = counts ? args.scale.load(1) : 0.0f;
    const float factor = slope / total;
#pragma unroll
    for (unsigned i = 0; i < FOURS; i++) {
        const unsigned column = column_of(i);
        const auto hit = [&](unsigned lane) { return int(column + lane) == target ? slope : 0.0f; };
        if (column < args.padded) {
            const Four gradient = held[i] * factor - Four{hit(0), hit(1), hit(2), hit(3)};
            const unsigned count = decltype(Args::gradient)::VECTORS ? 4 : args.padded - column;
            args.gradient.store4(APART * first + column, gradient, count);
        }
    }
}

__device__ void normalise(const Args &args) {
    if constexpr (HELD > 0) {
        normalise_held(args);
        return;
    }
    const unsigned row = args.first_group + blockIdx.x;
    const unsigned first = row * args.padded;
    const int target = args.targets.raw(args.first + row);
    float largest = LOWEST;
    float sum = 0.0f;
    for (unsigned column = 4 * threadIdx.x; column < args.vocab; column += 4 * WORKGROUP) {
        const unsigned left = args.vocab - column;
        const Four x = first_of(capped(args, args.logits.load4(first + column)), left, LOWEST);
        const float next = fmaxf(largest, max_of(x));
        sum = sum * expf(largest - next) + sum_of(first_of(exp(x - next), left, 0.0f));
        largest = next;
    }
    const float top = tr_fold<Max, WORKGROUP, WORKGROUP>(largest, maxima);
    const float total = tr_fold<Sum, WORKGROUP, WORKGROUP>(sum * expf(largest - top), sums);
    const bool counts = target >= 0;
    if (threadIdx.x == 0) {
        // A target out of range reads some logit and writes nothing else.
        const float logit = capped(args, args.logits.load(first + smaller(counts ? target : 0, args.vocab - 1)));
        args.losses.store(args.first + row, counts ? logf(total) + top - logit : 0.0f);
    }
    if (GRADIENT) {
        // The target's logit is read before any is overwritten.
        __syncthreads();
        const float slope = args.scale.load(1);
        for (unsigned next = 0; next < args.padded; next += 4 * WORKGROUP) {
            const unsigned column = next + 4 * threadIdx.x;
            Four gradient = four(0.0f);
            if (counts && column < args.vocab) {
                const auto hit = [&](unsigned lane) { return int(column + lane) == target ? 1.0f : 0.0f; };
                const Four logits = capped(args, args.logits.load4(first + column));
                const Four powers = exp(logits - top) / total;
                gradient = (powers - Four{hit(0), hit(1), hit(2), hit(3)}) * slope;
                if (CAPPED) {
                    const Four part = logits / args.cap;
                    gradient *= four(1.0f) - part * part;
                }
                gradient = first_of(gradient, args.vocab - column, 0.0f);
            }
            // What lies there was read by now, and what's read next lies further on.
            __syncthreads();
            if (column < args.padded) {
                args.gradient.store4(APART * first + column, gradient, args.padded - column);
            }
        }
    }
}

// Rows are added in an order that depends on their number alone.
__device__ void total(const Args &args) {
    float sum = 0.0f;
    for (unsigned row = threadIdx.x; row < args.rows; row += WORKGROUP) {
        sum += args.losses.load(row);
    }
    sum = tr_fold<Sum, WORKGROUP, WORKGROUP>(sum, sums);
    if (threadIdx.x == 0) {
        args.loss.store(0, sum / args.scale.load(0));
    }
}

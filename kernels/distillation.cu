// Distillation's loss of rows of logits, of which a chunk is held at a time; see ops/distillation.rs.   V real columns, of
// which the teacher has the first `taught`; T the temperature, A the `share` of the soft loss
//
//   losses[r]        = log Σᵥ exp(s[v]) − s[target[r]],  and  losses[rows + r] = Σᵥ q[v]·log(q[v] / p[v]);  0 where target[r] < 0
//                      with p, q the softmax of student's and teacher's logits over T, of what the teacher has
//   gradient[r,v]    = ((1 − A)·(softmax(s)[v] − [v = target[r]]) + A·T·(p[v] − q[v])) · dloss / rows that count
//   loss             = (1 − A)·hard + A·T²·soft,  means over rows that count;  parts = hard, soft
//   where logits are CAPPED: with cap·tanh(logits / cap) for them, and its slope as one more factor
//
// A block goes over a row three times, bound by traffic: the largest logits, the sums, and the gradient, which takes the
// student's logits' place: in the 16 bits of the operands that it's multiplied with, where they have such.

constexpr unsigned WARPS = (WORKGROUP + WARP - 1) / WARP;
constexpr float LOWEST = -3.4e38f;
// Elements of the gradient where one logit lies: a row's gradient begins where its logits do, and may be narrower.
constexpr unsigned APART = sizeof(float) / sizeof(decltype(Args::gradient)::Element);

// Reductions take turns, so that none writes what another is still read from.
__shared__ Shared<float, WARPS> even;
__shared__ Shared<float, WARPS> odd;

__device__ Four capped(Four x, float cap) {
    return Four{tanhf(x.x / cap), tanhf(x.y / cap), tanhf(x.z / cap), tanhf(x.w / cap)} * cap;
}

__device__ Four own(const Args &args, unsigned at) {
    const Four x = args.logits.load4(at);
    return CAPPED ? capped(x, args.cap) : x;
}

// The teacher's four logits of a row from `column` on, of which the first `args.taught` are read.
__device__ Four taught(const Args &args, unsigned row, unsigned column) {
    if (column >= args.taught) {
        return four(LOWEST);
    }
    const Four x = args.teacher.load4(row * args.teacher_padded + column);
    return TEACHER_CAPPED ? capped(x, args.teacher_cap) : x;
}

// `x` where it's among the first `count` columns.
__device__ Four within(Four x, unsigned column, unsigned count, float otherwise) {
    return first_of(x, column < count ? count - column : 0, otherwise);
}

__device__ void distil(const Args &args) {
    const unsigned row = args.first_group + blockIdx.x;
    const unsigned first = row * args.padded;
    const int target = args.targets.raw(args.first + row);
    const float temperature = args.temperature;
    // Of all logits, of those that the teacher has too, and of the teacher's.
    float top = LOWEST, soft_top = LOWEST, teacher_top = LOWEST;
    for (unsigned column = 4 * threadIdx.x; column < args.vocab; column += 4 * WORKGROUP) {
        const Four x = own(args, first + column);
        top = fmaxf(top, max_of(within(x, column, args.vocab, LOWEST)));
        soft_top = fmaxf(soft_top, max_of(within(x, column, args.taught, LOWEST)));
        teacher_top = fmaxf(teacher_top, max_of(within(taught(args, row, column), column, args.taught, LOWEST)));
    }
    top = tr_fold<Max, WORKGROUP, WORKGROUP>(top, even);
    soft_top = tr_fold<Max, WORKGROUP, WORKGROUP>(soft_top, odd);
    teacher_top = tr_fold<Max, WORKGROUP, WORKGROUP>(teacher_top, even);
    // Of exponentials, and of the teacher's times by how much its logit lies further below its largest than the student's.
    float hard_sum = 0.0f, soft_sum = 0.0f, teacher_sum = 0.0f, apart_sum = 0.0f;
    for (unsigned column = 4 * threadIdx.x; column < args.vocab; column += 4 * WORKGROUP) {
        const Four x = own(args, first + column);
        const Four below = (x - soft_top) / temperature;
        const Four teacher_below = (taught(args, row, column) - teacher_top) / temperature;
        const Four weights = within(exp(teacher_below), column, args.taught, 0.0f);
        hard_sum += sum_of(within(exp(x - top), column, args.vocab, 0.0f));
        soft_sum += sum_of(within(exp(below), column, args.taught, 0.0f));
        teacher_sum += sum_of(weights);
        apart_sum += sum_of(within(weights * (teacher_below - below), column, args.taught, 0.0f));
    }
    hard_sum = tr_fold<Sum, WORKGROUP, WORKGROUP>(hard_sum, odd);
    soft_sum = tr_fold<Sum, WORKGROUP, WORKGROUP>(soft_sum, even);
    teacher_sum = tr_fold<Sum, WORKGROUP, WORKGROUP>(teacher_sum, odd);
    apart_sum = tr_fold<Sum, WORKGROUP, WORKGROUP>(apart_sum, even);
    const bool counts = target >= 0;
    if (threadIdx.x == 0) {
        // A target out of range reads some logit and writes nothing else.
        const float raw = args.logits.load(first + smaller(counts ? target : 0, args.vocab - 1));
        const float logit = CAPPED ? args.cap * tanhf(raw / args.cap) : raw;
        const float soft = apart_sum / teacher_sum + logf(soft_sum) - logf(teacher_sum);
        args.losses.store(args.first + row, counts ? logf(hard_sum) + top - logit : 0.0f);
        args.losses.store(args.rows + args.first + row, counts ? soft : 0.0f);
    }
    if (GRADIENT) {
        // The target's logit is read before any is overwritten.
        __syncthreads();
        const float slope = args.scale.load(1);
        const float hard_share = slope * (1.0f - args.share);
        const float soft_share = slope * args.share * temperature;
        for (unsigned next = 0; next < args.padded; next += 4 * WORKGROUP) {
            const unsigned column = next + 4 * threadIdx.x;
            Four gradient = four(0.0f);
            if (counts && column < args.vocab) {
                const auto hit = [&](unsigned lane) { return int(column + lane) == target ? 1.0f : 0.0f; };
                const Four x = own(args, first + column);
                const Four hard = exp(x - top) / hard_sum - Four{hit(0), hit(1), hit(2), hit(3)};
                const Four teacher = exp((taught(args, row, column) - teacher_top) / temperature) / teacher_sum;
                const Four soft = exp((x - soft_top) / temperature) / soft_sum - teacher;
                gradient = hard * hard_share + within(soft * soft_share, column, args.taught, 0.0f);
                if (CAPPED) {
                    const Four part = x / args.cap;
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
    float hard = 0.0f, soft = 0.0f;
    for (unsigned row = threadIdx.x; row < args.rows; row += WORKGROUP) {
        hard += args.losses.load(row);
        soft += args.losses.load(args.rows + row);
    }
    hard = tr_fold<Sum, WORKGROUP, WORKGROUP>(hard, even);
    soft = tr_fold<Sum, WORKGROUP, WORKGROUP>(soft, odd);
    if (threadIdx.x == 0) {
        hard /= args.scale.load(0);
        soft /= args.scale.load(0);
        args.parts.store(0, hard);
        args.parts.store(1, soft);
        args.loss.store(0, (1.0f - args.share) * hard + args.share * args.temperature * args.temperature * soft);
    }
}

// Softmax of rows, and its gradient; see ops/softmax.rs. A block makes a row: its threads read neighbouring fours, WORKGROUP
// fours at a time. Bound by traffic: x is read three times, the second and third from a cache. An element is read and
// written by one thread, so that the output may be an input. In the gradient, x is softmax's result.

constexpr float LOWEST = -3.4e38f;

__shared__ Shared<float, (WORKGROUP + WARP - 1) / WARP> maxima;
__shared__ Shared<float, (WORKGROUP + WARP - 1) / WARP> sums;

__device__ void softmax(const Args &args) {
    const unsigned row = (args.first_group + blockIdx.x) * args.columns;
    float highest = LOWEST;
    for (unsigned c = 4 * threadIdx.x; c < args.columns; c += 4 * WORKGROUP) {
        highest = fmaxf(highest, max_of(first_of(args.x.load4(row + c), args.columns - c, LOWEST)));
    }
    highest = tr_fold<Max, WORKGROUP, WORKGROUP>(highest, maxima);
    float sum = 0.0f;
    for (unsigned c = 4 * threadIdx.x; c < args.columns; c += 4 * WORKGROUP) {
        sum += sum_of(first_of(exp(args.x.load4(row + c) - highest), args.columns - c, 0.0f));
    }
    sum = tr_fold<Sum, WORKGROUP, WORKGROUP>(sum, sums);
    for (unsigned c = 4 * threadIdx.x; c < args.columns; c += 4 * WORKGROUP) {
        args.out.store4(row + c, exp(args.x.load4(row + c) - highest) / sum, args.columns - c);
    }
}

__device__ void gradient(const Args &args) {
    const unsigned row = (args.first_group + blockIdx.x) * args.columns;
    float inner = 0.0f;
    for (unsigned c = 4 * threadIdx.x; c < args.columns; c += 4 * WORKGROUP) {
        inner += sum_of(first_of(args.x.load4(row + c) * args.dy.load4(row + c), args.columns - c, 0.0f));
    }
    inner = tr_fold<Sum, WORKGROUP, WORKGROUP>(inner, sums);
    for (unsigned c = 4 * threadIdx.x; c < args.columns; c += 4 * WORKGROUP) {
        const Four dx = args.x.load4(row + c) * (args.dy.load4(row + c) - inner);
        args.out.store4(row + c, dx, args.columns - c);
    }
}

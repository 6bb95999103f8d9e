// Sums and maxima over the threads of a block, in an order that the number of threads alone decides.

constexpr unsigned WARP = 32;
constexpr unsigned ALL_LANES = 0xffffffffu;

struct Sum {
    static __device__ float of(float a, float b) { return a + b; }
};

struct Max {
    static __device__ float of(float a, float b) { return fmaxf(a, b); }
};

// Over LANES neighbouring threads of a warp; each gets the result.
template <class Fold, unsigned LANES> __device__ float tr_fold_lanes(float value) {
#pragma unroll
    for (unsigned step = LANES / 2; step > 0; step /= 2) {
        value = Fold::of(value, __shfl_xor_sync(ALL_LANES, value, step));
    }
    return value;
}

// Over LANES neighbouring threads of a block of THREADS, both powers of two; each gets the result. A block calls it with
// all its threads, and passes memory that no other thread still reads.
template <class Fold, unsigned LANES, unsigned THREADS>
__device__ float tr_fold(float value, Shared<float, (THREADS + WARP - 1) / WARP> &warps) {
    constexpr unsigned WITHIN = LANES < WARP ? LANES : WARP;
    value = tr_fold_lanes<Fold, WITHIN>(value);
    if (LANES <= WARP) {
        return value;
    }
    if (threadIdx.x % WARP == 0) {
        warps[threadIdx.x / WARP] = value;
    }
    __syncthreads();
    const unsigned first = threadIdx.x / LANES * (LANES / WARP);
    float result = warps[first];
    for (unsigned i = 1; i < LANES / WARP; i++) {
        result = Fold::of(result, warps[first + i]);
    }
    return result;
}

// Block-wise 8-bit storage: BLOCK consecutive elements share a scale. Bound by traffic.

constexpr float LARGEST_CODE = 127.0f;

__shared__ Shared<float, (WORKGROUP + WARP - 1) / WARP> warps;

// scale[k] = max |x| over block k / 127. LANES neighbouring threads own a block and read it four elements at a time, side
// by side.
__device__ void scales(const Args &args) {
    const unsigned lane = threadIdx.x % LANES;
    const unsigned k = (args.first_group + blockIdx.x) * (WORKGROUP / LANES) + threadIdx.x / LANES;
    const unsigned first = k * BLOCK;
    const unsigned end = smaller(first + BLOCK, args.elements);
    float largest = 0.0f;
    for (unsigned at = first + 4 * lane; at < end; at += 4 * LANES) {
        const Four x = first_of(args.x.load4(at), end - at, 0.0f);
        largest = fmaxf(largest, max_of(Four{fabsf(x.x), fabsf(x.y), fabsf(x.z), fabsf(x.w)}));
    }
    largest = tr_fold<Max, LANES, WORKGROUP>(largest, warps);
    if (lane == 0 && first < args.elements) {
        args.scale.store(args.first_block + k, largest / LARGEST_CODE);
    }
}

__device__ float scale_of(const Args &args, unsigned element) {
    return args.scale.load(args.first_block + element / BLOCK);
}

// Scales of the `count` elements from `at` on.
__device__ Four scales_of(const Args &args, unsigned at, unsigned count) {
    if (BLOCK % 4 == 0) {
        return four(scale_of(args, at));
    }
    return Four{
        scale_of(args, at),
        count > 1 ? scale_of(args, at + 1) : 0.0f,
        count > 2 ? scale_of(args, at + 2) : 0.0f,
        count > 3 ? scale_of(args, at + 3) : 0.0f,
    };
}

__device__ float code_of(float x, float scale) {
    return scale > 0.0f ? fminf(fmaxf(rintf(x / scale), -LARGEST_CODE), LARGEST_CODE) : 0.0f;
}

// code[i] = round(x[i] / scale[i div block]), ties to even; 0 where the scale is.
__device__ void codes(const Args &args) {
    const unsigned at = (args.first_group + blockIdx.x) * (4 * WORKGROUP) + 4 * threadIdx.x;
    if (at >= args.elements) {
        return;
    }
    const unsigned count = smaller(args.elements - at, 4);
    const Four scale = scales_of(args, at, count);
    const Four x = args.x.load4(at);
    const Four code{code_of(x.x, scale.x), code_of(x.y, scale.y), code_of(x.z, scale.z), code_of(x.w, scale.w)};
    args.code.store4(at, code, count);
}

// x[i] = code[i]·scale[i div block]
__device__ void values(const Args &args) {
    const unsigned at = (args.first_group + blockIdx.x) * (4 * WORKGROUP) + 4 * threadIdx.x;
    if (at < args.elements) {
        const unsigned count = smaller(args.elements - at, 4);
        args.x.store4(at, args.code.load4(at) * scales_of(args, at, count), count);
    }
}

// Block-wise 8-bit storage: BLOCK consecutive elements share a scale. Bound by traffic.
//
// A code is linear, a whole number from -127 to 127, where BASE is 0. Else it is dynamic: its rank counts the
// values of one sign, BASE * 2^k + j for value j of BASE * 2^k in decade k, which are
//
//   10^(k - 6) * (0.1 + 0.9 * (j + 1/2) / (BASE * 2^k)),   k < DECADES;   below them 0, above them 1
//
// BASE is 1 for signed codes, where the rank counts up and down from the code ZERO, and 2 for unsigned ones,
// where it counts from 1.

constexpr float LARGEST_LINEAR = 127.0f;
constexpr float LOWEST_POWER = 1e-6f;

__shared__ Shared<float, (WORKGROUP + WARP - 1) / WARP> warps;

// Whether codes and scales may be written over. Where they are new, another tensor stands in for the number.
__device__ bool updates(const Args &args) { return UPDATE == 0 || args.ok.load(0) != 0.0f; }

// scale[k] = max |x| over block k / largest code. LANES neighbouring threads own a block and read it four elements at a
// time, side by side.
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
    if (lane == 0 && first < args.elements && updates(args)) {
        args.scale.store(args.first_block + k, BASE == 0 ? largest / LARGEST_LINEAR : largest);
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

// Rank of the value nearest to `part`, from 0 to 1. A decade begins halfway between its first value and the last of
// the decade below.
__device__ float rank_of(float part) {
    float power = LOWEST_POWER;
    float values = float(BASE);
    float start = power * (0.05f + 0.225f / values);
    float count = 0.0f;
    float slope = 0.0f;
    for (unsigned k = 0; k < DECADES; k++) {
        if (part >= start) {
            count = values;
            slope = values / (0.9f * power);
        }
        start = power * (1.0f + 0.9f / values);
        power *= 10.0f;
        values *= 2.0f;
    }
    const float within = floorf(part * slope - count / 9.0f);
    const float inside = count + fminf(fmaxf(within, 0.0f), fmaxf(count - 1.0f, 0.0f));
    return part >= 1.0f - 0.45f / values ? values : inside;
}

// Value of this rank.
__device__ float magnitude(float rank) {
    float power = LOWEST_POWER;
    float first = float(BASE);
    float value = 0.0f;
    for (unsigned k = 0; k < DECADES; k++) {
        if (rank >= first) {
            value = power * (0.1f + 0.9f * ((rank - first + 0.5f) / first));
        }
        power *= 10.0f;
        first *= 2.0f;
    }
    return rank >= first ? 1.0f : value;
}

// Code of the value nearest to x / scale; that of 0 where the scale is.
__device__ float code_of(float x, float scale) {
    const float part = scale > 0.0f ? x / scale : 0.0f;
    if (BASE == 0) {
        return fminf(fmaxf(rintf(part), -LARGEST_LINEAR), LARGEST_LINEAR);
    }
    if (BASE == 2) {
        return fmaxf(rank_of(part), 1.0f) - 1.0f;
    }
    // There is no -1: the code before is the last.
    return fmaxf(float(ZERO) + tr_sign(part) * rank_of(fabsf(part)), 0.0f);
}

__device__ float value_of(float code) {
    if (BASE == 0) {
        return code;
    }
    if (BASE == 2) {
        return magnitude(code + 1.0f);
    }
    const float rank = code - float(ZERO);
    return tr_sign(rank) * magnitude(fabsf(rank));
}

// code[i]: nearest to x[i] / scale[i div block].
__device__ void codes(const Args &args) {
    const unsigned at = (args.first_group + blockIdx.x) * (4 * WORKGROUP) + 4 * threadIdx.x;
    if (at >= args.elements || !updates(args)) {
        return;
    }
    const unsigned count = smaller(args.elements - at, 4);
    const Four scale = scales_of(args, at, count);
    const Four x = args.x.load4(at);
    const Four code{code_of(x.x, scale.x), code_of(x.y, scale.y), code_of(x.z, scale.z), code_of(x.w, scale.w)};
    args.code.store4(at, code, count);
}

// x[i] = value(code[i])·scale[i div block]
__device__ void values(const Args &args) {
    const unsigned at = (args.first_group + blockIdx.x) * (4 * WORKGROUP) + 4 * threadIdx.x;
    if (at >= args.elements) {
        return;
    }
    const unsigned count = smaller(args.elements - at, 4);
    const Four code = args.code.load4(at);
    const Four value{value_of(code.x), value_of(code.y), value_of(code.z), value_of(code.w)};
    args.x.store4(at, value * scales_of(args, at, count), count);
}

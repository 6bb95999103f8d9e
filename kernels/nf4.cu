// 4-bit NormalFloat: BLOCK consecutive elements share a scale, and two codes a byte, the first in its upper half; see ops/quant/nf4.rs.
// A thread makes eight neighbours of four bytes. Bound by traffic.

// The level of a code, by halving: no table is indexed, which would live in memory.
__device__ float level(unsigned code) {
    const bool one = (code & 1) != 0;
    const bool two = (code & 2) != 0;
    const float a = two ? (one ? -0.3949175f : -0.52507305f) : (one ? -0.6961928f : -1.0f);
    const float b = two ? (one ? 0.0f : -0.091050036f) : (one ? -0.18477343f : -0.28444138f);
    const float c = two ? (one ? 0.33791524f : 0.2461123f) : (one ? 0.1609302f : 0.0795803f);
    const float d = two ? (one ? 1.0f : 0.72295684f) : (one ? 0.562617f : 0.44070983f);
    return (code & 8) != 0 ? ((code & 4) != 0 ? d : c) : ((code & 4) != 0 ? b : a);
}

// Levels of the four codes of two bytes.
__device__ Four levels(float first, float second) {
    const unsigned one = unsigned(first);
    const unsigned two = unsigned(second);
    return Four{level(one >> 4), level(one & 15), level(two >> 4), level(two & 15)};
}

__device__ void values(const Args &args) {
    const unsigned at = 8 * ((args.first_group + blockIdx.x) * WORKGROUP + threadIdx.x);
    if (at >= args.elements) {
        return;
    }
    const Four bytes = args.pairs.load4(at / 2);
    // Eight divides a block, so one scale serves all.
    const float scale = args.scale.load(args.first_block + at / BLOCK);
    args.x.store4(at, levels(bytes.x, bytes.y) * four(scale), smaller(args.elements - at, 4));
    if (at + 4 < args.elements) {
        args.x.store4(at + 4, levels(bytes.z, bytes.w) * four(scale), smaller(args.elements - at - 4, 4));
    }
}

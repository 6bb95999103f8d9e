// Moving elements: each of the output, or of a range of columns of its rows, is one of the input.
//
//   out[i₀, …, i₅] = x[first + Σ iₖ·STRIDEₖ − start·STRIDE₅]   where start ≤ i₅ < start + len
//
// and elsewhere 0 where CLEAR, else what it was. Values are never computed with: the core binds f32 as it is, and every
// other dtype as whole numbers, so that each bit pattern survives.
//
// A thread makes four neighbours of the output. ALIGNED: they are four neighbours of the input too. Bound by traffic:
// writes are coalesced, reads where the input's last axis stays last.

constexpr unsigned NOWHERE = 0xffffffffu;

// Element of x that belongs at `index` of out.
__device__ unsigned source(const Args &args, unsigned index) {
    unsigned rest = index / EXTENT5;
    const unsigned column = index - rest * EXTENT5 - args.start;
    if (column >= args.len) {
        return NOWHERE;
    }
    unsigned element = args.first + column * STRIDE5;
    element += rest % EXTENT4 * STRIDE4;
    rest /= EXTENT4;
    element += rest % EXTENT3 * STRIDE3;
    rest /= EXTENT3;
    element += rest % EXTENT2 * STRIDE2;
    rest /= EXTENT2;
    element += rest % EXTENT1 * STRIDE1;
    return element + rest / EXTENT1 * STRIDE0;
}

__device__ void strided(const Args &args) {
    const unsigned at = (args.first_group + blockIdx.x) * (4 * WORKGROUP) + 4 * threadIdx.x;
    if (at >= args.elements) {
        return;
    }
    const unsigned count = smaller(args.elements - at, 4);
    if (ALIGNED) {
        const unsigned origin = source(args, at);
        if (origin != NOWHERE) {
            args.out.store4(at, args.x.load4(origin), count);
        } else if (CLEAR) {
            args.out.store4(at, four(0.0f), count);
        }
        return;
    }
    for (unsigned i = 0; i < count; i++) {
        const unsigned origin = source(args, at + i);
        if (origin != NOWHERE) {
            args.out.set(at + i, args.x.raw(origin));
        } else if (CLEAR) {
            args.out.store(at + i, 0.0f);
        }
    }
}

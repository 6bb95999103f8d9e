// Arguments of N launches that run as one. The blocks of launch i are those before ends[i] that come after the ones of the
// launches before; what it calls its first group is counted back by as many, so that it numbers its blocks as alone.
template <class Args, unsigned N> struct Several {
    Args list[N];
    unsigned ends[N];

    // Those of the launch that a block belongs to.
    __device__ const Args &of(unsigned block) const {
        unsigned before = 0;
#pragma unroll
        for (unsigned step = 1u << 31; step > 0; step /= 2) {
            if (step < N && before + step < N && block >= ends[before + step - 1]) before += step;
        }
        return list[before];
    }
};

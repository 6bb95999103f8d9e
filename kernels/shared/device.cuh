// What kernels use of a GPU that their emulation on a processor has to do in another way; the twin of the
// headers in emulator.

// Accessors of tensors know where they're called, and that what they touch exists; a GPU checks neither.
#define TR_HERE
#define TR_HOLDS(index, count, verb)
#define TR_ALIGNED(index)

// An array that the threads of a block share: `__shared__ Shared<float, N> name;`.
template <class T, unsigned N> struct Shared {
    T data[N];

    __device__ T &operator[](unsigned index) { return data[index]; }
};

__device__ float tr_half_to_float(unsigned short bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

__device__ unsigned short tr_float_to_half(float value) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

// Power of 2, at most 2^-22 of it off; zero below the least normal number.
__device__ float tr_exp2(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

// How many have come of those that leave something for the last of them, blocks or warps: zero before a launch, and after it. It's memory
// of the kernel's code, `static __device__ Counter name[N];`, so launches of a kernel that runs as one of several can't have any.
struct Counter {
    unsigned come;
};

// Counts the thread in. Whether it's the last of `all`; then it knows of all that others knew of as they came. Counters go from `all` - 1
// back to zero.
__device__ bool tr_count_in(Counter &counter, unsigned all) {
    unsigned come;
    asm volatile("{\n"
                 ".reg .u64 at;\n"
                 "cvta.to.global.u64 at, %1;\n"
                 "fence.acq_rel.gpu;\n"
                 "atom.relaxed.gpu.global.inc.u32 %0, [at], %2;\n"
                 "fence.acq_rel.gpu;\n"
                 "}"
                 : "=r"(come)
                 : "l"(&counter.come), "r"(all - 1)
                 : "memory");
    return come == all - 1;
}

// Whether the block is the last of `all` that come to a counter. Each of its threads gets the answer, by memory that no other thread
// still reads.
__device__ bool tr_comes_last(Counter &counter, unsigned all, Shared<unsigned, 1> &last) {
    __syncthreads();
    if (threadIdx.x == 0) {
        last[0] = tr_count_in(counter, all);
    }
    __syncthreads();
    return last[0] != 0;
}

// The same for a warp.
__device__ bool tr_warp_comes_last(Counter &counter, unsigned all) {
    __syncwarp();
    unsigned last = 0;
    if (threadIdx.x % 32 == 0) {
        last = tr_count_in(counter, all);
    }
    last = __shfl_sync(0xffffffffu, last, 0);
    __syncwarp();
    return last != 0;
}

// Stores the first `count` of four for who comes last, and loads what others have left where that's this one.
template <class Stored, class Value>
__device__ void tr_leave(const Stored &stored, unsigned at, const Value &value, unsigned count) {
    stored.store4(at, value, count);
}

template <class Stored> __device__ auto tr_left(const Stored &stored, unsigned at) { return stored.load4(at); }

// 16 bytes, which copies and tensor cores move together.
struct alignas(16) Chunk {
    unsigned word[4];
};

template <unsigned N> __device__ unsigned tr_shared_address(Shared<Chunk, N> &tile, unsigned index) {
    return unsigned(__cvta_generic_to_shared(&tile.data[index]));
}

// One word of a chunk.
template <unsigned N> __device__ unsigned tr_word(Shared<Chunk, N> &tile, unsigned index, unsigned word) {
    return tile.data[index].word[word];
}

#if __CUDA_ARCH__ >= 800
// Begins to copy a chunk's elements of a tensor, from `further` elements past `from` on, or zeros where they don't exist. Copies from
// the same element differ in a constant of the instruction alone.
template <unsigned N, class Stored>
__device__ void tr_copy_async(Shared<Chunk, N> &tile, unsigned to, const Stored &stored, unsigned from, bool exists,
                              unsigned further = 0) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(tr_shared_address(tile, to)), "l"(__cvta_generic_to_global(stored.data + from + further)),
                 "r"(exists ? 16 : 0)
                 : "memory");
}

// Begins to copy one number.
template <unsigned N, class Stored>
__device__ void tr_copy_word_async(Shared<float, N> &array, unsigned to, const Stored &stored, unsigned from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
                 :
                 : "r"(unsigned(__cvta_generic_to_shared(&array.data[to]))), "l"(__cvta_generic_to_global(stored.data + from))
                 : "memory");
}

// Ends a group of copies.
__device__ void tr_commit_copies() { asm volatile("cp.async.commit_group;" : : : "memory"); }

// Waits for the thread's own copies, the newest N groups apart.
template <unsigned N> __device__ void tr_wait_copies() { asm volatile("cp.async.wait_group %0;" : : "n"(N) : "memory"); }
#else
// Without copies beside other work, each ends before the next begins.
template <unsigned N, class Stored>
__device__ void tr_copy_async(Shared<Chunk, N> &tile, unsigned to, const Stored &stored, unsigned from, bool exists,
                              unsigned further = 0) {
    tile.data[to] = exists ? *reinterpret_cast<const Chunk *>(stored.data + from + further) : Chunk{};
}

template <unsigned N, class Stored>
__device__ void tr_copy_word_async(Shared<float, N> &array, unsigned to, const Stored &stored, unsigned from) {
    array.data[to] = stored.data[from];
}

__device__ void tr_commit_copies() {}

template <unsigned N> __device__ void tr_wait_copies() {}
#endif

// Four matrices of 8 rows of 16 bytes, here of 8 elements, of which a lane of the warp names a row each. It gets elements 2·(lane % 4) and the next of row
// lane / 4 of each; of column lane / 4 where TURNED.
template <bool TURNED, unsigned N>
__device__ void tr_load_matrices(unsigned (&to)[4], Shared<Chunk, N> &tile, unsigned index) {
    const unsigned address = tr_shared_address(tile, index);
    if (TURNED) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(address)
                     : "memory");
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(address)
                     : "memory");
    }
}

struct Bf16;
struct F16;

// Two neighbours in a word, rounded to nearest, ties to even.
template <class T> __device__ unsigned tr_round_pair(float low, float high);

// sums += a · b on tensor cores: a is 16 × 16 by rows, b 16 × 8 by columns, in the layouts of mma.m16n8k16.
template <class T> __device__ void tr_multiply_add(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1);

// The bits of a float, rounded to those of TF32: 10 after the point, to nearest, ties away from zero.
__device__ unsigned tr_round_tf32(unsigned bits);

#if __CUDA_ARCH__ >= 800
template <> __device__ unsigned tr_round_pair<Bf16>(float low, float high) {
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

template <> __device__ unsigned tr_round_pair<F16>(float low, float high) {
    unsigned pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

template <>
__device__ void tr_multiply_add<Bf16>(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
__device__ void tr_multiply_add<F16>(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ unsigned tr_round_tf32(unsigned bits) {
    unsigned rounded;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(__uint_as_float(bits)));
    return rounded;
}

// The same of TF32: a is 16 × 8 by rows, b 8 × 8 by columns, in the layouts of mma.m16n8k8.
template <>
__device__ void tr_multiply_add<float>(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#else
template <> __device__ unsigned tr_round_pair<F16>(float low, float high) {
    return tr_float_to_half(low) | unsigned(tr_float_to_half(high)) << 16;
}

// Turing's tensor cores multiply f16 alone, and half as deep: a and b are two of mma.m16n8k8's side by side.
__device__ void tr_multiply_add_half(float (&sums)[4], unsigned a0, unsigned a1, unsigned b) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a0), "r"(a1), "r"(b));
}

template <>
__device__ void tr_multiply_add<F16>(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    tr_multiply_add_half(sums, a[0], a[1], b0);
    tr_multiply_add_half(sums, a[2], a[3], b1);
}
#endif

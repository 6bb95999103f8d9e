// Products by groups of four warps as attention needs them; comes after hopper.cuh. The twin of
// emulator/warpgroups.h.

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// Lets products use registers that the thread has written, once tr_show_sums() has shown them: sums or factors.
template <unsigned N> __device__ void tr_show_registers(float (&sums)[N]) {
#pragma unroll
    for (unsigned i = 0; i < N; i++) {
        asm volatile("" : "+f"(sums[i]) : : "memory");
    }
}

template <unsigned N> __device__ void tr_show_registers(unsigned (&factors)[N][4]) {
#pragma unroll
    for (unsigned i = 0; i < N; i++) {
        asm volatile("" : "+r"(factors[i][0]), "+r"(factors[i][1]), "+r"(factors[i][2]), "+r"(factors[i][3]) : : "memory");
    }
}

// Waits for all sets of products but the newest NEWEST; what the sets before them write to these sums is read after it.
template <unsigned NEWEST, unsigned N> __device__ void tr_finish_sets(float (&sums)[N]) {
    tr_wait_products<NEWEST>();
    tr_show_registers(sums);
}

// As tr_exp2, and stays in its place between waits: the compiler (13.0) would put a wait for products before it.
__device__ float tr_exp2_in_place(float x) {
    float power;
    asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

// Moves a word, or two neighbouring ones, of shared memory that the launch sizes.
__device__ void tr_store_word(unsigned address, unsigned word) {
    asm volatile("st.shared.b32 [%0], %1;" : : "r"(address), "r"(word) : "memory");
}

__device__ void tr_load_two(unsigned address, float &first, float &second) {
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(first), "=f"(second) : "r"(address) : "memory");
}

// A number that is each block's own, counted in the order in which blocks ask for it.
template <class Counts> __device__ unsigned tr_take_ticket(const Counts &counts, unsigned index) {
    return atomicAdd(counts.data + index, 1u);
}

// Waits, for a warp, until a count has come to a value; then the warp knows of what the one that passed it on has stored.
template <class Counts> __device__ void tr_wait_count(const Counts &counts, unsigned index, unsigned value) {
    if (threadIdx.x % 32 == 0) {
        unsigned count;
        do {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                         : "=r"(count)
                         : "l"(__cvta_generic_to_global(counts.data + index))
                         : "memory");
        } while (count != value);
    }
    __syncwarp();
}

// Sets a count for a warp, all of whose lanes have stored what others wait for.
template <class Counts> __device__ void tr_pass_count(const Counts &counts, unsigned index, unsigned value) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
        asm volatile("st.release.gpu.global.u32 [%0], %1;"
                     :
                     : "l"(__cvta_generic_to_global(counts.data + index)), "r"(value)
                     : "memory");
    }
}

// Begins sums = a · b, as tr_multiply_async begins sums += a · b.
template <class T, bool A_TURNED, bool B_TURNED, unsigned N>
__device__ void tr_multiply_anew(float (&sums)[N], unsigned long long a, unsigned long long b);

// Begins sums += a · b with a in registers: a warp has 16 rows of it, in the layout of mma.m16n8k16.
template <class T, bool B_TURNED, unsigned N>
__device__ void tr_multiply_registers(float (&sums)[N], const unsigned (&a)[4], unsigned long long b);

#define TR_EIGHT_ANEW(i) \
    "=f"(sums[i]), "=f"(sums[i + 1]), "=f"(sums[i + 2]), "=f"(sums[i + 3]), "=f"(sums[i + 4]), "=f"(sums[i + 5]), \
        "=f"(sums[i + 6]), "=f"(sums[i + 7])
#define TR_16(EIGHT, i) EIGHT(i), EIGHT(i + 8)
#define TR_32(EIGHT, i) TR_16(EIGHT, i), TR_16(EIGHT, i + 16)
#define TR_64(EIGHT, i) TR_32(EIGHT, i), TR_32(EIGHT, i + 32)
#define TR_LIST_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define TR_LIST_32 TR_LIST_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define TR_LIST_64 TR_FIRST_64

// N columns from shared memory; P and Q are the operands after as many sums as a thread has. GOES_ON says whether sums are
// added to.
#define TR_MULTIPLY_SHARED(FUNCTION, T, NAME, A_TURNED, B_TURNED, N, SUMS, EIGHT, GOES_ON, P, Q, R, S) \
    template <> \
    __device__ void FUNCTION<T, A_TURNED, B_TURNED, SUMS>(float (&sums)[SUMS], unsigned long long a, unsigned long long b) { \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME "." NAME " {" TR_LIST_##SUMS "}, " P ", " Q \
                     ", " GOES_ON ", 1, 1, " R ", " S ";" \
                     : TR_##SUMS(EIGHT, 0) \
                     : "l"(a), "l"(b), "n"(int(A_TURNED)), "n"(int(B_TURNED))); \
    }
#define TR_MULTIPLY_REGISTERS(T, NAME, N, SUMS, A0, A1, A2, A3, B, S) \
    template <> \
    __device__ void tr_multiply_registers<T, true, SUMS>(float (&sums)[SUMS], const unsigned (&a)[4], unsigned long long b) { \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME "." NAME " {" TR_LIST_##SUMS "}, {" A0 ", " A1 \
                     ", " A2 ", " A3 "}, " B ", 1, 1, 1, " S ";" \
                     : TR_##SUMS(TR_EIGHT, 0) \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(1)); \
    }
#define TR_ATTENTION_PRODUCTS(T, NAME) \
    TR_MULTIPLY_SHARED(tr_multiply_anew, T, NAME, false, false, 64, 32, TR_EIGHT_ANEW, "0", "%32", "%33", "%34", "%35") \
    TR_MULTIPLY_SHARED(tr_multiply_anew, T, NAME, false, false, 128, 64, TR_EIGHT_ANEW, "0", "%64", "%65", "%66", "%67") \
    TR_MULTIPLY_SHARED(tr_multiply_async, T, NAME, false, false, 64, 32, TR_EIGHT, "1", "%32", "%33", "%34", "%35") \
    TR_MULTIPLY_SHARED(tr_multiply_async, T, NAME, true, true, 32, 16, TR_EIGHT, "1", "%16", "%17", "%18", "%19") \
    TR_MULTIPLY_SHARED(tr_multiply_async, T, NAME, true, true, 64, 32, TR_EIGHT, "1", "%32", "%33", "%34", "%35") \
    TR_MULTIPLY_REGISTERS(T, NAME, 64, 32, "%32", "%33", "%34", "%35", "%36", "%37") \
    TR_MULTIPLY_REGISTERS(T, NAME, 128, 64, "%64", "%65", "%66", "%67", "%68", "%69")

TR_ATTENTION_PRODUCTS(Bf16, "bf16")
TR_ATTENTION_PRODUCTS(F16, "f16")
#endif

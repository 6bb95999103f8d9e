// Instructions that only code for Hopper alone may have: barriers in shared memory that count bytes, copies of boxes by
// the copy engine, and products by groups of four warps. The twin of emulator/hopper.h and of emulator/warpgroups.h.
//
// All of them know shared memory by its address in bytes.

// A tensor as the copy engine knows it; the driver writes it.
struct alignas(128) TensorMap {
    unsigned long long words[16];
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// Threads of the four warps that multiply together.
constexpr unsigned WARP_GROUP = 128;

extern __shared__ __align__(1024) unsigned char tr_dynamic[];

// First address of the shared memory whose size the launch says; swizzling repeats from there on.
__device__ unsigned tr_dynamic_shared() { return unsigned(__cvta_generic_to_shared(tr_dynamic)); }

// Sets up a barrier of eight bytes, each of whose phases ends once so many have arrived, and all bytes that were announced.
__device__ void tr_init_barrier(unsigned barrier, unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(barrier), "r"(arrivals) : "memory");
}

// Lets the copy engine see the barriers that the thread has set up.
__device__ void tr_show_barriers() {
    asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
}

__device__ void tr_arrive(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(barrier) : "memory");
}

// Arrives, and announces bytes that the phase waits for too.
__device__ void tr_arrive_for(unsigned barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" : : "r"(barrier), "r"(bytes) : "memory");
}

// Waits until the phase of this parity has ended; the one before the first is odd.
__device__ void tr_wait_phase(unsigned barrier, unsigned parity) {
    unsigned ended;
    do {
        asm volatile("{\n"
                     ".reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n"
                     "}"
                     : "=r"(ended)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    } while (ended == 0);
}

// Has the copy engine read a tensor map before it's needed.
__device__ void tr_prefetch(const TensorMap &map) {
    asm volatile("prefetch.tensormap [%0];" : : "l"(&map) : "memory");
}

// Begins to copy a box of a tensor, from these indices on, innermost first. What lies outside is zero; `barrier` counts the
// bytes of the whole box.
__device__ void tr_copy_box(unsigned to, const TensorMap &map, unsigned barrier, unsigned x, unsigned y, unsigned z) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5}], [%2];"
                 :
                 : "r"(to), "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

// Stores four matrices of 8 × 8 elements of 16 bits for a warp. A lane has two neighbours of row lane / 4 of each in a word, as in
// the sums of mma.m16n8k16, and says where row lane % 8 of matrix lane / 8 goes.
__device__ void tr_store_matrices(unsigned address, unsigned first, unsigned second, unsigned third, unsigned fourth) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(address), "r"(first), "r"(second), "r"(third), "r"(fourth)
                 : "memory");
}

// Lets products and the copy engine read what the thread has stored, once others know of it.
__device__ void tr_show_stores() { asm volatile("fence.proxy.async.shared::cta;" : : : "memory"); }

// All lanes of a warp know of what each has stored.
__device__ void tr_meet_warp() { __syncwarp(); }

// Begins to copy a box of shared memory to a tensor, from these indices on, innermost first. What lies outside isn't stored.
__device__ void tr_store_box(const TensorMap &map, unsigned from, unsigned x, unsigned y, unsigned z) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];\n"
                 "cp.async.bulk.commit_group;"
                 :
                 : "l"(&map), "r"(from), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

// Waits until all boxes that the thread has stored have been read.
__device__ void tr_wait_boxes_read() { asm volatile("cp.async.bulk.wait_group.read 0;" : : : "memory"); }

// Meets all threads of a cluster's blocks, whose shared memory each of them may use from then on, or no more.
__device__ void tr_meet_cluster() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" : : : "memory");
}

// Arrives at the barrier that lies at this address in a block of the cluster.
__device__ void tr_arrive_within(unsigned barrier, unsigned rank) {
    asm volatile("{\n"
                 ".reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n"
                 "}"
                 :
                 : "r"(barrier), "r"(rank)
                 : "memory");
}

// Begins to copy a box to the same place of all BLOCKS of the cluster, each of whose barriers counts its bytes.
template <unsigned BLOCKS>
__device__ void tr_copy_box_to_all(unsigned to, const TensorMap &map, unsigned barrier, unsigned x, unsigned y, unsigned z) {
    constexpr unsigned short ALL = (1u << BLOCKS) - 1;
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%3, %4, %5}], [%2], %6;"
                 :
                 : "r"(to), "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z), "h"(ALL)
                 : "memory");
}

// Gives registers of each thread of a group of warps back, or takes some that others gave back: N are left.
template <unsigned N> __device__ void tr_fewer_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(N));
}

template <unsigned N> __device__ void tr_more_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(N));
}

// Products may use the sums that the thread has written.
__device__ void tr_show_sums() { asm volatile("wgmma.fence.sync.aligned;" : : : "memory"); }

// Ends a set of products.
__device__ void tr_commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory"); }

// Waits for all sets of products but the newest N.
template <unsigned N> __device__ void tr_wait_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(N) : "memory");
}

// Waits for all products into these sums, which are read after it and not before.
template <unsigned N> __device__ void tr_finish_products(float (&sums)[N]) {
    tr_wait_products<0>();
#pragma unroll
    for (unsigned i = 0; i < N; i++) {
        asm volatile("" : "+f"(sums[i]) : : "memory");
    }
}

// Begins sums += a · b, where a is 64 × 16 and b 16 × 2·N, of shared memory that descriptors describe. TURNED: neighbours
// lie along rows or columns of the product, and not along K. A group of warps does it together, each thread with its part of
// the sums in the layout of wgmma.m64nNk16.
template <class T, bool A_TURNED, bool B_TURNED, unsigned N>
__device__ void tr_multiply_async(float (&sums)[N], unsigned long long a, unsigned long long b);

#define TR_EIGHT(i) \
    "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]), "+f"(sums[i + 4]), "+f"(sums[i + 5]), \
        "+f"(sums[i + 6]), "+f"(sums[i + 7])
#define TR_SIXTY_FOUR(i) \
    TR_EIGHT(i), TR_EIGHT(i + 8), TR_EIGHT(i + 16), TR_EIGHT(i + 24), TR_EIGHT(i + 32), TR_EIGHT(i + 40), \
        TR_EIGHT(i + 48), TR_EIGHT(i + 56)
#define TR_FIRST_64 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define TR_NEXT_64 \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

// Of all widths for one type and one order of storage.
#define TR_MULTIPLY(T, NAME, A_TURNED, B_TURNED) \
    template <> \
    __device__ void tr_multiply_async<T, A_TURNED, B_TURNED, 4>(float (&sums)[4], unsigned long long a, \
                                                                unsigned long long b) { \
        asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32." NAME "." NAME " {%0, %1, %2, %3}, %4, %5, 1, 1, 1, %6, %7;" \
                     : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]) \
                     : "l"(a), "l"(b), "n"(int(A_TURNED)), "n"(int(B_TURNED))); \
    } \
    template <> \
    __device__ void tr_multiply_async<T, A_TURNED, B_TURNED, 64>(float (&sums)[64], unsigned long long a, \
                                                                 unsigned long long b) { \
        asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." NAME "." NAME " {" TR_FIRST_64 \
                     "}, %64, %65, 1, 1, 1, %66, %67;" \
                     : TR_SIXTY_FOUR(0) \
                     : "l"(a), "l"(b), "n"(int(A_TURNED)), "n"(int(B_TURNED))); \
    } \
    template <> \
    __device__ void tr_multiply_async<T, A_TURNED, B_TURNED, 128>(float (&sums)[128], unsigned long long a, \
                                                                  unsigned long long b) { \
        asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32." NAME "." NAME " {" TR_FIRST_64 ", " TR_NEXT_64 \
                     "}, %128, %129, 1, 1, 1, %130, %131;" \
                     : TR_SIXTY_FOUR(0), TR_SIXTY_FOUR(64) \
                     : "l"(a), "l"(b), "n"(int(A_TURNED)), "n"(int(B_TURNED))); \
    }
#define TR_MULTIPLY_ORDERS(T, NAME) \
    TR_MULTIPLY(T, NAME, false, false) \
    TR_MULTIPLY(T, NAME, false, true) \
    TR_MULTIPLY(T, NAME, true, false) \
    TR_MULTIPLY(T, NAME, true, true)

TR_MULTIPLY_ORDERS(Bf16, "bf16")
TR_MULTIPLY_ORDERS(F16, "f16")
#endif

// What kernels use of a GPU that their emulation on a processor has to do in another way; the twin of
// emulator/cuda_on_cpu.h.

// Accessors of tensors know where they're called, and that what they touch exists; a GPU checks neither.
#define TR_HERE
#define TR_HOLDS(index, count, verb)

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

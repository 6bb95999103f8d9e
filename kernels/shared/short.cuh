// Functions for what is rounded to bf16, faster than those for f32. Their twins are in emulator/cuda_on_cpu.h.

// Within 2^-11 of itself (PTX ISA, tanh).
__device__ float tr_short_tanh(float x) {
    float result;
    asm("tanh.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

// Within 2^-20 of itself, by a power and a reciprocal (PTX ISA, ex2 and rcp): a branch less than a division.
__device__ float tr_short_sigmoid(float x) {
    const float more = 1.0f + tr_exp2(-1.44269504f * x);
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(more));
    return result;
}

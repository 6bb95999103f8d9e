// Functions that formulas and kernels share; the core's dialect printer names them.

__device__ float tr_sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

__device__ float tr_sign(float x) { return x > 0.0f ? 1.0f : (x < 0.0f ? -1.0f : x); }

// Bits, because a compiler may be told that no value is infinite.
__device__ float tr_is_finite(float x) {
    return (__float_as_uint(x) & 0x7f800000u) == 0x7f800000u ? 0.0f : 1.0f;
}

__device__ bool tr_is_nan(float x) { return (__float_as_uint(x) & 0x7fffffffu) > 0x7f800000u; }

// The bf16 weight of an f32 master, ties away from zero, and the signed rest in units of the last place.
__device__ float tr_high_half(float x) {
    const unsigned bits = __float_as_uint(x);
    const unsigned rounded = (bits + 0x8000u) & 0xffff0000u;
    const unsigned quiet = (bits & 0xffff0000u) | 0x400000u;
    return __uint_as_float(tr_is_nan(x) ? quiet : rounded);
}

__device__ float tr_low_half(float x) {
    const unsigned bits = __float_as_uint(x);
    const int rest = int(bits - ((bits + 0x8000u) & 0xffff0000u));
    return tr_is_nan(x) ? 0.0f : float(rest);
}

__device__ float tr_join_halves(float high, float low) {
    return __uint_as_float(__float_as_uint(high) + unsigned(int(low)));
}

// One of the two bf16 that x lies between, the one farther from 0 with a probability of the part of their distance
// that x has come. What isn't finite stays as it is.
__device__ float tr_stochastic_half(float x, float uniform) {
    const unsigned bits = __float_as_uint(x);
    const unsigned rounded = (bits + unsigned(uniform * 65536.0f)) & 0xffff0000u;
    return __uint_as_float((bits & 0x7f800000u) == 0x7f800000u ? bits : rounded);
}

// Upper half, rounded to nearest, ties to even; a NaN stays one.
__device__ unsigned short tr_round_bf16(float x) {
    const unsigned bits = __float_as_uint(x);
    const unsigned rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    return (unsigned short)((tr_is_nan(x) ? bits | 0x400000u : rounded) >> 16);
}

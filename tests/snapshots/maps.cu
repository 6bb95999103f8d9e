-> 1.0f

const float v0 = (in0 + in1);
-> v0

const float v0 = __fmul_rn(in0, in0);
const float v1 = __fmul_rn(0.071354814f, v0);
const float v2 = (1.5957692f + v1);
const float v3 = __fmul_rn(in0, v2);
const float v4 = tr_sigmoid(v3);
const float v5 = __fmul_rn(in0, v4);
-> v5

const float v0 = __fmul_rn(in0, in0);
const float v1 = __fmul_rn(0.071354814f, v0);
const float v2 = (1.5957692f + v1);
const float v3 = __fmul_rn(in0, v2);
const float v4 = tr_sigmoid(v3);
const float v5 = (1.0f - v4);
const float v6 = __fmul_rn(v4, v5);
const float v7 = __fmul_rn(0.14270963f, v0);
const float v8 = (v2 + v7);
const float v9 = __fmul_rn(v6, v8);
const float v10 = __fmul_rn(in0, v9);
const float v11 = (v4 + v10);
const float v12 = __fmul_rn(v11, in1);
-> v12

-> 0.0f

const float v0 = sqrtf(in0);
const float v1 = tr_is_finite(v0);
const float v2 = tr_is_finite(in1);
const float v3 = __fmul_rn(v1, v2);
const float v4 = (v0 + 1e-6f);
const float v5 = (1.0f / v4);
const float v6 = fminf(v5, 1.0f);
-> v0, v3, v6

const float v0 = tr_join_halves(in5, in6);
const float v1 = __fmul_rn(in2, in3);
const float v2 = __fmul_rn(0.9f, in8);
const float v3 = __fmul_rn(in7, in1);
const float v4 = __fmul_rn(0.1f, v3);
const float v5 = (v2 + v4);
const float v6 = __fmul_rn(v1, v5);
const float v7 = __fmul_rn(0.99f, in9);
const float v8 = __fmul_rn(v3, v3);
const float v9 = __fmul_rn(0.01f, v8);
const float v10 = (v7 + v9);
const float v11 = sqrtf(v10);
const float v12 = __fmul_rn(v11, in4);
const float v13 = (v12 + 1e-8f);
const float v14 = (v6 / v13);
const float v15 = (v0 - v14);
const float v16 = tr_high_half(v15);
const float v17 = (in0 != 0.0f ? v16 : in5);
const float v18 = tr_low_half(v15);
const float v19 = (in0 != 0.0f ? v18 : in6);
const float v20 = (in0 != 0.0f ? v5 : in8);
const float v21 = (in0 != 0.0f ? v10 : in9);
-> v17, v19, v20, v21

const float v0 = tr_join_halves(in5, in6);
const float v1 = __fmul_rn(in2, 0.1f);
const float v2 = (1.0f - v1);
const float v3 = __fmul_rn(v0, v2);
const float v4 = __fmul_rn(in2, in3);
const float v5 = __fmul_rn(0.9f, in8);
const float v6 = __fmul_rn(in7, in1);
const float v7 = __fmul_rn(0.1f, v6);
const float v8 = (v5 + v7);
const float v9 = __fmul_rn(v4, v8);
const float v10 = __fmul_rn(0.99f, in9);
const float v11 = __fmul_rn(v6, v6);
const float v12 = __fmul_rn(0.01f, v11);
const float v13 = (v10 + v12);
const float v14 = sqrtf(v13);
const float v15 = __fmul_rn(v14, in4);
const float v16 = (v15 + 1e-8f);
const float v17 = (v9 / v16);
const float v18 = (v3 - v17);
const float v19 = tr_high_half(v18);
const float v20 = (in0 != 0.0f ? v19 : in5);
const float v21 = tr_low_half(v18);
const float v22 = (in0 != 0.0f ? v21 : in6);
const float v23 = (in0 != 0.0f ? v8 : in8);
const float v24 = (in0 != 0.0f ? v13 : in9);
-> v20, v22, v23, v24

const float v0 = __fmul_rn(in0, in1);
-> v0

const float v0 = tr_sigmoid(in0);
const float v1 = __fmul_rn(in0, v0);
const float v2 = __fmul_rn(v1, in1);
-> v2

const float v0 = tr_sigmoid(in0);
const float v1 = (1.0f - v0);
const float v2 = __fmul_rn(v0, v1);
const float v3 = __fmul_rn(in0, v2);
const float v4 = (v0 + v3);
const float v5 = __fmul_rn(v4, in1);
const float v6 = __fmul_rn(v5, in2);
const float v7 = __fmul_rn(in0, v0);
const float v8 = __fmul_rn(v7, in2);
-> v6, v8

const float v0 = __fmul_rn(in1, in2);
const float v1 = (in0 + v0);
-> v1

const float v0 = sqrtf(in0);
const float v1 = (v0 / in2);
const float v2 = tr_is_finite(v1);
const float v3 = tr_is_finite(in1);
const float v4 = __fmul_rn(v2, v3);
const float v5 = (v1 + 1e-6f);
const float v6 = (1.0f / v5);
const float v7 = fminf(v6, 1.0f);
const float v8 = (v7 / in2);
-> v1, v4, v8

const float v0 = __fmul_rn(in2, in3);
const float v1 = __fmul_rn(0.9f, in8);
const float v2 = __fmul_rn(in7, in1);
const float v3 = __fmul_rn(0.1f, v2);
const float v4 = (v1 + v3);
const float v5 = __fmul_rn(v0, v4);
const float v6 = __fmul_rn(0.99f, in9);
const float v7 = __fmul_rn(v2, v2);
const float v8 = __fmul_rn(0.01f, v7);
const float v9 = (v6 + v8);
const float v10 = sqrtf(v9);
const float v11 = __fmul_rn(v10, in4);
const float v12 = (v11 + 1e-8f);
const float v13 = (v5 / v12);
const float v14 = (in6 - v13);
const float v15 = (in0 != 0.0f ? v14 : in5);
const float v16 = (in0 != 0.0f ? v14 : in6);
const float v17 = (in0 != 0.0f ? v4 : in8);
const float v18 = (in0 != 0.0f ? v9 : in9);
-> v15, v16, v17, v18, 0.0f

const float v0 = __fmul_rn(in2, 0.1f);
const float v1 = (1.0f - v0);
const float v2 = __fmul_rn(in6, v1);
const float v3 = __fmul_rn(in2, in3);
const float v4 = __fmul_rn(0.9f, in8);
const float v5 = __fmul_rn(in7, in1);
const float v6 = __fmul_rn(0.1f, v5);
const float v7 = (v4 + v6);
const float v8 = __fmul_rn(v3, v7);
const float v9 = __fmul_rn(0.99f, in9);
const float v10 = __fmul_rn(v5, v5);
const float v11 = __fmul_rn(0.01f, v10);
const float v12 = (v9 + v11);
const float v13 = sqrtf(v12);
const float v14 = __fmul_rn(v13, in4);
const float v15 = (v14 + 1e-8f);
const float v16 = (v8 / v15);
const float v17 = (v2 - v16);
const float v18 = (in0 != 0.0f ? v17 : in5);
const float v19 = (in0 != 0.0f ? v17 : in6);
const float v20 = (in0 != 0.0f ? v7 : in8);
const float v21 = (in0 != 0.0f ? v12 : in9);
-> v18, v19, v20, v21, 0.0f

const float v0 = (in2 + 1.0f);
const float v1 = (v0 < 2000.0f ? 1.0f : 0.0f);
const float v2 = __fmul_rn(in1, 2.0f);
const float v3 = (v1 != 0.0f ? in1 : v2);
const float v4 = __fmul_rn(in1, 0.5f);
const float v5 = (in0 != 0.0f ? v3 : v4);
const float v6 = fmaxf(v5, 5.9604645e-8f);
const float v7 = fminf(v6, 16777216.0f);
const float v8 = (v1 != 0.0f ? v0 : 0.0f);
const float v9 = (in0 != 0.0f ? v8 : 0.0f);
-> v7, v9


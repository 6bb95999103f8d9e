-> 1.0f

let v0 = (in0 + in1);
-> v0

let v0 = (in0 * in0);
let v1 = (0.071354814f * v0);
let v2 = (1.5957692f + v1);
let v3 = (in0 * v2);
let v4 = tr_sigmoid(v3);
let v5 = (in0 * v4);
-> v5

let v0 = (in0 * in0);
let v1 = (0.071354814f * v0);
let v2 = (1.5957692f + v1);
let v3 = (in0 * v2);
let v4 = tr_sigmoid(v3);
let v5 = (1.0f - v4);
let v6 = (v4 * v5);
let v7 = (0.14270963f * v0);
let v8 = (v2 + v7);
let v9 = (v6 * v8);
let v10 = (in0 * v9);
let v11 = (v4 + v10);
let v12 = (v11 * in1);
-> v12

-> 0.0f

let v0 = sqrt(in0);
let v1 = tr_is_finite(v0);
let v2 = tr_is_finite(in1);
let v3 = (v1 * v2);
let v4 = (v0 + 1e-6f);
let v5 = (1.0f / v4);
let v6 = min(v5, 1.0f);
-> v0, v3, v6

let v0 = tr_join_halves(in5, in6);
let v1 = (in2 * in3);
let v2 = (0.9f * in8);
let v3 = (in7 * in1);
let v4 = (0.1f * v3);
let v5 = (v2 + v4);
let v6 = (v1 * v5);
let v7 = (0.99f * in9);
let v8 = (v3 * v3);
let v9 = (0.01f * v8);
let v10 = (v7 + v9);
let v11 = sqrt(v10);
let v12 = (v11 * in4);
let v13 = (v12 + 1e-8f);
let v14 = (v6 / v13);
let v15 = (v0 - v14);
let v16 = tr_high_half(v15);
let v17 = select(in5, v16, in0 != 0.0);
let v18 = tr_low_half(v15);
let v19 = select(in6, v18, in0 != 0.0);
let v20 = select(in8, v5, in0 != 0.0);
let v21 = select(in9, v10, in0 != 0.0);
-> v17, v19, v20, v21

let v0 = tr_join_halves(in5, in6);
let v1 = (in2 * 0.1f);
let v2 = (1.0f - v1);
let v3 = (v0 * v2);
let v4 = (in2 * in3);
let v5 = (0.9f * in8);
let v6 = (in7 * in1);
let v7 = (0.1f * v6);
let v8 = (v5 + v7);
let v9 = (v4 * v8);
let v10 = (0.99f * in9);
let v11 = (v6 * v6);
let v12 = (0.01f * v11);
let v13 = (v10 + v12);
let v14 = sqrt(v13);
let v15 = (v14 * in4);
let v16 = (v15 + 1e-8f);
let v17 = (v9 / v16);
let v18 = (v3 - v17);
let v19 = tr_high_half(v18);
let v20 = select(in5, v19, in0 != 0.0);
let v21 = tr_low_half(v18);
let v22 = select(in6, v21, in0 != 0.0);
let v23 = select(in8, v8, in0 != 0.0);
let v24 = select(in9, v13, in0 != 0.0);
-> v20, v22, v23, v24

let v0 = (in0 * in1);
-> v0

let v0 = tr_sigmoid(in0);
let v1 = (in0 * v0);
let v2 = (v1 * in1);
-> v2

let v0 = tr_sigmoid(in0);
let v1 = (1.0f - v0);
let v2 = (v0 * v1);
let v3 = (in0 * v2);
let v4 = (v0 + v3);
let v5 = (v4 * in1);
let v6 = (v5 * in2);
let v7 = (in0 * v0);
let v8 = (v7 * in2);
-> v6, v8

let v0 = (in1 * in2);
let v1 = (in0 + v0);
-> v1

let v0 = sqrt(in0);
let v1 = (v0 / in2);
let v2 = tr_is_finite(v1);
let v3 = tr_is_finite(in1);
let v4 = (v2 * v3);
let v5 = (v1 + 1e-6f);
let v6 = (1.0f / v5);
let v7 = min(v6, 1.0f);
let v8 = (v7 / in2);
-> v1, v4, v8

let v0 = (in2 * in3);
let v1 = (0.9f * in8);
let v2 = (in7 * in1);
let v3 = (0.1f * v2);
let v4 = (v1 + v3);
let v5 = (v0 * v4);
let v6 = (0.99f * in9);
let v7 = (v2 * v2);
let v8 = (0.01f * v7);
let v9 = (v6 + v8);
let v10 = sqrt(v9);
let v11 = (v10 * in4);
let v12 = (v11 + 1e-8f);
let v13 = (v5 / v12);
let v14 = (in6 - v13);
let v15 = select(in5, v14, in0 != 0.0);
let v16 = select(in6, v14, in0 != 0.0);
let v17 = select(in8, v4, in0 != 0.0);
let v18 = select(in9, v9, in0 != 0.0);
-> v15, v16, v17, v18, 0.0f

let v0 = (in2 * 0.1f);
let v1 = (1.0f - v0);
let v2 = (in6 * v1);
let v3 = (in2 * in3);
let v4 = (0.9f * in8);
let v5 = (in7 * in1);
let v6 = (0.1f * v5);
let v7 = (v4 + v6);
let v8 = (v3 * v7);
let v9 = (0.99f * in9);
let v10 = (v5 * v5);
let v11 = (0.01f * v10);
let v12 = (v9 + v11);
let v13 = sqrt(v12);
let v14 = (v13 * in4);
let v15 = (v14 + 1e-8f);
let v16 = (v8 / v15);
let v17 = (v2 - v16);
let v18 = select(in5, v17, in0 != 0.0);
let v19 = select(in6, v17, in0 != 0.0);
let v20 = select(in8, v7, in0 != 0.0);
let v21 = select(in9, v12, in0 != 0.0);
-> v18, v19, v20, v21, 0.0f

let v0 = (in2 + 1.0f);
let v1 = select(0.0, 1.0, v0 < 2000.0f);
let v2 = (in1 * 2.0f);
let v3 = select(v2, in1, v1 != 0.0);
let v4 = (in1 * 0.5f);
let v5 = select(v4, v3, in0 != 0.0);
let v6 = max(v5, 5.9604645e-8f);
let v7 = min(v6, 16777216.0f);
let v8 = select(0.0f, v0, v1 != 0.0);
let v9 = select(0.0f, v8, in0 != 0.0);
-> v7, v9


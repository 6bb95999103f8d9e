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

const float v0 = floorf(in1);
const float v1 = fmaxf(v0, 0.0f);
const float v2 = (v1 + in0);
const float v3 = (v1 + 1.0f);
const float v4 = (v3 < 256.0f ? 1.0f : 0.0f);
const float v5 = floorf(v3);
const float v6 = __fmul_rn(v3, 0.5f);
const float v7 = floorf(v6);
const float v8 = __fmul_rn(2.0f, v7);
const float v9 = (v5 - v8);
const float v10 = (v9 != 0.0f ? 0.1f : 0.0f);
const float v11 = __fmul_rn(v3, 0.25f);
const float v12 = floorf(v11);
const float v13 = __fmul_rn(2.0f, v12);
const float v14 = (v7 - v13);
const float v15 = (v14 != 0.0f ? 0.81f : 1.0f);
const float v16 = __fmul_rn(v10, v15);
const float v17 = (v14 != 0.0f ? 0.19f : 0.0f);
const float v18 = (v16 + v17);
const float v19 = __fmul_rn(v3, 0.125f);
const float v20 = floorf(v19);
const float v21 = __fmul_rn(2.0f, v20);
const float v22 = (v12 - v21);
const float v23 = (v22 != 0.0f ? 0.6561f : 1.0f);
const float v24 = __fmul_rn(v18, v23);
const float v25 = (v22 != 0.0f ? 0.3439f : 0.0f);
const float v26 = (v24 + v25);
const float v27 = __fmul_rn(v3, 0.0625f);
const float v28 = floorf(v27);
const float v29 = __fmul_rn(2.0f, v28);
const float v30 = (v20 - v29);
const float v31 = (v30 != 0.0f ? 0.43046722f : 1.0f);
const float v32 = __fmul_rn(v26, v31);
const float v33 = (v30 != 0.0f ? 0.5695328f : 0.0f);
const float v34 = (v32 + v33);
const float v35 = __fmul_rn(v3, 0.03125f);
const float v36 = floorf(v35);
const float v37 = __fmul_rn(2.0f, v36);
const float v38 = (v28 - v37);
const float v39 = (v38 != 0.0f ? 0.18530202f : 1.0f);
const float v40 = __fmul_rn(v34, v39);
const float v41 = (v38 != 0.0f ? 0.814698f : 0.0f);
const float v42 = (v40 + v41);
const float v43 = __fmul_rn(v3, 0.015625f);
const float v44 = floorf(v43);
const float v45 = __fmul_rn(2.0f, v44);
const float v46 = (v36 - v45);
const float v47 = (v46 != 0.0f ? 0.03433684f : 1.0f);
const float v48 = __fmul_rn(v42, v47);
const float v49 = (v46 != 0.0f ? 0.96566314f : 0.0f);
const float v50 = (v48 + v49);
const float v51 = __fmul_rn(v3, 0.0078125f);
const float v52 = floorf(v51);
const float v53 = __fmul_rn(2.0f, v52);
const float v54 = (v44 - v53);
const float v55 = (v54 != 0.0f ? 0.0011790184f : 1.0f);
const float v56 = __fmul_rn(v50, v55);
const float v57 = (v54 != 0.0f ? 0.99882096f : 0.0f);
const float v58 = (v56 + v57);
const float v59 = __fmul_rn(v3, 0.00390625f);
const float v60 = floorf(v59);
const float v61 = __fmul_rn(2.0f, v60);
const float v62 = (v52 - v61);
const float v63 = (v62 != 0.0f ? 1.3900845e-6f : 1.0f);
const float v64 = __fmul_rn(v58, v63);
const float v65 = (v62 != 0.0f ? 0.9999986f : 0.0f);
const float v66 = (v64 + v65);
const float v67 = (v4 != 0.0f ? v66 : 1.0f);
const float v68 = (1.0f / v67);
const float v69 = (v3 < 2048.0f ? 1.0f : 0.0f);
const float v70 = (v9 != 0.0f ? 0.01f : 0.0f);
const float v71 = (v14 != 0.0f ? 0.9801f : 1.0f);
const float v72 = __fmul_rn(v70, v71);
const float v73 = (v14 != 0.0f ? 0.0199f : 0.0f);
const float v74 = (v72 + v73);
const float v75 = (v22 != 0.0f ? 0.960596f : 1.0f);
const float v76 = __fmul_rn(v74, v75);
const float v77 = (v22 != 0.0f ? 0.03940399f : 0.0f);
const float v78 = (v76 + v77);
const float v79 = (v30 != 0.0f ? 0.9227447f : 1.0f);
const float v80 = __fmul_rn(v78, v79);
const float v81 = (v30 != 0.0f ? 0.07725531f : 0.0f);
const float v82 = (v80 + v81);
const float v83 = (v38 != 0.0f ? 0.8514578f : 1.0f);
const float v84 = __fmul_rn(v82, v83);
const float v85 = (v38 != 0.0f ? 0.14854223f : 0.0f);
const float v86 = (v84 + v85);
const float v87 = (v46 != 0.0f ? 0.72498035f : 1.0f);
const float v88 = __fmul_rn(v86, v87);
const float v89 = (v46 != 0.0f ? 0.27501968f : 0.0f);
const float v90 = (v88 + v89);
const float v91 = (v54 != 0.0f ? 0.5255965f : 1.0f);
const float v92 = __fmul_rn(v90, v91);
const float v93 = (v54 != 0.0f ? 0.4744035f : 0.0f);
const float v94 = (v92 + v93);
const float v95 = (v62 != 0.0f ? 0.27625167f : 1.0f);
const float v96 = __fmul_rn(v94, v95);
const float v97 = (v62 != 0.0f ? 0.7237483f : 0.0f);
const float v98 = (v96 + v97);
const float v99 = __fmul_rn(v3, 0.001953125f);
const float v100 = floorf(v99);
const float v101 = __fmul_rn(2.0f, v100);
const float v102 = (v60 - v101);
const float v103 = (v102 != 0.0f ? 0.076314986f : 1.0f);
const float v104 = __fmul_rn(v98, v103);
const float v105 = (v102 != 0.0f ? 0.923685f : 0.0f);
const float v106 = (v104 + v105);
const float v107 = __fmul_rn(v3, 0.0009765625f);
const float v108 = floorf(v107);
const float v109 = __fmul_rn(2.0f, v108);
const float v110 = (v100 - v109);
const float v111 = (v110 != 0.0f ? 0.005823977f : 1.0f);
const float v112 = __fmul_rn(v106, v111);
const float v113 = (v110 != 0.0f ? 0.99417603f : 0.0f);
const float v114 = (v112 + v113);
const float v115 = __fmul_rn(v3, 0.00048828125f);
const float v116 = floorf(v115);
const float v117 = __fmul_rn(2.0f, v116);
const float v118 = (v108 - v117);
const float v119 = (v118 != 0.0f ? 3.3918706e-5f : 1.0f);
const float v120 = __fmul_rn(v114, v119);
const float v121 = (v118 != 0.0f ? 0.9999661f : 0.0f);
const float v122 = (v120 + v121);
const float v123 = (v69 != 0.0f ? v122 : 1.0f);
const float v124 = sqrtf(v123);
const float v125 = (1.0f / v124);
-> v2, v68, v125

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

const float v0 = (in0 < 0.0f ? 1.0f : 0.0f);
const float v1 = (1.0f - v0);
-> v1

const float v0 = __fmul_rn(in0, in1);
-> v0

const float v0 = fmaxf(in1, 1.0f);
const float v1 = (in0 / v0);
-> v1

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
const float v10 = (in3 < in3 ? 1.0f : 0.0f);
const float v11 = (v10 != 0.0f ? in3 : in1);
-> v7, v9, v11


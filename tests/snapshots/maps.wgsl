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

let v0 = floor(in1);
let v1 = max(v0, 0.0f);
let v2 = (v1 + in0);
let v3 = (v1 + 1.0f);
let v4 = select(0.0, 1.0, v3 < 256.0f);
let v5 = floor(v3);
let v6 = (v3 * 0.5f);
let v7 = floor(v6);
let v8 = (2.0f * v7);
let v9 = (v5 - v8);
let v10 = select(0.0f, 0.1f, v9 != 0.0);
let v11 = (v3 * 0.25f);
let v12 = floor(v11);
let v13 = (2.0f * v12);
let v14 = (v7 - v13);
let v15 = select(1.0f, 0.81f, v14 != 0.0);
let v16 = (v10 * v15);
let v17 = select(0.0f, 0.19f, v14 != 0.0);
let v18 = (v16 + v17);
let v19 = (v3 * 0.125f);
let v20 = floor(v19);
let v21 = (2.0f * v20);
let v22 = (v12 - v21);
let v23 = select(1.0f, 0.6561f, v22 != 0.0);
let v24 = (v18 * v23);
let v25 = select(0.0f, 0.3439f, v22 != 0.0);
let v26 = (v24 + v25);
let v27 = (v3 * 0.0625f);
let v28 = floor(v27);
let v29 = (2.0f * v28);
let v30 = (v20 - v29);
let v31 = select(1.0f, 0.43046722f, v30 != 0.0);
let v32 = (v26 * v31);
let v33 = select(0.0f, 0.5695328f, v30 != 0.0);
let v34 = (v32 + v33);
let v35 = (v3 * 0.03125f);
let v36 = floor(v35);
let v37 = (2.0f * v36);
let v38 = (v28 - v37);
let v39 = select(1.0f, 0.18530202f, v38 != 0.0);
let v40 = (v34 * v39);
let v41 = select(0.0f, 0.814698f, v38 != 0.0);
let v42 = (v40 + v41);
let v43 = (v3 * 0.015625f);
let v44 = floor(v43);
let v45 = (2.0f * v44);
let v46 = (v36 - v45);
let v47 = select(1.0f, 0.03433684f, v46 != 0.0);
let v48 = (v42 * v47);
let v49 = select(0.0f, 0.96566314f, v46 != 0.0);
let v50 = (v48 + v49);
let v51 = (v3 * 0.0078125f);
let v52 = floor(v51);
let v53 = (2.0f * v52);
let v54 = (v44 - v53);
let v55 = select(1.0f, 0.0011790184f, v54 != 0.0);
let v56 = (v50 * v55);
let v57 = select(0.0f, 0.99882096f, v54 != 0.0);
let v58 = (v56 + v57);
let v59 = (v3 * 0.00390625f);
let v60 = floor(v59);
let v61 = (2.0f * v60);
let v62 = (v52 - v61);
let v63 = select(1.0f, 1.3900845e-6f, v62 != 0.0);
let v64 = (v58 * v63);
let v65 = select(0.0f, 0.9999986f, v62 != 0.0);
let v66 = (v64 + v65);
let v67 = select(1.0f, v66, v4 != 0.0);
let v68 = (1.0f / v67);
let v69 = select(0.0, 1.0, v3 < 2048.0f);
let v70 = select(0.0f, 0.01f, v9 != 0.0);
let v71 = select(1.0f, 0.9801f, v14 != 0.0);
let v72 = (v70 * v71);
let v73 = select(0.0f, 0.0199f, v14 != 0.0);
let v74 = (v72 + v73);
let v75 = select(1.0f, 0.960596f, v22 != 0.0);
let v76 = (v74 * v75);
let v77 = select(0.0f, 0.03940399f, v22 != 0.0);
let v78 = (v76 + v77);
let v79 = select(1.0f, 0.9227447f, v30 != 0.0);
let v80 = (v78 * v79);
let v81 = select(0.0f, 0.07725531f, v30 != 0.0);
let v82 = (v80 + v81);
let v83 = select(1.0f, 0.8514578f, v38 != 0.0);
let v84 = (v82 * v83);
let v85 = select(0.0f, 0.14854223f, v38 != 0.0);
let v86 = (v84 + v85);
let v87 = select(1.0f, 0.72498035f, v46 != 0.0);
let v88 = (v86 * v87);
let v89 = select(0.0f, 0.27501968f, v46 != 0.0);
let v90 = (v88 + v89);
let v91 = select(1.0f, 0.5255965f, v54 != 0.0);
let v92 = (v90 * v91);
let v93 = select(0.0f, 0.4744035f, v54 != 0.0);
let v94 = (v92 + v93);
let v95 = select(1.0f, 0.27625167f, v62 != 0.0);
let v96 = (v94 * v95);
let v97 = select(0.0f, 0.7237483f, v62 != 0.0);
let v98 = (v96 + v97);
let v99 = (v3 * 0.001953125f);
let v100 = floor(v99);
let v101 = (2.0f * v100);
let v102 = (v60 - v101);
let v103 = select(1.0f, 0.076314986f, v102 != 0.0);
let v104 = (v98 * v103);
let v105 = select(0.0f, 0.923685f, v102 != 0.0);
let v106 = (v104 + v105);
let v107 = (v3 * 0.0009765625f);
let v108 = floor(v107);
let v109 = (2.0f * v108);
let v110 = (v100 - v109);
let v111 = select(1.0f, 0.005823977f, v110 != 0.0);
let v112 = (v106 * v111);
let v113 = select(0.0f, 0.99417603f, v110 != 0.0);
let v114 = (v112 + v113);
let v115 = (v3 * 0.00048828125f);
let v116 = floor(v115);
let v117 = (2.0f * v116);
let v118 = (v108 - v117);
let v119 = select(1.0f, 3.3918706e-5f, v118 != 0.0);
let v120 = (v114 * v119);
let v121 = select(0.0f, 0.9999661f, v118 != 0.0);
let v122 = (v120 + v121);
let v123 = select(1.0f, v122, v69 != 0.0);
let v124 = sqrt(v123);
let v125 = (1.0f / v124);
-> v2, v68, v125

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

let v0 = select(0.0, 1.0, in0 < 0.0f);
let v1 = (1.0f - v0);
-> v1

let v0 = (in0 * in1);
-> v0

let v0 = max(in1, 1.0f);
let v1 = (in0 / v0);
-> v1

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
let v10 = select(0.0, 1.0, in3 < in3);
let v11 = select(in1, in3, v10 != 0.0);
-> v7, v9, v11


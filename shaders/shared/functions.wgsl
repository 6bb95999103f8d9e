// Functions that formulas and kernels share, and 16-bit storage. The core's dialect printer and the backend's
// generated accessors name them.

fn tr_from_bits(bits: u32) -> f32 {
    return bitcast<f32>(bits);
}

// Large arguments may overflow in an adapter's own tanh; beyond 10 the result is 1 to the last bit.
fn tr_tanh(x: f32) -> f32 {
    return tanh(clamp(x, -10.0, 10.0));
}

fn tr_sigmoid(x: f32) -> f32 {
    return 1.0 / (1.0 + exp(-x));
}

// Abramowitz and Stegun 7.1.26: at most 1.5e-7 off.
fn tr_erf(x: f32) -> f32 {
    let a = abs(x);
    let t = 1.0 / (1.0 + 0.3275911 * a);
    let series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
    return sign(x) * (1.0 - series * exp(-a * a));
}

// An adapter's own sine may be 2^-11 off (WGSL specification, section 15.7.4.1). Multiples of a quarter turn are
// taken off in three parts, so that large angles keep their digits; the rest is within an eighth of a turn, where
// the polynomials are those of Cephes' sinf and cosf.
fn tr_sines_of_turned(x: vec4<f32>, quarters: i32) -> vec4<f32> {
    let turns = round(x * 0.6366197723675814);
    let rest = ((x - turns * 1.5703125) - turns * 4.837512969970703e-4) - turns * 7.549789954891882e-8;
    let square = rest * rest;
    let sine = rest + rest * square * (square * (8.3321608736e-3 - square * 1.9515295891e-4) - 1.6666654611e-1);
    let cosine = 1.0 - 0.5 * square
        + square * square * (square * (square * 2.443315711809948e-5 - 1.388731625493765e-3) + 4.166664568298827e-2);
    let quarter = (vec4<i32>(turns) + quarters) & vec4<i32>(3);
    let value = select(sine, cosine, (quarter & vec4<i32>(1)) == vec4<i32>(1));
    return select(value, -value, quarter >= vec4<i32>(2));
}

fn tr_sin4(x: vec4<f32>) -> vec4<f32> {
    return tr_sines_of_turned(x, 0);
}

fn tr_cos4(x: vec4<f32>) -> vec4<f32> {
    return tr_sines_of_turned(x, 1);
}

fn tr_sin(x: f32) -> f32 {
    return tr_sin4(vec4<f32>(x)).x;
}

fn tr_cos(x: f32) -> f32 {
    return tr_cos4(vec4<f32>(x)).x;
}

// Bits, because a compiler may assume that no value is infinite.
fn tr_is_finite(x: f32) -> f32 {
    return select(1.0, 0.0, (bitcast<u32>(x) & 0x7f800000u) == 0x7f800000u);
}

fn tr_is_nan(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

// The bf16 weight of an f32 master, ties away from zero, and the signed rest in units of the last place.
fn tr_high_half(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let rounded = (bits + 0x8000u) & 0xffff0000u;
    let quiet = (bits & 0xffff0000u) | 0x400000u;
    return bitcast<f32>(select(rounded, quiet, tr_is_nan(x)));
}

fn tr_low_half(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let rest = bitcast<i32>(bits - ((bits + 0x8000u) & 0xffff0000u));
    return select(f32(rest), 0.0, tr_is_nan(x));
}

fn tr_join_halves(high: f32, low: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(high) + bitcast<u32>(i32(low)));
}

// One of the two bf16 that x lies between, the one farther from 0 with a probability of the part of their distance
// that x has come. What isn't finite stays as it is.
fn tr_stochastic_half(x: f32, uniform: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let rounded = (bits + u32(uniform * 65536.0)) & 0xffff0000u;
    return bitcast<f32>(select(rounded, bits, (bits & 0x7f800000u) == 0x7f800000u));
}

// bf16 is the upper half of an f32; the lower of two elements is in the lower half of a word.
fn tr_unpack_bf16(word: u32) -> vec2<f32> {
    return vec2<f32>(bitcast<f32>(word << 16u), bitcast<f32>(word & 0xffff0000u));
}

// Upper half, rounded to nearest, ties to even; a NaN stays one.
fn tr_round_bf16(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let rounded = bits + 0x7fffu + ((bits >> 16u) & 1u);
    return select(rounded, bits | 0x400000u, tr_is_nan(x)) >> 16u;
}

fn tr_pack_bf16(pair: vec2<f32>) -> u32 {
    return tr_round_bf16(pair.x) | (tr_round_bf16(pair.y) << 16u);
}

fn tr_unpack_f16(word: u32) -> vec2<f32> {
    return unpack2x16float(word);
}

fn tr_pack_f16(pair: vec2<f32>) -> u32 {
    return pack2x16float(pair);
}

fn tr_unpack_i16(word: u32) -> vec2<f32> {
    return vec2<f32>(f32(bitcast<i32>(word << 16u) >> 16u), f32(bitcast<i32>(word) >> 16u));
}

fn tr_pack_i16(pair: vec2<f32>) -> u32 {
    let low = bitcast<u32>(i32(pair.x)) & 0xffffu;
    return low | (bitcast<u32>(i32(pair.y)) << 16u);
}

fn tr_unpack_i8(word: u32) -> vec4<f32> {
    let lanes = vec4<i32>(vec4<u32>(word << 24u, word << 16u, word << 8u, word));
    return vec4<f32>(lanes >> vec4<u32>(24u));
}

fn tr_pack_i8(four: vec4<f32>) -> u32 {
    let bytes = vec4<u32>(vec4<i32>(four)) & vec4<u32>(0xffu);
    return bytes.x | (bytes.y << 8u) | (bytes.z << 16u) | (bytes.w << 24u);
}

fn tr_unpack_u8(word: u32) -> vec4<f32> {
    return vec4<f32>((vec4<u32>(word) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(0xffu));
}

fn tr_pack_u8(four: vec4<f32>) -> u32 {
    return tr_pack_i8(four);
}

// The block that thread `lane` of the subgroup has.
fn block_of_lane(block: mat4x4<f32>, lane: u32) -> mat4x4<f32> {
    return mat4x4<f32>(
        of_lane(block[0], lane),
        of_lane(block[1], lane),
        of_lane(block[2], lane),
        of_lane(block[3], lane),
    );
}

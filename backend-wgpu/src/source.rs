//! A launch as WGSL: generated declarations, the shared functions, and the kernel's own file.
//!
//! Every tensor is bound as `read_write`, since a buffer can't be bound both ways in one dispatch, and once,
//! since a range can't be bound twice. The kernel names its operands; the accessors generated here say how a
//! name is stored:
//!
//! | accessor | gives or takes |
//! |---|---|
//! | `load_NAME(i)`, `load4_NAME(i)` | one element, or four from `i` on, as f32 |
//! | `store_NAME(i, x)` | one element of a 32-bit tensor |
//! | `store2_NAME(i, v, count)`, `store4_NAME(i, v, count)` | from an even `i` or a multiple of four on, `count` elements; past those only what pads the row or the tensor |
//! | `index_NAME(i)`, `bits_NAME(i)` | one element of an i32 or u32 tensor as it is |

use std::fmt::Write;

use tightrope_core::DType;
use tightrope_core::launch::{Launch, Operand, Word};

/// Kernel files by stem. A test holds that the folder has no other.
const KERNELS: &[(&str, &str)] = &[
    ("attention", include_str!("../../shaders/attention.wgsl")),
    ("collect", include_str!("../../shaders/collect.wgsl")),
    ("cross_entropy", include_str!("../../shaders/cross_entropy.wgsl")),
    ("gather", include_str!("../../shaders/gather.wgsl")),
    ("layout", include_str!("../../shaders/layout.wgsl")),
    ("map", include_str!("../../shaders/map.wgsl")),
    ("matmul", include_str!("../../shaders/matmul.wgsl")),
    ("norm", include_str!("../../shaders/norm.wgsl")),
    ("quant", include_str!("../../shaders/quant.wgsl")),
    ("reduce", include_str!("../../shaders/reduce.wgsl")),
    ("rope", include_str!("../../shaders/rope.wgsl")),
    ("softmax", include_str!("../../shaders/softmax.wgsl")),
];

const FUNCTIONS: &str = include_str!("../../shaders/shared/functions.wgsl");
const RANDOM: &str = include_str!("../../shaders/shared/random.wgsl");

/// Stems of all kernel files.
#[allow(dead_code, reason = "the build script has no use for it")]
pub fn stems() -> impl Iterator<Item = &'static str> {
    KERNELS.iter().map(|&(stem, _)| stem)
}

/// The words a launch reads when it runs, in the order of the generated struct.
pub fn parameters(launch: &Launch) -> Vec<u8> {
    let groups = [launch.groups.start, launch.groups.end].map(|group| group as u32);
    let mut bytes: Vec<u8> = groups.iter().flat_map(|word| word.to_le_bytes()).collect();
    for (_, word) in &launch.params {
        bytes.extend(match word {
            Word::U32(value) => value.to_le_bytes(),
            Word::F32(value) => value.to_le_bytes(),
        });
    }
    bytes
}

/// The text of a launch whose operands are bound at `bindings`: operands that are the same range of bytes
/// have the same number, and numbers count from 0. The parameters' binding follows the last.
///
/// # Errors
/// In words, where there's no such kernel file.
pub fn assemble(launch: &Launch, bindings: &[usize]) -> Result<String, String> {
    let kernel = KERNELS.iter().find(|(stem, _)| *stem == launch.kernel);
    let (_, kernel) = kernel.ok_or_else(|| format!("there is no {}.wgsl", launch.kernel))?;
    let mut text = String::new();
    line(&mut text, format_args!("const WORKGROUP: u32 = {}u;", launch.workgroup));
    for (name, value) in &launch.constants {
        line(&mut text, format_args!("const {name}: u32 = {value}u;"));
    }
    line(&mut text, format_args!("struct Params {{\n    first_group: u32,\n    end_group: u32,"));
    for (name, word) in &launch.params {
        let ty = match word {
            Word::U32(_) => "u32",
            Word::F32(_) => "f32",
        };
        line(&mut text, format_args!("    {name}: {ty},"));
    }
    line(&mut text, format_args!("}}"));
    let count = bindings.iter().max().map_or(0, |last| last + 1);
    line(&mut text, format_args!("@group(0) @binding({count}) var<uniform> params: Params;"));
    for binding in 0..count {
        declare(&mut text, launch, bindings, binding);
    }
    text += GROUPS;
    text += FUNCTIONS;
    if launch.generated.contains("tr_random(") {
        text += RANDOM;
    }
    text += &launch.generated;
    text += kernel;
    Ok(text)
}

/// Workgroups are numbered along one axis; a grid folds them into rows where there are many.
const GROUPS: &str = "
fn tr_group(id: vec3<u32>, grid: vec3<u32>) -> u32 {
    return params.first_group + id.y * grid.x + id.x;
}

fn tr_outside(id: vec3<u32>, grid: vec3<u32>) -> bool {
    return tr_group(id, grid) >= params.end_group;
}

";

fn line(text: &mut String, words: std::fmt::Arguments<'_>) {
    // Writing to a String can't fail.
    let _ = text.write_fmt(words);
    text.push('\n');
}

/// A binding and the accessors of all operands that are bound there.
fn declare(text: &mut String, launch: &Launch, bindings: &[usize], binding: usize) {
    let bound: Vec<&Operand> = launch
        .operands
        .iter()
        .zip(bindings)
        .filter(|(_, b)| **b == binding)
        .map(|(o, _)| o)
        .collect();
    // Operands of one range agree on the narrower access.
    let width = bound.iter().map(|operand| operand.width).min().unwrap_or(1);
    let dtype = bound.first().map_or(DType::U32, |operand| operand.place.dtype);
    let element = match (dtype, width) {
        (DType::F32, 4) => "vec4<f32>",
        (DType::F32, _) => "f32",
        (DType::I32, 4) => "vec4<i32>",
        (DType::I32, _) => "i32",
        (DType::U32, 4) => "vec4<u32>",
        (DType::BF16 | DType::F16 | DType::I16, 4) => "vec2<u32>",
        _ => "u32",
    };
    line(
        text,
        format_args!(
            "@group(0) @binding({binding}) var<storage, read_write> b{binding}: array<{element}>;"
        ),
    );
    for operand in bound {
        let accessors = match dtype.size() {
            4 => words(dtype, width),
            2 => halves(dtype, width),
            _ => quarters(dtype),
        };
        *text +=
            &accessors.replace("NAME", &operand.name).replace("BUFFER", &format!("b{binding}"));
    }
}

/// Accessors of 32-bit elements.
fn words(dtype: DType, width: u32) -> String {
    let own = match dtype {
        DType::I32 => "i32",
        DType::U32 => "u32",
        _ => "f32",
    };
    let raw = match dtype {
        DType::I32 => "fn index_NAME(i: u32) -> i32 { return i32(LOAD); }\n",
        DType::U32 => "fn bits_NAME(i: u32) -> u32 { return u32(LOAD); }\n",
        _ => "",
    };
    let text = if width == 4 {
        "fn load_NAME(i: u32) -> f32 { return f32(LOAD); }
fn load4_NAME(i: u32) -> vec4<f32> { return vec4<f32>(BUFFER[i >> 2u]); }
fn store4_NAME(i: u32, v: vec4<f32>, count: u32) { BUFFER[i >> 2u] = vec4<OWN>(v); }
"
    } else {
        "fn load_NAME(i: u32) -> f32 { return f32(LOAD); }
fn load4_NAME(i: u32) -> vec4<f32> {
    return vec4<f32>(vec4<OWN>(BUFFER[i], BUFFER[i + 1u], BUFFER[i + 2u], BUFFER[i + 3u]));
}
fn store_NAME(i: u32, x: f32) { BUFFER[i] = OWN(x); }
fn store2_NAME(i: u32, v: vec2<f32>, count: u32) {
    BUFFER[i] = OWN(v.x);
    if (count > 1u) { BUFFER[i + 1u] = OWN(v.y); }
}
fn store4_NAME(i: u32, v: vec4<f32>, count: u32) {
    BUFFER[i] = OWN(v.x);
    if (count > 1u) { BUFFER[i + 1u] = OWN(v.y); }
    if (count > 2u) { BUFFER[i + 2u] = OWN(v.z); }
    if (count > 3u) { BUFFER[i + 3u] = OWN(v.w); }
}
"
    };
    let load = if width == 4 { "BUFFER[i >> 2u][i & 3u]" } else { "BUFFER[i]" };
    format!("{text}{raw}").replace("LOAD", load).replace("OWN", own)
}

/// Accessors of 16-bit elements, two to a word.
fn halves(dtype: DType, width: u32) -> String {
    let text = if width == 4 {
        "fn load_NAME(i: u32) -> f32 { return UNPACK(BUFFER[i >> 2u][(i >> 1u) & 1u])[i & 1u]; }
fn load4_NAME(i: u32) -> vec4<f32> {
    let pair = BUFFER[i >> 2u];
    return vec4<f32>(UNPACK(pair.x), UNPACK(pair.y));
}
fn store4_NAME(i: u32, v: vec4<f32>, count: u32) {
    BUFFER[i >> 2u] = vec2<u32>(PACK(v.xy), PACK(v.zw));
}
"
    } else {
        "fn load_NAME(i: u32) -> f32 { return UNPACK(BUFFER[i >> 1u])[i & 1u]; }
fn load4_NAME(i: u32) -> vec4<f32> {
    return vec4<f32>(load_NAME(i), load_NAME(i + 1u), load_NAME(i + 2u), load_NAME(i + 3u));
}
fn store2_NAME(i: u32, v: vec2<f32>, count: u32) { BUFFER[i >> 1u] = PACK(v); }
fn store4_NAME(i: u32, v: vec4<f32>, count: u32) {
    BUFFER[i >> 1u] = PACK(v.xy);
    if (count > 2u) { BUFFER[(i >> 1u) + 1u] = PACK(v.zw); }
}
"
    };
    let name = dtype.name();
    text.replace("UNPACK", &format!("tr_unpack_{name}")).replace("PACK", &format!("tr_pack_{name}"))
}

/// Accessors of 8-bit elements, four to a word.
fn quarters(dtype: DType) -> String {
    "fn load_NAME(i: u32) -> f32 { return UNPACK(BUFFER[i >> 2u])[i & 3u]; }
fn load4_NAME(i: u32) -> vec4<f32> { return UNPACK(BUFFER[i >> 2u]); }
fn store4_NAME(i: u32, v: vec4<f32>, count: u32) { BUFFER[i >> 2u] = PACK(v); }
"
    .replace("UNPACK", &format!("tr_unpack_{}", dtype.name()))
    .replace("PACK", &format!("tr_pack_{}", dtype.name()))
}

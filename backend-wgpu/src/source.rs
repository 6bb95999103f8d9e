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
//! | `index_NAME(i)`, `bits_NAME(i)` | one element of an i32 or u32 tensor as it is; of another, which a kernel names and never reads, anything |
//! | `held_NAME` | the shortest type of the language that holds an element's value |

use std::fmt::Write;

use tightrope_core::DType;
use tightrope_core::launch::{Launch, Operand, WebGpuLimits, Word};

use crate::reachable::{reachable, words};

/// A file that kernels share, without its comments.
macro_rules! shared {
    ($name:literal) => {
        include_str!(concat!(env!("OUT_DIR"), "/shared/", $name))
    };
}

/// Functions that kernels share.
const SHARED: [&str; 2] = [shared!("functions.wgsl"), shared!("random.wgsl")];

/// Words of 64 bits as two of 32. Browsers have none.
const WIDE_WORDS: &str = if cfg!(target_family = "wasm") { "" } else { shared!("wide_words.wgsl") };

/// How threads reduce that own a row together: also through workgroup memory, or in registers alone.
const TEAMS: &str = shared!("teams.wgsl");
const NEAR_TEAMS: &str = shared!("near_teams.wgsl");
/// Parts of a sum that meet at one barrier, at most.
const FAR: u32 = 64;

/// How neighbouring threads reduce: through a subgroup's registers, or not at all.
const SUBGROUPS: &str = shared!("subgroups.wgsl");
const NO_SUBGROUPS: &str = shared!("no_subgroups.wgsl");

/// Matrices that a subgroup holds together, and what stands in for them where a subgroup is one thread.
const COOPERATIVE: &str = shared!("cooperative.wgsl");
const NOT_COOPERATIVE: &str = shared!("not_cooperative.wgsl");

include!(concat!(env!("OUT_DIR"), "/kernels.rs"));

/// Whether the file of this name belongs to a kernel: it's named by the kernel's stem, or by that, `_` and more. What an entry
/// doesn't reach of the files is left out.
fn belongs(file: &str, stem: &str) -> bool {
    file.strip_prefix(stem).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
}

/// All entries, each with the stem of its kernel.
pub fn entries() -> impl Iterator<Item = (&'static str, &'static str)> {
    FILES.iter().flat_map(|&(file, text)| {
        let stems = FILES.iter().map(|&(stem, _)| stem).filter(|stem| belongs(file, stem));
        let kernel = stems.min_by_key(|stem| stem.len()).unwrap_or(file);
        text.split("@compute").skip(1).filter_map(move |entry| {
            let (_, named) = entry.split_once("fn ")?;
            Some((kernel, named.split('(').next()?))
        })
    })
}

/// Threads of a subgroup that a launch counts on; 1 where it doesn't use them.
pub fn subgroup(launch: &Launch) -> u32 {
    constant(launch, "SUBGROUP").unwrap_or(1)
}

/// A number of a launch that is known to the compiler.
fn constant(launch: &Launch, name: &str) -> Option<u32> {
    launch.constants.iter().find(|(known, _)| *known == name).map(|&(_, value)| value)
}

/// The text of a launch whose operands are bound at `bindings`: operands that are the same range of bytes
/// have the same number, and numbers count from 0. The parameters' binding follows the last. How elements are stored
/// is what the device has: of f16, as what they are or as words; by four, in words of 32 or of 64 bits.
///
/// # Errors
/// In words, where there's no such kernel.
pub fn assemble(launch: &Launch, bindings: &[usize], has: WebGpuLimits) -> Result<String, String> {
    if !FILES.iter().any(|(file, _)| *file == launch.kernel) {
        return Err(format!("there is no {}.wgsl", launch.kernel));
    }
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
        declare(&mut text, launch, bindings, binding, has);
    }
    text += GROUPS;
    text.extend(SHARED);
    text += WIDE_WORDS;
    declare_teams(&mut text, launch);
    let alone = subgroup(launch) == 1;
    text += if alone { NO_SUBGROUPS } else { SUBGROUPS };
    if alone {
        text += NOT_COOPERATIVE;
    } else {
        declare_squares(&mut text, launch);
        text += COOPERATIVE;
    }
    text += &launch.generated;
    let own = FILES.iter().filter(|(file, _)| belongs(file, launch.kernel));
    text.extend(own.map(|&(_, text)| text));
    let text = reachable(&text, launch.entry);
    let mut directives = String::new();
    if words(&text).any(|word| word == "f16") {
        directives += "enable f16;\n";
    }
    if text.contains("coop_mat") {
        directives += "enable wgpu_cooperative_matrix;\n";
    }
    Ok(directives + &text)
}

/// The threads that own a row together. Their sum is written out for the numbers of parts that there are: whatever a
/// kernel could reach is compiled, and 64 reads take a browser a tenth of a second.
fn declare_teams(text: &mut String, launch: &Launch) {
    let Some(lanes) = constant(launch, "LANES") else { return };
    let near = subgroup(launch).min(lanes);
    line(text, format_args!("const TEAM_STEP: u32 = {near}u;"));
    if near == lanes {
        *text += NEAR_TEAMS;
        return;
    }
    line(text, format_args!("const FAR: u32 = {FAR}u;"));
    line(text, format_args!("fn far_sum(first: u32, step: u32, count: u32) -> f32 {{"));
    let mut parts = lanes / near;
    if parts > FAR {
        line(text, format_args!("    if (count == FAR) {{ return sum_of_{FAR}(first, step); }}"));
    }
    while parts > FAR {
        parts /= FAR;
    }
    line(text, format_args!("    return sum_of_{parts}(first, step);\n}}"));
    *text += TEAMS;
}

/// The squares that a subgroup holds together: their extents are part of their types' names.
fn declare_squares(text: &mut String, launch: &Launch) {
    let edge = constant(launch, "THREAD_M").map_or(0, |rows| rows / 2);
    for (name, role, ty) in [("Left", "A", "f16"), ("Right", "B", "f16"), ("Sum", "C", "f32")] {
        line(text, format_args!("alias {name} = coop_mat{edge}x{edge}<{ty}, {role}>;"));
    }
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
fn declare(
    text: &mut String,
    launch: &Launch,
    bindings: &[usize],
    binding: usize,
    has: WebGpuLimits,
) {
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
    let native = dtype == DType::F16 && has.native_f16;
    let wide = has.wide_words && width == 4 && !native && !cfg!(target_family = "wasm");
    let element = match (dtype, width) {
        (DType::F16, 4) if native => "vec4<f16>",
        (DType::F16, _) if native => "f16",
        (DType::F32 | DType::I32 | DType::U32, 4) if wide => "vec2<u64>",
        (DType::BF16 | DType::F16 | DType::I16, 4) if wide => "u64",
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
            _ if native => whole(dtype, width),
            4 if wide => whole_of_wide(dtype),
            4 => whole(dtype, width),
            2 => halves(dtype, width, wide),
            _ => quarters(dtype),
        };
        let accessors = accessors + &raw(dtype, width, wide);
        *text +=
            &accessors.replace("NAME", &operand.name).replace("BUFFER", &format!("b{binding}"));
        let held = if native { "f16" } else { "f32" };
        line(text, format_args!("alias held_{} = {held};", operand.name));
    }
}

/// Accessors of whole numbers. A kernel also names them for a tensor that it doesn't have, in branches that it never takes;
/// another tensor's name stands there then, of any dtype.
fn raw(dtype: DType, width: u32, wide: bool) -> String {
    let load = match (dtype, width) {
        (DType::I32 | DType::U32, 4) if wide => ONE_OF_WIDE,
        (DType::I32 | DType::U32, 4) => "BUFFER[i >> 2u][i & 3u]",
        (DType::I32 | DType::U32, _) => "BUFFER[i]",
        _ => "load_NAME(i)",
    };
    "fn index_NAME(i: u32) -> i32 { return i32(LOAD); }
fn bits_NAME(i: u32) -> u32 { return u32(LOAD); }
"
    .replace("LOAD", load)
}

/// The bits of an element of 32 bits that is stored in words of 64.
const ONE_OF_WIDE: &str = "tr_halves(BUFFER[i >> 2u][(i >> 1u) & 1u])[i & 1u]";

/// Accessors of elements of 32 bits, by four and in words of 64 bits.
fn whole_of_wide(dtype: DType) -> String {
    "fn load_NAME(i: u32) -> f32 { return f32(bitcast<OWN>(ONE)); }
fn load4_NAME(i: u32) -> vec4<f32> {
    let words = BUFFER[i >> 2u];
    return vec4<f32>(bitcast<vec4<OWN>>(vec4<u32>(tr_halves(words.x), tr_halves(words.y))));
}
fn store4_NAME(i: u32, v: vec4<f32>, count: u32) {
    let bits = bitcast<vec4<u32>>(vec4<OWN>(v));
    BUFFER[i >> 2u] = vec2<u64>(tr_word(bits.xy), tr_word(bits.zw));
}
"
    .replace("ONE", ONE_OF_WIDE)
    .replace("OWN", own_type(dtype))
}

/// The language's type of a dtype's elements.
fn own_type(dtype: DType) -> &'static str {
    match dtype {
        DType::I32 => "i32",
        DType::U32 => "u32",
        DType::F16 => "f16",
        _ => "f32",
    }
}

/// Accessors of elements that the language has a type for.
fn whole(dtype: DType, width: u32) -> String {
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
    text.replace("LOAD", load).replace("OWN", own_type(dtype))
}

/// Accessors of 16-bit elements, two to a word or four to one of 64 bits.
fn halves(dtype: DType, width: u32, wide: bool) -> String {
    let text = if width == 4 {
        "fn load_NAME(i: u32) -> f32 { return UNPACK(PAIR[(i >> 1u) & 1u])[i & 1u]; }
fn load4_NAME(i: u32) -> vec4<f32> {
    let pair = PAIR;
    return vec4<f32>(UNPACK(pair.x), UNPACK(pair.y));
}
fn store4_NAME(i: u32, v: vec4<f32>, count: u32) {
    BUFFER[i >> 2u] = WORD(vec2<u32>(PACK(v.xy), PACK(v.zw)));
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
    let (pair, word) =
        if wide { ("tr_halves(BUFFER[i >> 2u])", "tr_word") } else { ("BUFFER[i >> 2u]", "") };
    let text = text.replace("PAIR", pair).replace("WORD", word);
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

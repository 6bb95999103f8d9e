//! A launch as CUDA C++: generated declarations, the shared functions, and the kernel's own file.
//!
//! The kernel gets one argument, a struct `Args`: the numbers that a launch reads, in the layout of the other
//! language's uniform, then a `Tensor` for each operand, a pointer and the number of its elements, and a `TensorMap` for
//! each tensor whose boxes are copied. Which operands are the same memory doesn't show in the text, so that shapes alone decide
//! what is compiled.

#[cfg(any(test, feature = "emulation"))]
mod processor;

use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};

use tightrope_core::DType;
use tightrope_core::launch::{Boxed, Launch, Place, Word};

#[cfg(any(test, feature = "emulation"))]
pub use processor::for_processor;

include!(concat!(env!("OUT_DIR"), "/kernels.rs"));

fn find(stem: &str) -> Result<&'static str, String> {
    let found = FILES.iter().find(|(name, _)| *name == stem);
    found.map(|&(_, text)| text).ok_or_else(|| format!("there is no {stem}.cu"))
}

/// The kernel file that another builds on: it includes that one at its beginning.
fn before(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("#include \"")?.strip_suffix(".cu\""))
}

/// What comes before every kernel, in the order in which each needs the ones before.
const SHARED: &[(&str, &str)] = &[
    ("four", include_str!("../../kernels/shared/four.cuh")),
    ("functions", include_str!("../../kernels/shared/functions.cuh")),
    ("tensor", include_str!("../../kernels/shared/tensor.cuh")),
    ("several", include_str!("../../kernels/shared/several.cuh")),
    ("block", include_str!("../../kernels/shared/block.cuh")),
    ("random", include_str!("../../kernels/shared/random.cuh")),
];

const DEVICE: &str = include_str!("../../kernels/shared/device.cuh");
/// For kernels whose shared memory the launch sizes, which only Hopper runs.
const HOPPER: [(&str, &str); 2] = [
    ("hopper.cuh", include_str!("../../kernels/shared/hopper.cuh")),
    ("warpgroups.cuh", include_str!("../../kernels/shared/warpgroups.cuh")),
];

/// For formulas that are rounded to bf16.
const SHORT: (&str, &str) = ("short.cuh", include_str!("../../kernels/shared/short.cuh"));

/// A hash of what comes before every kernel.
pub fn digest() -> u64 {
    let mut hasher = DefaultHasher::new();
    (DEVICE, HOPPER, SHORT, SHARED).hash(&mut hasher);
    hasher.finish()
}

/// Stems of all kernel files.
pub fn stems() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|&(stem, _)| stem)
}

/// Bytes of a tensor in the arguments: a pointer, and the number of elements.
pub const TENSOR_BYTES: usize = 16;

/// Bytes that a kernel's arguments may have on every GPU (CUDA C++ Programming Guide, function parameters).
pub const ARGUMENT_BYTES: usize = 4096;

/// The same where driver and compiler are for CUDA 12.1 or later.
pub const MOST_ARGUMENT_BYTES: usize = 32764;

/// Bytes of the numbers that come before the tensors, padded to a pointer's alignment.
pub fn parameter_bytes(launch: &Launch) -> usize {
    const GROUPS: usize = 2;
    ((GROUPS + launch.params.len()) * size_of::<u32>()).next_multiple_of(size_of::<u64>())
}

/// The numbers that a launch reads when it runs, padded.
pub fn parameters(launch: &Launch) -> Vec<u8> {
    let mut bytes = launch.words();
    bytes.resize(parameter_bytes(launch), 0);
    bytes
}

/// A tensor map, as the device's driver writes it for its copy engine.
pub type TensorMap = [u8; 128];

/// Where tensor maps begin that come after so many bytes of arguments.
fn maps_from(bytes: usize) -> usize {
    bytes.next_multiple_of(size_of::<TensorMap>())
}

/// All that a launch reads when it runs, as `Args` declares it: numbers, tensors at their addresses, and tensor maps.
///
/// # Errors
/// Those of `map`, which gets an address too.
pub fn arguments<E>(
    launch: &Launch,
    address: impl Fn(&Place) -> u64,
    map: impl Fn(&Boxed, u64) -> Result<TensorMap, E>,
) -> Result<Vec<u8>, E> {
    let mut bytes = parameters(launch);
    for place in launch.operands.iter().map(|operand| &operand.place) {
        bytes.extend([address(place), place.elements].into_iter().flat_map(u64::to_le_bytes));
    }
    if !launch.boxed.is_empty() {
        bytes.resize(maps_from(bytes.len()), 0);
    }
    for boxed in &launch.boxed {
        let first = address(&boxed.place) + boxed.first * boxed.place.dtype.size() as u64;
        bytes.extend(map(boxed, first)?);
    }
    Ok(bytes)
}

/// A kernel that can be compiled: equal kernels have equal text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// File and entry, for messages.
    pub label: String,
    /// Its own text: constants, arguments and the kernel's file.
    pub text: String,
    /// Entry in the file.
    pub entry: &'static str,
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of shared memory whose size the text doesn't say.
    pub shared_bytes: u32,
    /// Blocks that use each other's shared memory.
    pub cluster: u32,
    /// Names of the tensors, and where they lie in the arguments.
    pub operands: Vec<(String, usize)>,
    /// Launches that it makes at once, each with arguments of its own: 1, or as many as there's room for.
    pub several: usize,
}

impl Kernel {
    /// The kernel of a launch.
    ///
    /// # Errors
    /// In words, where there's no such kernel file, or a tensor of a dtype that kernels don't store.
    pub fn of(launch: &Launch) -> Result<Self, String> {
        let mut files = vec![];
        let mut next = Some(launch.kernel);
        while let Some(stem) = next {
            let text = find(stem)?;
            files.insert(0, (format!("{stem}.cu"), text));
            next = before(text);
        }
        Self::with_files(launch, &files)
    }

    /// The kernel of a launch, with these files' names and texts.
    ///
    /// # Errors
    /// In words, where a tensor has a dtype that kernels don't store.
    pub fn with_files(launch: &Launch, files: &[(String, &str)]) -> Result<Self, String> {
        let mut text = String::new();
        line(&mut text, format_args!("constexpr unsigned WORKGROUP = {};", launch.workgroup));
        for (name, value) in &launch.constants {
            line(&mut text, format_args!("constexpr unsigned {name} = {value};"));
        }
        line(&mut text, format_args!("struct alignas(8) Params {{"));
        line(&mut text, format_args!("    unsigned first_group;\n    unsigned end_group;"));
        for (name, word) in &launch.params {
            let ty = match word {
                Word::U32(_) => "unsigned",
                Word::F32(_) => "float",
            };
            line(&mut text, format_args!("    {ty} {name};"));
        }
        line(&mut text, format_args!("}};\nstruct Args : Params {{"));
        let first = parameter_bytes(launch);
        let mut operands = vec![];
        for (index, operand) in launch.operands.iter().enumerate() {
            let ty = stored(operand.place.dtype)?;
            let (name, width) = (&operand.name, operand.width);
            line(&mut text, format_args!("    Tensor<{ty}, {width}> {name};"));
            operands.push((name.to_string(), first + index * TENSOR_BYTES));
        }
        let mut bytes = first + operands.len() * TENSOR_BYTES;
        for boxed in &launch.boxed {
            line(&mut text, format_args!("    TensorMap {};", boxed.name));
            bytes = maps_from(bytes) + size_of::<TensorMap>();
        }
        line(&mut text, format_args!("}};"));
        let sizes = format!("sizeof(Params) == {first} && sizeof(Args) == {bytes}");
        line(&mut text, format_args!("static_assert({sizes}, \"as the host writes them\");"));
        text += &launch.generated;
        for (name, content) in files {
            // What a file includes comes before it, here.
            let content: Vec<&str> = content
                .lines()
                .map(|line| if before(line).is_some() { "" } else { line })
                .collect();
            file(&mut text, name, &(content.join("\n") + "\n"));
        }
        let together = if launch.cluster > 1 { " in clusters" } else { "" };
        let label = format!("{}.{}{together}", launch.kernel, launch.entry);
        let &Launch { entry, workgroup: threads, shared_bytes, cluster, .. } = launch;
        Ok(Self { label, text, entry, threads, shared_bytes, cluster, operands, several: 1 })
    }

    /// Bytes of one launch's arguments, where none is a map.
    fn argument_bytes(&self) -> usize {
        self.operands.last().map_or(0, |(_, offset)| offset + TENSOR_BYTES)
    }

    /// Launches whose arguments so many bytes have room for.
    fn most(&self, bytes: usize) -> usize {
        // They're padded to a multiple of their alignment.
        (bytes - size_of::<u64>()) / (self.argument_bytes() + size_of::<u32>()).max(1)
    }

    /// What compiling it takes, beside others.
    pub fn weight(&self) -> u64 {
        self.text.len() as u64
    }

    /// The same for up to `count` launches at once, whose arguments may have so many bytes. Kernels for few are alike.
    pub fn for_several(self, count: usize, bytes: usize) -> Self {
        let few = self.most(ARGUMENT_BYTES.min(bytes));
        let several = if count <= few { few } else { self.most(bytes) };
        Self { several: several.max(1), ..self }
    }
}

/// Text of several kernels for a GPU's compiler. Kernel `i` is called [`entry_name`]. Those that begin `early`, before those before
/// them have ended, wait for these; GPUs before Hopper have no such.
pub fn for_device(kernels: &[&Kernel], early: bool) -> String {
    let mut text = String::new();
    file(&mut text, "device.cuh", DEVICE);
    if kernels.iter().any(|kernel| kernel.shared_bytes > 0) {
        HOPPER.iter().for_each(|(name, header)| file(&mut text, name, header));
    }
    if kernels.iter().any(|kernel| kernel.text.contains("tr_short_")) {
        file(&mut text, SHORT.0, SHORT.1);
    }
    SHARED.iter().for_each(|(stem, shared)| file(&mut text, &format!("{stem}.cuh"), shared));
    for (index, kernel) in kernels.iter().enumerate() {
        let Kernel { text: own, entry, threads, shared_bytes, cluster, several, .. } = kernel;
        let name = entry_name(index);
        let (ty, args) = match several {
            1 => (format!("k{index}::Args"), "args"),
            _ => (format!("Several<k{index}::Args, {several}>"), "args.of(blockIdx.x)"),
        };
        text += &format!("namespace k{index} {{\n{own}}}\n");
        // A block with that much shared memory is alone, and its registers can go from thread to thread.
        let alone = if *shared_bytes > 0 { ", 1" } else { "" };
        let together = match cluster {
            1 => String::new(),
            _ => format!("__cluster_dims__({cluster}, 1, 1) "),
        };
        let begins = if early { EARLY } else { "" };
        text += &format!(
            "extern \"C\" __global__ void {together}__launch_bounds__({threads}{alone}) {name}(const __grid_constant__ {ty} args) {{\n{begins}    k{index}::{entry}({args});\n}}\n"
        );
    }
    text
}

/// How a kernel begins that blocks of the next one may follow before it has ended: once all of its own have begun, and before
/// anything else it waits for the kernels before it and for what they stored (PTX ISA, griddepcontrol).
const EARLY: &str = "    asm volatile(\"griddepcontrol.launch_dependents;\\ngriddepcontrol.wait;\" : : : \"memory\");\n";

/// Name of the function that kernel `index` of a text is.
pub fn entry_name(index: usize) -> String {
    format!("tr_entry_{index}")
}

fn file(text: &mut String, name: &str, content: &str) {
    line(text, format_args!("#line 1 \"{name}\""));
    *text += content;
}

fn line(text: &mut String, words: std::fmt::Arguments<'_>) {
    // Writing to a String can't fail.
    let _ = text.write_fmt(words);
    text.push('\n');
}

/// The type that a dtype's elements have in memory.
fn stored(dtype: DType) -> Result<&'static str, String> {
    Ok(match dtype {
        DType::F32 => "float",
        DType::BF16 => "Bf16",
        DType::F16 => "F16",
        DType::I32 => "int",
        DType::U32 => "unsigned",
        DType::I16 => "short",
        DType::I8 => "signed char",
        DType::U8 => "unsigned char",
        DType::F64 => return Err("kernels store no f64".into()),
    })
}

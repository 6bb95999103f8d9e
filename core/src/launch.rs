//! `Launch`: kernel name, grid, parameters: what a device that compiles kernels is told of an op.
//!
//! An op becomes a list of launches. Each names a kernel file and an entry, the tensors it binds and the
//! numbers it reads. Constants are known to the kernel's compiler, so that equal shapes share a kernel;
//! parameters are read when it runs. A backend turns the names into declarations that it puts before the
//! kernel's text, and the number of workgroups into a dispatch.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use crate::cost::Cost;
use crate::types::{DType, Type};

mod limits;
mod matmul;

pub(crate) use limits::LAUNCHES_CUDA;
pub use limits::{Api, CudaLimits, Limits, MOST_ELEMENTS, Tile, WebGpuLimits};
pub use matmul::{Epilogue, Gemm, Matrices, Stored};

/// Which tensor of the op an operand is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// An input, by position.
    Input(usize),
    /// An output, by position.
    Output(usize),
    /// The op's scratch.
    Scratch,
}

/// A range of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The tensor.
    pub source: Source,
    /// Storage of the elements.
    pub dtype: DType,
    /// First element.
    pub first: u64,
    /// Number of elements.
    pub elements: u64,
}

/// Alignment of what a launch binds, bytes: the least that every WebGPU adapter takes.
pub const BINDING_ALIGNMENT: u64 = 256;

impl Place {
    /// All of input `index`.
    pub fn input(index: usize, ty: &Type) -> Self {
        Self::whole(Source::Input(index), ty)
    }

    /// All of output `index`.
    pub fn output(index: usize, ty: &Type) -> Self {
        Self::whole(Source::Output(index), ty)
    }

    fn whole(source: Source, ty: &Type) -> Self {
        Self { source, dtype: ty.dtype, first: 0, elements: ty.elements() as u64 }
    }

    /// Elements `range` of this place. Its start must be a multiple of [`Place::granule`].
    pub fn window(&self, range: Range<u64>) -> Self {
        debug_assert!(range.start.is_multiple_of(self.granule()) && range.end <= self.elements);
        Self { first: self.first + range.start, elements: range.end - range.start, ..*self }
    }

    /// Elements between two places where a window may start.
    pub fn granule(&self) -> u64 {
        BINDING_ALIGNMENT / self.dtype.size() as u64
    }

    /// Offset of the first byte in the tensor, and the bytes.
    pub fn bytes(&self) -> (u64, u64) {
        let size = self.dtype.size() as u64;
        (self.first * size, self.elements * size)
    }
}

/// A place under the name that the kernel has for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Operand {
    /// The kernel reads it as `load_NAME` and writes it as `store_NAME`.
    pub name: Cow<'static, str>,
    /// What is bound.
    pub place: Place,
    /// Elements that the kernel reads or writes at once, 1 or 4; 4 needs indices that are multiples of 4.
    pub width: u32,
}

/// A tensor of three axes, of which a kernel has boxes copied to shared memory, where rows of [`Boxed::ROW_BYTES`] are
/// swizzled. What a box has outside of the tensor is zero there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Boxed {
    /// The kernel's name for it.
    pub name: &'static str,
    /// Where its elements are.
    pub place: Place,
    /// First element in the place.
    pub first: u64,
    /// Extents, the innermost first; neighbours along that one are neighbours in memory.
    pub extents: [u64; 3],
    /// Elements from one index to the next of the second axis and of the third.
    pub strides: [u64; 2],
    /// Extents of a box.
    pub edges: [u32; 3],
}

impl Boxed {
    /// Bytes of a box along its innermost axis.
    pub const ROW_BYTES: u32 = 128;
}

/// A number that a kernel reads when it runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Word {
    /// Unsigned.
    U32(u32),
    /// Real.
    F32(f32),
}

/// One dispatch of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// Stem of the kernel's file.
    pub kernel: &'static str,
    /// Entry point in it.
    pub entry: &'static str,
    /// Threads of a workgroup.
    pub workgroup: u32,
    /// Numbers known to the compiler.
    pub constants: Vec<(&'static str, u32)>,
    /// Generated declarations that go before the kernel's text; empty for most.
    pub generated: String,
    /// Tensors, in the order of their bindings.
    pub operands: Vec<Operand>,
    /// Tensors that the kernel has copied box by box, besides.
    pub boxed: Vec<Boxed>,
    /// Bytes of shared memory whose size the kernel's text doesn't say.
    pub shared_bytes: u32,
    /// Most workgroups that run, where each goes on with others that are left.
    pub most_groups: Option<u32>,
    /// Workgroups, one after the other, that run at once and use each other's shared memory: 1, or a divisor of how many there are.
    pub cluster: u32,
    /// Numbers read when the kernel runs, after the range of workgroups.
    pub params: Vec<(Cow<'static, str>, Word)>,
    /// Workgroups, numbered along one axis.
    pub groups: Range<u64>,
    /// Arithmetic and traffic of all workgroups together.
    pub cost: Cost,
    /// Whether it needs nothing that the launch before it makes, nor the other way round: both may run at once, and with
    /// those before that say the same.
    pub concurrent: bool,
    /// Whether it copies its first operand to its second and does nothing else: where both are the same memory, a device leaves
    /// it out.
    pub identity: bool,
    /// The first of its numbers that has more than the 32 bits in which kernels read them.
    pub too_large: Option<(Cow<'static, str>, u64)>,
    /// The matmul that it makes, alone or with its neighbours that share this: a device with another way to
    /// make it leaves them all out.
    pub matmul: Option<Arc<Gemm>>,
}

impl Launch {
    /// `groups` workgroups of `workgroup` threads of an entry of a kernel file.
    pub fn new(kernel: &'static str, entry: &'static str, workgroup: u32, groups: u64) -> Self {
        Self {
            kernel,
            entry,
            workgroup,
            constants: vec![],
            generated: String::new(),
            operands: vec![],
            boxed: vec![],
            shared_bytes: 0,
            most_groups: None,
            cluster: 1,
            params: vec![],
            groups: 0..groups,
            cost: Cost::default(),
            concurrent: false,
            identity: false,
            too_large: None,
            matmul: None,
        }
    }

    /// Adds a number known to the compiler.
    pub fn constant(mut self, name: &'static str, value: impl Into<u64>) -> Self {
        let word = self.word(name.into(), value.into());
        self.constants.push((name, word));
        self
    }

    /// Adds a whole number that is read when the kernel runs.
    pub fn param(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<u64>) -> Self {
        let name = name.into();
        let word = self.word(name.clone(), value.into());
        self.params.push((name, Word::U32(word)));
        self
    }

    /// The low 32 bits of a number. One that has more is remembered, for [`Launches::fit`] to refuse the launch.
    fn word(&mut self, name: Cow<'static, str>, value: u64) -> u32 {
        if value > u32::MAX.into() {
            self.too_large.get_or_insert((name, value));
        }
        value as u32
    }

    /// Says how far the kernel counts from its numbers on.
    pub fn counting_to(mut self, end: u64) -> Self {
        self.word("end".into(), end.saturating_sub(1));
        self
    }

    /// Adds a real number that is read when the kernel runs.
    pub fn real(mut self, name: &'static str, value: f64) -> Self {
        self.params.push((name.into(), Word::F32(value as f32)));
        self
    }

    /// Binds a tensor that is read and written element by element.
    pub fn bind(self, name: impl Into<Cow<'static, str>>, place: Place) -> Self {
        self.bind_width(name, place, 1)
    }

    /// Binds a tensor that is read and written four elements at a time where `aligned`.
    pub fn bind_four(
        self,
        name: impl Into<Cow<'static, str>>,
        place: Place,
        aligned: bool,
    ) -> Self {
        self.bind_width(name, place, if aligned { 4 } else { 1 })
    }

    /// Lets at most `groups` workgroups run, which have so much shared memory and copy boxes of tensors to it.
    pub fn persistent(mut self, groups: u32, shared_bytes: u32, boxed: Vec<Boxed>) -> Self {
        (self.most_groups, self.shared_bytes, self.boxed) = (Some(groups), shared_bytes, boxed);
        self
    }

    /// Lets so many workgroups use each other's shared memory.
    pub fn clustered(self, cluster: u32) -> Self {
        Self { cluster, ..self.constant("CLUSTER", cluster) }
    }

    fn bind_width(mut self, name: impl Into<Cow<'static, str>>, place: Place, width: u32) -> Self {
        self.operands.push(Operand { name: name.into(), place, width });
        self
    }

    /// Tensors, or ranges of one, that it binds: operands that are the same share a binding.
    pub fn bound(&self) -> usize {
        let places = self.operands.iter().map(|operand| operand.place).enumerate();
        let before = |index: usize, place| self.operands[..index].iter().any(|o| o.place == place);
        places.filter(|&(index, place)| !before(index, place)).count()
    }

    /// The numbers that it reads when it runs: the range of its workgroups, then its parameters, four bytes each.
    pub fn words(&self) -> Vec<u8> {
        let groups = [self.groups.start, self.groups.end].map(|group| Word::U32(group as u32));
        let params = self.params.iter().map(|(_, word)| *word);
        let bytes = |word| match word {
            Word::U32(value) => value.to_le_bytes(),
            Word::F32(value) => value.to_le_bytes(),
        };
        groups.into_iter().chain(params).flat_map(bytes).collect()
    }

    /// Sets what it costs, for splitting what would run too long.
    pub fn costing(mut self, flops: u64) -> Self {
        let bytes = self.operands.iter().map(|operand| operand.place.bytes().1).sum();
        self.cost = Cost { flops, bytes };
        self
    }
}

/// The launches of one op, in order, and the scratch they share.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Launches {
    /// Each sees what the ones before wrote.
    pub list: Vec<Launch>,
    /// Bytes of scratch.
    pub scratch_bytes: u64,
}

/// The launches, or why the device has no kernel for the op.
pub type Launched = Result<Launches, String>;

impl Launches {
    /// No launches.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a launch.
    pub fn push(&mut self, launch: Launch) {
        self.list.push(launch);
    }

    /// Appends the launches of several lists, of which none needs another: in rounds of one of each, so that those of a round
    /// may run at once.
    pub fn push_concurrent(&mut self, lists: Vec<Vec<Launch>>) {
        let rounds = lists.iter().map(Vec::len).max().unwrap_or(0);
        let mut lists: Vec<_> = lists.into_iter().map(Vec::into_iter).collect();
        for _ in 0..rounds {
            let round = lists.iter_mut().filter_map(Iterator::next).enumerate();
            self.list
                .extend(round.map(|(index, launch)| Launch { concurrent: index > 0, ..launch }));
        }
    }

    /// New scratch for `elements` elements.
    pub fn scratch(&mut self, dtype: DType, elements: u64) -> Place {
        let size = dtype.size() as u64;
        let first = self.scratch_bytes / size;
        self.scratch_bytes =
            (self.scratch_bytes + elements * size).next_multiple_of(BINDING_ALIGNMENT);
        Place { source: Source::Scratch, dtype, first, elements }
    }

    /// How many launches [`Launches::fit`] makes of these.
    pub fn count(&self, limits: &Limits) -> usize {
        self.list.iter().map(|launch| parts(launch, limits.work) as usize).sum()
    }

    /// Cuts launches with more work than a device may take at once into ranges of workgroups, and holds
    /// that each fits the device.
    ///
    /// # Errors
    /// In words, where a launch binds more or larger tensors than the device takes, or counts further than 32 bits do.
    pub fn fit(mut self, limits: &Limits) -> Launched {
        let mut list = Vec::with_capacity(self.list.len());
        for launch in self.list {
            let entry = format!("{}.{}", launch.kernel, launch.entry);
            let bound = launch.bound();
            if bound > limits.bindings {
                return Err(format!(
                    "{entry} binds {bound} tensors, the device takes {}",
                    limits.bindings
                ));
            }
            let largest = launch.operands.iter().max_by_key(|operand| operand.place.bytes().1);
            if let Some(operand) =
                largest.filter(|operand| operand.place.bytes().1 > limits.binding_bytes)
            {
                return Err(format!(
                    "{entry} binds {} bytes as `{}`, the device takes {}",
                    operand.place.bytes().1,
                    operand.name,
                    limits.binding_bytes
                ));
            }
            let long =
                launch.operands.iter().find(|operand| operand.place.elements > MOST_ELEMENTS);
            if let Some(Operand { name, place, .. }) = long {
                return Err(format!(
                    "{entry} binds {} elements as `{name}`, kernels count to {MOST_ELEMENTS}",
                    place.elements
                ));
            }
            let groups = (Cow::from("groups"), launch.groups.end);
            let counted = launch.too_large.as_ref().or((groups.1 > 1 << 32).then_some(&groups));
            if let Some((name, number)) = counted {
                return Err(format!(
                    "{entry} reads {number} as `{name}`, kernels count in 32 bits"
                ));
            }
            if launch.workgroup > limits.workgroup {
                return Err(format!(
                    "{entry} has workgroups of {} threads, the device takes {}",
                    launch.workgroup, limits.workgroup
                ));
            }
            split(launch, limits.work, &mut list);
        }
        self.list = list;
        Ok(self)
    }
}

/// Operations that a launch counts as: its arithmetic, or its traffic where that takes longer. Few devices do
/// less arithmetic than this in the time that a byte takes.
pub fn operations(cost: Cost) -> u64 {
    const PER_BYTE: u64 = 4;
    cost.flops.max(cost.bytes.saturating_mul(PER_BYTE))
}

/// How many ranges of workgroups a launch is cut into, for none to have more than `work`.
fn parts(launch: &Launch, work: u64) -> u64 {
    let groups = launch.groups.end - launch.groups.start;
    operations(launch.cost).div_ceil(work.max(1)).clamp(1, groups.max(1))
}

/// Ranges of workgroups of equal size, none with more than `work`, unless a single one has.
fn split(launch: Launch, work: u64, list: &mut Vec<Launch>) {
    let Range { start, end } = launch.groups;
    let groups = end - start;
    let parts = parts(&launch, work);
    for part in 0..parts {
        let range = start + groups * part / parts..start + groups * (part + 1) / parts;
        let cost = Cost { flops: launch.cost.flops / parts, bytes: launch.cost.bytes / parts };
        list.push(Launch { groups: range, cost, ..launch.clone() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_launches_are_cut_and_cover_every_workgroup_once() {
        let launch = Launch { cost: Cost { flops: 1000, bytes: 0 }, ..Launch::new("k", "e", 1, 7) };
        let mut list = vec![];
        split(launch.clone(), 300, &mut list);
        let ranges: Vec<_> = list.iter().map(|part| part.groups.clone()).collect();
        assert_eq!(ranges, [0..1, 1..3, 3..5, 5..7]);
        list.clear();
        split(launch, 10, &mut list);
        assert_eq!(list.len(), 7, "a workgroup can't be cut");
    }

    #[test]
    fn numbers_of_more_than_32_bits_are_refused_by_name() {
        let limits = of_cuda();
        let fit = |launch: Launch| Launches { list: vec![launch], scratch_bytes: 0 }.fit(&limits);
        let launch = || Launch::new("k", "e", 1, 1).constant("C", 7u32);
        assert!(fit(launch().param("last", u64::from(u32::MAX))).is_ok());
        for (large, said) in [
            (launch().param("rows", 1u64 << 32).param("more", 1u64 << 40), "4294967296 as `rows`"),
            (launch().constant("COLUMNS", (1u64 << 32) + 5), "4294967301 as `COLUMNS`"),
            (Launch { groups: 0..(1 << 32) + 1, ..launch() }, "4294967297 as `groups`"),
            (launch().bind("x", of_elements(MOST_ELEMENTS + 1)), "4293918721 elements as `x`"),
        ] {
            let words = fit(large).unwrap_err();
            assert!(words.contains(said), "{words}");
        }
        assert!(fit(launch().bind("x", of_elements(MOST_ELEMENTS))).is_ok());
    }

    fn of_cuda() -> Limits {
        Limits {
            workgroup: 1024,
            shared_bytes: 48 << 10,
            bindings: 64,
            binding_bytes: u64::MAX,
            work: u64::MAX,
            tile: Tile { entry: "tiled", m: 64, n: 64, k: 16, thread_m: 8, thread_n: 4 },
            api: Api::Cuda(CudaLimits::default()),
        }
    }

    fn of_elements(elements: u64) -> Place {
        Place { source: Source::Input(0), dtype: DType::U8, first: 0, elements }
    }

    #[test]
    fn scratch_is_aligned() {
        let mut launches = Launches::new();
        let first = launches.scratch(DType::F32, 3);
        let second = launches.scratch(DType::BF16, 200);
        assert_eq!((first.bytes(), second.bytes()), ((0, 12), (256, 400)));
        assert_eq!(launches.scratch_bytes, 256 + 512);
    }
}

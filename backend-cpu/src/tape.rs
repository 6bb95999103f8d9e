//! Maps on the CPU: formulas compiled once to a short list of instructions over blocks of elements.
//!
//! Each instruction is a loop over one block that the compiler vectorises; blocks stay in the first-level
//! cache, so that a map costs one pass over memory however long its formulas are. Those that a step spends most of its time
//! on are loops of their own: see `adamw` and `gelu`.

mod adamw;
mod compile;
mod gelu;

use std::iter;

use half::{bf16, f16};
use tightrope_core::DType;
use tightrope_core::expr::{Binary, Unary, round_stochastic, split};
use tightrope_core::ops::{KEY_WORDS, Map, RandomKey, fill_uniform};

use crate::arena::View;
use crate::fast::vmath::{self, Simd, Storage, dispatched};
use crate::isa::Isa;
use crate::threads;
use adamw::AdamW;
use gelu::Gelu;

/// Elements of a block.
const BLOCK: usize = 256;
/// Blocks of live values a tape may need; 32 KiB of first-level cache.
const REGISTERS: usize = 32;
/// Elements of a task of the thread pool.
const TASK: usize = 64 * BLOCK;

type Register = [f32; BLOCK];

/// One instruction; operands and results are registers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Instruction {
    Constant {
        to: usize,
        value: f32,
    },
    Load {
        to: usize,
        input: usize,
    },
    Random {
        to: usize,
        stream: u32,
    },
    Unary {
        function: Unary,
        to: usize,
        a: usize,
    },
    Binary {
        function: Binary,
        to: usize,
        a: usize,
        b: usize,
    },
    /// a · b + c
    MulAdd {
        to: usize,
        a: usize,
        b: usize,
        c: usize,
    },
    Select {
        to: usize,
        condition: usize,
        yes: usize,
        no: usize,
    },
    Store {
        output: usize,
        written: Written,
    },
    /// Stores one of two, as a condition says that is the same for all elements.
    StoreEither {
        output: usize,
        condition: usize,
        yes: Written,
        no: Written,
    },
}

/// What a store writes: a register, or a half of its numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Written {
    from: usize,
    half: Option<Half>,
}

/// One of the two that [`split`] gives.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Half {
    High,
    Low,
}

/// A compiled map.
#[derive(Clone, Debug)]
pub struct Tape {
    map: Map,
    /// Run once a task: what is the same for all elements keeps its registers.
    setup: Vec<Instruction>,
    /// Run once a block.
    body: Vec<Instruction>,
    /// What runs instead.
    known: Option<Known>,
}

/// A map with a loop of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Known {
    AdamW(AdamW),
    Gelu(Gelu),
}

impl Instruction {
    fn operands(self) -> Vec<usize> {
        match self {
            Self::Constant { .. } | Self::Load { .. } | Self::Random { .. } => vec![],
            Self::Unary { a, .. } => vec![a],
            Self::Binary { a, b, .. } => vec![a, b],
            Self::MulAdd { a, b, c, .. } => vec![a, b, c],
            Self::Select { condition, yes, no, .. } => vec![condition, yes, no],
            Self::Store { written, .. } => vec![written.from],
            Self::StoreEither { condition, yes, no, .. } => vec![condition, yes.from, no.from],
        }
    }

    /// With values renumbered to registers.
    fn assigned(self, to: usize, register: &dyn Fn(usize) -> usize) -> Self {
        let in_register = |Written { from, half }| Written { from: register(from), half };
        match self {
            Self::Constant { value, .. } => Self::Constant { to, value },
            Self::Load { input, .. } => Self::Load { to, input },
            Self::Random { stream, .. } => Self::Random { to, stream },
            Self::Unary { function, a, .. } => Self::Unary { function, to, a: register(a) },
            Self::Binary { function, a, b, .. } => {
                Self::Binary { function, to, a: register(a), b: register(b) }
            }
            Self::MulAdd { a, b, c, .. } => {
                Self::MulAdd { to, a: register(a), b: register(b), c: register(c) }
            }
            Self::Select { condition, yes, no, .. } => Self::Select {
                to,
                condition: register(condition),
                yes: register(yes),
                no: register(no),
            },
            Self::Store { output, written } => {
                Self::Store { output, written: in_register(written) }
            }
            Self::StoreEither { output, condition, yes, no } => Self::StoreEither {
                output,
                condition: register(condition),
                yes: in_register(yes),
                no: in_register(no),
            },
        }
    }
}

impl Tape {
    /// Whether a loop of its own runs instead of instructions.
    pub fn has_loop(&self) -> bool {
        self.known.is_some()
    }

    /// Runs the map over a node's tensors by the instruction set `isa`, on the current thread pool.
    ///
    /// # Safety
    /// Nothing else uses the tensors meanwhile. Outputs may share storage with inputs as
    /// [`tightrope_core::Rule::overwrites`] and [`tightrope_core::Rule::may_overwrite`] of the map allow.
    pub unsafe fn run(&self, isa: Isa, inputs: &[View<'_>], outputs: &[View<'_>]) {
        let per_segment = self.map.inputs_per_segment(inputs.len());
        let (key, rank): (RandomKey, _) = match inputs.last() {
            Some(key) if self.map.is_random() => {
                // SAFETY: a key is u32[4] or u32[5], which nothing writes meanwhile.
                let words = unsafe { key.slice::<u32>() };
                let rank = words.get(KEY_WORDS).copied().unwrap_or(0);
                ([words[0], words[1], words[2], words[3]], u64::from(rank))
            }
            _ => ([0; 4], 0),
        };
        let count = self.map.formulas.len();
        let tasks: Vec<(usize, usize)> = (0..self.map.segments)
            .flat_map(|segment| {
                let elements = outputs[segment * count].ty().elements();
                (0..elements).step_by(TASK).map(move |start| (segment, start))
            })
            .collect();
        threads::for_each(tasks.len(), |index| {
            let (segment, start) = tasks[index];
            let own = |i| inputs[self.map.position(segment, i, per_segment)];
            let views: Vec<View<'_>> = (0..self.map.shared + per_segment).map(own).collect();
            let outputs = &outputs[segment * count..][..count];
            match self.known {
                // SAFETY: the caller's promise; these elements are this task's alone.
                Some(known) if adamw::BUILT => unsafe {
                    match known {
                        Known::AdamW(update) => update.run(isa, &views, start, TASK),
                        Known::Gelu(gelu) => gelu.run(isa, &views, &outputs[0], start, TASK),
                    }
                },
                _ => {
                    let first = rank * outputs[0].ty().elements() as u64;
                    task(isa, self, &views, outputs, (key, first), start);
                }
            }
        });
    }
}

dispatched!(fn task(tape: &Tape, inputs: &[View<'_>], outputs: &[View<'_>], draws: (RandomKey, u64), start: usize) = run_task);

#[inline(always)]
fn run_task<S: Simd>(
    tape: &Tape,
    inputs: &[View<'_>],
    outputs: &[View<'_>],
    (key, first): (RandomKey, u64),
    start: usize,
) {
    let mut registers = [[0.0; BLOCK]; REGISTERS];
    let elements = outputs[0].ty().elements();
    let end = elements.min(start + TASK);
    let blocks = (start..end).step_by(BLOCK).map(|at| (&tape.body, at));
    for (instructions, at) in iter::once((&tape.setup, start)).chain(blocks) {
        let len = BLOCK.min(end - at);
        for &instruction in instructions {
            match instruction {
                Instruction::Constant { to, value } => registers[to] = [value; BLOCK],
                Instruction::Load { to, input } => {
                    load(&inputs[input], at, &mut registers[to][..len]);
                }
                Instruction::Random { to, stream } => {
                    fill_uniform(key, stream, first + at as u64, &mut registers[to]);
                }
                Instruction::Unary { function, to, a } => {
                    let (to, [a]) = operands(&mut registers, to, [a]);
                    unary::<S>(function, a, to);
                }
                Instruction::Binary { function, to, a, b } => {
                    let (to, [a, b]) = operands(&mut registers, to, [a, b]);
                    binary::<S>(function, a, b, to);
                }
                Instruction::MulAdd { to, a, b, c } => {
                    let (to, [a, b, c]) = operands(&mut registers, to, [a, b, c]);
                    for (i, value) in to.iter_mut().enumerate() {
                        *value = S::mul_add(a[i], b[i], c[i]);
                    }
                }
                Instruction::Select { to, condition, yes, no } => {
                    let (to, [condition, yes, no]) =
                        operands(&mut registers, to, [condition, yes, no]);
                    for (i, value) in to.iter_mut().enumerate() {
                        // A choice between two numbers in memory becomes one between addresses, which
                        // doesn't vectorise.
                        let chosen = if condition[i] != 0.0 { u32::MAX } else { 0 };
                        let bits = yes[i].to_bits() & chosen | no[i].to_bits() & !chosen;
                        *value = f32::from_bits(bits);
                    }
                }
                Instruction::Store { output, written } => {
                    let from = &registers[written.from][..len];
                    store(&outputs[output], at, from, written.half);
                }
                Instruction::StoreEither { output, condition, yes, no } => {
                    let written = if registers[condition][0] != 0.0 { yes } else { no };
                    let from = &registers[written.from][..len];
                    store(&outputs[output], at, from, written.half);
                }
            }
        }
    }
}

/// The register of a result, and those of its operands, of which some may be one.
///
/// # Panics
/// Where the result's is among the operands', which [`Tape::compile`] rules out.
#[inline(always)]
fn operands<const N: usize>(
    registers: &mut [Register; REGISTERS],
    to: usize,
    from: [usize; N],
) -> (&mut Register, [&Register; N]) {
    assert!(to < REGISTERS && from.iter().all(|&a| a < REGISTERS && a != to));
    let start = registers.as_mut_ptr();
    // SAFETY: in bounds, and the one that is written is none of those that are read.
    unsafe { (&mut *start.add(to), from.map(|a| &*start.add(a))) }
}

#[inline(always)]
fn each(a: &Register, to: &mut Register, f: impl Fn(f32) -> f32) {
    for (to, &a) in to.iter_mut().zip(a) {
        *to = f(a);
    }
}

#[inline(always)]
fn unary<S: Simd>(function: Unary, a: &Register, to: &mut Register) {
    match function {
        Unary::Neg => each(a, to, |x| -x),
        Unary::Exp => each(a, to, vmath::exp::<S>),
        Unary::Ln => each(a, to, vmath::ln::<S>),
        Unary::Sqrt => each(a, to, f32::sqrt),
        Unary::Tanh => each(a, to, vmath::tanh::<S>),
        Unary::Sigmoid => each(a, to, vmath::sigmoid::<S>),
        Unary::Erf => each(a, to, vmath::erf::<S>),
        Unary::Sin => each(a, to, vmath::sin::<S>),
        Unary::Cos => each(a, to, vmath::cos::<S>),
        Unary::Abs => each(a, to, f32::abs),
        Unary::Sign => each(a, to, |x| if x == 0.0 { 0.0 } else { x.signum() }),
        Unary::Floor => each(a, to, f32::floor),
        Unary::IsFinite => each(a, to, |x| if x.is_finite() { 1.0 } else { 0.0 }),
        Unary::HighHalf => each(a, to, |x| split(x).0.to_f32()),
        Unary::LowHalf => each(a, to, |x| f32::from(split(x).1)),
    }
}

#[inline(always)]
fn pairs(a: &Register, b: &Register, to: &mut Register, f: impl Fn(f32, f32) -> f32) {
    for ((to, &a), &b) in to.iter_mut().zip(a).zip(b) {
        *to = f(a, b);
    }
}

#[inline(always)]
fn binary<S: Simd>(function: Binary, a: &Register, b: &Register, to: &mut Register) {
    match function {
        Binary::Add => pairs(a, b, to, |a, b| a + b),
        Binary::Sub => pairs(a, b, to, |a, b| a - b),
        Binary::Mul => pairs(a, b, to, |a, b| a * b),
        Binary::Div => pairs(a, b, to, |a, b| a / b),
        Binary::Max => pairs(a, b, to, |a, b| if a > b { a } else { b }),
        Binary::Min => pairs(a, b, to, |a, b| if a < b { a } else { b }),
        Binary::Pow => pairs(a, b, to, vmath::pow::<S>),
        Binary::Less => pairs(a, b, to, |a, b| if a < b { 1.0 } else { 0.0 }),
        Binary::StochasticHalf => pairs(a, b, to, round_stochastic),
        Binary::JoinHalves => pairs(a, b, to, |high, low| {
            f32::from_bits(high.to_bits().wrapping_add(low as i32 as u32))
        }),
    }
}

/// Elements `at ..` of an input, repeated where it has fewer than the output.
#[inline(always)]
fn load(view: &View<'_>, at: usize, to: &mut [f32]) {
    let elements = view.ty().elements();
    if elements == 1 {
        let mut value = [0.0];
        load_run(view, 0, &mut value);
        to.fill(value[0]);
        return;
    }
    let mut done = 0;
    while done < to.len() {
        let from = (at + done) % elements;
        let len = (elements - from).min(to.len() - done);
        load_run(view, from, &mut to[done..done + len]);
        done += len;
    }
}

#[inline(always)]
fn load_run(view: &View<'_>, from: usize, to: &mut [f32]) {
    /// # Safety
    /// As [`View::slice`].
    #[inline(always)]
    unsafe fn run<T: Storage>(view: &View<'_>, from: usize, to: &mut [f32]) {
        // SAFETY: the elements of this block are read here, before any task writes them: an output in
        // place has the indices of its input, and both belong to this task.
        let part =
            unsafe { std::slice::from_raw_parts(view.ptr().cast::<T>().add(from), to.len()) };
        // The block after the next, so that it's there when the arithmetic of these two is done.
        vmath::prefetch(part.as_ptr().wrapping_add(2 * BLOCK), part.len());
        T::load(part, to);
    }
    debug_assert!(from + to.len() <= view.ty().elements(), "the run is inside the tensor");
    // SAFETY: in bounds, and the type has the dtype's size.
    unsafe {
        match view.ty().dtype {
            DType::F32 => run::<f32>(view, from, to),
            DType::BF16 => run::<bf16>(view, from, to),
            DType::F16 => run::<f16>(view, from, to),
            DType::I16 => {
                let start = view.ptr().cast::<i16>().add(from);
                for (i, value) in to.iter_mut().enumerate() {
                    *value = f32::from(start.add(i).read());
                }
            }
            dtype => {
                let size = dtype.size();
                for (i, value) in to.iter_mut().enumerate() {
                    let element = view.ptr().add((from + i) * size);
                    *value = dtype.read(std::slice::from_raw_parts(element, size)) as f32;
                }
            }
        }
    }
}

#[inline(always)]
fn store(view: &View<'_>, at: usize, from: &[f32], half: Option<Half>) {
    /// # Safety
    /// As [`View::slice_mut`].
    #[inline(always)]
    unsafe fn run<T: Storage>(view: &View<'_>, at: usize, from: &[f32]) {
        // SAFETY: these elements belong to this task, whose loads of them are done.
        let part =
            unsafe { std::slice::from_raw_parts_mut(view.ptr().cast::<T>().add(at), from.len()) };
        T::store(from, part);
    }
    debug_assert!(at + from.len() <= view.ty().elements(), "the run is inside the tensor");
    // SAFETY: in bounds, and the type has the dtype's size.
    unsafe {
        match (view.ty().dtype, half) {
            (DType::BF16, Some(Half::High)) => {
                let start = view.ptr().cast::<bf16>().add(at);
                for (i, &value) in from.iter().enumerate() {
                    start.add(i).write(split(value).0);
                }
            }
            (DType::I16, Some(Half::Low)) => {
                let start = view.ptr().cast::<i16>().add(at);
                for (i, &value) in from.iter().enumerate() {
                    start.add(i).write(split(value).1);
                }
            }
            (DType::F32, _) => run::<f32>(view, at, from),
            (DType::BF16, _) => run::<bf16>(view, at, from),
            (DType::F16, _) => run::<f16>(view, at, from),
            (DType::I16, _) => {
                let start = view.ptr().cast::<i16>().add(at);
                for (i, &value) in from.iter().enumerate() {
                    // In range, so that the conversion to i32 is one instruction, for many elements at a time.
                    let bounded = if value.is_nan() { 0.0 } else { value };
                    let bounded = bounded.clamp(i16::MIN.into(), i16::MAX.into());
                    start.add(i).write(bounded.to_int_unchecked::<i32>() as i16);
                }
            }
            (dtype, _) => {
                let size = dtype.size();
                for (i, &value) in from.iter().enumerate() {
                    let element = view.ptr().add((at + i) * size);
                    dtype.write(std::slice::from_raw_parts_mut(element, size), value.into());
                }
            }
        }
    }
}

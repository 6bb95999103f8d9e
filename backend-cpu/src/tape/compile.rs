//! From formulas to instructions: equal sub-formulas once, what is the same for all elements once a task, products and sums
//! in one, and registers for the rest.

use tightrope_core::expr::{Binary, Expr, Term, Unary};
use tightrope_core::ops::Map;
use tightrope_core::{DType, Type};

use super::adamw::AdamW;
use super::gelu::Gelu;
use super::{Half, Instruction, Known, REGISTERS, Tape, Written};

/// Values of a formula list before registers are assigned.
#[derive(Default)]
struct Compiler {
    values: Vec<(Expr, Instruction)>,
}

impl Compiler {
    /// Number of the value of `formula`; equal sub-formulas are computed once.
    fn value(&mut self, formula: &Expr) -> usize {
        if let Some(known) = self.values.iter().position(|(of, _)| of == formula) {
            return known;
        }
        let to = 0;
        let instruction = match formula.term() {
            Term::Const(value) => Instruction::Constant { to, value: *value as f32 },
            Term::Input(input) => Instruction::Load { to, input: *input },
            Term::Random(stream) => Instruction::Random { to, stream: *stream },
            Term::Unary(function, a) => {
                Instruction::Unary { function: *function, to, a: self.value(a) }
            }
            Term::Binary(function, a, b) => {
                let (a, b) = (self.value(a), self.value(b));
                Instruction::Binary { function: *function, to, a, b }
            }
            Term::Select(condition, yes, no) => {
                let (condition, yes, no) = (self.value(condition), self.value(yes), self.value(no));
                Instruction::Select { to, condition, yes, no }
            }
        };
        self.values.push((formula.clone(), instruction));
        self.values.len() - 1
    }
}

/// How often each value is read, by what the stores need.
fn readers(values: &[Instruction], stores: &[Instruction]) -> Vec<usize> {
    let mut readers = vec![0; values.len()];
    stores.iter().flat_map(|store| store.operands()).for_each(|value| readers[value] += 1);
    for at in (0..values.len()).rev() {
        if readers[at] > 0 {
            values[at].operands().into_iter().for_each(|value| readers[value] += 1);
        }
    }
    readers
}

/// Turns sums of a product that nothing else reads into one instruction, which rounds once where the CPU can.
fn fuse_products(values: &mut [Instruction], stores: &[Instruction]) {
    let readers = readers(values, stores);
    for at in 0..values.len() {
        let Instruction::Binary { function: Binary::Add, to, a: left, b: right } = values[at]
        else {
            continue;
        };
        for (product, c) in [(left, right), (right, left)] {
            if let Instruction::Binary { function: Binary::Mul, a, b, .. } = values[product]
                && readers[product] == 1
                && left != right
            {
                values[at] = Instruction::MulAdd { to, a, b, c };
                break;
            }
        }
    }
}

/// Which inputs of a formula have one element in every segment.
fn scalars(map: &Map, inputs: &[&Type]) -> Vec<bool> {
    let per_segment = map.inputs_per_segment(inputs.len());
    let is_scalar = |input: usize| {
        let mut positions =
            (0..map.segments).map(|segment| map.position(segment, input, per_segment));
        positions.all(|position| inputs[position].elements() == 1)
    };
    (0..map.shared + per_segment).map(is_scalar).collect()
}

/// Which values are the same for all elements, where inputs are that of which `scalars` says so.
fn uniform(values: &[Instruction], scalars: &[bool]) -> Vec<bool> {
    let mut uniform = vec![false; values.len()];
    for (at, &value) in values.iter().enumerate() {
        uniform[at] = match value {
            Instruction::Load { input, .. } => scalars.get(input) == Some(&true),
            Instruction::Random { .. } => false,
            _ => value.operands().into_iter().all(|operand| uniform[operand]),
        };
    }
    uniform
}

/// The store of a result. What is chosen for all elements at once isn't copied, and a half isn't widened to be narrowed again.
fn store_of(
    output: usize,
    result: usize,
    dtype: DType,
    values: &[Instruction],
    uniform: &[bool],
) -> Instruction {
    let written = |value: usize| {
        let half = match (values[value], dtype) {
            (Instruction::Unary { function: Unary::HighHalf, a, .. }, DType::BF16) => {
                Some((a, Half::High))
            }
            (Instruction::Unary { function: Unary::LowHalf, a, .. }, DType::I16) => {
                Some((a, Half::Low))
            }
            _ => None,
        };
        let (from, half) = half.map_or((value, None), |(from, half)| (from, Some(half)));
        Written { from, half }
    };
    match values[result] {
        Instruction::Select { condition, yes, no, .. } if uniform[condition] => {
            let (yes, no) = (written(yes), written(no));
            Instruction::StoreEither { output, condition, yes, no }
        }
        _ => Instruction::Store { output, written: written(result) },
    }
}

impl Tape {
    /// Compiles `map` over inputs of these types; `None` where it needs more live values than there are registers.
    ///
    /// All loads come before all stores of a block, so that outputs may overwrite inputs.
    pub fn compile(map: &Map, inputs: &[&Type]) -> Option<Self> {
        let mut compiler = Compiler::default();
        let results: Vec<usize> =
            map.formulas.iter().map(|formula| compiler.value(formula)).collect();
        let mut values: Vec<Instruction> = compiler.values.iter().map(|&(_, i)| i).collect();
        let uniform = uniform(&values, &scalars(map, inputs));
        let outputs = results.iter().zip(&map.dtypes).enumerate();
        let stores: Vec<Instruction> = outputs
            .map(|(output, (&result, &dtype))| store_of(output, result, dtype, &values, &uniform))
            .collect();
        fuse_products(&mut values, &stores);
        let readers = readers(&values, &stores);
        let needed = |is_uniform: bool| {
            let (uniform, readers) = (&uniform, &readers);
            (0..values.len()).filter(move |&at| uniform[at] == is_uniform && readers[at] > 0)
        };
        // When a register is free again: never where a block reads what a task set up.
        let mut last_use = vec![0; values.len()];
        for at in needed(true).chain(needed(false)) {
            let kept =
                |operand: usize| if uniform[operand] && !uniform[at] { usize::MAX } else { at };
            values[at].operands().into_iter().for_each(|operand| {
                last_use[operand] = kept(operand);
            });
        }
        let stored = stores.iter().flat_map(|store| store.operands());
        stored.for_each(|value| last_use[value] = usize::MAX);
        let mut free: Vec<usize> = (0..REGISTERS).rev().collect();
        let mut register = vec![usize::MAX; values.len()];
        let mut assign = |at: usize| {
            // A result never shares a register with an operand: it's taken before they are given back.
            register[at] = free.pop()?;
            let assigned = values[at].assigned(register[at], &|value| register[value]);
            let mut operands = values[at].operands();
            operands.sort_unstable();
            operands.dedup();
            let dead = |&value: &usize| last_use[value] == at;
            free.extend(operands.into_iter().filter(dead).map(|value| register[value]));
            Some(assigned)
        };
        let setup = needed(true).map(&mut assign).collect::<Option<_>>()?;
        let mut body = needed(false).map(&mut assign).collect::<Option<Vec<_>>>()?;
        body.extend(stores.iter().map(|store| store.assigned(0, &|value| register[value])));
        let known = AdamW::of(map, inputs).map(Known::AdamW);
        let known = known.or_else(|| Gelu::of(map, inputs).map(Known::Gelu));
        Some(Self { map: map.clone(), setup, body, known })
    }
}

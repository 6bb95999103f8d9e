//! What the ops of every rule read, and the map that makes an elementwise one.

use tightrope_core::expr::{Binary, constant, input, random};
use tightrope_core::ops::{Dequantize, Map, Quantize};
use tightrope_core::{Class, DType, Expr, Graph, Tensor};

use super::state::{State, StateBits, TableBits, block, codebook};
use super::trained::{Rule, Trained};
use super::{Optimizer, SQUARES, Terms};
use crate::error::Result;

/// How an update treats gradients and weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UpdateOptions {
    /// Weight decay of the parameters that decay.
    pub weight_decay: f64,
    /// Largest norm of all gradients together.
    pub clip: Option<f64>,
    /// Write 0 over every gradient, for the next step to add to.
    pub zero_gradients: bool,
    /// Update each parameter as soon as its gradient is made, so that few gradients exist at once: without clipping, and
    /// whether or not the step turns out to be finite.
    pub consume: bool,
    /// Bits of each number of state.
    pub bits: StateBits,
    /// Those of tables, where state is in 8 bits.
    pub table_bits: TableBits,
    /// Key of random numbers, U32 (4), where [`StateBits::draws`] or bf16 weights have no remainders.
    pub key: Option<Tensor>,
}

/// Persistent f32 (1) tensors that the host writes before each update.
#[derive(Clone, Copy, Debug)]
pub struct Scalars {
    /// Learning rate.
    pub lr: Tensor,
}

/// What all groups of parameters read.
pub(super) struct Shared<'a> {
    /// The rule of what is updated by maps.
    pub optimizer: Optimizer,
    pub options: &'a UpdateOptions,
    pub scalars: Scalars,
    /// AdamW's bias corrections or Adafactor's decays; `None` for other rules.
    pub corrections: Option<[Tensor; 2]>,
    pub ok: Tensor,
    pub factor: Tensor,
    /// Key of random numbers, where weights or new state are rounded by them.
    pub key: Option<Tensor>,
    pub streams: Streams,
}

/// Streams of the random numbers that round. All parameters share them, so that a weight is rounded alike whichever map it's
/// updated in.
pub(super) struct Streams {
    pub weights: u32,
    /// By the position of the slot.
    pub slots: [u32; 2],
}

impl Streams {
    pub fn new(graph: &mut Graph) -> Self {
        let mut stream = || graph.new_stream();
        Self { slots: [stream(), stream()], weights: stream() }
    }
}

impl Shared<'_> {
    /// New state of the slot at `position` as it's stored: rounded by random numbers where it's bf16.
    pub fn rounded(&self, position: usize, new: Expr) -> Expr {
        match self.options.bits {
            StateBits::B16 => {
                new.binary(Binary::StochasticHalf, random(self.streams.slots[position]))
            }
            StateBits::B32 | StateBits::B8 => new,
        }
    }

    /// Appends a map over `inputs`, and the key where it draws random numbers.
    pub fn push(
        &self,
        graph: &mut Graph,
        map: Map,
        mut inputs: Vec<Tensor>,
        name: &str,
    ) -> Result<Vec<Tensor>> {
        inputs.extend(self.key.filter(|_| map.is_random()));
        Ok(graph.push(map, &inputs, name)?)
    }

    /// Appends one map over parameters of one kind, each given as its weight, its remainder, its gradient
    /// and its state. Gives the new weight, remainder and state of each. With `rooted`, the state holds roots of
    /// squares.
    pub fn append(
        &self,
        graph: &mut Graph,
        (decays, master): Rule,
        own: &[Vec<Tensor>],
        rooted: bool,
        name: &str,
    ) -> Result<Vec<Tensor>> {
        let mut inputs = vec![self.ok, self.factor, self.scalars.lr];
        inputs.extend(self.corrections.into_iter().flatten());
        let shared = inputs.len();
        inputs.extend(own.iter().flatten());

        let (weight, gradient) = (shared, shared + 1 + master.remainders());
        let slots: Vec<usize> =
            (gradient + 1..gradient + 1 + self.optimizer.slots().len()).collect();
        let is_root = |position: usize| rooted && self.optimizer.slots()[position] == SQUARES;
        let value = |(position, &slot): (usize, &usize)| match is_root(position) {
            true => input(slot) * input(slot),
            false => input(slot),
        };
        let state: Vec<Expr> = slots.iter().enumerate().map(value).collect();
        let (after, new_state) = self.optimizer.step(Terms {
            weight: master.value(weight),
            gradient: input(gradient) * input(1),
            state: &state,
            lr: input(2),
            corrections: self.corrections.map(|_| [input(3), input(4)]),
            weight_decay: if decays { self.options.weight_decay } else { 0.0 },
        });

        // Each formula with the input that its output is written over.
        let mut written = master.written(self.streams.weights, weight, after);
        let new_state = new_state.into_iter().enumerate();
        let new_state =
            new_state.map(|(at, new)| self.rounded(at, if is_root(at) { new.sqrt() } else { new }));
        written.extend(slots.into_iter().zip(new_state));
        let mut formulas: Vec<Expr> =
            written.iter().map(|(over, new)| input(0).select(new.clone(), input(*over))).collect();
        let mut over: Vec<usize> = written.into_iter().map(|(over, _)| over).collect();
        if self.options.zero_gradients {
            formulas.push(constant(0.0));
            over.push(gradient);
        }
        let dtypes = over.iter().map(|&index| graph.dtype(inputs[index])).collect();
        let map = Map {
            shared,
            segments: own.len(),
            in_place: over.into_iter().enumerate().collect(),
            ..Map::several(formulas, dtypes)
        };
        self.push(graph, map, inputs, name)
    }
}

/// One slot of a parameter's state, in 8 bits.
pub(super) struct Blocks<'a> {
    parameter: &'a str,
    slot: &'static str,
    quantized: Tensor,
    scales: Tensor,
    /// Elements that share a scale.
    block: usize,
}

impl<'a> Blocks<'a> {
    /// The slots of a parameter whose state is quantized, each with its scales.
    pub fn of(graph: &Graph, trained: &'a Trained, state: &[State]) -> Vec<Self> {
        let (parameter, block) = (&trained.name, block(graph, trained));
        let pairs = state.as_chunks::<2>().0.iter();
        pairs
            .map(|[quantized, scales]| Self {
                parameter,
                slot: quantized.slot,
                quantized: quantized.tensor,
                scales: scales.tensor,
                block,
            })
            .collect()
    }

    /// Appends the state in f32.
    pub fn values(&self, graph: &mut Graph) -> Result<Tensor> {
        let op = Dequantize { block: self.block, codebook: codebook(self.slot), dtype: DType::F32 };
        let name = format!("update.{}.{}", self.parameter, self.slot);
        let values = graph.one(op, &[self.quantized, self.scales], &name)?;
        graph.info_mut(values).class = Class::Optimizer;
        Ok(values)
    }

    /// Appends the quantized new state over the old one, where `ok`.
    pub fn store(&self, graph: &mut Graph, values: Tensor, ok: Tensor) -> Result<()> {
        let op = Quantize { block: self.block, codebook: codebook(self.slot), update: true };
        let name = format!("update.{}.{}.codes", self.parameter, self.slot);
        graph.push(op, &[values, self.quantized, self.scales, ok], &name)?;
        Ok(())
    }
}

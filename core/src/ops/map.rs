//! Elementwise formulas: activations, residuals, casts, dropout, masks and every elementwise optimizer.
//!
//!   out[i] = formula(in₀[i mod n₀], in₁[i mod n₁], …)
//!
//! An input with fewer elements repeats along the leading axes (its shape is a suffix of the output's).
//! A map of several segments applies one formula to several groups of tensors in one launch.

mod frame;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Array, Case, Cost, Inferred, Rule, arity, ensure, range, traffic, unit, whole};
use crate::error::Result;
use crate::expr::{Expr, constant, input, random};
use crate::launch::{Launch, Launched, Launches, Limits, Place};
use crate::ops::{Node, Reduce, Tape};
use crate::random::{KEY_WORDS, RandomKey, SHARD_KEY_WORDS, uniform};
use crate::tensor::Tensor;
use crate::types::{DType, Type};
use frame::Frame;

/// One formula an output, over every element.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Map {
    /// One formula an output; `Input(i)` counts shared inputs first, then a segment's own.
    pub formulas: Vec<Expr>,
    /// Storage of each output.
    pub dtypes: Vec<DType>,
    /// Shape of the outputs where no input has it; else the largest input's shape.
    pub shape: Option<Vec<usize>>,
    /// Leading inputs that all segments read.
    pub shared: usize,
    /// Groups of tensors the formulas are applied to.
    pub segments: usize,
    /// Outputs written over a formula input of the same segment, as (output, formula input).
    pub in_place: Vec<(usize, usize)>,
}

impl Map {
    /// One output over one group of inputs.
    pub fn new(formula: Expr, dtype: DType) -> Self {
        Self::several(vec![formula], vec![dtype])
    }

    /// Several outputs over one group of inputs.
    pub fn several(formulas: Vec<Expr>, dtypes: Vec<DType>) -> Self {
        Self { formulas, dtypes, shape: None, shared: 0, segments: 1, in_place: vec![] }
    }

    /// `value` everywhere; takes no inputs.
    pub fn fill(value: f64, ty: &Type) -> Self {
        Self { shape: Some(ty.shape.clone()), ..Self::new(constant(value), ty.dtype) }
    }

    /// Another storage type, rounded to nearest even.
    pub fn cast(dtype: DType) -> Self {
        Self::new(input(0), dtype)
    }

    /// The sum of two tensors, the second possibly repeated along leading axes.
    pub fn add(dtype: DType) -> Self {
        Self::new(input(0) + input(1), dtype)
    }

    /// Zeroes elements with probability `p` and scales the rest by 1/(1 − p) (Srivastava et al. 2014).
    /// Takes the tensor and a key of four u32, or of five ([`SHARD_KEY_WORDS`]). A recomputed copy draws the same numbers.
    pub fn dropout(p: f64, stream: u32, dtype: DType) -> Self {
        let kept = input(0) * constant(1.0 / (1.0 - p));
        Self::new(random(stream).less(constant(p)).select(constant(0.0), kept), dtype)
    }

    /// Whether the last input is a key for random numbers.
    pub fn is_random(&self) -> bool {
        self.formulas.iter().any(Expr::is_random)
    }

    /// How many inputs formulas read, of one segment and shared.
    pub(crate) fn arity(&self) -> usize {
        self.formulas.iter().map(Expr::arity).max().unwrap_or(0)
    }

    /// Inputs of one segment, shared ones apart, given how many the node has.
    pub fn inputs_per_segment(&self, inputs: usize) -> usize {
        (inputs - usize::from(self.is_random()) - self.shared) / self.segments
    }

    /// Position among the node's inputs of formula input `index` in `segment`.
    pub fn position(&self, segment: usize, index: usize, per_segment: usize) -> usize {
        if index < self.shared { index } else { index + segment * per_segment }
    }

    fn output_shape<'a>(&'a self, of_segment: impl Iterator<Item = &'a Type>) -> &'a [usize] {
        match &self.shape {
            Some(shape) => shape,
            None => of_segment
                .max_by_key(|ty| (ty.elements(), ty.shape.len()))
                .map_or(&[], |ty| &ty.shape),
        }
    }

    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        use DType::{BF16, F16, F32, I16, U32};
        let (x, y) = (input(0), input(1));
        let gelu = constant(0.5)
            * x.clone()
            * (constant(1.0)
                + (constant(0.797_884_560_802_865_4)
                    * (x.clone() + constant(0.044_715) * x.clone() * x.clone() * x.clone()))
                .tanh());
        let silu_product = x.clone() * x.clone().sigmoid() * y.clone();
        let mut cases = vec![
            Case::new(Self::fill(2.5, &Type::new(F32, [7])), vec![]),
            Case::new(Self::cast(BF16), vec![unit(F32, &[3, 17])]),
            Case::new(Self::cast(F32), vec![unit(F16, &[65])]),
            Case::new(
                Self::several(vec![x.clone() + y.clone(), x.clone() * y.clone()], vec![F32, BF16]),
                vec![unit(F32, &[2, 3, 5]), unit(BF16, &[3, 5])],
            ),
            Case::new(
                Self::dropout(0.25, 3, F32),
                vec![unit(F32, &[9, 31]), whole(U32, &[4], 0, 1 << 31)],
            ),
            Case::new(
                Self::new(
                    (x.clone() + constant(1.5)).sqrt().ln() / (y.clone() + constant(2.0)),
                    F32,
                ),
                vec![unit(F32, &[5, 1]), unit(F32, &[1])],
            ),
            Case::new(
                Self::new(x.clone().erf() + y.clone().max(constant(0.1)).pow(constant(0.75)), F32),
                vec![unit(F32, &[257]), unit(F32, &[257])],
            ),
        ];
        for shape in [&[1][..], &[4, 768], &[1031], &[2, 3, 64]] {
            cases.push(Case::new(Self::new(gelu.clone(), F32), vec![range(F32, shape, -5.0, 5.0)]));
            cases.push(Case::new(
                Self::new(silu_product.clone(), BF16),
                vec![range(BF16, shape, -5.0, 5.0), unit(BF16, shape)],
            ));
        }
        cases.push(Case::new(
            Self {
                in_place: vec![(0, 1)],
                shared: 1,
                segments: 2,
                ..Self::new(input(1) - input(0) * input(2), F32)
            },
            vec![
                unit(F32, &[1]),
                unit(F32, &[3, 5]),
                unit(F32, &[3, 5]),
                unit(F32, &[7]),
                unit(F32, &[7]),
            ],
        ));
        // More numbers than a launch binds tensors.
        let numbers = 7;
        let sum =
            (0..numbers).fold(input(numbers), |sum, index| sum + input(index) * constant(0.5));
        let mut inputs = vec![unit(F32, &[1]); numbers];
        inputs.push(unit(F32, &[65]));
        cases.push(Case::new(Self { shared: numbers, ..Self::new(sum, F32) }, inputs));
        use crate::expr::{Binary, Unary};
        cases.push(Case::new(
            Self::several(
                vec![x.clone().unary(Unary::HighHalf), x.clone().unary(Unary::LowHalf)],
                vec![BF16, I16],
            ),
            vec![range(F32, &[300], -3.0, 3.0)],
        ));
        cases.push(Case::new(
            Self::new(x.clone().binary(Binary::StochasticHalf, random(5)), BF16),
            vec![range(F32, &[1031], -3.0, 3.0), whole(U32, &[4], 0, 1 << 31)],
        ));
        // A shard of a rank; a browser's tab has no ranks.
        let shards = [&[1032][..], &[7, 19]];
        for shape in if cfg!(target_family = "wasm") { &[] } else { &shards[..] } {
            cases.push(Case::new(
                Self::new(x.clone().binary(Binary::StochasticHalf, random(5)), BF16),
                vec![range(F32, shape, -3.0, 3.0), whole(U32, &[SHARD_KEY_WORDS], 0, 5)],
            ));
        }
        let exact = x.clone() + y.clone() + input(2);
        let sum = exact.clone().unary(Unary::HighHalf);
        let compensated = Self::several(vec![sum.clone(), exact - sum], vec![BF16; 2]);
        cases.push(Case::new(
            Self { in_place: vec![(0, 0), (1, 1)], ..compensated },
            vec![unit(BF16, &[5, 61]), unit(BF16, &[5, 61]), unit(F32, &[5, 61])],
        ));
        cases.push(Case::new(
            Self::new(x.binary(Binary::JoinHalves, y), F32),
            vec![unit(BF16, &[300]), whole(I16, &[300], -32768, 32768)],
        ));
        cases
    }
}

impl Rule for Map {
    fn name(&self) -> &'static str {
        "map"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        ensure(self.formulas.len() == self.dtypes.len() && !self.formulas.is_empty(), || {
            "needs one dtype a formula".into()
        })?;
        let key = usize::from(self.is_random());
        ensure(inputs.len() >= self.shared + key, || "lacks shared inputs or the key".into())?;
        if key == 1 {
            let [last] = arity(&inputs[inputs.len() - 1..])?;
            let is_key = |&words: &usize| *last == Type::new(DType::U32, [words]);
            let has_shards = !cfg!(target_family = "wasm");
            ensure(is_key(&KEY_WORDS) || has_shards && is_key(&SHARD_KEY_WORDS), || {
                format!(
                    "draws random numbers, so its last input must be a key u32[4], or u32[5] with a rank, is \
                     {last}"
                )
            })?;
        }
        let own = inputs.len() - self.shared - key;
        ensure(self.segments > 0 && own.is_multiple_of(self.segments), || {
            format!("{own} inputs don't divide into {} segments", self.segments)
        })?;
        let per_segment = own / self.segments;
        let used = self.arity();
        ensure(used == self.shared + per_segment, || {
            format!("the formula reads {used} inputs, a segment has {}", self.shared + per_segment)
        })?;
        let mut outputs = vec![];
        for segment in 0..self.segments {
            let of_segment = || {
                (0..self.shared + per_segment)
                    .map(|i| inputs[self.position(segment, i, per_segment)])
            };
            let shape = self.output_shape(of_segment()).to_vec();
            for ty in of_segment() {
                let ones = shape.iter().rev().take_while(|&&extent| extent == 1).count();
                let fits = ty.elements() == 1
                    || (0..=ones).any(|k| shape[..shape.len() - k].ends_with(&ty.shape));
                ensure(fits, || format!("{ty} is not a suffix of the output shape {shape:?}"))?;
            }
            outputs.extend(self.dtypes.iter().map(|&dtype| Type::new(dtype, shape.clone())));
        }
        Ok(outputs)
    }

    fn overwrites(&self) -> Vec<(usize, usize)> {
        let per_segment = self.arity() - self.shared;
        (0..self.segments)
            .flat_map(|segment| {
                self.in_place.iter().map(move |&(output, index)| {
                    let output = segment * self.formulas.len() + output;
                    (output, self.position(segment, index, per_segment))
                })
            })
            .collect()
    }

    fn may_overwrite(&self) -> Vec<(usize, usize)> {
        if self.segments > 1 || !self.in_place.is_empty() {
            return vec![];
        }
        let inputs = self.formulas.iter().flat_map(Expr::inputs).collect::<BTreeSet<_>>();
        (0..self.formulas.len()).flat_map(|o| inputs.iter().map(move |&i| (o, i))).collect()
    }

    fn retype(&mut self, with: &dyn Fn(DType) -> DType) {
        self.dtypes.iter_mut().for_each(|dtype| *dtype = with(*dtype));
    }

    fn grad(
        &self,
        graph: &mut dyn Tape,
        node: &Node,
        outputs: &[Option<Tensor>],
        wanted: &[bool],
    ) -> Result<Vec<Option<Tensor>>> {
        if let (true, Some(input)) = (self.segments > 1, wanted.iter().position(|&w| w)) {
            return Err(crate::Error::NoGradient {
                op: self.name(),
                name: graph.info(node.outputs[0]).name.clone(),
                input,
            });
        }
        let mut grads = vec![None; node.inputs.len()];
        let key = self.is_random().then(|| node.inputs[node.inputs.len() - 1]);
        let own = node.inputs.len() - usize::from(key.is_some());
        // Inputs of a gradient map: this map's own, then the gradients of its outputs.
        let mut slopes = vec![];
        for index in (0..own).filter(|&index| wanted[index] && self.segments == 1) {
            let mut slope = constant(0.0);
            for (o, formula) in self.formulas.iter().enumerate() {
                if outputs[o].is_some() {
                    slope = slope + formula.derivative(index) * input(own + o);
                }
            }
            match slope.as_const() {
                Some(0.0) => {}
                _ => slopes.push((index, slope)),
            }
        }
        let full = graph.ty(node.outputs[0]).shape.clone();
        // Gradients of inputs that aren't repeated come out of one pass.
        let mut together = vec![];
        for (index, slope) in slopes {
            let tensor = node.inputs[index];
            let passed_on =
                (0..outputs.len()).find(|&o| slope == input(own + o)).and_then(|o| outputs[o]);
            let same_shape = graph.ty(tensor).shape == full;
            let dtype = graph.grad_dtype(tensor);
            match passed_on {
                Some(dy) if same_shape && graph.dtype(dy) == dtype => grads[index] = Some(dy),
                Some(dy) if !same_shape => {
                    grads[index] = Some(sum_to(graph, dy, tensor)?);
                }
                _ if same_shape => together.push((index, slope, dtype)),
                _ => {
                    let dtype = graph.dtype(node.outputs[0]);
                    let dx =
                        self.push_slopes(graph, node, outputs, key, &[(index, slope, dtype)])?;
                    grads[index] = Some(sum_to(graph, dx[0], tensor)?);
                }
            }
        }
        if !together.is_empty() {
            let pushed = self.push_slopes(graph, node, outputs, key, &together)?;
            for ((index, ..), dx) in together.into_iter().zip(pushed) {
                grads[index] = Some(dx);
            }
        }
        Ok(grads)
    }

    fn cost(&self, inputs: &[&Type], outputs: &[&Type]) -> Cost {
        let flops = self
            .formulas
            .iter()
            .cycle()
            .zip(outputs)
            .map(|(formula, ty)| (formula.steps() * ty.elements()) as u64)
            .sum();
        Cost { flops, bytes: traffic(inputs, outputs) }
    }

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let mut launches = Launches::new();
        let per_segment = self.inputs_per_segment(inputs.len());
        let mut used: BTreeSet<usize> = self.formulas.iter().flat_map(Expr::inputs).collect();
        used.extend(self.in_place.iter().map(|&(_, index)| index));
        let key =
            self.is_random().then(|| Place::input(inputs.len() - 1, inputs[inputs.len() - 1]));
        let own = self.formulas.len() - self.in_place.len() + usize::from(key.is_some());
        // Numbers that all elements read share a binding where there are too many tensors.
        let shared: Vec<usize> = used
            .iter()
            .copied()
            .filter(|&i| i < self.shared && inputs[i].elements() == 1)
            .collect();
        let collected = (used.len() + own > limits.bindings).then(|| {
            let numbers = launches.scratch(DType::F32, shared.len() as u64);
            for (slot, &index) in shared.iter().enumerate() {
                let number = Place::input(index, inputs[index]);
                let launch = Launch::new("collect", "collect", 1, 1).param("slot", slot as u64);
                launches.push(launch.bind("number", number).bind("numbers", numbers));
            }
            numbers
        });
        let mut segments = vec![];
        for segment in 0..self.segments {
            let first = segment * self.formulas.len();
            let outputs: Vec<Place> = (first..first + self.formulas.len())
                .map(|index| Place::output(index, outputs[index]))
                .collect();
            let inputs = used.iter().map(|&index| {
                let position = self.position(segment, index, per_segment);
                let slot = shared.iter().position(|&i| i == index).filter(|_| collected.is_some());
                (index, Place::input(position, inputs[position]), slot)
            });
            let frame = Frame { map: self, inputs: inputs.collect(), outputs, key, collected };
            segments.push(frame.launches(limits));
        }
        launches.push_concurrent(segments);
        Ok(launches)
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let per_segment = self.inputs_per_segment(inputs.len());
        let (key, rank): (RandomKey, _) = match inputs.last() {
            Some(key) if self.is_random() => {
                let rank = if key.len() == SHARD_KEY_WORDS { key.get(KEY_WORDS) as u64 } else { 0 };
                (std::array::from_fn(|i| key.get(i) as u32), rank)
            }
            _ => ([0; 4], 0),
        };
        for segment in 0..self.segments {
            let outputs = &outputs[segment * self.formulas.len()..][..self.formulas.len()];
            let own: Vec<Array<'_>> = (0..self.shared + per_segment)
                .map(|i| inputs[self.position(segment, i, per_segment)])
                .collect();
            let first = rank * outputs[0].len() as u64;
            for element in 0..outputs[0].len() {
                let values: Vec<f64> =
                    own.iter().map(|array| array.get(element % array.len())).collect();
                let draw = |stream| uniform(key, stream, first + element as u64);
                let results: Vec<f64> =
                    self.formulas.iter().map(|formula| formula.eval(&values, &draw)).collect();
                for (output, result) in outputs.iter().zip(results) {
                    output.set(element, result);
                }
            }
        }
    }
}

impl Map {
    /// Pushes a map of the given slopes, which read this map's inputs and then its outputs' gradients.
    fn push_slopes(
        &self,
        graph: &mut dyn Tape,
        node: &Node,
        outputs: &[Option<Tensor>],
        key: Option<Tensor>,
        slopes: &[(usize, Expr, DType)],
    ) -> Result<Vec<Tensor>> {
        let used: Vec<usize> = slopes
            .iter()
            .flat_map(|(_, slope, _)| slope.inputs())
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        let own = node.inputs.len() - usize::from(key.is_some());
        let mut inputs: Vec<Tensor> = used
            .iter()
            .map(|&index| {
                if index < own {
                    node.inputs[index]
                } else {
                    outputs[index - own].expect("slopes read only gradients that exist")
                }
            })
            .collect();
        let renumber = |index| {
            input(used.iter().position(|&u| u == index).expect("every input was collected"))
        };
        let formulas: Vec<Expr> =
            slopes.iter().map(|(_, slope, _)| slope.substitute(&renumber)).collect();
        let dtypes = slopes.iter().map(|&(.., dtype)| dtype).collect();
        let shape = Some(graph.ty(node.outputs[0]).shape.clone());
        let map = Self { shape, ..Self::several(formulas, dtypes) };
        inputs.extend(key.filter(|_| map.is_random()));
        let name = format!("grad.{}", graph.info(node.outputs[0]).name);
        graph.push(map, &inputs, &name)
    }
}

impl Map {
    /// Appends launches that fill `place` with zeros.
    pub(super) fn push_zeros(limits: &Limits, launches: &mut Launches, place: Place) {
        let map = &Self::new(constant(0.0), place.dtype);
        let outputs = vec![place];
        let frame = Frame { map, inputs: vec![], outputs, key: None, collected: None };
        launches.push_concurrent(vec![frame.launches(limits)]);
    }

    /// Appends launches of this map's one formula, of the elements of `first` and of those of `second` where it reads them,
    /// into `out`, which may be `first`.
    pub(super) fn push_elementwise(
        &self,
        limits: &Limits,
        launches: &mut Launches,
        first: Place,
        second: Option<Place>,
        out: Place,
    ) {
        let in_place = if first == out { vec![(0, 0)] } else { vec![] };
        let inputs = [Some(first), second].into_iter().flatten().enumerate();
        let frame = Frame {
            map: &Self { in_place, ..self.clone() },
            inputs: inputs.map(|(index, place)| (index, place, None)).collect(),
            outputs: vec![out],
            key: None,
            collected: None,
        };
        launches.push_concurrent(vec![frame.launches(limits)]);
    }
}

/// A launch that writes the elements of one place to another of as many, rounded to its dtype.
pub(crate) fn convert(limits: &Limits, from: Place, to: Place) -> Launch {
    let map = Map::cast(to.dtype);
    let frame = Frame {
        map: &map,
        inputs: vec![(0, from, None)],
        outputs: vec![to],
        key: None,
        collected: None,
    };
    frame.launch(limits, 0..to.elements)
}

/// Sums `dy` over the leading axes that `tensor` was repeated along.
fn sum_to(graph: &mut dyn Tape, dy: Tensor, tensor: Tensor) -> Result<Tensor> {
    let shape = graph.ty(tensor).shape.clone();
    let name = format!("grad.{}", graph.info(tensor).name);
    let dtype = graph.grad_dtype(tensor);
    graph.one(Reduce::to_suffix(shape, dtype), &[dy], &name)
}

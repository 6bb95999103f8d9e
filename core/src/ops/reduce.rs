//! Sums in a fixed order.
//!
//!   suffix: out[s] = scale · Σ over leading axes of x[…,s]      (bias gradients, repeated inputs)
//!   last:   out[r] = scale · Σ_c x[r,c]
//!   squares: out[slot] = Σ x², the rest of out unchanged        (global gradient norm)

use super::{Array, Case, Cost, Inferred, Rule, arity, ensure, float, traffic, unit};
use crate::error::Result;
use crate::graph::{Graph, Node, Tensor};
use crate::ops::{Map, MatMul};
use crate::types::{DType, Type};

/// Which axes are summed.
#[derive(Clone, Debug, PartialEq)]
pub enum Axes {
    /// All but the trailing axes of this shape; the empty shape sums everything.
    ToSuffix(Vec<usize>),
    /// The last one.
    Last,
}

/// A sum. Input: x. Output: the axes that are left, in `dtype`.
#[derive(Clone, Debug, PartialEq)]
pub struct Reduce {
    /// What is summed.
    pub axes: Axes,
    /// Factor on the sum.
    pub scale: f64,
    /// Storage of the output.
    pub dtype: DType,
}

/// Sum of squares of one tensor into its slot of a vector. Inputs: x, sums (N, f32). Output: sums, in place.
#[derive(Clone, Debug, PartialEq)]
pub struct SquareSum {
    /// Index of the sum.
    pub slot: usize,
}

impl Reduce {
    /// Sum over leading axes, leaving the trailing axes of shape `suffix`.
    pub fn to_suffix(suffix: Vec<usize>, dtype: DType) -> Self {
        Self { axes: Axes::ToSuffix(suffix), scale: 1.0, dtype }
    }

    /// Sum over the last axis.
    pub fn last(dtype: DType) -> Self {
        Self { axes: Axes::Last, scale: 1.0, dtype }
    }

    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        let mut cases = vec![];
        for (shape, suffix) in [
            (vec![1], vec![1]),
            (vec![3, 5, 7], vec![7]),
            (vec![67, 129], vec![129]),
            (vec![4, 3, 5], vec![3, 5]),
            (vec![70, 3], vec![]),
        ] {
            for dtype in [DType::F32, DType::BF16] {
                let op = Self::to_suffix(suffix.clone(), DType::F32);
                cases.push(Case::new(Self { scale: 0.5, ..op }, vec![unit(dtype, &shape)]));
                cases.push(Case::new(Self::last(dtype), vec![unit(dtype, &shape)]));
            }
        }
        cases
    }
}

impl Rule for Reduce {
    fn name(&self) -> &'static str {
        "reduce"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let [x] = arity(inputs)?;
        float("x", x)?;
        let shape = match &self.axes {
            Axes::ToSuffix(suffix) => {
                let scalar = suffix.iter().product::<usize>() == 1;
                ensure(x.shape.ends_with(suffix) || scalar, || {
                    format!("{suffix:?} is not a suffix of x {x}")
                })?;
                suffix.clone()
            }
            Axes::Last => {
                ensure(!x.shape.is_empty(), || "x needs an axis".into())?;
                x.shape[..x.shape.len() - 1].to_vec()
            }
        };
        Ok(vec![Type::new(self.dtype, shape)])
    }

    fn grad(
        &self,
        graph: &mut Graph,
        node: &Node,
        outputs: &[Option<Tensor>],
        wanted: &[bool],
    ) -> Result<Vec<Option<Tensor>>> {
        use crate::expr::{constant, input};
        let (Some(dy), true) = (outputs[0], wanted[0]) else { return Ok(vec![None]) };
        let x = node.inputs[0];
        let (ty, dtype) = (graph.ty(x).clone(), graph.grad_dtype(x));
        let name = format!("grad.{}", graph.info(x).name);
        let spread = match self.axes {
            Axes::Last if ty.shape.len() >= 2 => {
                // Repeating along the last axis is an outer product with a row of constants.
                let row = Type::new(dtype, [1, ty.last()]);
                let ones = graph.one(Map::fill(self.scale, &row), &[], &format!("{name}.ones"))?;
                let column =
                    Type::new(graph.dtype(dy), [&ty.shape[..ty.shape.len() - 1], &[1]].concat());
                let map = Map { shape: Some(column.shape), ..Map::cast(dtype) };
                let column = graph.one(map, &[dy], &format!("{name}.column"))?;
                graph.one(MatMul::new(dtype), &[column, ones], &name)?
            }
            _ => {
                let map = Map::new(input(0) * constant(self.scale), dtype);
                graph.one(Map { shape: Some(ty.shape), ..map }, &[dy], &name)?
            }
        };
        Ok(vec![Some(spread)])
    }

    fn cost(&self, inputs: &[&Type], outputs: &[&Type]) -> Cost {
        Cost { flops: inputs[0].elements() as u64, bytes: traffic(inputs, outputs) }
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let (x, out) = (inputs[0], outputs[0]);
        let groups = out.len();
        for group in 0..groups {
            let count = x.len() / groups.max(1);
            let sum: f64 = (0..count)
                .map(|i| match self.axes {
                    Axes::ToSuffix(_) => x.get(i * groups + group),
                    Axes::Last => x.get(group * count + i),
                })
                .sum();
            out.set(group, sum * self.scale);
        }
    }
}

impl SquareSum {
    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        [(1, 0, 1), (1000, 1, 3), (4099, 2, 3)]
            .into_iter()
            .flat_map(|(n, slot, slots)| {
                [DType::F32, DType::BF16].map(|dtype| {
                    Case::new(Self { slot }, vec![unit(dtype, &[n]), unit(DType::F32, &[slots])])
                })
            })
            .collect()
    }
}

impl Rule for SquareSum {
    fn name(&self) -> &'static str {
        "square_sum"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let [x, sums] = arity(inputs)?;
        float("x", x)?;
        ensure(self.slot < sums.elements() && sums.dtype == x.dtype.statistics(), || {
            format!("slot {} is not in sums {sums}", self.slot)
        })?;
        Ok(vec![sums.clone()])
    }

    fn overwrites(&self) -> Vec<(usize, usize)> {
        vec![(0, 1)]
    }

    fn cost(&self, inputs: &[&Type], _outputs: &[&Type]) -> Cost {
        Cost { flops: 2 * inputs[0].elements() as u64, bytes: inputs[0].bytes() as u64 }
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let x = inputs[0];
        outputs[0].set(self.slot, (0..x.len()).map(|i| x.get(i).powi(2)).sum());
    }
}

//! Embedding: rows of a table by index.   V rows, C channels
//!
//!   out[r,:] = table[ids[r],:];   dtable[v,:] = Σ over r with ids[r] = v of dy[r,:], in the order of r

use super::{Array, Case, Cost, Inferred, Rule, arity, ensure, float, traffic, unit, whole};
use crate::error::Result;
use crate::graph::{Graph, Node, Tensor};
use crate::types::{DType, Type};

/// Gather. Inputs: table (V, C), ids (I32). Output: (ids…, C).
#[derive(Clone, Debug, PartialEq)]
pub struct Embedding;

/// Scatter-add in fixed order. Inputs: ids, dy (ids…, C), and where `accumulate` the table to add to.
/// Output: (rows, C) in f32.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbeddingGrad {
    /// Rows of the table, V.
    pub rows: usize,
    /// The sums are added to the last input, in place.
    pub accumulate: bool,
}

fn ids(ty: &Type) -> std::result::Result<(), String> {
    ensure(ty.dtype == DType::I32, || format!("ids must be i32, are {ty}"))
}

impl Embedding {
    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        let mut cases = vec![];
        for (v, c, shape) in [(1, 1, &[1][..]), (11, 7, &[2, 5]), (257, 64, &[3, 33])] {
            for dtype in [DType::F32, DType::BF16] {
                let ids = whole(DType::I32, shape, 0, v as i64);
                cases.push(Case::new(Self, vec![unit(dtype, &[v, c]), ids]));
            }
        }
        cases
    }
}

impl Rule for Embedding {
    fn name(&self) -> &'static str {
        "embedding"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let [table, index] = arity(inputs)?;
        float("the table", table)?;
        ids(index)?;
        ensure(table.shape.len() == 2, || format!("the table must be (V, C), is {table}"))?;
        Ok(vec![Type::new(table.dtype, [&index.shape[..], &[table.last()]].concat())])
    }

    fn grad(
        &self,
        graph: &mut Graph,
        node: &Node,
        outputs: &[Option<Tensor>],
        wanted: &[bool],
    ) -> Result<Vec<Option<Tensor>>> {
        let (Some(dy), true) = (outputs[0], wanted[0]) else { return Ok(vec![None; 2]) };
        let table = node.inputs[0];
        let op = EmbeddingGrad { rows: graph.ty(table).shape[0], accumulate: false };
        let name = format!("grad.{}", graph.info(table).name);
        Ok(vec![Some(graph.one(op, &[node.inputs[1], dy], &name)?), None])
    }

    fn cost(&self, inputs: &[&Type], outputs: &[&Type]) -> Cost {
        Cost { flops: 0, bytes: 2 * outputs[0].bytes() as u64 + inputs[1].bytes() as u64 }
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let (table, ids, out) = (inputs[0], inputs[1], outputs[0]);
        let columns = table.ty().last();
        for r in 0..ids.len() {
            for c in 0..columns {
                out.set(r * columns + c, table.get(ids.index(r) as usize * columns + c));
            }
        }
    }
}

impl EmbeddingGrad {
    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        let mut cases = vec![];
        for (rows, c, n) in [(1, 1, 3), (11, 7, 40), (64, 33, 17)] {
            for dtype in [DType::F32, DType::BF16] {
                let mut inputs =
                    vec![whole(DType::I32, &[n], 0, rows as i64), unit(dtype, &[n, c])];
                cases.push(Case::new(Self { rows, accumulate: false }, inputs.clone()));
                inputs.push(unit(DType::F32, &[rows, c]));
                cases.push(Case::new(Self { rows, accumulate: true }, inputs));
            }
        }
        cases
    }
}

impl Rule for EmbeddingGrad {
    fn name(&self) -> &'static str {
        "embedding_grad"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let expected = 2 + usize::from(self.accumulate);
        ensure(inputs.len() == expected, || {
            format!("takes {expected} inputs, got {}", inputs.len())
        })?;
        let (index, dy) = (inputs[0], inputs[1]);
        ids(index)?;
        float("dy", dy)?;
        ensure(dy.rows() == index.elements(), || format!("dy needs one row an id, is {dy}"))?;
        Ok(vec![Type::new(dy.dtype.statistics(), [self.rows, dy.last()])])
    }

    fn overwrites(&self) -> Vec<(usize, usize)> {
        if self.accumulate { vec![(0, 2)] } else { vec![] }
    }

    fn cost(&self, inputs: &[&Type], outputs: &[&Type]) -> Cost {
        Cost { flops: inputs[1].elements() as u64, bytes: traffic(inputs, outputs) }
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let (ids, dy, out) = (inputs[0], inputs[1], outputs[0]);
        let columns = dy.ty().last();
        if !self.accumulate {
            out.fill(0.0);
        }
        for r in 0..ids.len() {
            for c in 0..columns {
                out.add(ids.index(r) as usize * columns + c, dy.get(r * columns + c));
            }
        }
    }
}

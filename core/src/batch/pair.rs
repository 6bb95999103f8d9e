//! The tensors of a small batch, each with its twin of the whole one: the same op made both.

use super::linear::multiple;
use super::{Mixed, Recorded, mixed};
use crate::graph::Tensor;
use crate::ops::{LinearCrossEntropy, Map, Op, Reduce};

/// Tensors of two recordings, as far as results depend on them.
pub(super) struct Pairs {
    /// By tensor of the small batch.
    whole: Vec<Option<Tensor>>,
    /// By tensor of the whole.
    pub(super) small: Vec<Option<Tensor>>,
    /// Nodes of the whole, by what they make.
    makers: Vec<Option<usize>>,
}

impl Pairs {
    /// # Errors
    /// The first op that isn't the same in both.
    pub(super) fn new(small: &Recorded, whole: &Recorded) -> Result<Self, Mixed> {
        let makers = |recorded: &Recorded| {
            let mut makers = vec![None; recorded.graph.tensors.len()];
            for (index, node) in recorded.graph.programs[0].nodes.iter().enumerate() {
                node.outputs.iter().for_each(|output| makers[output.index()] = Some(index));
            }
            makers
        };
        let mut pairs = Self {
            whole: vec![None; small.graph.tensors.len()],
            small: vec![None; whole.graph.tensors.len()],
            makers: makers(whole),
        };
        let nodes = &small.graph.programs[0].nodes;
        let last = nodes.len().saturating_sub(1);
        if small.results.len() != whole.results.len() {
            return Err(mixed(small, last));
        }
        for (&few, &all) in small.results.iter().zip(&whole.results) {
            pairs.join(few, all).ok_or_else(|| mixed(small, last))?;
        }
        for (index, node) in nodes.iter().enumerate().rev() {
            let twin = node.outputs.iter().find_map(|&output| pairs.twin(output));
            let Some(twin) = twin else { continue };
            let refused = || mixed(small, index);
            let maker = pairs.makers[twin.index()].ok_or_else(refused)?;
            let other = &whole.graph.programs[0].nodes[maker];
            // A model that goes over samples one by one joins more of them.
            let joins = matches!(node.op, Op::Concat(_));
            let same = node.op.family() == other.op.family()
                && node.outputs.len() == other.outputs.len()
                && (joins || node.inputs.len() == other.inputs.len());
            if !same {
                return Err(refused());
            }
            let outputs = node.outputs.iter().zip(&other.outputs);
            for (&few, &all) in outputs.chain(node.inputs.iter().zip(&other.inputs)) {
                pairs.join(few, all).ok_or_else(refused)?;
            }
        }
        for (few, all) in pairs.whole.iter().enumerate() {
            let Some(all) = all else { continue };
            let info = &small.graph.tensors[few];
            let kept = info.name == whole.graph.info(*all).name;
            if pairs.makers[all.index()].is_none() && !kept {
                return Err(mixed(small, last));
            }
        }
        Ok(pairs)
    }

    fn join(&mut self, few: Tensor, all: Tensor) -> Option<()> {
        let known = self.whole[few.index()].get_or_insert(all);
        if *known != all {
            return None;
        }
        let back = self.small[all.index()].get_or_insert(few);
        (*back == few).then_some(())
    }

    /// The tensor of the whole.
    pub(super) fn twin(&self, few: Tensor) -> Option<Tensor> {
        self.whole[few.index()]
    }

    /// The node of the whole that makes a tensor.
    pub(super) fn maker(&self, all: Tensor) -> Option<usize> {
        self.makers[all.index()]
    }
}

/// Ratio of what an op over the whole batch makes to what this one makes of the same numbers: 1 if they differ in sizes alone. `None` if they
/// differ otherwise.
pub(super) fn ratio(small: &Op, whole: &Op) -> Option<f64> {
    let chunkless = |op: &Op| {
        let mut op = op.clone();
        if let Some(LinearCrossEntropy { chunk, .. }) = op.loss_mut() {
            *chunk = 0;
        }
        op
    };
    match (small, whole) {
        (Op::Map(few), Op::Map(all)) => {
            let sizeless = |map: &Map| Map { shape: None, formulas: vec![], ..map.clone() };
            if sizeless(few) != sizeless(all) {
                return None;
            }
            if few.formulas == all.formulas {
                return Some(1.0);
            }
            let ([few], [all]) = (&few.formulas[..], &all.formulas[..]) else { return None };
            let ((by_few, few), (by_all, all)) = (multiple(few), multiple(all));
            (few == all && by_few != 0.0).then(|| by_all / by_few)
        }
        (Op::Reduce(few), Op::Reduce(all)) => {
            let unscaled = |op: &Reduce| Reduce { scale: 1.0, ..op.clone() };
            let same = unscaled(few) == unscaled(all) && few.scale != 0.0;
            same.then(|| all.scale / few.scale)
        }
        // Shapes are compared as those of tensors.
        (Op::Reshape(_), Op::Reshape(_)) => Some(1.0),
        (Op::Expand(few), Op::Expand(all)) => (few.axis == all.axis).then_some(1.0),
        _ => (chunkless(small) == chunkless(whole)).then_some(1.0),
    }
}

//! A look at programs: they run, and nothing that outlasts them changes.
//!
//! While a session looks, every persistent tensor is copied to the host before the first write to it, whoever writes: an op, a transfer,
//! or the host. The end of the look puts the copies back. So a step can be replayed to see where it went wrong, and weights, sums of
//! gradients, counters and the loss scale stay what they were, bit for bit.

use std::collections::{BTreeMap, BTreeSet};
use std::slice;
use std::sync::Arc;

use super::{Session, SessionError};
use crate::cancel::Cancel;
use crate::expr::Expr;
use crate::graph::{Class, Graph, Life, Node, Tensor};
use crate::ops::{Direction, Op, Rule};
use crate::plan::offload::pieces;
use crate::plan::{Event, Plan};

/// The bytes that persistent tensors had before a look wrote to them.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// By tensor, in pieces; `None` for a piece of zeros, as sums of gradients are between steps.
    before: BTreeMap<Tensor, Vec<Option<Vec<u8>>>>,
}

/// The first op of a replay whose output isn't finite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NonFinite {
    /// Family of the op.
    pub op: String,
    /// Name of the output.
    pub tensor: String,
    /// Index of the first such element.
    pub element: usize,
}

impl Session {
    /// Begins a look: until [`Session::end_look`], persistent tensors that aren't inputs are copied before they are written.
    pub fn begin_look(&mut self) {
        self.look.get_or_insert_default();
    }

    /// Ends a look: every persistent tensor but inputs has the bytes that it had at [`Session::begin_look`].
    ///
    /// # Errors
    /// [`SessionError::Device`] if a copy can't be written back.
    pub fn end_look(&mut self) -> Result<(), SessionError> {
        let Some(Look { before }) = self.look.take() else { return Ok(()) };
        for (tensor, kept) in before {
            let (_, range) = self.place(tensor)?;
            for (piece, bytes) in pieces(&range).zip(kept) {
                let zeros = || vec![0; (piece.end - piece.start) as usize];
                let bytes = bytes.unwrap_or_else(zeros);
                self.write_from(tensor, (piece.start - range.start) as usize, &bytes)?;
            }
        }
        Ok(())
    }

    /// Copies a persistent tensor that a look is about to write; does nothing if the session doesn't look, or has the copy.
    ///
    /// # Errors
    /// [`SessionError::NoPlace`], and [`SessionError::Device`] if the tensor can't be read.
    pub async fn keep(&mut self, tensor: Tensor) -> Result<(), SessionError> {
        if self.look.as_ref().is_none_or(|look| look.before.contains_key(&tensor)) {
            return Ok(());
        }
        let (with_host, range) = self.place(tensor)?;
        let mut kept = vec![];
        for piece in pieces(&range) {
            let bytes = self.read_places(&[(with_host, piece)]).await?;
            kept.push(bytes.iter().any(|&byte| byte != 0).then_some(bytes));
        }
        if let Some(look) = &mut self.look {
            look.before.insert(tensor, kept);
        }
        Ok(())
    }

    /// As [`Session::keep`], of every persistent tensor that these nodes of a program in `graph` write.
    pub(super) async fn keep_written(
        &mut self,
        graph: &Graph,
        nodes: &[Node],
    ) -> Result<(), SessionError> {
        if self.look.is_none() {
            return Ok(());
        }
        for node in nodes {
            for tensor in written(graph, node) {
                self.keep(tensor).await?;
            }
        }
        Ok(())
    }

    /// Replays the program at `index` op by op, up to the op that makes `last` if one does, and names the first whose output isn't
    /// finite; `None` if all are. Negative infinity of a mask, which is in a formula or in what an op reads, is passed over. It is a look, so persistent tensors don't change. Slow: for explaining a run that went wrong.
    ///
    /// # Errors
    /// As [`Session::run`] and [`Session::read`].
    ///
    /// # Panics
    /// If there is no such program.
    pub async fn first_non_finite_at(
        &mut self,
        index: usize,
        last: Tensor,
    ) -> Result<Option<NonFinite>, SessionError> {
        let alone = self.look.is_none();
        self.begin_look();
        let found = self.look_at(index, last).await;
        let ended = if alone { self.end_look() } else { Ok(()) };
        let found = found?;
        ended.map(|()| found)
    }

    async fn look_at(
        &mut self,
        index: usize,
        last: Tensor,
    ) -> Result<Option<NonFinite>, SessionError> {
        let plan = Arc::clone(&self.plan);
        let nodes = &plan.graph.programs[index].nodes;
        let end = nodes.iter().position(|node| node.outputs.contains(&last));
        let nodes = &nodes[..end.map_or(nodes.len(), |end| end + 1)];
        // Other ranks wait for this one's part in every collective.
        let to_the_end = nodes.iter().any(|node| node.op.collective().is_some());
        let (mut found, mut masked) = (None, BTreeSet::new());
        for (step, node) in nodes.iter().enumerate() {
            self.keep_written(&plan.graph, slice::from_ref(node)).await?;
            let made = node.op.collective().is_some() && self.linked;
            match node.op.direction().filter(|_| !made) {
                // Nothing is in flight if this ends early.
                Some(direction) => {
                    self.transfer(index, Event::Begin(direction, step)).await?;
                    self.transfer(index, Event::End(direction, step)).await?;
                }
                None => self.backend.run(index, step..step + 1, &Cancel::default())?,
            }
            if found.is_none() {
                found = self.non_finite_output(&plan, node, &mut masked).await?;
            }
            if found.is_some() && !to_the_end {
                break;
            }
        }
        Ok(found)
    }

    /// The first element of a node's outputs that isn't finite. An output with negative infinity alone, that comes of a mask, is added to
    /// `masked`.
    async fn non_finite_output(
        &mut self,
        plan: &Plan,
        node: &Node,
        masked: &mut BTreeSet<Tensor>,
    ) -> Result<Option<NonFinite>, SessionError> {
        for &tensor in &node.outputs {
            let Some(values) = self.floats(plan, tensor).await? else { continue };
            let Some(element) = values.iter().position(|value| !value.is_finite()) else {
                continue;
            };
            let wrong = |value: &f32| !value.is_finite() && *value != f32::NEG_INFINITY;
            if !values.iter().any(wrong) && self.reads_mask(plan, node, masked).await? {
                masked.insert(tensor);
                continue;
            }
            let (op, tensor) = (node.op.name().to_owned(), plan.graph.info(tensor).name.clone());
            return Ok(Some(NonFinite { op, tensor, element }));
        }
        Ok(None)
    }

    /// Returns `true` if negative infinity is in a node's formulas or in what it reads: in tensors of the program that are `masked`, or
    /// that were there before.
    async fn reads_mask(
        &mut self,
        plan: &Plan,
        node: &Node,
        masked: &BTreeSet<Tensor>,
    ) -> Result<bool, SessionError> {
        if matches!(&node.op, Op::Map(map) if map.formulas.iter().any(Expr::masks)) {
            return Ok(true);
        }
        for &tensor in &node.inputs {
            let lasts = plan.graph.info(plan.graph.storage(tensor)).life == Life::Persistent;
            let values = if lasts { self.floats(plan, tensor).await? } else { None };
            let is_mask = values.is_some_and(|values| values.contains(&f32::NEG_INFINITY));
            if is_mask || masked.contains(&tensor) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Elements of a tensor of floats that has a place of its own.
    async fn floats(
        &mut self,
        plan: &Plan,
        tensor: Tensor,
    ) -> Result<Option<Vec<f32>>, SessionError> {
        let range = plan.range(tensor).filter(|_| plan.graph.dtype(tensor).is_float());
        let Some((offset, bytes)) = range else { return Ok(None) };
        let bytes = self.read_places(&[(false, offset..offset + bytes)]).await?;
        Ok(Some(plan.graph.dtype(tensor).values(&bytes)))
    }
}

/// The persistent tensors that a node writes, by their storage. What a transfer stores of activations is read within its pass alone.
fn written(graph: &Graph, node: &Node) -> Vec<Tensor> {
    let outputs = node.outputs.iter().map(|&tensor| graph.storage(tensor));
    let lasting = outputs.filter(|&tensor| graph.info(tensor).life == Life::Persistent);
    let stored = node.op.transfer().filter(|transfer| transfer.direction() == Direction::Store);
    let stored = stored.map(|transfer| transfer.host());
    lasting.chain(stored.filter(|&to| graph.info(to).class != Class::Activation)).collect()
}

//! What ranks send each other. The session does it between the steps of a program, through its [`crate::Ranks`], or the device by its
//! [`crate::Links`], so that none has a kernel for it.
//!
//! | op | makes |
//! |---|---|
//! | exchange | of a tensor that each rank has: this rank's shard of everybody's, a row each |
//! | own | of a tensor that all have alike: this rank's shard |
//! | gather | a tensor that all have alike, with everybody's shard in its place |
//! | assemble | a tensor of everybody's shards |
//! | all to all | of a tensor with a part for each rank of a group: everybody's part for this rank |
//!
//! To sum a tensor over ranks, they exchange its shards, each adds up its own in the order of ranks, and they gather the sums: as many
//! bytes as a reduction has, and the same bits whoever carries them.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{Array, Cost, Inferred, Node, Op, Rule, Tape, arity, ensure};
use crate::launch::{Launched, Launches, Limits};
pub use crate::shards::Part;
use crate::shards::Shards;
use crate::tensor::Tensor;
use crate::types::Type;

/// Something that all ranks do together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Collective {
    /// Input: x. Output: this part of this rank's shard of x, as each rank has it, (ranks, elements), in the order of ranks. What a shard
    /// has beyond x is 0.
    Exchange(Part),
    /// Input: x, which all ranks have alike. Output: this rank's shard, (elements), with 0 beyond x.
    Own(Shards),
    /// Inputs: this part of this rank's shard, (elements), and x. Output: x with the parts of all ranks in their places.
    Gather(Part),
    /// Input: this rank's shard, (elements). Output: the tensor of all of them.
    Assemble {
        /// How it's cut.
        shards: Shards,
        /// Its type.
        ty: Type,
    },
    /// Input: x, of which each rank of a group has a shard. Output, as x: this rank's shard as each of them has it, in the order of ranks.
    /// Neighbours are a group, as many as `shards` are for.
    AllToAll(Shards),
}

impl Collective {
    /// How its tensor is cut.
    pub fn shards(&self) -> &Shards {
        match self {
            Self::Exchange(part) | Self::Gather(part) => &part.shards,
            Self::Own(shards) | Self::Assemble { shards, .. } | Self::AllToAll(shards) => shards,
        }
    }

    /// Which of `count` ranks do it with this one; `None` where it's for another number of them.
    pub fn among(&self, rank: usize, count: usize) -> Option<Range<usize>> {
        let ranks = self.shards().ranks;
        let is_for = match self {
            Self::AllToAll(_) => ranks > 0 && count.is_multiple_of(ranks),
            _ => ranks == count,
        };
        is_for.then(|| {
            let first = rank / ranks * ranks;
            first..first + ranks
        })
    }

    /// What of each shard it moves.
    pub fn range(&self) -> Range<usize> {
        match self {
            Self::Exchange(part) | Self::Gather(part) => part.range.clone(),
            Self::Own(shards) | Self::Assemble { shards, .. } | Self::AllToAll(shards) => {
                0..shards.shard()
            }
        }
    }

    /// Whether ranks send each other anything.
    pub fn sends(&self) -> bool {
        !matches!(self, Self::Own(_)) && self.shards().ranks > 1
    }

    /// What it moves of a shard of `x`.
    fn moved(&self, x: &Type) -> Type {
        Type::new(x.dtype, [self.range().len()])
    }

    /// # Errors
    /// Where `x` isn't cut so.
    fn check(&self, x: &Type) -> Result<(), String> {
        let (shards, range) = (self.shards(), self.range());
        if shards.ranks == 0 || shards.elements() != x.elements() {
            let (elements, ranks) = (shards.elements(), shards.ranks);
            return Err(format!("shards of {elements} elements for {ranks} ranks aren't of {x}"));
        }
        if range.is_empty() || range.end > shards.shard() {
            let (Range { start, end }, shard) = (range, shards.shard());
            return Err(format!("elements {start} to {end} aren't in a shard of {shard}"));
        }
        Ok(())
    }
}

impl Op {
    /// The collective, where it is one.
    pub fn collective(&self) -> Option<&Collective> {
        match self {
            Self::Collective(collective) => Some(collective),
            _ => None,
        }
    }
}

impl Rule for Collective {
    fn name(&self) -> &'static str {
        match self {
            Self::Exchange(_) => "exchange",
            Self::Own(_) => "own",
            Self::Gather(_) => "gather",
            Self::Assemble { .. } => "assemble",
            Self::AllToAll(_) => "all_to_all",
        }
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        if cfg!(target_family = "wasm") {
            return Err("a browser's tab has no other ranks".into());
        }
        match self {
            Self::Exchange(part) => {
                let [x] = arity(inputs)?;
                self.check(x)?;
                Ok(vec![Type::new(x.dtype, [part.shards.ranks, self.range().len()])])
            }
            Self::Own(_) => {
                let [x] = arity(inputs)?;
                self.check(x)?;
                Ok(vec![self.moved(x)])
            }
            Self::Gather(_) => {
                let [shard, x] = arity(inputs)?;
                self.check(x)?;
                fits(shard, &self.moved(x))?;
                Ok(vec![x.clone()])
            }
            Self::Assemble { ty, .. } => {
                let [shard] = arity(inputs)?;
                self.check(ty)?;
                fits(shard, &self.moved(ty))?;
                Ok(vec![ty.clone()])
            }
            Self::AllToAll(shards) => {
                let [x] = arity(inputs)?;
                self.check(x)?;
                ensure(shards.ranks * shards.shard() == x.elements(), || {
                    format!("{x} can't be cut into {} equal parts", shards.ranks)
                })?;
                Ok(vec![(*x).clone()])
            }
        }
    }

    fn differentiable(&self) -> usize {
        // A browser's tab has no others to train with.
        usize::from(!cfg!(target_family = "wasm") && matches!(self, Self::AllToAll(_)))
    }

    /// What a rank's part becomes on another goes back the way it came.
    fn grad(
        &self,
        graph: &mut dyn Tape,
        node: &Node,
        outputs: &[Option<Tensor>],
        wanted: &[bool],
    ) -> crate::Result<Vec<Option<Tensor>>> {
        if cfg!(target_family = "wasm") {
            return Ok(vec![None]);
        }
        let (Some(gradient), true) = (outputs[0], wanted[0]) else { return Ok(vec![None]) };
        let name = format!("grad.{}", graph.info(node.inputs[0]).name);
        Ok(vec![Some(graph.one(self.clone(), &[gradient], &name)?)])
    }

    fn overwrites(&self) -> Vec<(usize, usize)> {
        match self {
            Self::Gather(_) => vec![(0, 1)],
            Self::Exchange(_) | Self::Own(_) | Self::Assemble { .. } | Self::AllToAll(_) => vec![],
        }
    }

    /// Bytes that a rank sends.
    fn cost(&self, inputs: &[&Type], _outputs: &[&Type]) -> Cost {
        let others = if self.sends() { self.shards().ranks - 1 } else { 0 };
        let bytes = self.range().len() * inputs[0].dtype.size() * others;
        Cost { flops: 0, bytes: bytes as u64 }
    }

    fn launch(&self, _limits: &Limits, _inputs: &[&Type], _outputs: &[&Type]) -> Launched {
        Ok(Launches::new())
    }

    /// The session moves the bytes.
    fn reference(&self, _inputs: &[Array<'_>], _outputs: &[Array<'_>]) {}
}

/// # Errors
/// Where a shard has another type than it must have.
fn fits(shard: &Type, expected: &Type) -> Result<(), String> {
    match shard == expected {
        true => Ok(()),
        false => Err(format!("the shard is {shard}, not {expected}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::DType;

    #[test]
    fn shards_fit_their_tensor_and_others_are_refused() {
        let x = Type::new(DType::BF16, [3, 5]);
        let shards = Shards::of(15, 4, 2);
        let part = |range| Part { shards: shards.clone(), range };
        let of = |elements| Type::new(DType::BF16, [elements]);
        let rows = Type::new(DType::BF16, [4, 3]);
        assert_eq!(Collective::Exchange(part(1..4)).infer(&[&x]), Ok(vec![rows]));
        assert_eq!(Collective::Own(shards.clone()).infer(&[&x]), Ok(vec![of(4)]));
        let gather = Collective::Gather(part(0..4));
        assert_eq!(gather.infer(&[&of(4), &x]), Ok(vec![x.clone()]));
        assert_eq!(gather.cost(&[&of(4), &x], &[&x]).bytes, 3 * 4 * 2);
        let assemble = Collective::Assemble { shards: shards.clone(), ty: x.clone() };
        assert_eq!(assemble.infer(&[&of(4)]), Ok(vec![x.clone()]));
        assert!(assemble.infer(&[&of(3)]).unwrap_err().contains("not bf16[4]"));
        let other = Type::new(DType::F32, [4]);
        assert!(gather.infer(&[&other, &x]).unwrap_err().contains("not bf16[4]"));
        let all_to_all = Collective::AllToAll(Shards::of(15, 3, 1));
        assert_eq!(all_to_all.infer(&[&x]), Ok(vec![x.clone()]));
        assert_eq!(all_to_all.cost(&[&x], &[&x]).bytes, 2 * 5 * 2);
        let uneven = Collective::AllToAll(Shards::of(15, 4, 1)).infer(&[&x]).unwrap_err();
        assert!(uneven.contains("4 equal parts"), "{uneven}");
        let outside = Collective::Exchange(part(2..5)).infer(&[&x]).unwrap_err();
        assert!(outside.contains("aren't in a shard of 4"), "{outside}");
        let larger = Collective::Own(shards).infer(&[&Type::new(DType::BF16, [16])]).unwrap_err();
        assert!(larger.contains("shards of 15 elements"), "{larger}");
    }

    #[test]
    fn neighbours_are_a_group() {
        let all_to_all = Collective::AllToAll(Shards::of(6, 2, 1));
        assert_eq!((all_to_all.among(5, 6), all_to_all.among(0, 3)), (Some(4..6), None));
        let own = Collective::Own(Shards::of(6, 2, 1));
        assert_eq!((own.among(1, 2), own.among(1, 4)), (Some(0..2), None));
    }
}

//! What ranks send each other. The session does it between the steps of a program, through its [`crate::Ranks`], so that no device
//! has a kernel for it.
//!
//! A part of a tensor is cut into as many shards as there are ranks, each but the last ones equally long. To sum a tensor over ranks,
//! they exchange its shards, each adds up its own in the order of ranks, and they gather the sums: as many bytes as a reduction has, and
//! the same bits whoever carries them.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{Array, Cost, Inferred, Op, Rule, arity};
use crate::launch::{Launched, Launches, Limits};
use crate::types::Type;

/// Something that all ranks do together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Collective {
    /// Input: x. Outputs: this rank's shard of the part of x, (elements), as each rank has it, in the order of ranks. What a shard
    /// has beyond the part is 0.
    Exchange(Part),
    /// Inputs: this rank's shard of the part, (elements), and x. Output: x with the shards of all ranks in place of the part.
    Gather(Part),
}

/// Elements of a tensor in row-major order, and how many shards they're cut into.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// How many ranks there are.
    pub ranks: usize,
    /// Which elements.
    pub elements: Range<usize>,
}

impl Part {
    /// Elements of a shard.
    pub fn shard(&self) -> usize {
        self.elements.len().div_ceil(self.ranks.max(1))
    }

    /// A shard of `x`.
    fn shard_of(&self, x: &Type) -> Type {
        Type::new(x.dtype, [self.shard()])
    }

    /// # Errors
    /// Where it isn't a part of `x`.
    fn check(&self, x: &Type) -> Result<(), String> {
        let Self { ranks, elements } = self;
        if *ranks == 0 || elements.is_empty() || elements.end > x.elements() {
            let Range { start, end } = elements;
            return Err(format!("elements {start} to {end} for {ranks} ranks are no part of {x}"));
        }
        Ok(())
    }
}

impl Collective {
    /// What it's of.
    pub fn part(&self) -> &Part {
        match self {
            Self::Exchange(part) | Self::Gather(part) => part,
        }
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
            Self::Gather(_) => "gather",
        }
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        match self {
            Self::Exchange(part) => {
                let [x] = arity(inputs)?;
                part.check(x)?;
                Ok(vec![part.shard_of(x); part.ranks])
            }
            Self::Gather(part) => {
                let [shard, x] = arity(inputs)?;
                part.check(x)?;
                let expected = part.shard_of(x);
                if *shard != expected {
                    return Err(format!("the shard is {shard}, not {expected}"));
                }
                Ok(vec![x.clone()])
            }
        }
    }

    fn overwrites(&self) -> Vec<(usize, usize)> {
        match self {
            Self::Exchange(_) => vec![],
            Self::Gather(_) => vec![(0, 1)],
        }
    }

    /// Bytes that a rank sends.
    fn cost(&self, inputs: &[&Type], _outputs: &[&Type]) -> Cost {
        let Part { ranks, .. } = self.part();
        let shard = self.part().shard() * inputs[0].dtype.size();
        Cost { flops: 0, bytes: (shard * (ranks - 1)) as u64 }
    }

    fn launch(&self, _limits: &Limits, _inputs: &[&Type], _outputs: &[&Type]) -> Launched {
        Ok(Launches::new())
    }

    /// The session moves the bytes.
    fn reference(&self, _inputs: &[Array<'_>], _outputs: &[Array<'_>]) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::DType;

    #[test]
    fn shards_cover_the_part_and_what_is_no_part_is_refused() {
        let x = Type::new(DType::BF16, [3, 5]);
        let part = |ranks, elements| Part { ranks, elements };
        let exchange = |part: Part| Collective::Exchange(part).infer(&[&x]);
        let shard = Type::new(DType::BF16, [4]);
        assert_eq!(exchange(part(3, 4..14)), Ok(vec![shard.clone(); 3]));
        let gather = Collective::Gather(part(3, 4..14));
        assert_eq!(gather.infer(&[&shard, &x]), Ok(vec![x.clone()]));
        assert_eq!(gather.cost(&[&shard, &x], &[&x]).bytes, 2 * 4 * 2);
        let other = Type::new(DType::F32, [4]);
        assert!(gather.infer(&[&other, &x]).unwrap_err().contains("not bf16[4]"));
        for (ranks, elements) in [(0, 0..4), (2, 3..3), (2, 8..16)] {
            assert!(exchange(part(ranks, elements)).unwrap_err().contains("no part of"));
        }
    }
}

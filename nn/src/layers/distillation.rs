//! Distillation (Hinton et al. 2015, "Distilling the Knowledge in a Neural Network").

use tightrope_core::Tensor;
use tightrope_core::ops::{LinearCrossEntropy, LinearDistillation, Slice};

use super::losses::chunk_of;
use crate::error::{Result, ensure};
use crate::pass::Pass;

/// How a student learns of a teacher.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distillation {
    /// What the logits of both are divided by, T.
    pub temperature: f64,
    /// Share A of the soft loss: the hard one has the rest.
    pub soft_share: f64,
}

impl Distillation {
    /// Whether the numbers are in range.
    ///
    /// # Errors
    /// [`crate::Error::Setting`] where the temperature isn't above 0, or the share isn't from 0 to 1.
    pub fn check(&self) -> Result<()> {
        let Self { temperature, soft_share } = *self;
        ensure(temperature.is_finite() && temperature > 0.0, "train.teacher_temperature", || {
            format!("{temperature} must be above 0")
        })?;
        ensure((0.0..=1.0).contains(&soft_share), "train.soft_share", || {
            format!("{soft_share} must be from 0 to 1")
        })
    }
}

/// What logits x·Wᵀ are made of.
#[derive(Clone, Copy, Debug)]
pub struct Projected {
    /// (…, C).
    pub x: Tensor,
    /// (V, C).
    pub head: Tensor,
    /// Rows of the head that are tokens; the rest is padding.
    pub vocab: usize,
    /// Where logits l become cap·tanh(l / cap).
    pub cap: Option<f64>,
}

/// The loss of a student's logits, f32 (1): (1 − A)·`cross_entropy` + A·T²·`divergence`, in nats, both figures of the pass and means
/// over the targets that count. The divergence is KL(q ‖ p), with q and p the softmax of the teacher's and the student's logits
/// over T, of the tokens that both have. Full logits of neither exist, and the teacher has no gradient.
///
/// `targets` I32 (…), of which negative ones don't count.
///
/// # Errors
/// Tensors of other shapes, and as [`Distillation::check`].
pub fn linear_distillation(
    pass: &mut Pass<'_>,
    student: Projected,
    teacher: Projected,
    targets: Tensor,
    how: Distillation,
) -> Result<Tensor> {
    how.check()?;
    let Projected { x, head, vocab, cap } = student;
    let op = LinearDistillation {
        student: LinearCrossEntropy { vocab, chunk: chunk_of(pass, x), cap },
        taught: vocab.min(teacher.vocab),
        teacher_cap: teacher.cap,
        temperature: how.temperature,
        share: how.soft_share,
    };
    let outputs = pass.push(op, &[x, head, targets, teacher.x, teacher.head], "loss")?;
    for (index, name) in ["cross_entropy", "divergence"].into_iter().enumerate() {
        let part = Slice { axis: 0, start: index, len: 1 };
        let figure = pass.one(part, &[outputs[1]], name)?;
        pass.figure(name, figure);
    }
    Ok(outputs[0])
}

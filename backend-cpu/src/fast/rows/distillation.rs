//! Distillation's loss over rows of logits of a student and a teacher (Hinton et al. 2015).   V columns of the student, of which
//! the teacher has the first W too
//!
//! ```text
//! p = softmax(s[..W] / T)    q = softmax(t[..W] / T)
//! hard[r] = lse(s[r]) − s[r, target[r]]    soft[r] = Σ_c q[c]·ln(q[c] / p[c])
//! ds[r,c] = ((1 − share)·(softmax(s)[c] − [c = target[r]]) + share·T·(p[c] − q[c]))·scale
//! ```
//!
//! A row whose target is negative is ignored: losses 0, gradient 0.

use super::{IdError, Slope, check_ids};
use crate::fast::vmath::parallel::{Disjoint, block_rows, for_each_block};
use crate::fast::vmath::reduce::maximum;
use crate::fast::vmath::{LANES, Simd, dispatched, exp, ln};
use crate::isa::Isa;

/// What a student learns of a teacher.
#[derive(Clone, Copy, Debug)]
pub struct Soft {
    /// Columns of the student, V.
    pub vocab: usize,
    /// Columns that both have, W.
    pub taught: usize,
    /// T.
    pub temperature: f32,
    /// Share of the soft loss.
    pub share: f32,
}

/// hard (R) and soft (R) from the logits of both, (R, P) and (R, P'), and targets (R). Where there is a slope, the student's logits
/// become their gradient. Logits are capped already.
///
/// # Errors
/// A target is V or more.
///
/// # Panics
/// If the lengths do not agree, V > P, or W is more than V or P'.
pub fn distil(
    isa: Isa,
    logits: &mut [f32],
    teacher: &[f32],
    targets: &[i32],
    soft: Soft,
    slope: Option<Slope>,
    [hard, softs]: [&mut [f32]; 2],
) -> Result<(), IdError> {
    let rows = targets.len();
    let [padded, beside] = [logits.len(), teacher.len()].map(|all| all / rows.max(1));
    assert_eq!([rows * padded, rows * beside], [logits.len(), teacher.len()], "no whole rows");
    assert!(soft.vocab <= padded, "the vocabulary exceeds the columns of logits");
    assert!(soft.taught <= soft.vocab.min(beside), "more columns are compared than both have");
    assert!(hard.len() == rows && softs.len() == rows, "losses are not (R) = ({rows})");
    check_ids(targets, soft.vocab, true)?;
    let [logits, hard, softs] = [logits, hard, softs].map(Disjoint::new);
    for_each_block(rows, block_rows(padded + beside), |block| {
        for row in block {
            // SAFETY: each row is in one block.
            let (logits, hard, softs) = unsafe {
                (logits.part(row * padded, padded), hard.part(row, 1), softs.part(row, 1))
            };
            let teacher = &teacher[row * beside..][..soft.taught];
            let losses = distil_row(isa, logits, teacher, targets[row], soft, slope);
            (hard[0], softs[0]) = losses;
        }
    });
    Ok(())
}

dispatched!(fn distil_row(
    logits: &mut [f32], teacher: &[f32], target: i32, soft: Soft, slope: Option<Slope>,
) -> (f32, f32) = distil_row_body);

#[inline(always)]
fn distil_row_body<S: Simd>(
    logits: &mut [f32],
    teacher: &[f32],
    target: i32,
    soft: Soft,
    slope: Option<Slope>,
) -> (f32, f32) {
    let Soft { vocab, taught, temperature, share } = soft;
    let (logits, padding) = logits.split_at_mut(vocab);
    let Ok(target) = usize::try_from(target) else {
        if slope.is_some() {
            logits.fill(0.0);
            padding.fill(0.0);
        }
        return (0.0, 0.0);
    };
    let top = maximum(logits);
    let (soft_top, teacher_top) = (maximum(&logits[..taught]), maximum(teacher));
    let over = 1.0 / temperature;
    let mut sums = [[0.0; LANES]; 4];
    for x in logits.chunks(LANES) {
        let x = lanes(x);
        for lane in 0..LANES {
            sums[0][lane] += exp::<S>(x[lane] - top);
        }
    }
    for (x, t) in logits[..taught].chunks(LANES).zip(teacher.chunks(LANES)) {
        let (x, t) = (lanes(x), lanes(t));
        for lane in 0..LANES {
            let below = (x[lane] - soft_top) * over;
            let teacher_below = (t[lane] - teacher_top) * over;
            let weight = exp::<S>(teacher_below);
            sums[1][lane] += exp::<S>(below);
            sums[2][lane] += weight;
            // A weight of nothing may meet what isn't finite.
            sums[3][lane] += if weight > 0.0 { weight * (teacher_below - below) } else { 0.0 };
        }
    }
    let [hard_sum, soft_sum, teacher_sum, apart] = sums.map(|lanes| lanes.iter().sum::<f32>());
    let own = logits[target];
    let hard = (top - own) + ln::<S>(hard_sum);
    let soft = apart / teacher_sum + ln::<S>(soft_sum) - ln::<S>(teacher_sum);
    if let Some(Slope { scale, cap }) = slope {
        padding.fill(0.0);
        let capped = |x: f32| cap.map_or(1.0, |cap| 1.0 - (x / cap) * (x / cap));
        let hard_share = scale * (1.0 - share);
        let of_hard = hard_share / hard_sum;
        let [of_soft, of_teacher] =
            [soft_sum, teacher_sum].map(|sum| scale * share * temperature / sum);
        let (both, rest) = logits.split_at_mut(taught);
        for (x, t) in both.iter_mut().zip(teacher) {
            let soft = exp::<S>((*x - soft_top) * over) * of_soft
                - exp::<S>((*t - teacher_top) * over) * of_teacher;
            *x = (exp::<S>(*x - top) * of_hard + soft) * capped(*x);
        }
        for x in rest {
            *x = exp::<S>(*x - top) * of_hard * capped(*x);
        }
        logits[target] -= hard_share * capped(own);
    }
    (hard, soft)
}

/// So many columns of a row, or the last ones and, after these, such as count nothing.
#[inline(always)]
fn lanes(row: &[f32]) -> [f32; LANES] {
    <[f32; LANES]>::try_from(row).unwrap_or_else(|_| {
        let mut lanes = [f32::MIN; LANES];
        lanes[..row.len()].copy_from_slice(row);
        lanes
    })
}

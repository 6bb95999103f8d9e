//! Cross-entropy over rows of logits, as the chunked linear-cross-entropy calls it.
//!
//! ```text
//! loss[r] = lse[r] − logits[r, target[r]]         lse[r] = ln Σ_c exp(logits[r,c])
//! dlogits[r,c] = (softmax[r,c] − [c = target[r]])·scale
//! ```
//!
//! Logits are (R, P) with P ≥ V: columns V.. are padding, have probability 0 and gradient 0. A row
//! whose target is negative is ignored: loss 0, gradient 0.

use super::{IdError, check_ids};
use crate::fast::vmath::parallel::{Disjoint, block_rows, for_each_block};
use crate::fast::vmath::reduce::{exponentiate, maximum};
use crate::fast::vmath::{LANES, Simd, Storage, dispatched, exp, ln};
use crate::isa::Isa;

/// Columns converted at a time: 4 KiB on the stack, so that a row is read once from beyond the
/// first-level cache.
const BLOCK: usize = 1024;

/// loss (R), and lse (R) where given, from logits (R, P), targets (R) and the vocabulary V.
///
/// # Errors
/// A target is V or more.
///
/// # Panics
/// If the lengths do not agree or V > P.
pub fn cross_entropy<L: Storage>(
    isa: Isa,
    logits: &[L],
    targets: &[i32],
    vocab: usize,
    loss: &mut [f32],
    lse: Option<&mut [f32]>,
) -> Result<(), IdError> {
    let padded = check(logits.len(), targets, vocab, loss, lse.as_deref())?;
    let (loss, lse) = (Disjoint::new(loss), lse.map(Disjoint::new));
    for_each_block(targets.len(), block_rows(padded), |block| {
        for row in block {
            let logits = &logits[row * padded..][..vocab];
            let statistics = statistics(isa, logits);
            // SAFETY: each row is in one block.
            unsafe { write_loss(row, logits, targets[row], statistics, &loss, lse.as_ref()) };
        }
    });
    Ok(())
}

/// As [`cross_entropy`], and overwrites the logits with dlogits (R, P).
///
/// # Errors
/// A target is V or more.
///
/// # Panics
/// If the lengths do not agree or V > P.
pub fn cross_entropy_in_place<L: Storage>(
    isa: Isa,
    logits: &mut [L],
    targets: &[i32],
    vocab: usize,
    scale: f32,
    loss: &mut [f32],
    lse: Option<&mut [f32]>,
) -> Result<(), IdError> {
    let padded = check(logits.len(), targets, vocab, loss, lse.as_deref())?;
    let (loss, lse) = (Disjoint::new(loss), lse.map(Disjoint::new));
    let logits = Disjoint::new(logits);
    for_each_block(targets.len(), block_rows(padded), |block| {
        for row in block {
            let target = targets[row];
            // SAFETY: each row is in one block.
            unsafe {
                let logits = logits.part(row * padded, padded);
                let statistics = statistics(isa, &logits[..vocab]);
                write_loss(row, &logits[..vocab], target, statistics, &loss, lse.as_ref());
                gradient_in_place(isa, logits, vocab, target, statistics, scale);
            }
        }
    });
    Ok(())
}

/// What the gradient of logits is made with.
#[derive(Clone, Copy, Debug)]
pub struct Slope {
    /// The gradient of a row's loss.
    pub scale: f32,
    /// What the logits were capped at by [`super::cap_logits`], where they were: the gradient is that of those before.
    pub cap: Option<f32>,
}

/// As [`cross_entropy`], and writes dlogits (R, P), of a storage type of its own.
///
/// # Errors
/// A target is V or more.
///
/// # Panics
/// If the lengths do not agree or V > P.
#[expect(clippy::too_many_arguments, reason = "the loss's inputs and outputs")]
pub fn cross_entropy_grad<L: Storage, G: Storage>(
    isa: Isa,
    logits: &[L],
    targets: &[i32],
    vocab: usize,
    slope: Slope,
    loss: &mut [f32],
    lse: Option<&mut [f32]>,
    dlogits: &mut [G],
) -> Result<(), IdError> {
    assert_eq!(dlogits.len(), logits.len(), "dlogits and logits differ in length");
    let padded = check(logits.len(), targets, vocab, loss, lse.as_deref())?;
    let (loss, lse) = (Disjoint::new(loss), lse.map(Disjoint::new));
    let dlogits = Disjoint::new(dlogits);
    for_each_block(targets.len(), block_rows(padded), |block| {
        for row in block {
            let (logits, target) = (&logits[row * padded..][..vocab], targets[row]);
            let statistics = statistics(isa, logits);
            // SAFETY: each row is in one block.
            unsafe {
                write_loss(row, logits, target, statistics, &loss, lse.as_ref());
                let dlogits = dlogits.part(row * padded, padded);
                gradient(isa, logits, target, statistics, slope, dlogits);
            }
        }
    });
    Ok(())
}

/// Rows whose target counts, at least 1.
pub fn counted(targets: &[i32]) -> f64 {
    targets.iter().filter(|&&target| target >= 0).count().max(1) as f64
}

/// True for each row of `classes` logits whose target is the class of the largest one, the first of equal ones.
pub fn hits<L: Storage>(
    logits: &[L],
    targets: &[i32],
    classes: usize,
) -> impl Iterator<Item = bool> {
    let rows = logits.chunks_exact(classes).zip(targets);
    rows.map(|(row, &target)| {
        let Ok(target) = usize::try_from(target) else { return false };
        let (before, from) = row.split_at(target);
        let own = from[0].to_f32();
        before.iter().all(|x| x.to_f32() < own) && from.iter().all(|x| x.to_f32() <= own)
    })
}

/// P, after checking everything.
fn check(
    logits: usize,
    targets: &[i32],
    vocab: usize,
    loss: &[f32],
    lse: Option<&[f32]>,
) -> Result<usize, IdError> {
    let rows = targets.len();
    let padded = logits.checked_div(rows).unwrap_or(vocab);
    assert_eq!(rows * padded, logits, "logits are not a whole number of columns for {rows} rows");
    assert!(vocab <= padded, "the vocabulary of {vocab} exceeds the {padded} columns of logits");
    assert_eq!(loss.len(), rows, "loss is not (R) = ({rows})");
    assert!(lse.is_none_or(|lse| lse.len() == rows), "lse is not (R) = ({rows})");
    check_ids(targets, vocab, true)?;
    Ok(padded)
}

/// Writes loss and lse of one row.
///
/// # Safety
/// No other task writes this row's elements.
unsafe fn write_loss<L: Storage>(
    row: usize,
    logits: &[L],
    target: i32,
    (max, log_sum, _): Statistics,
    loss: &Disjoint<f32>,
    lse: Option<&Disjoint<f32>>,
) {
    // The maximum is subtracted first: it may be so large that lse has no digits left for the rest.
    let value = match usize::try_from(target) {
        Ok(target) => (max - logits[target].to_f32()) + log_sum,
        Err(_) => 0.0,
    };
    // SAFETY: the caller owns the row.
    unsafe {
        loss.part(row, 1)[0] = value;
        if let Some(lse) = lse {
            lse.part(row, 1)[0] = max + log_sum;
        }
    }
}

/// Of a row: its maximum m, ln s and s, with s = Σ exp(x − m).
type Statistics = (f32, f32, f32);

dispatched!(fn statistics<L>(row: &[L]) -> Statistics = statistics_body);

#[inline(always)]
fn statistics_body<S: Simd, L: Storage>(row: &[L]) -> Statistics {
    let mut buffer = [0.0; BLOCK];
    let (mut max, mut sum) = (f32::NEG_INFINITY, 0.0);
    for block in row.chunks(BLOCK) {
        let n = block.len();
        L::load(block, &mut buffer);
        let larger = maximum(&buffer[..n]).max(max);
        let added = exponentiate::<S>(&mut buffer[..n.next_multiple_of(LANES)], n, larger);
        // The first block has nothing to rescale, and −∞ − −∞ would be NaN.
        let kept = if sum == 0.0 { 0.0 } else { sum * exp::<S>(max - larger) };
        (max, sum) = (larger, kept + added);
    }
    (max, ln::<S>(sum), sum)
}

dispatched!(fn gradient<L, G>(
    logits: &[L], target: i32, statistics: Statistics, slope: Slope, dlogits: &mut [G],
) = gradient_body);

#[inline(always)]
fn gradient_body<S: Simd, L: Storage, G: Storage>(
    logits: &[L],
    target: i32,
    statistics: Statistics,
    Slope { scale, cap }: Slope,
    dlogits: &mut [G],
) {
    let (dlogits, padding) = dlogits.split_at_mut(logits.len());
    padding.fill(G::from_f32(0.0));
    let mut buffer = [0.0; BLOCK];
    for (i, (x, dx)) in logits.chunks(BLOCK).zip(dlogits.chunks_mut(BLOCK)).enumerate() {
        L::load(x, &mut buffer);
        gradient_block::<S>(&mut buffer, i * BLOCK, target, statistics, scale);
        if let Some(cap) = cap {
            for (dx, x) in buffer.iter_mut().zip(x) {
                *dx *= 1.0 - (x.to_f32() / cap).powi(2);
            }
        }
        G::store(&buffer, dx);
    }
}

dispatched!(fn gradient_in_place<L>(
    logits: &mut [L], vocab: usize, target: i32, statistics: Statistics, scale: f32,
) = gradient_in_place_body);

#[inline(always)]
fn gradient_in_place_body<S: Simd, L: Storage>(
    logits: &mut [L],
    vocab: usize,
    target: i32,
    statistics: Statistics,
    scale: f32,
) {
    let (logits, padding) = logits.split_at_mut(vocab);
    padding.fill(L::from_f32(0.0));
    let mut buffer = [0.0; BLOCK];
    for (i, x) in logits.chunks_mut(BLOCK).enumerate() {
        L::load(x, &mut buffer);
        gradient_block::<S>(&mut buffer, i * BLOCK, target, statistics, scale);
        L::store(&buffer, x);
    }
}

/// Logits of columns `first`.. to their gradient.
#[inline(always)]
fn gradient_block<S: Simd>(
    x: &mut [f32; BLOCK],
    first: usize,
    target: i32,
    (max, _, sum): Statistics,
    scale: f32,
) {
    let Ok(target) = usize::try_from(target) else {
        x.fill(0.0);
        return;
    };
    let factor = scale / sum;
    for x in x.iter_mut() {
        *x = exp::<S>(*x - max) * factor;
    }
    if (first..first + BLOCK).contains(&target) {
        x[target - first] -= scale;
    }
}

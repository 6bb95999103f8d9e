//! How far a backend may be from the reference, and where it may be further.
//!
//! With a the backend's elements of one output and r the reference's:
//!
//!   nmse = Σ (a − r)² / Σ r²,   largest = max |a − r| / max |r|

use crate::ops::{Case, Fill};
use crate::{DType, Op};

/// The error of one output, or the most that is allowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Deviation {
    /// Mean square error over the mean square of the reference.
    pub nmse: f64,
    /// Largest error of an element over the largest magnitude of the reference.
    pub largest: f64,
}

/// Reference outputs smaller than this everywhere are compared as if this were their magnitude: a loss
/// that is exactly 0 in f64 may be the rounding of a logit.
const SMALLEST: f64 = 1e-2;

impl Deviation {
    /// No error.
    pub const NONE: Self = Self { nmse: 0.0, largest: 0.0 };

    /// Error of `actual` against `reference`. Equal infinities and two NaNs agree; any other value that
    /// isn't finite is infinitely wrong.
    pub fn between(actual: &[f64], reference: &[f64]) -> Self {
        let mut magnitude: f64 = SMALLEST;
        let (mut square, mut error, mut largest) = (0.0, 0.0, 0.0_f64);
        for (&a, &r) in actual.iter().zip(reference) {
            if a == r || (a.is_nan() && r.is_nan()) {
                if r.is_finite() {
                    magnitude = magnitude.max(r.abs());
                    square += r * r;
                }
                continue;
            }
            if !a.is_finite() || !r.is_finite() {
                return Self { nmse: f64::INFINITY, largest: f64::INFINITY };
            }
            magnitude = magnitude.max(r.abs());
            square += r * r;
            error += (a - r).powi(2);
            largest = largest.max((a - r).abs());
        }
        let least = SMALLEST * SMALLEST * reference.len() as f64;
        Self {
            nmse: error / square.max(least).max(f64::MIN_POSITIVE),
            largest: largest / magnitude,
        }
    }

    /// Whether both errors are within `allowed`.
    pub fn within(self, allowed: Self) -> bool {
        self.nmse <= allowed.nmse && self.largest <= allowed.largest
    }

    /// The larger of both, error by error.
    pub fn max(self, other: Self) -> Self {
        Self { nmse: self.nmse.max(other.nmse), largest: self.largest.max(other.largest) }
    }
}

/// What is allowed for an output stored as `dtype`: f32 arithmetic in another order and with a device's own
/// transcendental functions, then one rounding. Integers are exact.
pub fn of_dtype(dtype: DType) -> Deviation {
    match dtype {
        DType::F64 => Deviation { nmse: 1e-24, largest: 1e-12 },
        DType::F32 => Deviation { nmse: 1e-10, largest: 2e-5 },
        // Half a unit in the last place is 2⁻⁹ of the element: the reference itself has an nmse of 1e-6.
        DType::BF16 => Deviation { nmse: 1e-5, largest: 8e-3 },
        DType::F16 => Deviation { nmse: 2e-7, largest: 1e-3 },
        DType::I32 | DType::U32 | DType::I16 | DType::I8 | DType::U8 => Deviation::NONE,
    }
}

/// What is allowed for f32 outputs of matmuls whose operands are rounded to TF32: 10 bits after the point, so that an
/// operand is off by 2⁻¹¹ of itself at most and a product of two by 2⁻¹⁰. Terms of a sum are off independently of each
/// other, and so is the sum by no more of its size.
pub const OF_TF32: Deviation =
    Deviation { nmse: 1.0 / (1 << 20) as f64, largest: 1.0 / (1 << 10) as f64 };

/// A place where more is allowed.
pub struct Exception {
    /// Variant of [`Op`].
    pub family: &'static str,
    /// Storage of the outputs it holds for.
    pub dtype: DType,
    /// Cases it holds for.
    pub applies: fn(&Case) -> bool,
    /// What is allowed there.
    pub allowed: Deviation,
    /// Why.
    pub reason: &'static str,
}

/// Every place where more is allowed than [`of_dtype`].
pub const EXCEPTIONS: &[Exception] = &[
    Exception {
        family: "Quantize",
        dtype: DType::I8,
        applies: |_| true,
        allowed: Deviation { nmse: 1e-5, largest: 0.008 },
        reason: "a value halfway between two quantized values goes to either, after a division in f32",
    },
    Exception {
        family: "Quantize",
        dtype: DType::U8,
        applies: |_| true,
        allowed: Deviation { nmse: 1e-5, largest: 0.004 },
        reason: "a value halfway between two values of a dynamic codebook goes to either, after a division in f32",
    },
    Exception {
        family: "FusedMatMul",
        dtype: DType::BF16,
        applies: |case| matches!(&case.op, Op::FusedMatMul(fused) if fused.formula.is_some()),
        allowed: Deviation { nmse: 4e-5, largest: 8e-3 },
        reason: "a library applies the formula to a matmul that isn't rounded before, as the reference's is",
    },
    Exception {
        family: "Rope",
        dtype: DType::F32,
        applies: |_| true,
        allowed: Deviation { nmse: 1e-7, largest: 1e-3 },
        reason: "an angle in f32 is off by 1e-7 of the position",
    },
    Exception {
        family: "Attention",
        dtype: DType::F32,
        applies: wide,
        allowed: Deviation { nmse: 1e-5, largest: 1e-2 },
        reason: "scores in the thousands, whose f32 rounding is a relative error of the probabilities",
    },
    Exception {
        family: "LinearCrossEntropyGrad",
        dtype: DType::F32,
        applies: in_bf16,
        allowed: Deviation { nmse: 1e-5, largest: 8e-3 },
        reason: TILE_ROUNDED,
    },
    Exception {
        family: "LinearCrossEntropyGrad",
        dtype: DType::BF16,
        applies: in_bf16,
        allowed: Deviation { nmse: 3e-5, largest: 1.6e-2 },
        reason: TILE_ROUNDED,
    },
    Exception {
        family: "LinearCrossEntropyGrad",
        dtype: DType::F32,
        applies: in_f16,
        allowed: Deviation { nmse: 2e-7, largest: 1e-3 },
        reason: TILE_ROUNDED,
    },
    Exception {
        family: "LinearCrossEntropyGrad",
        dtype: DType::F16,
        applies: in_f16,
        allowed: Deviation { nmse: 6e-7, largest: 2e-3 },
        reason: TILE_ROUNDED,
    },
    Exception {
        family: "LinearDistillationGrad",
        dtype: DType::F32,
        applies: in_bf16,
        allowed: Deviation { nmse: 1e-5, largest: 8e-3 },
        reason: TILE_ROUNDED,
    },
    Exception {
        family: "LinearDistillationGrad",
        dtype: DType::BF16,
        applies: in_bf16,
        allowed: Deviation { nmse: 3e-5, largest: 1.6e-2 },
        reason: TILE_ROUNDED,
    },
    Exception {
        family: "LinearDistillationGrad",
        dtype: DType::F32,
        applies: in_f16,
        allowed: Deviation { nmse: 2e-7, largest: 1e-3 },
        reason: TILE_ROUNDED,
    },
    Exception {
        family: "LinearDistillationGrad",
        dtype: DType::F16,
        applies: in_f16,
        allowed: Deviation { nmse: 6e-7, largest: 2e-3 },
        reason: TILE_ROUNDED,
    },
];

const TILE_ROUNDED: &str =
    "the gradient of a tile of logits is stored in 16 bits for the two matmuls that read it";

fn in_bf16(case: &Case) -> bool {
    storage(case) == DType::BF16
}

fn in_f16(case: &Case) -> bool {
    storage(case) == DType::F16
}

/// Whether some input spans more than 16, far more than normed activations do.
fn wide(case: &Case) -> bool {
    case.inputs
        .iter()
        .any(|entry| matches!(entry.fill, Fill::Uniform(low, high) if high - low > 16.0))
}

/// What is allowed for the output of a case stored as `dtype`.
pub fn allowed(case: &Case, dtype: DType) -> Deviation {
    EXCEPTIONS
        .iter()
        .find(|exception| exception.holds(case, dtype))
        .map_or(of_dtype(dtype), |exception| exception.allowed)
}

impl Exception {
    /// Whether it holds for this output of this case.
    pub fn holds(&self, case: &Case, dtype: DType) -> bool {
        self.family == case.op.family() && self.dtype == dtype && (self.applies)(case)
    }
}

/// Storage that a case is reported under: its narrowest float, in inputs, attributes and outputs.
pub fn storage(case: &Case) -> DType {
    let found = super::dtypes(case);
    [DType::F16, DType::BF16, DType::F32, DType::F64]
        .into_iter()
        .find(|dtype| found.contains(dtype))
        .unwrap_or(DType::I32)
}

/// The exceptions that no output of `cases` meets.
pub fn unused<'a>(cases: impl Iterator<Item = &'a Case> + Clone) -> Vec<&'static str> {
    let used = |exception: &&Exception| {
        cases.clone().any(|case| {
            let types: Vec<_> = case.inputs.iter().map(|entry| &entry.ty).collect();
            let outputs = crate::Rule::infer(&case.op, &types).unwrap_or_default();
            outputs.iter().any(|output| exception.holds(case, output.dtype))
        })
    };
    let families = |family: &str| Op::FAMILIES.contains(&family);
    EXCEPTIONS
        .iter()
        .filter(|exception| !families(exception.family) || !used(exception))
        .map(|exception| exception.reason)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_relative_to_the_output() {
        let deviation = Deviation::between(&[100.0, 1.0], &[100.0, 2.0]);
        assert_eq!(deviation.largest, 0.01);
        assert!((deviation.nmse - 1.0 / 10_004.0).abs() < 1e-12);
        assert_eq!(Deviation::between(&[3.0], &[3.0]), Deviation::NONE);
    }

    #[test]
    fn a_nan_or_an_infinity_is_infinitely_wrong_unless_expected() {
        let (nan, infinity) = (f64::NAN, f64::INFINITY);
        assert!(!Deviation::between(&[nan], &[1.0]).within(of_dtype(DType::BF16)));
        assert!(!Deviation::between(&[1.0], &[infinity]).within(of_dtype(DType::BF16)));
        assert!(!Deviation::between(&[-infinity], &[infinity]).within(of_dtype(DType::BF16)));
        assert_eq!(Deviation::between(&[nan, infinity], &[nan, infinity]), Deviation::NONE);
    }
}

//! Activation functions, one formula each; gradients come from [`Expr::derivative`].

use crate::expr::{Expr, constant};

/// √(2/π)
const SQRT_2_OVER_PI: f64 = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2;

/// GELU in its tanh form (Hendrycks and Gimpel 2016); `gelu_new` of Hugging Face. Written with the logistic
/// function, which is ½(1 + tanh(z/2)) and takes fewer steps.
pub fn gelu_tanh(x: Expr) -> Expr {
    let square = x.clone() * x.clone();
    let slope =
        constant(2.0 * SQRT_2_OVER_PI) + constant(2.0 * SQRT_2_OVER_PI * 0.044_715) * square;
    x.clone() * (x * slope).sigmoid()
}

/// Exact GELU: x · Φ(x).
pub fn gelu(x: Expr) -> Expr {
    let erf = (x.clone() * constant(std::f64::consts::FRAC_1_SQRT_2)).erf();
    constant(0.5) * x * (constant(1.0) + erf)
}

/// SiLU, also called swish: x · sigmoid(x).
pub fn silu(x: Expr) -> Expr {
    x.clone() * x.sigmoid()
}

/// Squared ReLU (So et al. 2021): max(x, 0)².
pub fn relu_squared(x: Expr) -> Expr {
    let positive = x.max(constant(0.0));
    positive.clone() * positive
}

/// SwiGLU's product (Shazeer 2020): silu(gate) · up.
pub fn swiglu(gate: Expr, up: Expr) -> Expr {
    silu(gate) * up
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::input;

    fn at(formula: &Expr, x: &[f64]) -> f64 {
        formula.eval(x, &|_| unreachable!("activations draw no random numbers"))
    }

    /// Values of torch.nn.functional in float64.
    #[test]
    fn known_values() {
        let x = || input(0);
        for (name, formula, values) in [
            ("gelu_tanh", gelu_tanh(x()), [-0.158_808_009_4, 0.0, 1.954_597_694_1]),
            ("gelu", gelu(x()), [-0.158_655_253_9, 0.0, 1.954_499_736_1]),
            ("silu", silu(x()), [-0.268_941_421_4, 0.0, 1.761_594_156_0]),
            ("relu_squared", relu_squared(x()), [0.0, 0.0, 4.0]),
        ] {
            for (x, expected) in [-1.0, 0.0, 2.0].into_iter().zip(values) {
                let found = at(&formula, &[x]);
                assert!((found - expected).abs() < 1e-9, "{name}({x}) = {found}, not {expected}");
            }
        }
        assert!((at(&swiglu(input(0), input(1)), &[2.0, -3.0]) + 5.284_782_467_9).abs() < 1e-9);
    }
}

//! Fast paths: one file per op family.

pub mod attention;
pub mod gemm;
pub mod moves;
pub mod nf4;
pub mod norm;
pub mod quant;
pub mod rows;
pub mod unfold;
pub mod vmath;

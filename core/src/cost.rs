//! `Cost`: arithmetic and traffic of an op or of a launch.

/// Arithmetic and traffic of an op.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Floating-point operations; a multiply-add counts as two.
    pub flops: u64,
    /// Bytes read and written, each tensor once.
    pub bytes: u64,
}

//! The one bound on what readers make of what they read: a few hundred bytes can stand for gigabytes.
//!
//! Packed files and rows of Parquet count against it. [`VARIABLE`] in the environment raises it.

/// The environment variable that raises the bound, in bytes.
pub(crate) const VARIABLE: &str = "TIGHTROPE_MAX_UNPACKED";
/// Bytes that any file may become.
const LEAST: u64 = 16 << 20;
/// Times its own size that a file may become besides: texts that are packed well become 30 times larger.
const TIMES: u64 = 256;

/// Counts the bytes that are made of a file.
pub(crate) struct Made {
    most: u64,
    made: u64,
}

impl Made {
    /// The count for a file of `size` bytes.
    pub fn of(size: usize) -> Self {
        let raised = std::env::var(VARIABLE).ok().and_then(|bytes| bytes.parse().ok());
        let most = LEAST.saturating_add(TIMES.saturating_mul(size as u64));
        Self { most: most.max(raised.unwrap_or(0)), made: 0 }
    }

    /// Bytes that may be made in all.
    pub fn most(&self) -> u64 {
        self.most
    }

    /// Counts `bytes` more.
    ///
    /// # Errors
    /// A message, once more was made than may be.
    pub fn add(&mut self, bytes: usize) -> Result<(), String> {
        self.made = self.made.saturating_add(bytes as u64);
        if self.made > self.most { Err(self.refusal()) } else { Ok(()) }
    }

    /// The refusal of a file that becomes larger.
    pub fn refusal(&self) -> String {
        format!(
            "it becomes more than {} bytes, which is more than its size may become; set {VARIABLE} to the bytes that it may become \
             if it can be trusted",
            self.most
        )
    }
}

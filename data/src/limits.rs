//! The bounds on files that are read whole, and on what readers make of what they read: a few hundred bytes can stand for gigabytes.
//!
//! `TIGHTROPE_MAX_UNPACKED` in the environment raises each of them.

/// The environment variable that raises the bounds, in bytes.
const VARIABLE: &str = "TIGHTROPE_MAX_UNPACKED";
/// Bytes at most of a file that describes others: `config.json`, an index, a plan, a template.
pub const DESCRIPTION: u64 = 16 << 20;
/// Bytes at most of a file of a tokenizer: those of 262,144 tokens have 33 MB.
pub const TOKENS: u64 = 256 << 20;
/// Bytes at most of a line of JSON.
const LINE: u64 = 32 << 20;
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
        Self { most: raised(LEAST.saturating_add(TIMES.saturating_mul(size as u64))), made: 0 }
    }

    /// Bytes that may be made in all.
    #[cfg(not(target_family = "wasm"))]
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

/// The lines of a text, each with the place where it begins. One that is too long, of a file that may have no end, is an error, and the last.
pub(crate) fn lines(text: &[u8]) -> impl Iterator<Item = Result<(usize, &[u8]), String>> {
    let most = usize::try_from(raised(LINE)).unwrap_or(usize::MAX);
    let mut next = Some(0);
    std::iter::from_fn(move || {
        let start = next?;
        let rest = &text[start..];
        let end = rest.iter().take(most).position(|&byte| byte == b'\n');
        next = end.map(|end| start + end + 1);
        match end {
            Some(end) => Some(Ok((start, &rest[..end]))),
            None if rest.len() >= most => Some(Err(format!(
                "it has more than {most} bytes; set {VARIABLE} to more if it can be trusted"
            ))),
            None => Some(Ok((start, rest))),
        }
    })
}

/// A bound as it is, or as [`VARIABLE`] raises it.
pub(crate) fn raised(most: u64) -> u64 {
    let raised = std::env::var(VARIABLE).ok().and_then(|bytes| bytes.parse().ok());
    most.max(raised.unwrap_or(0))
}

/// The refusal of a file that is too long.
pub(crate) fn too_long(length: u64, most: u64) -> String {
    format!(
        "it has {length} bytes, and at most {most} are read; set {VARIABLE} to more bytes if it can be trusted"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_their_places_and_an_endless_one_is_refused() {
        let found: Vec<(usize, &[u8])> = lines(b"a\n\nbc").map(Result::unwrap).collect();
        assert_eq!(found, [(0, &b"a"[..]), (2, b""), (3, b"bc")]);
        let mut text = b"a\n".to_vec();
        text.resize(2 + LINE as usize, 0);
        let found: Vec<_> = lines(&text).collect();
        assert_eq!(found.len(), 2);
        assert!(found[1].as_ref().unwrap_err().contains(VARIABLE));
    }
}

//! `Cancel`: a request to stop computing.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A cancellation token: a request to stop computing. Whoever asks for it and whoever computes have clones of one. By default nobody
/// asks.
///
/// A [`Backend`](crate::Backend) looks at it between the pieces of its work, on any thread. What was computed up to there is dropped:
/// [`Cancelled`] says so.
#[derive(Clone, Default)]
pub struct Cancel(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Cancel {
    /// Computing stops once this flag is set.
    pub fn on(flag: Arc<AtomicBool>) -> Self {
        Self::when(move || flag.load(Ordering::Relaxed))
    }

    /// Computing stops once `asked` says so. It's called often, and stays with what it said as long as a program runs.
    pub fn when(asked: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(asked)))
    }

    /// True once somebody asked.
    pub fn is_requested(&self) -> bool {
        self.0.as_ref().is_some_and(|asked| asked())
    }

    /// Fails once somebody asked.
    ///
    /// # Errors
    /// [`Cancelled`].
    pub fn check(&self) -> Result<(), Cancelled> {
        if self.is_requested() { Err(Cancelled) } else { Ok(()) }
    }
}

/// Somebody asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancelled;

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.is_requested() { "requested" } else { "not requested" };
        f.debug_tuple("Cancel").field(&word).finish()
    }
}

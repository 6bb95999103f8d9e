//! Calls into the tokenizers library, which panics on some crafted files.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

/// Runs `f`; a panic in it becomes its message, and prints nothing. Other threads' panics print
/// as before.
pub(super) fn guarded<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    thread_local! {
        static QUIET: Cell<bool> = const { Cell::new(false) };
    }
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                previous(info);
            }
        }));
    });
    let outer = QUIET.replace(true);
    // Unwinding may leave the tokenizer's cache half written; its lock is then poisoned and unused.
    let result = panic::catch_unwind(AssertUnwindSafe(f));
    QUIET.set(outer);
    result.map_err(|payload| {
        let message = payload
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| payload.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        format!("the tokenizers library panicked: {message}")
    })
}

//! Parallel map over threads that also completes when the system refuses to start one.

use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Builder, ScopedJoinHandle};

/// Applies `work` to each item in parallel and returns the results in order: one thread an item. The caller's thread takes the last
/// item, and each item whose thread the system refuses to start.
///
/// # Panics
/// If `work` panics, after all threads have ended.
pub fn side_by_side<T: Send, R: Send>(
    items: impl IntoIterator<Item = T>,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let items: Vec<Mutex<Option<T>>> =
        items.into_iter().map(|item| Mutex::new(Some(item))).collect();
    let run = &|item: &Mutex<Option<T>>| {
        let item = item.lock().unwrap_or_else(PoisonError::into_inner).take();
        item.map(&work)
    };
    thread::scope(|scope| {
        let last = items.len().saturating_sub(1);
        let mut made = vec![];
        for (index, item) in items.iter().enumerate() {
            let begun = (index < last).then(|| Builder::new().spawn_scoped(scope, || run(item)));
            made.push(begun.and_then(Result::ok).map(Made::There));
        }
        // The caller's thread has its share before it waits for others.
        for (item, made) in items.iter().zip(&mut made) {
            made.get_or_insert_with(|| Made::Here(run(item)));
        }
        let ended = made.into_iter().flatten().filter_map(|made| match made {
            Made::Here(result) => result,
            Made::There(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
        });
        ended.collect()
    })
}

/// A result of the caller's thread, or the thread that makes one.
enum Made<'scope, R> {
    Here(Option<R>),
    There(ScopedJoinHandle<'scope, Option<R>>),
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_items() {
        for count in [0, 1, 2, 7] {
            let items: Vec<String> = (0..count).map(|item| item.to_string()).collect();
            let lengths = side_by_side(items.clone(), |item| format!("{item}!"));
            assert_eq!(lengths, items.iter().map(|item| format!("{item}!")).collect::<Vec<_>>());
        }
        let mut values = [1, 2, 3, 4, 5];
        side_by_side(values.chunks_mut(2), |part| part.iter_mut().for_each(|value| *value *= 2));
        assert_eq!(values, [2, 4, 6, 8, 10]);
    }

    #[test]
    fn a_panic_reaches_the_caller() {
        for bad in 0..3 {
            let run = || side_by_side(0..3, |item| assert_ne!(item, bad));
            assert!(catch_unwind(run).is_err(), "{bad}");
        }
    }
}

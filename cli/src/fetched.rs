//! The progress of files that are fetched from the Hugging Face hub: a line at the beginning of each, and at each tenth of a long one.

use std::sync::Mutex;

use tightrope::hub::Progress;
use tightrope::units::human_bytes;

use crate::output;

/// Bytes of a file that takes a while.
const LONG: u64 = 64 << 20;

/// Prints how far files have come.
pub fn told() -> impl Fn(&Progress) + Send + Sync {
    let last: Mutex<(String, u64)> = Mutex::default();
    move |progress| {
        let Progress { name, file, number: [number, count], done, all } = progress;
        let Ok(mut last) = last.lock() else { return };
        let size = all.map_or(String::new(), |all| format!(", {}", human_bytes(all)));
        if last.0 != *file {
            *last = (file.clone(), 0);
            output::note(&format!("fetching {name}, file {number} of {count}: {file}{size}"));
        }
        let tenths = all.filter(|&all| all >= LONG).map_or(0, |all| 10 * done / all.max(1));
        if tenths > last.1 {
            last.1 = tenths;
            output::note(&format!(
                "{file}: {} of{}",
                human_bytes(*done),
                size.trim_start_matches(',')
            ));
        }
    }
}

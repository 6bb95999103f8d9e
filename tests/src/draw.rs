//! Tests that take long try a part of their cases each day, drawn by the date, and all of them where they are asked to.

use std::env;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::values::uniform;

/// Says what is drawn: `all`, or words that draw the same whenever they are given; without it, today's date.
pub const VARIABLE: &str = "TIGHTROPE_DRAW";

/// Draws from lists of cases.
pub struct Draw {
    /// None where everything is taken.
    words: Option<String>,
}

impl Draw {
    /// By these words; everything where there are none.
    pub fn by(words: Option<String>) -> Self {
        Self { words }
    }

    /// As [`VARIABLE`] says, or by the date.
    ///
    /// # Panics
    /// Where the variable isn't Unicode, or the clock is set before 1970.
    pub fn of_today() -> Self {
        match env::var(VARIABLE) {
            Ok(words) if words == "all" => Self { words: None },
            Ok(words) => Self { words: Some(words) },
            Err(env::VarError::NotPresent) => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH);
                let seconds = since.expect("a clock that is set").as_secs();
                Self { words: Some(date(seconds / (24 * 60 * 60))) }
            }
            Err(error) => panic!("{VARIABLE}: {error}"),
        }
    }

    /// One of `of` items, and at least one.
    pub fn one_of<T>(&self, of: usize, what: &str, items: Vec<T>) -> Vec<T> {
        let count = items.len().div_ceil(of);
        self.some(what, items, count)
    }

    /// `count` of the items, all different, in their order; all of them where everything is taken or there are no more. Prints
    /// what was drawn from, under the name `what`.
    pub fn some<T>(&self, what: &str, items: Vec<T>, count: usize) -> Vec<T> {
        let Some(words) = &self.words else { return items };
        if count >= items.len() {
            return items;
        }
        println!("{count} of {} {what} drawn by {words}: {VARIABLE}={words}", items.len());
        let seed = seed(&[words, what]);
        let mut order: Vec<usize> = (0..items.len()).collect();
        let drawn = |index: &usize| uniform(seed, *index as u64);
        order.sort_by(|a, b| drawn(a).total_cmp(&drawn(b)));
        order.truncate(count);
        let taken = |(index, item)| order.contains(&index).then_some(item);
        items.into_iter().enumerate().filter_map(taken).collect()
    }
}

/// A number of words, the same on every machine (FNV-1a).
fn seed(words: &[&str]) -> u64 {
    let bytes = words.iter().flat_map(|word| word.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The date of a day since 1970-01-01 (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").
fn date(day: u64) -> String {
    // Years begin in March, so that a leap day is a year's last; eras have 400 of them.
    let day = day + 719_468;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{}-{month:02}-{day:02}", era * 400 + year + next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(words: &str) -> Draw {
        Draw::by(Some(words.into()))
    }

    #[test]
    fn days_have_dates() {
        for (day, expected) in [
            (0, "1970-01-01"),
            (11_016, "2000-02-29"),
            (20_779, "2026-11-22"),
            (20_818, "2026-12-31"),
        ] {
            assert_eq!(date(day), expected);
        }
    }

    #[test]
    fn the_same_words_draw_the_same() {
        let items: Vec<u32> = (0..50).collect();
        let drawn = |words| by(words).some("numbers", items.clone(), 7);
        assert_eq!(drawn("2026-11-22"), drawn("2026-11-22"));
        assert_ne!(drawn("2026-11-22"), drawn("2026-11-23"));
        assert_eq!(drawn("2026-11-22").len(), 7);
        assert!(drawn("2026-11-22").is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn every_item_is_drawn_some_day() {
        let mut seen = std::collections::BTreeSet::new();
        for day in 0..60 {
            seen.extend(by(&date(day)).some("numbers", (0..20).collect(), 4));
        }
        assert_eq!(seen.len(), 20);
    }

    #[test]
    fn everything_is_taken_where_it_is_asked_for() {
        let items: Vec<u32> = (0..50).collect();
        assert_eq!(Draw::by(None).some("numbers", items.clone(), 3), items);
        assert_eq!(by("today").some("numbers", items.clone(), 50), items);
    }
}

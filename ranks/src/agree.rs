//! Compares what must be equal on all ranks, before anything depends on it.

use std::collections::BTreeMap;

use tightrope_core::{Ranks, RanksError};

/// Bytes of facts that a rank may have in any case.
const FACTS: usize = 1 << 20;

/// Why ranks that compared facts can't go on together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgreeError {
    /// Facts differ.
    #[error(transparent)]
    Differ(RanksError),
    /// A rank didn't answer, or not as ranks do: nothing is known of its facts.
    #[error(transparent)]
    Ranks(#[from] RanksError),
}

impl From<AgreeError> for RanksError {
    fn from(error: AgreeError) -> Self {
        match error {
            AgreeError::Differ(error) | AgreeError::Ranks(error) => error,
        }
    }
}

/// Compares facts, each a name and a value (a version, or a hash of something long). All ranks call this at the same place.
///
/// # Errors
/// [`AgreeError::Differ`] names the first rank that differs from most, and its reason says who has what. [`AgreeError::Ranks`] where one
/// doesn't answer, or its facts are longer than 1 MiB and than twice this one's.
pub fn agree(ranks: &mut dyn Ranks, facts: &[(&str, &str)]) -> Result<(), AgreeError> {
    const WHAT: &str = "what all ranks compare";
    let own = written(facts);
    // Ranks with other facts write other lengths, and gathers need equal ones.
    let ticket = ranks.begin_gather(WHAT, (own.len() as u64).to_le_bytes().to_vec())?;
    let lengths = ranks.finish(ticket)?;
    let lengths = lengths.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
    let most = own.len().saturating_mul(2).max(FACTS);
    let within = |(rank, length): (usize, u64)| {
        let within = usize::try_from(length).ok().filter(|&length| length <= most);
        within.ok_or_else(|| {
            let reason = format!("it compares {length} bytes, where {most} are the most");
            RanksError { rank: Some(rank), what: WHAT.to_owned(), reason }
        })
    };
    let lengths: Result<Vec<usize>, RanksError> = lengths.enumerate().map(within).collect();
    let lengths = lengths.inspect_err(|error| ranks.fail(&error.to_string()))?;
    let longest = lengths.iter().copied().max().unwrap_or_default();
    let mut padded = own;
    padded.resize(longest, 0);
    let ticket = ranks.begin_gather(WHAT, padded)?;
    let all = ranks.finish(ticket)?;
    if longest == 0 {
        return Ok(());
    }
    let texts =
        all.chunks(longest).zip(lengths).map(|(bytes, length)| &bytes[..length.min(bytes.len())]);
    let all: Vec<BTreeMap<String, String>> = texts.map(read).collect();
    let found = differences(&all);
    let Some((rank, name, _)) = found.first() else { return Ok(()) };
    let reasons: Vec<&str> = found.iter().map(|(.., reason)| reason.as_str()).collect();
    let reason = reasons.join("; ");
    // Everybody has found the same, and is here before anybody says that it can't go on: else some would name one that says so.
    let met = ranks.begin_gather(WHAT, vec![0]).and_then(|ticket| ranks.finish(ticket));
    drop(met);
    ranks.fail(&reason);
    let what = format!("{WHAT}: {name}");
    Err(AgreeError::Differ(RanksError { rank: Some(*rank), what, reason }))
}

/// Texts with their lengths before them.
fn written(facts: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = vec![];
    for text in facts.iter().flat_map(|(name, value)| [name, value]) {
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text.as_bytes());
    }
    bytes
}

fn read(mut bytes: &[u8]) -> BTreeMap<String, String> {
    let mut text = || {
        let (length, rest) = bytes.split_first_chunk()?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let (text, rest) = rest.split_at_checked(length)?;
        bytes = rest;
        Some(String::from_utf8_lossy(text).into_owned())
    };
    let mut facts = BTreeMap::new();
    while let Some((name, value)) = text().and_then(|name| Some((name, text()?))) {
        facts.insert(name, value);
    }
    facts
}

/// Ranks that differ from most, each with a name and what it has; where as many have one value as another, the first rank counts.
fn differences(all: &[BTreeMap<String, String>]) -> Vec<(usize, String, String)> {
    let mut names: Vec<&String> = all.iter().flat_map(BTreeMap::keys).collect();
    names.sort();
    names.dedup();
    let mut found: Vec<(usize, String, String)> = vec![];
    for name in names {
        let values: Vec<Option<&String>> = all.iter().map(|facts| facts.get(name)).collect();
        let having =
            |value: &Option<&String>| values.iter().filter(|other| *other == value).count();
        // Of equals, `max_by_key` takes the last.
        let Some(most) = values.iter().rev().max_by_key(|value| having(value)) else { continue };
        let said =
            |value: Option<&String>| value.map_or("none".to_owned(), |value| format!("{value:?}"));
        for (rank, value) in values.iter().enumerate().filter(|(_, value)| *value != most) {
            let others = values.iter().position(|other| other == most).unwrap_or_default();
            // Of the first that differs, an error says "rank 2:" itself.
            let first = found.first().is_none_or(|(first, ..)| *first == rank);
            let who = if first { "it".to_owned() } else { format!("rank {rank}") };
            let (own, other) = (said(*value), said(*most));
            let name_said = name.escape_debug();
            let reason = format!("{who} has {name_said} {own}, where rank {others} has {other}");
            found.push((rank, name.clone(), reason));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::Threads;

    /// What each rank is told that has these facts.
    fn told(all: &[&[(&str, &str)]]) -> Vec<Result<(), AgreeError>> {
        thread::scope(|scope| {
            let ranks = Threads::group(all.len(), Duration::from_secs(10));
            let started: Vec<_> = ranks
                .into_iter()
                .zip(all)
                .map(|(mut ranks, facts)| scope.spawn(move || agree(&mut ranks, facts)))
                .collect();
            started.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    fn differ(result: Result<(), AgreeError>) -> RanksError {
        let Err(AgreeError::Differ(error)) = result else { panic!("{result:?}") };
        error
    }

    #[test]
    fn a_rank_that_does_not_answer_is_no_difference() {
        let mut ranks = Threads::group(2, Duration::from_millis(100));
        let error = agree(&mut ranks[0], &[("version", "0.1.0")]).unwrap_err();
        let AgreeError::Ranks(error) = error else { panic!("{error:?}") };
        assert_eq!(error.rank, Some(1), "{error}");
    }

    #[test]
    fn equal_facts_pass() {
        let facts: &[(&str, &str)] = &[("version", "0.1.0"), ("settings", "1a2b")];
        assert_eq!(told(&[facts; 4]), vec![Ok(()); 4]);
        assert_eq!(told(&[&[] as &[(&str, &str)]; 3]), vec![Ok(()); 3]);
        // In another order they are the same.
        assert_eq!(told(&[facts, &[facts[1], facts[0]]]), vec![Ok(()); 2]);
    }

    #[test]
    fn the_rank_that_differs_is_named_by_all_with_what_it_has() {
        let most: &[(&str, &str)] = &[("version", "0.1.0"), ("data", "1a2b")];
        for (odd, expected) in [
            (
                &[("version", "0.1.0"), ("data", "ffff")][..],
                r#"it has data "ffff", where rank 1 has "1a2b""#,
            ),
            (&[("version", "0.1.0")], r#"it has data none, where rank 1 has "1a2b""#),
            (&[], r#"it has data none, where rank 1 has "1a2b"; it has version none"#),
        ] {
            for result in told(&[odd, most, most]) {
                let error = differ(result);
                assert_eq!(error.rank, Some(0));
                assert!(error.reason.contains(expected), "{error}");
            }
        }
    }

    #[test]
    fn a_length_that_no_facts_have_is_refused_by_the_name_of_its_rank() {
        for length in [FACTS as u64 + 1, 1 << 38, 1 << 63, u64::MAX] {
            thread::scope(|scope| {
                let mut honest = Threads::group(3, Duration::from_secs(10));
                let mut liar = honest.pop().unwrap();
                scope.spawn(move || {
                    let bytes = length.to_le_bytes().to_vec();
                    let ticket = liar.begin_gather("what all ranks compare", bytes).unwrap();
                    liar.finish(ticket).unwrap();
                });
                for mut ranks in honest {
                    scope.spawn(move || {
                        let error = agree(&mut ranks, &[("version", "0.1.0")]).unwrap_err();
                        let AgreeError::Ranks(error) = error else { panic!("{error:?}") };
                        assert_eq!(error.rank, Some(2), "{error}");
                        let said =
                            format!("it compares {length} bytes, where 1048576 are the most");
                        assert_eq!(error.reason, said);
                    });
                }
            });
        }
    }

    #[test]
    fn of_two_the_first_counts() {
        for result in told(&[&[("data", "1")], &[("data", "2")]]) {
            let error = differ(result);
            assert_eq!(
                (error.rank, error.what.as_str()),
                (Some(1), "what all ranks compare: data")
            );
        }
    }
}

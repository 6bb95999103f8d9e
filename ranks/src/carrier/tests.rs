use std::sync::Barrier;
use std::thread;

use tightrope_core::{Ranks, RanksError, Ticket};

use super::*;
use crate::Threads;

const SHORT: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(30);

/// Runs each rank in a thread of its own; what each returns, in order.
fn on_each<R: Send>(count: usize, time_out: Duration, run: impl Fn(Threads) -> R + Sync) -> Vec<R> {
    on_each_of(Threads::group(count, time_out), run)
}

fn on_each_of<R: Send>(ranks: Vec<Threads>, run: impl Fn(Threads) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let run = &run;
        let started: Vec<_> =
            ranks.into_iter().map(|rank| scope.spawn(move || run(rank))).collect();
        started.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Bytes that tell who sent them to whom, and when.
fn part(from: usize, to: usize, round: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (from * 31 + to * 7 + round * 3 + at * 13) as u8).collect()
}

fn parts(from: usize, count: usize, round: usize, length: usize) -> Vec<u8> {
    (0..count).flat_map(|to| part(from, to, round, length)).collect()
}

#[test]
fn each_receives_one_part_from_everybody_in_the_order_of_ranks() {
    for count in 1..=5 {
        for length in [0, 1, 3, 257] {
            on_each(count, LONG, |mut ranks| {
                let rank = ranks.rank();
                let ticket =
                    ranks.begin_exchange("x", 0..count, parts(rank, count, 0, length)).unwrap();
                let expected: Vec<u8> =
                    (0..count).flat_map(|from| part(from, rank, 0, length)).collect();
                assert_eq!(ranks.finish(ticket).unwrap(), expected);
                let ticket = ranks.begin_gather("y", part(rank, 9, 1, length)).unwrap();
                let expected: Vec<u8> =
                    (0..count).flat_map(|from| part(from, 9, 1, length)).collect();
                assert_eq!(ranks.finish(ticket).unwrap(), expected);
            });
        }
    }
}

#[test]
fn groups_exchange_by_themselves() {
    let count = 6;
    on_each(count, LONG, |mut ranks| {
        let rank = ranks.rank();
        for (round, size) in [2, 3, 6, 1].into_iter().enumerate() {
            let first = rank / size * size;
            let group = first..first + size;
            let own = group.clone().flat_map(|to| part(rank, to, round, 5)).collect();
            let ticket = ranks.begin_exchange("x", group.clone(), own).unwrap();
            let expected: Vec<u8> = group.flat_map(|from| part(from, rank, round, 5)).collect();
            assert_eq!(ranks.finish(ticket).unwrap(), expected);
        }
        let error = ranks.begin_exchange("x", 6..7, vec![0; 4]).unwrap_err();
        assert!(error.reason.contains("it isn't among ranks 6 to 7"), "{error}");
    });
}

#[test]
fn what_is_begun_in_one_order_may_be_finished_in_any() {
    let count = 3;
    on_each(count, LONG, |mut ranks| {
        let rank = ranks.rank();
        let begun: Vec<(usize, Ticket)> = (0..40)
            .map(|round| {
                (
                    round,
                    ranks
                        .begin_exchange("x", 0..count, parts(rank, count, round, 1 + round * 5))
                        .unwrap(),
                )
            })
            .collect();
        // Each rank in an order of its own.
        for at in 0..40 {
            let (round, ticket) = begun[at * [1, 3, 7][rank] % 40];
            let length = 1 + round * 5;
            let expected: Vec<u8> =
                (0..count).flat_map(|from| part(from, rank, round, length)).collect();
            assert_eq!(ranks.finish(ticket).unwrap(), expected);
            let again = ranks.finish(ticket).unwrap_err();
            assert_eq!((again.rank, again.what), (Some(rank), format!("transfer {round}")));
        }
    });
}

#[test]
fn long_parts_are_cut_into_messages() {
    let mut ranks = Threads::group(3, LONG);
    for rank in &mut ranks {
        rank.0.message = 200;
    }
    on_each_of(ranks, |mut ranks| {
        let rank = ranks.rank();
        for length in [199, 200, 201, 400, 2003_usize] {
            assert_eq!(ranks.0.pieces(&(0..3), |_| 0..length).len(), 2 * length.div_ceil(200));
            let ticket = ranks.begin_exchange("x", 0..3, parts(rank, 3, 0, length)).unwrap();
            let expected: Vec<u8> = (0..3).flat_map(|from| part(from, rank, 0, length)).collect();
            assert_eq!(ranks.finish(ticket).unwrap(), expected);
        }
    });
}

#[test]
fn parts_that_are_not_equally_long_are_refused() {
    let mut ranks = Threads::group(3, LONG);
    let error = ranks[1].begin_exchange("wte", 0..3, vec![0; 10]).unwrap_err();
    let said = "rank 1: 10 bytes can't be cut into 3 equal parts; this rank waited for wte";
    assert_eq!(error.to_string(), said);
}

#[test]
fn a_rank_that_begins_something_else_is_named_with_both() {
    type Begin = fn(&mut Threads) -> Result<Ticket, RanksError>;
    let cases: [(Begin, &str); 3] = [
        (
            |ranks| ranks.begin_exchange("b", 0..2, vec![0; 4]),
            "exchange 2 bytes of b as its transfer 0, where this rank began to exchange 2 bytes of a as its transfer 0",
        ),
        (|ranks| ranks.begin_gather("a", vec![0; 2]), "gather 2 bytes of a"),
        (|ranks| ranks.begin_exchange("a", 0..2, vec![0; 6]), "exchange 3 bytes of a"),
    ];
    for (begin, expected) in cases {
        let errors = on_each(2, LONG, |mut ranks| {
            let ticket = match ranks.rank() {
                0 => ranks.begin_exchange("a", 0..2, vec![0; 4]),
                _ => begin(&mut ranks),
            };
            ranks.finish(ticket.unwrap()).unwrap_err()
        });
        // One sees it first, and the other sees it too or is told.
        let all = format!("{errors:?}");
        assert!(all.contains(expected) || all.contains("exchange 2 bytes of a"), "{all}");
        assert!(errors[0].rank.is_some() && errors[1].rank.is_some(), "{all}");
    }
}

#[test]
fn a_rank_that_was_dropped_is_named_by_all_others() {
    let errors = on_each(4, LONG, |mut ranks| {
        if ranks.rank() == 2 {
            return None;
        }
        let ticket = ranks.begin_gather("wte", vec![1]).unwrap();
        Some(ranks.finish(ticket).unwrap_err())
    });
    for error in errors.into_iter().flatten() {
        assert_eq!((error.rank, error.what.as_str()), (Some(2), "wte"));
        assert_eq!(error.reason, "it has ended");
    }
}

#[test]
fn what_a_rank_sent_before_it_was_dropped_arrives() {
    on_each(3, LONG, |mut ranks| {
        let rank = ranks.rank();
        let ticket = ranks.begin_gather("wte", vec![rank as u8]).unwrap();
        if rank != 1 {
            // Rank 1 has ended by then.
            thread::sleep(SHORT);
        }
        assert_eq!(ranks.finish(ticket).unwrap(), [0, 1, 2]);
    });
}

#[test]
fn a_rank_that_does_not_answer_is_named_by_all_others() {
    let end = Barrier::new(4);
    let errors = on_each(4, SHORT, |mut ranks| {
        let ticket = ranks.begin_exchange("wte", 0..4, vec![1; 4]).unwrap();
        ranks.finish(ticket).unwrap();
        // Rank 3 has what it waits for from 2, and so waits for others: it must not be named.
        let error = (ranks.rank() != 2).then(|| {
            let ticket = ranks.begin_exchange("wpe", 0..4, vec![1; 4]).unwrap();
            ranks.finish(ticket).unwrap_err()
        });
        end.wait();
        error
    });
    for error in errors.into_iter().flatten() {
        assert_eq!((error.rank, error.what.as_str()), (Some(2), "wpe"));
        assert_eq!(error.reason, "no answer within 0.3 s");
    }
}

#[test]
fn ranks_that_wait_themselves_are_not_named() {
    let end = Barrier::new(3);
    let errors = on_each(3, SHORT, |mut ranks| {
        let rank = ranks.rank();
        // Rank 1 lacks what rank 2 sends in the first round; rank 0 lacks rank 1 in the second, and begins to wait first.
        let mut outcome = None;
        for round in 0..2 {
            if rank == 2 && round == 1 {
                break;
            }
            let ticket = ranks.begin_gather("x", vec![1; 1 + round]).unwrap();
            if rank == 1 && round == 0 {
                thread::sleep(SHORT / 2);
            }
            outcome = ranks.finish(ticket).err();
        }
        end.wait();
        outcome
    });
    assert_eq!(errors[2], None);
    for error in errors.into_iter().flatten() {
        assert_eq!(error.rank, Some(2), "{error}");
    }
}

#[test]
fn without_a_limit_ranks_wait() {
    on_each(2, Duration::ZERO, |mut ranks| {
        if ranks.rank() == 1 {
            thread::sleep(2 * ANSWER);
        }
        let ticket = ranks.begin_gather("wte", vec![1]).unwrap();
        assert_eq!(ranks.finish(ticket).unwrap(), [1, 1]);
    });
}

#[test]
fn a_slow_rank_is_waited_for_within_the_limit() {
    on_each(2, 3 * SHORT, |mut ranks| {
        for _ in 0..3 {
            if ranks.rank() == 1 {
                thread::sleep(SHORT);
            }
            let ticket = ranks.begin_gather("wte", vec![1]).unwrap();
            assert_eq!(ranks.finish(ticket).unwrap(), [1, 1]);
        }
    });
}

#[test]
fn all_others_name_the_reason_of_a_rank_that_fails() {
    let errors = on_each(4, LONG, |mut ranks| {
        if ranks.rank() == 3 {
            ranks.fail("no space is left on the disk");
            return None;
        }
        let ticket = ranks.begin_gather("wte", vec![1]).unwrap();
        Some(ranks.finish(ticket).unwrap_err().to_string())
    });
    let said = "rank 3: no space is left on the disk; this rank waited for wte";
    assert_eq!(errors[..3], vec![Some(said.to_owned()); 3]);
}

#[test]
fn a_rank_that_panics_or_ends_in_the_middle_says_so() {
    let errors = on_each(3, LONG, |mut ranks| match ranks.rank() {
        0 => {
            let ticket = ranks.begin_gather("wte", vec![1]).unwrap();
            let done = ranks.finish(ticket).and_then(|_| {
                let ticket = ranks.begin_gather("wpe", vec![1])?;
                ranks.finish(ticket)
            });
            Some(done.unwrap_err().reason)
        }
        1 => {
            let ticket = ranks.begin_gather("wte", vec![1]).unwrap();
            ranks.finish(ticket).unwrap();
            // Begun and not finished.
            ranks.begin_gather("wpe", vec![1]).unwrap();
            None
        }
        _ => {
            let ticket = ranks.begin_gather("wte", vec![1]).unwrap();
            ranks.finish(ticket).unwrap();
            let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
                let _ranks = ranks;
                std::panic::resume_unwind(Box::new("here"));
            }));
            assert!(unwound.is_err());
            None
        }
    });
    let reason = errors[0].as_deref().unwrap();
    assert!(["it panicked", "it has ended without wpe"].contains(&reason), "{reason}");
}

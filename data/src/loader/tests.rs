use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::*;
use crate::{Corpus, Tokenizer};

/// A corpus whose token at position i is i mod 251, so a window tells where it was cut.
fn tokens(len: usize) -> Tokens {
    let bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8 & 0x7f).collect();
    Corpus::from_bytes("counting", bytes, &Tokenizer::Byte).unwrap().tokens()
}

/// 32-bit ids 0, 1, 2, … through a shard file.
fn counting(len: usize) -> Tokens {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("count.bin");
    let mut words = vec![0i32; 256];
    words[..3].copy_from_slice(&[20240801, 1, len as i32]);
    words.extend(0..len as i32);
    std::fs::write(&path, words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>()).unwrap();
    Corpus::open(&[path], Corpus::TEXT_KEY, &Tokenizer::Byte).unwrap().tokens()
}

fn config(batch: usize, context: usize) -> LoaderConfig {
    LoaderConfig { batch, context, seed: 1337 }
}

#[test]
fn an_epoch_holds_each_window_once_and_targets_follow_inputs() {
    for (len, context) in [(1000, 8), (1001, 8), (17, 8), (16, 8), (9, 8), (2, 1), (3, 1), (97, 1)]
    {
        let mut loader = Loader::new(counting(len), config(1, context), 0).unwrap();
        let mut offsets = HashSet::new();
        for epoch in 0..5 {
            let mut starts = HashSet::new();
            for _ in 0..loader.epoch_len() {
                let batch = loader.next().unwrap();
                let first = batch.inputs[0] as usize;
                let expected: Vec<i32> = (first..=first + context).map(|i| i as i32).collect();
                assert_eq!(batch.inputs, expected[..context]);
                assert_eq!(batch.targets, expected[1..]);
                assert!(starts.insert(first), "window {first} twice in epoch {epoch} of {len}");
            }
            let offset = starts.iter().min().unwrap() % context;
            assert!(starts.iter().all(|start| start % context == offset));
            offsets.insert(offset);
        }
        if len >= 1000 {
            assert!(offsets.len() > 2, "epochs share their offsets: {offsets:?}");
        }
    }
}

#[test]
fn resuming_at_any_position_continues_bit_for_bit() {
    let data = counting(500);
    let mut whole = Loader::new(data.clone(), config(1, 16), 0).unwrap();
    let rows: Vec<Batch> = (0..120).map(|_| whole.next().unwrap()).collect();
    assert!(rows.len() as u64 > 3 * whole.epoch_len());
    for position in 0..100 {
        let mut resumed = Loader::new(data.clone(), config(4, 16), position).unwrap();
        let batch = resumed.next().unwrap();
        assert_eq!(batch.index, position);
        let rows = &rows[position as usize..position as usize + 4];
        assert_eq!(batch.inputs, rows.iter().flat_map(|b| b.inputs.clone()).collect::<Vec<_>>());
        assert_eq!(batch.targets, rows.iter().flat_map(|b| b.targets.clone()).collect::<Vec<_>>());
        assert_eq!(resumed.position(), position + 4);
    }
}

/// What a loader does where threads can't be started.
#[test]
fn without_a_thread_the_batches_are_the_same() {
    let mut ahead = Loader::new(counting(500), config(3, 16), 5).unwrap();
    let mut inline = Loader::new(counting(500), config(3, 16), 5).unwrap();
    let mut sampler = Sampler::new(counting(500), (config(3, 16), vec![]), 5).unwrap();
    inline.source = Producer::Inline(Box::new(move || sampler.next()));
    for _ in 0..50 {
        assert_eq!(ahead.next().unwrap(), inline.next().unwrap());
        assert_eq!(ahead.position(), inline.position());
    }
}

#[test]
fn seeds_and_epochs_have_orders_of_their_own() {
    let order = |seed, position| {
        let config = LoaderConfig { batch: 20, context: 4, seed };
        Loader::new(counting(404), config, position).unwrap().next().unwrap().inputs
    };
    assert_eq!(order(1, 0), order(1, 0));
    assert_ne!(order(1, 0), order(2, 0));
    assert_ne!(order(1, 0), order(1, 100));
    let mut sorted = order(1, 0);
    sorted.sort_unstable();
    assert_ne!(sorted, order(1, 0));
}

#[test]
fn a_far_position_costs_no_more_than_the_first() {
    const FAR: u64 = i64::MAX as u64;
    let started = Instant::now();
    let mut loader = Loader::new(tokens(10_000), config(2, 16), FAR).unwrap();
    assert_eq!(loader.next().unwrap().index, FAR);
    assert!(started.elapsed().as_secs() < 5);
    let beyond = Loader::new(tokens(10_000), config(2, 16), FAR + 1).err().unwrap();
    assert!(beyond.to_string().contains("data position"), "{beyond}");
}

#[test]
fn short_streams_and_zero_sizes_are_refused() {
    let error = |len, batch, context| {
        Loader::new(tokens(len), config(batch, context), 0).err().unwrap().to_string()
    };
    let short = error(8, 1, 8);
    assert!(short.contains("holds 8 tokens") && short.contains("needs 9"), "{short}");
    assert!(error(8, 0, 4).contains("train.batch is 0"));
    assert!(error(8, 1, 0).contains("model.context is 0"));
    assert!(error(8, usize::MAX, 4).contains("address space"));
    assert!(error(8, 1, usize::MAX).contains("holds 8 tokens"));
    assert!(Windows::new(tokens(2), 0, 4, None).is_err());
}

#[test]
fn a_file_that_shrinks_is_an_error_and_stops_the_loader() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text.txt");
    std::fs::write(&path, vec![b'a'; 100_000]).unwrap();
    let corpus = Corpus::open(&[&path], Corpus::TEXT_KEY, &Tokenizer::Byte).unwrap();
    let mut loader = Loader::new(corpus.tokens(), config(4, 64), 0).unwrap();
    loader.next().unwrap();
    // A page of a file that's gone while it's read ends the process, whoever maps it. Once the thread is ahead, it waits.
    thread::sleep(Duration::from_millis(500));
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(10).unwrap();
    let error = (0..2 * AHEAD).find_map(|_| loader.next().err()).unwrap();
    assert!(matches!(&error, Error::Shrank { expected: 100_000, found: 10, .. }), "{error}");
    assert!(matches!(loader.next(), Err(Error::LoaderStopped { .. })));
    assert!(matches!(loader.next(), Err(Error::LoaderStopped { .. })));
}

#[test]
fn dropping_ends_the_thread() {
    for consumed in 0..3 {
        let mut loader = Loader::new(tokens(10_000), config(2, 16), 0).unwrap();
        for _ in 0..consumed {
            loader.next().unwrap();
        }
        let Producer::Thread { thread, .. } = &loader.source else { panic!("no thread") };
        assert!(!thread.is_finished());
        drop(loader);
    }
}

#[test]
fn evaluation_scores_every_token_once() {
    for (len, batch, context) in [(2, 1, 1), (2, 4, 8), (100, 3, 7), (99, 2, 7), (65, 4, 16)] {
        let windows = Windows::new(counting(len), batch, context, None).unwrap();
        assert_eq!(windows.scored(), len - 1);
        let mut expected = 1;
        for result in windows {
            let Batch { inputs, targets, .. } = result.unwrap();
            assert_eq!((inputs.len(), targets.len()), (batch * context, batch * context));
            for (input, target) in inputs.into_iter().zip(targets) {
                if target == IGNORED {
                    assert_eq!(input, 0);
                    assert_eq!(expected, len as i32, "padding before the end");
                } else {
                    assert_eq!((input, target), (expected - 1, expected));
                    expected += 1;
                }
            }
        }
        assert_eq!(expected, len as i32);
    }
    let two = Windows::new(counting(100), 3, 7, Some(2)).unwrap();
    assert_eq!((two.len(), two.scored()), (2, 42));
    assert_eq!(two.map(|b| b.unwrap().index).collect::<Vec<_>>(), [0, 3]);
    assert!(Windows::new(counting(100).clone(), 1, 7, Some(0)).unwrap().next().is_none());
}

#[test]
fn a_process_reads_its_own_rows_of_a_batch_alone() {
    let data = counting(500);
    let mut whole = Loader::new(data.clone(), config(4, 16), 3).unwrap();
    let own = vec![false, true, true, false];
    let mut part = Loader::of_rows(data, config(4, 16), own.clone(), 3).unwrap();
    for _ in 0..20 {
        let (whole, part) = (whole.next().unwrap(), part.next().unwrap());
        assert_eq!(part.index, whole.index);
        for (found, all) in [(&part.inputs, &whole.inputs), (&part.targets, &whole.targets)] {
            for ((found, all), &own) in found.chunks(16).zip(all.chunks(16)).zip(&own) {
                assert_eq!(found, if own { all } else { &[0; 16] });
            }
        }
    }
}

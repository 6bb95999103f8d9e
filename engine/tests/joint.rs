//! Checkpoints of several ranks that hold shards: each writes its own, into files that are those of one process.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tightrope::core::{Ranks, RanksError, Ticket};
use tightrope::devices::Devices;
use tightrope::recipe::{Planned, Recipe};
use tightrope::run::Run;
use tightrope::settings::Settings;
use tightrope_ranks::Threads;

const STEPS: u64 = 6;
const SAVED_EVERY: u64 = 2;
/// What ranks say of where a checkpoint is.
const PLACE: &str = "where a checkpoint goes";

/// What befalls a rank.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Nothing,
    /// It sees another directory under the name.
    Unseeing,
    /// It ends where it would say this of the second checkpoint.
    Ends(&'static str),
}

/// A rank, with what befalls it.
struct Rank {
    inner: Threads,
    fault: Fault,
    /// Bytes that it has sent.
    sent: Arc<AtomicU64>,
    places: Vec<Ticket>,
    said: u64,
}

impl Ranks for Rank {
    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn count(&self) -> usize {
        self.inner.count()
    }

    fn begin_exchange(
        &mut self,
        what: &str,
        among: Range<usize>,
        parts: Vec<u8>,
    ) -> Result<Ticket, RanksError> {
        self.inner.begin_exchange(what, among, parts)
    }

    fn begin_gather(&mut self, what: &str, own: Vec<u8>) -> Result<Ticket, RanksError> {
        self.sent.fetch_add(own.len() as u64, Ordering::Relaxed);
        if self.fault == Fault::Ends(what.to_owned().leak()) {
            self.said += 1;
            // Lengths are told first, and then what they are of.
            if self.said > 2 {
                let reason = "it's lost here".to_owned();
                self.inner.fail(&reason);
                return Err(RanksError { rank: Some(self.rank()), what: what.to_owned(), reason });
            }
        }
        let ticket = self.inner.begin_gather(what, own)?;
        if what == PLACE && self.fault == Fault::Unseeing {
            self.places.push(ticket);
        }
        Ok(ticket)
    }

    fn finish(&mut self, ticket: Ticket) -> Result<Vec<u8>, RanksError> {
        let mut received = self.inner.finish(ticket)?;
        let key = b"\"token\":\"";
        let token = received.windows(key.len()).position(|bytes| bytes == key);
        if let Some(at) = token.filter(|_| self.places.contains(&ticket)) {
            received[at + key.len()] = b'x';
        }
        Ok(received)
    }
}

/// A run of `ranks` ranks in `dir`, from its last checkpoint on where it has one.
fn planned(dir: &Path, ranks: usize, words: &[String]) -> Planned {
    let mut said = Settings::default();
    let own = [
        "model.channels=128".to_owned(),
        "model.heads=4".to_owned(),
        "model.layers=1".to_owned(),
        "model.context=16".to_owned(),
        "train.batch=12".to_owned(),
        "train.micro_batch=1".to_owned(),
        format!("train.steps={STEPS}"),
        format!("run.save_every={SAVED_EVERY}"),
        "run.device=cpu".to_owned(),
        "run.threads=1".to_owned(),
        "memory.budget=1GiB".to_owned(),
        format!("run.ranks={ranks}"),
    ];
    let resumed = dir.join("run.toml").exists();
    let own = if resumed { &own[6..] } else { &own[..] };
    for words in own.iter().chain(words) {
        said.read_argument(words).unwrap();
    }
    if !resumed {
        said.read_argument(&format!("run.out={}", dir.display())).unwrap();
    }
    let recipe = match resumed {
        true => Recipe::resume(&said, Some(dir)).unwrap(),
        false => Recipe::new(&said).unwrap(),
    };
    let device = Devices::default().open(&recipe.step.device).unwrap();
    recipe.plan(device).unwrap()
}

/// What a rank ended with: its notes, or why it failed.
type Ended = Result<Vec<String>, String>;

fn said(error: &tightrope::Error) -> String {
    [error.message()].into_iter().chain(error.causes()).collect::<Vec<_>>().join(": ")
}

/// Trains as `ranks` ranks, and does `after` with the run of each after each step.
fn train_with(
    dir: &Path,
    ranks: usize,
    words: &[String],
    fault: impl Fn(usize) -> Fault + Sync,
    after: impl Fn(&mut Run<'_>, usize, &AtomicU64) -> tightrope::Result<()> + Sync,
) -> Vec<Ended> {
    let time_out = Duration::from_secs(60);
    let group: Vec<Option<Threads>> = match ranks {
        1 => vec![None],
        _ => Threads::group(ranks, time_out).into_iter().map(Some).collect(),
    };
    let begun = std::sync::Barrier::new(ranks);
    thread::scope(|scope| {
        let each = group.into_iter().enumerate().map(|(index, threads)| {
            let (fault, after, begun) = (&fault, &after, &begun);
            scope.spawn(move || {
                let mut planned = planned(dir, ranks, words);
                let sent = Arc::new(AtomicU64::new(0));
                planned.ranks = threads.map(|inner| {
                    let sent = Arc::clone(&sent);
                    let rank = Rank { inner, fault: fault(index), sent, places: vec![], said: 0 };
                    Box::new(rank) as Box<dyn Ranks>
                });
                // All have read the directory before one writes there.
                begun.wait();
                let mut devices = Devices::default();
                let started = planned.start(move |spec| devices.open(spec)).unwrap();
                let mut run = if index == 0 { started.begin().unwrap().0 } else { started.alone() };
                let mut notes = vec![];
                while let Some(stepped) = run.next() {
                    let stepped = stepped.map_err(|error| said(&error))?;
                    notes.extend(stepped.notes);
                    after(&mut run, index, &sent).map_err(|error| said(&error))?;
                }
                notes.extend(run.take_notes());
                Ok(notes)
            })
        });
        let each: Vec<_> = each.collect();
        each.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn train(
    dir: &Path,
    ranks: usize,
    words: &[String],
    fault: impl Fn(usize) -> Fault + Sync,
) -> Vec<Ended> {
    train_with(dir, ranks, words, fault, |_, _, _| Ok(()))
}

/// Names and contents of the files of a checkpoint.
fn checkpoint(dir: &Path, step: u64) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(dir.join(format!("checkpoints/step-{step}"))).unwrap().flatten();
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    files.map(|file| (name(&file.path()), fs::read(file.path()).unwrap())).collect()
}

/// What is in the folder of all checkpoints, but for the lock.
fn folders(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir.join("checkpoints")).unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name != ".lock").collect();
    names.sort();
    names
}

fn settings(preset: &str, precision: &str, shard: &str) -> Vec<String> {
    let named = [("model.preset", preset), ("run.precision", precision), ("memory.shard", shard)];
    named.iter().map(|(key, value)| format!("{key}={value}")).collect()
}

/// By fewer numbers of ranks than with `TIGHTROPE_DRAW=all`. Held to those that ranks send to the first one, which were there before, and tensors to those of one process, where it makes the same
/// steps.
#[test]
fn files_that_ranks_write_are_those_of_one_process() {
    let folder = tempfile::tempdir().unwrap();
    const ALL: &[usize] = &[2, 3, 4];
    let whole = std::env::var_os("TIGHTROPE_DRAW").is_some_and(|draw| draw == "all");
    for (preset, precision, counts) in [
        ("tiny", "f32", if whole { ALL } else { &[2, 4] }),
        ("tiny", "bf16", if whole { ALL } else { &[3] }),
        ("llama-tiny", "f32", &[3]),
        ("llama-tiny", "bf16", &[3]),
    ] {
        let alone = folder.path().join(format!("{preset}-{precision}"));
        let mut ordered = settings(preset, precision, "0");
        ordered.push("train.gradient_sums=ordered".to_owned());
        train(&alone, 1, &ordered, |_| Fault::Nothing);
        let alone = checkpoint(&alone, STEPS);
        for shard in ["1", "2", "3"] {
            for &ranks in counts {
                let what = format!("{preset}-{precision}-{shard}-{ranks}");
                let words = settings(preset, precision, shard);
                let [joint, sent] =
                    ["joint", "sent"].map(|way| folder.path().join(format!("{what}-{way}")));
                let ended = train(&joint, ranks, &words, |_| Fault::Nothing);
                let unseen = |note: &String| note.contains("can't open files");
                let notes = ended.iter().flat_map(|notes| notes.as_ref().unwrap());
                assert!(!notes.clone().any(unseen), "{what}: {ended:?}");
                let ended = train(&sent, ranks, &words, |rank| {
                    if rank == 1 { Fault::Unseeing } else { Fault::Nothing }
                });
                let notes = ended[0].as_ref().unwrap();
                let of = |note: &&String| {
                    note.contains("rank 1 can't open files") && note.contains("copy of")
                };
                assert_eq!(notes.iter().filter(of).count(), 1, "{what}: {notes:?}");
                for step in [STEPS - SAVED_EVERY, STEPS] {
                    let [joint, sent] = [&joint, &sent].map(|dir| checkpoint(dir, step));
                    assert_eq!(joint.keys().collect::<Vec<_>>(), sent.keys().collect::<Vec<_>>());
                    assert!(joint == sent && joint.len() >= 4, "{what}, step {step}");
                    // With shards of gradients, any number of ranks makes the same steps.
                    if step == STEPS && shard != "1" {
                        for file in ["model.safetensors", "optimizer.safetensors"] {
                            assert!(joint[file] == alone[file], "{what}: {file} of one process");
                        }
                    }
                }
                assert_eq!(folders(&joint), folders(&sent));
                [joint, sent].iter().for_each(|dir| fs::remove_dir_all(dir).unwrap());
            }
        }
    }
}

#[test]
fn ranks_go_on_with_what_others_wrote() {
    let folder = tempfile::tempdir().unwrap();
    let words = settings("tiny", "bf16", "3");
    let whole = folder.path().join("whole");
    train(&whole, 4, &words, |_| Fault::Nothing);
    let expected = checkpoint(&whole, STEPS);
    for (first, then) in [(4, 3), (3, 2), (2, 1), (1, 4)] {
        let dir = folder.path().join(format!("{first}-{then}"));
        // As several ranks sum.
        let of = |ranks: usize| {
            let alone = (ranks == 1).then(|| "train.gradient_sums=ordered".to_owned());
            alone.into_iter()
        };
        let begun: Vec<String> = words.iter().cloned().chain(of(first)).collect();
        train(&dir, first, &begun, |_| Fault::Nothing);
        fs::remove_dir_all(dir.join(format!("checkpoints/step-{STEPS}"))).unwrap();
        train(&dir, then, &of(then).collect::<Vec<_>>(), |_| Fault::Nothing);
        let found = checkpoint(&dir, STEPS);
        for file in ["model.safetensors", "optimizer.safetensors"] {
            assert!(found[file] == expected[file], "{first} and then {then}: {file}");
        }
    }
}

/// A run that was killed between a checkpoint and the evaluation after it. The first rank alone knows of that, by its file of metrics.
#[test]
fn ranks_make_an_evaluation_that_is_lacking_together() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    let held_out = format!("run.eval_every={SAVED_EVERY}");
    let words = [settings("tiny", "f32", "3"), vec![held_out]].concat();
    let evaluations = || {
        let text = fs::read_to_string(dir.join("metrics.jsonl")).unwrap();
        let of_held_out = |line: &&str| line.contains("heldout_loss");
        text.lines().filter(of_held_out).map(str::to_owned).collect::<Vec<_>>()
    };
    train(&dir, 2, &words, |_| Fault::Nothing);
    let whole = evaluations();
    assert_eq!(whole.len(), 2, "after steps 2 and 4: {whole:?}");
    for step in [4, 6] {
        fs::remove_dir_all(dir.join(format!("checkpoints/step-{step}"))).unwrap();
    }
    let text = fs::read_to_string(dir.join("metrics.jsonl")).unwrap();
    let before: Vec<&str> = text.lines().take_while(|line| !line.contains("heldout")).collect();
    fs::write(dir.join("metrics.jsonl"), before.join("\n") + "\n").unwrap();
    for ended in train(&dir, 2, &[], |_| Fault::Nothing) {
        ended.unwrap();
    }
    assert_eq!(evaluations(), whole);
}

/// Whatever a rank doesn't come to say, the one that is published is whole, and nothing else is left.
#[test]
fn a_rank_that_is_lost_leaves_the_last_checkpoint_whole_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let words = settings("tiny", "f32", "3");
    let whole = folder.path().join("whole");
    train(&whole, 3, &words, |_| Fault::Nothing);
    let expected = checkpoint(&whole, STEPS);
    let phases = [PLACE, "a copy of a checkpoint", "what was written", "what was read back"];
    for (index, phase) in phases.into_iter().enumerate() {
        let lost = 1 + index % 2;
        let dir: PathBuf = folder.path().join(index.to_string());
        let ended =
            train(
                &dir,
                3,
                &words,
                |rank| if rank == lost { Fault::Ends(phase) } else { Fault::Nothing },
            );
        for ended in &ended {
            let said = ended.as_ref().unwrap_err();
            assert!(
                said.contains(&format!("rank {lost}")) && said.contains("it's lost here"),
                "{phase}: {said}"
            );
        }
        assert_eq!(folders(&dir), [format!("step-{SAVED_EVERY}")], "{phase}");
        train(&dir, 2, &[], |_| Fault::Nothing);
        let found = checkpoint(&dir, STEPS);
        for file in ["model.safetensors", "optimizer.safetensors"] {
            assert!(found[file] == expected[file], "{phase}: {file}");
        }
    }
}

#[test]
fn numbers_of_one_rank_that_have_diverged_are_never_a_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    for shard in ["1", "3"] {
        let dir = folder.path().join(shard);
        let words = settings("tiny", "f32", shard);
        let none = |_| Fault::Nothing;
        let ended = train_with(&dir, 3, &words, none, |run, rank, _| {
            if run.done().steps != 3 {
                return Ok(());
            }
            let spoilt = run.with_trainer(async |trainer| {
                let mut values = trainer.state(0).await?;
                // The last is the last rank's.
                let last = values.len() - 1;
                values[last] = if rank == 2 { f32::NAN } else { values[last] };
                Ok(trainer.set_state(0, &values)?)
            });
            tightrope::block_on(spoilt)?;
            run.save()
        });
        for (rank, ended) in ended.into_iter().enumerate() {
            let said = ended.unwrap_err();
            assert!(said.contains("can't write the checkpoint of step 3: element "), "{said}");
            assert!(
                said.contains(" is NaN") && (rank == 2 || said.starts_with("rank 2: ")),
                "{said}"
            );
        }
        assert_eq!(folders(&dir), ["step-2"]);
    }
}

/// The first rank finds it, and all write into the directory that it makes instead.
#[test]
fn a_directory_that_is_moved_is_said_and_all_write_into_another() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    let words = settings("tiny", "f32", "3");
    let none = |_| Fault::Nothing;
    let ended = train_with(&dir, 3, &words, none, |run, rank, _| {
        if rank == 0 && run.done().steps == 3 {
            fs::rename(&dir, folder.path().join("moved")).unwrap();
        }
        Ok(())
    });
    let said = ended[0].as_ref().unwrap_err();
    assert!(said.contains("was moved or removed") && said.contains("run-rescued"), "{said}");
    assert!(ended[1..].iter().all(Result::is_err), "{ended:?}");
    let rescued = folder.path().join("run-rescued");
    // It's found at the next save, or by a checkpoint that was being written.
    let saved = folders(&rescued);
    let step = if saved == ["step-3"] { 3 } else { 4 };
    assert_eq!(saved, [format!("step-{step}")]);
    assert!(checkpoint(&rescued, step).len() >= 4);
}

/// What ranks send for a checkpoint is what they say of it, however large it is.
#[test]
fn ranks_send_no_tensor_for_a_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let sent = |name: &str, fault: &(dyn Fn(usize) -> Fault + Sync)| {
        let dir = folder.path().join(name);
        let sent = AtomicU64::new(0);
        let words = settings("tiny", "f32", "3");
        let ended = train_with(&dir, 4, &words, fault, |run, _, of_rank| {
            if run.done().steps == 3 {
                let before = of_rank.load(Ordering::Relaxed);
                run.save()?;
                sent.fetch_add(of_rank.load(Ordering::Relaxed) - before, Ordering::Relaxed);
            }
            Ok(())
        });
        ended.into_iter().for_each(|ended| drop(ended.unwrap()));
        sent.into_inner()
    };
    let jointly = sent("jointly", &|_| Fault::Nothing);
    let to_first =
        sent("to-first", &|rank| if rank == 1 { Fault::Unseeing } else { Fault::Nothing });
    let dir = folder.path().join("jointly");
    let bytes: usize = checkpoint(&dir, STEPS).values().map(Vec::len).sum();
    println!(
        "of a checkpoint of {bytes} bytes four ranks send {jointly}, and {to_first} to the first"
    );
    assert!(jointly < 64 << 10 && to_first > bytes as u64 / 2, "{jointly} {to_first} of {bytes}");
}

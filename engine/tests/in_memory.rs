//! Runs without files: their data is made, and their checkpoints are one archive in memory.

#![cfg(feature = "cpu")]

use tightrope::block_on;
use tightrope::data::{Checkpoint, Toy};
use tightrope::devices::{Devices, cpu};
use tightrope::error::Kind;
use tightrope::recipe::{Recipe, Task};
use tightrope::run::{Opening, Run};
use tightrope::settings::Settings;

fn said(words: &[&str]) -> Settings {
    const TINY: [&str; 9] = [
        "model.layers=1",
        "model.channels=16",
        "model.heads=2",
        "model.context=16",
        "model.dropout=0.1",
        "train.batch=4",
        "train.steps=4",
        "run.device=cpu",
        "run.threads=1",
    ];
    let mut settings = Settings::default();
    TINY.iter().chain(words).for_each(|words| settings.read_argument(words).unwrap());
    settings
}

fn run(said: &Settings, toy: Toy, checkpoint: Option<&[u8]>) -> tightrope::Result<Run<'static>> {
    let read = |bytes: &[u8]| Checkpoint::from_archive("run.tar", bytes.to_vec()).unwrap();
    let recipe = Recipe::on(said, Box::new(Task::new(toy, 0.1)), checkpoint.map(read))?;
    let device = Devices::default().open(&recipe.step.device)?;
    let reopen = Box::new(|| Box::pin(std::future::ready(cpu(1))) as Opening<'static>);
    Run::start(recipe.plan(device)?.parts(reopen)?)
}

/// Steps that are done after `count` more, and the loss of the last.
fn steps(run: &mut Run<'_>, count: u64) -> Option<(u64, f32)> {
    let stepped = block_on(run.steps_async(count)).unwrap()?;
    Some((stepped.step, stepped.loss))
}

#[test]
fn a_run_goes_on_from_an_archive_bit_for_bit_and_lets_go_of_it() {
    let said = said(&[]);
    let mut whole = run(&said, Toy::Add, None).unwrap();
    let losses: Vec<_> = (0..4).map(|_| steps(&mut whole, 1).unwrap()).collect();
    let mut first = run(&said, Toy::Add, None).unwrap();
    assert_eq!(steps(&mut first, 2), Some(losses[1]));
    let saved = block_on(first.archive_async()).unwrap();
    let mut second = run(&said, Toy::Add, Some(&saved)).unwrap();
    assert!(second.continues().is_some());
    block_on(second.release_checkpoint_async()).unwrap();
    assert!(second.continues().is_none() && second.copied_bytes() > 0);
    // No more than are left.
    assert_eq!(steps(&mut second, 100), Some(losses[3]));
    assert_eq!(steps(&mut second, 1), None);
    assert!(block_on(second.archive_async()).unwrap() == block_on(whole.archive_async()).unwrap());
    assert_eq!(second.evaluate(Some(64)).unwrap(), whole.evaluate(Some(64)).unwrap());
}

#[test]
fn an_archive_of_another_run_is_refused() {
    let mut first = run(&said(&[]), Toy::Add, None).unwrap();
    let saved = block_on(first.archive_async()).unwrap();
    for (words, toy, complaint) in [
        ("train.steps=9", Toy::Sort, "the task `add` when the run began, and is the task `sort`"),
        ("model.family=llama", Toy::Add, "`model.family` is llama, and the model"),
        ("model.channels=32", Toy::Add, "`model.channels` is 32"),
        ("train.seed=1", Toy::Add, "`train.seed` was 1337"),
    ] {
        let refusal = run(&said(&[words]), toy, Some(&saved)).err().unwrap();
        assert_eq!(refusal.kind(), Kind::Usage);
        assert!(refusal.message().contains(complaint), "{refusal}");
    }
    let vocab = run(&said(&["model.vocab=100"]), Toy::Add, None).err().unwrap();
    assert!(vocab.message().contains("the tokenizer has 256 tokens"), "{vocab}");
}

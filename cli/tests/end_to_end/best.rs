//! Runs that go by their held-out loss: the best checkpoint is kept, and a run that learns no more ends.

use super::*;

/// Words of a run that soon knows its noise by heart, and predicts what is held out worse and worse.
const NOISE: &str = "train --data noise.txt --layers 1 --channels 32 --heads 2 --context 16 --batch 4 --threads 1 --device cpu \
                     --steps 60 --lr 2e-2 --warmup 0 --eval-every 3 --save-every 7 --set data.holdout=0.2";

/// A folder with letters that follow no rule.
fn noise() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut state = 1u64;
    let text: String = (0..600)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            char::from(b'a' + ((state >> 33) % 26) as u8)
        })
        .collect();
    fs::write(dir.path().join("noise.txt"), text).unwrap();
    dir
}

/// Steps and losses of the evaluations of a run.
fn losses(run: &Path) -> Vec<(u64, f64)> {
    let number = |line: &Value, key: &str| line[key].as_f64().unwrap();
    let lines = metrics(run, "heldout_loss");
    let of = |line: &Value| (number(line, "step") as u64, number(line, "heldout_loss"));
    let losses: Vec<_> = lines.iter().map(of).collect();
    assert!(
        losses.windows(2).all(|pair| pair[0] != pair[1]),
        "an evaluation is there twice: {losses:?}"
    );
    losses
}

/// The first evaluation with the lowest loss.
fn lowest(losses: &[(u64, f64)]) -> (u64, f64) {
    losses
        .iter()
        .copied()
        .reduce(|best, other| if other.1 < best.1 { other } else { best })
        .unwrap()
}

/// The step at which transformers' EarlyStoppingCallback ends a run: it counts evaluations that aren't better than all before them.
fn stop(losses: &[(u64, f64)], patience: usize) -> Option<u64> {
    let (mut best, mut counter) = (f64::INFINITY, 0);
    losses.iter().find_map(|&(step, loss)| {
        counter = if loss < best { 0 } else { counter + 1 };
        best = best.min(loss);
        (counter >= patience).then_some(step)
    })
}

fn saved(run: &Path) -> Vec<u64> {
    let listed = tightrope::data::checkpoint::list(run).unwrap();
    listed.into_iter().map(|(step, _)| step).collect()
}

fn file(run: &Path, step: u64, name: &str) -> Vec<u8> {
    fs::read(run.join(format!("checkpoints/step-{step}/{name}"))).unwrap()
}

/// The best weights of a fine-tuning were gone with the third checkpoint after them.
#[test]
fn the_best_checkpoint_is_kept_and_named_and_the_rest_is_as_without_it() {
    let dir = noise();
    let [whole, a] = ["whole", "a"].map(|run| dir.path().join(run));
    ok(dir.path(), &format!("{NOISE} --out whole"));
    let expected = losses(&whole);
    let (step, loss) = lowest(&expected);
    assert!(step < 50, "the noise is learnt too slowly: {expected:?}");
    let output = ok(dir.path(), &format!("{NOISE} --keep 1 --keep-best --out a --json"));
    let best = json(&output)["best"].clone();
    assert_eq!((&best["step"], &best["heldout_loss"]), (&step.into(), &loss.into()));
    assert_eq!(best["checkpoint"], format!("a/checkpoints/step-{step}"));
    assert_eq!(saved(&a), [step, 60]);
    assert_eq!(saved(&whole), [56, 60]);
    assert_eq!(losses(&a), expected);
    assert!(file(&a, 60, "model.safetensors") == file(&whole, 60, "model.safetensors"));
    // Nothing is held out that an evaluation leaves out.
    let scored = json(&ok(dir.path(), "eval a --best --json"));
    assert_eq!(scored["loss"].as_f64().unwrap(), loss);
    let worse = json(&ok(dir.path(), "eval a --json"))["loss"].as_f64().unwrap();
    assert!(worse > loss, "{worse}");
    ok(dir.path(), "export a best --best");
    ok(dir.path(), &format!("export a/checkpoints/step-{step} named"));
    let [one, other] = ["best", "named"]
        .map(|model| fs::read(dir.path().join(model).join("model.safetensors")).unwrap());
    assert!(one == other);
    let texts = ["generate a --best", &format!("generate a/checkpoints/step-{step}")]
        .map(|words| stdout(&ok(dir.path(), &format!("{words} --prompt ab --max-tokens 9"))));
    assert_eq!(texts[0], texts[1]);
    // It's named where people look too, and stays when the run goes on.
    let output = ok(dir.path(), "train --resume a --steps 63 --keep 2");
    let told = format!(
        "the lowest held-out loss was {loss:.4}, of step {step}, which is kept as `a/checkpoints/step-{step}`"
    );
    assert!(stdout(&output).contains(&told), "{}", stdout(&output));
    assert_eq!(saved(&a), [step, 60, 63]);
    // No longer.
    ok(dir.path(), "train --resume a --steps 64 --keep-best=false");
    assert_eq!(saved(&a), [63, 64]);

    for (words, expected) in [
        ("generate whole --best", "`whole` keeps no checkpoint for its held-out loss"),
        ("eval best --best", "`best` is no run"),
        ("export whole out --best", "`whole` keeps no checkpoint for its held-out loss"),
    ] {
        let (code, message) = refused(dir.path(), words);
        assert!(code == 2 && message.contains(expected), "{words}: {message}");
    }
    let few = ok(dir.path(), &format!("{NOISE} --steps 2 --keep-best --out few"));
    assert!(stderr(&few).contains("a smaller --eval-every makes some"), "{}", stderr(&few));
    assert_eq!(saved(&dir.path().join("few")), [2]);
}

/// Regression: the checkpoint that a run resumes from was deleted for a worse one.
#[test]
fn a_run_that_is_to_keep_its_best_from_now_on_evaluates_where_it_is() {
    let dir = noise();
    ok(dir.path(), &format!("{NOISE} --keep 1 --out a"));
    let worse = ok(dir.path(), "train --resume a --steps 64 --keep-best --set train.lr=0.5 --json");
    let best = json(&worse)["best"].clone();
    assert_eq!(best["step"], 60, "{best}");
    assert_eq!(saved(&dir.path().join("a")), [60, 64]);
    let scored = json(&ok(dir.path(), "eval a --best --json"));
    assert_eq!(scored["loss"], best["heldout_loss"]);
}

#[test]
fn a_run_that_learns_no_more_ends_and_goes_on_when_asked() {
    let dir = noise();
    let [whole, a] = ["whole", "a"].map(|run| dir.path().join(run));
    ok(dir.path(), &format!("{NOISE} --out whole"));
    let expected = losses(&whole);
    let end = stop(&expected, 2).expect("an early end");
    let (step, loss) = lowest(&expected[..expected.iter().position(|it| it.0 == end).unwrap()]);
    let output = ok(dir.path(), &format!("{NOISE} --patience 2 --out a --json"));
    let object = json(&output);
    assert_eq!((&object["steps"], &object["stopped_early"]), (&end.into(), &true.into()));
    let told = format!(
        "stopped early after step {end} of 60: 2 evaluations in a row had no held-out loss below the {loss:.4} of step {step}"
    );
    assert!(stderr(&output).contains(&told), "{}", stderr(&output));
    assert_eq!(saved(&a).last(), Some(&end));
    let before = file(&a, end, "manifest.json");
    // It had stopped, and stays so.
    let output = ok(dir.path(), "train --resume a --json");
    assert_eq!(
        (&json(&output)["steps"], &json(&output)["stopped_early"]),
        (&end.into(), &true.into())
    );
    let told = format!("the run had {told}");
    assert!(stderr(&output).contains(&told), "{}", stderr(&output));
    assert!(stderr(&output).contains("train --resume a --patience 4"), "{}", stderr(&output));
    assert!(file(&a, end, "manifest.json") == before);
    // Until it's asked to go on.
    let object = json(&ok(dir.path(), "train --resume a --patience 0 --json"));
    assert_eq!((&object["steps"], &object["stopped_early"]), (&60.into(), &false.into()));
    assert!(file(&a, 60, "model.safetensors") == file(&whole, 60, "model.safetensors"));
    assert_eq!(losses(&a), expected);

    let never = ok(dir.path(), &format!("{NOISE} --patience 20 --out never --json"));
    assert_eq!(json(&never)["stopped_early"], false);
    assert!(
        stderr(&never).contains("can't end this run before its 60 steps"),
        "{}",
        stderr(&never)
    );
    for (words, expected) in [
        (
            "--patience 2 --eval-every 0",
            "`train.patience` goes by evaluations, and `run.eval_every` is 0",
        ),
        (
            "--keep-best --set data.holdout=0",
            "`run.keep_best` goes by the held-out loss, and nothing is held out",
        ),
        ("--keep 0", "`run.keep` must be"),
    ] {
        let (code, message) = refused(dir.path(), &format!("{NOISE} --out none {words}"));
        assert!(code == 2 && message.contains(expected), "{words}: {message}");
    }
    assert!(!dir.path().join("none").exists());
}

/// A run that is killed once `metrics.jsonl` has the evaluation of some step, and goes on.
#[test]
#[cfg(unix)]
fn kills_around_evaluations_lose_neither_the_best_checkpoint_nor_the_count() {
    let dir = noise();
    let whole = dir.path().join("whole");
    // Wide enough that a checkpoint takes a while to write.
    let words = format!("{NOISE} --channels 256 --keep 1 --keep-best --patience 3");
    ok(dir.path(), &format!("{words} --out whole"));
    let (expected, last) = (saved(&whole), *saved(&whole).last().unwrap());
    assert!(last < 60 && expected.len() == 2, "{expected:?}");
    let evaluated: Vec<u64> = losses(&whole).into_iter().map(|(step, _)| step).collect();
    for (number, at) in evaluated.iter().take_while(|step| **step < last).enumerate() {
        let name = format!("killed-{number}");
        let run = dir.path().join(&name);
        let mut child = command(dir.path(), &format!("{words} --quiet --out {name}"))
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let line = format!("{{\"step\":{at},\"heldout_loss\"");
        loop {
            let text = fs::read_to_string(run.join("metrics.jsonl")).unwrap_or_default();
            let over = child.try_wait().unwrap().is_some();
            if text.contains(&line) || over {
                break;
            }
        }
        // A few of them after the checkpoint has begun.
        std::thread::sleep(std::time::Duration::from_millis(2 * (number as u64 % 3)));
        let _ = child.kill();
        child.wait().unwrap();
        ok(dir.path(), &format!("train --resume {name}"));
        assert_eq!(saved(&run), expected, "killed after step {at}");
        for step in &expected {
            for name in ["manifest.json", "model.safetensors", "optimizer.safetensors"] {
                assert!(file(&run, *step, name) == file(&whole, *step, name), "{at}: {name}");
            }
        }
    }
}

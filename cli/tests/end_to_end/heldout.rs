//! Held-out samples and their loss, which follow from data, seed and settings, and not from the plan.

use std::fmt::Write as _;

use super::*;

/// Words of a run that changes no weight.
const STILL: &str = "--layers 1 --channels 16 --heads 2 --steps 2 --eval-every 1 --lr 1e-30 --min-lr 1e-30 --threads 1 --device cpu \
                     --set data.holdout=0.3 --save-every 0";

/// Files of each kind of data, and a vocabulary of word pieces.
fn folder() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let [mut text, mut chats, mut pairs, mut labels] = [(); 4].map(|()| String::new());
    for n in 0..60usize {
        let long = "and so on ".repeat(n % 7);
        let (fine, class) = (["good", "bad"][n % 2], ["praise", "blame"][n % 2]);
        writeln!(text, "{n} and {} make {} {long}", n + 1, 2 * n + 1).unwrap();
        writeln!(chats, r#"{{"prompt": "{n}? ", "completion": "{long}{n}"}}"#).unwrap();
        writeln!(pairs, r#"{{"prompt": "{n}? ", "chosen": "yes {long}", "rejected": "no {n}"}}"#)
            .unwrap();
        writeln!(labels, r#"{{"text": "a {fine} day {long}", "label": "{class}"}}"#).unwrap();
    }
    fs::create_dir(dir.path().join("wp")).unwrap();
    let vocab = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\ngood\nbad\nday\nand\nso\non\n".to_owned();
    for (name, text) in [
        ("text.txt", text),
        ("chats.jsonl", chats),
        ("pairs.jsonl", pairs),
        ("labels.jsonl", labels),
        ("wp/vocab.txt", vocab),
    ] {
        fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}

/// The lines of held-out figures in the metrics of a run in `dir`.
fn figures(dir: &TempDir, words: &str, out: &str) -> Vec<String> {
    ok(dir.path(), &format!("train {STILL} {words} --out {out}"));
    let lines = fs::read_to_string(dir.path().join(out).join("metrics.jsonl")).unwrap();
    let found: Vec<String> =
        lines.lines().filter(|line| line.contains("heldout_loss")).map(str::to_owned).collect();
    assert_eq!(found.len(), 2, "{lines}");
    found
}

/// The same bits with every micro-batch, with a budget that cuts batches, and with recomputation.
fn same_by_plan(dir: &TempDir, kind: &str, words: &str) {
    let whole = figures(dir, words, &format!("{kind}-whole"));
    for (index, plan) in [
        "--micro-batch 1",
        "--micro-batch 2",
        "--micro-batch 3",
        "--micro-batch 6 --recompute block",
    ]
    .into_iter()
    .enumerate()
    {
        let out = format!("{kind}-{index}");
        assert_eq!(figures(dir, &format!("{words} {plan}"), &out), whole, "{kind}: {plan}");
    }
}

#[test]
fn of_texts_are_the_same_whatever_the_plan_is() {
    let dir = folder();
    same_by_plan(&dir, "text", "--data text.txt --context 32 --batch 12");
    let masked =
        "--preset bert-tiny --tokenizer wp --data text.txt --format text --context 24 --batch 12";
    same_by_plan(&dir, "masked", masked);
}

#[test]
fn of_rows_are_the_same_whatever_the_plan_is() {
    let dir = folder();
    same_by_plan(&dir, "chats", "--data chats.jsonl --batch 12");
    same_by_plan(&dir, "packed", "--data chats.jsonl --packing --context 80 --batch 12");
    same_by_plan(&dir, "pairs", "--data pairs.jsonl --batch 12");
    let labels = "--preset bert-tiny --tokenizer wp --data labels.jsonl --context 32 --batch 12";
    same_by_plan(&dir, "labels", labels);
}

#[test]
fn of_images_are_the_same_whatever_the_plan_is() {
    same_by_plan(&folder(), "images", "--preset vit-tiny --data digits --batch 12");
}

#[test]
fn of_a_large_batch_are_the_same_within_any_budget() {
    let dir = folder();
    fs::write(dir.path().join("long.txt"), "a text of many lines\n".repeat(4000)).unwrap();
    let words = "--data long.txt --tokenizer byte --context 512 --batch 24";
    let whole = figures(&dir, &format!("{words} --memory 1GiB"), "whole");
    let mut cut = 0;
    for memory in ["20MiB", "12MiB", "8MiB"] {
        assert_eq!(figures(&dir, &format!("{words} --memory {memory}"), memory), whole, "{memory}");
        let settings = fs::read_to_string(dir.path().join(memory).join("run.toml")).unwrap();
        cut += usize::from(!settings.contains("micro_batch = 24"));
    }
    assert!(cut > 0, "no budget cut the batch");
    // Scored again from its files.
    let scored =
        |words: &str| json(&ok(dir.path(), &format!("eval whole --json {words}")))["loss"].clone();
    let loss = scored("");
    for words in ["--set train.micro_batch=1", "--set train.micro_batch=4", "--memory 8MiB"] {
        assert_eq!(scored(words), loss, "{words}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn of_several_ranks_are_the_same() {
    let dir = folder();
    let words = "--data text.txt --context 32 --batch 12";
    let alone = figures(&dir, words, "alone");
    for (count, more) in
        [(2, ""), (3, ""), (2, "--context-ranks 2"), (4, "--context-ranks 2 --micro-batch 3")]
    {
        let out = format!("of-{count}{}", more.len());
        let words = format!("train {STILL} {words} {more} --out {out}");
        for rank in ranks::ended(ranks::started(dir.path(), count, &words)) {
            assert!(rank.status.success(), "{count} {more}: {}", stderr(&rank));
        }
        let lines = fs::read_to_string(dir.path().join(out).join("metrics.jsonl")).unwrap();
        let found: Vec<&str> = lines.lines().filter(|line| line.contains("heldout_loss")).collect();
        assert_eq!(found, alone, "{count} {more}");
    }
}

//! The context of rows that have lengths of their own, where nobody names one.

use super::*;

/// Sizes of a model that takes a moment, and what it's trained with.
const SMALL: &str = "--layers 1 --channels 16 --heads 2 --threads 1 --device cpu";

/// A folder with `rows.jsonl`, whose longest row has 87 bytes and a token behind them, and `hf`, a model with 131,072 positions.
fn folder() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let answer = |n: usize| "abc".repeat(if n.is_multiple_of(9) { 28 } else { 3 });
    let row = |n| format!("{{\"prompt\": \"{n:02}?\", \"completion\": \"{}\"}}\n", answer(n));
    fs::write(dir.path().join("rows.jsonl"), (0..40).map(row).collect::<String>()).unwrap();
    fs::write(dir.path().join("text.txt"), "a text of some length. ".repeat(40)).unwrap();
    let llama = "--family llama --vocab 256 --tokenizer byte --context 16 --batch 2 --steps 1";
    ok(dir.path(), &format!("train {SMALL} {llama} --data text.txt --out seed"));
    ok(dir.path(), "export seed hf");
    let config = dir.path().join("hf/config.json");
    let mut sizes: Value = serde_json::from_slice(&fs::read(&config).unwrap()).unwrap();
    sizes["max_position_embeddings"] = 131_072.into();
    fs::write(config, sizes.to_string()).unwrap();
    dir
}

fn settings(dir: &TempDir, run: &str) -> String {
    fs::read_to_string(dir.path().join(run).join("run.toml")).unwrap()
}

#[test]
fn a_context_follows_the_rows_and_not_the_positions_of_the_model() {
    let dir = folder();
    let words = "--init hf --tokenizer byte --data rows.jsonl --batch 4 --threads 1 --device cpu";
    let trained = ok(dir.path(), &format!("train {words} --steps 2 --out a --json"));
    let notes = stderr(&trained);
    let shown = json(&ok(dir.path(), "data show rows.jsonl --init hf --tokenizer byte --json"));
    let longest = shown["lengths"]["p100"].as_u64().unwrap();
    let context = longest.next_multiple_of(8);
    let said = format!("the context is {context} tokens: the longest row has {longest}");
    assert!(notes.contains(&said), "{notes}");
    // Batches are of like length unless another layout is asked for.
    assert!(notes.contains("batches are of like length, padded to"), "{notes}");
    assert_eq!(shown["context"], context);
    assert_eq!(shown["truncated_rows"], 0);
    let record = settings(&dir, "a");
    assert!(record.contains(&format!("context = {context}\n")), "{record}");
    assert!(record.contains("buckets = \"auto\"\n"), "{record}");
    let planned = json(&ok(dir.path(), &format!("plan {words} --json")));
    let trained = json(&trained);
    assert_eq!(planned["peak_bytes"], trained["measured_peak_bytes"]);

    // A run keeps its own.
    ok(dir.path(), "train --resume a --steps 3");
    let resumed = settings(&dir, "a");
    assert!(resumed.contains(&format!("context = {context}\n")), "{resumed}");
    // A context that is given comes first; the model's positions bound one that isn't.
    ok(dir.path(), &format!("train {words} --steps 1 --context 32 --out named"));
    assert!(settings(&dir, "named").contains("context = 32\n"));
    let bounded =
        format!("train {SMALL} --preset tiny --data rows.jsonl --batch 4 --steps 1 --out bounded");
    let notes = stderr(&ok(dir.path(), &bounded));
    let tiny: u64 = 64;
    assert!(
        settings(&dir, "bounded").contains(&format!("context = {}\n", tiny.min(context))),
        "{notes}"
    );
    // A model is scored in the context of what scores it.
    ok(dir.path(), "eval hf --data rows.jsonl --tokenizer byte --threads 1 --device cpu");
}

#[test]
fn longer_rows_than_the_limit_are_cut_and_counted() {
    let dir = folder();
    let row =
        |n: usize| format!("{{\"prompt\": \"{n}?\", \"completion\": \"{}\"}}\n", "ab ".repeat(n));
    let rows: String = [900, 20, 30, 40].map(row).concat();
    fs::write(dir.path().join("long.jsonl"), rows).unwrap();
    let words = "--init hf --tokenizer byte --data long.jsonl --batch 1 --threads 1 --device cpu --set data.holdout=0";
    let notes = stderr(&ok(dir.path(), &format!("train {words} --steps 1 --out cut")));
    assert!(
        notes.contains(
            "the context is 2048 tokens, the most without --context: the longest row has"
        ),
        "{notes}"
    );
    assert!(notes.contains("1 row is cut to the context of 2048 tokens"), "{notes}");
    let shown = json(&ok(dir.path(), "data show long.jsonl --init hf --tokenizer byte --json"));
    assert_eq!((&shown["context"], &shown["truncated_rows"]), (&2048.into(), &1.into()));
}

#[test]
fn a_run_of_mostly_padding_says_what_leaves_less() {
    let dir = folder();
    let words =
        "--init hf --tokenizer byte --data rows.jsonl --batch 4 --threads 1 --device cpu --steps 1";
    let notes =
        stderr(&ok(dir.path(), &format!("train {words} --buckets 1 --context 1024 --out a")));
    for word in
        ["of the positions are padding", "--buckets auto leaves", "--packing leaves", "--context 8"]
    {
        assert!(notes.contains(word), "{word}: {notes}");
    }
}

#[test]
fn labelled_texts_take_the_context_of_the_longest() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("wp")).unwrap();
    fs::write(
        dir.path().join("wp/vocab.txt"),
        "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ngood\nbad\nday\n",
    )
    .unwrap();
    let row = |n: usize| {
        let word = ["good", "bad"][n % 2];
        format!(
            "{{\"text\": \"{} day\", \"label\": \"{word}\"}}\n",
            [word, " "].concat().repeat(1 + n % 9)
        )
    };
    fs::write(dir.path().join("rows.jsonl"), (0..40).map(row).collect::<String>()).unwrap();
    let words = format!("--preset bert-tiny {SMALL} --tokenizer wp --data rows.jsonl --batch 4");
    let trained = ok(dir.path(), &format!("train {words} --steps 2 --out a --json"));
    // Nine words, the last one, and the two tokens around them.
    let said = "the context is 16 tokens: the longest row has 12";
    assert!(stderr(&trained).contains(said), "{}", stderr(&trained));
    assert!(settings(&dir, "a").contains("context = 16\n"));
    let planned = json(&ok(dir.path(), &format!("plan {words} --json")));
    assert_eq!(planned["peak_bytes"], json(&trained)["measured_peak_bytes"]);
    ok(dir.path(), "train --resume a --steps 3");
}

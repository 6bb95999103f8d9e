//! The exact text of the messages about wrong settings.

use super::{Settings, SettingsError, find};

fn from_text(text: &str) -> Result<Settings, SettingsError> {
    let mut settings = Settings::default();
    settings.read_text("gpt.toml", text)?;
    settings.check().map(|()| settings)
}

fn from_set(arguments: &[&str]) -> Result<Settings, SettingsError> {
    let mut settings = Settings::default();
    arguments.iter().try_for_each(|argument| settings.read_argument(argument))?;
    settings.check().map(|()| settings)
}

fn from_flag(key: &str, value: &str) -> Result<Settings, SettingsError> {
    let mut settings = Settings::default();
    settings.read_flag(find(key).unwrap(), &[value.to_owned()])?;
    settings.check().map(|()| settings)
}

#[track_caller]
fn expect(result: Result<Settings, SettingsError>, expected: &str) {
    let error = result.unwrap_err();
    // The expected text begins on the line below its opening quote.
    assert_eq!(format!("\nerror: {error}\nhelp: {}\n", error.help), expected);
}

#[test]
fn unknown_key() {
    expect(
        from_text("[train]\nsteps = 10\nlrr = 3e-4\n"),
        r#"
error: unknown setting `train.lrr`
  --> gpt.toml:3:1
  |
3 | lrr = 3e-4
  | ^^^
help: did you mean `train.lr`? `train` takes batch, micro_batch, gradient_sums, steps, epochs, patience, optimizer, lr, min_lr, warmup, schedule, weight_decay, beta1, beta2, eps, clip, dpo_beta, teacher, teacher_temperature, soft_share, neftune, freeze, seed
"#,
    );
}

#[test]
fn keywords_are_flags_with_underscores() {
    let mut settings = Settings::default();
    for (keyword, value) in [
        ("micro_batch", 2.into()),
        ("memory", "4GiB".into()),
        ("data", "book.txt".into()),
        ("train.beta2", 0.99.into()),
    ] {
        settings.set_keyword(keyword, value).unwrap();
    }
    let text = settings.to_json(|_| true).unwrap();
    assert_eq!(text["train"]["micro_batch"], 2);
    assert_eq!(text["data"]["files"], serde_json::json!(["book.txt"]));
    let wrong = |keyword, value: serde_json::Value| {
        let error = Settings::default().set_keyword(keyword, value).unwrap_err();
        (error.message, error.help)
    };
    assert_eq!(
        wrong("micro_bath", 2.into()),
        ("unknown setting `micro_bath`".to_owned(), "did you mean `micro_batch`?".to_owned())
    );
    assert!(wrong("qqq", 2.into()).1.starts_with("each setting is named by its flag or its key"));
    assert!(wrong("batch", "many".into()).0.contains("must be"));
}

#[test]
fn key_with_a_name_from_elsewhere() {
    expect(
        from_text("[model]\nn_embd = 768\n"),
        r#"
error: unknown setting `model.n_embd`
  --> gpt.toml:2:1
  |
2 | n_embd = 768
  | ^^^^^^
help: did you mean `model.channels`? `model` takes preset, family, layers, channels, heads, kv_heads, hidden, context, vocab, tied, dropout, image_size, patch_size, image_channels, classes, add_tokens, mean_resizing, init
"#,
    );
}

#[test]
fn key_of_another_table() {
    expect(
        from_text("[train]\nprecision = \"bf16\"\n"),
        r#"
error: unknown setting `train.precision`
  --> gpt.toml:2:1
  |
2 | precision = "bf16"
  | ^^^^^^^^^
help: did you mean `run.precision`? `train` takes batch, micro_batch, gradient_sums, steps, epochs, patience, optimizer, lr, min_lr, warmup, schedule, weight_decay, beta1, beta2, eps, clip, dpo_beta, teacher, teacher_temperature, soft_share, neftune, freeze, seed
"#,
    );
}

#[test]
fn unknown_table() {
    expect(
        from_text("[trian]\nlr = 1\n"),
        r#"
error: unknown table `trian`
  --> gpt.toml:1:2
  |
1 | [trian]
  |  ^^^^^
help: did you mean `[train]`?
"#,
    );
}

#[test]
fn key_outside_a_table() {
    expect(
        from_text("lr = 3e-4\n"),
        r#"
error: setting `lr` outside of a table
  --> gpt.toml:1:1
  |
1 | lr = 3e-4
  | ^^
help: did you mean `lr` in `[train]`?
"#,
    );
}

#[test]
fn value_instead_of_a_table() {
    expect(
        from_text("train = 3\n"),
        r#"
error: `train` must be a table, not a value
  --> gpt.toml:1:9
  |
1 | train = 3
  |         ^
help: write `[train]` on a line of its own, and its keys below it
"#,
    );
}

#[test]
fn wrong_word() {
    expect(
        from_text("[train]\n\toptimizer = \"adam\"\n"),
        r#"
error: `train.optimizer` must be adamw, sgd, lion, muon or adafactor, not the text "adam"
  --> gpt.toml:2:14
  |
2 | 	optimizer = "adam"
  | 	            ^^^^^^
help: did you mean `adamw`?
"#,
    );
}

#[test]
fn wrong_type() {
    expect(
        from_text("[train]\nlr = \"fast\"\n"),
        r#"
error: `train.lr` must be a number, 0 or more, not the text "fast"
  --> gpt.toml:2:6
  |
2 | lr = "fast"
  |      ^^^^^^
help: train.lr: Peak learning rate [default: by the width; from init 2e-5, 1e-6 on preferences, 5e-5 for encoders; ten times as much for adapters]
"#,
    );
}

#[test]
fn out_of_range() {
    expect(
        from_text("[data]\nholdout = 1.5 # all of it\n"),
        r#"
error: `data.holdout` must be a number from 0 to 1, not 1.5
  --> gpt.toml:2:11
  |
2 | holdout = 1.5 # all of it
  |           ^^^
help: data.holdout: Part of the data kept for evaluation; `eval` scores all of it at 0 and at 1 [default: 0.1]
"#,
    );
}

#[test]
fn too_large() {
    expect(
        from_text("[train]\nsteps = 1e12\n"),
        r#"
error: `train.steps` must be at most 1000000000, not 1000000000000
  --> gpt.toml:2:9
  |
2 | steps = 1e12
  |         ^^^^
help: train.steps: Optimizer steps [default: 1850, or what epochs come to]
"#,
    );
}

#[test]
fn wrong_size() {
    expect(
        from_text("[memory]\nbudget = \"2 gigs\"\n"),
        r#"
error: `memory.budget` must be a size above 0, such as "2GiB", "1.5 GB", "512MiB" or a number of bytes, not the text "2 gigs"
  --> gpt.toml:2:10
  |
2 | budget = "2 gigs"
  |          ^^^^^^^^
help: memory.budget: Memory that the plan may use, such as 2GiB [default: what the device has free]
"#,
    );
}

#[test]
fn wrong_item() {
    expect(
        from_text("[data]\nfiles = [\"a\", 3]\n"),
        r#"
error: `data.files` must be a list, each item a path, not 3
  --> gpt.toml:2:9
  |
2 | files = ["a", 3]
  |         ^^^^^^^^
help: data.files: Files of text, JSON, Parquet or token ids, .gz and .zst too, folders or globs of them; - is standard input; or images: a folder, two IDX files or the word digits; none is the built-in data [default: none]
"#,
    );
}

#[test]
fn conflict() {
    expect(
        from_text("[model]\nchannels = 768\nheads = 10\n"),
        r#"
error: `model.heads` is 10, which doesn't divide the 768 of `model.channels`
  --> gpt.toml:3:9
  |
3 | heads = 10
  |         ^^
help: the nearest values that do: 8 and 12
"#,
    );
}

#[test]
fn not_toml() {
    expect(
        from_text("[train]\nlr = \n"),
        r#"
error: not TOML: string values must be quoted, expected literal string
  --> gpt.toml:2:6
  |
2 | lr =
  |     ^
help: tables are `[train]` and keys `lr = 3e-4`; text stands in "quotes"
"#,
    );
}

#[test]
fn twice() {
    expect(
        from_text("[train]\nlr = 1\nlr = 2\n"),
        r#"
error: not TOML: duplicate key
  --> gpt.toml:3:1
  |
3 | lr = 2
  | ^^
help: keep one of them
"#,
    );
}

#[test]
fn set_unknown_key() {
    expect(
        from_set(&["train.lrr=3e-4"]),
        r#"
error: unknown setting `train.lrr`
 --> command line
 |
 | --set train.lrr=3e-4
 |       ^^^^^^^^^
help: did you mean `train.lr`? `train` takes batch, micro_batch, gradient_sums, steps, epochs, patience, optimizer, lr, min_lr, warmup, schedule, weight_decay, beta1, beta2, eps, clip, dpo_beta, teacher, teacher_temperature, soft_share, neftune, freeze, seed
"#,
    );
}

#[test]
fn set_without_a_table() {
    expect(
        from_set(&["lr=3e-4"]),
        r#"
error: unknown setting `lr`
 --> command line
 |
 | --set lr=3e-4
 |       ^^
help: did you mean `train.lr`? the tables are model, train, lora, memory, data, run
"#,
    );
}

#[test]
fn set_with_a_wrong_table() {
    expect(
        from_set(&["optim.lr=3e-4"]),
        r#"
error: unknown setting `optim.lr`
 --> command line
 |
 | --set optim.lr=3e-4
 |       ^^^^^^^^
help: did you mean `train.lr`? the tables are model, train, lora, memory, data, run
"#,
    );
}

#[test]
fn set_without_a_value() {
    expect(
        from_set(&["train.lr"]),
        r#"
error: `--set` takes `table.key=value`
 --> command line
 |
 | --set train.lr
 |       ^^^^^^^^
help: for example `--set train.beta2=0.99`
"#,
    );
}

#[test]
fn set_not_toml() {
    expect(
        from_set(&["memory.recompute=[h.0]"]),
        r#"
error: not TOML: string values must be quoted, expected literal string
 --> command line
 |
 | --set memory.recompute=[h.0]
 |                         ^^^
help: values are TOML: 3e-4, true, "text", ["a", "b"]
"#,
    );
}

#[test]
fn set_conflict() {
    expect(
        from_set(&["train.steps=10", "train.warmup=20"]),
        r#"
error: `train.warmup` is 20, more than the 10 of `train.steps`
 --> command line
 |
 | --set train.warmup=20
 |                    ^^
help: give warmup at most 10, or more steps
"#,
    );
}

#[test]
fn flag_out_of_range() {
    expect(
        from_flag("model.heads", "-3"),
        r#"
error: `model.heads` must be a whole number, 1 or more, not -3
 --> command line
 |
 | --heads -3
 |         ^^
help: model.heads: Attention heads; divides channels [default: the preset's or that of init]
"#,
    );
}

#[test]
fn flag_wrong() {
    expect(
        from_flag("run.device", "gpu"),
        r#"
error: `run.device` must be "auto", "cpu", "wgpu", "cuda", or "wgpu:N" and "cuda:N", not the text "gpu"
 --> command line
 |
 | --device gpu
 |          ^^^
help: run.device: auto, cpu, wgpu, cuda, or wgpu:N and cuda:N [default: auto]
"#,
    );
}

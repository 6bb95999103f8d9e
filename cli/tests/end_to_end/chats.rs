//! Conversations from outside: shown, trained on, resumed, scored and answered; tokenizers and shards.

use super::*;

/// Sizes of a model that takes a moment, of sequences that hold the conversations below.
const SMALL: &str =
    "--layers 1 --channels 32 --heads 2 --context 96 --batch 4 --threads 1 --device cpu";
/// What a conversation takes as ChatML around what is said.
const ANSWER: usize = "<|im_end|>".len();

/// A folder with `chats.jsonl`, twenty conversations of a question and an answer of a letter.
fn chats() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let row = |n: u8| {
        let (question, answer) = (n % 10, char::from(b'a' + n % 10));
        format!(
            r#"{{"messages": [{{"role": "user", "content": "{question}?"}}, {{"role": "assistant", "content": "{answer}"}}]}}"#
        ) + "\n"
    };
    fs::write(dir.path().join("chats.jsonl"), (0..20).map(row).collect::<String>()).unwrap();
    dir
}

fn write(dir: &TempDir, file: &str, text: impl AsRef<[u8]>) {
    fs::write(dir.path().join(file), text).unwrap();
}

#[test]
fn assistants_turns_alone_are_trained_on_and_a_run_goes_on_bit_for_bit() {
    let dir = chats();
    let words = format!(
        "train --data chats.jsonl {SMALL} --chat-template chatml --steps 8 --set data.holdout=0.2 --set run.save_every=3"
    );
    let trained = ok(dir.path(), &format!("{words} --out a --json"));
    let notes = stderr(&trained);
    assert!(notes.contains("16 conversations to train on, 4 held out"), "{notes}");
    assert!(notes.contains("of the positions are padding"), "{notes}");
    let trained = json(&trained);
    // A letter and the end of its turn, of four rows.
    assert_eq!(trained["heldout_tokens"], 4 * (1 + ANSWER));
    assert_eq!(trained["predicted_peak_bytes"], trained["measured_peak_bytes"]);
    let scored = json(&ok(dir.path(), "eval a --json"));
    assert_eq!(scored["loss"], trained["heldout_loss"]);
    assert_eq!(scored["bits_per_byte"], Value::Null);

    // The template is in the checkpoint, and the file that it came from may go.
    let text = include_str!("../../../data/assets/templates/chatml.jinja");
    write(&dir, "own.jinja", text);
    let words = words.replace("chatml", "own.jinja");
    ok(dir.path(), &format!("{words} --out b"));
    fs::remove_file(dir.path().join("own.jinja")).unwrap();
    ok(dir.path(), "train --resume b/checkpoints/step-6 --data chats.jsonl --out c");
    for file in ["model.safetensors", "optimizer.safetensors"] {
        let [one, other, again] = ["a", "b", "c"].map(|run| {
            fs::read(dir.path().join(format!("{run}/checkpoints/step-8/{file}"))).unwrap()
        });
        assert!(one == other && one == again, "{file}");
    }
    for (more, what) in [
        ("--train-on all", "`data.train_on` was \"assistant\""),
        ("--chat-template zephyr", "the chat template was another one"),
        ("--format text", "it has no `text`"),
        ("--set data.holdout=0.3", "`data.holdout` was 0.2"),
    ] {
        let (_, message) = refused(dir.path(), &format!("train --resume b --steps 9 {more}"));
        assert!(message.contains(what), "{more}: {message}");
    }
    // A new run on the same weights is written by the template that it names.
    let other = "train --init a --data chats.jsonl --chat-template zephyr --batch 4 --steps 1 --device cpu --out e";
    ok(dir.path(), other);
    let kept = fs::read_to_string(dir.path().join("e/checkpoints/step-1/chat_template.jinja"));
    assert_eq!(kept.unwrap(), include_str!("../../../data/assets/templates/zephyr.jinja"));
    let other = json(&ok(dir.path(), "eval a --chat-template zephyr --json"));
    assert_ne!(other["loss"], trained["heldout_loss"]);
    // Every token is trained on where that is asked for.
    let words = words.replace("own.jinja", "chatml");
    let all = json(&ok(dir.path(), &format!("{words} --train-on all --out d --json")));
    let length = "<|im_start|>user\n1?<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n".len();
    assert_eq!(all["heldout_tokens"], 4 * (length - 1));
}

#[test]
fn packed_conversations_are_fewer_sequences_with_the_same_loss() {
    let dir = chats();
    let words = format!(
        "train --data chats.jsonl {} --chat-template chatml --packing --steps 8 --set data.holdout=0.4 --set run.save_every=3",
        SMALL.replace("--context 96", "--context 144")
    );
    let trained = ok(dir.path(), &format!("{words} --out a --json"));
    let notes = stderr(&trained);
    // Two rows of 63 positions each are in a sequence of 144.
    assert!(notes.contains("12 rows are packed into 6 sequences of 144 tokens"), "{notes}");
    assert!(notes.contains("12.5 % of the positions are padding"), "{notes}");
    let trained = json(&trained);
    assert_eq!(trained["predicted_peak_bytes"], trained["measured_peak_bytes"]);
    assert_eq!(trained["heldout_tokens"], 8 * (1 + ANSWER));
    let loss = |words: &str| json(&ok(dir.path(), words))["loss"].as_f64().unwrap();
    let packed = loss("eval a --json");
    assert_eq!(Some(packed), trained["heldout_loss"].as_f64());
    let apart = loss("eval a --packing=false --json");
    assert!((packed - apart).abs() < 1e-5, "{packed} packed, {apart} apart");
    ok(dir.path(), "generate a --chat 1? --max-tokens 3");

    ok(dir.path(), "train --resume a/checkpoints/step-6 --data chats.jsonl --out b");
    let [one, other] = ["a", "b"].map(|run| {
        fs::read(dir.path().join(format!("{run}/checkpoints/step-8/model.safetensors"))).unwrap()
    });
    assert!(one == other);
    let (_, message) = refused(dir.path(), "train --resume a --steps 9 --packing=false");
    assert!(message.contains("`data.packing` was true"), "{message}");
    write(&dir, "text.txt", "a text ".repeat(100));
    let words = format!("train {SMALL} --data text.txt --packing --steps 1 --out none");
    let (code, message) = refused(dir.path(), &words);
    assert!(code == 2 && message.contains("leave --packing out"), "{message}");
    let shown =
        json(&ok(dir.path(), "data show chats.jsonl --chat-template chatml --context 144 --json"));
    assert_eq!((&shown["padding"], &shown["padding_packed"]), (&0.5625.into(), &0.125.into()));
}

#[test]
fn a_model_answers_and_its_turn_ends() {
    let dir = chats();
    let row = r#"{"prompt": [{"role": "user", "content": "q"}], "completion": [{"role": "assistant", "content": "yes"}]}"#;
    write(&dir, "one.json", format!("[{row}, {row}]"));
    let words = "--chat-template chatml --steps 150 --lr 1e-2 --set data.holdout=0 --out m";
    ok(dir.path(), &format!("train --data one.json {SMALL} {words}"));
    let answer = "generate m --chat q --temperature 0 --max-tokens 40";
    assert_eq!(stdout(&ok(dir.path(), answer)), "yes\n");
    let object = json(&ok(dir.path(), &format!("{answer} --json")));
    assert_eq!((&object["text"], &object["prompt"]), (&"yes".into(), &"q".into()));
    // The template goes where the model goes.
    ok(dir.path(), "export m out");
    assert_eq!(stdout(&ok(dir.path(), &answer.replace(" m ", " out "))), "yes\n");
    fs::remove_file(dir.path().join("out/chat_template.jinja")).unwrap();
    let (code, message) = refused(dir.path(), "generate out --chat q");
    assert_eq!(code, 2, "{message}");
    assert!(
        message.contains("no chat template") && message.contains("--chat-template"),
        "{message}"
    );
    write(&dir, "broken.jinja", "{% for %}");
    let (_, message) = refused(dir.path(), "generate out --chat q --chat-template broken.jinja");
    assert!(
        message.contains("broken.jinja") && message.contains("isn't a Jinja template"),
        "{message}"
    );
    // A template that isn't spoken by isn't in the way, and naming one is refused.
    let unread = "generate out --prompt q --chat-template broken.jinja";
    let (code, message) = refused(dir.path(), unread);
    assert!(code == 2 && message.contains("doesn't read `data.chat_template`"), "{message}");
    ok(dir.path(), "generate out --prompt q --max-tokens 2");
}

/// Samples of a run on conversations were continuations of nothing, which no row begins as.
#[test]
fn samples_answer_questions_that_are_held_out() {
    let dir = chats();
    let row = |question: &str, answer: &str| {
        format!(
            r#"{{"messages": [{{"role": "user", "content": "{question}"}}, {{"role": "assistant", "content": "{answer}"}}]}}"#
        )
    };
    let rows = vec![row("q", "yes"); 5].join("\n");
    write(&dir, "same.jsonl", &rows);
    let words =
        format!("train {SMALL} --chat-template chatml --lr 1e-2 --steps 150 --sample-every 140");
    let output =
        ok(dir.path(), &format!("{words} --data same.jsonl --set data.holdout=0.4 --out a"));
    let answered = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\nyes";
    let expected = format!("{answered}\n\n{answered}");
    let sample = fs::read_to_string(dir.path().join("a/samples/step-140.txt")).unwrap();
    assert_eq!(sample, expected);
    assert!(stdout(&output).contains(&format!("sample:\n{expected}\n")), "{}", stdout(&output));
    // Of files of their own, and of several turns the first.
    let turns = r#"{"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"},
        {"role": "assistant", "content": "no"}, {"role": "user", "content": "r"}, {"role": "assistant", "content": "no"}]}"#;
    write(&dir, "turns.jsonl", turns.replace('\n', ""));
    let words = words.replace("--steps 150 --sample-every 140", "--steps 1 --context 160");
    ok(dir.path(), &format!("{words} --data same.jsonl --validation turns.jsonl --out b"));
    let sample = fs::read_to_string(dir.path().join("b/samples/step-1.txt")).unwrap();
    let asked =
        "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n";
    assert!(sample.starts_with(asked) && !sample.contains("\nr<"), "{sample}");
    // All tokens are trained on, so the loss mask marks no turn.
    let words =
        format!("{words} --train-on all --data same.jsonl --validation turns.jsonl --out c");
    ok(dir.path(), &words);
    let sample = fs::read_to_string(dir.path().join("c/samples/step-1.txt")).unwrap();
    assert!(sample.starts_with(asked), "{sample}");
}

#[test]
fn a_models_own_template_and_tokenizer_are_used() {
    let dir = chats();
    ok(dir.path(), "tokenizer train chats.jsonl --vocab 259 --out tok");
    ok(
        dir.path(),
        &format!(
            "train --data chats.jsonl --chat-template chatml --tokenizer tok {SMALL} --steps 1 --out a"
        ),
    );
    ok(dir.path(), "export a m");
    fs::remove_file(dir.path().join("m/chat_template.jinja")).unwrap();
    let words = format!(
        "train --init m --data chats.jsonl {} --steps 2",
        "--batch 4 --threads 1 --device cpu"
    );
    let (_, message) = refused(dir.path(), &format!("{words} --out none"));
    assert!(message.contains("no chat template"), "{message}");
    // The template of `--tokenizer` comes before the model's, which is taken for a tokenizer without one.
    fs::create_dir(dir.path().join("other")).unwrap();
    let copy = |from: &str, to: &str| {
        fs::copy(dir.path().join(from), dir.path().join(to)).unwrap();
    };
    copy("m/tokenizer.json", "other/tokenizer.json");
    write(
        &dir,
        "other/chat_template.jinja",
        "{% for m in messages %}[{{ m.content }}]{% endfor %}",
    );
    let shown = "data show chats.jsonl --init m --tokenizer other --rows 1 --train-on all";
    let text = stdout(&ok(dir.path(), shown));
    assert!(text.contains("[⟦0?][a]⟧"), "{text}");
    fs::remove_file(dir.path().join("other/chat_template.jinja")).unwrap();
    copy("a/checkpoints/step-1/chat_template.jinja", "m/chat_template.jinja");
    let text = stdout(&ok(dir.path(), shown));
    assert!(text.contains("|im_start|>user"), "{text}");
    fs::remove_file(dir.path().join("m/chat_template.jinja")).unwrap();
    let (code, message) = refused(dir.path(), "export m again --tokenizer other");
    assert!(code == 2 && message.contains("`m` has a tokenizer, which is copied"), "{message}");
    let file = dir.path().join("m/tokenizer_config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    // A template whose prefixes tell the turns, and that asks for the day.
    config["chat_template"] = "{{ strftime_now('%Y') }}{% for m in messages %}{{ m.role ~ ':' ~ m.content ~ eos_token }}{% endfor %}\
        {% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
        .into();
    fs::write(&file, config.to_string()).unwrap();
    let shown = "data show chats.jsonl --init m --rows 1 --set data.date=1999-12-31";
    let text = stdout(&ok(dir.path(), shown));
    assert!(text.contains("1999user:0?<|endoftext|>assistant:⟦a<|endoftext|>⟧"), "{text}");
    ok(dir.path(), &format!("{words} --out b --set data.date=1999-12-31"));
    let settings = fs::read_to_string(dir.path().join("b/run.toml")).unwrap();
    for line in ["format = \"messages\"", "date = \"1999-12-31\""] {
        assert!(settings.contains(line), "{settings}");
    }
    // The day that the run began stays its day.
    ok(dir.path(), "train --resume b --steps 3");
    ok(dir.path(), &format!("{words} --out c"));
    let settings = fs::read_to_string(dir.path().join("c/run.toml")).unwrap();
    assert!(settings.contains("date = \"20"), "{settings}");
    ok(dir.path(), "generate b --chat 1? --max-tokens 3");
    ok(dir.path(), "eval b");
}

#[test]
fn rows_are_shown_as_they_are_trained_on() {
    let dir = chats();
    let shown = stdout(&ok(dir.path(), "data show chats.jsonl --chat-template chatml --rows 2"));
    assert!(shown.contains("20 rows, as messages"), "{shown}");
    assert!(shown.contains("<|im_start|>assistant\n⟦a<|im_end|>⟧\n"), "{shown}");
    assert!(shown.contains("row 2: ") && !shown.contains("row 3: "), "{shown}");
    let cut = "data show chats.jsonl --chat-template chatml --context 52 --json";
    let object = json(&ok(dir.path(), cut));
    assert_eq!((&object["truncated_rows"], &object["dropped_rows"]), (&20.into(), &0.into()));
    assert_eq!(object["trained_tokens"], 20);
    assert_eq!(object["lengths"]["p50"], 64);
    let words = "data show chats.jsonl --chat-template chatml --rows 1 --html page.html";
    ok(dir.path(), words);
    let page = fs::read_to_string(dir.path().join("page.html")).unwrap();
    assert!(page.contains("<mark>a&lt;|im_end|&gt;</mark>"), "{page}");
    assert!(!page.contains("http"), "{page}");
    let row =
        |prompt: &str, rest: &str| format!(r#"{{"prompt": "{prompt}", "completion": "{rest}"}}"#);
    write(&dir, "merged.jsonl", [row("Hello ", "world"), row("Hello", " world")].join("\n"));
    let shown = stdout(&ok(dir.path(), "data show merged.jsonl --tokenizer gpt2"));
    let merged = "merged     the prompt of 1 row ends in other tokens";
    assert!(shown.contains(merged) && shown.contains("Hello⟦ world<|endoftext|>⟧"), "{shown}");
    let object = json(&ok(dir.path(), "data show merged.jsonl --tokenizer gpt2 --json"));
    assert_eq!(object["merged_rows"], 1);
}

#[test]
fn rows_that_do_not_fit_are_cut_left_out_and_told() {
    let dir = chats();
    let long = r#"{"prompt": "PROMPT", "completion": "ab"}"#;
    let rows = [4, 94, 95, 96, 97, 200].map(|n| long.replace("PROMPT", &"x".repeat(n)));
    write(&dir, "long.jsonl", rows.join("\n"));
    let words = format!("train --data long.jsonl {SMALL} --steps 2 --set data.holdout=0 --out a");
    let notes = stderr(&ok(dir.path(), &words));
    // Sequences of 96 tokens read 97: `ab` and the end of the text are the last three.
    assert!(notes.contains("2 rows are cut to the context of 96 tokens"), "{notes}");
    assert!(notes.contains("2 rows are left out"), "{notes}");
    let (_, message) = refused(dir.path(), &words.replace("96", "3").replace("--out a", "--out b"));
    assert!(message.contains("give a longer --context"), "{message}");
}

#[test]
fn what_can_not_be_trained_on_is_refused() {
    let dir = chats();
    write(&dir, "unknown.jsonl", r#"{"messages": [{"role": "usr", "content": "q"}]}"#);
    write(&dir, "empty.jsonl", "{\"messages\": []}\n");
    write(
        &dir,
        "number.jsonl",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"a\"}]}\n3\n",
    );
    write(&dir, "nested.jsonl", r#"{"messages": {"role": "user"}}"#);
    write(&dir, "question.jsonl", r#"{"messages": [{"role": "user", "content": "q"}]}"#);
    write(&dir, "both.json", r#"[{"instruction": "i", "output": "o", "text": "t"}]"#);
    write(
        &dir,
        "single.json",
        r#"[{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]"#,
    );
    let mut bytes = fs::read(dir.path().join("chats.jsonl")).unwrap();
    let at = bytes.iter().rposition(|&byte| byte == b'?').unwrap();
    bytes[at] = 0xff;
    write(&dir, "utf8.jsonl", bytes);
    write(&dir, "broken.jinja", "{% if %}");
    write(&dir, "raises.jinja", "{{ raise_exception('not for you') }}");
    write(
        &dir,
        "changing.jinja",
        "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}",
    );
    let chatml = "--chat-template chatml";
    for (words, expected) in [
        (
            format!("--data unknown.jsonl {chatml}"),
            "unknown.jsonl, row 1: message 1: its role is \"usr\"",
        ),
        (format!("--data empty.jsonl {chatml}"), "empty.jsonl, row 1: `messages` is empty"),
        (
            format!("--data number.jsonl --format messages {chatml}"),
            "number.jsonl, row 2: it is a number",
        ),
        (format!("--data nested.jsonl {chatml}"), "nested.jsonl, row 1: `messages` is an object"),
        (
            format!("--data question.jsonl {chatml}"),
            "question.jsonl, row 1: it has no assistant turn",
        ),
        (format!("--data both.json {chatml}"), "say which with --format alpaca or --format text"),
        (format!("--data single.json {chatml}"), "each of its rows is a single message"),
        (format!("--data utf8.jsonl {chatml}"), "utf8.jsonl, row 20: line 20 isn't UTF-8"),
        ("--data chats.jsonl".to_owned(), "chats.jsonl, row 1: the model has no chat template"),
        (
            "--data chats.jsonl --chat-template chatmul".to_owned(),
            "neither a file nor one of the built-in",
        ),
        ("--data chats.jsonl --chat-template broken.jinja".to_owned(), "it isn't a Jinja template"),
        (
            "--data chats.jsonl --chat-template raises.jinja".to_owned(),
            "chats.jsonl, row 1: the chat template refuses it: not for you",
        ),
        (
            "--data chats.jsonl --chat-template changing.jinja".to_owned(),
            "chats.jsonl, row 1: the chat template writes the first 2 messages otherwise",
        ),
        (
            format!("--data chats.jsonl --format sharegpt {chatml}"),
            "chats.jsonl, row 1: it has no `conversations`",
        ),
        (format!("--data chats.jsonl {chatml} --set data.date=soon"), "a date such as 2026-11-25"),
        (format!("--data - --format messages {chatml}"), "read from files alone"),
    ] {
        let (_, message) =
            refused(dir.path(), &format!("train {SMALL} --steps 1 --out run {words}"));
        assert!(message.contains(expected), "{words}: {message}");
        assert!(!dir.path().join("run").exists(), "`{words}` left a run");
    }
    let output = run(dir.path(), "train --data chats.jsonl --train-on asistant");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("assistant, last, all"), "{}", stderr(&output));
    let (_, message) = refused(dir.path(), "data show text.txt");
    assert!(message.contains("text.txt"), "{message}");
    // As text, where that is meant.
    let words = format!(
        "train {SMALL} --steps 1 --out text --data both.json --format text --set data.holdout=0 --context 1"
    );
    ok(dir.path(), &words.replace("--context 96", ""));
}

#[test]
fn a_tokenizer_is_learnt_and_what_it_encodes_is_trained_on() {
    let dir = folder();
    let learnt = json(&ok(dir.path(), "tokenizer train text.txt --vocab 300 --out tok --json"));
    assert_eq!(learnt["vocab"], 300);
    let encoded =
        json(&ok(dir.path(), "data tokenize text.txt --tokenizer tok --out shards --json"));
    assert_eq!(
        (&encoded["vocab"], &encoded["files"][0]),
        (&300.into(), &"shards/tokens-00000.bin".into())
    );
    let sizes = "--layers 1 --channels 16 --heads 2 --context 16 --batch 4 --steps 3 --threads 1";
    let loss = |words: &str| {
        json(&ok(dir.path(), &format!("train {sizes} {words} --json")))["last_loss"].clone()
    };
    let of_text = loss("--data text.txt --tokenizer tok --out a");
    assert_eq!(of_text, loss("--data shards --vocab 300 --out b"));
    // Conversations are texts to learn from as well.
    let chats = chats();
    ok(chats.path(), "tokenizer train chats.jsonl --vocab 260 --out tok");
    for (words, expected) in [
        ("tokenizer train text.txt --vocab 256 --out x", "--vocab is 256"),
        ("tokenizer train text.txt --vocab 300 --out tok", "it's there already"),
        ("tokenizer train none.txt --vocab 300 --out x", "none.txt"),
        ("data tokenize text.txt --out x", "no tokenizer is named"),
        ("data tokenize text.txt --tokenizer tok --out shards", "isn't empty"),
    ] {
        let (_, message) = refused(dir.path(), words);
        assert!(message.contains(expected), "`{words}`: {message}");
    }
    let (_, message) = refused(chats.path(), "data tokenize chats.jsonl --tokenizer tok --out x");
    assert!(message.contains("don't say which of them are trained on"), "{message}");
}

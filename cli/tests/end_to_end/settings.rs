//! A command reads its settings and flags, or refuses them by name.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::json as object;

use super::{TINY, command, folder, json, ok, refused, stderr, stdout};

/// A command in `dir` with words that may have spaces, and a text on standard input.
fn asked(dir: &Path, words: &str, texts: &[&str], input: &str) -> Output {
    let mut command = command(dir, words);
    command.args(texts).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // One that is refused before it reads has closed the pipe.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

/// A folder with a run `a` that was trained on conversations of bytes.
fn chats() -> tempfile::TempDir {
    let dir = folder();
    let row = object!({ "messages": [
        { "role": "user", "content": "1?" }, { "role": "assistant", "content": "a" },
    ] });
    fs::write(dir.path().join("chats.jsonl"), format!("{row}\n").repeat(20)).unwrap();
    let words = TINY.replace("--context 16", "--context 96");
    ok(
        dir.path(),
        &format!(
            "train --data chats.jsonl --chat-template chatml --tokenizer byte {words} --steps 2 --out a"
        ),
    );
    dir
}

#[test]
fn settings_that_a_command_does_not_read_are_refused_by_name() {
    let dir = folder();
    for (words, expected) in [
        ("export a b --set memory.weight_bits=4", "`export` doesn't read `memory.weight_bits`"),
        ("export a b --set train.lr=1", "`export` doesn't read `train.lr`"),
        ("generate a --set train.lr=1", "`generate --prompt` doesn't read `train.lr`"),
        (
            "generate a --chat-template chatml",
            "`generate --prompt` doesn't read `data.chat_template`",
        ),
        ("eval a --texts text.txt --data text.txt", "`eval --texts` doesn't read `data.files`"),
        (
            "eval a --choices q.jsonl --set data.holdout=0",
            "`eval --choices` doesn't read `data.holdout`",
        ),
        ("eval a --predict text.txt --batch 2", "`eval --predict` doesn't read `train.batch`"),
        ("data show text.txt --set train.lr=1", "`data show` doesn't read `train.lr`"),
        (
            "data tokenize text.txt --out t --set run.threads=1",
            "`data tokenize` doesn't read `run.threads`",
        ),
        ("plan --set run.out=b", "`plan` doesn't read `run.out`"),
    ] {
        let (code, message) = refused(dir.path(), words);
        assert_eq!(code, 2, "{words}: {message}");
        assert!(
            message.contains(expected) && message.contains("leave it out"),
            "{words}: {message}"
        );
    }
    let noted = stderr(&ok(dir.path(), "plan --preset tiny --lr 0.1 --steps 7 --memory 1GiB"));
    let note = "note: `train.steps` and `train.lr`: no byte and no second of a step depends on it";
    assert!(noted.contains(note), "{noted}");
}

/// `--chat '[{"role": …}]'` was answered as a text of brackets, and `-` as a dash.
#[test]
fn a_conversation_in_json_is_one_and_a_dash_is_standard_input() {
    let dir = chats();
    let words = "generate a --max-tokens 4 --temperature 0 --json";
    let text = |texts: &[&str], input: &str| {
        let output = asked(dir.path(), words, texts, input);
        assert!(output.status.success(), "{texts:?}: {}", stderr(&output));
        json(&output)["text"].clone()
    };
    let plain = text(&["--chat", "1?"], "");
    let messages = r#"[{"role": "user", "content": "1?"}]"#;
    for said in [
        messages.to_owned(),
        format!(r#"{{"messages": {messages}}}"#),
        r#" [ {"from": "human", "value": "1?"}]"#.to_owned(),
    ] {
        assert_eq!(text(&["--chat", &said], ""), plain, "{said}");
        assert_eq!(text(&["--chat", "-"], &format!("{said}\n")), plain, "{said}");
    }
    assert_eq!(text(&["--chat", "-"], "1?\n"), plain);
    assert_eq!(text(&["--prompt", "-"], "To be\n"), text(&["--prompt", "To be"], ""));
    // A text may begin with a bracket.
    text(&["--chat", "[1, 2] or [{}]?"], "");
    for (said, expected) in [
        (r#"[{"role": "user", "content": "1?"}"#, "isn't JSON"),
        (r#"[{'role': 'user', 'content': '1?'}]"#, "isn't JSON"),
        (r#"[{"role": "user"}]"#, "message 1: it has no `content`"),
        (r#"[{"role": "usr", "content": "1?"}]"#, "its role is \"usr\""),
        (
            r#"[{"role": "user", "content": "1?"}, {"role": "assistant", "content": "a"}]"#,
            "nothing to answer",
        ),
    ] {
        let output = asked(dir.path(), words, &["--chat", said], "");
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}: {message}");
        assert!(message.contains(expected) && message.contains("help: "), "{said}: {message}");
    }
    let empty = asked(dir.path(), words, &["--prompt", "-"], "");
    assert!(stderr(&empty).contains("the prompt is empty"), "{}", stderr(&empty));
}

/// `data show` named the model's template above rows of plain texts.
#[test]
fn a_template_is_shown_where_it_writes_rows() {
    let dir = chats();
    ok(dir.path(), "export a m");
    let plain = r#"{"prompt": "1 + 1 = ", "completion": "2"}"#;
    fs::write(dir.path().join("plain.jsonl"), plain).unwrap();
    let template = |words: &str| {
        let words = format!("data show {words} --init m");
        let shown = json(&ok(dir.path(), &format!("{words} --json")));
        let text = stdout(&ok(dir.path(), &words));
        let line = text.lines().find(|line| line.starts_with("template ")).unwrap().to_owned();
        (shown["chat_template"].clone(), shown["templated_rows"].clone(), line)
    };
    let (name, count, line) = template("plain.jsonl");
    assert!(name.is_null() && count == 0 && line.contains("none: "), "{name} {line}");
    let (name, count, line) = template("plain.jsonl --chat-template chatml");
    assert!(name == "chatml" && count == 1 && line.ends_with(" chatml"), "{name} {line}");
    let (name, count, _) = template("chats.jsonl");
    assert!(!name.is_null() && count == 20, "{name} {count}");
}

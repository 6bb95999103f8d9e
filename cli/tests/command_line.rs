//! The binary from outside: exit codes, and what goes to stdout and stderr.

use std::process::{Command, Output};

fn tightrope(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tightrope")).args(words).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn help_and_version_are_results() {
    for words in [["--help"], ["--version"]] {
        let output = tightrope(&words);
        assert_eq!(output.status.code(), Some(0));
        assert!(text(&output.stdout).contains("tightrope"));
        assert!(output.stderr.is_empty());
    }
}

#[test]
fn the_version_has_its_commit_and_its_backends() {
    let output = tightrope(&["--version"]);
    let version = text(&output.stdout);
    assert!(version.contains(" (commit ") || version.contains(" (no commit"), "{version}");
    assert!(version.contains("; cpu, wgpu, cuda)"), "{version}");
}

#[test]
fn each_command_has_a_manual_page() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("man1");
    assert_eq!(tightrope(&["man", folder.to_str().unwrap()]).status.code(), Some(0));
    for (page, words) in [("tightrope.1", "train"), ("tightrope-train.1", "optimizer")] {
        let page = std::fs::read_to_string(folder.join(page)).unwrap();
        assert!(page.starts_with(".ie") && page.contains(words), "{page}");
    }
}

#[test]
fn flags_of_other_commands_are_refused() {
    for words in [["generate", "--lr", "1"], ["eval", "--optimizer", "sgd"]] {
        let output = tightrope(&words);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains("unexpected argument"), "{words:?}");
    }
}

#[test]
fn a_wrong_setting_is_wrong_usage() {
    let output = tightrope(&["train", "--set", "train.lrr=1"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    let message = text(&output.stderr);
    assert!(message.starts_with("error: unknown setting `train.lrr`\n"), "{message}");
    assert!(message.contains("help: did you mean `train.lr`?"), "{message}");
}

#[test]
fn json_errors_name_file_line_and_column() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gpt.toml");
    std::fs::write(&path, "[train]\nlr = -1\n").unwrap();
    let path = path.to_str().unwrap();
    let output = tightrope(&["plan", "--json", "--config", path]);
    assert_eq!(output.status.code(), Some(2));
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(object["error"], "`train.lr` must be a number, 0 or more, not -1.0");
    assert_eq!(object["file"], path);
    assert_eq!((object["line"].as_u64(), object["column"].as_u64()), (Some(2), Some(6)));
    assert_eq!(object["exit_code"], 2);
    assert!(text(&output.stderr).starts_with("error: "));
}

#[test]
fn wrong_words_are_wrong_usage_in_json_too() {
    let output = tightrope(&["plan", "--json", "--lrr", "1"]);
    assert_eq!(output.status.code(), Some(2));
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(object["error"].as_str().unwrap().contains("--lrr"), "{object}");
    assert!(text(&output.stderr).contains("--lr"), "a similar flag is suggested");
}

#[test]
fn completions_for_every_shell() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = tightrope(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0));
        let script = text(&output.stdout);
        assert!(script.contains("micro-batch") && script.contains("generate"), "{shell}");
    }
}

#[test]
fn the_schema_has_the_settings_with_their_limits() {
    let output = tightrope(&["schema"]);
    assert_eq!(output.status.code(), Some(0));
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rate = &schema["properties"]["train"]["properties"]["lr"];
    assert_eq!((&rate["type"], &rate["minimum"]), (&"number".into(), &0.into()), "{rate}");
}

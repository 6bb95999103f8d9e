//! Pipes and devices under the names of files: each was waited for, or read for ever.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::Duration;

use tightrope::data::{Checkpoint, Tokenizer, Weights};
use tightrope::plan::PlanFile;
use tightrope::profile::Profile;
use tightrope::settings::Settings;
use tightrope::weights::{Source, adapters};

use crate::corpus;

type Open = fn(&Path) -> String;

fn refusal<T>(opened: Result<T, impl std::fmt::Display>) -> String {
    opened.map_or_else(|error| format!("{error:#}"), |_| String::new())
}

/// Names of files in a model directory, and what reads each.
const FILES: [(&str, Open); 14] = [
    ("config.json", |dir| refusal(Source::open(dir).map(drop))),
    ("model.safetensors", |dir| refusal(Source::open(dir).and_then(|it| it.fingerprint()))),
    ("generation_config.json", |dir| refusal(Source::open(dir).and_then(|it| it.generation()))),
    ("preprocessor_config.json", |dir| {
        refusal(Source::open(dir).and_then(|it| it.normalization(3)))
    }),
    ("chat_template.jinja", |dir| refusal(Source::open(dir).and_then(|it| it.chat_templates()))),
    ("additional_chat_templates/tool_use.jinja", |dir| {
        refusal(Source::open(dir).and_then(|it| it.chat_templates()))
    }),
    ("tokenizer.json", |dir| refusal(Tokenizer::open(dir.join("tokenizer.json")))),
    ("tokenizer_config.json", |dir| refusal(Tokenizer::open(dir.join("tokenizer.json")))),
    ("special_tokens_map.json", |dir| refusal(Tokenizer::open(dir.join("tokenizer.json")))),
    ("adapter_config.json", |dir| refusal(adapters::config_of(dir))),
    ("index.json", |dir| refusal(Weights::open(dir.join("index.json")))),
    ("manifest.json", |dir| refusal(Checkpoint::open(dir))),
    ("plan.json", |dir| refusal(PlanFile::read(&dir.join("plan.json")))),
    ("profile.json", |dir| refusal(Profile::read(&dir.join("profile.json")))),
];

/// Puts a pipe or a device at a path.
fn hostile(kind: &str, path: &Path) {
    // There may be none.
    let _ = fs::remove_file(path);
    match kind {
        "a pipe" => assert!(Command::new("mkfifo").arg(path).status().unwrap().success()),
        _ => symlink("/dev/zero", path).unwrap(),
    }
}

/// The refusal by `open`, which must not wait.
fn within_seconds(open: impl FnOnce() -> String + Send + 'static) -> String {
    let (sender, said) = channel();
    std::thread::spawn(move || sender.send(open()));
    said.recv_timeout(Duration::from_secs(20)).expect("it waits")
}

#[test]
fn pipes_and_devices_under_names_of_files_are_refused_at_once() {
    for kind in ["a pipe", "a device"] {
        for (name, open) in FILES {
            let folder = tempfile::tempdir().unwrap();
            let dir = folder.path().to_owned();
            for (place, source) in [
                ("config.json", "config/llama"),
                ("model.safetensors", "safetensors/llama"),
                ("tokenizer.json", "tokenizer/bpe"),
            ] {
                fs::copy(corpus().join(source), dir.join(place)).unwrap();
            }
            assert!(!open(&dir).contains("regular"), "{name}");
            fs::create_dir_all(dir.join(name).parent().unwrap()).unwrap();
            hostile(kind, &dir.join(name));
            let said = within_seconds(move || open(&dir));
            assert!(said.contains("not a regular file"), "{kind} as {name}: {said:?}");
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("run.toml");
        hostile(kind, &file);
        let said = within_seconds(move || refusal(Settings::default().read_file(&file)));
        assert!(said.contains("can't read the settings file"), "{kind}: {said:?}");
    }
}

/// A graph of 4,096 layers was made before the first weight was found missing.
#[test]
fn more_layers_than_tensors_are_refused_before_a_graph_is_made() {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(corpus().join("config/deepest"), folder.path().join("config.json")).unwrap();
    fs::copy(corpus().join("safetensors/llama"), folder.path().join("model.safetensors")).unwrap();
    let said = refusal(Source::open(folder.path()).map(drop));
    assert!(said.contains("4096 layers") && said.contains("11 tensors"), "{said}");
}

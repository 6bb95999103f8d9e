//! Models and data sets by their names on the Hugging Face hub, fetched from a server on this machine.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::thread;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A file's name and bytes.
type File = (&'static str, Vec<u8>);

/// A server on this machine, and the paths that were asked for.
struct Hub {
    address: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Hub {
    /// A server of these files of a model and a data set. Files whose name ends with `cut` are shorter than their length says.
    fn start(repositories: &[(&str, &[File])], cut: &'static str) -> Self {
        let mut answers: HashMap<String, Vec<u8>> = HashMap::new();
        for (repository, files) in repositories {
            let listed: Vec<String> =
                files.iter().map(|(name, _)| format!("{{\"rfilename\": \"{name}\"}}")).collect();
            let list = format!("{{\"sha\": \"{COMMIT}\", \"siblings\": [{}]}}", listed.join(", "));
            let api = match repository.strip_prefix("datasets/") {
                Some(_) => format!("/api/{repository}/revision/main"),
                None => format!("/api/models/{repository}/revision/main"),
            };
            answers.insert(api, list.into_bytes());
            for (name, bytes) in *files {
                answers.insert(format!("/{repository}/resolve/{COMMIT}/{name}"), bytes.clone());
            }
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let heard = Arc::clone(&asked);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that hung up asks again.
                let _ = answer(stream, &answers, cut, &heard);
            }
        });
        Self { address, asked }
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

fn answer(
    mut stream: TcpStream,
    answers: &HashMap<String, Vec<u8>>,
    cut: &str,
    heard: &Mutex<Vec<String>>,
) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
    let path = lines.next()?.ok()?.split(' ').nth(1)?.to_owned();
    while !lines.next()?.ok()?.is_empty() {}
    heard.lock().ok()?.push(path.clone());
    let (status, mut body) = match answers.get(&path) {
        Some(body) => ("200 OK", body.clone()),
        None => ("404 Not Found", b"no such file".to_vec()),
    };
    let length = body.len();
    if !cut.is_empty() && path.ends_with(cut) {
        body.truncate(length / 2);
    }
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")
        .ok()?;
    stream.write_all(&body).ok()
}

/// The files of a small Llama in Hugging Face's layout, and others that aren't read.
fn model() -> Vec<File> {
    let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/parity/llama-lora-case");
    let read = |name: &str| fs::read(case.join(name)).unwrap();
    vec![
        ("config.json", read("config.json")),
        ("model.safetensors", read("model.safetensors")),
        ("pytorch_model.bin", b"never asked for".to_vec()),
        ("onnx/model.safetensors", b"never asked for".to_vec()),
        ("../outside.safetensors", b"never asked for".to_vec()),
        ("README.md", b"never asked for".to_vec()),
    ]
}

fn run(dir: &Path, hub: &str, words: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tightrope"))
        .current_dir(dir)
        .args(words.split(' '))
        .env("HF_HOME", dir.join("home"))
        .env("HF_ENDPOINT", hub)
        .env_remove("HF_HUB_CACHE")
        .env_remove("HUGGINGFACE_HUB_CACHE")
        .env_remove("HF_HUB_OFFLINE")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn snapshot(dir: &Path, name: &str) -> PathBuf {
    dir.join("home/hub").join(name).join("snapshots").join(COMMIT)
}

#[test]
fn models_and_data_sets_are_fetched_once_and_found_again() {
    let rows =
        fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/parity/labels/rows.parquet"));
    let data = vec![
        ("README.md", b"# Rows\n".to_vec()),
        ("data/train-00000-of-00001.parquet", rows.unwrap()),
        ("train.csv", b"never asked for".to_vec()),
    ];
    let hub = Hub::start(&[("own/tiny", &model()), ("datasets/own/rows", &data)], "");
    let dir = tempfile::tempdir().unwrap();
    let words = "train --init own/tiny --data hf:own/rows --format text --tokenizer byte --context 16 --steps 1 --batch 2 --set data.holdout=0 --threads 1 --device cpu --out";
    let first = run(dir.path(), &hub.address, &format!("{words} a"));
    let said = text(&first.stderr);
    assert!(first.status.success(), "{said}");
    assert!(said.contains("own/tiny") && said.contains("model.safetensors"), "{said}");
    let mut asked = hub.asked();
    asked.sort();
    asked.dedup();
    assert_eq!(
        asked,
        [
            "/api/datasets/own/rows/revision/main".to_owned(),
            "/api/models/own/tiny/revision/main".to_owned(),
            format!("/datasets/own/rows/resolve/{COMMIT}/README.md"),
            format!("/datasets/own/rows/resolve/{COMMIT}/data/train-00000-of-00001.parquet"),
            format!("/own/tiny/resolve/{COMMIT}/config.json"),
            format!("/own/tiny/resolve/{COMMIT}/model.safetensors"),
        ]
    );
    let tiny = snapshot(dir.path(), "models--own--tiny");
    assert_eq!(fs::read(tiny.join("model.safetensors")).unwrap(), model()[1].1);
    // Nothing is asked again, and no network is needed.
    let second = run(dir.path(), "http://127.0.0.1:9", &format!("{words} b"));
    assert!(second.status.success(), "{}", text(&second.stderr));
    assert_eq!(hub.asked(), Vec::<String>::new());
}

#[test]
fn what_cannot_be_fetched_is_said_with_what_to_do_by_hand() {
    let files = model();
    let hub = Hub::start(&[("own/tiny", &files)], "model.safetensors");
    let dir = tempfile::tempdir().unwrap();
    for (address, model, expected) in [
        (&*hub.address, "own/tiny", "can't be fetched (model.safetensors: "),
        (&*hub.address, "own/other", "the hub knows no such name or revision"),
        ("http://127.0.0.1:9", "own/tiny", "can't be fetched"),
    ] {
        let words = format!("plan --init {model} --context 16");
        let found = run(dir.path(), address, &words);
        let said = text(&found.stderr);
        assert_eq!(found.status.code(), Some(2), "{said}");
        assert!(said.contains(expected), "{model}: {said}");
        assert!(said.contains(&format!("hf download {model}")), "{model}: {said}");
    }
    // Half a file is no file.
    let tiny = snapshot(dir.path(), "models--own--tiny");
    let left: Vec<_> = fs::read_dir(&tiny).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(left, ["config.json"]);
    assert!(!dir.path().join("home/hub/models--own--tiny/refs/main").exists());
}

//! Directories that transformers wrote, through a step that changes nothing: every file comes back.

use std::path::PathBuf;

use tightrope::data::SafeTensors;

use super::*;

fn parity() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/parity")
}

fn of_json(file: &Path) -> Value {
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

/// Names, types, extents and bytes of the tensors of a model.
fn tensors(dir: &Path) -> Vec<(String, String, Vec<usize>, Vec<u8>)> {
    let file = SafeTensors::open(dir.join("model.safetensors")).unwrap();
    let of = file
        .tensors()
        .map(|it| (it.name.to_owned(), it.dtype.to_owned(), it.shape.to_vec(), it.bytes.to_vec()));
    let mut all: Vec<_> = of.collect();
    all.sort();
    all
}

/// Files of a directory by name, but its weights.
fn files(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap().map(|it| it.unwrap().file_name());
    let mut names: Vec<String> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
    names.retain(|name| name != "model.safetensors");
    names.sort();
    names
}

/// The recorded case `name` with what transformers writes beside it, in `source`.
fn source(dir: &TempDir, name: &str) -> PathBuf {
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(parity().join(name).join(file), source.join(file)).unwrap();
    }
    let mut described = of_json(&source.join("config.json"));
    let kind = described["model_type"].as_str().unwrap().to_owned();
    if kind == "bert" {
        let words = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nfilm\nwas\ngood\nbad\n.\n";
        fs::write(source.join("vocab.txt"), words).unwrap();
        let config = r#"{"tokenizer_class": "BertTokenizer", "do_lower_case": false}"#;
        fs::write(source.join("tokenizer_config.json"), config).unwrap();
    } else if kind != "vit" {
        let beside = parity().join("round-trip");
        for file in files(&beside) {
            fs::copy(beside.join(&file), source.join(&file)).unwrap();
        }
        if described["architectures"][0].as_str().unwrap().ends_with("ForSequenceClassification") {
            fs::remove_file(source.join("generation_config.json")).unwrap();
        }
    }
    // Keys that don't describe the network, by other versions too.
    described["problem_type"] = Value::Null;
    described["torch_dtype"] = "float32".into();
    described["my_own_key"] = serde_json::json!({ "nested": [1, 2.5, null] });
    fs::write(source.join("config.json"), described.to_string()).unwrap();
    source
}

#[test]
fn every_family_comes_back_from_a_step_that_changes_nothing() {
    let folders = fs::read_dir(parity()).unwrap().map(|it| it.unwrap().path());
    let mut cases: Vec<PathBuf> =
        folders.filter(|it| it.join("case.safetensors").is_file()).collect();
    // One of each class of model: variants of training have a base of the same kind.
    cases.retain(|it| !it.join("adapters").exists());
    cases.sort();
    let mut seen = vec![];
    for case in cases {
        let name = case.file_name().unwrap().to_string_lossy().into_owned();
        let class = of_json(&case.join("config.json"))["architectures"][0].clone();
        if seen.contains(&class) && name != "llama3-case" {
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        let source = source(&dir, &name);
        let data = match class.as_str().unwrap() {
            "ViTForImageClassification" => images(&dir),
            class if class.ends_with("ForSequenceClassification") => labelled(&dir),
            _ => text(&dir),
        };
        let words = format!("{data} --steps 1 --lr 0 --batch 2 --threads 1 --device cpu");
        ok(dir.path(), &format!("train --init source {words} --out run"));
        // As it is, after a step, and after a step of a run that begins with that run.
        ok(dir.path(), &format!("train --init run {words} --out again"));
        for model in ["source", "run", "again"] {
            ok(dir.path(), &format!("export {model} out-{model}"));
            let out = dir.path().join(format!("out-{model}"));
            let (mut expected, found) = (files(&source), files(&out));
            expected.retain(|name| !found.contains(name));
            assert_eq!(expected, Vec::<String>::new(), "{name}, {model}: files are missing");
            for file in files(&source) {
                let [one, other] = [&source, &out].map(|dir| dir.join(&file));
                if file == "config.json" {
                    assert_eq!(of_json(&one), of_json(&other), "{name}, {model}: {file}");
                } else {
                    assert!(
                        fs::read(one).unwrap() == fs::read(other).unwrap(),
                        "{name}, {model}: {file}"
                    );
                }
            }
            assert!(tensors(&out) == tensors(&source), "{name}, {model}: tensors");
        }
        seen.push(class);
    }
    assert!(seen.len() >= 16, "{seen:?}");
}

fn text(dir: &TempDir) -> String {
    fs::write(dir.path().join("text.txt"), "the film was good . the film was bad . ".repeat(60))
        .unwrap();
    "--data text.txt --format text".to_owned()
}

fn labelled(dir: &TempDir) -> String {
    let row = |n: usize| {
        format!("{{\"text\": \"the film was {}\", \"label\": {n}}}\n", ["good", "bad"][n % 2])
    };
    fs::write(dir.path().join("rows.jsonl"), (0..5).map(row).collect::<String>().repeat(4))
        .unwrap();
    "--data rows.jsonl".to_owned()
}

/// Images of 15 × 20 pixels in five classes.
fn images(dir: &TempDir) -> String {
    for class in 0..5u8 {
        let folder = dir.path().join(format!("images/{class}"));
        fs::create_dir_all(&folder).unwrap();
        for image in 0..4u8 {
            let file = fs::File::create(folder.join(format!("{image}.png"))).unwrap();
            let mut encoder = png::Encoder::new(file, 20, 15);
            encoder.set_color(png::ColorType::Rgb);
            let pixels: Vec<u8> = (0..900).map(|at| (at % 251) as u8 ^ class ^ image).collect();
            encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
        }
    }
    "--data images".to_owned()
}

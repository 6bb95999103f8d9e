//! Everything that reads a file of others, each by the name it has in the library.

use std::fmt::Display;
use std::fs;
use std::path::Path;

use tightrope::data::{
    ChatTemplate, Chats, ChatsConfig, Checkpoint, Corpus, Gpt2, ImageDataset, ImageShape,
    LabelledTexts, RowFormat, SafeTensors, TemplateFiles, Tokenizer, TrainOn, Weights, documents,
    questions, row_format,
};
use tightrope::plan::PlanFile;
use tightrope::profile::Profile;
use tightrope::run::metrics::MetricsFile;
use tightrope::settings::{Origin, Settings};
use tightrope::weights::{Source, adapters};

use crate::repair::{self, nothing};

/// A reader.
pub struct Reader {
    /// Name of the folder in the corpus with files that it takes.
    pub name: &'static str,
    /// Path of the file while it's read.
    pub file: &'static str,
    /// Other files of the same folder: name and source in the corpus.
    pub beside: &'static [(&'static str, &'static str)],
    /// Makes the sums in a file right again.
    pub repair: fn(&mut Vec<u8>),
    /// Reads it. An error is the refusal.
    pub read: fn(&Path) -> Result<(), String>,
}

const fn reader(
    name: &'static str,
    file: &'static str,
    read: fn(&Path) -> Result<(), String>,
) -> Reader {
    Reader { name, file, beside: &[], repair: nothing, read }
}

const WEIGHTS: (&str, &str) = ("model.safetensors", "safetensors/llama");
const CONFIG: (&str, &str) = ("config.json", "config/llama");
const LABELS: (&str, &str) = ("lines.jsonl", "lines/labels");
const TOKENIZER: (&str, &str) = ("tokenizer.json", "tokenizer/bpe");

/// All of them.
pub const READERS: &[Reader] = &[
    reader("settings", "run.toml", settings),
    reader("settings-as-json", "settings.json", settings_as_json),
    reader("plan", "plan.json", |path| told(PlanFile::read(path))),
    reader("profile", "profile.json", |path| told(Profile::read(path))),
    reader("metrics", "metrics.jsonl", metrics),
    Reader {
        beside: &[
            ("model.safetensors", "checkpoint-model/model"),
            ("optimizer.safetensors", "checkpoint-optimizer/optimizer"),
        ],
        repair: repair::manifest,
        ..reader("manifest", "manifest.json", checkpoint)
    },
    Reader {
        beside: &[
            ("manifest.json", "manifest/run"),
            ("optimizer.safetensors", "checkpoint-optimizer/optimizer"),
        ],
        ..reader("checkpoint-model", "model.safetensors", checkpoint)
    },
    Reader {
        beside: &[
            ("manifest.json", "manifest/run"),
            ("model.safetensors", "checkpoint-model/model"),
        ],
        ..reader("checkpoint-optimizer", "optimizer.safetensors", checkpoint)
    },
    Reader {
        repair: |bytes| repair::tar(bytes),
        ..reader("archive", "run.tar", |path| told(Checkpoint::open(path)))
    },
    Reader { beside: &[WEIGHTS], ..reader("config", "config.json", model) },
    Reader { beside: &[CONFIG, WEIGHTS], ..reader("generation", "generation_config.json", model) },
    Reader { beside: &[CONFIG], ..reader("safetensors", "model.safetensors", safetensors) },
    reader("bitsandbytes", "model.safetensors", values),
    reader("index", "model.safetensors.index.json", weights),
    Reader { repair: |bytes| repair::zip(bytes), ..reader("torch", "pytorch_model.bin", weights) },
    reader("adapters", "adapter_config.json", |path| told(adapters::config_of(folder(path)))),
    reader("text", "text.txt", corpus),
    reader("packed", "text.txt.gz", corpus),
    reader("lines", "lines.jsonl", rows),
    reader("values", "values.json", rows),
    reader("parquet", "rows.parquet", rows),
    reader("arrow", "rows.arrow", rows),
    reader("saved", "state.json", |path| {
        told(Corpus::open(&[folder(path)], "text", &Tokenizer::Byte))
    }),
    Reader { beside: &[LABELS], ..reader("card", "README.md", labels) },
    Reader { beside: &[LABELS], ..reader("features", "dataset_info.json", labels) },
    reader("ids", "ids.bin", corpus),
    reader("tokenizer", "tokenizer.json", tokenizer),
    Reader { beside: &[TOKENIZER], ..reader("tokenizer-config", "tokenizer_config.json", beside) },
    Reader { beside: &[TOKENIZER], ..reader("special-tokens", "special_tokens_map.json", beside) },
    Reader { beside: &[TOKENIZER], ..reader("added-tokens", "added_tokens.json", beside) },
    reader("word-pieces", "vocab.txt", tokenizer),
    Reader { beside: &[("merges.txt", "merges/list")], ..reader("vocab", "vocab.json", tokenizer) },
    Reader { beside: &[("vocab.json", "vocab/list")], ..reader("merges", "merges.txt", merges) },
    reader("template", "chat_template.jinja", template),
    Reader { repair: |bytes| repair::png(bytes), ..reader("png", "images/one/a.png", images) },
    reader("jpeg", "images/one/a.jpg", images),
    Reader {
        beside: &[("train-labels-idx1-ubyte", "idx-labels/six")],
        ..reader("idx-images", "train-images-idx3-ubyte", idx)
    },
    Reader {
        beside: &[("train-images-idx3-ubyte", "idx-images/six")],
        ..reader("idx-labels", "train-labels-idx1-ubyte", idx)
    },
    Reader {
        beside: &[("train-labels-idx1-ubyte", "idx-labels/six")],
        ..reader("idx-packed", "train-images-idx3-ubyte.gz", idx)
    },
    reader("cifar", "data_batch_1.bin", idx),
];

/// A model's files in a folder of its own.
fn folder(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

fn told<T>(read: Result<T, impl Display>) -> Result<(), String> {
    read.map(drop).map_err(|error| format!("{error:#}"))
}

fn bytes(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_default()
}

fn settings(path: &Path) -> Result<(), String> {
    let mut settings = Settings::default();
    told(settings.read_file(path).and_then(|()| settings.check()))
}

fn settings_as_json(path: &Path) -> Result<(), String> {
    let json: serde_json::Value =
        serde_json::from_slice(&bytes(path)).map_err(|error| error.to_string())?;
    let mut settings = Settings::default();
    told(settings.read_json(&json, &Origin::Checkpoint("it".to_owned())))
}

/// On a copy, since lines that were cut off are dropped.
fn metrics(path: &Path) -> Result<(), String> {
    let run = folder(path).join("run");
    let copied = fs::create_dir_all(&run).and_then(|()| fs::copy(path, run.join("metrics.jsonl")));
    copied.map_err(|error| error.to_string())?;
    told(MetricsFile::resume(&run, 4))
}

fn checkpoint(path: &Path) -> Result<(), String> {
    let opened = Checkpoint::open(folder(path)).map_err(|error| error.to_string())?;
    told(opened.texts())?;
    told(Source::of_checkpoint(opened, Vec::new()))
}

fn model(path: &Path) -> Result<(), String> {
    let source = Source::open_whole(folder(path)).map_err(|error| error.to_string())?;
    told(source.generation())?;
    told(source.normalization(3))?;
    told(source.config.build(1).map(|model| model.parameters().len()))?;
    told(source.fingerprint())
}

fn safetensors(path: &Path) -> Result<(), String> {
    let opened = SafeTensors::open(path).map_err(|error| error.to_string())?;
    for tensor in opened.tensors() {
        // A tensor is of numbers of one kind.
        let read = [told(tensor.to_f32()), told(tensor.to_state()), told(tensor.to_i32())];
        if let [Err(why), Err(_), Err(_)] = read {
            return Err(why);
        }
    }
    weights(path)
}

fn weights(path: &Path) -> Result<(), String> {
    let opened = Weights::open(path).map_err(|error| error.to_string())?;
    for name in opened.names() {
        told(opened.require(name))?;
    }
    Ok(())
}

/// Weights as numbers.
fn values(path: &Path) -> Result<(), String> {
    let opened = Weights::open(path).map_err(|error| error.to_string())?;
    for name in opened.names() {
        told(opened.require(name).map_err(|error| error.to_string())?.to_f32())?;
    }
    Ok(())
}

/// A file beside texts with labels.
fn labels(path: &Path) -> Result<(), String> {
    told(LabelledTexts::open(&[folder(path)], None, None))
}

fn corpus(path: &Path) -> Result<(), String> {
    told(Corpus::open(&[path], "text", &Tokenizer::Byte))
}

/// By everything that reads rows; the last refusal counts where none reads them.
fn rows(path: &Path) -> Result<(), String> {
    let text = corpus(path);
    let learnt = documents(&[path], "text", &mut |_| Ok(()));
    let asked = told(questions(&[path]));
    let labelled = told(LabelledTexts::open(&[path], None, None));
    let found = row_format(&[path], RowFormat::Auto, None);
    let chats = found.map_err(|error| error.to_string()).and_then(|format| {
        if matches!(format, RowFormat::Text | RowFormat::Auto) {
            return Err("no conversations".to_owned());
        }
        let template =
            ChatTemplate::find(Some("chatml"), &TemplateFiles::default(), &Tokenizer::Byte, None);
        let template = template.map_err(|error| error.to_string())?;
        let config = ChatsConfig {
            format,
            tokenizer: &Tokenizer::Byte,
            template: template.as_ref(),
            templated_texts: false,
            train_on: TrainOn::default(),
            context: Some(64),
        };
        told(Chats::open(&[path], &config))
    });
    let all = [text, told(learnt), asked, labelled, chats];
    if all.iter().any(Result::is_ok) {
        Ok(())
    } else {
        all.into_iter().next_back().unwrap_or(Ok(()))
    }
}

fn tokenizer(path: &Path) -> Result<(), String> {
    let opened = Tokenizer::open(path).map_err(|error| error.to_string())?;
    let text = "ab abc <|endoftext|> é\n\u{fdfa} İ 字 12345 ''\"";
    let ids = opened.encode(text).map_err(|error| error.to_string())?;
    told(opened.encode_with_specials(&text.repeat(20)))?;
    told(opened.decode(&ids))?;
    told(ChatTemplate::find(None, &TemplateFiles::default(), &opened, None))
}

/// A file beside a tokenizer.
fn beside(path: &Path) -> Result<(), String> {
    tokenizer(&path.with_file_name("tokenizer.json"))
}

fn merges(path: &Path) -> Result<(), String> {
    let own = told(Gpt2::read(&bytes(path)));
    tokenizer(&path.with_file_name("vocab.json")).or(own)
}

fn template(path: &Path) -> Result<(), String> {
    let source = bytes(path);
    let source = String::from_utf8(source).map_err(|error| error.to_string())?;
    let found =
        ChatTemplate::find(None, &source.as_str().into(), &Tokenizer::Byte, Some("2026-11-25"));
    let found = found.map_err(|error| error.to_string())?;
    let rows = folder(path).join("rows.jsonl");
    let row = r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "tools": [{"a": [1, 2.5, null]}]}"#;
    fs::write(&rows, row).map_err(|error| error.to_string())?;
    let config = ChatsConfig {
        format: RowFormat::Messages,
        tokenizer: &Tokenizer::Byte,
        template: found.as_ref(),
        templated_texts: false,
        train_on: TrainOn::default(),
        context: None,
    };
    told(Chats::open(&[rows], &config))
}

/// In a folder with another class.
fn images(path: &Path) -> Result<(), String> {
    let root = folder(folder(path));
    // The other format's file of the same class.
    let other = path.with_extension(if path.extension().is_some_and(|it| it == "png") {
        "jpg"
    } else {
        "png"
    });
    let _ = fs::remove_file(other);
    let second = root.join("two");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/tests/images/gradient.png");
    fs::create_dir_all(&second)
        .and_then(|()| fs::copy(source, second.join("b.png")))
        .map_err(|error| error.to_string())?;
    let resized =
        told(ImageDataset::open(root, Some(ImageShape { height: 8, width: 8, channels: 3 })));
    let own = told(ImageDataset::open(root, None));
    resized.or(own)
}

fn idx(path: &Path) -> Result<(), String> {
    let opened = ImageDataset::open(folder(path), None).map_err(|error| error.to_string())?;
    let (images, _) = opened.split(0.5).map_err(|error| error.to_string())?;
    told(images.normalization())
}

//! Everything that reads what a user names, each by the name it has in the library.

use std::fs;
use std::path::Path;

use tightrope::data::{Checkpoint, Corpus, Gpt2, ImageDataset, ImageShape, SafeTensors, Tokenizer};
use tightrope::plan::PlanFile;
use tightrope::run::metrics::MetricsFile;
use tightrope::settings::{Origin, Settings};
use tightrope::weights::Source;

/// A reader, and files that it takes, by their names among the samples.
pub struct Reader {
    pub name: &'static str,
    pub samples: &'static [&'static str],
    /// What it refuses is told.
    pub read: fn(&Path) -> Result<(), String>,
}

const MODEL: &str = "checkpoint/model.safetensors";
const OPTIMIZER: &str = "checkpoint/optimizer.safetensors";
const MANIFEST: &str = "checkpoint/manifest.json";
const CONFIG: &str = "checkpoint/config.json";
const IDX: [&str; 2] = ["train-images-idx3-ubyte", "train-labels-idx1-ubyte"];

/// All of them.
pub const READERS: &[Reader] = &[
    Reader { name: "settings", samples: &["a/run.toml"], read: settings },
    Reader { name: "settings-as-json", samples: &[MANIFEST], read: settings_as_json },
    Reader { name: "plan", samples: &["a/plan.json"], read: |path| told(PlanFile::read(path)) },
    Reader { name: "metrics", samples: &["a/metrics.jsonl"], read: metrics },
    Reader { name: "checkpoint", samples: &[MANIFEST, MODEL, OPTIMIZER, CONFIG], read: checkpoint },
    Reader { name: "archive", samples: &["run.tar"], read: |path| told(Checkpoint::open(path)) },
    Reader { name: "model", samples: &[CONFIG, MODEL], read: model },
    Reader { name: "safetensors", samples: &[MODEL, OPTIMIZER], read: safetensors },
    Reader { name: "text", samples: &["text.txt", "text.txt.gz", "text.txt.zst"], read: corpus },
    Reader { name: "json", samples: &["lines.jsonl", "values.json"], read: corpus },
    Reader { name: "parquet", samples: &["three.parquet"], read: corpus },
    Reader { name: "arrow", samples: &["three.arrow"], read: corpus },
    Reader { name: "ids", samples: &["ids.bin", "shard.bin"], read: corpus },
    Reader { name: "tokenizer", samples: &["tokenizer.json"], read: tokenizer },
    Reader { name: "gpt2", samples: &["text.txt"], read: gpt2 },
    Reader { name: "png", samples: &["png/one/a.png"], read: images },
    Reader { name: "jpeg", samples: &["jpg/one/a.jpg"], read: images },
    Reader { name: "idx", samples: &IDX, read: idx },
];

fn told<T>(read: Result<T, impl std::fmt::Display>) -> Result<(), String> {
    read.map(drop).map_err(|error| error.to_string())
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
        serde_json::from_slice(&bytes(path)).map_err(|e| e.to_string())?;
    let mut settings = Settings::default();
    told(settings.read_json(&json["settings"], &Origin::Checkpoint("it".to_owned())))
}

fn metrics(path: &Path) -> Result<(), String> {
    let dir = path.parent().unwrap_or(path);
    MetricsFile::resume(dir, 4).map(drop).map_err(|error| format!("{error:#}"))
}

fn checkpoint(path: &Path) -> Result<(), String> {
    let opened =
        Checkpoint::open(path.parent().unwrap_or(path)).map_err(|error| error.to_string())?;
    told(opened.texts())
}

fn model(path: &Path) -> Result<(), String> {
    let folder = path.parent().unwrap_or(path);
    // A model directory has no manifest.
    let manifest = folder.join("manifest.json");
    let aside = folder.join("aside");
    let _ = fs::rename(&manifest, &aside);
    let read = told(Source::open_whole(folder));
    let _ = fs::rename(&aside, &manifest);
    read
}

fn safetensors(path: &Path) -> Result<(), String> {
    let opened = SafeTensors::from_bytes("it", bytes(path)).map_err(|error| error.to_string())?;
    for tensor in opened.tensors() {
        told(tensor.to_f32())?;
        told(tensor.to_state())?;
        told(tensor.to_i32())?;
    }
    Ok(())
}

fn corpus(path: &Path) -> Result<(), String> {
    told(Corpus::open(&[path], "text", &Tokenizer::Byte))
}

fn tokenizer(path: &Path) -> Result<(), String> {
    let opened = Tokenizer::open(path).map_err(|error| error.to_string())?;
    let ids = opened.encode("ab abc <|endoftext|> é\n").map_err(|error| error.to_string())?;
    told(opened.decode(&ids))
}

fn gpt2(path: &Path) -> Result<(), String> {
    told(Gpt2::read(&bytes(path)))
}

fn images(path: &Path) -> Result<(), String> {
    let folder = path.parent().and_then(Path::parent).unwrap_or(path);
    told(ImageDataset::open(folder, Some(ImageShape { height: 8, width: 8, channels: 3 })))
}

fn idx(path: &Path) -> Result<(), String> {
    let folder = path.parent().unwrap_or(path);
    let [images, labels] = IDX.map(|name| bytes(&folder.join(name)));
    let read = ImageDataset::from_idx("it", images, labels).map_err(|error| error.to_string())?;
    told(read.split(0.5))
}

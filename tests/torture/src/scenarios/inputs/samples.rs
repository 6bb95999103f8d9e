//! A file of each format, made on the spot or taken from a run.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use tightrope::data::{Checkpoint, Contents};

use crate::configurations::Configuration;
use crate::results::{RUN, copy};

/// The folder of the workspace.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Side of an image of IDX files, and how many there are.
const SIDE: u32 = 8;
const IMAGES: u32 = 6;

/// Writes all of them into `dir`; and the run, ended half-way, as `a`.
///
/// # Errors
/// What the system refuses.
pub fn write(dir: &Path, configuration: &Configuration) -> anyhow::Result<()> {
    copy(&configuration.half.join(RUN), &dir.join(RUN))?;
    let checkpoint = dir.join(RUN).join("checkpoints/step-6");
    copy(&checkpoint, &dir.join("checkpoint"))?;
    fs::write(dir.join("run.tar"), archive(&checkpoint)?)?;
    let text = fs::read(configuration.begin.join("text.txt"))?;
    fs::write(dir.join("text.txt"), &text)?;
    let mut packed =
        GzEncoder::new(fs::File::create(dir.join("text.txt.gz"))?, Compression::fast());
    packed.write_all(&text)?;
    packed.finish()?;
    fs::write(dir.join("text.txt.zst"), zstd::bulk::compress(&text, 1)?)?;
    let lines = |text: &str| format!("{{\"text\": \"{text}\", \"id\": 3}}\n");
    fs::write(dir.join("lines.jsonl"), lines("one \\u00e9") + &lines("two\\n"))?;
    fs::write(
        dir.join("values.json"),
        "[{\"text\": \"one\"}, {\"text\": \"two\", \"more\": [1, {\"a\": null}]}]",
    )?;
    for name in ["three.parquet", "three.arrow"] {
        fs::copy(Path::new(ROOT).join("data/src/corpus/tests").join(name), dir.join(name))?;
    }
    let ids: Vec<u8> = (0..400_u16).flat_map(|id| (id % 250).to_le_bytes()).collect();
    fs::write(dir.join("ids.bin"), &ids)?;
    let head = [20_240_520_i32, 1, 400].map(i32::to_le_bytes).concat();
    fs::write(dir.join("shard.bin"), [head, vec![0; 1012], ids].concat())?;
    fs::write(dir.join("tokenizer.json"), tokenizer())?;
    fs::copy(
        Path::new(ROOT).join("data/tests/images/gradient.png"),
        folder(dir, "png")?.join("a.png"),
    )?;
    fs::copy(
        Path::new(ROOT).join("data/tests/images/gradient.jpg"),
        folder(dir, "jpg")?.join("a.jpg"),
    )?;
    let pixels = (0..IMAGES * SIDE * SIDE).map(|n| n as u8);
    let head = [0x803, IMAGES, SIDE, SIDE].map(u32::to_be_bytes).concat();
    fs::write(
        dir.join("train-images-idx3-ubyte"),
        head.into_iter().chain(pixels).collect::<Vec<_>>(),
    )?;
    let head = [0x801, IMAGES].map(u32::to_be_bytes).concat();
    let labels = (0..IMAGES).map(|n| (n % 2) as u8);
    fs::write(
        dir.join("train-labels-idx1-ubyte"),
        head.into_iter().chain(labels).collect::<Vec<_>>(),
    )?;
    Ok(())
}

/// A folder of images with two classes, of which the first is for the image that is mutated.
fn folder(dir: &Path, name: &str) -> anyhow::Result<std::path::PathBuf> {
    let first = dir.join(name).join("one");
    let second = dir.join(name).join("two");
    fs::create_dir_all(&first)?;
    fs::create_dir_all(&second)?;
    fs::copy(Path::new(ROOT).join("data/tests/images/gradient.png"), second.join("b.png"))?;
    Ok(first)
}

/// A checkpoint as one file.
fn archive(checkpoint: &Path) -> anyhow::Result<Vec<u8>> {
    let opened = Checkpoint::open(checkpoint)?;
    Ok(tightrope::data::checkpoint::to_archive(opened.manifest, Contents::default())?)
}

/// A byte-level tokenizer of a few tokens.
fn tokenizer() -> String {
    let vocabulary: serde_json::Map<String, serde_json::Value> =
        ["a", "b", "c", "ab", "<|endoftext|>"]
            .iter()
            .zip(0..)
            .map(|(t, id)| (t.to_string(), id.into()))
            .collect();
    serde_json::json!({
        "version": "1.0",
        "added_tokens": [{"id": 4, "content": "<|endoftext|>", "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true}],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "vocab": vocabulary, "merges": [["a", "b"]]},
    })
    .to_string()
}

//! CIFAR-10's binary version: records of a label and 32 × 32 pixels, first all reds, then greens, then blues. See
//! <https://www.cs.toronto.edu/~kriz/cifar.html>.

use super::{Entry, ImageShape, Parts, Segment, broken};
use crate::bytes::Bytes;
use crate::{Error, Result, files, limits};

const SHAPE: ImageShape = ImageShape { channels: 3, height: 32, width: 32 };
const TEST: &str = "test_batch.bin";
const NAMES: &str = "batches.meta.txt";
/// Names of the classes, where `batches.meta.txt` is missing.
const CLASSES: [&str; 10] =
    ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

/// Whether a file holds images to train on.
pub(super) fn is_batch(name: &str) -> bool {
    name.starts_with("data_batch_") && name.ends_with(".bin")
}

/// All batches of a folder.
pub(super) fn open(entries: &[Entry]) -> Result<Parts> {
    let read = |wanted: &dyn Fn(&str) -> bool| -> Result<Vec<Segment>> {
        let files = entries.iter().filter(|entry| wanted(&entry.name));
        files
            .map(|entry| segment(entry.path.display().to_string(), Bytes::open(&entry.path)?))
            .collect()
    };
    let classes = match entries.iter().find(|entry| entry.name == NAMES) {
        None => CLASSES.map(str::to_owned).to_vec(),
        Some(entry) => {
            let shown = entry.path.display().to_string();
            let text = files::read_text(&entry.path, limits::DESCRIPTION)
                .map_err(Error::io("read", &entry.path))?;
            let names = text.lines().map(str::trim).filter(|line| !line.is_empty());
            let names: Vec<String> = names.map(str::to_owned).collect();
            if names.len() != CLASSES.len() {
                let problem =
                    format!("it names {} classes, and CIFAR-10 has {}", names.len(), CLASSES.len());
                return Err(broken(&shown, problem));
            }
            names
        }
    };
    Ok(Parts { shape: SHAPE, classes, train: read(&is_batch)?, test: read(&|name| name == TEST)? })
}

fn segment(name: String, pixels: Bytes) -> Result<Segment> {
    let stride = 1 + SHAPE.elements();
    if pixels.is_empty() || !pixels.len().is_multiple_of(stride) {
        let problem = format!(
            "it has {} bytes, which is no multiple of a record's {stride}; fetch it again",
            pixels.len()
        );
        return Err(broken(&name, problem));
    }
    let labels = pixels.iter().step_by(stride).copied().collect();
    Ok(Segment { name, pixels, first: 1, stride, labels })
}

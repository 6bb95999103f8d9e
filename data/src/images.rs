//! Labelled images of one size: MNIST's IDX files, CIFAR-10's binary files, or a folder per class.
//!
//! Pixels are bytes until they are read, in files that stay mapped where nothing has to be decoded.

mod cifar;
mod digits;
#[cfg(not(target_family = "wasm"))]
mod folder;
mod idx;
mod loader;
#[cfg(not(target_family = "wasm"))]
mod resize;

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::bytes::Bytes;
use crate::corpus::{check_holdout, is_saved};
use crate::permutation::Permutation;
use crate::source::content;
use crate::{DataState, Error, Result, Source};

pub use digits::drawn_digit;
pub use loader::{ImageBatch, ImageBatches, ImageLoaderConfig};

/// Chooses which images are held out: the same for every run, so that losses can be compared.
const SPLIT_KEY: u64 = 0x7469_6768_7472_6f70;

/// Channels, height and width of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageShape {
    /// 1 for grey, 3 for red, green and blue.
    pub channels: usize,
    /// Rows of pixels.
    pub height: usize,
    /// Columns of pixels.
    pub width: usize,
}

impl ImageShape {
    /// Pixels of all channels.
    pub fn elements(&self) -> usize {
        self.channels * self.height * self.width
    }

    fn check(&self) -> Result<()> {
        let setting = |what, value: usize, domain| {
            Err(Error::Setting { what, value: value.to_string(), domain })
        };
        if !matches!(self.channels, 1 | 3) {
            return setting("image channels", self.channels, "1 (grey) or 3 (red, green, blue)");
        }
        for (what, value) in [("image height", self.height), ("image width", self.width)] {
            if !(1..=LONGEST_SIDE).contains(&value) {
                return setting(what, value, "from 1 to 65535");
            }
        }
        Ok(())
    }
}

impl fmt::Display for ImageShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { channels, height, width } = self;
        let plural = if *channels == 1 { "" } else { "s" };
        write!(f, "{width} × {height} pixels of {channels} channel{plural}")
    }
}

/// Longest side of an image, that of a JPEG file.
const LONGEST_SIDE: usize = 65_535;

/// Images of one file, or of one class.
struct Segment {
    /// File or folder, for messages.
    name: String,
    /// Holds image i at `first + i · stride`: planes of rows, one plane a channel.
    pixels: Bytes,
    first: usize,
    stride: usize,
    /// Class of each image.
    labels: Vec<u8>,
}

/// All images of a dataset, one segment after the other.
struct Store {
    shape: ImageShape,
    segments: Vec<Segment>,
    /// Number of images before the end of each segment.
    ends: Vec<usize>,
}

impl Store {
    /// The segment of an image, and its index there.
    fn find(&self, image: usize) -> (&Segment, usize) {
        let at = self.ends.partition_point(|&end| end <= image);
        let segment = &self.segments[at];
        (segment, image + segment.labels.len() - self.ends[at])
    }
}

/// An opened dataset of labelled images.
pub struct ImageDataset {
    store: Arc<Store>,
    classes: Vec<String>,
    /// Images to train on, where the dataset has a test set of its own, which follows them.
    train: Option<usize>,
    sources: Vec<Source>,
}

/// Segments of a dataset as they are read.
struct Parts {
    shape: ImageShape,
    classes: Vec<String>,
    train: Vec<Segment>,
    /// The dataset's own test set; empty where it has none.
    test: Vec<Segment>,
}

impl ImageDataset {
    /// Opens a folder. What is in it decides how it is read:
    ///
    /// | files | are |
    /// |---|---|
    /// | `*idx3-ubyte` with `*idx1-ubyte`, packed by gzip or not | images and labels as MNIST's; those that begin with `t10k` or `test` are the test set |
    /// | `data_batch_*.bin`, `test_batch.bin`, `batches.meta.txt` | CIFAR-10's binary version |
    /// | folders of PNG and JPEG files | a class each, in the order of their names; or `train` and one of `test`, `val`, `validation`, with the same classes in both |
    ///
    /// Files of a folder per class are decoded here. With a `shape`, each is resampled to this size, whatever its proportions, as
    /// `ViTImageProcessor` does; without one, all must have the first one's. The other formats have one size, which must be that of
    /// `shape` where it is given.
    ///
    /// # Errors
    /// A folder of none of these, a file that is missing, broken or of another size, a class that no label names.
    pub fn open(path: impl AsRef<Path>, shape: Option<ImageShape>) -> Result<Self> {
        let path = path.as_ref();
        shape.as_ref().map_or(Ok(()), ImageShape::check)?;
        if is_saved(path) {
            let problem = "it is a data set that save_to_disk wrote, whose images aren't read: write them as files, in a folder for each class";
            return Err(broken(&path.display().to_string(), problem.to_owned()));
        }
        let entries = list(path)?;
        let has = |found: fn(&str) -> bool| entries.iter().any(|entry| found(&entry.name));
        let parts = if has(idx::is_images) {
            idx::open(&entries)?
        } else if has(cifar::is_batch) {
            cifar::open(&entries)?
        } else {
            Self::folders(path, &entries, shape)?
        };
        Self::new(&path.display().to_string(), parts, shape)
    }

    #[cfg(not(target_family = "wasm"))]
    fn folders(path: &Path, entries: &[Entry], shape: Option<ImageShape>) -> Result<Parts> {
        folder::open(path, entries, shape)
    }

    #[cfg(target_family = "wasm")]
    fn folders(path: &Path, _: &[Entry], _: Option<ImageShape>) -> Result<Parts> {
        Err(none_found(path))
    }

    /// A dataset of the bytes of two IDX files, each packed by gzip or not: images `(N, height, width)` and labels
    /// `(N)`.
    ///
    /// # Errors
    /// As [`ImageDataset::open`]; `name` is what the messages call it.
    pub fn from_idx(name: &str, images: Vec<u8>, labels: Vec<u8>) -> Result<Self> {
        Self::new(name, idx::from_bytes(name, images.into(), labels.into())?, None)
    }

    /// Opens a pair of IDX files, as [`ImageDataset::open`] does: images and labels, in either order.
    ///
    /// # Errors
    /// As [`ImageDataset::open`], and files of which none has a name that ends as that of images.
    pub fn open_idx(
        one: impl AsRef<Path>,
        other: impl AsRef<Path>,
        shape: Option<ImageShape>,
    ) -> Result<Self> {
        let (one, other) = (one.as_ref(), other.as_ref());
        Self::new(&one.display().to_string(), idx::of_files(one, other)?, shape)
    }

    /// The same images, which must be of this shape.
    ///
    /// # Errors
    /// Images of another shape.
    pub fn of_shape(self, shape: ImageShape) -> Result<Self> {
        let name = self.sources.first().map_or("the dataset", |source| source.name.as_str());
        check_shape(name, self.shape(), shape)?;
        Ok(self)
    }

    /// The 1,797 images of handwritten digits, 8 × 8, that scikit-learn comes with; compiled in, but for pages, which fetch
    /// them for [`ImageDataset::digits_of`].
    ///
    /// # Errors
    /// None but a build that is damaged.
    #[cfg(not(target_family = "wasm"))]
    pub fn digits() -> Result<Self> {
        Self::new(digits::NAME, digits::parts()?, None)
    }

    /// The digits of the bytes of their two files, as [`ImageDataset::from_idx`] takes them.
    ///
    /// # Errors
    /// As [`ImageDataset::open`].
    pub fn digits_of(images: Vec<u8>, labels: Vec<u8>) -> Result<Self> {
        Self::from_idx(digits::NAME, images, labels)
    }

    /// Whether a checkpoint's data is the digits.
    pub fn is_digits(state: &DataState) -> bool {
        let named = matches!(state.files.as_slice(), [Source { name, .. }] if name == digits::NAME);
        named && state.tokenizer == DataState::IMAGES
    }

    fn new(name: &str, parts: Parts, wanted: Option<ImageShape>) -> Result<Self> {
        let Parts { shape, classes, train, test } = parts;
        wanted.map_or(Ok(()), |wanted| check_shape(name, shape, wanted))?;
        let count = |segments: &[Segment]| segments.iter().map(|s| s.labels.len()).sum::<usize>();
        if count(&train) == 0 {
            return Err(broken(name, "it holds no image to train on".to_owned()));
        }
        let own = (!test.is_empty()).then(|| count(&train));
        let segments: Vec<Segment> = train.into_iter().chain(test).collect();
        for segment in &segments {
            let outside = |&label: &u8| usize::from(label) >= classes.len();
            if let Some(image) = segment.labels.iter().position(outside) {
                let (label, classes) = (segment.labels[image], classes.len());
                let problem =
                    format!("image {image} has label {label}, and there are {classes} classes");
                return Err(broken(&segment.name, problem));
            }
        }
        let short = |name: &str| match Path::new(name).file_name() {
            Some(file) => file.to_string_lossy().into_owned(),
            None => name.to_owned(),
        };
        let source = |s: &Segment| Source {
            name: short(&s.name),
            tokens: s.labels.len() as u64,
            content: Some(format!("{}, labels {}", content(&s.pixels), content(&s.labels))),
        };
        let sources = segments.iter().map(source).collect();
        let ends = segments.iter().scan(0, |end, segment| {
            *end += segment.labels.len();
            Some(*end)
        });
        let ends = ends.collect();
        Ok(Self { store: Arc::new(Store { shape, segments, ends }), classes, train: own, sources })
    }

    /// Size of every image.
    pub fn shape(&self) -> ImageShape {
        self.store.shape
    }

    /// Names of the classes; a label is an index into them.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// The files or folders, with the images of each.
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// Images in all.
    pub fn len(&self) -> usize {
        self.store.ends.last().copied().unwrap_or(0)
    }

    /// Whether there are none, which is never so.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Images to train on, and those held out: the dataset's own test set where it has one, otherwise a fraction
    /// `holdout` (e.g. 0.1) of all, the same one in every run.
    ///
    /// # Errors
    /// Where `holdout` is not in [0, 1), and where it leaves no image to train on.
    pub fn split(&self, holdout: f64) -> Result<(Images, Images)> {
        check_holdout(holdout)?;
        let len = self.len();
        let view = |order: &Option<Permutation>, range| Images {
            store: self.store.clone(),
            order: order.clone(),
            range,
        };
        if let Some(train) = self.train {
            return Ok((view(&None, 0..train), view(&None, train..len)));
        }
        let train = (len as f64 * (1.0 - holdout)).ceil() as usize;
        let order = Some(Permutation::new(len as u64, SPLIT_KEY));
        Ok((view(&order, 0..train), view(&order, train..len)))
    }

    /// What a checkpoint remembers after `position` images.
    pub fn state(&self, position: u64, holdout: f64) -> DataState {
        DataState::new(position, &self.sources, DataState::IMAGES, holdout)
    }
}

impl fmt::Debug for ImageDataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("ImageDataset");
        debug.field("shape", &self.store.shape).field("classes", &self.classes);
        debug.field("sources", &self.sources).finish_non_exhaustive()
    }
}

/// Some images of a dataset, in a fixed order. Cheap to clone; the files stay open behind it.
#[derive(Clone)]
pub struct Images {
    store: Arc<Store>,
    /// The order of the dataset's images that `range` is of; `None` is that of its files.
    order: Option<Permutation>,
    range: Range<usize>,
}

impl Images {
    /// Number of images.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Size of every image.
    pub fn shape(&self) -> ImageShape {
        self.store.shape
    }

    /// Class and bytes of image `index`: planes of rows, one plane a channel.
    ///
    /// # Errors
    /// An index beyond the end, and a file that has shrunk since it was opened.
    pub fn get(&self, index: usize) -> Result<(u8, &[u8])> {
        if index >= self.len() {
            return Err(Error::Setting {
                what: "image index",
                value: index.to_string(),
                domain: "below the number of images",
            });
        }
        let place = self.range.start + index;
        let image = self.order.as_ref().map_or(place, |order| order.get(place as u64) as usize);
        let (segment, at) = self.store.find(image);
        segment.pixels.check_length(&segment.name)?;
        let start = segment.first + at * segment.stride;
        Ok((segment.labels[at], &segment.pixels[start..start + self.store.shape.elements()]))
    }

    /// Mean and standard deviation of each channel over these images, pixels being in 0 to 1. A channel of one value
    /// has a standard deviation of 1, so that it can be divided by.
    ///
    /// # Errors
    /// As [`Images::get`].
    pub fn normalization(&self) -> Result<Normalization> {
        let ImageShape { channels, height, width } = self.shape();
        // Integers: the sums don't depend on the order.
        let mut sums = vec![(0u64, 0u64); channels];
        for index in 0..self.len() {
            let (_, pixels) = self.get(index)?;
            for (plane, (sum, squares)) in pixels.chunks_exact(height * width).zip(&mut sums) {
                *sum += plane.iter().map(|&pixel| u64::from(pixel)).sum::<u64>();
                *squares += plane.iter().map(|&pixel| u64::from(pixel).pow(2)).sum::<u64>();
            }
        }
        let count = (self.len() * height * width).max(1) as f64;
        let channel = |(sum, squares): (u64, u64)| {
            let mean = sum as f64 / count / 255.0;
            let variance = squares as f64 / count / 255.0f64.powi(2) - mean * mean;
            let std = variance.max(0.0).sqrt();
            (mean as f32, if std < 1e-6 { 1.0 } else { std as f32 })
        };
        let (mean, std) = sums.into_iter().map(channel).unzip();
        Ok(Normalization { mean, std })
    }
}

impl fmt::Debug for Images {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Images");
        debug.field("shape", &self.store.shape).field("range", &self.range).finish_non_exhaustive()
    }
}

/// How bytes become images for a model, and what it tells apart.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageFormat {
    /// Size of an image.
    pub shape: ImageShape,
    /// What pixels become.
    pub normalization: Normalization,
    /// Names of the classes.
    pub classes: Vec<String>,
}

impl ImageFormat {
    /// An image as a model reads it: f32 (channels, height, width).
    ///
    /// # Errors
    /// Bytes that aren't one image: planes of rows, one plane a channel.
    pub fn read(&self, pixels: &[u8]) -> Result<Vec<f32>> {
        if pixels.len() != self.shape.elements() {
            return Err(Error::Setting {
                what: "bytes of an image",
                value: pixels.len().to_string(),
                domain: "one for each pixel and channel of what the model reads",
            });
        }
        let mut image = vec![0.0; pixels.len()];
        self.normalization.apply(pixels, &mut image);
        Ok(image)
    }
}

/// What pixels in 0 to 1 become: `(pixel − mean) / std`, channel by channel.
#[derive(Clone, Debug, PartialEq)]
pub struct Normalization {
    /// Mean of each channel.
    pub mean: Vec<f32>,
    /// Standard deviation of each channel.
    pub std: Vec<f32>,
}

impl Normalization {
    /// Pixels in −1 to 1, as `ViTImageProcessor` of Hugging Face has them.
    pub fn centred(channels: usize) -> Self {
        Self { mean: vec![0.5; channels], std: vec![0.5; channels] }
    }

    /// Writes an image's bytes to `out`, which is as long.
    fn apply(&self, pixels: &[u8], out: &mut [f32]) {
        let plane = pixels.len() / self.mean.len();
        for (channel, (from, to)) in
            pixels.chunks_exact(plane).zip(out.chunks_exact_mut(plane)).enumerate()
        {
            let (mean, std) = (self.mean[channel], self.std[channel]);
            for (&pixel, to) in from.iter().zip(to) {
                *to = (f32::from(pixel) / 255.0 - mean) / std;
            }
        }
    }
}

/// Something in a folder.
struct Entry {
    name: String,
    path: PathBuf,
    #[cfg_attr(target_family = "wasm", expect(dead_code, reason = "a browser has no folders"))]
    is_dir: bool,
}

/// What is in a folder, by name; hidden files are passed over.
fn list(folder: &Path) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(Error::io("list", folder))? {
        let path = entry.map_err(Error::io("list", folder))?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            return Err(broken(
                &path.display().to_string(),
                "rename it: its name is not UTF-8".to_owned(),
            ));
        };
        if !name.starts_with('.') {
            entries.push(Entry { name: name.to_owned(), is_dir: path.is_dir(), path });
        }
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

fn check_shape(name: &str, shape: ImageShape, wanted: ImageShape) -> Result<()> {
    if shape == wanted {
        return Ok(());
    }
    let problem = format!(
        "its images are {shape}, and the model reads {wanted}: set the model's image size to theirs"
    );
    Err(broken(name, problem))
}

fn none_found(folder: &Path) -> Error {
    let problem = "it holds neither IDX files (MNIST), nor CIFAR-10's binary files, nor a folder of PNG and JPEG files \
                   for each class";
    broken(&folder.display().to_string(), problem.to_owned())
}

fn broken(name: &str, problem: String) -> Error {
    Error::Images { name: name.to_owned(), problem }
}

#[cfg(test)]
mod tests;

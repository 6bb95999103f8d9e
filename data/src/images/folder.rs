//! A folder of PNG and JPEG files for each class.

use std::io::Cursor;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::thread;

use png::{ColorType, Transformations};
use tightrope_core::threads::side_by_side;
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use super::resize::{Decoded, resize};
use super::{Entry, ImageShape, LONGEST_SIDE, Parts, Segment, broken, list, none_found};
use crate::bytes::Bytes;
use crate::limits::{self, Made};
use crate::{Error, Result, files};

/// Folder of the images to train on, where there is one of [`TEST`] too.
const TRAIN: &str = "train";
/// Folders of a test set.
const TEST: [&str; 3] = ["test", "val", "validation"];
/// Classes that a label of one byte tells apart.
const MOST_CLASSES: usize = 256;
/// Most pixels of an image, all channels counted: what it becomes is far smaller.
const MOST_PIXELS: usize = 1 << 28;

pub(super) fn open(root: &Path, entries: &[Entry], shape: Option<ImageShape>) -> Result<Parts> {
    let test = entries.iter().find(|entry| entry.is_dir && TEST.contains(&&*entry.name));
    let train = entries.iter().find(|entry| entry.is_dir && entry.name == TRAIN);
    let (Some(train), Some(test)) = (train, test) else {
        let classes = classes(root, entries)?;
        let size = Size::of(shape, &classes)?;
        return Ok(Parts {
            shape: size.shape,
            train: size.read(&classes)?,
            test: Vec::new(),
            classes: classes.into_iter().map(|class| class.name).collect(),
        });
    };
    let trained = classes(&train.path, &list(&train.path)?)?;
    let tested = classes(&test.path, &list(&test.path)?)?;
    let names = |classes: &[Class]| classes.iter().map(|c| c.name.clone()).collect::<Vec<_>>();
    let [classes, others] = [names(&trained), names(&tested)];
    if classes != others {
        let problem = format!(
            "its classes are {}, and those to train on are {}",
            others.join(", "),
            classes.join(", ")
        );
        return Err(broken(&test.path.display().to_string(), problem));
    }
    let size = Size::of(shape, &trained)?;
    Ok(Parts { shape: size.shape, train: size.read(&trained)?, test: size.read(&tested)?, classes })
}

/// The images of one class.
struct Class {
    name: String,
    folder: PathBuf,
    files: Vec<PathBuf>,
}

/// The classes of a folder, at least one file in each.
fn classes(root: &Path, entries: &[Entry]) -> Result<Vec<Class>> {
    if !entries.iter().any(|entry| entry.is_dir) {
        return Err(none_found(root));
    }
    if let Some(file) = entries.iter().find(|entry| !entry.is_dir) {
        let problem = "it lies among the folders of the classes: move it away";
        return Err(broken(&file.path.display().to_string(), problem.to_owned()));
    }
    if !(2..=MOST_CLASSES).contains(&entries.len()) {
        let problem = format!("{} folders; each is a class, of 2 to {MOST_CLASSES}", entries.len());
        return Err(broken(&root.display().to_string(), problem));
    }
    let class = |entry: &Entry| {
        let files: Vec<PathBuf> = list(&entry.path)?.into_iter().map(|file| file.path).collect();
        if files.is_empty() {
            let problem = "it holds no image: add some, or remove it".to_owned();
            return Err(broken(&entry.path.display().to_string(), problem));
        }
        Ok(Class { name: entry.name.clone(), folder: entry.path.clone(), files })
    };
    entries.iter().map(class).collect()
}

/// What every image becomes.
struct Size {
    shape: ImageShape,
    /// Images of other sizes are resampled, not refused.
    resized: bool,
}

impl Size {
    /// The size asked for, otherwise that of the first image.
    fn of(asked: Option<ImageShape>, classes: &[Class]) -> Result<Self> {
        match asked {
            Some(shape) => Ok(Self { shape, resized: true }),
            None => Ok(Self { shape: decode(&classes[0].files[0])?.shape, resized: false }),
        }
    }

    fn read(&self, classes: &[Class]) -> Result<Vec<Segment>> {
        let segment = |(label, class): (usize, &Class)| {
            Ok(Segment {
                name: class.folder.display().to_string(),
                pixels: Bytes::from(self.decode_all(&class.files)?),
                first: 0,
                stride: self.shape.elements(),
                labels: vec![label as u8; class.files.len()],
            })
        };
        classes.iter().enumerate().map(segment).collect()
    }

    /// The images of these files, one after the other, decoded on all processors.
    fn decode_all(&self, files: &[PathBuf]) -> Result<Vec<u8>> {
        let bytes =
            files.len().checked_mul(self.shape.elements()).filter(|&n| n <= isize::MAX as usize);
        let Some(bytes) = bytes else {
            let folder = files[0].parent().unwrap_or(&files[0]).display().to_string();
            return Err(broken(
                &folder,
                format!("{} images of {} are more than memory holds", files.len(), self.shape),
            ));
        };
        let mut pixels = vec![0; bytes];
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let each = files.len().div_ceil(threads);
        let parts = files.chunks(each).zip(pixels.chunks_mut(each * self.shape.elements()));
        let decoded = side_by_side(parts, |(files, pixels)| {
            let mut images = files.iter().zip(pixels.chunks_exact_mut(self.shape.elements()));
            images.try_for_each(|(file, out)| self.fit(file, out))
        });
        // The first file that is broken, whichever thread was faster.
        decoded.into_iter().collect::<Result<()>>()?;
        Ok(pixels)
    }

    /// Decodes a file and writes it in this size, as planes.
    fn fit(&self, file: &Path, out: &mut [u8]) -> Result<()> {
        let image = catch_unwind(|| decode(file)).unwrap_or_else(|_| {
            Err(broken(&file.display().to_string(), "its decoder panicked".to_owned()))
        })?;
        if !self.resized && image.shape != self.shape {
            let problem = format!(
                "it is {}, and the first image is {}: give the model an image size, which all are resampled to",
                image.shape, self.shape
            );
            return Err(broken(&file.display().to_string(), problem));
        }
        resize(&image, self.shape, out);
        Ok(())
    }
}

/// Decodes a file: grey stays grey, anything else becomes red, green and blue. Transparency is left out.
fn decode(path: &Path) -> Result<Decoded> {
    let shown = || path.display().to_string();
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let extension = extension.to_ascii_lowercase();
    if !["png", "jpg", "jpeg"].contains(&extension.as_str()) {
        let problem = "it is no .png, .jpg or .jpeg file: convert it, or move it away";
        return Err(broken(&shown(), problem.to_owned()));
    }
    let file = read(path)?;
    // Names are often wrong.
    let decoded = match file.get(..4) {
        Some(b"\x89PNG") => decode_png(&file),
        Some([0xff, 0xd8, ..]) => decode_jpeg(&file),
        _ if extension == "png" => decode_png(&file),
        _ => decode_jpeg(&file),
    };
    decoded.map_err(|problem| broken(&shown(), problem))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    files::read(path, limits::TOKENS).map_err(Error::io("read", path))
}

/// Refuses an image that becomes more than a file of this size may.
fn check_size(file: &[u8], sides: [usize; 2], bytes: usize) -> std::result::Result<(), String> {
    if sides.iter().any(|side| !(1..=LONGEST_SIDE).contains(side)) {
        let [height, width] = sides;
        return Err(format!(
            "it is {width} × {height} pixels, and sides are from 1 to {LONGEST_SIDE}"
        ));
    }
    if bytes > MOST_PIXELS {
        return Err("it is larger than 2²⁸ pixels".to_owned());
    }
    Made::of(file.len()).add(bytes)
}

fn decode_png(file: &[u8]) -> std::result::Result<Decoded, String> {
    let refused = |error| format!("it is no PNG that can be read: {error}");
    let limits = png::Limits { bytes: MOST_PIXELS };
    let mut decoder = png::Decoder::new_with_limits(Cursor::new(file), limits);
    decoder.set_transformations(Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().map_err(refused)?;
    let sides = [reader.info().height, reader.info().width].map(|side| side as usize);
    let bytes = reader.output_buffer_size().unwrap_or(usize::MAX);
    check_size(file, sides, bytes)?;
    let mut pixels = vec![0; bytes];
    let info = reader.next_frame(&mut pixels).map_err(refused)?;
    pixels.truncate(info.buffer_size());
    let (found, channels) = match info.color_type {
        ColorType::Grayscale => (1, 1),
        ColorType::GrayscaleAlpha => (2, 1),
        ColorType::Rgb => (3, 3),
        ColorType::Rgba => (4, 3),
        ColorType::Indexed => return Err("its palette could not be expanded".to_owned()),
    };
    if found != channels {
        pixels = pixels.chunks_exact(found).flat_map(|pixel| &pixel[..channels]).copied().collect();
    }
    let (height, width) = (info.height as usize, info.width as usize);
    Decoded::new(ImageShape { channels, height, width }, pixels)
}

fn decode_jpeg(bytes: &[u8]) -> std::result::Result<Decoded, String> {
    let refused = |error| format!("it is no JPEG that can be read: {error}");
    let options =
        DecoderOptions::default().set_max_width(LONGEST_SIDE).set_max_height(LONGEST_SIDE);
    let mut decoder = JpegDecoder::new_with_options(Cursor::new(bytes), options);
    decoder.decode_headers().map_err(refused)?;
    let grey = decoder.input_colorspace() == Some(ColorSpace::Luma);
    let (colours, channels) = if grey { (ColorSpace::Luma, 1) } else { (ColorSpace::RGB, 3) };
    decoder.set_options(options.jpeg_set_out_colorspace(colours));
    let size = decoder.info().map(|info| (usize::from(info.height), usize::from(info.width)));
    let (height, width) = size.ok_or("it has no header")?;
    check_size(bytes, [height, width], height * width * channels)?;
    let pixels = decoder.decode().map_err(refused)?;
    Decoded::new(ImageShape { channels, height, width }, pixels)
}

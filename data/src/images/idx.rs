//! IDX files, as MNIST's: a magic number with dtype and axes, the extents as big-endian u32, then bytes. See
//! <https://github.com/cvdfoundation/mnist>.

#[cfg(not(target_family = "wasm"))]
use std::io::Read as _;
use std::path::Path;

#[cfg(not(target_family = "wasm"))]
use flate2::read::GzDecoder;

use super::{Entry, ImageShape, LONGEST_SIDE, Parts, Segment, broken};
use crate::Result;
use crate::bytes::Bytes;
#[cfg(not(target_family = "wasm"))]
use crate::limits::Made;

/// Third byte of the magic number: unsigned bytes.
const UNSIGNED_BYTE: u8 = 0x08;
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Whether a file holds images: `train-images-idx3-ubyte`, `train-images.idx3-ubyte.gz`.
pub(super) fn is_images(name: &str) -> bool {
    name.strip_suffix(".gz").unwrap_or(name).ends_with("idx3-ubyte")
}

/// Every pair of files of a folder.
pub(super) fn open(entries: &[Entry]) -> Result<Parts> {
    let (mut train, mut test) = (Vec::new(), Vec::new());
    let mut shape: Option<ImageShape> = None;
    for entry in entries.iter().filter(|entry| is_images(&entry.name)) {
        let shown = entry.path.display().to_string();
        let stem = entry.name.strip_suffix(".gz").unwrap_or(&entry.name);
        let labels_name = stem.replace("images", "labels").replace("idx3", "idx1");
        let is_labels =
            |other: &&Entry| other.name.strip_suffix(".gz").unwrap_or(&other.name) == labels_name;
        let Some(labels) = entries.iter().find(is_labels) else {
            return Err(broken(&shown, format!("its labels are missing: {labels_name}")));
        };
        let (own, segment) = pair(
            &shown,
            Bytes::open(&entry.path)?,
            &labels.path.display().to_string(),
            Bytes::open(&labels.path)?,
        )?;
        if let Some(other) = shape.replace(own).filter(|&other| other != own) {
            return Err(broken(
                &shown,
                format!("its images are {own}, and those before are {other}"),
            ));
        }
        let is_test = ["t10k", "test"].iter().any(|prefix| entry.name.starts_with(prefix));
        if is_test { test.push(segment) } else { train.push(segment) }
    }
    Ok(parts(shape, train, test))
}

/// One pair of files.
pub(super) fn of_files(one: &Path, other: &Path) -> Result<Parts> {
    let named =
        |path: &&Path| path.file_name().and_then(|name| name.to_str()).is_some_and(is_images);
    let shown = |path: &Path| path.display().to_string();
    let (images, labels) = match [one, other].iter().position(named) {
        Some(0) => (one, other),
        Some(_) => (other, one),
        None => {
            let problem = "neither it nor the file beside it has a name that ends in idx3-ubyte, as IDX files of images";
            return Err(broken(&shown(one), problem.to_owned()));
        }
    };
    let (shape, segment) =
        pair(&shown(images), Bytes::open(images)?, &shown(labels), Bytes::open(labels)?)?;
    Ok(parts(Some(shape), vec![segment], Vec::new()))
}

/// Images and labels in memory.
pub(super) fn from_bytes(name: &str, images: Bytes, labels: Bytes) -> Result<Parts> {
    let (shape, segment) = pair(name, images, &format!("{name} (labels)"), labels)?;
    Ok(parts(Some(shape), vec![segment], Vec::new()))
}

/// IDX files don't name their classes: those are numbers, up to the largest.
fn parts(shape: Option<ImageShape>, train: Vec<Segment>, test: Vec<Segment>) -> Parts {
    let labels = train.iter().chain(&test).flat_map(|segment| &segment.labels);
    let classes = labels.max().map_or(0, |&largest| usize::from(largest) + 1);
    let shape = shape.unwrap_or(ImageShape { channels: 1, height: 0, width: 0 });
    Parts { shape, classes: (0..classes).map(|class| class.to_string()).collect(), train, test }
}

fn pair(
    name: &str,
    images: Bytes,
    labels_name: &str,
    labels: Bytes,
) -> Result<(ImageShape, Segment)> {
    let (pixels, first, [count, height, width]) = read(name, images)?;
    let (labels, skip, [labelled]) = read(labels_name, labels)?;
    let shape = ImageShape { channels: 1, height, width };
    if !(1..=LONGEST_SIDE).contains(&height) || !(1..=LONGEST_SIDE).contains(&width) {
        return Err(broken(
            name,
            format!("its images are {shape}, and sides are from 1 to {LONGEST_SIDE}"),
        ));
    }
    if count != labelled {
        let problem = format!(
            "it holds {labelled} labels, and {name} holds {count} images: they belong to other files"
        );
        return Err(broken(labels_name, problem));
    }
    let stride = shape.elements();
    let labels = labels[skip..].to_vec();
    Ok((shape, Segment { name: name.to_owned(), pixels, first, stride, labels }))
}

/// Bytes of a file with `AXES` axes, where its elements begin, and its extents.
fn read<const AXES: usize>(name: &str, bytes: Bytes) -> Result<(Bytes, usize, [usize; AXES])> {
    let header = 4 + 4 * AXES;
    if bytes.starts_with(&GZIP) {
        return unpacked(name, &bytes, header);
    }
    let extents = extents(name, &bytes)?;
    let expected = expected(name, header, &extents)?;
    if bytes.len() != expected {
        return Err(length(name, bytes.len(), expected));
    }
    Ok((bytes, header, extents))
}

/// As [`read`], of a file that is packed by gzip.
#[cfg(not(target_family = "wasm"))]
fn unpacked<const AXES: usize>(
    name: &str,
    bytes: &[u8],
    header: usize,
) -> Result<(Bytes, usize, [usize; AXES])> {
    let packed = |error| broken(name, format!("it can't be unpacked: {error}; fetch it again"));
    let mut decoder = GzDecoder::new(bytes);
    let mut unpacked = Vec::new();
    decoder.by_ref().take(header as u64).read_to_end(&mut unpacked).map_err(packed)?;
    let extents = extents(name, &unpacked)?;
    let expected = expected(name, header, &extents)?;
    Made::of(bytes.len()).add(expected).map_err(|problem| broken(name, problem))?;
    // One more shows a file that is too long.
    decoder.take((expected - header) as u64 + 1).read_to_end(&mut unpacked).map_err(packed)?;
    if unpacked.len() != expected {
        return Err(length(name, unpacked.len(), expected));
    }
    Ok((unpacked.into(), header, extents))
}

#[cfg(target_family = "wasm")]
fn unpacked<const AXES: usize>(
    name: &str,
    _: &[u8],
    _: usize,
) -> Result<(Bytes, usize, [usize; AXES])> {
    Err(broken(name, "it is packed: unpack it before, by DecompressionStream".to_owned()))
}

/// The extents in a header.
fn extents<const AXES: usize>(name: &str, bytes: &[u8]) -> Result<[usize; AXES]> {
    let magic = [0, 0, UNSIGNED_BYTE, AXES as u8];
    match bytes.first_chunk::<4>() {
        Some(found) if *found == magic => {}
        Some(found) => {
            let problem = format!(
                "it starts with {found:02x?}, and IDX bytes of {AXES} axes start with {magic:02x?}"
            );
            return Err(broken(name, problem));
        }
        None => return Err(broken(name, format!("it has {} bytes and no header", bytes.len()))),
    }
    let (words, _) = bytes[4..].as_chunks::<4>();
    let Some(words) = words.first_chunk::<AXES>() else {
        return Err(broken(name, format!("its header of {AXES} extents is cut off")));
    };
    Ok(words.map(|word| u32::from_be_bytes(word) as usize))
}

/// Bytes of a file with these extents.
fn expected(name: &str, header: usize, extents: &[usize]) -> Result<usize> {
    let elements = extents.iter().try_fold(1usize, |product, &extent| product.checked_mul(extent));
    let all = elements.and_then(|elements| elements.checked_add(header));
    all.ok_or_else(|| broken(name, format!("its extents {extents:?} are more than memory holds")))
}

fn length(name: &str, found: usize, expected: usize) -> crate::Error {
    let more = if found > expected { "at least " } else { "" };
    broken(
        name,
        format!("it has {more}{found} bytes, and its header counts {expected}; fetch it again"),
    )
}

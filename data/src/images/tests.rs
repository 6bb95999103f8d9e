use std::fs;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::{IGNORED, Loader};

const SAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/images");

fn idx(extents: &[u32], elements: &[u8]) -> Vec<u8> {
    let header = [0, 0, 8, extents.len() as u8];
    let extents = extents.iter().flat_map(|extent| extent.to_be_bytes());
    header.into_iter().chain(extents).chain(elements.iter().copied()).collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// `count` images of 2 × 3 whose first pixel is their number, with labels 0, 1, 2, 0, …
fn numbered(count: u8) -> [Vec<u8>; 2] {
    let images: Vec<u8> = (0..count).flat_map(|i| [i, 1, 2, 3, 4, 5]).collect();
    let labels: Vec<u8> = (0..count).map(|i| i % 3).collect();
    [idx(&[count.into(), 2, 3], &images), idx(&[count.into()], &labels)]
}

fn dataset(count: u8) -> ImageDataset {
    let [images, labels] = numbered(count);
    ImageDataset::from_idx("numbered", images, labels).unwrap()
}

fn config(batch: usize, seed: u64) -> ImageLoaderConfig {
    let normalization = Normalization { mean: vec![0.0], std: vec![1.0 / 255.0] };
    ImageLoaderConfig { batch, seed, normalization }
}

/// Numbers of the images of a batch.
fn numbers(batch: &ImageBatch) -> Vec<u32> {
    batch.images.chunks(6).map(|image| image[0].round() as u32).collect()
}

fn message<T>(result: Result<T>) -> String {
    result.err().expect("refused").to_string()
}

#[test]
fn idx_files_come_packed_or_not_with_a_test_set_or_without() {
    let folder = TempDir::new().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    let [images, labels] = numbered(20);
    write("train-images-idx3-ubyte", &images);
    write("train-labels-idx1-ubyte.gz", &gzip(&labels));
    let alone = ImageDataset::open(folder.path(), None).unwrap();
    let (train, held) = alone.split(0.25).unwrap();
    assert_eq!((train.len(), held.len()), (15, 5));

    let [images, labels] = numbered(7);
    write("t10k-images.idx3-ubyte.gz", &gzip(&images));
    write("t10k-labels.idx1-ubyte", &labels);
    let both = ImageDataset::open(folder.path(), None).unwrap();
    assert_eq!((both.len(), both.classes().len()), (27, 3));
    assert_eq!(both.shape(), ImageShape { channels: 1, height: 2, width: 3 });
    let (train, test) = both.split(0.25).unwrap();
    assert_eq!((train.len(), test.len()), (20, 7));
    assert_eq!(test.get(6).unwrap(), (0, &[6, 1, 2, 3, 4, 5][..]));
    assert!(message(test.get(7)).contains("image index is 7"));
}

#[test]
fn idx_files_that_are_broken_are_refused_with_the_reason() {
    let [images, labels] = numbered(4);
    let refused = |images: &[u8], labels: &[u8]| {
        message(ImageDataset::from_idx("x", images.to_vec(), labels.to_vec()))
    };
    let bomb = gzip(&idx(&[1 << 31, 1 << 15, 1 << 15], &[]));
    for (found, words) in [
        (refused(&images[..30], &labels), "30 bytes, and its header counts 40"),
        (refused(&[&images[..], &[0]].concat(), &labels), "at least 41 bytes"),
        (refused(&gzip(&images[..30]), &labels), "30 bytes, and its header counts 40"),
        (refused(&gzip(&images)[..20], &labels), "can't be unpacked"),
        (refused(&images[..3], &labels), "no header"),
        (refused(&images[..10], &labels), "cut off"),
        (refused(b"PNG\x00", &labels), "start with [00, 00, 08, 03]"),
        (refused(&images, &idx(&[3], &[0, 1, 2])), "3 labels, and x holds 4 images"),
        (refused(&idx(&[0, 2, 3], &[]), &idx(&[0], &[])), "no image to train on"),
        (refused(&idx(&[2, 0, 3], &[]), &idx(&[2], &[0, 0])), "sides are from 1"),
        (refused(&idx(&[u32::MAX; 3], &[]), &labels), "more than memory holds"),
        (refused(&bomb, &labels), "more than its size may become"),
    ] {
        assert!(found.contains(words), "{found}");
    }
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("train-images-idx3-ubyte"), &images).unwrap();
    let found = message(ImageDataset::open(folder.path(), None));
    assert!(found.contains("train-labels-idx1-ubyte"), "{found}");
}

#[test]
fn cifar_10_is_read_and_broken_files_of_it_are_refused() {
    let record = |label: u8, red: u8| [vec![label], vec![red; 1024], vec![7; 2048]].concat();
    let folder = TempDir::new().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    write("data_batch_1.bin", &[record(3, 30), record(9, 90)].concat());
    write("data_batch_2.bin", &record(0, 1));
    write("test_batch.bin", &record(5, 50));
    let data = ImageDataset::open(folder.path(), None).unwrap();
    assert_eq!((data.len(), &*data.classes()[9]), (4, "truck"));
    let (train, test) = data.split(0.5).unwrap();
    let (label, pixels) = train.get(1).unwrap();
    assert_eq!((label, pixels[0], pixels[1023], pixels[1024], pixels.len()), (9, 90, 90, 7, 3072));
    assert_eq!((train.len(), test.len(), test.get(0).unwrap().0), (3, 1, 5));

    let wanted = ImageShape { channels: 3, height: 24, width: 24 };
    assert!(message(ImageDataset::open(folder.path(), Some(wanted))).contains("24 × 24"));
    write("batches.meta.txt", b"a\nb\n");
    assert!(message(ImageDataset::open(folder.path(), None)).contains("names 2 classes"));
    write("batches.meta.txt", b"a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n");
    assert_eq!(ImageDataset::open(folder.path(), None).unwrap().classes()[9], "j");
    write("data_batch_2.bin", &record(10, 1));
    assert!(message(ImageDataset::open(folder.path(), None)).contains("image 0 has label 10"));
    write("data_batch_2.bin", &record(1, 1)[1..]);
    assert!(message(ImageDataset::open(folder.path(), None)).contains("a record's 3073"));
}

/// A folder with a class of each name, and a copy of these samples in each.
fn folders(classes: &[&str], samples: &[&str]) -> TempDir {
    let folder = TempDir::new().unwrap();
    for class in classes {
        fs::create_dir_all(folder.path().join(class)).unwrap();
        for sample in samples {
            let to = folder.path().join(class).join(sample);
            fs::copy(format!("{SAMPLES}/{sample}"), to).unwrap();
        }
    }
    folder
}

#[test]
fn a_folder_per_class_is_decoded() {
    let folder = folders(&["owl", "ant"], &["gradient.png", "gradient.jpg", "palette.png"]);
    let data = ImageDataset::open(folder.path(), None).unwrap();
    assert_eq!(data.classes(), ["ant", "owl"]);
    assert_eq!(data.shape(), ImageShape { channels: 3, height: 16, width: 24 });
    assert_eq!(data.sources().iter().map(|s| s.tokens).collect::<Vec<_>>(), [3, 3]);
    let store = &data.store.segments[1];
    let (jpeg, rest) = store.pixels.split_at(16 * 24 * 3);
    let (png, palette) = rest.split_at(16 * 24 * 3);
    // Planes: red grows along x, green along y.
    assert_eq!([png[0], png[23], png[16 * 24 + 15 * 24]], [0, 230, 225]);
    let off = |image: &[u8]| image.iter().zip(png).map(|(a, b)| a.abs_diff(*b)).max().unwrap();
    assert!(off(jpeg) <= 6 && off(palette) <= 24, "{} {}", off(jpeg), off(palette));
}

#[test]
fn images_of_other_sizes_are_resampled_as_pillow_does() {
    let folder = folders(&["a", "b"], &["gradient.png"]);
    let shape = ImageShape { channels: 3, height: 12, width: 10 };
    let data = ImageDataset::open(folder.path(), Some(shape)).unwrap();
    let expected = folders(&["a", "b"], &["resized.png"]);
    let expected = ImageDataset::open(expected.path(), None).unwrap();
    let [found, expected] = [data, expected].map(|data| data.store.segments[0].pixels.to_vec());
    assert_eq!(found, expected);

    // By what it begins with, whatever its name says.
    let named = folder.path().join("a/gradient.jpg");
    fs::rename(folder.path().join("a/gradient.png"), &named).unwrap();
    let renamed = ImageDataset::open(folder.path(), Some(shape)).unwrap();
    assert_eq!(renamed.store.segments[0].pixels[..], expected);

    let mixed = folders(&["a", "b"], &["resized.png", "gradient.png"]);
    let found = message(ImageDataset::open(mixed.path(), None));
    assert!(found.contains("resized.png: it is 10 × 12 pixels of 3 channels"), "{found}");
    let grey = folders(&["a", "b"], &["grey.jpg"]);
    assert_eq!(ImageDataset::open(grey.path(), None).unwrap().shape().channels, 1);
}

#[test]
fn a_test_set_has_the_classes_of_the_training_set() {
    let folder = folders(&["train/a", "train/b", "val/a", "val/b"], &["grey.jpg"]);
    let data = ImageDataset::open(folder.path(), None).unwrap();
    let (train, test) = data.split(0.0).unwrap();
    assert_eq!((train.len(), test.len(), data.classes().len()), (2, 2, 2));
    fs::rename(folder.path().join("val/b"), folder.path().join("val/c")).unwrap();
    let found = message(ImageDataset::open(folder.path(), None));
    assert!(found.contains("classes are a, c, and those to train on are a, b"), "{found}");
}

#[test]
fn folders_without_images_are_refused_with_the_reason() {
    let refused = |folder: &TempDir| message(ImageDataset::open(folder.path(), None));
    let one = folders(&["a"], &["grey.jpg"]);
    assert!(refused(&one).contains("1 folders"), "{}", refused(&one));
    let empty = folders(&["a", "b"], &[]);
    assert!(refused(&empty).contains("a: it holds no image"), "{}", refused(&empty));
    assert!(refused(&TempDir::new().unwrap()).contains("neither IDX files"));
    let text = folders(&["a", "b"], &["grey.jpg"]);
    fs::write(text.path().join("b/notes.txt"), "x").unwrap();
    assert!(refused(&text).contains("notes.txt: it is no .png"), "{}", refused(&text));
    fs::write(text.path().join("notes.txt"), "x").unwrap();
    assert!(refused(&text).contains("among the folders"), "{}", refused(&text));
    assert!(message(ImageDataset::open("/nowhere", None)).contains("/nowhere"));
    let shape = ImageShape { channels: 2, height: 1, width: 1 };
    assert!(message(ImageDataset::open(one.path(), Some(shape))).contains("1 (grey) or 3"));
    let saved = TempDir::new().unwrap();
    let state = r#"{"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}"#;
    fs::write(saved.path().join("state.json"), state).unwrap();
    let refused = message(ImageDataset::open(saved.path(), None));
    assert!(refused.contains("save_to_disk wrote, whose images aren't read"), "{refused}");
}

#[test]
fn digits_are_compiled_in() {
    let digits = ImageDataset::digits().unwrap();
    assert_eq!(digits.shape(), ImageShape { channels: 1, height: 8, width: 8 });
    assert_eq!((digits.len(), digits.classes().len()), (1797, 10));
    let (train, held) = digits.split(0.2).unwrap();
    assert_eq!((train.len(), held.len()), (1438, 359));
    let mut counts = [0; 10];
    let all = [&train, &held].map(|images| (0..images.len()).map(|i| images.get(i).unwrap()));
    for (label, pixels) in all.into_iter().flatten() {
        counts[usize::from(label)] += 1;
        assert!(pixels.iter().any(|&pixel| pixel > 200));
    }
    // As scikit-learn's documentation has them.
    assert_eq!(counts, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
    let Normalization { mean, std } = train.normalization().unwrap();
    assert!((mean[0] - 0.305).abs() < 0.01 && (std[0] - 0.376).abs() < 0.01, "{mean:?} {std:?}");
}

#[test]
fn held_out_images_are_the_same_in_every_run_and_in_no_training_set() {
    let data = dataset(40);
    let numbers = |images: &Images| -> Vec<u8> {
        (0..images.len()).map(|i| images.get(i).unwrap().1[0]).collect()
    };
    let (train, held) = data.split(0.3).unwrap();
    assert_eq!(numbers(&held), numbers(&dataset(40).split(0.3).unwrap().1));
    let mut all = [numbers(&train), numbers(&held)].concat();
    assert!(!all.is_sorted());
    all.sort_unstable();
    assert_eq!(all, (0..40).collect::<Vec<u8>>());
    let (train, held) = data.split(0.0).unwrap();
    assert_eq!((train.len(), held.len()), (40, 0));
    assert!(message(data.split(1.0)).contains("data.holdout is 1"));
}

#[test]
fn every_epoch_takes_each_image_once_and_goes_on_from_its_position() {
    let (images, _) = dataset(10).split(0.0).unwrap();
    let mut loader = Loader::of_images(images.clone(), config(4, 7), 0).unwrap();
    assert_eq!(loader.epoch_len(), 10);
    let batches: Vec<ImageBatch> = (0..10).map(|_| loader.next().unwrap()).collect();
    let drawn: Vec<u32> = batches.iter().flat_map(numbers).collect();
    for epoch in drawn.chunks(10) {
        let mut sorted = epoch.to_vec();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..10).collect::<Vec<u32>>());
    }
    assert_ne!(drawn[..10], drawn[10..20]);
    for (batch, number) in batches.iter().zip(&drawn) {
        assert!(batch.labels.len() == 4 && *number < 10);
        let of_number = |number: &u32| (number % 3) as i32;
        assert_eq!(batch.labels, numbers(batch).iter().map(of_number).collect::<Vec<_>>());
    }
    let own = vec![false, true, false, true];
    let mut part = Loader::of_own_images(images.clone(), config(4, 7), own, 0).unwrap();
    for batch in &batches {
        let all = numbers(batch);
        assert_eq!(numbers(&part.next().unwrap()), [0, all[1], 0, all[3]]);
    }
    let mut resumed = Loader::of_images(images.clone(), config(4, 7), 20).unwrap();
    assert_eq!(resumed.next().unwrap(), batches[5]);
    assert_eq!(resumed.position(), 24);
    let mut other = Loader::of_images(images.clone(), config(4, 8), 0).unwrap();
    assert_ne!(other.next().unwrap(), batches[0]);

    assert!(message(Loader::of_images(images.clone(), config(0, 7), 0)).contains("train.batch"));
    let mut colours = config(1, 7);
    colours.normalization = Normalization::centred(3);
    assert!(message(Loader::of_images(images, colours, 0)).contains("for each channel"));
}

#[test]
fn held_out_batches_score_each_image_once() {
    let (images, _) = dataset(10).split(0.0).unwrap();
    let batches = ImageBatches::new(images.clone(), config(4, 0), None).unwrap();
    assert_eq!((batches.len(), batches.scored()), (3, 10));
    let batches: Vec<ImageBatch> = batches.map(Result::unwrap).collect();
    assert_eq!(batches[2].labels[2..], [IGNORED; 2]);
    assert_eq!((batches[2].images.len(), batches[2].index), (24, 8));
    let scored: usize =
        batches.iter().flat_map(|batch| &batch.labels).filter(|&&label| label != IGNORED).count();
    assert_eq!(scored, 10);
    let most = ImageBatches::new(images, config(4, 0), Some(2)).unwrap();
    assert_eq!((most.scored(), most.count()), (8, 2));
}

#[test]
fn pixels_are_normalised_channel_by_channel() {
    let normalization = Normalization { mean: vec![0.5, 0.0], std: vec![0.5, 2.0] };
    let mut out = [0.0; 4];
    normalization.apply(&[0, 255, 255, 51], &mut out);
    assert_eq!(out, [-1.0, 1.0, 0.5, 0.1]);
    // A channel of one value can be divided by its deviation.
    let flat = ImageDataset::from_idx("x", idx(&[1, 1, 2], &[51, 51]), idx(&[1], &[0])).unwrap();
    let found = flat.split(0.0).unwrap().0.normalization().unwrap();
    assert_eq!(found, Normalization { mean: vec![0.2], std: vec![1.0] });
}

/// Opens a folder of two classes, one file of which is these bytes.
fn open_with(name: &str, bytes: &[u8]) -> Result<ImageDataset> {
    let folder = folders(&["a", "b"], &["grey.jpg"]);
    fs::write(folder.path().join("b").join(name), bytes).unwrap();
    ImageDataset::open(folder.path(), Some(ImageShape { channels: 1, height: 4, width: 4 }))
}

proptest! {
    #[test]
    fn mutated_files_never_panic(at in 0usize..2000, byte in any::<u8>(), cut in 0usize..2000) {
        let [images, labels] = numbered(9);
        let mutated = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            let len = bytes.len();
            bytes[at % len] = byte;
            bytes.truncate(1 + cut % (2 * len));
            bytes
        };
        let _ = ImageDataset::from_idx("x", mutated(&images), labels.clone());
        let _ = ImageDataset::from_idx("x", images.clone(), mutated(&labels));
        let _ = ImageDataset::from_idx("x", mutated(&gzip(&images)), labels);
        for name in ["gradient.png", "palette.png", "gradient.jpg", "grey.jpg"] {
            let bytes = fs::read(format!("{SAMPLES}/{name}")).unwrap();
            let _ = open_with(name, &mutated(&bytes));
        }
    }

    #[test]
    fn bytes_of_any_kind_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = ImageDataset::from_idx("x", bytes.clone(), bytes.clone());
        for name in ["x.png", "x.jpg"] {
            prop_assert!(message(open_with(name, &bytes)).contains(name));
        }
    }
}

//! Labelled images of a run.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use tightrope_data::{
    DataState, ImageBatch, ImageBatches, ImageDataset, ImageFormat, ImageLoaderConfig, ImageShape,
    Images, Loader, Normalization,
};
use tightrope_nn::{Done, TrainerConfig, VitConfig};

use crate::error::{Error, FILES, Help as _, Result, no_files};
use crate::run::{Batches, Epoch, HeldOut, Samples};
use crate::settings;
use crate::units::human_count;
use crate::weights::preprocessor;

/// What `data.files` says for the images that are built in.
const BUILT_IN: &str = "digits";
const KINDS: &str = "name a folder with a sub-folder of PNG or JPEG files for each class, with IDX files or with \
                     CIFAR-10's binary files; two IDX files, of images and of labels; or digits";
const RESTORE: &str = "restore the files that --data names";
const NEXT: &str = "name other images with --data, or give the model the size of these";

/// Size of the images that a model reads.
pub(crate) fn shape(model: &VitConfig) -> ImageShape {
    let [height, width] = model.image;
    ImageShape { channels: model.colors, height, width }
}

/// The images that the settings name, of this `shape` where it is given; `None` where they name none.
///
/// # Errors
/// Files that are missing, broken, or of images of another size.
pub(super) fn named(
    data: &settings::Data,
    shape: Option<ImageShape>,
) -> Result<Option<ImageDataset>> {
    if data.files.is_empty() {
        return Ok(None);
    }
    if !FILES {
        return Err(Error::usage(no_files(), "leave `data.files` out"));
    }
    let opened = match data.files.as_slice() {
        files if is_built_in(files) => return built_in(shape).map(Some),
        [folder] => ImageDataset::open(folder, shape),
        [one, other] => ImageDataset::open_idx(one, other, shape),
        more => {
            return Err(Error::usage(
                anyhow!("`data.files` names {} files, and images are in one folder", more.len()),
                KINDS,
            ));
        }
    };
    opened.help(KINDS).map(Some)
}

/// Returns `true` if the settings name the images that are built in.
pub(super) fn is_built_in(files: &[PathBuf]) -> bool {
    matches!(files, [name] if name == Path::new(BUILT_IN) && !name.exists())
}

/// scikit-learn's digits, where the model reads images of their `shape`.
#[cfg(not(target_family = "wasm"))]
fn built_in(shape: Option<ImageShape>) -> Result<ImageDataset> {
    let digits = ImageDataset::digits().help(NEXT)?;
    match shape {
        Some(shape) => digits.of_shape(shape).help(NEXT),
        None => Ok(digits),
    }
}

/// A page gives the images that it fetched.
#[cfg(target_family = "wasm")]
fn built_in(_: Option<ImageShape>) -> Result<ImageDataset> {
    Err(Error::usage(anyhow!("no images are compiled into this build"), "give them"))
}

/// Labelled images, opened.
pub struct LabelledImages {
    dataset: ImageDataset,
    train: Images,
    held_out: Images,
    format: ImageFormat,
    origin: String,
    holdout: f64,
    loader: Option<Loader<ImageBatch>>,
    /// Which samples of a batch are this rank's; all, where nothing is said.
    own: Vec<bool>,
}

impl LabelledImages {
    /// Opens the images that the settings name for `model`, or takes those that are `opened` already; where the settings
    /// name none, the digits that are built in. Without a `normalization`, it's that of the images to train on.
    ///
    /// # Errors
    /// Files that are missing, broken, or of images of another size, and more classes than the model has.
    pub fn open(
        data: &settings::Data,
        model: &VitConfig,
        opened: Option<ImageDataset>,
        normalization: Option<Normalization>,
    ) -> Result<Self> {
        let shape = shape(model);
        let dataset = match opened {
            Some(dataset) => dataset.of_shape(shape).help(NEXT)?,
            None => match named(data, Some(shape))? {
                Some(dataset) => dataset,
                None => built_in(Some(shape))?,
            },
        };
        let classes = dataset.classes().len();
        if classes > model.classes {
            return Err(Error::usage(
                anyhow!(
                    "the images are of {classes} classes, and the model knows {}",
                    model.classes
                ),
                "name other images with --data, or start a new model, which takes the classes of its data",
            ));
        }
        let origin = match data.files.as_slice() {
            [] => BUILT_IN.to_owned(),
            [first, ..] => first.display().to_string(),
        };
        let holdout = data.holdout;
        let (train, held_out) = dataset.split(holdout).help("check data.holdout")?;
        let normalization = match normalization {
            Some(normalization) => normalization,
            None => train.normalization().help(RESTORE)?,
        };
        let classes = dataset.classes().to_vec();
        let format = ImageFormat { shape: dataset.shape(), normalization, classes };
        let (loader, own) = (None, vec![]);
        Ok(Self { dataset, train, held_out, format, origin, holdout, loader, own })
    }

    /// The data's name.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Samples of what is held out where something is, else of everything, and how many images those are.
    ///
    /// # Errors
    /// A broken file.
    pub fn scored(&self, config: &TrainerConfig) -> Result<(HeldOut, usize)> {
        let scored = if self.held_out.is_empty() { &self.train } else { &self.held_out };
        Ok((self.in_order_of(scored, config, None)?, scored.len()))
    }

    fn order(&self, batch: usize, seed: u64) -> ImageLoaderConfig {
        ImageLoaderConfig { batch, seed, normalization: self.format.normalization.clone() }
    }

    /// The images in order, or the first `most` of them.
    fn in_order_of(
        &self,
        images: &Images,
        config: &TrainerConfig,
        most: Option<usize>,
    ) -> Result<HeldOut> {
        let images = ImageBatches::new(images.clone(), self.order(1, config.seed), most);
        Ok(Box::new(images.help(RESTORE)?.map(|image| Ok(image.help("restore the data")?.into()))))
    }
}

impl Batches for LabelledImages {
    fn seek(&mut self, config: &TrainerConfig, at: Done) -> Result<()> {
        if self.loader.as_ref().is_none_or(|loader| loader.position() != at.samples) {
            let order = self.order(config.batch, config.seed);
            // The one before has a thread of its own, which ends first.
            self.loader = None;
            let loader =
                Loader::of_own_images(self.train.clone(), order, self.own.clone(), at.samples);
            self.loader = Some(loader.help("give more --data, or a smaller data.holdout")?);
        }
        Ok(())
    }

    #[cfg(not(target_family = "wasm"))]
    fn share(&mut self, own: Vec<bool>) {
        (self.own, self.loader) = (own, None);
    }

    fn batch(&mut self, config: &TrainerConfig, at: Done) -> Result<Samples> {
        self.seek(config, at)?;
        let loader = self.loader.as_mut().expect("`seek` leaves one");
        Ok(loader.next().help("restore the data, then resume the run")?.into())
    }

    fn epoch(&self, _: &TrainerConfig) -> Result<Option<Epoch>> {
        Ok(Some(Epoch { samples: self.train.len() as u64, unit: ["image", "images"] }))
    }

    fn held_out(&self, config: &TrainerConfig, most: Option<usize>) -> Result<HeldOut> {
        self.in_order_of(&self.held_out, config, most)
    }

    fn state(&self, samples: u64) -> DataState {
        self.dataset.state(samples, self.holdout)
    }

    fn files(&self) -> Vec<(String, Vec<u8>)> {
        let text = preprocessor::text(&self.format.normalization, self.format.shape);
        vec![(preprocessor::FILE.to_owned(), text)]
    }

    fn images(&self) -> Option<&ImageFormat> {
        Some(&self.format)
    }

    fn describe(&self) -> String {
        let count = |images: &Images| human_count(images.len() as f64);
        format!(
            "{}: {} images to train on, {} held out, {} classes",
            self.origin,
            count(&self.train),
            count(&self.held_out),
            self.dataset.classes().len(),
        )
    }
}

#[cfg(test)]
mod tests {
    use tightrope_nn::{Architecture, Planned};

    use super::*;
    use crate::backends::Cpu;
    use crate::devices::Devices;
    use crate::recipe::Recipe;
    use crate::run::{Opening, Run};
    use crate::settings::Settings;

    fn model() -> VitConfig {
        match Architecture::preset("vit-tiny").unwrap() {
            Architecture::Vit(model) => model,
            other => panic!("{other:?} reads no images"),
        }
    }

    #[test]
    fn every_image_is_trained_on_or_held_out() {
        let data = settings::Data::default();
        let mut images = LabelledImages::open(&data, &model(), None, None).unwrap();
        assert_eq!(images.describe(), "digits: 1.62k images to train on, 179 held out, 10 classes");
        let config = TrainerConfig {
            batch: 32,
            micro_batch: 8,
            ..TrainerConfig::new(model().build().unwrap())
        };
        Planned::new(&config, &Cpu::new(1).unwrap()).unwrap();
        let first = images.batch(&config, Done::default()).unwrap();
        assert_eq!(first.counted, 32);
        let next = Done { samples: 32, ..Done::default() };
        let second = images.batch(&config, next).unwrap();
        assert_ne!(first, second);
        assert_eq!(images.batch(&config, next).unwrap(), second);
        assert_eq!(images.batch(&config, Done::default()).unwrap(), first);
        let held_out = images.held_out(&config, None).unwrap();
        assert_eq!(held_out.map(|batch| batch.unwrap().counted).sum::<usize>(), 179);
        let few = images.held_out(&config, Some(20)).unwrap();
        assert_eq!(few.map(|batch| batch.unwrap().counted).sum::<usize>(), 20);
    }

    #[test]
    fn images_that_do_not_fit_the_model_are_refused() {
        let data = settings::Data::default();
        let small = VitConfig { classes: 9, ..model() };
        let error = LabelledImages::open(&data, &small, None, None).err().unwrap();
        assert!(error.message().contains("10 classes, and the model knows 9"), "{error}");
        let large = VitConfig { image: [16; 2], ..model() };
        let error = LabelledImages::open(&data, &large, None, None).err().unwrap();
        assert!(error.message().contains("the model reads 16 × 16 pixels"), "{error}");
        let files = vec!["a".into(), "b".into(), "c".into()];
        let error = named(&settings::Data { files, ..data }, None).err().unwrap();
        assert!(error.message().contains("3 files, and images are in one folder"), "{error}");
    }

    #[test]
    fn classes_of_images_are_told_between_steps() {
        let mut said = Settings::default();
        for word in ["model.preset=vit-tiny", "model.layers=1", "train.steps=20", "run.device=cpu"]
        {
            said.read_argument(word).unwrap();
        }
        let recipe = Recipe::new(&said).unwrap();
        let device = Devices::default().open(&recipe.step.device).unwrap();
        let planned = recipe.plan(device).unwrap();
        let reopen = || -> Opening<'static> { unreachable!("the processor isn't lost") };
        let parts = planned.parts(Box::new(reopen)).unwrap();
        let mut run = Run::start(parts).unwrap();
        let (ring, bar) = ([[0u8; 32], [200; 32]].concat(), [200u8, 0].repeat(32));
        let before = run.classify(&[&ring]).unwrap();
        run.by_ref().take(10).for_each(|step| drop(step.unwrap()));
        // More than a pass takes.
        let many: Vec<&[u8]> =
            (0..40).map(|index| if index < 33 { &ring[..] } else { &bar[..] }).collect();
        let found = run.classify(&many).unwrap();
        assert_eq!((found.len(), found[0].len()), (40, 10));
        assert!(found.iter().all(|row| (row.iter().sum::<f32>() - 1.0).abs() < 1e-5));
        assert_eq!(found[0], found[32]);
        assert_ne!(found[0], found[33]);
        assert_ne!(found[0], before[0]);
        let error = run.classify(&[&ring[1..]]).unwrap_err();
        assert!(error.message().contains("bytes of an image"), "{error}");
    }
}

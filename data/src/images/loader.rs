//! Batches of images: shuffled for training, in order for evaluation.

use super::{Images, Normalization};
use crate::loader::{IGNORED, Loader, check_position, is_own};
use crate::permutation::{Permutation, mix};
use crate::{Error, Result};

/// B images and the class of each.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageBatch {
    /// Normalised pixels, (B, channels, height, width) row-major.
    pub images: Vec<f32>,
    /// Class of each image, (B); [`IGNORED`] where there is none to score.
    pub labels: Vec<i32>,
    /// Position of the first image: the number of images that came before this batch.
    pub index: u64,
}

/// What a [`Loader`] of images yields.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageLoaderConfig {
    /// Images per batch (B).
    pub batch: usize,
    /// Chooses the order of the images.
    pub seed: u64,
    /// What pixels become.
    pub normalization: Normalization,
}

impl ImageLoaderConfig {
    fn check(&self, images: &Images) -> Result<()> {
        let setting = |what, value: String, domain| Err(Error::Setting { what, value, domain });
        let elements = self.batch.checked_mul(images.shape().elements());
        if self.batch == 0 || elements.is_none_or(|n| n > isize::MAX as usize / 4) {
            let domain = "at least 1, and small enough for a batch to fit the address space";
            return setting("train.batch", self.batch.to_string(), domain);
        }
        let Normalization { mean, std } = &self.normalization;
        let usable = |&std: &f32| std.is_finite() && std > 0.0;
        let channels = images.shape().channels;
        if mean.len() != channels || std.len() != channels || !std.iter().all(usable) {
            let domain = "a mean and a standard deviation above 0 for each channel";
            return setting("normalization", format!("{mean:?}, {std:?}"), domain);
        }
        Ok(())
    }

    /// Adds an image to a batch.
    fn push(&self, images: &Images, index: usize, batch: &mut ImageBatch) -> Result<()> {
        let (label, pixels) = images.get(index)?;
        let start = batch.images.len();
        batch.images.resize(start + pixels.len(), 0.0);
        self.normalization.apply(pixels, &mut batch.images[start..]);
        batch.labels.push(label.into());
        Ok(())
    }
}

impl Loader<ImageBatch> {
    /// A loader over `images` that has consumed `position` of them. Every epoch takes each image once, in an order
    /// that follows from seed and epoch; a batch may end one epoch and begin the next.
    ///
    /// # Errors
    /// A batch of 0, no images, a normalization of other channels, a position of 2⁶³ and more.
    pub fn of_images(images: Images, config: ImageLoaderConfig, position: u64) -> Result<Self> {
        Self::of_own_images(images, config, vec![], position)
    }

    /// The same for a process that has a part of each batch, as [`Loader::of_rows`].
    ///
    /// # Errors
    /// As [`Loader::of_images`].
    pub fn of_own_images(
        images: Images,
        config: ImageLoaderConfig,
        own: Vec<bool>,
        position: u64,
    ) -> Result<Self> {
        config.check(&images)?;
        check_position(position)?;
        if images.is_empty() {
            return Err(super::broken("the dataset", "it holds no image to train on".to_owned()));
        }
        let (count, batch) = (images.len() as u64, config.batch);
        let mut sampler = Sampler::new(images, (config, own), position);
        Ok(Self::start(move || sampler.next(), count, batch, position))
    }
}

/// Makes batch after batch.
#[derive(Clone)]
struct Sampler {
    images: Images,
    config: ImageLoaderConfig,
    own: Vec<bool>,
    position: u64,
    epoch: u64,
    order: Permutation,
}

impl Sampler {
    fn new(images: Images, (config, own): (ImageLoaderConfig, Vec<bool>), position: u64) -> Self {
        let epoch = position / images.len() as u64;
        let order = order(images.len(), config.seed, epoch);
        Self { images, config, own, position, epoch, order }
    }

    fn next(&mut self) -> Result<ImageBatch> {
        let mut batch = ImageBatch { images: vec![], labels: vec![], index: self.position };
        batch.images.reserve(self.config.batch * self.images.shape().elements());
        let count = self.images.len() as u64;
        for row in 0..self.config.batch {
            let epoch = self.position / count;
            if epoch != self.epoch {
                (self.epoch, self.order) =
                    (epoch, order(self.images.len(), self.config.seed, epoch));
            }
            if is_own(&self.own, row) {
                let index = self.order.get(self.position % count) as usize;
                self.config.push(&self.images, index, &mut batch)?;
            } else {
                let elements = (row + 1) * self.images.shape().elements();
                batch.images.resize(elements, 0.0);
                batch.labels.push(0);
            }
            self.position += 1;
        }
        Ok(batch)
    }
}

/// Order of the images in one epoch.
fn order(count: usize, seed: u64, epoch: u64) -> Permutation {
    Permutation::new(count as u64, mix(mix(seed) ^ epoch))
}

/// Held-out images in order, each once. The last batch is filled up with [`IGNORED`] labels (pixels 0).
#[derive(Clone, Debug)]
pub struct ImageBatches {
    images: Images,
    config: ImageLoaderConfig,
    next: usize,
    end: usize,
}

impl ImageBatches {
    /// The images in batches as `config` has them, whose seed isn't used; at most `max_batches` where given.
    ///
    /// # Errors
    /// A batch of 0, and a normalization of other channels.
    pub fn new(
        images: Images,
        config: ImageLoaderConfig,
        max_batches: Option<usize>,
    ) -> Result<Self> {
        config.check(&images)?;
        let most = max_batches.map_or(usize::MAX, |most| most.saturating_mul(config.batch));
        let end = images.len().min(most);
        Ok(Self { images, config, next: 0, end })
    }

    /// Images that will be scored over all batches.
    pub fn scored(&self) -> usize {
        self.end
    }
}

impl Iterator for ImageBatches {
    type Item = Result<ImageBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next == self.end {
            return None;
        }
        let first = self.next;
        let rows = self.config.batch.min(self.end - first);
        self.next += rows;
        let mut batch = ImageBatch { images: vec![], labels: vec![], index: first as u64 };
        for index in first..first + rows {
            if let Err(error) = self.config.push(&self.images, index, &mut batch) {
                self.next = self.end;
                return Some(Err(error));
            }
        }
        batch.images.resize(self.config.batch * self.images.shape().elements(), 0.0);
        batch.labels.resize(self.config.batch, IGNORED);
        Some(Ok(batch))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.end - self.next).div_ceil(self.config.batch);
        (left, Some(left))
    }
}

impl ExactSizeIterator for ImageBatches {}

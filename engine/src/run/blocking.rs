//! The blocking face of a run, for native programs.

use super::{Evaluation, Parts, Run, Stepped};
use crate::block_on;
use crate::error::Result;
use crate::figures::RankStep;

impl<'a> Run<'a> {
    /// [`Run::start_async`], which blocks.
    ///
    /// # Errors
    /// As [`Run::start_async`].
    pub fn start(parts: Parts<'a>) -> Result<Self> {
        block_on(Self::start_async(parts))
    }

    /// [`Run::evaluate_async`], which blocks.
    ///
    /// # Errors
    /// As [`Run::evaluate_async`].
    pub fn evaluate(&mut self, most: Option<usize>) -> Result<Option<Evaluation>> {
        block_on(self.evaluate_async(most))
    }

    /// [`Run::classify_texts_async`], which blocks.
    ///
    /// # Errors
    /// As [`Run::classify_texts_async`].
    pub fn classify_texts(&mut self, texts: &[(&str, Option<&str>)]) -> Result<Vec<Vec<f32>>> {
        block_on(self.classify_texts_async(texts))
    }

    /// [`Run::classify_async`], which blocks.
    ///
    /// # Errors
    /// As [`Run::classify_async`].
    pub fn classify(&mut self, images: &[&[u8]]) -> Result<Vec<Vec<f32>>> {
        block_on(self.classify_async(images))
    }

    /// [`Run::sample_async`], which blocks.
    ///
    /// # Errors
    /// As [`Run::sample_async`].
    pub fn sample(&mut self) -> Result<Option<String>> {
        block_on(self.sample_async())
    }

    /// [`Run::finish_async`], which blocks.
    ///
    /// # Errors
    /// As [`Run::finish_async`].
    pub fn finish(&mut self) -> Result<(Option<Evaluation>, Option<String>)> {
        block_on(self.finish_async())
    }

    /// Keeps when this rank waits for others in a step, for [`Run::rank_steps`].
    ///
    /// # Errors
    /// Those of the device.
    pub fn keep_waits(&mut self) -> Result<()> {
        block_on(self.keep_waits_async())
    }

    /// The last step of each rank, in the order of ranks; nothing where there are no others. All ranks ask for it together.
    ///
    /// # Errors
    /// A rank that doesn't answer.
    pub fn rank_steps(&mut self) -> Result<Vec<RankStep>> {
        block_on(self.rank_steps_async())
    }

    /// [`Run::save_async`], which blocks.
    ///
    /// # Errors
    /// As [`Run::save_async`].
    pub fn save(&mut self) -> Result<()> {
        block_on(self.save_async())
    }
}

impl Iterator for Run<'_> {
    type Item = Result<Stepped>;

    /// [`Run::step_async`], which blocks.
    fn next(&mut self) -> Option<Self::Item> {
        block_on(self.step_async()).transpose()
    }
}

//! Problems with known answers, as the data of a run.

use tightrope_data::{DataState, LoaderConfig, Tokenizer, Toy, ToyTask};
use tightrope_nn::{Done, TrainerConfig};

use crate::error::{Help as _, Result};
use crate::run::{Batches, HeldOut, Samples};

/// Held-out tokens that are scored where nobody says how many: there are always more problems.
const SCORED: usize = 1 << 15;

/// A task with known answers. Its problems are made where they are needed.
///
/// ```
/// use tightrope::data::Toy;
/// use tightrope::recipe::{Recipe, Task};
/// use tightrope::settings::Settings;
///
/// let mut said = Settings::default();
/// said.read_argument("model.preset=tiny")?;
/// let task = Task::new(Toy::Sort, 0.1);
/// let recipe = Recipe::on(&said, Box::new(task), None)?;
/// let problem = task.problems(&recipe.step.config)?.held_out(0);
/// assert_eq!(problem.question.len(), "hbdabc>".len());
/// # Ok::<(), tightrope::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Task {
    toy: Toy,
    holdout: f64,
}

impl Task {
    /// Problems of one kind, a fraction `holdout` of which isn't trained on.
    pub fn new(toy: Toy, holdout: f64) -> Self {
        Self { toy, holdout }
    }

    /// The problems that a run of `config` is trained on, and those that it isn't.
    ///
    /// # Errors
    /// Sequences that no problem fits, and a part held out that leaves too few problems.
    pub fn problems(&self, config: &TrainerConfig) -> Result<ToyTask> {
        self.rows(config, config.batch)
    }

    fn rows(&self, config: &TrainerConfig, batch: usize) -> Result<ToyTask> {
        let order = LoaderConfig { batch, context: config.model.tokens(), seed: config.seed };
        ToyTask::new(self.toy, order, self.holdout).help("change the setting that it names")
    }
}

impl Batches for Task {
    fn seek(&mut self, config: &TrainerConfig, _: Done) -> Result<()> {
        Task::problems(self, config).map(drop)
    }

    fn batch(&mut self, config: &TrainerConfig, at: Done) -> Result<Samples> {
        Ok(Task::problems(self, config)?.batch(at.samples).into())
    }

    fn held_out(&self, config: &TrainerConfig, most: Option<usize>) -> Result<HeldOut> {
        let problems = self.rows(config, 1)?;
        let rows = (most.unwrap_or(SCORED) / config.model.tokens()).max(1) as u64;
        Ok(Box::new((0..rows).map(move |row| Ok(problems.held_out_batch(row).into()))))
    }

    fn state(&self, samples: u64) -> DataState {
        self.toy.state(samples, self.holdout)
    }

    fn tokenizer(&self) -> Option<&Tokenizer> {
        Some(&Tokenizer::Byte)
    }

    fn problems(&self, config: &TrainerConfig) -> Result<Option<ToyTask>> {
        Task::problems(self, config).map(Some)
    }

    fn describe(&self) -> String {
        format!("the task `{}`", self.toy.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::Step;
    use crate::settings::Settings;

    #[test]
    fn batches_follow_from_how_far_a_run_has_come_and_what_is_held_out_from_nothing_else() {
        let mut settings = Settings::default();
        for words in ["model.preset=tiny", "train.batch=4", "train.micro_batch=2"] {
            settings.read_argument(words).unwrap();
        }
        let config = Step::of(&settings).unwrap().config;
        let mut task = Task::new(Toy::Reverse, 0.1);
        let at = |samples| Done { samples, ..Done::default() };
        let second = task.batch(&config, at(4)).unwrap();
        assert_eq!(task.batch(&config, at(4)).unwrap(), second);
        assert_ne!(task.batch(&config, at(0)).unwrap(), second);
        let held_out = |most| -> Vec<Samples> {
            task.held_out(&config, most).unwrap().map(Result::unwrap).collect()
        };
        let few = held_out(Some(4 * config.model.tokens()));
        assert_eq!(few.len(), 4);
        assert_eq!(held_out(None)[..4], few);
        assert!(few.iter().all(|batch| batch.counted > 0 && *batch != second));
    }

    #[test]
    fn sequences_that_no_problem_fits_are_refused_before_a_step() {
        let mut settings = Settings::default();
        settings.read_argument("model.context=8").unwrap();
        let config = Step::of(&settings).unwrap().config;
        let refusal = Task::new(Toy::Sort, 0.1).seek(&config, Done::default()).unwrap_err();
        assert!(refusal.message().contains("model.context is 8"), "{refusal}");
    }
}

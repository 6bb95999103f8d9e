//! The number of steps of a run: the one that is said, or that of passes over its data.

use tightrope_nn::defaults;

use super::Step;
use super::images::is_built_in;
use crate::error::{Error, Result};
use crate::run::{Batches, Epoch};
use crate::settings::{LARGEST, Settings};
use crate::units::plural;

/// Passes over rows, labelled texts and images of the user, if the settings name neither steps nor passes: as in transformers.
const EPOCHS: f64 = 3.0;

/// Length of a run as the settings say it, before its data is open.
pub(super) struct Length {
    steps: Option<u64>,
    epochs: Option<f64>,
    warmup: Option<u64>,
}

impl Length {
    /// Takes it from the settings. Until [`Length::settle`] they have a number of steps that no warmup exceeds.
    pub fn of(settings: &mut Settings) -> Self {
        settings.keep_one_length();
        let train = &mut settings.train;
        let length = Self { steps: train.steps, epochs: train.epochs.take(), warmup: train.warmup };
        train.steps.get_or_insert(LARGEST as u64);
        length
    }

    /// A length that the settings say already.
    pub fn known(settings: &Settings) -> Self {
        let train = &settings.train;
        Self { steps: train.steps, epochs: None, warmup: train.warmup }
    }

    /// Writes the number of steps and their schedule to the settings and the step. Returns a note for a number that follows from
    /// the data, or that nobody says.
    ///
    /// # Errors
    /// Passes over data without a known end, too many steps, and a warmup of more.
    pub fn settle(
        self,
        settings: &mut Settings,
        step: &mut Step,
        data: &dyn Batches,
    ) -> Result<Option<String>> {
        if self.steps.is_some() {
            return Ok(None);
        }
        let (batch, epoch) = (step.config.batch, data.epoch(&step.config)?);
        let own = !settings.data.files.is_empty() && !is_built_in(&settings.data.files);
        let (steps, note) = match (self.epochs, epoch) {
            (Some(epochs), Some(epoch)) => {
                let steps = counted(settings, epoch.steps(epochs, batch))?;
                (steps, Some(of_epochs(epochs, &epoch, batch, steps)))
            }
            (Some(_), None) => {
                let message = format!(
                    "`train.epochs` counts passes over the data, and {} has no end that is known",
                    data.describe()
                );
                return Err(settings.error(&["train.epochs"], message, "give --steps").into());
            }
            (None, Some(epoch)) if own => {
                let passes = epoch.steps(EPOCHS, batch).min(LARGEST as f64) as u64;
                // A text is trained on in more passes unless a trained model starts on it.
                let fits = epoch.unit != Epoch::WINDOWS
                    || (settings.model.init.is_some() && passes < defaults::STEPS);
                let told = match fits {
                    true => of_epochs(EPOCHS, &epoch, batch, passes),
                    false => in_epochs(defaults::STEPS, &epoch, batch),
                };
                let steps = if fits { passes } else { defaults::STEPS };
                (steps, Some(format!("neither --steps nor --epochs is given: {told}")))
            }
            (None, _) => (defaults::STEPS, None),
        };
        settings.train.steps = Some(steps);
        settings.train.warmup = self.warmup.or(Some(defaults::warmup(steps)));
        settings.check()?;
        step.rate = settings.train.learning_rate();
        step.rate.check()?;
        Ok(note)
    }
}

/// Refuses what goes by the held-out loss if nothing is held out.
///
/// # Errors
/// [`Retention`](crate::run::Retention) by loss, and no data to evaluate on.
pub(super) fn check_held_out(settings: &Settings) -> Result<()> {
    #[cfg(not(target_family = "wasm"))]
    let read_once = super::piped::is(&settings.data.files);
    #[cfg(target_family = "wasm")]
    let read_once = false;
    let data = &settings.data;
    let nothing = data.validation.is_empty() && (data.holdout == 0.0 || read_once);
    let key = ["train.patience", "run.keep_best"].into_iter().find(|key| settings.is_changed(key));
    let Some(key) = key.filter(|_| nothing) else { return Ok(()) };
    let message = format!("`{key}` goes by the held-out loss, and nothing is held out");
    let help = "hold a part of the data out with data.holdout, or name files with --validation";
    Err(settings.error(&[key, "data.holdout"], message, help).into())
}

/// A note if evaluations are too rare for what goes by them, by settings that are filled in.
pub(super) fn note_on_evaluations(settings: &Settings) -> Option<String> {
    let (steps, every) = (settings.train.steps?, settings.run.eval_every);
    let patience = settings.train.patience;
    if patience > 0 && every.saturating_mul(patience.saturating_add(1)) >= steps {
        return Some(format!(
            "`train.patience` can't end this run before its {steps} steps, with an evaluation every {every}: a smaller --eval-every can"
        ));
    }
    let one = settings.run.keep_best && every >= steps;
    one.then(|| {
        format!(
            "`run.keep_best` chooses among evaluations every {every} steps, and the run has {steps}: a smaller --eval-every makes some"
        )
    })
}

/// A number of steps that a run may have.
fn counted(settings: &Settings, steps: f64) -> Result<u64> {
    if steps <= LARGEST as f64 {
        return Ok(steps as u64);
    }
    let message =
        format!("`train.epochs` comes to {steps:e} steps, and a run has at most {LARGEST}");
    Err(Error::from(settings.error(&["train.epochs"], message, "give fewer epochs")))
}

fn of_epochs(epochs: f64, epoch: &Epoch, batch: usize, steps: u64) -> String {
    let [one, many] = epoch.unit;
    let samples = plural(epoch.samples as usize, one, many);
    let passes = if epochs == 1.0 { "1 epoch".to_owned() } else { format!("{epochs} epochs") };
    let steps = plural(steps as usize, "step", "steps");
    format!("{passes} of {samples} in batches of {batch}: {steps}")
}

fn in_epochs(steps: u64, epoch: &Epoch, batch: usize) -> String {
    let [one, many] = epoch.unit;
    let samples = plural(epoch.samples as usize, one, many);
    let epochs = steps as f64 * batch as f64 / epoch.samples.max(1) as f64;
    format!("{steps} steps in batches of {batch}, {epochs:.1} epochs of {samples}")
}

#[cfg(test)]
mod tests {
    use tightrope_data::DataState;
    use tightrope_nn::{Done, TrainerConfig};

    use super::*;
    use crate::run::Samples;

    /// Data of which nothing but the length of a pass is known.
    struct Passed(Option<Epoch>);

    impl Batches for Passed {
        fn batch(&mut self, _: &TrainerConfig, _: Done) -> Result<Samples> {
            Ok(Samples::new(0))
        }

        fn epoch(&self, _: &TrainerConfig) -> Result<Option<Epoch>> {
            Ok(self.0)
        }

        fn state(&self, samples: u64) -> DataState {
            DataState::new(samples, &[], "", 0.0)
        }

        fn describe(&self) -> String {
            "a pipe".to_owned()
        }
    }

    const ROWS: Option<Epoch> = Some(Epoch { samples: 100, unit: ["row", "rows"] });
    const WINDOWS: Option<Epoch> = Some(Epoch { samples: 100, unit: Epoch::WINDOWS });

    fn settled(words: &[&str], epoch: Option<Epoch>) -> Result<(Settings, Step, Option<String>)> {
        let mut settings = Settings::default();
        for words in ["model.preset=tiny", "train.batch=8"].iter().chain(words) {
            settings.read_argument(words)?;
        }
        let length = Length::of(&mut settings);
        // Neither the files nor the weights are there.
        let (init, files) = (settings.model.init.take(), std::mem::take(&mut settings.data.files));
        let mut step = Step::of(&settings)?;
        let mut settings = crate::recipe::complete(&settings)?;
        (settings.model.init, settings.data.files) = (init, files);
        let note = length.settle(&mut settings, &mut step, &Passed(epoch))?;
        assert_eq!(settings.train.steps, Some(step.rate.steps));
        assert_eq!(settings.train.epochs, None);
        Ok((settings, step, note))
    }

    /// 1,850 steps were 148 passes over 100 rows.
    #[test]
    fn steps_follow_from_the_data() {
        let steps = |words: &[&str], epoch| settled(words, epoch).unwrap().1.rate.steps;
        let file = "data.files=[\"a.jsonl\"]";
        for (words, epoch, expected) in [
            (&["train.epochs=1"][..], ROWS, 13),
            // 100 ÷ 8 · 2, where transformers, which ends a pass by a smaller batch, makes 26.
            (&["train.epochs=2"], ROWS, 25),
            (&["train.epochs=0.5"], ROWS, 7),
            (&["train.epochs=1e-6"], ROWS, 1),
            // In f64, 0.56 · 100 ÷ 8 is a little more than 7.
            (&["train.epochs=0.56"], ROWS, 7),
            (&["train.epochs=1"], WINDOWS, 13),
            (&[file], ROWS, 38),
            (&[file, "train.steps=5"], ROWS, 5),
            (&[file], WINDOWS, defaults::STEPS),
            (&[file, "model.init=m"], WINDOWS, 38),
            (
                &[file, "model.init=m", "train.batch=8"],
                Some(Epoch { samples: 1 << 30, unit: Epoch::WINDOWS }),
                defaults::STEPS,
            ),
            (&[file], None, defaults::STEPS),
            (&[], ROWS, defaults::STEPS),
        ] {
            assert_eq!(steps(words, epoch), expected, "{words:?}");
        }
    }

    #[test]
    fn the_schedule_is_that_of_the_steps() {
        let (settings, step, note) = settled(&["train.epochs=32"], ROWS).unwrap();
        assert_eq!(step.rate.steps, 400);
        assert_eq!((settings.train.warmup, step.rate.warmup), (Some(20), 20));
        assert_eq!(note.unwrap(), "32 epochs of 100 rows in batches of 8: 400 steps");
        let (_, step, _) = settled(&["train.epochs=200", "train.warmup=2000"], ROWS).unwrap();
        assert_eq!((step.rate.steps, step.rate.warmup), (2500, 2000));
        let error = settled(&["train.epochs=1", "train.warmup=20"], ROWS).err().unwrap();
        assert!(error.message().contains("`train.warmup` is 20, more than the 13"), "{error}");
    }

    #[test]
    fn a_default_is_told() {
        let note = |words: &[&str], epoch| settled(words, epoch).unwrap().2;
        let file = "data.files=[\"a.jsonl\"]";
        assert_eq!(
            note(&[file], ROWS).unwrap(),
            "neither --steps nor --epochs is given: 3 epochs of 100 rows in batches of 8: 38 steps"
        );
        assert_eq!(
            note(&[file], WINDOWS).unwrap(),
            "neither --steps nor --epochs is given: 1850 steps in batches of 8, 148.0 epochs of 100 windows"
        );
        assert_eq!(note(&[], WINDOWS), None);
        assert_eq!(note(&[file, "train.steps=3"], ROWS), None);
    }

    #[test]
    fn what_has_no_number_of_steps_is_refused() {
        let error = settled(&["train.epochs=1"], None).err().unwrap();
        let expected =
            "`train.epochs` counts passes over the data, and a pipe has no end that is known";
        assert!(error.message().contains(expected), "{error}");
        let error = settled(&["train.epochs=1e12"], ROWS).err().unwrap();
        assert!(error.message().contains("a run has at most 1000000000"), "{error}");
    }
}

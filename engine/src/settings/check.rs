//! Limits that hold between settings.

use tightrope_nn::{Family, ModelFamily};

use super::{LIST, MicroBatch, Settings, SettingsError};

impl Settings {
    /// Checks every range, and the limits between settings that are set. What depends on a
    /// preset is checked by calling this again once the preset has filled in its values.
    ///
    /// # Errors
    /// The first conflict, ranges before limits between settings.
    pub fn check(&self) -> Result<(), SettingsError> {
        self.check_ranges()?;
        self.check_model()?;
        self.check_train()
    }

    fn check_ranges(&self) -> Result<(), SettingsError> {
        for setting in LIST {
            let checked = match self.value(setting.key) {
                Ok(Some(value)) => setting.accept(value).map(drop),
                Ok(None) => Ok(()),
                Err(unwritable) => Err(unwritable.to_string()),
            };
            checked.map_err(|wrong| {
                let help = format!("{}: {}", setting.key, setting.describe());
                self.error(&[setting.key], format!("`{}` {wrong}", setting.key), &help)
            })?;
        }
        Ok(())
    }

    fn check_model(&self) -> Result<(), SettingsError> {
        let model = &self.model;
        // A model on disk may have heads of any width.
        let sizes = if model.init.is_none() { (model.channels, model.heads) } else { (None, None) };
        if let (Some(channels), Some(heads)) = sizes {
            if !channels.is_multiple_of(heads) {
                return Err(self.indivisible("model.channels", channels, "model.heads", heads));
            }
            let width = channels / heads;
            let rotates =
                |family| matches!(family, ModelFamily::Language(family) if family != Family::Gpt2);
            if model.family.is_some_and(rotates) && !width.is_multiple_of(2) {
                return Err(self.error(
                    &["model.heads", "model.channels"],
                    format!(
                        "`model.channels` / `model.heads` is {width}, and rotary positions turn \
                         pairs of channels"
                    ),
                    "choose channels and heads so that a head has an even width",
                ));
            }
        }
        if let (Some(heads), Some(kv_heads)) = (model.heads, model.kv_heads) {
            if !heads.is_multiple_of(kv_heads) {
                return Err(self.indivisible("model.heads", heads, "model.kv_heads", kv_heads));
            }
            if model.family == Some(ModelFamily::Language(Family::Gpt2)) && heads != kv_heads {
                return Err(self.error(
                    &["model.kv_heads", "model.family"],
                    format!(
                        "`model.kv_heads` is {kv_heads} and `model.heads` is {heads}, but the \
                         family gpt2 has one key and value head for each head"
                    ),
                    &format!(
                        "choose family = \"llama\", or give kv_heads = {heads}, another model"
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Leaves the micro-batch to the planner where what was chosen for another number of ranks doesn't fit these, and nothing is
    /// `said` of it now.
    pub(crate) fn rechoose_micro_batch(&mut self, said: &Self) {
        let own = self.train.batch.map(|batch| batch / self.contexts());
        if let (Some(own), MicroBatch::Size(micro_batch)) = (own, self.train.micro_batch)
            && !own.is_multiple_of(micro_batch)
            && !said.is_said("train.micro_batch")
        {
            self.train.micro_batch = MicroBatch::Auto;
        }
    }

    /// How many passes ranks make at a time: one each, or with those that share its context.
    pub(crate) fn contexts(&self) -> usize {
        let is_alone = cfg!(target_family = "wasm");
        if is_alone { 1 } else { (self.run.ranks / self.run.context_ranks.max(1)).max(1) }
    }

    fn check_train(&self) -> Result<(), SettingsError> {
        let (train, ranks) = (&self.train, self.contexts());
        let shared = self.run.context_ranks.max(1);
        if !cfg!(target_family = "wasm") && !self.run.ranks.is_multiple_of(shared) {
            let (whole, part) = (self.run.ranks, self.run.context_ranks);
            return Err(self.indivisible("run.ranks", whole, "run.context_ranks", part));
        }
        if let Some(batch) = train.batch.filter(|batch| !batch.is_multiple_of(ranks)) {
            return Err(self.indivisible("train.batch", batch, "run.ranks", ranks));
        }
        if let (Some(batch), MicroBatch::Size(micro_batch)) = (train.batch, train.micro_batch) {
            let own = batch / ranks;
            if !batch.is_multiple_of(micro_batch) {
                let [whole, part] = ["train.batch", "train.micro_batch"];
                return Err(self.indivisible(whole, batch, part, micro_batch));
            }
            if !own.is_multiple_of(micro_batch) {
                return Err(self.error(
                    &["train.micro_batch", "train.batch", "run.ranks"],
                    format!(
                        "`train.micro_batch` is {micro_batch}, which doesn't divide the {own} of \
                         `train.batch` that each of {ranks} ranks takes"
                    ),
                    "leave `train.micro_batch` out, and it's chosen",
                ));
            }
        }
        for key in ["train.patience", "run.keep_best"] {
            if self.run.eval_every == 0 && self.is_changed(key) {
                return Err(self.error(
                    &[key, "run.eval_every"],
                    format!("`{key}` goes by evaluations, and `run.eval_every` is 0"),
                    "give --eval-every the steps between them",
                ));
            }
        }
        if let Some([first, second]) = self.contradiction() {
            return Err(self.error(
                &[second, first],
                format!("`{first}` and `{second}` both say how long to train"),
                "give one of them",
            ));
        }
        if let (Some(steps), Some(warmup)) = (train.steps, train.warmup)
            && warmup > steps
        {
            return Err(self.error(
                &["train.warmup", "train.steps"],
                format!("`train.warmup` is {warmup}, more than the {steps} of `train.steps`"),
                &format!("give warmup at most {steps}, or more steps"),
            ));
        }
        if let (Some(lr), Some(min_lr)) = (train.lr, train.min_lr)
            && min_lr > lr
        {
            return Err(self.error(
                &["train.min_lr", "train.lr"],
                format!("`train.min_lr` is {min_lr}, above the {lr} of `train.lr`"),
                "leave min_lr out for a tenth of lr",
            ));
        }
        Ok(())
    }

    /// `whole` isn't a multiple of `part`; the help names the nearest part that is one.
    fn indivisible(
        &self,
        whole_key: &str,
        whole: usize,
        part_key: &str,
        part: usize,
    ) -> SettingsError {
        let small = (1..=whole.isqrt()).filter(|n| whole.is_multiple_of(*n));
        let divisors: Vec<_> = small.flat_map(|n| [n, whole / n]).collect();
        let below = divisors.iter().filter(|n| **n < part).max();
        let above = divisors.iter().filter(|n| **n > part).min();
        let near: Vec<_> = below.into_iter().chain(above).map(usize::to_string).collect();
        self.error(
            &[part_key, whole_key],
            format!("`{part_key}` is {part}, which doesn't divide the {whole} of `{whole_key}`"),
            &format!("the nearest values that do: {}", near.join(" and ")),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conflict(change: impl FnOnce(&mut Settings)) -> String {
        let mut settings = Settings::default();
        change(&mut settings);
        let conflict = settings.check().unwrap_err();
        assert!(!conflict.help.is_empty());
        format!("{conflict}; {}", conflict.help)
    }

    #[test]
    fn limits_between_settings() {
        assert_eq!(
            conflict(|s| (s.model.channels, s.model.heads) = (Some(768), Some(10))),
            "`model.heads` is 10, which doesn't divide the 768 of `model.channels`; \
             the nearest values that do: 8 and 12"
        );
        assert_eq!(
            conflict(|s| (s.model.heads, s.model.kv_heads) = (Some(4), Some(8))),
            "`model.kv_heads` is 8, which doesn't divide the 4 of `model.heads`; \
             the nearest values that do: 4"
        );
        assert_eq!(
            conflict(|s| (s.train.steps, s.train.warmup) = (Some(10), Some(11))),
            "`train.warmup` is 11, more than the 10 of `train.steps`; \
             give warmup at most 10, or more steps"
        );
        assert_eq!(
            conflict(|s| (s.train.lr, s.train.min_lr) = (Some(1e-4), Some(1e-3))),
            "`train.min_lr` is 0.001, above the 0.0001 of `train.lr`; \
             leave min_lr out for a tenth of lr"
        );
        let grouped = |s: &mut Settings| {
            s.model.family = Some(ModelFamily::Language(Family::Gpt2));
            (s.model.heads, s.model.kv_heads) = (Some(4), Some(2));
        };
        assert!(conflict(grouped).contains("one key and value head"));
        let odd = |s: &mut Settings| {
            s.model.family = Some(ModelFamily::Language(Family::Llama));
            (s.model.channels, s.model.heads) = (Some(12), Some(4));
        };
        assert!(conflict(odd).contains("pairs of channels"));
        let split = |s: &mut Settings| {
            (s.train.batch, s.train.micro_batch) = (Some(6), MicroBatch::Size(4));
        };
        assert!(conflict(split).contains("doesn't divide the 6"));
    }

    #[test]
    fn what_goes_by_evaluations_needs_some() {
        assert_eq!(
            conflict(|s| (s.train.patience, s.run.eval_every) = (2, 0)),
            "`train.patience` goes by evaluations, and `run.eval_every` is 0; \
             give --eval-every the steps between them"
        );
        assert!(
            conflict(|s| (s.run.keep_best, s.run.eval_every) = (true, 0)).contains("keep_best")
        );
    }

    /// Both were taken, and one of them changed nothing.
    #[test]
    fn steps_and_epochs_are_said_by_one() {
        let both = conflict(|s| (s.train.steps, s.train.epochs) = (Some(10), Some(3.0)));
        assert_eq!(
            both,
            "`train.steps` and `train.epochs` both say how long to train; give one of them"
        );
        let of_file = "[train]\nsteps = 10\n";
        let mut settings = Settings::default();
        settings.read_text("run.toml", &format!("{of_file}epochs = 2\n")).unwrap();
        assert!(settings.check().is_err());
        // The command line goes over a file, whichever of them it says.
        let mut settings = Settings::default();
        settings.read_text("run.toml", of_file).unwrap();
        settings.read_argument("train.epochs=2").unwrap();
        settings.check().unwrap();
        settings.keep_one_length();
        assert_eq!((settings.train.steps, settings.train.epochs), (None, Some(2.0)));
        settings.read_argument("train.steps=4").unwrap();
        assert!(settings.check().is_err());
        // So do settings over those of a checkpoint.
        let mut own = Settings::default();
        own.read_text("run.toml", of_file).unwrap();
        let mut said = Settings::default();
        said.read_text("other.toml", "[train]\nepochs = 2\n").unwrap();
        let train = own.over(&said).train;
        assert_eq!((train.steps, train.epochs), (None, Some(2.0)));
    }

    #[test]
    fn ranges_hold_for_settings_made_in_code() {
        let wrong = [
            conflict(|s| s.train.lr = Some(-1e-3)),
            conflict(|s| s.train.lr = Some(f64::NAN)),
            conflict(|s| s.train.beta2 = 1.0),
            conflict(|s| s.data.holdout = -0.1),
            conflict(|s| s.model.heads = Some(0)),
            conflict(|s| s.run.log_every = 0),
            conflict(|s| s.train.micro_batch = MicroBatch::Size(0)),
            conflict(|s| s.train.seed = u64::MAX),
        ];
        for message in wrong {
            assert!(message.contains("must be"), "{message}");
        }
    }

    #[test]
    fn edges_are_allowed() {
        let mut settings = Settings::default();
        settings.model.channels = Some(768);
        settings.model.heads = Some(12);
        settings.model.kv_heads = Some(12);
        settings.train.batch = Some(8);
        settings.train.micro_batch = MicroBatch::Size(8);
        settings.train.fill(8, 10, 1e-3);
        settings.train.warmup = Some(10);
        settings.train.min_lr = settings.train.lr;
        settings.data.holdout = 0.0;
        settings.check().unwrap();
    }
}

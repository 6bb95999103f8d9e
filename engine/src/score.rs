//! Exact scores of a model on disk: perplexity of texts, and accuracy on questions of multiple choice. Both are sums of
//! log-likelihoods, and agree with lm-evaluation-harness.
//!
//! ```
//! use tightrope::devices::Devices;
//! use tightrope::generate::Loaded;
//! use tightrope::settings::Settings;
//!
//! # let folder = tempfile::tempdir()?;
//! # let dir = folder.path().join("run");
//! # let mut said = Settings::default();
//! # for words in ["model.preset=tiny", "model.context=16", "train.steps=1", "run.device=cpu"] {
//! #     said.read_argument(words)?;
//! # }
//! # said.read_argument(&format!("run.out={}", dir.display()))?;
//! # let recipe = tightrope::recipe::Recipe::new(&said)?;
//! # let device = Devices::default().open(&recipe.step.device)?;
//! # let (mut run, _) = recipe.plan(device)?.start(|spec| Devices::default().open(spec))?.begin()?;
//! # (&mut run).try_for_each(|step| step.map(drop))?;
//! let text = folder.path().join("text.txt");
//! std::fs::write(&text, "To be, or not to be, that is the question.")?;
//! let loaded = Loaded::open(&dir, &Settings::default())?;
//! let device = Devices::default().open(loaded.device())?;
//! let scores = loaded.score_texts(device, &[text], Some(8))?;
//! assert_eq!((scores.documents, scores.words), (1, 10));
//! assert!(scores.bits_per_byte() > 0.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod choices;
mod classes;
mod texts;

use anyhow::anyhow;
use tightrope_core::Backend;
use tightrope_data::{BucketCount, Scored, Tokenizer, bucket_lengths, scored_batch};
use tightrope_nn::{Architecture, ModelConfig, Trainer, TrainerConfig};

pub use choices::{Accuracy, ChoiceScores};
pub use classes::Classified;
pub use texts::TextScores;

use crate::block_on;
use crate::check;
use crate::error::{Error, Result};
use crate::generate::Loaded;
use crate::recipe::{Step, beyond_rows};
use crate::run::Samples;
use crate::settings::{MicroBatch, Settings};

/// Positions of a batch: as many as keep a processor at work.
const POSITIONS: usize = 2048;
/// The most samples of a batch, each of which has a loss of its own.
const SAMPLES: usize = 32;

impl Loaded {
    /// The sizes of a language model, its tokenizer, and the most tokens that it's to see at once.
    fn language(&self) -> Result<(&ModelConfig, &Tokenizer, usize)> {
        let (Architecture::Language(model), Some(tokenizer)) =
            (&self.source.config, &self.tokenizer)
        else {
            return Err(Error::usage(
                self.continues_nothing(),
                "name a language model, or score this one by what it was trained on, with `tightrope eval` alone",
            ));
        };
        Ok((model, tokenizer, self.context_of(model)))
    }

    /// The log-likelihood of the scored tokens of each row, in nats. Rows of like length are scored together.
    fn log_likelihoods(&self, device: Box<dyn Backend>, rows: &[Scored]) -> Result<Vec<f64>> {
        let (model, tokenizer, _) = self.language()?;
        for (index, row) in rows.iter().enumerate() {
            if let Some(&id) = row.ids.iter().find(|&&id| id as usize >= model.vocab) {
                let place = format!("row {}", index + 1);
                return Err(beyond_rows(tokenizer, id, model.vocab, &place));
            }
        }
        let positions: Vec<usize> = rows.iter().map(|row| row.ids.len().max(2) - 1).collect();
        let longest = positions.iter().copied().max().unwrap_or(1);
        let lengths = bucket_lengths(&positions, longest, BucketCount::Auto);
        let mut scorer = self.scorer(device, &lengths, rows.len())?;
        let mut order: Vec<usize> = (0..rows.len()).collect();
        // The longest first, so that what doesn't fit shows early.
        order.sort_by_key(|&row| std::cmp::Reverse(positions[row]));
        let mut found = vec![0.0; rows.len()];
        let mut done = 0;
        let micro_batch = scorer.trainer.config().micro_batch;
        let length = |row: usize| padded_length(&lengths, positions[row]);
        // A row is padded to a length of its own, whichever rows share its batch.
        for alike in order.chunk_by(|&one, &other| length(one) == length(other)) {
            for batch in alike.chunks(micro_batch) {
                let of_batch: Vec<&Scored> = batch.iter().map(|&row| &rows[row]).collect();
                let sums = scorer.log_likelihoods(&of_batch, length(batch[0]))?;
                for (&row, sum) in batch.iter().zip(sums) {
                    found[row] = sum;
                }
                done += batch.len();
                self.tell(done, rows.len());
            }
        }
        Ok(found)
    }

    /// The model on `device`, for rows of at most these `lengths`, the longest last, of which there are `rows`.
    fn scorer(
        &self,
        mut device: Box<dyn Backend>,
        lengths: &[usize],
        rows: usize,
    ) -> Result<Scorer> {
        let Some((&seq_len, shorter)) = lengths.split_last() else {
            return Err(Error::failed(anyhow!("there is no row to score"), "report it"));
        };
        let mut settings = Settings::clone(&self.settings);
        settings.model.context = Some(seq_len);
        settings.train.batch = Some((POSITIONS / seq_len).clamp(1, SAMPLES).min(rows.max(1)));
        settings.train.micro_batch = MicroBatch::Auto;
        settings.data.packing = false;
        // Rows are scored one by one, by a model that was trained on pairs too.
        settings.data.format = None;
        let step = Step::of_model(&settings, self.source.config.clone())?;
        let mut step = step.inference(false, settings.memory.weight_bits);
        let shorter = shorter.to_vec();
        step.config = TrainerConfig { decode: 0, losses: true, shorter, ..step.config };
        let planned = check::planned(&step.device, &mut device, &mut |device| step.plan(device))?;
        Ok(Scorer { trainer: self.started(planned, device)? })
    }
}

/// A model that scores rows of tokens.
struct Scorer {
    trainer: Trainer,
}

/// The least of `lengths`, sorted, of at least `positions`; the longest if none is.
fn padded_length(lengths: &[usize], positions: usize) -> usize {
    let holds = lengths.iter().find(|&&length| length >= positions);
    holds.or(lengths.last()).copied().unwrap_or(positions)
}

impl Scorer {
    /// The log-likelihood of the scored tokens of each row of a batch, padded to `length`, in nats.
    fn log_likelihoods(&mut self, rows: &[&Scored], length: usize) -> Result<Vec<f64>> {
        let batch = self.trainer.config().micro_batch;
        let samples = Samples::from(scored_batch(rows, batch, length));
        let losses = block_on(self.trainer.losses(&samples.batch()))?;
        let sums = rows.iter().zip(losses).map(|(row, loss)| -f64::from(loss) * row.count as f64);
        let found: Vec<f64> = sums.collect();
        if found.iter().any(|found| !found.is_finite()) {
            return Err(Error::failed(
                anyhow!("a log-likelihood isn't finite"),
                "score with --precision f32, or look into the weights with `tightrope verify`",
            ));
        }
        Ok(found)
    }
}

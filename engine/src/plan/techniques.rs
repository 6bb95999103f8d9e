//! The memory techniques one by one: what each saves of the plan that has none of them, alone and together.
//!
//! A plan is made for each, and none is searched for: the time to make them grows with their number alone.

mod list;

use std::time::Instant;

use anyhow::anyhow;
use tightrope_core::Backend;
use tightrope_core::plan::Checkpoint;
use tightrope_nn::layers::AttentionKind;
use tightrope_nn::{
    FrozenBits, Gradients, Master, Offload, Planned, Precision, StateBits, TableBits, TrainerConfig,
};

use super::budget::{budget, planned};
use super::file::{self, Choices};
use super::fit::closest;
use super::scope::Scope;
use super::trial::Trial;
use crate::error::{Error, Kind, Result};
use crate::rates::Known;

pub use list::{LIST, Numerics, RECORDED, Technique};

/// Why a technique is left out of a step that can't be planned with it.
const UNPLANNED: &str = "the step can't be planned with it";

/// The bytes and the time of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Bytes of the arena.
    pub peak_bytes: u64,
    /// Predicted seconds of a step.
    pub step_s: f64,
    /// What it was planned for.
    pub choices: Choices,
}

/// What a technique comes to.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The plan with it and no other.
    Alone(Box<Figures>),
    /// Why it doesn't apply to the model, the settings or the device.
    Not(&'static str),
}

/// Several techniques in one plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Together {
    /// The plan with them.
    pub figures: Figures,
    /// Names of those that it has.
    pub names: Vec<&'static str>,
    /// Names of those that apply alone and not with the ones before, and why.
    pub without: Vec<(&'static str, &'static str)>,
}

/// The plan that the settings ask for.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// It, or the smallest one where none fits.
    pub figures: Figures,
    /// Bytes that it may take, where that's known.
    pub budget_bytes: Option<u64>,
    /// Whether it fits.
    pub fits: bool,
}

/// The table of techniques for one step.
#[derive(Clone, Debug)]
pub struct Techniques {
    /// The step with none of them.
    pub base: Figures,
    /// Each of the [`LIST`].
    pub alone: Vec<(&'static Technique, Outcome)>,
    /// What each does to the numbers on this device.
    pub numerics: Vec<Numerics>,
    /// Those that change no number, but for the order of sums.
    pub exact: Together,
    /// All of them.
    pub all: Together,
    /// What the planner chose.
    pub chosen: Chosen,
    /// Where predicted times are from, with the rates in f32.
    pub known: Known,
    /// Seconds that all of it took.
    pub seconds: f64,
}

impl Techniques {
    /// Of the step of `config` on `device`.
    ///
    /// # Errors
    /// Settings that no graph can be built from.
    pub fn new(scope: &Scope, config: &TrainerConfig, device: &dyn Backend) -> Result<Self> {
        let start = Instant::now();
        let precisions = [Precision::F32, Precision::BF16, config.precision];
        let known = scope.rates.comparable(device, &precisions, scope.threads);
        let rates = precisions.into_iter().zip(known).collect();
        let plans = Plans { trial: Trial { scope, device }, asked: config, rates };
        // The planner's choice comes first, so that an error of the settings is the one that a user sees.
        let chosen = plans.chosen()?;
        let base = plans.base();
        let base_figures = plans.figures(&base).ok_or_else(no_base)?;
        let alone = |technique| (technique, plans.alone(technique, &base, &base_figures));
        let alone: Vec<(&Technique, Outcome)> = LIST.iter().map(alone).collect();
        let applies = |exact: bool| {
            let applying = alone.iter().filter(|(_, it)| matches!(it, Outcome::Alone(_)));
            let techniques = applying.map(|&(technique, _)| technique);
            techniques.filter(|it| !exact || it.numerics.same()).collect::<Vec<_>>()
        };
        let together = |exact: bool| {
            let techniques = applies(exact);
            let all = plans.together(&techniques, &base, false);
            all.or_else(|| plans.together(&techniques, &base, true)).ok_or_else(no_base)
        };
        Ok(Self {
            exact: together(true)?,
            all: together(false)?,
            chosen,
            base: base_figures,
            numerics: LIST.iter().map(|technique| technique.numerics_on(device)).collect(),
            alone,
            known: plans.rates[0].1,
            seconds: start.elapsed().as_secs_f64(),
        })
    }
}

/// The error of a step that takes some technique to be planned at all.
fn no_base() -> Error {
    Error::usage(
        anyhow!("the step can't be planned without any technique, which each is compared with"),
        "leave out `--techniques`, or settings that only some techniques allow",
    )
}

/// What plans are made from.
struct Plans<'a> {
    trial: Trial<'a>,
    asked: &'a TrainerConfig,
    /// Rates in each precision that a plan may have.
    rates: Vec<(Precision, Known)>,
}

impl Plans<'_> {
    /// What is asked for, without any technique.
    fn base(&self) -> TrainerConfig {
        let mut base = TrainerConfig {
            precision: Precision::F32,
            micro_batch: self.asked.own_batch(),
            gradients: Gradients::F32,
            master: Master::F32,
            optimizer_bits: StateBits::B32,
            table_bits: TableBits::B32,
            offload: Offload::NONE,
            consume_gradients: false,
            ..self.asked.clone()
        };
        base.build.loss_chunk = 0;
        base.build.attention = AttentionKind::Eager;
        base.options.checkpoint = Checkpoint::None;
        if let Some(lora) = &mut base.lora {
            lora.base_bits = FrozenBits::Precision;
        }
        base
    }

    fn figures(&self, config: &TrainerConfig) -> Option<Figures> {
        Some(self.of(&self.trial.as_is(config)?))
    }

    fn of(&self, planned: &Planned) -> Figures {
        let config = planned.config();
        let rates = self.rates.iter().find(|(precision, _)| *precision == config.precision);
        let (_, known) = rates.unwrap_or(&self.rates[0]);
        Figures {
            peak_bytes: planned.plan.peak_bytes(),
            step_s: planned.estimate(&known.rates).step_s,
            choices: Choices::of(config),
        }
    }

    /// What a technique comes to, alone.
    fn alone(&self, technique: &Technique, base: &TrainerConfig, figures: &Figures) -> Outcome {
        if let Some(why) = (technique.refused)(base, self.asked, self.trial.device) {
            return Outcome::Not(why);
        }
        let mut config = base.clone();
        (technique.apply)(&mut config, self.asked);
        match self.figures(&config) {
            None => Outcome::Not(UNPLANNED),
            Some(found)
                if (found.peak_bytes, found.step_s) == (figures.peak_bytes, figures.step_s) =>
            {
                Outcome::Not("it changes nothing of this step")
            }
            Some(found) => Outcome::Alone(Box::new(found)),
        }
    }

    /// These techniques in one plan, in their order, without those that don't go with the ones before. `None` if no graph can be built from
    /// them; where `each` is planned, those that none can be built with are left out.
    fn together(
        &self,
        techniques: &[&Technique],
        base: &TrainerConfig,
        each: bool,
    ) -> Option<Together> {
        let (mut config, mut names, mut without) = (base.clone(), vec![], vec![]);
        for technique in techniques {
            let mut with = config.clone();
            (technique.apply)(&mut with, self.asked);
            let refused = (technique.refused)(&config, self.asked, self.trial.device);
            let unplanned = || (each && self.figures(&with).is_none()).then_some(UNPLANNED);
            match refused.or_else(unplanned) {
                Some(why) => without.push((technique.name, why)),
                None => {
                    config = with;
                    names.push(technique.name);
                }
            }
        }
        Some(Together { figures: self.figures(&config)?, names, without })
    }

    /// The plan that the planner chooses, or the smallest where none fits.
    fn chosen(&self) -> Result<Chosen> {
        let Trial { scope, device } = self.trial;
        let budget_bytes = budget(scope, device);
        let most = budget_bytes.unwrap_or(u64::MAX);
        if let Some(path) = &scope.plan {
            let planned = file::planned(path, scope, self.asked, most, device)?;
            return Ok(Chosen { figures: self.of(&planned), budget_bytes, fits: true });
        }
        match planned(scope, self.asked.clone(), device) {
            Ok(planned) => Ok(Chosen { figures: self.of(&planned), budget_bytes, fits: true }),
            Err(refusal) if refusal.kind() == Kind::DoesNotFit => {
                let closest = closest(scope, self.asked, most, device)?;
                Ok(Chosen { figures: self.of(&closest.planned), budget_bytes, fits: false })
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(all(test, feature = "cpu", not(target_family = "wasm")))]
mod tests {
    use tightrope_backend_cpu::Cpu;

    use super::*;
    use crate::recipe::Step;
    use crate::settings::Settings;

    fn of(words: &[&str]) -> Techniques {
        let mut settings = Settings::default();
        for words in ["run.device=cpu"].iter().chain(words) {
            settings.read_argument(words).unwrap();
        }
        let Step { config, scope, .. } = Step::of(&settings).unwrap();
        Techniques::new(&scope, &config, &Cpu::new(1).unwrap()).unwrap()
    }

    fn outcome<'a>(found: &'a Techniques, name: &str) -> &'a Outcome {
        let named = |(technique, _): &&(&Technique, Outcome)| technique.name == name;
        &found.alone.iter().find(named).unwrap().1
    }

    const TINY: [&str; 3] = ["model.preset=tiny", "train.batch=4", "memory.budget=1GiB"];

    #[test]
    fn each_technique_alone_is_the_plan_of_its_setting() {
        let found = of(&TINY);
        let settings = |words: &[&str]| {
            const NONE: [&str; 4] = [
                "memory.attention=eager",
                "memory.loss_chunk=none",
                "memory.recompute=none",
                "train.micro_batch=4",
            ];
            // Later words win.
            of(&[&TINY[..], &NONE, words].concat()).chosen.figures
        };
        assert_eq!(found.base, settings(&[]));
        for (name, words) in [
            ("fused attention", &["memory.attention=fused"][..]),
            ("recomputed blocks", &["memory.recompute=block"]),
            ("accumulation", &["train.micro_batch=1"]),
            ("16-bit weights and activations", &["run.precision=bf16"]),
            ("bf16 without masters", &["run.precision=bf16", "memory.master=none"]),
            ("gradients in bf16", &["memory.gradients=bf16"]),
            ("optimizer state in 8 bits", &["memory.optimizer_bits=8"]),
            ("that of tables too", &["memory.optimizer_bits=8", "memory.table_bits=8"]),
            (
                "updates as gradients are made",
                &["memory.consume_gradients=true", "train.clip=0", "train.micro_batch=auto"],
            ),
        ] {
            assert_eq!(*outcome(&found, name), Outcome::Alone(Box::new(settings(words))), "{name}");
        }
    }

    #[test]
    #[cfg(feature = "cuda")]
    fn recomputed_blocks_change_last_bits_where_a_library_may_make_activations() {
        use tightrope_backend_cuda::driver::Emulated;
        use tightrope_backend_cuda::{Cuda, matmuls::Makers};

        let mut settings = Settings::default();
        for words in TINY {
            settings.read_argument(words).unwrap();
        }
        let Step { config, scope, .. } = Step::of(&settings).unwrap();
        let mut cuda = Cuda::new(Box::new(Emulated::new(std::env::temp_dir(), 1)));
        let numerics = |device: &Cuda| {
            let found = Techniques::new(&scope, &config, device).unwrap();
            let at = found.alone.iter().position(|(it, _)| it.name == "recomputed blocks");
            found.numerics[at.unwrap()]
        };
        assert_eq!(numerics(&cuda), Numerics::Same);
        cuda.matmuls_by(Makers::Fastest).unwrap();
        assert_eq!(numerics(&cuda), Numerics::Order);
    }

    #[test]
    fn together_they_take_less_and_what_does_not_go_is_named() {
        let found = of(&TINY);
        let (exact, all) = (&found.exact.figures, &found.all.figures);
        assert!(exact.peak_bytes < found.base.peak_bytes && all.peak_bytes < exact.peak_bytes);
        let exact: Vec<&str> = found.exact.names.clone();
        assert_eq!(exact, ["fused attention", "recomputed blocks", "accumulation"]);
        let (name, why) = found.all.without[0];
        assert_eq!(name, "updates as gradients are made");
        assert!(why.starts_with("several passes"), "{why}");
        assert!(found.chosen.fits && found.chosen.budget_bytes == Some(1 << 30));
        for (name, why) in [
            ("loss in chunks", "one chunk takes all rows"),
            ("optimizer on the host", "the device is the processor"),
            ("frozen weights in 4 bits", "all weights are trained"),
        ] {
            match outcome(&found, name) {
                Outcome::Not(said) => assert!(said.starts_with(why), "{name}: {said}"),
                Outcome::Alone(figures) => panic!("{name} applies: {figures:?}"),
            }
        }
        let small = of(&["model.preset=tiny", "train.batch=4", "memory.budget=1KiB"]);
        assert!(!small.chosen.fits && small.chosen.figures.peak_bytes > 1024);
    }

    #[test]
    fn models_without_a_vocabulary_and_frozen_ones_have_techniques_of_their_own() {
        let vit =
            of(&["model.preset=vit-tiny", "train.batch=2", "train.optimizer=sgd", "train.beta1=0"]);
        for (name, why) in [
            ("loss in chunks", "the scores of its loss are too few"),
            ("optimizer state in 8 bits", "the optimizer has no state"),
        ] {
            match outcome(&vit, name) {
                Outcome::Not(said) => assert!(said.starts_with(why), "{name}: {said}"),
                Outcome::Alone(figures) => panic!("{name} applies: {figures:?}"),
            }
        }
        let adapters = of(&["model.preset=tiny", "train.batch=1", "lora.rank=2"]);
        let bytes = |name: &str| match outcome(&adapters, name) {
            Outcome::Alone(figures) => figures.peak_bytes,
            Outcome::Not(why) => panic!("{name}: {why}"),
        };
        let [eight, four] = ["frozen weights in 8 bits", "frozen weights in 4 bits"].map(bytes);
        assert!(four < eight, "{four} and {eight} bytes");
        match outcome(&adapters, "accumulation") {
            Outcome::Not(why) => assert_eq!(*why, "a step is of one sample"),
            Outcome::Alone(figures) => panic!("{figures:?}"),
        }
        assert!(adapters.all.names.contains(&"updates as gradients are made"));
    }
}

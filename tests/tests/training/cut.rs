//! No number depends on how a batch is cut, nor on looks on the way: drawn models, of the library and with losses of several terms, against
//! the whole batch in one pass.

mod drawn;
mod library;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use conformance::draw::Draw;
use conformance::values::uniform;
use pollster::block_on;
use tightrope_backend_cpu::Cpu;
use tightrope_core::expr::input;
use tightrope_core::ops::{Axes, Map, Permute, Reduce};
use tightrope_core::{DType, Tensor};
use tightrope_nn::layers::{Layer, Linear};
use tightrope_nn::{
    Batch, Cause, Error, Free, Input, Model, Optimizer, Parameter, Pass, Planned, Rates, Result,
    Snapshot, Trainer, TrainerConfig,
};
use tightrope_ranks::Threads;

use drawn::{CLASSES, Drawn, Mixing, Numbers, TERMS, Term, WIDTH};
use library::ByInput;

fn cpu() -> Box<Cpu> {
    Box::new(Cpu::new(1).expect("threads"))
}

/// Results of a few steps: losses, norms and figures of each, the first one's gradients, and weights.
struct Trained {
    figures: Vec<f32>,
    gradients: Vec<f32>,
    weights: Vec<f32>,
    /// Loss and figures of an odd number of samples.
    evaluated: Vec<f32>,
}

const STEPS: u64 = 3;

fn distance(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let square = |x: f64| x * x;
    let off: f64 =
        found.iter().zip(expected).map(|(&a, &b)| square(f64::from(a) - f64::from(b))).sum();
    let all: f64 = expected.iter().map(|&b| square(b.into())).sum();
    (off / all.max(1e-12)).sqrt()
}

#[track_caller]
fn near(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (at, (&a, &b)) in found.iter().zip(expected).enumerate() {
        // Margins of preferences are small differences of large sums.
        let off = f64::from((a - b).abs()) / f64::from(b.abs()).max(1.0);
        assert!(off <= 1e-6, "{what}: figure {at} is {a}, not {b}");
    }
}

/// A drawn model.
#[derive(Clone, Debug)]
enum Subject {
    /// The terms of its loss, each with its weight.
    Terms(Vec<(Term, f64)>),
    /// One of the library's.
    Library(Arc<dyn Model>),
}

/// A model, and how its batch is cut.
#[derive(Debug)]
struct Case {
    seed: u64,
    subject: Subject,
    kept: f64,
    batch: usize,
    micro_batch: usize,
    ranks: usize,
    budget: Option<f64>,
    adam: bool,
    /// Each step of the batch in parts is explained and followed by an evaluation, and the device is lost once if it is alone.
    looks: bool,
}

impl Case {
    fn drawn(seed: u64) -> Self {
        let draw = |stream: u64| uniform(seed * 1009 + 17, stream);
        let pick = |stream: u64, of: &[usize]| of[(draw(stream) * of.len() as f64) as usize];
        let subject = match draw(10) < 0.5 {
            true => Subject::Library(library::drawn(draw)),
            false => Subject::Terms(Self::drawn_terms(seed)),
        };
        let micro_batch = pick(3, &[1, 2, 3, 4]);
        let ranks = pick(4, &[1, 1, 2, 3, 4]);
        let batch = micro_batch * ranks * pick(5, &[1, 2, 3]);
        Self {
            seed,
            subject,
            kept: [0.0, 0.2, 0.5, 0.8, 1.0][pick(6, &[0, 1, 1, 2, 2, 3, 4])],
            batch: if batch == micro_batch { 2 * batch } else { batch },
            micro_batch,
            ranks,
            budget: (ranks == 1 && draw(7) < 0.3).then(|| draw(8)),
            adam: draw(9) < 0.3,
            looks: draw(11) < 0.5,
        }
    }

    fn drawn_terms(seed: u64) -> Vec<(Term, f64)> {
        let draw = |stream: u64| uniform(seed * 1009 + 17, stream);
        let pick = |stream: u64, of: &[usize]| of[(draw(stream) * of.len() as f64) as usize];
        let weight = |at: usize| [1.0, 0.5, 0.25, 2.0][(draw(70 + at as u64) * 4.0) as usize];
        let mut terms: Vec<(Term, f64)> = (0..TERMS.len())
            .filter(|&at| draw(30 + at as u64) < 0.35)
            .map(|at| (TERMS[at], weight(at)))
            .collect();
        if terms.iter().all(|(term, _)| *term == Term::Penalty) {
            // Of one term alone, whose weight is 1.
            let alone = TERMS[pick(2, &[0, 2, 3, 4, 6, 7, 8, 9, 10])];
            terms = vec![(alone, 1.0)];
        } else if terms.iter().all(|(term, _)| [Term::Penalty, Term::Positions].contains(term)) {
            terms.push((Term::Sum, 0.5));
        }
        terms
    }

    fn model(&self) -> Arc<dyn Model> {
        match &self.subject {
            Subject::Terms(terms) => Arc::new(Drawn::new(terms.clone(), None)),
            Subject::Library(model) => Arc::clone(model),
        }
    }

    /// Does `work` with the numbers of `samples` samples.
    fn with_batch<R>(&self, stream: u64, samples: usize, work: impl FnOnce(&Batch<'_>) -> R) -> R {
        let seed = self.seed + stream;
        match &self.subject {
            Subject::Terms(_) => work(&Numbers::new(seed, samples, self.kept).batch()),
            Subject::Library(model) => {
                work(&ByInput::new(&**model, seed, samples, self.kept).batch())
            }
        }
    }

    fn step(&self, trainer: &mut Trainer, step: u64) {
        let batch = trainer.config().batch;
        // Adam moves a weight by its whole rate, however small its gradient: rates are those that are usual.
        let lr = if self.adam { 1e-3 } else { 0.05 };
        self.with_batch(step, batch, |batch| trainer.step(step, lr, batch)).expect("a step");
    }

    fn train(&self, planned: &Planned, mut rank: Option<Threads>, looks: bool) -> Trained {
        let config = planned.config();
        let mut start = || {
            let mut trainer = Trainer::new(planned.clone(), cpu()).expect("memory");
            if let Some(rank) = rank.take() {
                trainer.join(Box::new(rank)).expect("as many ranks as planned for");
            }
            trainer
        };
        let mut trainer = start();
        trainer.initialise().expect("weights");
        let (mut figures, mut gradients, mut copy) = (vec![], vec![], Snapshot::default());
        let found = self.with_batch(99, 5, |few| block_on(trainer.evaluate_samples(few, 5)));
        let found = found.expect("a loss");
        let metrics = found.metrics.iter().map(|(_, figure)| *figure);
        let evaluated = [found.loss].into_iter().chain(metrics).collect();
        for step in 0..STEPS {
            self.step(&mut trainer, step);
            let outcome = block_on(trainer.outcome()).expect("an outcome");
            assert!(outcome.updated, "{outcome:?}");
            figures.extend([outcome.loss, outcome.grad_norm]);
            figures.extend(outcome.metrics.iter().map(|(_, figure)| *figure));
            if step == 0 && config.ranks == 1 {
                gradients = block_on(trainer.watched_values()).expect("gradients").concat();
            }
            if !looks {
                continue;
            }
            let cause = self.with_batch(step, config.batch, |batch| {
                block_on(trainer.explain(step, batch, &outcome))
            });
            assert_eq!(cause.expect("a cause"), Cause::Sums, "every output is finite");
            self.with_batch(77, 3, |few| block_on(trainer.evaluate_samples(few, 3)))
                .expect("a loss");
            if step == 0 && config.ranks == 1 {
                assert!(block_on(trainer.snapshot(&mut copy)).expect("a copy"));
            }
            if step == 1 && config.ranks == 1 {
                trainer = start();
                trainer.restore(&copy).expect("a copy");
                self.step(&mut trainer, step);
            }
        }
        let mut weights = vec![];
        for index in 0..trainer.parameters().len() {
            weights.extend(block_on(trainer.weight(index)).expect("a weight"));
        }
        Trained { figures, gradients, weights, evaluated }
    }

    fn config(&self) -> TrainerConfig {
        let (beta1, beta2, eps) = (0.9, 0.999, 1e-8);
        let watch = if self.ranks == 1 { vec!["grad.*".to_owned()] } else { vec![] };
        TrainerConfig {
            batch: self.batch,
            micro_batch: self.micro_batch,
            ranks: self.ranks,
            seed: self.seed,
            clip: None,
            weight_decay: 0.0,
            optimizer: match self.adam {
                true => Optimizer::AdamW { beta1, beta2, eps },
                false => Optimizer::Sgd { momentum: 0.0 },
            },
            watch,
            ..TrainerConfig::new(self.model())
        }
    }

    fn holds(&self) {
        let cut = self.config();
        let whole = TrainerConfig { ranks: 1, micro_batch: self.batch, ..cut.clone() };
        let planned = |config: &TrainerConfig| Planned::new(config, &*cpu()).expect("a plan");
        let expected = self.train(&planned(&whole), None, false);
        let found = match (self.ranks, self.budget) {
            (1, Some(part)) => self.train(&self.within(&cut, part), None, self.looks),
            (1, None) => self.train(&planned(&cut), None, self.looks),
            (ranks, _) => {
                let group = Threads::group(ranks, Duration::from_secs(60));
                let planned = &planned(&cut);
                let mut all: Vec<Trained> = thread::scope(|scope| {
                    let ranks: Vec<_> = group
                        .into_iter()
                        .map(|rank| {
                            scope.spawn(move || self.train(planned, Some(rank), self.looks))
                        })
                        .collect();
                    ranks.into_iter().map(|rank| rank.join().expect("a rank")).collect()
                });
                all.swap_remove(0)
            }
        };
        let what = format!("{self:?}");
        near(&found.figures, &expected.figures, &what);
        near(&found.evaluated, &expected.evaluated, &format!("{what}, evaluated"));
        if self.ranks == 1 {
            let off = distance(&found.gradients, &expected.gradients);
            assert!(off <= 1e-5, "{what}: gradients are off by {off}");
        }
        let off = distance(&found.weights, &expected.weights);
        let near = if self.adam { 1e-4 } else { 1e-6 };
        assert!(off <= near, "{what}: weights are off by {off}");
    }

    /// The fastest plan within a budget that is this part of the way from the smallest plan to the fastest.
    fn within(&self, config: &TrainerConfig, part: f64) -> Planned {
        let (rates, device) = (Rates::of("cpu", config.precision, 1), cpu());
        let seconds = |graph: &_, node: &_| rates.seconds(graph, node);
        let within = |budget: u64| {
            Planned::within(config, budget, Free::ALL, &*device, &seconds).expect("plans")
        };
        let most = within(u64::MAX).0.expect("a plan").plan.peak_bytes();
        let least = within(1).1;
        let budget = least + ((most - least) as f64 * part) as u64;
        within(budget).0.expect("a plan within the budget")
    }
}

#[test]
fn drawn_models_have_the_numbers_of_the_whole_batch_however_it_is_cut() {
    for seed in Draw::of_today().some("models and cuts", (0..300).collect(), 40) {
        Case::drawn(seed).holds();
    }
}

#[test]
fn every_term_is_cut_by_itself_and_with_ignored_labels() {
    for (at, term) in TERMS.into_iter().enumerate() {
        if term == Term::Penalty {
            continue;
        }
        let case = |weight| Case {
            seed: 1000 + at as u64,
            subject: Subject::Terms(vec![(term, weight)]),
            kept: 0.5,
            batch: 6,
            micro_batch: 2,
            ranks: 1,
            budget: None,
            adam: false,
            looks: false,
        };
        case(1.0).holds();
        case(0.5).holds();
    }
}

#[test]
fn what_mixes_samples_is_named_and_not_cut() {
    for (mixing, op) in [
        (Mixing::SquareOfMean, "`squared_mean` (map)"),
        (Mixing::Negatives, "`similarity` (matmul)"),
        (Mixing::Centered, "`centered` (map)"),
        (Mixing::OverSamples, "`over_samples` (softmax)"),
        (Mixing::Product, "`product_of_means` (map)"),
        (Mixing::LearnedCount, "`mean_by_weights` (map)"),
    ] {
        let terms = vec![(Term::Squares, 0.5)];
        let config = TrainerConfig {
            batch: 4,
            micro_batch: 4,
            ..TrainerConfig::new(Arc::new(Drawn::new(terms, Some(mixing))))
        };
        let planned = Planned::new(&config, &*cpu()).expect("one micro-batch");
        let mixed = planned.mixed().expect("what mixes samples").to_string();
        assert!(mixed.starts_with(op), "{mixing:?}: {mixed}");
        for (micro_batch, ranks) in [(2, 1), (1, 1), (2, 2)] {
            let cut = TrainerConfig { micro_batch, ranks, ..config.clone() };
            let refused = Planned::new(&cut, &*cpu()).err().expect("a refusal");
            assert!(matches!(refused, Error::Mixed { .. }), "{refused}");
            assert!(refused.to_string().starts_with(op), "{mixing:?}: {refused}");
        }
        // The planner leaves the batch whole, whatever the budget.
        let rates = Rates::of("cpu", config.precision, 1);
        let (planned, _) =
            Planned::within(&config, u64::MAX, Free::ALL, &*cpu(), &|graph, node| {
                rates.seconds(graph, node)
            })
            .expect("plans");
        assert_eq!(planned.expect("a plan").config().micro_batch, 4);
        let least = Planned::within(&config, 1, Free::ALL, &*cpu(), &|graph, node| {
            rates.seconds(graph, node)
        });
        assert!(least.expect("plans").0.is_none());
    }
}

/// Two cross-entropies of which one weighs a half, and labels that don't count, by plain loops.
#[test]
fn two_losses_with_ignored_labels_are_those_of_plain_loops() {
    let terms = vec![(Term::Labels, 1.0), (Term::OtherLabels, 0.5)];
    let (seed, batch) = (5, 8);
    let config = TrainerConfig {
        batch,
        micro_batch: 2,
        seed,
        clip: None,
        weight_decay: 0.0,
        optimizer: Optimizer::Sgd { momentum: 0.0 },
        watch: vec!["grad.*.bias".to_owned(), "active".to_owned()],
        ..TrainerConfig::new(Arc::new(Drawn::new(terms, None)))
    };
    // All activations at once are those of a batch in one pass.
    let whole = TrainerConfig { micro_batch: batch, ..config.clone() };
    let numbers = Numbers::new(seed, batch, 0.4);
    let run = |config: &TrainerConfig| {
        let planned = Planned::new(config, &*cpu()).expect("a plan");
        let mut trainer = Trainer::new(planned, cpu()).expect("memory");
        trainer.initialise().expect("weights");
        let weight = |trainer: &mut Trainer, name: &str| {
            let index = trainer.parameters().iter().position(|it| it.name == name);
            block_on(trainer.weight(index.expect("a parameter"))).expect("a weight")
        };
        let weights = ["head.weight", "head.bias", "other.weight", "other.bias"];
        let weights = weights.map(|name| weight(&mut trainer, name));
        trainer.step(0, 0.0, &numbers.batch()).expect("a step");
        let loss = block_on(trainer.outcome()).expect("an outcome").loss;
        let names: Vec<String> = trainer.watched().iter().map(|it| it.name.clone()).collect();
        let values = block_on(trainer.watched_values()).expect("values");
        (loss, weights, names.into_iter().zip(values).collect::<Vec<_>>())
    };
    let (_, weights, watched) = run(&whole);
    let of = |watched: &[(String, Vec<f32>)], name: &str| {
        watched.iter().find(|(known, _)| known == name).expect("a watched tensor").1.clone()
    };
    let active = of(&watched, "active");
    let mut expected = 0.0;
    let mut biases = [vec![0.0; CLASSES], vec![0.0; CLASSES]];
    for (at, (labels, share)) in
        [(&numbers.labels, 1.0), (&numbers.others, 0.5)].into_iter().enumerate()
    {
        let [weight, bias] = [&weights[2 * at], &weights[2 * at + 1]];
        let count = labels.iter().filter(|&&label| label >= 0).count() as f64;
        assert!(count > 0.0 && count < batch as f64);
        for (sample, &label) in labels.iter().enumerate() {
            let Ok(label) = usize::try_from(label) else { continue };
            let logit = |class: usize| -> f64 {
                let row = (0..WIDTH).map(|c| {
                    f64::from(active[sample * WIDTH + c]) * f64::from(weight[class * WIDTH + c])
                });
                row.sum::<f64>() + f64::from(bias[class])
            };
            let logits: Vec<f64> = (0..CLASSES).map(logit).collect();
            let sum = logits.iter().map(|x| x.exp()).sum::<f64>();
            expected += share * (sum.ln() - logits[label]) / count;
            for class in 0..CLASSES {
                let hit = f64::from(u8::from(class == label));
                biases[at][class] += share * (logits[class].exp() / sum - hit) / count;
            }
        }
    }
    for config in [whole, config] {
        let (loss, _, watched) = run(&config);
        assert!((f64::from(loss) - expected).abs() < 1e-6 * expected, "{loss}, not {expected}");
        for (name, expected) in ["grad.head.bias", "grad.other.bias"].iter().zip(&biases) {
            let found = of(&watched, name);
            let expected: Vec<f32> = expected.iter().map(|&x| x as f32).collect();
            let off = distance(&found, &expected);
            assert!(off < 1e-5, "{name}: {found:?}, not {expected:?}");
        }
    }
}

/// Sums over an axis that isn't the batch, and back, are each sample's own.
#[test]
fn a_mean_over_positions_is_each_samples_own() {
    #[derive(Debug)]
    struct Pooled(Linear);

    impl Model for Pooled {
        fn parameters(&self) -> Vec<Parameter> {
            self.0.parameters()
        }

        fn inputs(&self) -> Vec<Input> {
            vec![Input::new("x", DType::F32, &[4, 3])]
        }

        fn loss(&self, pass: &mut Pass<'_>) -> Result<Tensor> {
            let x = pass.input("x")?;
            let x = self.0.apply(pass, x)?;
            let turned = pass.one(Permute { axes: vec![1, 0, 2] }, &[x], "turned")?;
            let sums = Reduce { axes: Axes::Axis(0), scale: 0.25, dtype: DType::F32 };
            let pooled = pass.one(sums, &[turned], "pooled")?;
            let squares =
                pass.one(Map::new(input(0) * input(0), DType::F32), &[pooled], "squares")?;
            let scale = 1.0 / pass.ty(squares).elements() as f64;
            pass.one(Reduce { scale, ..Reduce::to_suffix(vec![1], DType::F32) }, &[squares], "mean")
        }
    }

    let x: Vec<f32> = (0..6 * 12).map(|at| uniform(3, at) as f32).collect();
    let loss = |micro_batch| {
        let model = Arc::new(Pooled(Linear::new("layer", 3, 2)));
        let config = TrainerConfig { batch: 6, micro_batch, ..TrainerConfig::new(model) };
        let planned = Planned::new(&config, &*cpu()).expect("a plan");
        let mut trainer = Trainer::new(planned, cpu()).expect("memory");
        trainer.initialise().expect("weights");
        trainer.step(0, 0.1, &Batch::new().with("x", &x)).expect("a step");
        let outcome = block_on(trainer.outcome()).expect("an outcome");
        [outcome.loss, outcome.grad_norm]
    };
    let expected = loss(6);
    for micro_batch in [1, 2, 3] {
        near(&loss(micro_batch), &expected, &format!("micro-batches of {micro_batch}"));
    }
}

//! Updates against plain loops in f64.

use std::ops::Range;

use conformance::reference::Interpreter;
use tightrope_core::expr::{join, split};
use tightrope_core::{Class, DType, Graph, Phase, Role, Tensor, Type};
use tightrope_nn::{
    AdjustLr, Kind, LossScale, Optimizer, StateBits, TableBits, Trained, Update, UpdateOptions,
    append_update,
};

const SHAPES: [&[usize]; 3] = [&[5, 7], &[11], &[12, 4]];
/// Rows of their matrices; the last is two of another size, packed.
#[expect(clippy::single_range_in_vec_init, reason = "the first parameter is one matrix")]
const MATRICES: [&[Range<usize>]; 3] = [&[0..5], &[], &[0..8, 8..12]];
/// Rows of each tensor that a checkpoint holds: the last row of the first matrix is padding.
#[expect(clippy::single_range_in_vec_init, reason = "the first two parameters are a tensor each")]
const PARTS: [&[Range<usize>]; 3] = [&[0..4], &[0..11], &[0..8, 8..12]];
pub(crate) const ADAMW: Optimizer = Optimizer::AdamW { beta1: 0.9, beta2: 0.95, eps: 1e-8 };
pub(crate) const MUON: Optimizer = Optimizer::Muon {
    momentum: 0.95,
    adjust: AdjustLr::Original,
    beta1: 0.9,
    beta2: 0.95,
    eps: 1e-8,
};
pub(crate) const LR: f64 = 0.03;

/// Three parameters, the two-dimensional ones decayed, and a program `update`.
pub(crate) struct Setup {
    pub(crate) graph: Graph,
    trained: Vec<Trained>,
    loss: Tensor,
    pub(crate) scale: Option<LossScale>,
    pub(crate) update: Update,
}

impl Setup {
    pub(crate) fn new(
        optimizer: Optimizer,
        options: UpdateOptions,
        dtype: DType,
        scaled: bool,
    ) -> Self {
        let mut graph = Graph::new();
        let remainder = match dtype {
            DType::BF16 => Some(DType::I16),
            DType::F16 => Some(DType::F32),
            _ => None,
        };
        let trained: Vec<Trained> = SHAPES
            .iter()
            .enumerate()
            .map(|(index, &shape)| {
                let mut tensor = |name: &str, dtype, class| {
                    let name = format!("{name}.{index}");
                    graph.persistent(&name, Type::new(dtype, shape), class)
                };
                Trained {
                    name: index.to_string(),
                    weight: tensor("weight", dtype, Class::Weight),
                    remainder: remainder.map(|dtype| tensor("remainder", dtype, Class::Weight)),
                    gradient: tensor("gradient", DType::F32, Class::Gradient),
                    decay: shape.len() > 1,
                    kind: Kind::Other,
                    matrices: MATRICES[index].to_vec(),
                    parts: PARTS[index].to_vec(),
                    sharded: None,
                }
            })
            .collect();
        let loss = graph.persistent("loss", Type::new(DType::F32, [1]), Class::Activation);
        let scale = scaled.then(|| LossScale::declare(&mut graph));
        graph.begin(Role::Update);
        let update =
            append_update(&mut graph, &optimizer, &options, &trained, loss, scale.as_ref())
                .unwrap();
        Self { graph, trained, loss, scale, update }
    }

    /// Writes masters of all parameters.
    pub(crate) fn start(&self, run: &Interpreter<'_>) {
        for (index, trained) in self.trained.iter().enumerate() {
            let masters = masters(index);
            match (self.graph.dtype(trained.weight), trained.remainder) {
                (DType::BF16, Some(low)) => {
                    let (high, rest): (Vec<_>, Vec<_>) = masters.into_iter().map(split).unzip();
                    run.assign(trained.weight, &high);
                    run.assign(low, &rest);
                }
                (_, low) => {
                    run.assign(trained.weight, &masters);
                    low.into_iter().for_each(|low| run.assign(low, &masters));
                }
            }
        }
        run.assign(self.update.scalars.lr, &[LR]);
        self.scale.iter().for_each(|scale| run.assign(scale.scale, &[LossScale::INITIAL]));
    }

    /// One update with the gradients of `step`, times `factor`.
    pub(crate) fn step(&self, run: &Interpreter<'_>, step: usize, factor: f64) {
        for (index, trained) in self.trained.iter().enumerate() {
            let scaled: Vec<f64> =
                gradients(index, step).into_iter().map(|g| f64::from(g) * factor).collect();
            run.assign(trained.gradient, &scaled);
        }
        run.run_role(Role::Update);
    }

    /// The f32 masters of parameter `index`.
    pub(crate) fn masters(&self, run: &Interpreter<'_>, index: usize) -> Vec<f32> {
        let Trained { weight, remainder, .. } = self.trained[index];
        let single = |tensor| run.values(tensor).into_iter().map(|x| x as f32).collect();
        match (self.graph.dtype(weight), remainder) {
            (DType::BF16, Some(low)) => {
                let halves = run.values(weight).into_iter().zip(run.values(low));
                halves.map(|(high, low)| join(half::bf16::from_f64(high), low as i16)).collect()
            }
            (_, Some(low)) => single(low),
            (_, None) => single(weight),
        }
    }

    /// Everything a skipped step must leave alone.
    fn kept(&self, run: &Interpreter<'_>) -> Vec<Vec<f64>> {
        let weights =
            self.trained.iter().flat_map(|trained| [Some(trained.weight), trained.remainder]);
        let state = self.update.state.iter().map(|state| Some(state.tensor));
        let state = state.chain([self.update.updates]);
        weights.chain(state).flatten().map(|tensor| run.values(tensor)).collect()
    }
}

/// Numbers in [−1, 1) by a linear congruential generator.
fn numbers(seed: usize, count: usize) -> Vec<f32> {
    let mut state = seed as u64 + 1;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

pub(crate) fn masters(index: usize) -> Vec<f32> {
    numbers(index, SHAPES[index].iter().product())
}

fn gradients(index: usize, step: usize) -> Vec<f32> {
    numbers(100 + 10 * step + index, SHAPES[index].iter().product())
}

pub(crate) const OPTIONS: UpdateOptions = UpdateOptions {
    weight_decay: 0.1,
    clip: Some(1.0),
    zero_gradients: true,
    consume: false,
    bits: StateBits::B32,
    table_bits: TableBits::B32,
    key: None,
};

/// To bf16.
fn rounded(x: f64) -> f64 {
    half::bf16::from_f64(x).to_f64()
}

/// The matmul of an m × k and a k × n matrix.
fn matmul(a: &[f64], b: &[f64], [m, k, n]: [usize; 3]) -> Vec<f64> {
    let at = |i: usize, j: usize| (0..k).map(|l| a[i * k + l] * b[l * n + j]).sum::<f64>();
    (0..m * n).map(|element| f64::from(at(element / n, element % n) as f32)).collect()
}

fn transposed(a: &[f64], rows: usize, columns: usize) -> Vec<f64> {
    (0..a.len()).map(|at| a[at % rows * columns + at / rows]).collect()
}

/// Newton–Schulz as torch.optim.Muon has it, on the wide one of a matrix and its transpose.
fn orthogonalized(matrix: &[f64], rows: usize, columns: usize) -> Vec<f64> {
    if rows > columns {
        let turned = orthogonalized(&transposed(matrix, rows, columns), columns, rows);
        return transposed(&turned, columns, rows);
    }
    let norm = rounded(matrix.iter().map(|x| x * x).sum::<f64>().sqrt()).max(1e-7);
    let mut x: Vec<f64> = matrix.iter().map(|x| rounded(x / norm)).collect();
    for _ in 0..5 {
        let gram = matmul(&x, &transposed(&x, rows, columns), [rows, columns, rows]);
        let gram: Vec<f64> = gram.into_iter().map(rounded).collect();
        let squared = matmul(&gram, &gram, [rows; 3]);
        let both = gram.iter().zip(squared);
        let factor: Vec<f64> = both.map(|(g, s)| rounded(-4.775 * g + 2.0315 * s)).collect();
        let moved = matmul(&factor, &x, [rows, rows, columns]);
        x = x.iter().zip(moved).map(|(x, moved)| rounded(3.4445 * x + moved)).collect();
    }
    x
}

/// Weights after `steps` updates and the gradient norm of each, written out after the papers.
pub(crate) fn plain_loops(
    optimizer: Optimizer,
    options: &UpdateOptions,
    steps: usize,
) -> (Vec<Vec<f64>>, Vec<f64>) {
    let mut weights: Vec<Vec<f64>> =
        (0..3).map(|i| masters(i).into_iter().map(f64::from).collect()).collect();
    let mut first: Vec<Vec<f64>> = weights.iter().map(|w| vec![0.0; w.len()]).collect();
    let mut second = first.clone();
    let mut norms = vec![];
    for step in 0..steps {
        let all: Vec<Vec<f64>> =
            (0..3).map(|i| gradients(i, step).into_iter().map(f64::from).collect()).collect();
        let norm = all.iter().flatten().map(|g| g * g).sum::<f64>().sqrt();
        norms.push(norm);
        let factor = options.clip.map_or(1.0, |clip| (clip / (norm + 1e-6)).min(1.0));
        for index in 0..3 {
            if let (Optimizer::Muon { momentum, adjust, .. }, [_, columns]) =
                (optimizer, SHAPES[index])
            {
                let (weight, m) = (&mut weights[index], &mut first[index]);
                let direction = all[index].iter().zip(m).map(|(g, m)| {
                    *m += (1.0 - momentum) * (g * factor - *m);
                    g * factor + momentum * (*m - g * factor)
                });
                let direction: Vec<f64> = direction.map(rounded).collect();
                weight.iter_mut().for_each(|w| *w -= LR * options.weight_decay * *w);
                for rows in MATRICES[index] {
                    let elements = rows.start * columns..rows.end * columns;
                    let moved = orthogonalized(&direction[elements.clone()], rows.len(), *columns);
                    let lr = LR * adjust.factor(rows.len(), *columns);
                    for (w, x) in weight[elements].iter_mut().zip(moved) {
                        *w -= lr * x;
                    }
                }
                continue;
            }
            let decay = if SHAPES[index].len() > 1 { options.weight_decay } else { 0.0 };
            if optimizer == Optimizer::Adafactor {
                let beta = 1.0 - (step as f64 + 1.0).powf(-0.8);
                let g: Vec<f64> = all[index].iter().map(|g| g * factor).collect();
                let columns = if let [_, columns] = SHAPES[index] { *columns } else { 1 };
                weights[index].iter_mut().for_each(|w| *w -= LR * decay * *w);
                for (part, rows) in PARTS[index].iter().enumerate() {
                    let at = |r: usize, c: usize| (rows.start + r) * columns + c;
                    let square = |r: usize, c: usize| g[at(r, c)].powi(2) + 1e-30;
                    let (first, second) = (&mut first[index], &mut second[index]);
                    for r in 0..rows.len() {
                        let mean = (0..columns).map(|c| square(r, c)).sum::<f64>() / columns as f64;
                        let row = &mut first[rows.start + r];
                        *row = beta * *row + (1.0 - beta) * mean;
                    }
                    for c in 0..columns {
                        let sum = (0..rows.len()).map(|r| square(r, c)).sum::<f64>();
                        let column = &mut second[part * columns + c];
                        *column = beta * *column + (1.0 - beta) * sum / rows.len() as f64;
                    }
                    let held = &first[rows.clone()];
                    let mean = held.iter().sum::<f64>() / held.len() as f64;
                    let root = |r: usize, c: usize| match SHAPES[index].len() {
                        1 => held[r].sqrt(),
                        _ => (held[r] * second[part * columns + c] / mean).sqrt(),
                    };
                    let all = (0..rows.len()).flat_map(|r| (0..columns).map(move |c| (r, c)));
                    let moved: Vec<f64> =
                        all.clone().map(|(r, c)| g[at(r, c)] / root(r, c)).collect();
                    let size = moved.iter().map(|u| u * u).sum::<f64>() / moved.len() as f64;
                    for ((r, c), u) in all.zip(moved) {
                        weights[index][at(r, c)] -= LR * u / size.sqrt().max(1.0);
                    }
                }
                continue;
            }
            for element in 0..weights[index].len() {
                let g = all[index][element] * factor;
                let p = &mut weights[index][element];
                let (m, v) = (&mut first[index][element], &mut second[index][element]);
                match optimizer {
                    Optimizer::AdamW { beta1, beta2, eps }
                    | Optimizer::Muon { beta1, beta2, eps, .. } => {
                        let t = step as i32 + 1;
                        *m = beta1 * *m + (1.0 - beta1) * g;
                        *v = beta2 * *v + (1.0 - beta2) * g * g;
                        let (mean, square) =
                            (*m / (1.0 - beta1.powi(t)), *v / (1.0 - beta2.powi(t)));
                        *p -= LR * decay * *p;
                        *p -= LR * mean / (square.sqrt() + eps);
                    }
                    Optimizer::Sgd { momentum } => {
                        *m = momentum * *m + g + decay * *p;
                        *p -= LR * *m;
                    }
                    Optimizer::Lion { beta1, beta2 } => {
                        let direction = (beta1 * *m + (1.0 - beta1) * g).signum();
                        *p -= LR * (direction + decay * *p);
                        *m = beta2 * *m + (1.0 - beta2) * g;
                    }
                    Optimizer::Adafactor => unreachable!("above"),
                }
            }
        }
    }
    (weights, norms)
}

#[test]
fn rules_match_plain_loops() {
    let free = UpdateOptions { weight_decay: 0.0, clip: None, zero_gradients: false, ..OPTIONS };
    for optimizer in [
        ADAMW,
        Optimizer::Sgd { momentum: 0.9 },
        Optimizer::Sgd { momentum: 0.0 },
        Optimizer::Lion { beta1: 0.9, beta2: 0.99 },
        MUON,
        Optimizer::Adafactor,
    ] {
        for options in [OPTIONS, free] {
            let setup = Setup::new(optimizer, options, DType::F32, false);
            let run = Interpreter::new(&setup.graph);
            setup.start(&run);
            let (expected, norms) = plain_loops(optimizer, &options, 7);
            for (step, norm) in norms.into_iter().enumerate() {
                setup.step(&run, step, 1.0);
                assert!((run.scalar(setup.update.grad_norm) / norm - 1.0).abs() < 1e-6);
                assert_eq!(run.scalar(setup.update.ok), 1.0);
                for (index, trained) in setup.trained.iter().enumerate() {
                    let left = run.values(trained.gradient);
                    let zeroed = left.iter().all(|&g| g == 0.0);
                    assert_eq!(zeroed, options.zero_gradients, "gradient {index}");
                }
            }
            for (index, expected) in expected.iter().enumerate() {
                for (found, expected) in setup.masters(&run, index).iter().zip(expected) {
                    let off = (f64::from(*found) - expected).abs();
                    assert!(off < 2e-6, "{optimizer:?} {index}: {found} vs {expected}");
                }
            }
        }
    }
}

#[test]
fn masters_of_sixteen_bit_weights_follow_f32_bit_for_bit() {
    for (optimizer, dtype) in [ADAMW, MUON, Optimizer::Adafactor]
        .into_iter()
        .flat_map(|o| [(o, DType::BF16), (o, DType::F16)])
    {
        let single = Setup::new(optimizer, OPTIONS, DType::F32, false);
        let expected = Interpreter::new(&single.graph);
        single.start(&expected);
        (0..5).for_each(|step| single.step(&expected, step, 1.0));
        let setup = Setup::new(optimizer, OPTIONS, dtype, false);
        let run = Interpreter::new(&setup.graph);
        setup.start(&run);
        (0..5).for_each(|step| setup.step(&run, step, 1.0));
        for index in 0..3 {
            let masters = setup.masters(&run, index);
            assert_eq!(masters, single.masters(&expected, index), "{dtype}");
            for (weight, master) in run.values(setup.trained[index].weight).iter().zip(masters) {
                let rounded = match dtype {
                    DType::BF16 => split(master).0.to_f64(),
                    _ => half::f16::from_f32(master).to_f64(),
                };
                assert_eq!(*weight, rounded);
            }
        }
    }
}

#[test]
fn a_step_that_is_not_finite_changes_nothing() {
    for (optimizer, dtype, loss, factor) in [
        (ADAMW, DType::F32, 1.0, f64::INFINITY),
        (ADAMW, DType::F32, 1.0, f64::NAN),
        (ADAMW, DType::F32, f64::NAN, 1.0),
        (ADAMW, DType::BF16, 1.0, f64::INFINITY),
        (ADAMW, DType::F16, f64::INFINITY, 1.0),
        (MUON, DType::F32, 1.0, f64::NAN),
        (Optimizer::Adafactor, DType::F32, 1.0, f64::NAN),
        (Optimizer::Adafactor, DType::BF16, f64::INFINITY, 1.0),
        (MUON, DType::BF16, f64::INFINITY, 1.0),
    ] {
        let setup = Setup::new(optimizer, OPTIONS, dtype, false);
        let run = Interpreter::new(&setup.graph);
        setup.start(&run);
        setup.step(&run, 0, 1.0);
        let before = setup.kept(&run);
        run.assign(setup.loss, &[loss]);
        setup.step(&run, 1, factor);
        assert_eq!(run.scalar(setup.update.ok), 0.0);
        assert_eq!(setup.kept(&run), before, "{dtype} {loss} {factor}");
        for trained in &setup.trained {
            assert!(run.values(trained.gradient).iter().all(|&g| g == 0.0));
        }
        run.assign(setup.loss, &[1.0]);
        setup.step(&run, 2, 1.0);
        assert_ne!(setup.kept(&run), before);
    }
}

#[test]
fn the_loss_scale_cancels_and_adapts() {
    let plain = Setup::new(ADAMW, OPTIONS, DType::F16, false);
    let scaled = Setup::new(ADAMW, OPTIONS, DType::F16, true);
    let (a, b) = (Interpreter::new(&plain.graph), Interpreter::new(&scaled.graph));
    plain.start(&a);
    scaled.start(&b);
    let LossScale { scale, steps, used } = scaled.scale.unwrap();
    for step in 0..3 {
        plain.step(&a, step, 1.0);
        scaled.step(&b, step, b.scalar(scale));
        let norms = [a.scalar(plain.update.grad_norm), b.scalar(scaled.update.grad_norm)];
        assert!((norms[0] / norms[1] - 1.0).abs() < 1e-6, "{norms:?}");
    }
    for index in 0..3 {
        for (x, y) in plain.masters(&a, index).iter().zip(scaled.masters(&b, index)) {
            assert!((x - y).abs() < 1e-6, "{x} {y}");
        }
    }
    assert_eq!([b.scalar(scale), b.scalar(steps)], [65_536.0, 3.0]);
    scaled.step(&b, 3, f64::INFINITY);
    assert_eq!([b.scalar(scale), b.scalar(steps), b.scalar(used)], [32_768.0, 0.0, 65_536.0]);
    b.assign(steps, &[1998.0]);
    scaled.step(&b, 4, 1.0);
    assert_eq!([b.scalar(scale), b.scalar(steps)], [32_768.0, 1999.0]);
    scaled.step(&b, 5, 1.0);
    assert_eq!([b.scalar(scale), b.scalar(steps)], [65_536.0, 0.0]);
}

#[test]
fn one_map_for_decayed_parameters_and_one_for_the_rest() {
    let setup = Setup::new(ADAMW, OPTIONS, DType::BF16, false);
    let nodes = &setup.graph.programs[0].nodes;
    assert!(nodes.iter().all(|node| node.phase == Phase::Update));
    let families: Vec<&str> = nodes.iter().map(|node| node.op.family()).collect();
    let expected = ["Map", "SquareSum", "Reduce", "Map", "Map", "Map", "Map"];
    assert_eq!(families, expected);
    let without = UpdateOptions { weight_decay: 0.0, ..OPTIONS };
    let setup = Setup::new(ADAMW, without, DType::BF16, false);
    assert_eq!(setup.graph.programs[0].nodes.len(), expected.len() - 1);
    let slots: Vec<_> = setup.update.state.iter().map(|s| (s.parameter, s.slot)).collect();
    assert_eq!(slots[..3], [(0, "exp_avg"), (0, "exp_avg_sq"), (1, "exp_avg")]);
    assert_eq!(setup.graph.info(setup.update.state[3].tensor).name, "optim.1.exp_avg_sq");
}

#[test]
fn muon_keeps_one_tensor_of_a_matrix_and_two_of_anything_else() {
    let setup = Setup::new(MUON, OPTIONS, DType::F32, false);
    let slots: Vec<_> = setup.update.state.iter().map(|s| (s.parameter, s.slot)).collect();
    let momentum = "momentum_buffer";
    assert_eq!(slots, [(0, momentum), (1, "exp_avg"), (1, "exp_avg_sq"), (2, momentum)]);
}

#[test]
fn muon_moves_every_direction_of_a_matrix_as_far() {
    let free = UpdateOptions { weight_decay: 0.0, clip: None, ..OPTIONS };
    let setup = Setup::new(MUON, free, DType::F32, false);
    let run = Interpreter::new(&setup.graph);
    setup.start(&run);
    let before = setup.masters(&run, 0);
    setup.step(&run, 0, 1.0);
    let moved = before.iter().zip(setup.masters(&run, 0)).map(|(a, b)| f64::from(a - b) / LR);
    let moved: Vec<f64> = moved.collect();
    // An orthonormal matrix times its transpose is the identity; singular values are between 0.68 and 1.21.
    let gram = matmul(&moved, &transposed(&moved, 5, 7), [5, 7, 5]);
    for (at, value) in gram.into_iter().enumerate() {
        let is_diagonal = at % 6 == 0;
        assert!(
            if is_diagonal { (0.4..1.6).contains(&value) } else { value.abs() < 0.5 },
            "{at}: {value}"
        );
    }
}

#[test]
fn refusals() {
    let mut graph = Graph::new();
    let mut tensor = |name: &str, dtype, shape: &[usize]| {
        graph.persistent(name, Type::new(dtype, shape), Class::Weight)
    };
    let good = Trained {
        name: "w".into(),
        weight: tensor("w", DType::F32, &[4]),
        remainder: None,
        gradient: tensor("g", DType::F32, &[4]),
        decay: false,
        kind: Kind::Other,
        matrices: vec![],
        parts: PARTS[0].to_vec(),
        sharded: None,
    };
    let half = tensor("half", DType::BF16, &[4]);
    let short = tensor("short", DType::F32, &[3]);
    let loss = tensor("loss", DType::F32, &[1]);
    graph.begin(Role::Update);
    for (optimizer, options, trained, words) in [
        (ADAMW, OPTIONS, vec![], "no parameter"),
        (
            ADAMW,
            OPTIONS,
            vec![Trained { weight: half, ..good.clone() }],
            "`memory.master`: bf16 weights without a remainder are rounded by random numbers",
        ),
        (
            ADAMW,
            OPTIONS,
            vec![Trained { remainder: Some(half), ..good.clone() }],
            "f32 with a remainder in bf16",
        ),
        (ADAMW, OPTIONS, vec![Trained { gradient: short, ..good.clone() }], "of `w` is f32[3]"),
        (ADAMW, UpdateOptions { clip: Some(0.0), ..OPTIONS }, vec![good.clone()], "`clip`"),
        (
            ADAMW,
            UpdateOptions { weight_decay: -1.0, ..OPTIONS },
            vec![good.clone()],
            "`weight_decay`: -1",
        ),
        (Optimizer::Sgd { momentum: 1.0 }, OPTIONS, vec![good.clone()], "`momentum`: 1"),
        (MUON, OPTIONS, vec![good.clone()], "none of them is trained"),
        (
            Optimizer::Adafactor,
            UpdateOptions { bits: StateBits::B8, ..OPTIONS },
            vec![good.clone()],
            "leave it at 32",
        ),
        (
            ADAMW,
            UpdateOptions { table_bits: TableBits::B8, ..OPTIONS },
            vec![good.clone()],
            "`memory.table_bits`",
        ),
        (
            ADAMW,
            UpdateOptions { bits: StateBits::B16, ..OPTIONS },
            vec![good.clone()],
            "need a key",
        ),
        (
            Optimizer::AdamW { beta1: 0.9, beta2: 0.95, eps: 0.0 },
            OPTIONS,
            vec![good.clone()],
            "`eps`: 0",
        ),
    ] {
        let result = append_update(&mut graph, &optimizer, &options, &trained, loss, None);
        let message = result.map(drop).unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    }
}

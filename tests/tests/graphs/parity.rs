//! Models and AdamW against the cases of whole models in `tests/parity`, recorded with PyTorch and transformers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use conformance::reference::Interpreter;
use serde_json::Value;
use tightrope_core::{Class, DType, Graph, Role, Tensor, Type, Wanted, grad};
use tightrope_nn::inputs::{POSITIONS, START, TARGETS, TOKENS};
use tightrope_nn::{
    AdjustLr, Architecture, BuildOptions, Exported, Inputs, ModelConfig, Optimizer, Pass,
    Precision, StateBits, TableBits, Trained, Update, UpdateOptions, Weights, append_update,
    export, import,
};

/// Tensors of a safetensors file as f32 (i32 converted), and its metadata.
struct File {
    tensors: BTreeMap<String, (Vec<usize>, Vec<f32>)>,
    metadata: Value,
}

fn open(path: &Path) -> File {
    let bytes = std::fs::read(path).unwrap();
    let (length, rest) = bytes.split_first_chunk::<8>().unwrap();
    let (header, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let mut header: BTreeMap<String, Value> = serde_json::from_slice(header).unwrap();
    let metadata = header.remove("__metadata__").unwrap_or_default();
    let size = |value: &Value| value.as_u64().unwrap() as usize;
    let sizes = |value: &Value| value.as_array().unwrap().iter().map(size).collect::<Vec<_>>();
    let tensors = header.into_iter().map(|(name, entry)| {
        let range = sizes(&entry["data_offsets"]);
        let elements = data[range[0]..range[1]].chunks_exact(4).map(|word| {
            let word: [u8; 4] = word.try_into().unwrap();
            match entry["dtype"].as_str() {
                Some("F32") => f32::from_le_bytes(word),
                Some("I32") => i32::from_le_bytes(word) as f32,
                other => panic!("{name} is {other:?}"),
            }
        });
        let values = elements.collect();
        (name, (sizes(&entry["shape"]), values))
    });
    File { tensors: tensors.collect(), metadata }
}

struct Case {
    name: String,
    config: ModelConfig,
    model: File,
    recorded: File,
}

impl Case {
    fn setting(&self, key: &str) -> f64 {
        self.recorded.metadata[key].as_str().unwrap().parse().unwrap()
    }

    fn values(&self, name: &str) -> &[f32] {
        &self.recorded.tensors[name].1
    }

    /// Tokens and targets of micro-batch `index`.
    fn batch(&self, index: usize) -> (Vec<f32>, Vec<f32>) {
        let (shape, tokens) = &self.recorded.tensors["tokens"];
        let (rows, columns) = (shape[1], shape[2]);
        let batch = &tokens[index * rows * columns..][..rows * columns];
        let rows = || batch.chunks_exact(columns);
        let join = |part: fn(&[f32]) -> &[f32]| rows().flat_map(part).copied().collect();
        (join(|row| &row[..row.len() - 1]), join(|row| &row[1..]))
    }

    fn import(&self) -> Vec<Vec<f32>> {
        let names: Vec<String> = self.model.tensors.keys().cloned().collect();
        let tensors = &self.model.tensors;
        let values =
            import(&*self.config.build(1).unwrap(), &names, &mut |name| Ok(tensors[name].clone()))
                .unwrap();
        values.into_iter().map(|(_, values)| values).collect()
    }
}

/// Every recorded case of a language model that trains all weights.
fn cases() -> Vec<Case> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("parity");
    let entries = std::fs::read_dir(&folder).expect("the folder of recorded cases");
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    folders
        .retain(|path| path.join("case.safetensors").is_file() && !path.join("adapters").exists());
    folders.retain(|path| {
        let config = std::fs::read(path.join("config.json")).unwrap();
        let model = Architecture::from_hf(&serde_json::from_slice(&config).unwrap());
        matches!(model, Ok(Architecture::Language(_)))
    });
    folders.sort();
    assert!(!folders.is_empty(), "{} holds no case of a whole model", folder.display());
    let case = |path: PathBuf| {
        let json = std::fs::read(path.join("config.json")).unwrap();
        Case {
            name: path.file_name().unwrap().to_string_lossy().into_owned(),
            config: ModelConfig::from_hf(&serde_json::from_slice(&json).unwrap()).unwrap(),
            model: open(&path.join("model.safetensors")),
            recorded: open(&path.join("case.safetensors")),
        }
    };
    folders.into_iter().map(case).collect()
}

/// A model with its programs `train`, `update`, `logits` and `decode`.
struct Built {
    weights: Weights,
    inputs: Inputs,
    seed: Tensor,
    loss: Tensor,
    /// Sums over micro-steps.
    gradients: Vec<Tensor>,
    loss_sum: Tensor,
    update: Update,
    logits: Tensor,
    decoding: Inputs,
    decoded: Tensor,
}

fn build(graph: &mut Graph, case: &Case, precision: Precision) -> Built {
    let (batch, seq_len) = (case.setting("batch") as usize, case.setting("seq") as usize);
    let model = case.config.build(seq_len).unwrap();
    let weights = Weights::declare(graph, model.parameters(), precision).unwrap();
    let inputs = Inputs::declare(graph, &model.inputs(), batch).unwrap();
    let mut given = |name: &str, dtype, shape: &[usize]| {
        graph.persistent(name, Type::new(dtype, shape), Class::Input)
    };
    let decoding = Inputs::default()
        .with(TOKENS, given("decode.tokens", DType::I32, &[batch, 1]))
        .with(POSITIONS, given("decode.positions", DType::I32, &[1]))
        .with(START, given("decode.start", DType::I32, &[1]));
    let seed = given("seed", DType::F32, &[1]);
    let loss_sum = given("loss_sum", DType::F32, &[1]);
    let options = BuildOptions { loss_chunk: 16, ..BuildOptions::default() };

    let remainders = weights.declare_remainders(graph);
    let trained: Vec<Trained> = (weights.parameters().iter().zip(weights.tensors()).enumerate())
        .map(|(index, (parameter, &weight))| Trained {
            name: parameter.name.clone(),
            weight,
            remainder: remainders.get(index).copied(),
            gradient: graph.persistent(
                &format!("grad.{}", parameter.name),
                Type::new(DType::F32, parameter.shape.clone()),
                Class::Gradient,
            ),
            decay: parameter.decay,
            kind: parameter.kind,
            matrices: parameter.matrices(),
            parts: parameter.parts.iter().map(|part| part.rows.clone()).collect(),
            sharded: None,
        })
        .collect();
    graph.begin(Role::Train);
    let mut pass = Pass::training(graph, &weights, inputs.clone(), options, None);
    let loss = model.loss(&mut pass).unwrap();
    let wanted: Vec<Wanted> =
        trained.iter().map(|t| Wanted { into: Some(t.gradient), ..t.weight.into() }).collect();
    for (sum, trained) in grad(graph, loss, seed, &wanted).unwrap().into_iter().zip(&trained) {
        assert_ne!(sum, Some(trained.gradient), "the loss doesn't depend on `{}`", trained.name);
    }
    graph.begin(Role::Update);
    let optimizer = optimizer(case);
    let options = UpdateOptions {
        weight_decay: case.setting("weight_decay"),
        clip: Some(case.setting("clip")),
        zero_gradients: true,
        consume: false,
        bits: StateBits::B32,
        table_bits: TableBits::B32,
        key: None,
    };
    let update = append_update(graph, &optimizer, &options, &trained, loss_sum, None).unwrap();
    graph.begin(Role::Logits);
    let mut pass = Pass::evaluation(graph, &weights, inputs.clone(), BuildOptions::default());
    let logits = model.logits(&mut pass).unwrap().expect("a language model has logits");
    graph.begin(Role::Decode);
    let mut pass = Pass::decoding(graph, &weights, decoding.clone(), seq_len);
    let decoded = model.decoder().expect("it decodes").decode(&mut pass).unwrap();
    let gradients = trained.iter().map(|trained| trained.gradient).collect();
    Built { weights, inputs, seed, loss, gradients, loss_sum, update, logits, decoding, decoded }
}

/// The optimizer of the recorded run: AdamW where none is named.
fn optimizer(case: &Case) -> Optimizer {
    let [beta1, beta2, eps] = ["beta1", "beta2", "eps"].map(|key| case.setting(key));
    let word = |key: &str| case.recorded.metadata.get(key).map(|value| value.as_str().unwrap());
    match word("optimizer") {
        None | Some("adamw") => Optimizer::AdamW { beta1, beta2, eps },
        Some("muon") => {
            let adjust = AdjustLr::named(word("adjust_lr").unwrap()).unwrap();
            Optimizer::Muon { momentum: case.setting("momentum"), adjust, beta1, beta2, eps }
        }
        Some(other) => panic!("{}: {other}", case.name),
    }
}

impl Built {
    fn start(&self, run: &Interpreter<'_>, case: &Case) {
        for (&weight, values) in self.weights.tensors().iter().zip(case.import()) {
            run.assign(weight, &values);
        }
        let seq_len = case.setting("seq") as i32;
        run.assign(self.inputs.get(POSITIONS).unwrap(), &(0..seq_len).collect::<Vec<_>>());
    }

    fn micro_step(&self, run: &Interpreter<'_>, case: &Case, batch: usize, seed: f64) -> f64 {
        let (tokens, targets) = case.batch(batch);
        run.assign(self.inputs.get(TOKENS).unwrap(), &tokens);
        run.assign(self.inputs.get(TARGETS).unwrap(), &targets);
        run.assign(self.seed, &[seed]);
        run.run_role(Role::Train);
        run.scalar(self.loss)
    }

    /// Largest relative L2 distance of `found` to the recorded tensors `prefix`, over all parameters; rows
    /// whose gradient is rounding noise aren't compared.
    fn distance(&self, case: &Case, prefix: &str, found: impl Fn(usize) -> Vec<f64>) -> f64 {
        let mut largest: f64 = 0.0;
        for (index, parameter) in self.weights.parameters().iter().enumerate() {
            let found: Vec<f32> = found(index).into_iter().map(|x| x as f32).collect();
            for Exported { name, shape, values } in export(parameter, &found) {
                let (expected_shape, expected) = &case.recorded.tensors[&format!("{prefix}{name}")];
                assert_eq!(&shape, expected_shape, "{name}");
                let noise = parameter.rows_without_gradient(&name);
                let determined = |values: &[f32]| -> Vec<f32> {
                    let kept =
                        values.iter().enumerate().filter(|(index, _)| !noise.contains(index));
                    kept.map(|(_, &value)| value).collect()
                };
                let distance = relative_l2(&determined(&values), &determined(expected));
                assert!(distance < 1e-4, "{} {prefix}{name}: {distance:e}", case.name);
                largest = largest.max(distance);
            }
        }
        largest
    }
}

fn relative_l2(found: &[f32], expected: &[f32]) -> f64 {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    let difference = &mut found.iter().zip(expected).map(|(&a, &b)| f64::from(a) - f64::from(b));
    norm(difference) / norm(&mut expected.iter().map(|&x| f64::from(x)))
}

/// Largest difference to the recorded logits, where `found` lacks the padding already.
fn largest_difference(found: &[f64], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    found.iter().zip(expected).map(|(a, &b)| (a - f64::from(b)).abs()).fold(0.0, f64::max)
}

fn unpadded(logits: &[f64], config: &ModelConfig) -> Vec<f64> {
    logits.chunks(config.padded_vocab()).flat_map(|row| &row[..config.vocab]).copied().collect()
}

#[test]
fn loss_logits_and_gradients() {
    for case in cases() {
        let mut graph = Graph::new();
        let built = build(&mut graph, &case, Precision::F32);
        let run = Interpreter::new(&graph);
        built.start(&run, &case);
        let loss = built.micro_step(&run, &case, 0, 1.0);
        let difference = (loss - f64::from(case.values("loss")[0])).abs();
        assert!(difference < 1e-5, "{}: loss {loss}, {difference:e} off", case.name);
        let gradients = built.distance(&case, "grad.", |index| run.values(built.gradients[index]));
        run.run_role(Role::Logits);
        let logits = unpadded(&run.values(built.logits), &case.config);
        let logits = largest_difference(&logits, case.values("logits"));
        assert!(logits < 1e-4, "{}: logits {logits:e} off", case.name);
        println!(
            "{}: loss {difference:.1e}, logits {logits:.1e}, gradients {gradients:.1e}",
            case.name
        );
    }
}

#[test]
fn decoding_token_by_token_gives_the_same_logits() {
    for case in cases() {
        let mut graph = Graph::new();
        let built = build(&mut graph, &case, Precision::F32);
        let run = Interpreter::new(&graph);
        built.start(&run, &case);
        let (tokens, _) = case.batch(0);
        let (seq_len, vocab) = (case.setting("seq") as usize, case.config.vocab);
        for position in 0..seq_len {
            let column: Vec<f32> = tokens.chunks(seq_len).map(|row| row[position]).collect();
            run.assign(built.decoding.get(TOKENS).unwrap(), &column);
            run.assign(built.decoding.get(POSITIONS).unwrap(), &[position as i32]);
            run.assign(built.decoding.get(START).unwrap(), &[position as i32]);
            run.run_role(Role::Decode);
            let found = unpadded(&run.values(built.decoded), &case.config);
            let recorded = case.values("logits").chunks(seq_len * vocab);
            let expected: Vec<f32> =
                recorded.flat_map(|row| &row[position * vocab..][..vocab]).copied().collect();
            let difference = largest_difference(&found, &expected);
            assert!(difference < 1e-4, "{} at {position}: {difference:e}", case.name);
        }
    }
}

#[test]
fn ten_steps_of_the_optimizer() {
    for case in cases() {
        let mut graph = Graph::new();
        let built = build(&mut graph, &case, Precision::F32);
        let run = Interpreter::new(&graph);
        built.start(&run, &case);
        let micro_steps = case.setting("accumulate") as usize;
        run.assign(built.update.scalars.lr, &[case.setting("lr")]);
        for step in 0..case.setting("steps") as usize {
            let mut loss = 0.0;
            for micro in 0..micro_steps {
                let seed = 1.0 / micro_steps as f64;
                loss += seed * built.micro_step(&run, &case, 1 + step * micro_steps + micro, seed);
            }
            run.assign(built.loss_sum, &[loss]);
            run.run_role(Role::Update);
            let norm = run.scalar(built.update.grad_norm);
            let (expected_loss, expected_norm) =
                (case.values("train.losses")[step], case.values("train.grad_norms")[step]);
            let off = (loss - f64::from(expected_loss)).abs();
            assert!(off < 1e-4, "{} step {step}: loss {loss}, {off:e} off", case.name);
            let off = (norm / f64::from(expected_norm) - 1.0).abs();
            assert!(off < 1e-4, "{} step {step}: norm {norm}, {off:e} off", case.name);
        }
        let weights =
            built.distance(&case, "after.", |index| run.values(built.weights.tensors()[index]));
        // What the loss doesn't depend on may wander, but no faster than the learning rate.
        let bound = case.setting("steps") * case.setting("lr") * 1.1;
        for (index, parameter) in built.weights.parameters().iter().enumerate() {
            let found: Vec<f32> =
                run.values(built.weights.tensors()[index]).into_iter().map(|x| x as f32).collect();
            for Exported { name, values, .. } in export(parameter, &found) {
                let rows = parameter.rows_without_gradient(&name);
                let first = &case.model.tensors[&name].1;
                for (found, first) in values[rows.clone()].iter().zip(&first[rows]) {
                    assert!(
                        f64::from((found - first).abs()) < bound,
                        "{name}: {found}, was {first}"
                    );
                }
            }
        }
        println!("{}: weights after ten steps {weights:.1e}", case.name);
    }
}

#[test]
fn sixteen_bits_come_close() {
    for case in cases() {
        for (precision, within) in [(Precision::BF16, 5e-3), (Precision::F16, 5e-4)] {
            let mut graph = Graph::new();
            let built = build(&mut graph, &case, precision);
            let run = Interpreter::new(&graph);
            built.start(&run, &case);
            let loss = built.micro_step(&run, &case, 0, 1.0);
            let expected = f64::from(case.values("loss")[0]);
            assert!((loss - expected).abs() < within, "{} {precision:?}: {loss}", case.name);
            assert!((loss - expected).abs() > 1e-7, "{precision:?} rounds nothing");
            for &gradient in &built.gradients {
                assert_eq!(graph.dtype(gradient), DType::F32);
                assert!(run.values(gradient).iter().all(|x| x.is_finite()));
            }
        }
    }
}

#[test]
fn configs_survive_the_round_trip() {
    for case in cases() {
        let again = ModelConfig::from_hf(&case.config.to_hf()).unwrap();
        assert_eq!(again, case.config, "{}", case.name);
    }
}

#[test]
fn files_survive_import_and_export() {
    for case in cases() {
        let list = tightrope_nn::parameters(&case.config);
        let exported = list.iter().zip(case.import()).flat_map(|(p, values)| export(p, &values));
        let exported: BTreeMap<_, _> =
            exported.map(|Exported { name, shape, values }| (name, (shape, values))).collect();
        assert_eq!(exported, case.model.tensors, "{}", case.name);
    }
}

//! Plans and generated kernel text, compared with checked-in copies: a refactor changes none of them.
//! After a change that is meant, `UPDATE_SNAPSHOTS=1 cargo test -p conformance --test plans snapshots` rewrites
//! them, and their difference is reviewed with the change.

use std::fmt::Write;
use std::path::PathBuf;

use tightrope_core::dialect::{Dialect, Exact, print};
use tightrope_core::plan::{Checkpoint, Options, Target};
use tightrope_core::{Op, Type};
use tightrope_nn::{BuildOptions, Family, ModelConfig, Planned, Precision, TrainerConfig};

/// A device without a processor's particulars, so that every machine makes the same plan.
#[derive(Default)]
struct Plain {
    epilogues: bool,
}

impl Target for Plain {
    fn alignment(&self) -> u64 {
        256
    }
    fn workspace(&self, op: &Op, inputs: &[&Type], _outputs: &[&Type]) -> u64 {
        match op {
            Op::LinearCrossEntropyGrad(op) => 4 * (op.loss.chunk * inputs[1].shape[0]) as u64,
            _ => 0,
        }
    }
    fn in_place(&self, _op: &Op) -> bool {
        true
    }
    fn epilogues(&self) -> bool {
        self.epilogues
    }
}

fn planned(family: Family, precision: Precision, batch: usize, checkpoint: Checkpoint) -> Planned {
    planned_for(&Plain::default(), family, precision, batch, checkpoint)
}

fn planned_for(
    device: &Plain,
    family: Family,
    precision: Precision,
    batch: usize,
    checkpoint: Checkpoint,
) -> Planned {
    let model = ModelConfig {
        family,
        layers: 2,
        channels: 32,
        heads: 4,
        kv_heads: if family == Family::Llama { 2 } else { 4 },
        hidden: if family == Family::Llama { 80 } else { 128 },
        context: 16,
        vocab: 61,
        tied: family == Family::Gpt2,
        ..tightrope_nn::preset("tiny").expect("a preset")
    };
    let config = TrainerConfig {
        precision,
        batch,
        micro_batch: 2,
        build: BuildOptions { loss_chunk: 8, ..BuildOptions::default() },
        options: Options { checkpoint, ..Options::default() },
        seed: 0,
        decode: 16,
        ..TrainerConfig::new(model.build(16).expect("a model"))
    };
    Planned::new(&config, device).expect("a plan")
}

fn compare(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("snapshots").join(name);
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(&path, text).expect("a snapshot");
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    if let Some((line, (new, old))) =
        text.lines().zip(stored.lines()).enumerate().find(|(_, (new, old))| new != old)
    {
        panic!("{name}, line {}:\n  stored {old}\n  now    {new}", line + 1);
    }
    assert_eq!(text.lines().count(), stored.lines().count(), "{name} has another length");
}

#[test]
fn plans() {
    let gpt2 = planned(Family::Gpt2, Precision::F32, 2, Checkpoint::None);
    compare("gpt2-f32.plan", &gpt2.plan.dump());
    let llama = planned(Family::Llama, Precision::BF16, 4, Checkpoint::Block);
    compare("llama-bf16-accumulate-block.plan", &llama.plan.dump());
    let device = Plain { epilogues: true };
    let fused = planned_for(&device, Family::Gpt2, Precision::BF16, 2, Checkpoint::None);
    compare("gpt2-bf16-epilogues.plan", &fused.plan.dump());
}

#[test]
fn generated_text() {
    let models = [
        planned(Family::Gpt2, Precision::BF16, 2, Checkpoint::None),
        planned(Family::Llama, Precision::F16, 4, Checkpoint::None),
    ];
    let mut seen = vec![];
    for (dialect, name) in [(Dialect::Wgsl, "maps.wgsl"), (Dialect::Cuda, "maps.cu")] {
        let mut text = String::new();
        let nodes = models.iter().flat_map(|m| &m.plan.graph.programs).flat_map(|p| &p.nodes);
        seen.clear();
        for node in nodes {
            let Op::Map(map) = &node.op else { continue };
            if seen.contains(&map.formulas) {
                continue;
            }
            seen.push(map.formulas.clone());
            let (statements, results) = print(&map.formulas, Exact::Single, dialect);
            writeln!(text, "{statements}-> {}\n", results.join(", ")).expect("a string takes text");
        }
        compare(name, &text);
    }
    assert!(seen.len() > 5, "the models have maps");
}

//! Cases that transformers recorded: a model's weights, and a run of it.

use std::path::Path;

use serde_json::Value;
use tightrope_data::SafeTensors;

/// A case of a model with the configuration `C`.
pub struct Case<C> {
    pub name: &'static str,
    pub config: C,
    pub weights: SafeTensors,
    pub record: SafeTensors,
}

impl<C> Case<C> {
    /// The case `name` of `tests/parity`, whose `config.json` is read by `read`.
    pub fn read(name: &'static str, read: impl FnOnce(&Value) -> tightrope_nn::Result<C>) -> Self {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("parity").join(name);
        let open = |name: &str| SafeTensors::open(dir.join(name)).expect("a file of the case");
        let json = std::fs::read(dir.join("config.json")).expect("a file of the case");
        let json = serde_json::from_slice(&json).expect("JSON");
        Self {
            name,
            config: read(&json).expect("a model"),
            weights: open("model.safetensors"),
            record: open("case.safetensors"),
        }
    }

    pub fn setting(&self, key: &str) -> f64 {
        self.record.metadata()[key].parse().expect("a number")
    }

    pub fn size(&self, key: &str) -> usize {
        self.setting(key) as usize
    }

    pub fn values(&self, name: &str) -> Vec<f32> {
        self.record.require(name).expect(name).to_f32().expect(name)
    }

    /// Numbers of an input for `count` micro-batches from `first` on; the first of all is the one of the logits.
    pub fn ids(&self, name: &str, first: usize, count: usize) -> Vec<i32> {
        let recorded = self.record.require(name).expect(name);
        let each: usize = recorded.shape[1..].iter().product();
        recorded.to_i32().expect(name)[first * each..][..count * each].to_vec()
    }
}

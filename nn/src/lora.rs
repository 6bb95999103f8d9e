//! LoRA (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models").   r rank, s = alpha/r
//!
//!   y = x·Wᵀ (+ b) + s·dropout(x)·Aᵀ·Bᵀ,   A (r, in) uniform, B (out, r) zeros
//!
//! A and B are trained, and everything else is frozen: no gradient, no master remainder, no optimizer state. Names
//! are those of PEFT, the library whose files these adapters are. Frozen weights of linear layers may be stored in
//! fewer bits: see [`FrozenBits`].

use std::ops::Range;

use serde::{Deserialize, Serialize};
use tightrope_core::graph::nearest;

use crate::error::{Result, ensure};
use crate::frozen::FrozenBits;
use crate::params::{Init, Kind, Parameter, Part};

/// Target that stands for every linear layer of the blocks.
pub const ALL_LINEAR: &str = "all-linear";
/// What the name of every adapter begins with in a file of PEFT's.
const PEFT: &str = "base_model.model.";

/// Low-rank adapters of frozen weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lora {
    /// Rank of the adapters, r.
    pub rank: usize,
    /// What adapters add counts alpha/r times.
    pub alpha: f64,
    /// Ends of the Hugging Face names of the linear layers that get adapters, or [`ALL_LINEAR`].
    pub targets: Vec<String>,
    /// Probability of zeroing an element of an adapter's input, in training.
    pub dropout: f64,
    /// Storage of the frozen weights of linear layers.
    #[serde(alias = "coded", alias = "quantized")]
    pub base_bits: FrozenBits,
}

/// A linear layer of a Hugging Face model: all of a parameter, or the rows of one of its parts.
struct Module<'a> {
    /// Index of the parameter.
    parameter: usize,
    name: &'a str,
    /// Name of the adapter in the graph, without its last word.
    own: String,
    rows: Range<usize>,
    columns: usize,
}

/// An adapter of some rows of a linear layer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Adapter {
    /// Index of the layer's weight among the parameters of the model.
    pub layer: usize,
    /// Rows of the weight, which are columns of the layer's output.
    pub rows: Range<usize>,
    /// A and B.
    pub parameters: [Parameter; 2],
}

/// The linear layers of a model but its head.
fn modules(list: &[Parameter]) -> impl Iterator<Item = Module<'_>> {
    let linear = list.iter().enumerate().filter(|(_, parameter)| parameter.kind == Kind::Linear);
    linear.flat_map(|(index, parameter)| {
        let of_layer = parameter.layer();
        parameter.parts.iter().map(move |Part { name, rows, .. }| {
            let name = name.trim_end_matches(".weight");
            let own = match parameter.parts.len() {
                1 => of_layer.to_owned(),
                _ => format!("{of_layer}.{}", last(name)),
            };
            Module { parameter: index, name, own, rows: rows.clone(), columns: parameter.columns() }
        })
    })
}

/// The last word of a dotted name.
fn last(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(_, last)| last)
}

/// Whether PEFT takes the module `name` for one of `target`.
fn is_target(name: &str, target: &str) -> bool {
    target == ALL_LINEAR
        || name.strip_suffix(target).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

impl Lora {
    /// # Errors
    /// [`crate::Error::Setting`] for a number out of range, and for a target that no linear layer of the model has, with
    /// the nearest that one has.
    pub fn check(&self, list: &[Parameter]) -> Result<()> {
        let linear = list.iter().filter(|parameter| parameter.kind == Kind::Linear);
        let widest = linear.flat_map(|parameter| &parameter.shape).copied().max().unwrap_or(0);
        ensure((1..=widest).contains(&self.rank), "lora.rank", || {
            format!("{} must lie between 1 and {widest}, the model's widest layer", self.rank)
        })?;
        ensure(self.alpha.is_finite() && self.alpha > 0.0, "lora.alpha", || {
            format!("{} must be above 0", self.alpha)
        })?;
        ensure((0.0..1.0).contains(&self.dropout), "lora.dropout", || {
            format!("{} must be at least 0 and below 1", self.dropout)
        })?;
        ensure(!self.targets.is_empty(), "lora.targets", || {
            format!("names no layer; name some, or \"{ALL_LINEAR}\"")
        })?;
        let mut known = vec![];
        for module in modules(list) {
            let name = last(module.name);
            if !known.contains(&name) {
                known.push(name);
            }
        }
        for target in &self.targets {
            let found = !target.is_empty() && modules(list).any(|m| is_target(m.name, target));
            ensure(found, "lora.targets", || {
                let near = nearest(target, known.iter().copied().chain([ALL_LINEAR]));
                let near = near.map_or(".".to_owned(), |name| format!("; did you mean `{name}`?"));
                format!(
                    "no linear layer of the model is called `{target}`{near} It has {}, or {ALL_LINEAR}",
                    known.join(", ")
                )
            })?;
        }
        Ok(())
    }

    /// Factor on what adapters add.
    pub fn scale(&self) -> f64 {
        self.alpha / self.rank as f64
    }

    /// The adapters of a model, in the order of its parameters.
    pub(crate) fn adapters(&self, list: &[Parameter]) -> Vec<Adapter> {
        let targeted =
            modules(list).filter(|m| self.targets.iter().any(|target| is_target(m.name, target)));
        targeted
            .map(|Module { parameter, name, own, rows, columns }| {
                let adapter = |letter: &str, shape: &[usize], init| {
                    let own = format!("{own}.lora_{letter}");
                    Parameter::new(own, shape, init)
                        .stored_as(format!("{PEFT}{name}.lora_{letter}.weight"))
                };
                let a = adapter("A", &[self.rank, columns], Init::linear(columns));
                let b = adapter("B", &[rows.len(), self.rank], Init::Zeros);
                Adapter { layer: parameter, rows, parameters: [a, b] }
            })
            .collect()
    }

    /// A and B of each adapter of a model, in the order in which checkpoints hold them.
    pub fn parameters(&self, list: &[Parameter]) -> Vec<Parameter> {
        self.adapters(list).into_iter().flat_map(|adapter| adapter.parameters).collect()
    }

    /// Adds to the weight at `index` of a model's parameters what its adapters add to it: `alpha/r · B A` (Hu et al. 2021,
    /// section 4.1). `values` are those of the whole weight; they are rounded to what training saw of them before something
    /// is added. `read` gives the values of an A or a B.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn merge(
        &self,
        list: &[Parameter],
        index: usize,
        values: &mut [f32],
        read: &mut dyn FnMut(&Parameter) -> Result<Vec<f32>>,
    ) -> Result<()> {
        let parameter = &list[index];
        if parameter.kind == Kind::Linear {
            self.base_bits.round(parameter, values);
        }
        let columns = parameter.columns();
        for adapter in self.adapters(list).into_iter().filter(|adapter| adapter.layer == index) {
            let [a, b] = &adapter.parameters;
            let (a, b) = (read(a)?, read(b)?);
            let rows = &mut values[adapter.rows.start * columns..adapter.rows.end * columns];
            for (weights, b) in rows.chunks_mut(columns).zip(b.chunks(self.rank)) {
                for (column, weight) in weights.iter_mut().enumerate() {
                    let a = a[column..].iter().step_by(columns);
                    let sum: f64 =
                        b.iter().zip(a).map(|(&b, &a)| f64::from(b) * f64::from(a)).sum();
                    *weight = (f64::from(*weight) + self.scale() * sum) as f32;
                }
            }
        }
        Ok(())
    }

    /// Numbers that are trained: those of all adapters of a model.
    pub fn trained(&self, list: &[Parameter]) -> u64 {
        let adapters = self.adapters(list);
        adapters
            .iter()
            .flat_map(|a| &a.parameters)
            .map(|parameter| parameter.elements() as u64)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{initial_values, parameters, preset};

    fn lora(targets: &[&str]) -> Lora {
        let targets = targets.iter().map(|&target| target.to_owned()).collect();
        Lora { rank: 4, alpha: 8.0, targets, dropout: 0.0, base_bits: FrozenBits::Precision }
    }

    fn names(preset_name: &str, targets: &[&str]) -> Vec<String> {
        let list = parameters(&preset(preset_name).unwrap());
        lora(targets).check(&list).unwrap();
        let adapters = lora(targets).adapters(&list);
        adapters.iter().map(|adapter| adapter.parameters[0].parts[0].name.clone()).collect()
    }

    #[test]
    fn adapters_have_the_names_of_peft() {
        let layers = preset("tiny").unwrap().layers;
        let found = names("tiny", &["c_attn"]);
        assert_eq!(found[0], "base_model.model.transformer.h.0.attn.c_attn.lora_A.weight");
        assert_eq!(found.len(), layers);
        assert_eq!(names("tiny", &["c_proj"]).len(), 2 * layers);
        assert_eq!(names("tiny", &["mlp.c_proj"]).len(), layers);
        assert_eq!(names("tiny", &[ALL_LINEAR]).len(), 4 * layers);
        let layers = preset("llama-tiny").unwrap().layers;
        let found = names("llama-tiny", &["q_proj", "v_proj"]);
        assert_eq!(found[1], "base_model.model.model.layers.0.self_attn.v_proj.lora_A.weight");
        assert_eq!(found.len(), 2 * layers);
        assert_eq!(names("llama-tiny", &[ALL_LINEAR]).len(), 7 * layers);
    }

    #[test]
    fn refusals_name_the_setting() {
        let list = parameters(&preset("tiny").unwrap());
        for (lora, words) in [
            (
                lora(&["c_atn"]),
                "called `c_atn`; did you mean `c_attn`? It has c_attn, c_proj, c_fc",
            ),
            (lora(&["attn"]), "no linear layer of the model is called `attn`"),
            (lora(&["lm_head"]), "called `lm_head`"),
            (lora(&[""]), "called ``"),
            (lora(&[]), "`lora.targets`: names no layer"),
            (Lora { rank: 0, ..lora(&["c_fc"]) }, "`lora.rank`: 0 must lie between 1 and"),
            (Lora { alpha: 0.0, ..lora(&["c_fc"]) }, "`lora.alpha`: 0 must be above 0"),
            (Lora { dropout: 1.0, ..lora(&["c_fc"]) }, "`lora.dropout`: 1 must be"),
        ] {
            let message = lora.check(&list).unwrap_err().to_string();
            assert!(message.contains(words), "{message}");
        }
    }

    #[test]
    fn a_begins_as_linear_layers_of_torch_do() {
        let config = preset("tiny").unwrap();
        let [a, b] = lora(&["c_fc"]).adapters(&parameters(&config))[0].parameters.clone();
        let values = initial_values(&a, 5);
        let bound = 1.0 / (config.channels as f32).sqrt();
        let largest = values.iter().fold(0.0, |largest: f32, x| largest.max(x.abs()));
        assert!(largest <= bound && largest > 0.95 * bound, "{largest} of {bound}");
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        assert!(mean.abs() < 0.1 * bound, "{mean}");
        assert!(initial_values(&b, 5).iter().all(|&x| x == 0.0));
    }
}

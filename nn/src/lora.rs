//! LoRA (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models").   r rank, s = alpha/r, or alpha/√r (rsLoRA, Kalajdzievski 2023)
//!
//!   y = x·Wᵀ (+ b) + s·dropout(x)·Aᵀ·Bᵀ,   A (r, in) uniform, B (out, r) zeros
//!
//! With DoRA (Liu et al. 2024), the sum W + s·B·A has rows of the lengths m that are learned too, and begin as those of W:
//!
//!   y = x·Wᵀ (+ b) + (m/n − 1)·dropout(x)·Wᵀ + m/n·s·dropout(x)·Aᵀ·Bᵀ,   n = ‖W + s·B·A‖ by row, a constant to the gradient
//!
//! A, B and m are trained, and everything else is frozen: no gradient, no master remainder, no optimizer state. Names
//! are those of PEFT, the library whose files these adapters are. Frozen weights of linear layers may be stored in
//! fewer bits: see [`FrozenBits`].

use std::ops::Range;

use serde::{Deserialize, Serialize};
use tightrope_core::graph::nearest;

use crate::error::{Result, ensure};
use crate::frozen::FrozenBits;
use crate::params::{Init, Kind, Parameter, Part};
use crate::transpose::transpose;

mod matching;
mod variant;

use matching::Matching;
pub use variant::{Biases, Variant};

/// Target that stands for every linear layer of the blocks.
pub const ALL_LINEAR: &str = "all-linear";
/// Beginning of a target that is a regular expression for a module's whole name.
pub const REGEX: &str = "regex:";
/// What the name of every adapter begins with in a file of PEFT's.
pub(crate) const PEFT: &str = "base_model.model.";
/// Ends of the names of tables of rows by id, which are no linear layers.
const TABLES: [&str; 4] = ["embed_tokens", "wte", "wpe", "embeddings"];
/// Ends of the names of tables whose rows are tokens of a language model.
const TOKENS: [&str; 2] = ["embed_tokens", "wte"];

/// Low-rank adapters of frozen weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lora {
    /// Rank of the adapters, r.
    pub rank: usize,
    /// What adapters add counts alpha/r times.
    pub alpha: f64,
    /// Ends of the Hugging Face names of the linear layers that get adapters, [`ALL_LINEAR`], or [`REGEX`] and an expression.
    pub targets: Vec<String>,
    /// Probability of zeroing an element of an adapter's input, in training.
    pub dropout: f64,
    /// Storage of the frozen weights of linear layers.
    #[serde(alias = "coded", alias = "quantized")]
    pub base_bits: FrozenBits,
    /// What else of PEFT's settings isn't as it begins.
    #[serde(default, skip_serializing_if = "Variant::is_plain")]
    pub variant: Variant,
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
    kind: Kind,
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
    /// Lengths of the rows of the adapted weight, where they are learned.
    pub magnitude: Option<Parameter>,
    /// Factor on what it adds.
    pub scale: f64,
}

impl Adapter {
    /// Its parameters, in the order in which checkpoints hold them.
    pub fn into_parameters(self) -> impl Iterator<Item = Parameter> {
        self.parameters.into_iter().chain(self.magnitude)
    }
}

/// The linear layers of a model, and its head and the table of its tokens where each is a layer of its own.
fn modules(list: &[Parameter]) -> impl Iterator<Item = Module<'_>> {
    let untied = is_untied(list);
    let takes = move |parameter: &Parameter| match parameter.kind {
        Kind::Linear | Kind::Head => true,
        Kind::Table => untied && is_of_tokens(module_of(&parameter.parts[0].name)),
        _ => false,
    };
    let taken = list.iter().enumerate().filter(move |(_, parameter)| takes(parameter));
    taken.flat_map(|(index, parameter)| {
        let of_layer = parameter.layer();
        parameter.parts.iter().map(move |Part { name, rows, .. }| {
            let name = module_of(name);
            let own = match parameter.parts.len() {
                1 => of_layer.to_owned(),
                _ => format!("{of_layer}.{}", last(name)),
            };
            let (kind, columns) = (parameter.kind, parameter.columns());
            Module { parameter: index, name, own, rows: rows.clone(), columns, kind }
        })
    })
}

/// True if the model's head is a layer of its own.
fn is_untied(list: &[Parameter]) -> bool {
    list.iter().any(|parameter| parameter.kind == Kind::Head)
}

/// True if the module is the table of a language model's tokens.
fn is_of_tokens(module: &str) -> bool {
    TOKENS.iter().any(|table| module.ends_with(table))
}

/// The module of a tensor of a checkpoint.
fn module_of(tensor: &str) -> &str {
    let end = [".weight", ".bias"].into_iter().find_map(|end| tensor.strip_suffix(end));
    end.unwrap_or(tensor)
}

/// True if the module is a table of rows by id.
fn is_table(module: &str) -> bool {
    TABLES.iter().any(|table| module.ends_with(table))
}

/// The last word of a dotted name.
fn last(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(_, last)| last)
}

impl Lora {
    /// # Errors
    /// [`crate::Error::Setting`] for a number out of range, for a target that no linear layer of the model has, with
    /// the nearest that one has, and for modules that can't have an adapter or be trained whole.
    pub fn check(&self, list: &[Parameter]) -> Result<()> {
        let matching = Matching::of(self)?;
        let linear = modules(list).map(|module| &list[module.parameter]);
        let widest = linear.flat_map(|parameter| &parameter.shape).copied().max().unwrap_or(0);
        let ranks = self.variant.ranks.values();
        for (key, rank) in [("lora.rank", &self.rank)]
            .into_iter()
            .chain(ranks.map(|rank| ("lora.rank_pattern", rank)))
        {
            ensure((1..=widest).contains(rank), key, || {
                format!("{rank} must lie between 1 and {widest}, the model's widest layer")
            })?;
        }
        let alphas = self.variant.alphas.values();
        for (key, alpha) in [("lora.alpha", &self.alpha)]
            .into_iter()
            .chain(alphas.map(|alpha| ("lora.alpha_pattern", alpha)))
        {
            ensure(alpha.is_finite() && *alpha > 0.0, key, || format!("{alpha} must be above 0"))?;
        }
        ensure((0.0..1.0).contains(&self.dropout), "lora.dropout", || {
            format!("{} must be at least 0 and below 1", self.dropout)
        })?;
        ensure(!self.targets.is_empty(), "lora.targets", || {
            format!("names no layer; name some, or \"{ALL_LINEAR}\"")
        })?;
        let text = |target: &&String| *target == ALL_LINEAR || target.starts_with(REGEX);
        let text = self.targets.iter().find(text);
        ensure(self.variant.layers.is_none() || text.is_none(), "lora.layers", || {
            format!(
                "PEFT takes numbers of layers beside a list of names alone, and `lora.targets` is {}",
                text.map_or("", String::as_str)
            )
        })?;
        self.check_names(&matching, list)?;
        let adapters = self.found(&matching, list)?;
        ensure(
            !adapters.is_empty() || !self.targets.iter().any(|it| !it.is_empty()),
            "lora.targets",
            || "no linear layer of the model is left that they name".to_owned(),
        )?;
        for adapter in adapters.iter().filter(|adapter| adapter.magnitude.is_some()) {
            let parameter = &list[adapter.layer];
            ensure(parameter.kind == Kind::Linear, "lora.dora", || {
                format!("isn't supported for `{}`", module_of(&parameter.parts[0].name))
            })?;
        }
        for adapter in &adapters {
            let parameter = &list[adapter.layer];
            let part = parameter.parts.iter().find(|part| part.rows == adapter.rows);
            let name = part.map_or("", |part| module_of(&part.name));
            ensure(!matching.is_saved(name), "lora.modules_to_save", || {
                format!("`{name}` would be trained whole and have an adapter")
            })?;
        }
        self.check_saved(&matching, list)
    }

    /// Entries of the rank and alpha patterns, of what is excluded and of the layers that no module of a model has: the settings, and the entries.
    ///
    /// # Errors
    /// A pattern that is no regular expression.
    pub fn unmatched(&self, list: &[Parameter]) -> Result<Vec<(&'static str, String)>> {
        let matching = Matching::of(self)?;
        let all: Vec<&str> = modules(list).map(|module| module.name).collect();
        let adapted =
            modules(list).filter(|it| matching.is_adapted(it.name, it.kind != Kind::Linear));
        let adapted: Vec<&str> = adapted.map(|module| module.name).collect();
        Ok(matching.unmatched(&all, &adapted))
    }

    /// Checks that each target is a linear layer's name.
    fn check_names(&self, matching: &Matching<'_>, list: &[Parameter]) -> Result<()> {
        let mut known = vec![];
        for module in modules(list) {
            let name = last(module.name);
            if !known.contains(&name) {
                known.push(name);
            }
        }
        let table = list.iter().flat_map(|parameter| &parameter.parts).find_map(|part| {
            let name = module_of(&part.name);
            let unsupported = is_table(name) && !(is_untied(list) && is_of_tokens(name));
            let named = unsupported && matching.is_named(&self.targets, name, true);
            (named && !matching.is_named(&self.variant.exclude, name, true)).then_some(name)
        });
        ensure(table.is_none(), "lora.targets", || {
            format!(
                "an adapter of the table `{}` isn't supported: the table is the head too, or not of tokens",
                table.unwrap_or_default()
            )
        })?;
        for target in &self.targets {
            let one = std::slice::from_ref(target);
            let found =
                modules(list).any(|m| matching.is_named(one, m.name, m.kind != Kind::Linear));
            ensure(!target.is_empty() && found, "lora.targets", || {
                if let Some(pattern) = target.strip_prefix(REGEX) {
                    return format!("no linear layer of the model has a name like `{pattern}`");
                }
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

    /// Checks that the modules that are trained whole have parameters of their own. PEFT names several heads of which a model has one, so a name that none
    /// has is passed over if another is there.
    fn check_saved(&self, matching: &Matching<'_>, list: &[Parameter]) -> Result<()> {
        const KEY: &str = "lora.modules_to_save";
        let mut found = self.variant.saved.is_empty();
        for parameter in list {
            let saved = |part: &&Part| matching.is_saved(module_of(&part.name));
            let count = parameter.parts.iter().filter(saved).count();
            found |= count > 0;
            let name = || parameter.parts.first().map_or("", |part| module_of(&part.name));
            ensure(count == 0 || count == parameter.parts.len(), KEY, || {
                format!("`{}` is stored together with other modules, which it doesn't name", name())
            })?;
            let tied = is_table(name()) && !name().ends_with("wpe") && !is_untied(list);
            ensure(count == 0 || !tied, KEY, || {
                format!(
                    "`{}` is the head too, of which PEFT would make a copy; this isn't supported",
                    name()
                )
            })?;
        }
        ensure(found, KEY, || {
            let tied = if is_untied(list) { "" } else { ", whose head is its embedding" };
            format!("the model{tied} has no module called {}", self.variant.saved.join(", "))
        })?;
        if self.variant.bias != Biases::LoraOnly {
            return Ok(());
        }
        for parameter in list.iter().filter(|parameter| parameter.kind == Kind::Bias) {
            let adapted = |part: &&Part| matching.is_adapted(module_of(&part.name), false);
            let count = parameter.parts.iter().filter(adapted).count();
            ensure(count == 0 || count == parameter.parts.len(), "lora.bias", || {
                let name = parameter.parts.first().map_or("", |part| &part.name);
                format!("`{name}` is stored together with biases of layers without an adapter")
            })?;
        }
        Ok(())
    }

    /// Factor on what an adapter of this rank and alpha adds.
    fn scale_of(&self, (rank, alpha): (usize, f64)) -> f64 {
        let rank = rank as f64;
        alpha / if self.variant.rslora { rank.sqrt() } else { rank }
    }

    /// Factor on what adapters add that no pattern says otherwise of.
    pub fn scale(&self) -> f64 {
        self.scale_of((self.rank, self.alpha))
    }

    /// The adapters of a model, in the order of its parameters.
    ///
    /// # Errors
    /// Patterns that are no regular expressions, or that contradict each other.
    pub(crate) fn adapters(&self, list: &[Parameter]) -> Result<Vec<Adapter>> {
        self.found(&Matching::of(self)?, list)
    }

    fn found(&self, matching: &Matching<'_>, list: &[Parameter]) -> Result<Vec<Adapter>> {
        let targeted =
            modules(list).filter(|m| matching.is_adapted(m.name, m.kind != Kind::Linear));
        targeted
            .map(|Module { parameter, name, own, rows, columns, kind }| {
                let numbers = matching.numbers(name)?;
                let made = |letter: &str, shape: &[usize], init| {
                    Parameter::new(format!("{own}.lora_{letter}"), shape, init)
                };
                let of_table = |letter: &str| format!("{PEFT}{name}.lora_embedding_{letter}");
                let of_layer = |letter: &str| format!("{PEFT}{name}.lora_{letter}.weight");
                let rank = numbers.0;
                let [a, b] = match kind {
                    // Rows of A are looked up, and B is the layer behind; PEFT begins with an A of zeros.
                    Kind::Table => [
                        made("A", &[rows.len(), rank], Init::Zeros)
                            .stored_transposed_as(of_table("A")),
                        made("B", &[columns, rank], Init::Normal { std: 1.0 })
                            .stored_as(of_table("B")),
                    ],
                    _ => [
                        made("A", &[rank, columns], Init::linear(columns)).stored_as(of_layer("A")),
                        made("B", &[rows.len(), rank], Init::Zeros).stored_as(of_layer("B")),
                    ],
                };
                let magnitude = self.variant.dora.then(|| {
                    let own = format!("{own}.lora_magnitude");
                    Parameter::new(own, &[rows.len()], Init::Ones)
                        .stored_as(format!("{PEFT}{name}.lora_magnitude_vector"))
                });
                let scale = self.scale_of(numbers);
                Ok(Adapter { layer: parameter, rows, parameters: [a, b], magnitude, scale })
            })
            .collect()
    }

    /// `parameter` under the names of a file of PEFT's, if it's trained whole beside the adapters.
    ///
    /// # Errors
    /// Patterns that are no regular expressions, or that contradict each other.
    pub fn trained_whole(&self, parameter: &Parameter) -> Result<Option<Parameter>> {
        let variant = &self.variant;
        if variant.saved.is_empty() && variant.bias == Biases::None {
            return Ok(None);
        }
        let matching = Matching::of(self)?;
        let is_head = parameter.kind != Kind::Linear;
        let is_adapted = |name: &str| matching.is_adapted(module_of(name), is_head);
        let mut parts = parameter.parts.iter();
        let whole = parts.any(|Part { name, .. }| {
            matching.is_saved(module_of(name))
                || match variant.bias {
                    Biases::None => false,
                    Biases::All => name.contains("bias"),
                    Biases::LoraOnly => name.ends_with(".bias") && is_adapted(name),
                }
        });
        if !whole {
            return Ok(None);
        }
        let mut saved = parameter.clone();
        for part in &mut saved.parts {
            // An adapted module is in a layer of that name.
            let name = match part.name.strip_suffix(".bias") {
                Some(module) if is_adapted(module) => format!("{module}.base_layer.bias"),
                _ => part.name.clone(),
            };
            part.name = format!("{PEFT}{name}");
        }
        Ok(Some(saved))
    }

    /// The trained parameters, in the order of checkpoints: the parameters that are trained whole, then A, B and the lengths of each
    /// adapter.
    ///
    /// # Errors
    /// As [`Lora::check`] for names.
    pub fn parameters(&self, list: &[Parameter]) -> Result<Vec<Parameter>> {
        let mut trained = vec![];
        for parameter in list {
            trained.extend(self.trained_whole(parameter)?);
        }
        trained.extend(self.adapters(list)?.into_iter().flat_map(Adapter::into_parameters));
        Ok(trained)
    }

    /// Makes of the weight at `index` of a model's parameters the one that its adapters make of it: `W + s·B·A` (Hu et al. 2021,
    /// section 4.1), with rows of the learned lengths where there are any; or the whole weight that lies with the adapters. `values` are those of the
    /// whole weight; they are rounded to what training saw of them before something is added. `read` gives the values of a parameter of the adapters.
    ///
    /// # Errors
    /// Those of `read`, and as [`Lora::parameters`].
    pub fn merge(
        &self,
        list: &[Parameter],
        index: usize,
        values: &mut [f32],
        read: &mut dyn FnMut(&Parameter) -> Result<Vec<f32>>,
    ) -> Result<()> {
        let parameter = &list[index];
        if let Some(saved) = self.trained_whole(parameter)? {
            values.copy_from_slice(&read(&saved)?);
            return Ok(());
        }
        if parameter.kind == Kind::Linear {
            self.base_bits.round(parameter, values);
        }
        let columns = parameter.columns();
        for adapter in self.adapters(list)?.into_iter().filter(|adapter| adapter.layer == index) {
            let [a, b] = &adapter.parameters;
            let is_table = parameter.kind == Kind::Table;
            let rank = a.shape[usize::from(is_table)];
            let (mut a, mut b) = (read(a)?, read(b)?);
            if is_table {
                let mut columns_of_b = vec![0.0; b.len()];
                transpose(&b, rank, &mut columns_of_b, columns);
                (a, b) = (columns_of_b, a);
            }
            let lengths = adapter.magnitude.as_ref().map(&mut *read).transpose()?;
            let rows = &mut values[adapter.rows.start * columns..adapter.rows.end * columns];
            for (row, (weights, b)) in rows.chunks_mut(columns).zip(b.chunks(rank)).enumerate() {
                for (column, weight) in weights.iter_mut().enumerate() {
                    let a = a[column..].iter().step_by(columns);
                    let sum: f64 =
                        b.iter().zip(a).map(|(&b, &a)| f64::from(b) * f64::from(a)).sum();
                    *weight = (f64::from(*weight) + adapter.scale * sum) as f32;
                }
                if let Some(lengths) = &lengths {
                    let factor = f64::from(lengths[row]) / norm(weights);
                    weights.iter_mut().for_each(|it| *it = (f64::from(*it) * factor) as f32);
                }
            }
        }
        Ok(())
    }

    /// The lengths that learned ones begin as, of each adapter of the weight at `index` whose `values` these are: with the name of their parameter.
    ///
    /// # Errors
    /// As [`Lora::parameters`].
    pub(crate) fn first_lengths(
        &self,
        list: &[Parameter],
        index: usize,
        values: &[f32],
    ) -> Result<Vec<(String, Vec<f32>)>> {
        let parameter = &list[index];
        let columns = parameter.columns();
        let adapters = self.adapters(list)?.into_iter().filter(|adapter| adapter.layer == index);
        let mut rounded = values.to_vec();
        self.base_bits.round(parameter, &mut rounded);
        let lengths = adapters.filter_map(|adapter| {
            let rows = &rounded[adapter.rows.start * columns..adapter.rows.end * columns];
            let lengths = rows.chunks(columns).map(|row| norm(row) as f32).collect();
            Some((adapter.magnitude?.name, lengths))
        });
        Ok(lengths.collect())
    }

    /// Numbers that are trained: those of all adapters of a model, and of what is trained whole.
    pub fn trained(&self, list: &[Parameter]) -> u64 {
        let parameters = self.parameters(list).unwrap_or_default();
        parameters.iter().map(|parameter| parameter.stored() as u64).sum()
    }
}

/// Length of a row.
fn norm(row: &[f32]) -> f64 {
    row.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{initial_values, parameters, preset};

    fn lora(targets: &[&str]) -> Lora {
        let targets = targets.iter().map(|&target| target.to_owned()).collect();
        Lora {
            rank: 4,
            alpha: 8.0,
            targets,
            dropout: 0.0,
            base_bits: FrozenBits::Precision,
            variant: Variant::default(),
        }
    }

    fn names(preset_name: &str, targets: &[&str]) -> Vec<String> {
        let list = parameters(&preset(preset_name).unwrap());
        lora(targets).check(&list).unwrap();
        let adapters = lora(targets).adapters(&list).unwrap();
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
    fn entries_that_are_of_no_layer_are_named() {
        let list = parameters(&preset("tiny").unwrap());
        let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let mut lora = lora(&["c_attn", "c_fc"]);
        lora.variant = Variant {
            ranks: [("c_attn".to_owned(), 2), ("c_atn".to_owned(), 2)].into(),
            alphas: [("^c_fc".to_owned(), 1.0), (r"h\.0\.mlp\.c_fc".to_owned(), 1.0)].into(),
            exclude: named(&["nope", "c_proj"]),
            layers: Some(vec![0, 99]),
            ..Variant::default()
        };
        let found = lora.unmatched(&list).unwrap();
        let expected = [
            ("lora.rank_pattern", "c_atn"),
            ("lora.alpha_pattern", "^c_fc"),
            ("lora.exclude", "nope"),
            ("lora.layers", "99"),
        ];
        let found: Vec<_> = found.iter().map(|(key, entry)| (*key, entry.as_str())).collect();
        assert_eq!(found, expected);
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
        let [a, b] = lora(&["c_fc"]).adapters(&parameters(&config)).unwrap()[0].parameters.clone();
        let values = initial_values(&a, 5);
        let bound = 1.0 / (config.channels as f32).sqrt();
        let largest = values.iter().fold(0.0, |largest: f32, x| largest.max(x.abs()));
        assert!(largest <= bound && largest > 0.95 * bound, "{largest} of {bound}");
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        assert!(mean.abs() < 0.1 * bound, "{mean}");
        assert!(initial_values(&b, 5).iter().all(|&x| x == 0.0));
    }
}

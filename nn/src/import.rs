//! Tensors of a checkpoint of another library, matched to a model's parameters.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use tightrope_core::graph::nearest;

use crate::error::{Error, ReadError, Result};
use crate::model::Model;
use crate::params::Parameter;
use crate::transpose::transpose;

/// A tensor as a checkpoint holds it.
#[derive(Clone, Debug, PartialEq)]
pub struct Exported {
    /// Name in the checkpoint.
    pub name: String,
    /// Extents.
    pub shape: Vec<usize>,
    /// Values in row-major order.
    pub values: Vec<f32>,
}

/// Reads a tensor of a file by name: its shape and values.
pub type Get<'a> = dyn FnMut(&str) -> std::result::Result<(Vec<usize>, Vec<f32>), ReadError> + 'a;

/// The tensors of a file, matched to a model's parameters.
#[derive(Clone, Debug)]
pub struct Import {
    /// Name of a part to the name in the file, which may lack the prefix.
    files: BTreeMap<String, String>,
    /// Names of tensors that are copies of a part, where the file has both.
    copies: BTreeMap<String, Vec<String>>,
}

const TIED: &str = "differs from the embedding that it is tied to: set `tie_word_embeddings` to false in config.json, so that the \
                    model has both";

impl Import {
    /// Matches the tensor names of a file to the parameters of a model. Names may lack the model's prefix; tensors that
    /// the model passes over are left out.
    ///
    /// # Errors
    /// [`Error::UnexpectedTensor`] and [`Error::MissingTensor`].
    pub fn new<S: AsRef<str>>(
        model: &dyn Model,
        names: impl IntoIterator<Item = S>,
    ) -> Result<Self> {
        Self::matched(model, names)?.complete(&model.parameters(), |_| false)
    }

    /// As [`Import::new`], for a run that starts from the file: it may lack what the model [makes anew](Model::made_anew).
    ///
    /// # Errors
    /// As [`Import::new`].
    pub fn starting<S: AsRef<str>>(
        model: &dyn Model,
        names: impl IntoIterator<Item = S>,
    ) -> Result<Self> {
        Self::matched(model, names)?.complete(&model.parameters(), |name| model.made_anew(name))
    }

    fn matched<S: AsRef<str>>(
        model: &dyn Model,
        names: impl IntoIterator<Item = S>,
    ) -> Result<Self> {
        let list = model.parameters();
        let parts = || list.iter().flat_map(|p| p.parts.iter().map(move |part| (p, part)));
        let known: BTreeSet<&str> = parts().map(|(_, part)| part.name.as_str()).collect();
        let mut files = BTreeMap::new();
        let mut shared: Vec<(String, String)> = vec![];
        for file in names {
            let file = file.as_ref();
            match Named::of(model, &known, file) {
                Named::Part(name) => {
                    if files.insert(name, file.to_string()).is_some() {
                        let problem = "is in the file twice, with and without its prefix";
                        return Err(unexpected(file, problem, None));
                    }
                }
                Named::Shared(other) => shared.push((other, file.to_owned())),
                Named::PassedOver => {}
                Named::Unknown => {
                    let problem = "is not part of the model that config.json describes";
                    let nearest = nearest(file, known.iter().copied());
                    return Err(unexpected(file, problem, nearest));
                }
            }
        }
        // Files of weights that are shared hold them once, under either name.
        let mut copies: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, file) in shared {
            match files.entry(name) {
                Entry::Vacant(free) => drop(free.insert(file)),
                Entry::Occupied(held) => copies.entry(held.key().clone()).or_default().push(file),
            }
        }
        Ok(Self { files, copies })
    }

    /// Matches the tensor names of a file of adapters to exactly these parameters.
    ///
    /// # Errors
    /// [`Error::UnexpectedTensor`] and [`Error::MissingTensor`].
    pub fn of<S: AsRef<str>>(
        list: &[Parameter],
        names: impl IntoIterator<Item = S>,
    ) -> Result<Self> {
        let parts = || list.iter().flat_map(|p| p.parts.iter().map(move |part| (p, part)));
        let known: BTreeSet<&str> = parts().map(|(_, part)| part.name.as_str()).collect();
        let mut files = BTreeMap::new();
        for name in names {
            let name = name.as_ref();
            if !known.contains(name) {
                let problem = "is not an adapter that the settings of `lora` describe";
                return Err(unexpected(name, problem, nearest(name, known.iter().copied())));
            }
            files.insert(name.to_owned(), name.to_owned());
        }
        Self { files, copies: BTreeMap::new() }.complete(list, |_| false)
    }

    /// Itself, where none is missing but what `may` be.
    fn complete(self, list: &[Parameter], may: impl Fn(&str) -> bool) -> Result<Self> {
        let mut parts = list.iter().flat_map(|p| p.parts.iter().map(move |part| (p, part)));
        match parts.find(|(_, part)| !self.files.contains_key(&part.name) && !may(&part.name)) {
            None => Ok(self),
            Some((parameter, part)) => Err(Error::MissingTensor {
                name: part.name.clone(),
                shape: parameter.part_shape(part),
            }),
        }
    }

    /// Whether the file holds a parameter of the model this was made for.
    pub fn has(&self, parameter: &Parameter) -> bool {
        parameter.parts.iter().all(|part| self.files.contains_key(&part.name))
    }

    /// Reads one parameter of the model this was made for, padding included.
    ///
    /// # Errors
    /// [`Error::Read`] from `get`, [`Error::TensorShape`] and [`Error::NotFinite`], and
    /// [`Error::MissingTensor`] for a parameter of another model.
    pub fn read(&self, parameter: &Parameter, get: &mut Get<'_>) -> Result<Vec<f32>> {
        let columns = parameter.columns();
        let mut values = vec![0.0; parameter.elements()];
        for part in &parameter.parts {
            let expected = parameter.part_shape(part);
            let Some(file) = self.files.get(&part.name) else {
                return Err(Error::MissingTensor { name: part.name.clone(), shape: expected });
            };
            let (found, stored) =
                get(file).map_err(|source| Error::Read { name: file.clone(), source })?;
            if found != expected || stored.len() != part.rows.len() * columns {
                return Err(Error::TensorShape { name: file.clone(), found, expected });
            }
            if let Some(index) = stored.iter().position(|value| !value.is_finite()) {
                let value = stored[index];
                return Err(Error::NotFinite { name: file.clone(), index, value });
            }
            for copy in self.copies.get(&part.name).into_iter().flatten() {
                let (shape, other) =
                    get(copy).map_err(|source| Error::Read { name: copy.clone(), source })?;
                if shape != found || other != stored {
                    return Err(unexpected(copy, TIED, None));
                }
            }
            let rows = &mut values[part.rows.start * columns..part.rows.end * columns];
            if part.transposed {
                transpose(&stored, part.rows.len(), rows, columns);
            } else {
                rows.copy_from_slice(&stored);
            }
        }
        Ok(values)
    }
}

/// Tensor of a model that a name in another checkpoint stands for.
enum Named {
    /// One of a parameter, by its name among [`Parameter::parts`].
    Part(String),
    /// The same as the tensor of this name.
    Shared(String),
    /// None that the model needs.
    PassedOver,
    Unknown,
}

impl Named {
    /// `known` are the names of the model's parts.
    fn of(model: &dyn Model, known: &BTreeSet<&str>, file: &str) -> Self {
        let renamed = model.renamed(file);
        let own = renamed.as_deref().unwrap_or(file);
        let full = format!("{}{own}", model.prefix());
        let name = if known.contains(own) { own } else { &full };
        if known.contains(name) {
            Self::Part(name.to_owned())
        } else if let Some(other) = model.shared_with(own) {
            Self::Shared(other.to_owned())
        } else if model.passes_over(file) {
            Self::PassedOver
        } else {
            Self::Unknown
        }
    }
}

/// Names of a state dict, matched to tensors of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matched {
    /// Each tensor that is there, by its name in the model's own checkpoints, with its name in the state dict.
    pub found: Vec<(String, String)>,
    /// Tensors that the state dict lacks, by their names in the model's own checkpoints.
    pub missing: Vec<String>,
    /// Names in the state dict that stand for no tensor of the model, or for one that another name stands for.
    pub unexpected: Vec<String>,
    /// Names in the state dict of copies of a tensor that is there too, each after the tensor's name in the model's own checkpoints.
    pub copies: Vec<(String, String)>,
}

impl Matched {
    /// Matches `names` to the tensors `own` of `model` as [`Import::new`] does, and to exactly these where there is no model.
    pub(crate) fn new<S: AsRef<str>>(
        model: Option<&dyn Model>,
        own: &[String],
        names: impl IntoIterator<Item = S>,
    ) -> Self {
        let known: BTreeSet<&str> = own.iter().map(String::as_str).collect();
        let (mut files, mut shared) = (BTreeMap::new(), vec![]);
        let mut unexpected = vec![];
        for file in names {
            let file = file.as_ref();
            let exact = || match known.contains(file) {
                true => Named::Part(file.to_owned()),
                false => Named::Unknown,
            };
            match model.map_or_else(exact, |model| Named::of(model, &known, file)) {
                Named::Part(name) if !files.contains_key(&name) => {
                    files.insert(name, file.to_owned());
                }
                Named::Shared(other) => shared.push((other, file.to_owned())),
                Named::PassedOver => {}
                Named::Part(_) | Named::Unknown => unexpected.push(file.to_owned()),
            }
        }
        let mut copies = vec![];
        for (name, file) in shared {
            match files.entry(name) {
                Entry::Vacant(place) => drop(place.insert(file)),
                Entry::Occupied(place) => copies.push((place.key().clone(), file)),
            }
        }
        let missing = own.iter().filter(|name| !files.contains_key(*name)).cloned().collect();
        let found = own.iter().filter_map(|name| Some((name.clone(), files.remove(name)?)));
        Self { found: found.collect(), missing, unexpected, copies }
    }
}

/// Reads all parameters of a model: the index of each and its values. [`Import`] does it one at a time, with one
/// parameter in memory.
///
/// # Errors
/// As [`Import::new`] and [`Import::read`].
pub fn import(
    model: &dyn Model,
    names: &[String],
    get: &mut Get<'_>,
) -> Result<Vec<(usize, Vec<f32>)>> {
    let import = Import::new(model, names)?;
    let parameters = model.parameters();
    let parameters = parameters.iter().enumerate();
    parameters.map(|(index, parameter)| Ok((index, import.read(parameter, get)?))).collect()
}

/// The tensors of a checkpoint that hold a parameter, its gradient or its optimizer moment.
///
/// # Panics
/// Where `values` isn't as long as the parameter.
pub fn export(parameter: &Parameter, values: &[f32]) -> Vec<Exported> {
    assert_eq!(values.len(), parameter.elements(), "values of `{}`", parameter.name);
    let columns = parameter.columns();
    parameter
        .parts
        .iter()
        .map(|part| {
            let rows = &values[part.rows.start * columns..part.rows.end * columns];
            let mut stored = rows.to_vec();
            if part.transposed {
                transpose(rows, columns, &mut stored, part.rows.len());
            }
            let shape = parameter.part_shape(part);
            Exported { name: part.name.clone(), shape, values: stored }
        })
        .collect()
}

fn unexpected(name: &str, problem: &'static str, nearest: Option<String>) -> Error {
    Error::UnexpectedTensor { name: name.into(), problem, nearest }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ModelConfig, parameters, preset};

    type File = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

    /// A file of a model in which element i of every tensor is `i`.
    fn file(config: &ModelConfig) -> File {
        parameters(config)
            .iter()
            .flat_map(|p| p.parts.iter().map(|part| (part.name.clone(), p.part_shape(part))))
            .map(|(name, shape)| {
                let count: usize = shape.iter().product();
                (name, (shape, (0..count).map(|i| i as f32).collect()))
            })
            .collect()
    }

    fn read(config: &ModelConfig, file: &File) -> Result<Vec<(usize, Vec<f32>)>> {
        let names: Vec<String> = file.keys().cloned().collect();
        import(&*config.build(config.context)?, &names, &mut |name| Ok(file[name].clone()))
    }

    fn configs() -> [ModelConfig; 3] {
        let odd = ModelConfig { vocab: 101, ..preset("tiny").unwrap() };
        let untied = ModelConfig { tied: false, vocab: 70, ..preset("llama-tiny").unwrap() };
        [odd.clone(), ModelConfig { tied: false, ..odd }, untied]
    }

    #[test]
    fn import_then_export_is_the_file() {
        for config in configs() {
            let file = file(&config);
            let list = parameters(&config);
            let mut exported = BTreeMap::new();
            for (index, values) in read(&config, &file).unwrap() {
                for Exported { name, shape, values } in export(&list[index], &values) {
                    exported.insert(name, (shape, values));
                }
            }
            assert_eq!(exported, file);
        }
    }

    #[test]
    fn gpt2_weights_are_transposed_and_the_embedding_padded() {
        let config = &configs()[0];
        let values = read(config, &file(config)).unwrap();
        let list = parameters(config);
        let of = |name: &str| {
            let index = list.iter().position(|p| p.name == name).unwrap();
            &values[index].1
        };
        // Row 1 (the second output) of a (192, 64) weight is column 1 of the file's (64, 192).
        assert_eq!(of("h.0.attn.qkv.weight")[64..67], [1.0, 193.0, 385.0]);
        let wte = of("wte.weight");
        assert_eq!((wte.len(), wte[101 * 64 - 1]), (128 * 64, (101 * 64 - 1) as f32));
        assert!(wte[101 * 64..].iter().all(|&x| x == 0.0));
    }

    #[test]
    fn llama_projections_are_packed_by_rows() {
        let config = &configs()[2];
        let values = read(config, &file(config)).unwrap();
        let list = parameters(config);
        let index = list.iter().position(|p| p.name == "h.1.attn.qkv.weight").unwrap();
        assert_eq!(list[index].shape, [128, 64]);
        // 4 query heads, 2 key heads, 2 value heads of 16: rows 0, 64 and 96 begin a tensor each.
        assert_eq!([0, 64 * 64, 96 * 64].map(|at| values[index].1[at]), [0.0; 3]);
        assert_eq!(values[index].1[96 * 64 - 1], (32 * 64 - 1) as f32);
    }

    #[test]
    fn prefixes_and_buffers_of_other_versions() {
        let config = &configs()[0];
        let mut bare: File = file(config)
            .into_iter()
            .map(|(name, tensor)| (name.trim_start_matches("transformer.").to_string(), tensor))
            .collect();
        for name in ["h.0.attn.bias", "h.1.attn.masked_bias"] {
            bare.insert(name.into(), (vec![1], vec![0.0]));
        }
        assert_eq!(read(config, &bare).unwrap(), read(config, &file(config)).unwrap());
    }

    #[test]
    fn a_tied_weight_is_read_under_either_name() {
        let config = &configs()[0];
        let whole = file(config);
        let mut head = whole.clone();
        let embedding = head.remove("transformer.wte.weight").unwrap();
        head.insert("lm_head.weight".into(), embedding.clone());
        assert_eq!(read(config, &head).unwrap(), read(config, &whole).unwrap());
        // Under both, and as two that differ, of which one would be lost.
        let mut both = head;
        both.insert("transformer.wte.weight".into(), embedding);
        assert_eq!(read(config, &both).unwrap(), read(config, &whole).unwrap());
        both.get_mut("lm_head.weight").unwrap().1[3] += 1.0;
        let refused = read(config, &both).unwrap_err().to_string();
        assert!(refused.contains("lm_head.weight") && refused.contains("tied"), "{refused}");
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let config = &configs()[0];
        let message = |change: &dyn Fn(&mut File)| {
            let mut file = file(config);
            change(&mut file);
            read(config, &file).unwrap_err().to_string()
        };
        let wpe = "transformer.wpe.weight";
        for (found, words) in [
            (
                message(&|file| drop(file.remove(wpe))),
                "`transformer.wpe.weight` [64, 64] is missing",
            ),
            (
                message(&|file| {
                    file.insert("transformer.wpe.wieght".into(), (vec![1], vec![0.0]));
                }),
                "did you mean `transformer.wpe.weight`?",
            ),
            (
                message(&|file| {
                    file.insert("wpe.weight".into(), (vec![64, 64], vec![0.0; 4096]));
                }),
                "twice",
            ),
            (
                message(&|file| file.get_mut(wpe).unwrap().0 = vec![32, 128]),
                "has shape [32, 128], the model needs [64, 64]",
            ),
            (
                message(&|file| file.get_mut(wpe).unwrap().1[70] = f32::NAN),
                "`transformer.wpe.weight` holds NaN at element 70",
            ),
        ] {
            assert!(found.contains(words), "{found}");
        }
    }
}

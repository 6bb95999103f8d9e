//! `Weights`: a model's parameters as persistent tensors of a graph, with adapters in place of frozen ones.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use tightrope_core::graph::nearest;
use tightrope_core::{Class, DType, Graph, Shards, Tensor, Type};

use crate::error::{Error, Result, ensure};
use crate::frozen::{FrozenBits, Quantized};
use crate::lora::{self, Lora};
use crate::params::{Kind, Parameter};
use crate::precision::Precision;

/// The tensors of an adapter of some columns of a linear layer's output.
#[derive(Clone, Debug)]
pub(crate) struct Adapter {
    pub rows: Range<usize>,
    pub a: Tensor,
    pub b: Tensor,
    /// Learned lengths of the rows of the adapted weight, where they are.
    pub magnitude: Option<Tensor>,
    /// Factor on its output.
    pub scale: f64,
    /// Probability of dropping an element of its input.
    pub dropout: f64,
}

/// The parameters of a model as persistent tensors.
#[derive(Clone, Debug)]
pub struct Weights {
    precision: Precision,
    parameters: Vec<Parameter>,
    tensors: Vec<Tensor>,
    /// The weights that are stored in fewer bits.
    quantized: Vec<Option<Quantized>>,
    by_name: HashMap<String, usize>,
    /// Position among what is trained of each parameter; none of a frozen one.
    trained_at: Vec<Option<usize>>,
    /// What steps change.
    trained: (Vec<Parameter>, Vec<Tensor>),
    /// By the parameter that they belong to.
    adapters: BTreeMap<String, Vec<Adapter>>,
}

impl Weights {
    /// Declares the parameters of a model, one persistent tensor each, named after it.
    ///
    /// # Errors
    /// [`Error::Setting`] for two parameters of one name, or one without elements.
    pub fn declare(
        graph: &mut Graph,
        parameters: Vec<Parameter>,
        precision: Precision,
    ) -> Result<Self> {
        Self::adapted(graph, parameters, precision, None)
    }

    /// As [`Weights::declare`], with adapters and all parameters frozen where `lora` is given.
    ///
    /// # Errors
    /// As [`Weights::declare`] and [`Lora::check`].
    pub fn adapted(
        graph: &mut Graph,
        parameters: Vec<Parameter>,
        precision: Precision,
        lora: Option<&Lora>,
    ) -> Result<Self> {
        let bits = lora.map_or(FrozenBits::Precision, |lora| lora.base_bits);
        Self::stored(graph, parameters, precision, lora, bits)
    }

    /// As [`Weights::adapted`], with the weights of linear layers in `bits`. Those that are quantized are frozen.
    pub(crate) fn stored(
        graph: &mut Graph,
        parameters: Vec<Parameter>,
        precision: Precision,
        lora: Option<&Lora>,
        bits: FrozenBits,
    ) -> Result<Self> {
        let mut weights = Self {
            precision,
            tensors: vec![],
            quantized: vec![],
            by_name: HashMap::new(),
            trained_at: vec![],
            trained: (vec![], vec![]),
            adapters: BTreeMap::new(),
            parameters: vec![],
        };
        for parameter in parameters {
            weights.add(graph, parameter, lora, bits)?;
        }
        if let Some(lora) = lora {
            lora.check(&weights.parameters)?;
            weights.adapt(graph, lora)?;
        }
        Ok(weights)
    }

    fn add(
        &mut self,
        graph: &mut Graph,
        parameter: Parameter,
        lora: Option<&Lora>,
        bits: FrozenBits,
    ) -> Result<()> {
        let name = &parameter.name;
        ensure(parameter.elements() > 0 && !parameter.shape.is_empty(), "model", || {
            format!("the parameter `{name}` has no elements")
        })?;
        ensure(!self.by_name.contains_key(name), "model", || {
            format!("two parameters are called `{name}`; give each layer a name of its own")
        })?;
        let whole = lora.map_or(Ok(None), |lora| lora.trained_whole(&parameter))?;
        let stored_in_bits = parameter.kind == Kind::Linear && whole.is_none();
        let bits = if stored_in_bits { bits } else { FrozenBits::Precision };
        let quantized = Quantized::declare(graph, &parameter, bits);
        let frozen = parameter.frozen || (lora.is_some() && whole.is_none()) || quantized.is_some();
        let tensor = quantized.as_ref().map_or_else(
            || {
                let class = if frozen { Class::Frozen } else { Class::Weight };
                let ty = Type::new(self.precision.dtype(), parameter.shape.clone());
                graph.persistent(name, ty, class)
            },
            Quantized::codes,
        );
        self.quantized.push(quantized);
        self.trained_at.push((!frozen).then_some(self.trained.0.len()));
        if !frozen {
            let trained = whole.unwrap_or_else(|| parameter.clone());
            self.trained.0.push(trained);
            self.trained.1.push(tensor);
        }
        self.by_name.insert(name.clone(), self.parameters.len());
        self.tensors.push(tensor);
        self.parameters.push(parameter);
        Ok(())
    }

    fn adapt(&mut self, graph: &mut Graph, lora: &Lora) -> Result<()> {
        for lora::Adapter { layer, rows, parameters, magnitude, scale } in
            lora.adapters(&self.parameters)?
        {
            let mut declare = |parameter: Parameter| {
                let ty = Type::new(self.precision.dtype(), parameter.shape.clone());
                let tensor = graph.persistent(&parameter.name, ty, Class::Weight);
                self.trained.0.push(parameter);
                self.trained.1.push(tensor);
                tensor
            };
            let [a, b] = parameters.map(&mut declare);
            let magnitude = magnitude.map(declare);
            let of_layer = self.adapters.entry(self.parameters[layer].name.clone()).or_default();
            let dropout = lora.dropout;
            of_layer.push(Adapter { rows, a, b, magnitude, scale, dropout });
        }
        Ok(())
    }

    /// Declares the master remainder of each trained weight (see [`Precision::remainder`]), one persistent tensor a
    /// parameter; none in f32.
    pub fn declare_remainders(&self, graph: &mut Graph) -> Vec<Tensor> {
        self.cut_remainders(graph, |_| None)
    }

    /// As [`Weights::declare_remainders`], each cut among ranks as `shards` says.
    pub(crate) fn cut_remainders(
        &self,
        graph: &mut Graph,
        shards: impl Fn(&Parameter) -> Option<Shards>,
    ) -> Vec<Tensor> {
        let Some(dtype) = self.precision.remainder() else { return vec![] };
        let declare = |parameter: &Parameter| {
            let ty = Type::new(dtype, parameter.shape.clone());
            let name = format!("{}.low", parameter.name);
            match shards(parameter) {
                None => graph.persistent(&name, ty, Class::Weight),
                Some(shards) => graph.persistent_shard(&name, ty, shards, Class::Weight),
            }
        };
        self.trained.0.iter().map(declare).collect()
    }

    /// The tensors of what is frozen: several of a weight that is quantized.
    pub(crate) fn frozen(&self) -> Vec<Tensor> {
        let all = self.tensors.iter().zip(&self.quantized).zip(&self.trained_at);
        let frozen = all.filter(|(_, trained_at)| trained_at.is_none());
        let of = |((&tensor, quantized), _): ((&Tensor, &Option<Quantized>), _)| {
            quantized.as_ref().map_or_else(|| vec![tensor], Quantized::tensors)
        };
        frozen.flat_map(of).collect()
    }

    /// Has this rank's shards in place of the weights that they are of.
    pub(crate) fn keep_shards(&mut self, shards: &BTreeMap<Tensor, Tensor>) {
        let quantized = self.quantized.iter_mut().flatten().flat_map(Quantized::tensors_mut);
        let own = self.tensors.iter_mut().chain(&mut self.trained.1).chain(quantized);
        own.for_each(|tensor| *tensor = shards.get(tensor).copied().unwrap_or(*tensor));
    }

    /// Storage of weights and activations.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// The parameters of the model.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// One tensor a parameter, in the same order.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// What training changes, and one tensor for each: adapters where there are any, else the parameters that aren't
    /// frozen.
    pub fn trained(&self) -> (&[Parameter], &[Tensor]) {
        (&self.trained.0, &self.trained.1)
    }

    /// Where a parameter of the model is among those that are trained; `None` for a frozen one.
    pub fn trained_at(&self, parameter: usize) -> Option<usize> {
        self.trained_at[parameter]
    }

    /// Whether a parameter of the model is frozen.
    pub fn has_frozen(&self) -> bool {
        self.trained_at.contains(&None)
    }

    /// Whether adapters are trained in place of the model's parameters.
    pub fn has_adapters(&self) -> bool {
        !self.adapters.is_empty()
    }

    /// Positions among what is trained of what adapters consist of: what isn't a parameter of the model.
    pub(crate) fn of_adapters(&self) -> Vec<usize> {
        let own: Vec<usize> = self.trained_at.iter().copied().flatten().collect();
        (0..self.trained.0.len()).filter(|index| !own.contains(index)).collect()
    }

    /// Index of the parameter `name`.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// How a weight is stored that isn't in the precision.
    pub(crate) fn quantized(&self, parameter: usize) -> Option<&Quantized> {
        self.quantized[parameter].as_ref()
    }

    /// The adapters of a parameter, in the order of its rows.
    pub(crate) fn adapters(&self, name: &str) -> &[Adapter] {
        self.adapters.get(name).map_or(&[], Vec::as_slice)
    }

    /// A parameter as ops read it: dequantized to `dtype` where it's stored in fewer bits.
    pub(crate) fn read(&self, graph: &mut Graph, index: usize, dtype: DType) -> Result<Tensor> {
        match &self.quantized[index] {
            Some(quantized) => quantized.read(graph, &self.parameters[index], dtype),
            None => Ok(self.tensors[index]),
        }
    }
}

/// Freezes the parameters that one of `patterns` names, as [`named`] reads them.
///
/// # Errors
/// As [`named`].
pub(crate) fn freeze(parameters: &mut [Parameter], patterns: &[String]) -> Result<()> {
    for index in named(parameters, patterns)? {
        parameters[index].frozen = true;
    }
    Ok(())
}

/// Indices of the parameters that `patterns` name, in which `*` stands for any characters. A parameter has its own name and those of
/// its tensors in checkpoints. One that several tensors of a checkpoint make up is named by all of them together.
///
/// # Errors
/// [`Error::Setting`] for a pattern that matches no name, with the most similar one, and for tensors of which others make up the same
/// parameter.
pub fn named(parameters: &[Parameter], patterns: &[String]) -> Result<Vec<usize>> {
    let refused = |problem| Error::Setting { key: "train.freeze", problem };
    let is_named =
        |name: &str| patterns.iter().any(|pattern| matches(pattern.as_bytes(), name.as_bytes()));
    let names = |parameter: &Parameter| -> Vec<String> {
        let parts = parameter.parts.iter().map(|part| part.name.clone());
        parts.chain([parameter.name.clone()]).collect()
    };
    for pattern in patterns {
        let all: Vec<String> = parameters.iter().flat_map(names).collect();
        if !all.iter().any(|name| matches(pattern.as_bytes(), name.as_bytes())) {
            let near = nearest(pattern, all.iter().map(String::as_str));
            let near = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
            return Err(refused(format!("no parameter is called `{pattern}`{near}")));
        }
    }
    let mut found = vec![];
    for (index, parameter) in parameters.iter().enumerate() {
        let of_parts = parameter.parts.iter().map(|part| part.name.as_str());
        let (some, others): (Vec<&str>, Vec<&str>) = of_parts.partition(|name| is_named(name));
        if is_named(&parameter.name) || (!some.is_empty() && others.is_empty()) {
            found.push(index);
        } else if !some.is_empty() {
            let [some, others] = [some, others].map(|names| names.join("`, `"));
            let problem = format!("`{some}` is one parameter with `{others}`: name these as well");
            return Err(refused(problem));
        }
    }
    Ok(found)
}

/// Whether `text` is what `pattern` stands for, in which `*` is any characters.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((b'*', rest)) => (0..=text.len()).any(|at| matches(rest, &text[at..])),
        Some((first, rest)) => {
            text.split_first().is_some_and(|(t, text)| t == first && matches(rest, text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Init;

    fn list() -> Vec<Parameter> {
        ["wte.weight", "h.0.up.weight", "h.1.up.weight"]
            .map(|name| Parameter::new(name, &[2, 3], Init::Zeros))
            .to_vec()
    }

    #[test]
    fn patterns_freeze_what_they_name() {
        for (pattern, frozen) in [
            ("wte.weight", [true, false, false]),
            ("h.*", [false, true, true]),
            ("*.1.*weight", [false, false, true]),
            ("*", [true; 3]),
        ] {
            let mut list = list();
            freeze(&mut list, &[pattern.to_owned()]).unwrap();
            assert_eq!(list.iter().map(|p| p.frozen).collect::<Vec<_>>(), frozen, "{pattern}");
        }
        let message = freeze(&mut list(), &["wte.wieght".to_owned()]).unwrap_err().to_string();
        assert!(message.contains("did you mean `wte.weight`?"), "{message}");
    }

    #[test]
    fn a_parameter_is_named_by_its_tensors_in_checkpoints() {
        let parts = [("layers.0.q.weight".to_owned(), 1), ("layers.0.k.weight".to_owned(), 1)];
        let packed = Parameter::new("h.0.qkv.weight", &[2, 3], Init::Zeros).stored_in(parts);
        let list = [list(), vec![packed]].concat();
        let of = |patterns: &[&str]| {
            named(&list, &patterns.iter().map(|&it| it.to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(of(&["layers.0.*"]).unwrap(), [3]);
        assert_eq!(of(&["*.q.weight", "*.k.weight"]).unwrap(), [3]);
        assert_eq!(of(&["h.0.*"]).unwrap(), [1, 3]);
        let message = of(&["*.q.weight"]).unwrap_err().to_string();
        let expected = "`layers.0.q.weight` is one parameter with `layers.0.k.weight`";
        assert!(message.contains(expected), "{message}");
    }

    #[test]
    fn a_frozen_parameter_is_declared_and_not_trained() {
        let mut list = list();
        list[1].frozen = true;
        let mut graph = Graph::new();
        let weights = Weights::declare(&mut graph, list, Precision::BF16).unwrap();
        assert_eq!(weights.trained().0.len(), 2);
        assert_eq!([0, 1, 2].map(|index| weights.trained_at(index)), [Some(0), None, Some(1)]);
        assert_eq!(graph.info(weights.tensors()[1]).class, Class::Frozen);
        assert_eq!(weights.declare_remainders(&mut graph).len(), 2);
    }

    #[test]
    fn two_parameters_of_one_name_are_refused() {
        let list = [list(), list()].concat();
        let message = Weights::declare(&mut Graph::new(), list, Precision::F32).unwrap_err();
        assert!(message.to_string().contains("two parameters are called `wte.weight`"));
    }
}

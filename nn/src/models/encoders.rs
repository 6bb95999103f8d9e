//! Keys of Hugging Face's `config.json` that encoders share: the activation, and the classes with their names.

use serde_json::{Map, Value, json};

use crate::error::Result;
use crate::keys::Keys;
use crate::layers::Activation;

/// Values of `hidden_act`, the first of each activation as it's written.
const ACTIVATIONS: [(&str, Activation); 5] = [
    ("gelu", Activation::Gelu),
    ("gelu_new", Activation::GeluTanh),
    ("gelu_pytorch_tanh", Activation::GeluTanh),
    ("relu", Activation::Relu),
    ("silu", Activation::Silu),
];

/// The activation that a file names, GELU where it names none.
pub(super) fn activation(keys: &Keys<'_>) -> Result<Activation> {
    let hidden_act = keys.text("hidden_act")?.unwrap_or("gelu");
    let known = ACTIVATIONS.into_iter().find(|(name, _)| *name == hidden_act);
    known.map(|(_, activation)| activation).ok_or_else(|| {
        let known = ACTIVATIONS.map(|(name, _)| name).join(", ");
        keys.wrong("hidden_act", format!("is {hidden_act}; supported: {known}"))
    })
}

/// How a file names an activation.
pub(super) fn hidden_act(activation: Activation) -> &'static str {
    let named = ACTIVATIONS.into_iter().find(|(_, known)| *known == activation);
    named.map_or("gelu", |(name, _)| name)
}

/// Classes of a model: as many as it has labels, else transformers' two.
pub(super) fn classes(keys: &Keys<'_>) -> Result<usize> {
    match keys.get("id2label") {
        Some(Value::Object(labels)) => Ok(labels.len()),
        Some(other) => Err(keys.wrong("id2label", format!("must be an object, is {other}"))),
        None => Ok(keys.optional_size("num_labels")?.unwrap_or(2)),
    }
}

/// What transformers calls a class without a name.
fn unnamed(class: usize) -> String {
    format!("LABEL_{class}")
}

/// Names of a model's classes, where they have some.
pub(super) fn labels(keys: &Keys<'_>) -> Vec<String> {
    let Some(Value::Object(by_id)) = keys.get("id2label") else { return vec![] };
    let name = |class: usize| Some(by_id.get(&class.to_string())?.as_str()?.to_owned());
    let named: Option<Vec<String>> = (0..by_id.len()).map(name).collect();
    let has_names =
        |named: &Vec<String>| named.iter().enumerate().any(|(class, name)| *name != unnamed(class));
    named.filter(has_names).unwrap_or_default()
}

/// `id2label` and `label2id` of so many classes, of which `labels` are the names, or empty.
pub(super) fn named(classes: usize, labels: &[String]) -> [Value; 2] {
    let label = |class: usize| labels.get(class).cloned().unwrap_or_else(|| unnamed(class));
    let by_id: Map<String, Value> =
        (0..classes).map(|class| (class.to_string(), json!(label(class)))).collect();
    let by_label: Map<String, Value> =
        (0..classes).map(|class| (label(class), json!(class))).collect();
    [by_id, by_label].map(Value::Object)
}

//! Keys of Hugging Face's `config.json` that families share: the activation, the classes with their names, and how weights are quantized.

use serde_json::{Map, Value, json};

use crate::error::{Result, ensure};
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

/// Refuses weights that are quantized otherwise than by bitsandbytes, whose are dequantized where they're read.
pub(super) fn check_quantization(keys: &Keys<'_>) -> Result<()> {
    const KEY: &str = "quantization_config";
    let Some(table) = keys.table(KEY)? else { return Ok(()) };
    let method = table.text("quant_method")?;
    // Older files name no method.
    let bits = ["load_in_4bit", "load_in_8bit"].map(|key| table.flag(key));
    let [four, eight] = bits;
    let is_old = method.is_none() && (four? == Some(true) || eight? == Some(true));
    if is_old || method == Some("bitsandbytes") {
        return Ok(());
    }
    let method = method.unwrap_or("none that is named");
    let problem = format!(
        "says that weights are quantized by {method}, which isn't read; weights of bitsandbytes (nf4, fp4 and int8) are, and so is a \
         model in 16 bits"
    );
    Err(keys.wrong(KEY, problem))
}

/// Refuses what isn't one class of several for each input. With one class, transformers predicts a number.
pub(super) fn one_label(keys: &Keys<'_>) -> Result<()> {
    const ONE: &str = "single_label_classification";
    keys.must_be("problem_type", &[json!(ONE)])?;
    if keys.text("problem_type")? != Some(ONE) && classes(keys)? == 1 {
        let key = if keys.get("id2label").is_some() { "id2label" } else { "num_labels" };
        let problem = "has one class, with which transformers predicts a number, as reward models do; classes of \
                       which one is right are supported";
        return Err(keys.wrong(key, problem.to_owned()));
    }
    Ok(())
}

/// Refuses names of another number than that of the classes, unless there are none.
pub(super) fn check_labels(labels: &[String], classes: usize) -> Result<()> {
    ensure(labels.is_empty() || labels.len() == classes, "labels", || {
        format!("{} names for {classes} classes", labels.len())
    })
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

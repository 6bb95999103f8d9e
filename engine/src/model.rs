//! What is said of any model, and of the language models that settings describe.

use tightrope_nn::{LanguageModel, ModelConfig, TrainerConfig};

use crate::units::human_count;

/// The sizes of the language model that `config` trains, where it is one.
pub fn language(config: &TrainerConfig) -> Option<&ModelConfig> {
    LanguageModel::of(&*config.model).map(LanguageModel::config)
}

/// Numbers that the model of `config` holds, padding apart and tied weights counted once.
pub fn parameters(config: &TrainerConfig) -> u64 {
    let parameters = config.model.parameters();
    parameters.iter().map(|parameter| parameter.stored() as u64).sum()
}

/// Numbers that steps of `config` change.
pub fn trained(config: &TrainerConfig) -> u64 {
    let all = || parameters(config);
    config.lora.as_ref().map_or_else(all, |lora| lora.trained(&config.model.parameters()))
}

/// The model in a few words, for people.
pub fn sizes(config: &TrainerConfig) -> String {
    text(config, "")
}

/// As [`sizes`], with the length of sequences.
pub fn described(config: &TrainerConfig) -> String {
    text(config, &format!(" context {},", config.model.tokens()))
}

fn text(config: &TrainerConfig, context: &str) -> String {
    let Some(model) = language(config) else {
        let inputs = config.model.inputs().into_iter().map(|input| input.name);
        let inputs: Vec<String> = inputs.collect();
        return format!("a model that reads {}", inputs.join(" and "));
    };
    let ModelConfig { layers, channels, heads, vocab, .. } = *model;
    let family = model.family.name();
    format!(
        "{family}: {layers} layers of {channels} channels, {heads} heads,{context} vocabulary {vocab}"
    )
}

/// The model's family and size, for a title.
pub fn title(config: &TrainerConfig) -> String {
    let family = language(config).map_or("model", |model| model.family.name());
    format!("{family}, {} parameters", human_count(parameters(config) as f64))
}

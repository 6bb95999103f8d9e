//! The language model of a step, and steps of changed ones.

use tightrope_nn::{LanguageModel, ModelConfig, TrainerConfig};

/// The language model that is trained.
///
/// # Panics
/// Where another model is.
pub fn language(config: &TrainerConfig) -> &LanguageModel {
    LanguageModel::of(&*config.model).expect("a language model")
}

/// The same step of a model with other settings, and sequences as long.
///
/// # Panics
/// Where there is no such model.
pub fn changed(config: &TrainerConfig, change: impl FnOnce(&mut ModelConfig)) -> TrainerConfig {
    let model = language(config);
    let mut settings = model.config().clone();
    change(&mut settings);
    let model = settings.build(model.seq_len()).expect("a model");
    TrainerConfig { model, ..config.clone() }
}

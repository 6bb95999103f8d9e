//! What is said of any model, and of those that settings describe.
//!
//! ```
//! use tightrope::model::{Unit, parameters, title};
//! use tightrope::recipe::Step;
//! use tightrope::settings::Settings;
//!
//! let mut said = Settings::default();
//! said.read_argument("model.preset=gpt2")?;
//! let step = Step::of(&said)?;
//! assert_eq!(parameters(&step.config), 124_439_808);
//! assert_eq!(Unit::of(&step.config).many, "tokens");
//! println!("{}", title(&step.config));
//! # Ok::<(), tightrope::Error>(())
//! ```

use tightrope_nn::{LanguageModel, ModelConfig, ModelFamily, TrainerConfig, Vit, VitConfig};

use crate::units::{human_count, plural};

/// The sizes of the language model that `config` trains, where it is one.
pub fn language(config: &TrainerConfig) -> Option<&ModelConfig> {
    LanguageModel::of(&*config.model).map(LanguageModel::config)
}

/// The sizes of the vision transformer that `config` trains, where it is one.
pub fn vision(config: &TrainerConfig) -> Option<&VitConfig> {
    Vit::of(&*config.model).map(Vit::config)
}

/// What a run counts: tokens of text, images, or samples of a program's own model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// One of them.
    pub one: &'static str,
    /// Several.
    pub many: &'static str,
    /// Several, where there is little room.
    pub short: &'static str,
}

impl Unit {
    /// Of text.
    pub const TOKEN: Self = Self { one: "token", many: "tokens", short: "tok" };
    /// Of images.
    pub const IMAGE: Self = Self { one: "image", many: "images", short: "img" };
    /// Of a program's own model.
    pub const SAMPLE: Self = Self { one: "sample", many: "samples", short: "samples" };

    /// What a run of `config` counts.
    pub fn of(config: &TrainerConfig) -> Self {
        match (language(config), vision(config)) {
            (Some(_), _) => Self::TOKEN,
            (None, Some(_)) => Self::IMAGE,
            // A program's own model may read sequences.
            (None, None) if config.model.tokens() > 1 => Self::TOKEN,
            (None, None) => Self::SAMPLE,
        }
    }
}

/// Numbers that the model of `config` holds, padding apart and tied weights counted once.
pub fn parameters(config: &TrainerConfig) -> u64 {
    let parameters = config.model.parameters();
    parameters.iter().map(|parameter| parameter.stored() as u64).sum()
}

/// Numbers that steps of `config` change.
pub fn trained(config: &TrainerConfig) -> u64 {
    if let Some(lora) = &config.lora {
        return lora.trained(&config.model.parameters());
    }
    // Patterns of frozen parameters were checked when the step was made.
    let parameters = config.parameters().unwrap_or_else(|_| config.model.parameters());
    let trained = parameters.iter().filter(|parameter| !parameter.frozen);
    trained.map(|parameter| parameter.stored() as u64).sum()
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
    if let Some(model) = vision(config) {
        let VitConfig { layers, channels, heads, image, patch, colors, classes, .. } = *model;
        let pixels = |[height, width]: [usize; 2]| format!("{height} × {width}");
        return format!(
            "vit: {layers} layers of {channels} channels, {heads} heads, images of {} pixels of {} in \
             patches of {}, {classes} classes",
            pixels(image),
            plural(colors, "channel", "channels"),
            pixels(patch)
        );
    }
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
    let family = match (language(config), vision(config)) {
        (Some(model), _) => model.family.name(),
        (None, Some(_)) => ModelFamily::Vit.name(),
        (None, None) => "model",
    };
    format!("{family}, {} parameters", human_count(parameters(config) as f64))
}

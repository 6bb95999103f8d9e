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

use tightrope_nn::{
    Bert, BertConfig, Classifier, ClassifierConfig, LanguageModel, ModelConfig, ModelFamily,
    TrainerConfig, Vit, VitConfig,
};

use crate::units::{human_count, plural};

/// The sizes of the language model that `config` trains, where it is one.
pub fn language(config: &TrainerConfig) -> Option<&ModelConfig> {
    LanguageModel::of(&*config.model).map(LanguageModel::config)
}

/// The sizes of the vision transformer that `config` trains, where it is one.
pub fn vision(config: &TrainerConfig) -> Option<&VitConfig> {
    Vit::of(&*config.model).map(Vit::config)
}

/// The sizes of the encoder of text that `config` trains, where it is one.
pub fn encoder(config: &TrainerConfig) -> Option<&BertConfig> {
    Bert::of(&*config.model).map(Bert::config)
}

/// The sizes and classes of the decoder that classifies texts which `config` trains, where it is one.
pub fn classifier(config: &TrainerConfig) -> Option<&ClassifierConfig> {
    Classifier::of(&*config.model).map(Classifier::config)
}

/// Returns `true` if the model that `config` trains reads tokens and is of a known family.
pub fn reads_text(config: &TrainerConfig) -> bool {
    language(config).is_some() || encoder(config).is_some() || classifier(config).is_some()
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
    /// Of texts that are classified.
    pub const TEXT: Self = Self { one: "text", many: "texts", short: "texts" };
    /// Of preferences.
    pub const PAIR: Self = Self { one: "pair", many: "pairs", short: "pairs" };
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

    /// What the loss of a run of `config` is a mean over.
    pub fn scored(config: &TrainerConfig) -> Self {
        let classifies = encoder(config).is_some_and(|model| model.classes.is_some())
            || classifier(config).is_some();
        match LanguageModel::of(&*config.model) {
            Some(model) if model.is_of_pairs() => Self::PAIR,
            _ if classifies => Self::TEXT,
            _ => Self::of(config),
        }
    }
}

/// Whether samples of a run of `config` are pairs of sequences.
pub fn of_pairs(config: &TrainerConfig) -> bool {
    Unit::scored(config) == Unit::PAIR
}

/// What a sample of a run of `config` is, where it's made of tokens: one and several of them.
pub fn sample(config: &TrainerConfig) -> [&'static str; 2] {
    if of_pairs(config) { ["pair", "pairs"] } else { ["sequence", "sequences"] }
}

/// The name of a model's figure, in words.
pub fn words(name: &str) -> String {
    name.replace('_', " ")
}

/// The value of a model's figure, for people: a share in percent, and else a number.
pub fn figure(name: &str, value: f64) -> String {
    match name {
        "accuracy" => format!("{:.2}%", 100.0 * value),
        _ => format!("{value:.4}"),
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
    text(config, &format!(" context {},", config.model.seq_len()))
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
    if let Some(model) = encoder(config) {
        let BertConfig { layers, channels, heads, vocab, .. } = *model;
        let classes = model.classes.map_or(String::new(), |count| format!(", {count} classes"));
        return format!(
            "bert: {layers} layers of {channels} channels, {heads} heads,{context} vocabulary {vocab}{classes}"
        );
    }
    let classes = classifier(config);
    let of_classes = classes.map(|model| &model.decoder);
    let Some(model) = language(config).or(of_classes) else {
        let inputs = config.model.inputs().into_iter().map(|input| input.name);
        let inputs: Vec<String> = inputs.collect();
        return format!("a model that reads {}", inputs.join(" and "));
    };
    let ModelConfig { layers, channels, heads, vocab, .. } = *model;
    let family = model.family.name();
    let classes = classes.map_or(String::new(), |model| format!(", {} classes", model.classes));
    format!(
        "{family}: {layers} layers of {channels} channels, {heads} heads,{context} vocabulary {vocab}{classes}"
    )
}

/// The model's family and size, for a title.
pub fn title(config: &TrainerConfig) -> String {
    let decoder = language(config).or(classifier(config).map(|model| &model.decoder));
    let family = match (decoder, vision(config), encoder(config)) {
        (Some(model), ..) => model.family.name(),
        (None, Some(_), _) => ModelFamily::Vit.name(),
        (None, None, Some(_)) => ModelFamily::Bert.name(),
        (None, None, None) => "model",
    };
    format!("{family}, {} parameters", human_count(parameters(config) as f64))
}

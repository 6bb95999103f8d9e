//! Chat templates that are compiled in, after the published ones of their names.

use xxhash_rust::xxh3::xxh3_64;

macro_rules! templates {
    ($($name:literal),*) => {
        &[$(($name, include_str!(concat!("../../assets/templates/", $name, ".jinja")))),*]
    };
}

/// Names and texts.
pub(super) const TEMPLATES: &[(&str, &str)] =
    templates!["chatml", "llama-2", "llama-3", "gemma", "phi-3", "mistral", "alpaca", "zephyr"];

macro_rules! training {
    ($($published:literal: $name:literal),*) => {
        &[$(($published, include_str!(concat!("../../assets/templates/training/", $name, ".jinja")))),*]
    };
}

/// Templates that give the text and the marks of TRL's training templates, by the hashes of the published ones that they stand in for.
const TRAINING: &[(u64, &str)] = training![
    0x9799_ad6e_2dea_0594: "llama-3",
    0x6395_47fe_4d33_fa67: "qwen-2.5",
    0xc9e0_155c_8073_7cf2: "qwen-3",
    0x8fb5_d937_b1e8_f5d0: "qwen-3-2507",
    0x2c2e_86be_abcc_d2a4: "gemma",
    0x6d23_022e_b177_3ed6: "gemma-3",
    0x82fc_89c0_4c54_ba66: "phi-3",
    0xcd8a_ff86_3abd_4554: "phi-3.5"
];

/// The template that writes conversations in place of a published one where the assistant's turns are trained on, for those that TRL has
/// one for. It marks these turns, and writes each in the same way whatever follows.
pub(super) fn training(published: &str) -> Option<&'static str> {
    let hash = xxh3_64(published.as_bytes());
    TRAINING.iter().find(|(known, _)| *known == hash).map(|(_, text)| *text)
}

//! Chat templates that are compiled in, after the published ones of their names.

macro_rules! templates {
    ($($name:literal),*) => {
        &[$(($name, include_str!(concat!("../../assets/templates/", $name, ".jinja")))),*]
    };
}

/// Names and texts.
pub(super) const TEMPLATES: &[(&str, &str)] =
    templates!["chatml", "llama-2", "llama-3", "gemma", "phi-3", "mistral", "alpaca", "zephyr"];

//! Models by name, from 0.1 million to 1.6 billion parameters.

use tightrope_core::graph::nearest;

use super::config::{Family, ModelConfig, default_norm_eps, default_rope_theta};
use crate::error::{Error, Result};

/// A named model.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Name, as in settings.
    pub name: &'static str,
    family: Family,
    layers: usize,
    channels: usize,
    heads: usize,
    kv_heads: usize,
    hidden: usize,
    context: usize,
    vocab: usize,
    tied: bool,
}

impl Preset {
    /// The model's settings.
    pub fn config(&self) -> ModelConfig {
        ModelConfig {
            family: self.family,
            layers: self.layers,
            channels: self.channels,
            heads: self.heads,
            kv_heads: self.kv_heads,
            hidden: self.hidden,
            context: self.context,
            vocab: self.vocab,
            tied: self.tied,
            dropout: 0.0,
            norm_eps: default_norm_eps(),
            rope_theta: default_rope_theta(),
        }
    }
}

/// A GPT-2: layers, channels, heads, context, vocabulary.
const fn gpt2(name: &'static str, extents: [usize; 5]) -> Preset {
    let [layers, channels, heads, context, vocab] = extents;
    Preset {
        name,
        family: Family::Gpt2,
        layers,
        channels,
        heads,
        kv_heads: heads,
        hidden: 4 * channels,
        context,
        vocab,
        tied: true,
    }
}

/// A Llama: layers, channels, heads, key-value heads, hidden, context, vocabulary.
const fn llama(name: &'static str, extents: [usize; 7], tied: bool) -> Preset {
    let [layers, channels, heads, kv_heads, hidden, context, vocab] = extents;
    let family = Family::Llama;
    Preset { name, family, layers, channels, heads, kv_heads, hidden, context, vocab, tied }
}

/// All presets, the smaller first within each group: byte vocabularies; GPT-2's vocabulary; Llama's.
pub fn presets() -> &'static [Preset] {
    &PRESETS
}

pub(super) static PRESETS: [Preset; 19] = [
    gpt2("tiny", [2, 64, 2, 64, 256]),
    gpt2("small", [4, 128, 4, 128, 256]),
    gpt2("shakespeare", [6, 384, 6, 256, 256]),
    // Extents of minGPT's models below GPT-2, and of DistilGPT-2.
    gpt2("gpt2-nano", [3, 48, 3, 1024, 50_257]),
    gpt2("gpt2-micro", [4, 128, 4, 1024, 50_257]),
    gpt2("gpt2-mini", [6, 192, 6, 1024, 50_257]),
    gpt2("gpt2-distil", [6, 768, 12, 1024, 50_257]),
    gpt2("gpt2", [12, 768, 12, 1024, 50_257]),
    gpt2("gpt2-medium", [24, 1024, 16, 1024, 50_257]),
    gpt2("gpt2-large", [36, 1280, 20, 1024, 50_257]),
    gpt2("gpt2-xl", [48, 1600, 25, 1024, 50_257]),
    llama("llama-tiny", [2, 64, 4, 2, 176, 64, 256], true),
    llama("llama-small", [4, 128, 4, 2, 352, 128, 256], true),
    // Extents of llama2.c's stories models, of SmolLM and of TinyLlama.
    llama("llama-15m", [6, 288, 6, 6, 768, 256, 32_000], true),
    llama("llama-42m", [8, 512, 8, 8, 1376, 1024, 32_000], true),
    llama("llama-110m", [12, 768, 12, 12, 2048, 1024, 32_000], true),
    llama("llama-135m", [30, 576, 9, 3, 1536, 2048, 49_152], true),
    llama("llama-360m", [32, 960, 15, 5, 2560, 2048, 49_152], true),
    llama("llama-1.1b", [22, 2048, 32, 4, 5632, 2048, 32_000], false),
];

/// Names that published models have elsewhere, in lower case and without their owner, with the preset's.
const ELSEWHERE: [(&str, &str); 16] = [
    ("gpt2-small", "gpt2"),
    ("gpt2-124m", "gpt2"),
    ("gpt2-355m", "gpt2-medium"),
    ("gpt2-774m", "gpt2-large"),
    ("gpt2-1558m", "gpt2-xl"),
    ("gpt2-1.5b", "gpt2-xl"),
    ("distilgpt2", "gpt2-distil"),
    ("gpt-nano", "gpt2-nano"),
    ("gpt-micro", "gpt2-micro"),
    ("gpt-mini", "gpt2-mini"),
    ("stories15m", "llama-15m"),
    ("stories42m", "llama-42m"),
    ("stories110m", "llama-110m"),
    ("smollm-135m", "llama-135m"),
    ("smollm-360m", "llama-360m"),
    ("tinyllama-1.1b", "llama-1.1b"),
];

/// The preset's name for what a model is called here or elsewhere: `openai-community/gpt2-medium`, `SmolLM-135M`.
pub(super) fn own_name(name: &str) -> String {
    let (_, name) = name.rsplit_once('/').unwrap_or(("", name));
    let name = name.to_lowercase();
    let own = ELSEWHERE.iter().find(|(elsewhere, _)| *elsewhere == name);
    own.map_or(name, |(_, own)| (*own).to_owned())
}

/// Settings of the preset `name`, which may be the name that the published model has elsewhere.
///
/// # Errors
/// [`Error::UnknownPreset`], with the most similar name and the list.
pub fn preset(name: &str) -> Result<ModelConfig> {
    let own = own_name(name);
    let found = PRESETS.iter().find(|preset| preset.name == own);
    found.map(Preset::config).ok_or_else(|| Error::UnknownPreset {
        name: name.into(),
        nearest: nearest(name, PRESETS.iter().map(|preset| preset.name)),
        known: PRESETS.map(|preset| preset.name).join(", "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts that PyTorch gives for the published models.
    #[test]
    fn published_counts() {
        for (name, count) in [
            ("gpt2-distil", 81_912_576),
            ("gpt2", 124_439_808),
            ("gpt2-medium", 354_823_168),
            ("gpt2-large", 774_030_080),
            ("gpt2-xl", 1_557_611_200),
            ("llama-15m", 15_191_712),
            ("llama-135m", 134_515_008),
            ("llama-360m", 361_821_120),
            ("llama-1.1b", 1_100_048_384),
        ] {
            assert_eq!(preset(name).unwrap().parameters(), count, "{name}");
        }
    }

    #[test]
    fn names_that_models_have_elsewhere_are_known() {
        for (elsewhere, own) in ELSEWHERE {
            let expected = preset(own).unwrap();
            assert_eq!(preset(elsewhere).unwrap(), expected);
            assert_eq!(preset(&format!("Someone/{}", elsewhere.to_uppercase())).unwrap(), expected);
        }
        assert_eq!(preset("openai-community/gpt2-xl").unwrap(), preset("gpt2-xl").unwrap());
    }

    #[test]
    fn all_are_valid_and_named_once() {
        for (index, preset) in presets().iter().enumerate() {
            preset.config().check().unwrap();
            assert!(presets()[..index].iter().all(|before| before.name != preset.name));
        }
        let millions = |name| preset(name).unwrap().parameters() as f64 / 1e6;
        assert!((0.1..0.2).contains(&millions("tiny")), "{}", millions("tiny"));
        assert!((0.8..1.2).contains(&millions("small")), "{}", millions("small"));
        assert!((10.0..12.0).contains(&millions("shakespeare")), "{}", millions("shakespeare"));
    }

    #[test]
    fn a_misspelt_name_gets_the_nearest() {
        let message = preset("gpt2-meduim").unwrap_err().to_string();
        assert!(message.contains("did you mean `gpt2-medium`?"), "{message}");
    }
}

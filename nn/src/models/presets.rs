//! Models by name, from 0.1 million to 9 billion parameters.

use tightrope_core::graph::nearest;

use super::config::Family::{Gemma2, Gemma3, Llama, Mistral, Olmo2, Phi3, Qwen2, Qwen3, SmolLm3};
use super::config::{Details, Family, ModelConfig, default_norm_eps, default_rope_theta};
use super::rope::RopeScaling;
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
    norm_eps: f64,
    rope_theta: f64,
    rope_scaling: Option<RopeScaling>,
    head_dim: Option<usize>,
    window: Option<usize>,
}

impl Preset {
    /// The model's settings.
    pub fn config(&self) -> ModelConfig {
        let of_family = self.family.details(self.layers);
        let windowed = match self.window {
            None => vec![],
            Some(_) if of_family.windowed.is_empty() => (0..self.layers).collect(),
            Some(_) => of_family.windowed,
        };
        let details = Details {
            head_dim: self.head_dim,
            rope_scaling: self.rope_scaling,
            window: self.window,
            windowed,
            ..of_family
        };
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
            norm_eps: self.norm_eps,
            rope_theta: self.rope_theta,
            details,
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
        norm_eps: default_norm_eps(),
        rope_theta: default_rope_theta(),
        rope_scaling: None,
        head_dim: None,
        window: None,
    }
}

/// A Llama: layers, channels, heads, key-value heads, hidden, context, vocabulary.
const fn llama(name: &'static str, extents: [usize; 7], tied: bool) -> Preset {
    let [layers, channels, heads, kv_heads, hidden, context, vocab] = extents;
    Preset {
        name,
        family: Llama,
        layers,
        channels,
        heads,
        kv_heads,
        hidden,
        context,
        vocab,
        tied,
        norm_eps: default_norm_eps(),
        rope_theta: default_rope_theta(),
        rope_scaling: None,
        head_dim: None,
        window: None,
    }
}

/// A model of another family, with the extents of a Llama, its norms' epsilon and the base of its rotary angles.
const fn decoder(
    family: Family,
    name: &'static str,
    extents: [usize; 7],
    tied: bool,
    [norm_eps, rope_theta]: [f64; 2],
) -> Preset {
    Preset { family, norm_eps, rope_theta, ..llama(name, extents, tied) }
}

impl Preset {
    /// With the frequencies of Llama 3.1 and 3.2, which make the first context of 8,192 tokens longer by a factor.
    const fn llama3(self, factor: f64) -> Self {
        let scaling = RopeScaling::Llama3 {
            factor,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_position_embeddings: 8192,
        };
        Self { rope_scaling: Some(scaling), ..self }
    }

    const fn head_dim(self, head_dim: usize) -> Self {
        Self { head_dim: Some(head_dim), ..self }
    }

    /// With a window of so many keys in the family's layers.
    const fn window(self, keys: usize) -> Self {
        Self { window: Some(keys), ..self }
    }
}

/// All presets, the smaller first within each group: byte vocabularies; GPT-2's vocabulary; Llama's; the other families.
pub fn presets() -> &'static [Preset] {
    &PRESETS
}

pub(super) static PRESETS: [Preset; 40] = [
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
    decoder(Llama, "smollm2-1.7b", [24, 2048, 32, 32, 8192, 8192, 49_152], true, [1e-5, 130_000.0]),
    decoder(Llama, "llama-3.2-1b", [16, 2048, 32, 8, 8192, 131_072, 128_256], true, [1e-5, 5e5])
        .llama3(32.0),
    decoder(Llama, "llama-3.2-3b", [28, 3072, 24, 8, 8192, 131_072, 128_256], true, [1e-5, 5e5])
        .llama3(32.0),
    decoder(Llama, "llama-3.1-8b", [32, 4096, 32, 8, 14_336, 131_072, 128_256], false, [1e-5, 5e5])
        .llama3(8.0),
    decoder(
        Llama,
        "llama-3.1-70b",
        [80, 8192, 64, 8, 28_672, 131_072, 128_256],
        false,
        [1e-5, 5e5],
    )
    .llama3(8.0),
    decoder(Mistral, "mistral-7b", [32, 4096, 32, 8, 14_336, 32_768, 32_000], false, [1e-5, 1e4])
        .window(4096),
    decoder(Qwen2, "qwen2.5-0.5b", [24, 896, 14, 2, 4864, 32_768, 151_936], true, [1e-6, 1e6]),
    decoder(Qwen2, "qwen2.5-1.5b", [28, 1536, 12, 2, 8960, 32_768, 151_936], true, [1e-6, 1e6]),
    decoder(Qwen2, "qwen2.5-3b", [36, 2048, 16, 2, 11_008, 32_768, 151_936], true, [1e-6, 1e6]),
    decoder(Qwen2, "qwen2.5-7b", [28, 3584, 28, 4, 18_944, 32_768, 152_064], false, [1e-6, 1e6]),
    decoder(Qwen3, "qwen3-0.6b", [28, 1024, 16, 8, 3072, 40_960, 151_936], true, [1e-6, 1e6])
        .head_dim(128),
    decoder(Qwen3, "qwen3-1.7b", [28, 2048, 16, 8, 6144, 40_960, 151_936], true, [1e-6, 1e6]),
    decoder(Qwen3, "qwen3-4b", [36, 2560, 32, 8, 9728, 40_960, 151_936], true, [1e-6, 1e6])
        .head_dim(128),
    decoder(Qwen3, "qwen3-8b", [36, 4096, 32, 8, 12_288, 40_960, 151_936], false, [1e-6, 1e6]),
    decoder(Gemma2, "gemma-2-2b", [26, 2304, 8, 4, 9216, 8192, 256_000], true, [1e-6, 1e4])
        .head_dim(256)
        .window(4096),
    decoder(Gemma2, "gemma-2-9b", [42, 3584, 16, 8, 14_336, 8192, 256_000], true, [1e-6, 1e4])
        .head_dim(256)
        .window(4096),
    decoder(Gemma3, "gemma-3-270m", [18, 640, 4, 1, 2048, 32_768, 262_144], true, [1e-6, 1e6])
        .head_dim(256)
        .window(512),
    decoder(Gemma3, "gemma-3-1b", [26, 1152, 4, 1, 6912, 32_768, 262_144], true, [1e-6, 1e6])
        .head_dim(256)
        .window(512),
    decoder(Phi3, "phi-3-mini", [32, 3072, 32, 32, 8192, 4096, 32_064], false, [1e-5, 1e4])
        .window(2047),
    decoder(SmolLm3, "smollm3-3b", [36, 2048, 16, 4, 11_008, 65_536, 128_256], true, [1e-6, 5e6]),
    decoder(Olmo2, "olmo-2-1b", [16, 2048, 16, 16, 8192, 4096, 100_352], false, [1e-6, 5e5]),
];

/// Names that published models have elsewhere, in lower case and without their owner, with the preset's.
const ELSEWHERE: [(&str, &str); 27] = [
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
    ("meta-llama-3.1-8b", "llama-3.1-8b"),
    ("meta-llama-3.1-70b", "llama-3.1-70b"),
    ("mistral-7b-v0.1", "mistral-7b"),
    ("gemma-3-270m-it", "gemma-3-270m"),
    ("gemma-3-1b-pt", "gemma-3-1b"),
    ("gemma-3-1b-it", "gemma-3-1b"),
    ("phi-3-mini-4k-instruct", "phi-3-mini"),
    ("olmo-2-0425-1b", "olmo-2-1b"),
    ("bert_uncased_l-2_h-128_a-2", "bert-tiny"),
    ("bert-base-uncased", "bert-base"),
    ("bert-large-uncased", "bert-large"),
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
    use crate::Architecture;

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
            ("smollm2-1.7b", 1_711_376_384),
            ("llama-3.2-1b", 1_235_814_400),
            ("llama-3.2-3b", 3_212_749_824),
            ("llama-3.1-8b", 8_030_261_248),
            ("llama-3.1-70b", 70_553_706_496),
            ("mistral-7b", 7_241_732_096),
            ("qwen2.5-0.5b", 494_032_768),
            ("qwen2.5-1.5b", 1_543_714_304),
            ("qwen2.5-3b", 3_085_938_688),
            ("qwen2.5-7b", 7_615_616_512),
            ("qwen3-0.6b", 596_049_920),
            ("qwen3-1.7b", 1_720_574_976),
            ("qwen3-4b", 4_022_468_096),
            ("qwen3-8b", 8_190_735_360),
            ("gemma-2-2b", 2_614_341_888),
            ("gemma-2-9b", 9_241_705_984),
            ("gemma-3-270m", 268_098_176),
            ("gemma-3-1b", 999_885_952),
            ("phi-3-mini", 3_821_079_552),
            ("smollm3-3b", 3_075_098_624),
            ("olmo-2-1b", 1_484_916_736),
        ] {
            assert_eq!(preset(name).unwrap().parameters(), count, "{name}");
        }
    }

    #[test]
    fn names_that_models_have_elsewhere_are_known() {
        for (elsewhere, own) in ELSEWHERE {
            let preset = |name: &str| Architecture::preset(name).unwrap();
            let expected = preset(own);
            assert_eq!(preset(elsewhere), expected);
            assert_eq!(preset(&format!("Someone/{}", elsewhere.to_uppercase())), expected);
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

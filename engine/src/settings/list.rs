//! The list of settings: a line each, from which everything about them is made.
//!
//! The fields of [`Settings`], reading and writing, the flags and their help, messages, the JSON schema and the
//! page's TypeScript all come from these lines. `None` means "not chosen": the preset's value, or the planner's.

use std::path::PathBuf;

use tightrope_nn::lora::ALL_LINEAR;
use tightrope_nn::{ModelFamily, Offload, Schedule, StateBits, UpdateRule, defaults};

use super::kind::Range::{Fraction, Positive, Share};
use super::setting::{Command, Reads};
use super::table::settings;
use super::values::{
    Allow, Bytes, Chunk, Device, Extents, Matmul, MicroBatch, Precision, Recompute,
};

const PRESET: &str = "the preset's";
const OF_MODEL: &str = "the preset's or that of init";
const STEPS: &[Command] = Command::STEPS;
const DATA: &[Command] = Command::DATA;
const RUN: &[Command] = Command::RUN;
const READ: &[Command] = Command::READ;
const TEXT: Reads = Reads::Text;
const IMAGES: Reads = Reads::Images;

settings! {
    /// All settings of a run: what was said, and [by whom](Settings::origin).
    ///
    /// Two are equal where they say the same, whoever said it.
    pub struct Settings, LIST, TABLES;

    /// The network. A size that isn't set is the preset's, or the one found in `init`.
    model "Model" => Model {
        preset: Option<String>, "Known model that gives every size left unset", [unset("a small GPT"), flag("preset", "NAME"), only(STEPS)];
        family: Option<ModelFamily>, "Architecture", [unset(OF_MODEL), flag("family", "FAMILY"), only(STEPS), page("Family")];
        layers: Option<usize>, "Transformer blocks", [unset(OF_MODEL), flag("layers", "N"), only(STEPS), elsewhere(&["n_layer", "num_layers", "num_hidden_layers"]), page("Layers")];
        channels: Option<usize>, "Width of the residual stream", [unset(OF_MODEL), flag("channels", "N"), only(STEPS), elsewhere(&["n_embd", "d_model", "hidden_size"]), page("Channels")];
        heads: Option<usize>, "Attention heads; divides channels", [unset(OF_MODEL), flag("heads", "N"), only(STEPS), elsewhere(&["n_head", "num_attention_heads"]), page("Heads")];
        kv_heads: Option<usize>, "Key and value heads; divides heads", [reads(TEXT), unset("as many as heads"), flag("kv-heads", "N"), only(STEPS), elsewhere(&["num_key_value_heads"]), page_more("Key–value heads"), page_empty("as heads")];
        hidden: Option<usize>, "Inner width of the feed-forward layer", [unset(OF_MODEL), flag("hidden", "N"), only(STEPS), elsewhere(&["intermediate_size"]), page_more("Hidden width"), page_empty("by family")];
        context: Option<usize>, "Longest sequence", [reads(TEXT), unset(OF_MODEL), flag("context", "TOKENS"), elsewhere(&["block_size", "seq_len"]), page("Context")];
        vocab: Option<usize>, "Vocabulary", [reads(TEXT), unset("the tokenizer's"), flag("vocab", "TOKENS"), only(STEPS), elsewhere(&["vocab_size"]), page_more("Vocabulary"), page_empty("the tokenizer’s")];
        tied: Option<bool>, "Use the embedding as the output layer", [reads(TEXT), unset(OF_MODEL), only(STEPS), elsewhere(&["tie_word_embeddings"]), page_more("Output tied to embedding")];
        dropout: Option<f64>, "Probability of dropping an activation", [within(Fraction), unset(PRESET), only(STEPS), page_more("Dropout")];
        image_size: Option<Extents>, "Pixels of an image along each side, or HEIGHTxWIDTH", [reads(IMAGES), unset("the preset's, that of init, or the data's"), flag("image-size", "N|HxW"), only(STEPS)];
        patch_size: Option<Extents>, "Pixels of a patch along each side, or HEIGHTxWIDTH; divides image_size", [reads(IMAGES), unset(OF_MODEL), flag("patch-size", "N|HxW"), only(STEPS), page("Patch, pixels"), page_empty("by preset")];
        image_channels: Option<usize>, "Channels of a pixel: 1 for grey, 3 for colours", [reads(IMAGES), one_of(&[1, 3]), unset("the preset's, those of init, or the data's"), only(STEPS), elsewhere(&["num_channels"])];
        classes: Option<usize>, "Classes of images", [reads(IMAGES), unset("the data's or those of init"), only(STEPS), elsewhere(&["num_labels", "num_classes"])];
        init: Option<PathBuf>, "Hugging Face directory or checkpoint to start from", [unset("random weights"), flag("init", "DIR"), only(READ), passing()];
    }

    /// The optimization.
    train "Training" => Train {
        batch: Option<usize>, "Sequences or images per optimizer step", [at_most(1 << 20), unset(PRESET), flag("batch", "N"), only(DATA), elsewhere(&["batch_size"]), page("Batch")];
        micro_batch: MicroBatch, "Sequences or images per pass; divides batch", [flag("micro-batch", "N|auto"), only(DATA), page("Micro-batch"), page_empty("auto")];
        steps: Option<u64>, "Optimizer steps", [unset(PRESET), flag("steps", "N"), only(STEPS), elsewhere(&["max_steps", "max_iters"]), page("Steps")];
        optimizer: UpdateRule, "Update rule", [flag("optimizer", "RULE"), only(STEPS), page("Optimizer")];
        lr: Option<f64>, "Peak learning rate", [within(Positive), unset(PRESET), flag("lr", "RATE"), only(STEPS), elsewhere(&["learning_rate"]), page("Learning rate")];
        min_lr: Option<f64>, "Learning rate that the schedule ends at", [unset("a tenth of lr"), flag("min-lr", "RATE"), only(STEPS), page_more("Final rate"), page_empty("a tenth")];
        warmup: Option<u64>, "Steps until the learning rate reaches lr", [at_least(0), unset("a twentieth of steps"), flag("warmup", "STEPS"), only(STEPS), elsewhere(&["warmup_steps"]), page_more("Warmup, steps"), page_empty("5 %")];
        schedule: Schedule = Schedule::Cosine, "Learning rate after the warmup", [flag("schedule", "SHAPE"), only(STEPS), elsewhere(&["lr_scheduler", "lr_scheduler_type"]), page_more("Schedule")];
        weight_decay: f64 = defaults::WEIGHT_DECAY, "Decoupled decay of matrices", [flag("weight-decay", "X"), only(STEPS), page_more("Weight decay")];
        beta1: f64 = defaults::BETA1, "Decay of the first moment", [within(Fraction), only(STEPS), page_more("Beta 1")];
        beta2: f64 = defaults::BETA2, "Decay of the second moment", [within(Fraction), only(STEPS), page_more("Beta 2")];
        eps: f64 = defaults::EPS, "Term in the denominator of Adam", [within(Positive), only(STEPS), page_more("Epsilon")];
        clip: f64 = defaults::CLIP, "Largest gradient norm; 0 is no clipping", [flag("clip", "NORM"), only(STEPS), elsewhere(&["grad_clip", "max_grad_norm"]), page_more("Clip norm at")];
        freeze: Vec<String>, "Parameters that training leaves as they are, by name, where * stands for any characters: h.0.*, *.bias", [only(STEPS), elsewhere(&["frozen", "freeze_layers"])];
        seed: u64 = defaults::SEED, "Seed of weights, dropout, data order and samples", [at_least(0), at_most(i64::MAX), flag("seed", "N"), page_more("Seed")];
    }

    /// Adapters that are trained in place of the network.
    lora "LoRA" => Lora {
        rank: usize = 0, "Rank of adapters that are trained on frozen weights; 0 trains all weights", [at_least(0), flag("lora-rank", "N"), only(STEPS), elsewhere(&["lora_r"]), page("LoRA rank")];
        alpha: Option<f64>, "Adapters are scaled by alpha/rank", [within(Positive), unset("twice the rank"), flag("lora-alpha", "X"), only(STEPS), elsewhere(&["lora_alpha"])];
        targets: Vec<String> = vec![ALL_LINEAR.to_owned()], "Layers that get adapters, by Hugging Face's names: c_attn, q_proj, …, or all-linear", [only(STEPS), elsewhere(&["target_modules"])];
        dropout: f64 = 0.0, "Probability of dropping an element of an adapter's input", [within(Fraction), only(STEPS), elsewhere(&["lora_dropout"])];
        base_bits: Option<u32>, "Bits per weight of frozen layers: 8", [one_of(&[8]), unset("those of the precision"), only(STEPS), elsewhere(&["load_in_8bit"])];
        init: Option<PathBuf>, "PEFT directory of adapters to start from, with their rank, alpha and targets", [unset("new adapters"), flag("lora-init", "DIR"), only(READ), passing()];
    }

    /// What the planner may spend and do.
    memory "Memory" => Memory {
        budget: Option<Bytes>, "Memory that the plan may use, such as 2GiB", [unset("what the device has free"), flag("memory", "BYTES"), only(DATA), page_control()];
        plan: Option<PathBuf>, "Plan to use as it is, such as a run's plan.json", [unset("the fastest that fits"), flag("plan", "FILE"), only(STEPS), passing()];
        recompute: Recompute, "Activations to recompute in the backward pass: auto, none, block, every:N, sqrt, or all but a list of tensors", [flag("recompute", "WHAT"), old_flags(&["checkpoint"]), old_keys(&["memory.checkpoint"]), only(STEPS), elsewhere(&["gradient_checkpointing", "activation_checkpointing"]), page("Recompute")];
        loss_chunk: Chunk, "Rows of logits at once: a number, auto or none", [flag("loss-chunk", "ROWS"), only(DATA), page_more("Loss chunk, rows"), page_empty("auto")];
        optimizer_bits: StateBits, "Bits per number of optimizer state: 32, 16 or 8", [only(STEPS), page_more("Optimizer state")];
        offload: Offload, "What the host keeps for a GPU: optimizer (its state and the update), gradients, activations, weights", [flag("offload", "LIST"), only(STEPS), page_more("Offload")];
        consume_gradients: bool, "Update each weight as soon as its gradient is made: in one pass a step, without clipping, and without skipping steps that aren't finite", [only(STEPS), page_more("Consume gradients")];
        allow: Vec<Allow>, "What the planner may change to fit: optimizer_bits, precision (which change numbers), offload", [only(STEPS)];
    }

    /// The text or the images.
    data "Data" => Data {
        files: Vec<PathBuf>, "Files of text, JSON, Parquet or token ids, .gz and .zst too, folders or globs of them; - is standard input; or images: a folder, two IDX files or the word digits; none is the built-in data", [flag("data", "FILE"), only(DATA), passing()];
        tokenizer: Option<String>, "Tokenizer: byte, gpt2, or a tokenizer.json", [reads(TEXT), unset("the one that fits the model"), flag("tokenizer", "NAME|FILE"), only(READ), passing(), page("Tokenizer"), page_words(&["byte", "gpt2"])];
        text_key: Option<String>, "Field or column that holds the text in .jsonl, .json and .parquet files", [reads(TEXT), unset("text"), flag("text-key", "NAME"), only(DATA), elsewhere(&["text_column", "dataset_text_field"])];
        holdout: f64 = defaults::HOLDOUT, "Part of the data kept for evaluation; `eval` scores all of it at 0 and at 1", [within(Share), only(DATA), page_more("Held-out share")];
    }

    /// Where and how it runs. Intervals count optimizer steps.
    run "Run" => Run {
        out: Option<PathBuf>, "Run directory", [unset("a new one under runs/"), flag("out", "DIR"), only(RUN), passing(), elsewhere(&["output_dir", "out_dir"])];
        device: Device, "auto, cpu, wgpu, cuda, or wgpu:N and cuda:N", [flag("device", "DEVICE")];
        precision: Precision, "Storage of weights and activations; tf32 is f32 with less exact matmuls", [flag("precision", "TYPE"), only(READ), elsewhere(&["dtype"]), page("Precision"), page_words(&["f32", "bf16", "f16"])];
        matmul: Matmul, "Who multiplies matrices on an NVIDIA GPU", [old_keys(&["run.products"])];
        threads: Option<usize>, "CPU threads", [unset("every core"), at_most(1024), flag("threads", "N"), passing()];
        log_every: u64 = 10, "Steps between logged losses", [flag("log-every", "STEPS"), only(RUN), passing(), elsewhere(&["logging_steps", "log_interval"])];
        eval_every: u64 = 250, "Steps between evaluations; 0 is only at the end", [at_least(0), flag("eval-every", "STEPS"), only(RUN), passing(), elsewhere(&["eval_steps", "eval_interval"])];
        sample_every: u64 = 0, "Steps between samples; 0 is only at the end", [at_least(0), flag("sample-every", "STEPS"), only(RUN), passing()];
        save_every: u64 = 500, "Steps between checkpoints; 0 is only at the end", [at_least(0), flag("save-every", "STEPS"), old_flags(&["checkpoint-every"]), old_keys(&["run.checkpoint_every"]), only(RUN), passing(), elsewhere(&["save_steps"])];
        detect_anomaly: bool, "Name the op whose output isn't finite of each step that f16 skips; a run that ends for it names it anyway", [flag("detect-anomaly", "BOOL"), only(RUN), passing()];
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use toml::Value;

    use super::super::kind::Kind;
    use super::*;

    #[test]
    fn names_are_of_one_setting() {
        let keys = LIST.iter().flat_map(|setting| setting.old_keys.iter().chain([&setting.key]));
        let flags = LIST.iter().filter_map(|setting| setting.flag);
        let flags = flags.flat_map(|flag| flag.old_names.iter().copied().chain([flag.name]));
        let elsewhere = LIST.iter().flat_map(|setting| setting.elsewhere);
        for names in
            [keys.copied().collect::<Vec<_>>(), flags.collect(), elsewhere.copied().collect()]
        {
            assert!(names.len() > 3);
            assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
        }
    }

    #[test]
    fn a_setting_has_a_default_or_says_what_holds() {
        for setting in LIST {
            let default = setting.default();
            assert_eq!(default.is_some(), setting.unset.is_empty(), "{}", setting.key);
            assert_eq!(Settings::default().value(setting.key).unwrap(), default, "{}", setting.key);
            if let Some(default) = default {
                assert_eq!(setting.accept(default.clone()), Ok(default), "{}", setting.key);
            }
            assert!(!setting.help.ends_with('.'), "{}", setting.key);
        }
    }

    #[test]
    fn what_a_setting_accepts_reaches_its_field() {
        for setting in LIST {
            let value = example(setting.kind);
            let mut settings = Settings::default();
            assert!(settings.assign(setting.key, &value), "{}: {value}", setting.key);
            assert_eq!(settings.value(setting.key), Ok(Some(value)), "{}", setting.key);
        }
    }

    /// A value that settings of this kind accept.
    fn example(kind: Kind) -> Value {
        let value = match kind {
            Kind::Text | Kind::Path => "a".into(),
            Kind::Switch => true.into(),
            Kind::Word(words) => words()[0].into(),
            Kind::OneOf(values) => values[0].into(),
            Kind::Whole(_, most) => most.into(),
            Kind::Number(_) => 0.5.into(),
            Kind::Form(form) => {
                let texts = form.words.iter().copied().chain(["2GiB", "8x12"]);
                texts.map(Value::from).find(|text| (form.accepts)(text)).unwrap()
            }
            Kind::List(item) => Value::Array(vec![example(*item)]),
        };
        assert!(kind.accepts(&value), "{kind:?}: {value}");
        value
    }
}

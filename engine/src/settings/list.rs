//! The list of settings: a line each, from which everything about them is made.
//!
//! The fields of [`Settings`], reading and writing, the flags and their help, messages, the JSON schema and the
//! page's TypeScript all come from these lines. `None` means "not chosen": the preset's value, or the planner's.

use std::path::PathBuf;

use tightrope_data::{BucketCount, RowFormat, TrainOn};
use tightrope_nn::layers::AttentionKind;
use tightrope_nn::lora::{ALL_LINEAR, Biases};
use tightrope_nn::{
    GradientSums, Gradients, Master, ModelFamily, Offload, Schedule, StateBits, TableBits,
    UpdateRule, defaults,
};

use super::command::Command;
use super::interconnect::Interconnect;
use super::kind::Range::{Fraction, Positive, Share};
use super::setting::Reads;
use super::sharding::Sharding;
use super::table::settings;
use super::values::{
    Allow, Bytes, Chunk, Device, Extents, Matmul, MicroBatch, Precision, Recompute,
};
use crate::checkpoint::KEPT;

const PRESET: &str = "the preset's";
const OF_MODEL: &str = "the preset's or that of init";
const STEPS: &[Command] = Command::STEPS;
const DATA: &[Command] = Command::DATA;
const RUN: &[Command] = Command::RUN;
const INFERENCE: &[Command] = Command::INFERENCE;
const READ: &[Command] = Command::READ;
const BATCHES: &[Command] = Command::BATCHES;
const CHATS: &[Command] = Command::CHATS;
const ENCODE: &[Command] = Command::ALL;
const TEXT: Reads = Reads::Text;
const CAUSAL: Reads = Reads::Causal;
const CLASSES: Reads = Reads::Classes;
const IMAGES: Reads = Reads::Images;
/// The page has no tokenizer that an encoder reads.
const PAGE_FAMILIES: &[&str] = &[
    "gpt2", "llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "smollm3", "olmo2",
    "vit",
];

settings! {
    /// All settings of a run: what was said, and [by whom](Settings::origin).
    ///
    /// Two are equal where they say the same, whoever said it.
    pub struct Settings, LIST, TABLES;

    /// The network. A size that isn't set is the preset's, or the one found in `init`.
    model "Model" => Model {
        preset: Option<String>, "Known model that gives every size left unset", [unset("a small GPT"), flag("preset", "NAME"), only(STEPS)];
        family: Option<ModelFamily>, "Architecture", [unset(OF_MODEL), flag("family", "FAMILY"), only(STEPS), page("Family"), page_words(PAGE_FAMILIES)];
        layers: Option<usize>, "Transformer blocks", [unset(OF_MODEL), flag("layers", "N"), only(STEPS), elsewhere(&["n_layer", "num_layers", "num_hidden_layers"]), page("Layers")];
        channels: Option<usize>, "Width of the residual stream", [unset(OF_MODEL), flag("channels", "N"), only(STEPS), elsewhere(&["n_embd", "d_model", "hidden_size"]), page("Channels")];
        heads: Option<usize>, "Attention heads; divides channels", [unset(OF_MODEL), flag("heads", "N"), only(STEPS), elsewhere(&["n_head", "num_attention_heads"]), page("Heads")];
        kv_heads: Option<usize>, "Key and value heads; divides heads", [reads(CAUSAL), unset("as many as heads"), flag("kv-heads", "N"), only(STEPS), elsewhere(&["num_key_value_heads"]), page_more("Key–value heads"), page_empty("as heads")];
        hidden: Option<usize>, "Inner width of the feed-forward layer", [unset(OF_MODEL), flag("hidden", "N"), only(STEPS), elsewhere(&["intermediate_size"]), page_more("Hidden width"), page_empty("by family")];
        context: Option<usize>, "Longest sequence", [reads(TEXT), unset(OF_MODEL), flag("context", "TOKENS"), only(Command::SEQUENCES), elsewhere(&["block_size", "seq_len"]), page("Context")];
        vocab: Option<usize>, "Vocabulary", [reads(TEXT), unset("the tokenizer's"), flag("vocab", "TOKENS"), only(STEPS), elsewhere(&["vocab_size"]), page_more("Vocabulary"), page_empty("the tokenizer’s")];
        tied: Option<bool>, "Use the embedding as the output layer", [reads(CAUSAL), unset(OF_MODEL), only(STEPS), elsewhere(&["tie_word_embeddings"]), page_more("Output tied to embedding")];
        dropout: Option<f64>, "Probability of dropping an activation", [within(Fraction), unset(PRESET), only(STEPS), page_more("Dropout")];
        image_size: Option<Extents>, "Pixels of an image along each side, or HEIGHTxWIDTH", [reads(IMAGES), unset("the preset's, that of init, or the data's"), flag("image-size", "N|HxW"), only(STEPS)];
        patch_size: Option<Extents>, "Pixels of a patch along each side, or HEIGHTxWIDTH; divides image_size", [reads(IMAGES), unset(OF_MODEL), flag("patch-size", "N|HxW"), only(STEPS), page("Patch, pixels"), page_empty("by preset")];
        image_channels: Option<usize>, "Channels of a pixel: 1 for grey, 3 for colours", [reads(IMAGES), one_of(&[1, 3]), unset("the preset's, those of init, or the data's"), only(STEPS), elsewhere(&["num_channels"])];
        classes: Option<usize>, "Classes of images or texts", [reads(CLASSES), unset("the data's or those of init"), only(STEPS), elsewhere(&["num_labels", "num_classes"])];
        add_tokens: bool, "Add a row to the embedding of init, and to its head, for each token of the tokenizer past the last one", [reads(CAUSAL), flag("add-tokens", "BOOL"), only(STEPS), elsewhere(&["resize_vocab"])];
        mean_resizing: bool = true, "Added rows are the mean of the others, as transformers makes them but for noise of 3e-5 of their spread; else they are drawn with init's initializer_range", [reads(CAUSAL), only(STEPS)];
        init: Option<PathBuf>, "Hugging Face directory or checkpoint to start from", [unset("random weights"), flag("init", "DIR"), only(ENCODE), passing()];
    }

    /// The optimization.
    train "Training" => Train {
        batch: Option<usize>, "Sequences or images per optimizer step", [at_most(1 << 20), unset(PRESET), flag("batch", "N"), only(BATCHES), elsewhere(&["batch_size"]), page("Batch")];
        micro_batch: MicroBatch, "Sequences or images per pass; divides batch", [flag("micro-batch", "N|auto"), only(DATA), page("Micro-batch"), page_empty("auto")];
        gradient_sums: GradientSums, "How gradients of several micro-batches are summed: fused, where they are made; or ordered, each made whole first, so that any number of ranks has the same bits", [flag("gradient-sums", "HOW"), only(STEPS)];
        steps: Option<u64>, "Optimizer steps", [unset("1850, or what epochs come to"), flag("steps", "N"), only(STEPS), elsewhere(&["max_steps", "max_iters"]), page("Steps"), numbers_only()];
        epochs: Option<f64>, "Passes over the data, or a part of one, in place of steps", [within(Positive), unset("3 over rows, labelled texts and images of one's own, without steps"), flag("epochs", "N"), only(STEPS), elsewhere(&["num_train_epochs", "num_epochs", "max_epochs"]), numbers_only()];
        patience: u64 = 0, "Evaluations in a row without a lower held-out loss that end the run; 0 is no end", [at_least(0), flag("patience", "N"), only(RUN), elsewhere(&["early_stopping_patience", "early_stopping_rounds"])];
        optimizer: UpdateRule, "Update rule", [flag("optimizer", "RULE"), only(STEPS), page("Optimizer")];
        lr: Option<f64>, "Peak learning rate", [unset("by the width; from init 2e-5, 1e-6 on preferences, 5e-5 for encoders; ten times as much for adapters"), flag("lr", "RATE"), only(STEPS), elsewhere(&["learning_rate"]), page("Learning rate"), numbers_only()];
        min_lr: Option<f64>, "Learning rate that the schedule ends at", [unset("a tenth of lr"), flag("min-lr", "RATE"), only(STEPS), page_more("Final rate"), page_empty("a tenth"), numbers_only()];
        warmup: Option<u64>, "Steps until the learning rate reaches lr", [at_least(0), unset("a twentieth of steps"), flag("warmup", "STEPS"), only(STEPS), elsewhere(&["warmup_steps"]), page_more("Warmup, steps"), page_empty("5 %"), numbers_only()];
        schedule: Schedule = Schedule::Cosine, "Learning rate after the warmup", [flag("schedule", "SHAPE"), only(STEPS), elsewhere(&["lr_scheduler", "lr_scheduler_type"]), page_more("Schedule"), numbers_only()];
        weight_decay: f64 = defaults::WEIGHT_DECAY, "Decay of matrices: decoupled, but for SGD, which adds it to the gradient", [flag("weight-decay", "X"), only(STEPS), page_more("Weight decay")];
        beta1: f64 = defaults::BETA1, "Decay of the first moment; momentum of SGD", [within(Fraction), only(STEPS), page_more("Beta 1")];
        beta2: f64 = defaults::BETA2, "Decay of the second moment", [within(Fraction), only(STEPS), page_more("Beta 2")];
        eps: f64 = defaults::EPS, "Term in the denominator of Adam", [within(Positive), only(STEPS), page_more("Epsilon")];
        clip: f64 = defaults::CLIP, "Largest gradient norm; 0 is no clipping", [flag("clip", "NORM"), only(STEPS), elsewhere(&["grad_clip", "max_grad_norm"]), page_more("Clip norm at")];
        dpo_beta: f64 = defaults::DPO_BETA, "How far direct preference optimization holds the model to its reference, where rows are preferences: a smaller one lets it move farther", [reads(CAUSAL), within(Positive), flag("dpo-beta", "X"), only(DATA), numbers_only()];
        teacher: Option<PathBuf>, "Hugging Face directory or checkpoint of a language model with the same tokenizer that the model learns of, by distillation", [reads(CAUSAL), unset("no teacher"), flag("teacher", "DIR"), only(STEPS), passing(), elsewhere(&["teacher_model", "teacher_model_name_or_path"])];
        teacher_temperature: f64 = defaults::TEMPERATURE, "What the logits of model and teacher are divided by", [reads(CAUSAL), within(Positive), flag("teacher-temperature", "T"), only(STEPS), numbers_only()];
        soft_share: f64 = defaults::SOFT_SHARE, "Share of the teacher's soft targets in the loss: 1 is without the data's own", [reads(CAUSAL), within(Share), flag("soft-share", "A"), only(STEPS)];
        neftune: f64 = 0.0, "Noise on embeddings while training, uniform within neftune/√(tokens · channels) of 0 (NEFTune); 0 is none", [reads(TEXT), flag("neftune", "ALPHA"), only(STEPS), elsewhere(&["neftune_noise_alpha"])];
        freeze: Vec<String>, "Parameters that training leaves as they are, by name, where * stands for any characters: h.0.*, *.bias", [only(STEPS), elsewhere(&["frozen", "freeze_layers"])];
        seed: u64 = defaults::SEED, "Seed of weights, dropout, data order and samples", [at_least(0), at_most(i64::MAX), flag("seed", "N"), only(Command::DRAWS), page_more("Seed"), numbers_only()];
    }

    /// Adapters that are trained in place of the network.
    lora "LoRA" => Lora {
        rank: usize = 0, "Rank of adapters that are trained on frozen weights; 0 trains all weights", [at_least(0), flag("lora-rank", "N"), only(STEPS), elsewhere(&["lora_r"]), page("LoRA rank")];
        alpha: Option<f64>, "Adapters are scaled by alpha/rank, or by alpha/√rank with rslora", [within(Positive), unset("twice the rank"), flag("lora-alpha", "X"), only(STEPS), elsewhere(&["lora_alpha"]), numbers_only()];
        targets: Vec<String> = vec![ALL_LINEAR.to_owned()], "Layers that get adapters, by Hugging Face's names: c_attn, q_proj, …, all-linear, or regex: and an expression for all of a name", [only(STEPS), elsewhere(&["target_modules"])];
        dropout: f64 = 0.0, "Probability of dropping an element of an adapter's input", [within(Fraction), only(STEPS), elsewhere(&["lora_dropout"])];
        rslora: bool, "Scale adapters by alpha/√rank (rsLoRA)", [only(STEPS), elsewhere(&["use_rslora"])];
        dora: bool, "Learn the lengths of the rows of adapted weights too (DoRA)", [only(STEPS), elsewhere(&["use_dora"])];
        rank_pattern: Vec<String>, "Other ranks by the ends of layers' names, as regular expressions: v_proj=2", [only(STEPS)];
        alpha_pattern: Vec<String>, "Other alphas by the ends of layers' names, as regular expressions: v_proj=16", [only(STEPS)];
        layers: Vec<String>, "Numbers of the layers that get adapters; none names all", [only(STEPS), elsewhere(&["layers_to_transform"])];
        layers_pattern: Vec<String>, "Names of the lists of layers that those numbers are of", [only(STEPS)];
        exclude: Vec<String>, "Layers without adapters, as targets names them", [only(STEPS), elsewhere(&["exclude_modules"])];
        modules_to_save: Vec<String>, "Modules that are trained whole and saved with the adapters, such as lm_head", [only(STEPS)];
        bias: Biases, "Biases that are trained beside adapters: none, all, or lora_only, those of layers with one", [only(STEPS)];
        base_bits: Option<u32>, "Bits per weight of frozen linear layers: 8, or 4 as NF4 (QLoRA)", [one_of(&[8, 4]), unset("those of the precision"), only(STEPS), elsewhere(&["load_in_8bit", "load_in_4bit"])];
        init: Option<PathBuf>, "PEFT directory of adapters to start from, with their rank, alpha and targets", [unset("new adapters"), flag("lora-init", "DIR"), only(READ), passing()];
    }

    /// What the planner may spend and do.
    memory "Memory" => Memory {
        budget: Option<Bytes>, "Memory that the plan may use, such as 2GiB", [unset("what the device has free"), flag("memory", "BYTES"), page_control()];
        weight_bits: Option<u32>, "Bits per weight of linear layers, which are quantized as they are loaded: 8, or 4 as NF4", [one_of(&[8, 4]), unset("those of the precision, or of lora.base_bits"), flag("weight-bits", "BITS"), only(INFERENCE), passing()];
        plan: Option<PathBuf>, "Plan to use as it is, such as a run's plan.json", [unset("the fastest that fits"), flag("plan", "FILE"), only(STEPS), passing()];
        recompute: Recompute, "Activations to recompute in the backward pass: auto, none, block, every:N, sqrt, or all but a list of tensors", [flag("recompute", "WHAT"), old_flags(&["checkpoint"]), old_keys(&["memory.checkpoint"]), only(STEPS), elsewhere(&["gradient_checkpointing", "activation_checkpointing"]), page("Recompute")];
        loss_chunk: Chunk, "Rows of logits at once: a number, auto or none", [flag("loss-chunk", "ROWS"), only(Command::LOSSES), page_more("Loss chunk, rows"), page_empty("auto")];
        attention: AttentionKind, "How attention is computed: fused, which stores no scores; or eager, which stores all of them, to see what that takes", [flag("attention", "KIND"), only(STEPS), elsewhere(&["attn_implementation"]), page_more("Attention")];
        gradients: Gradients, "Storage of gradients of matrices: f32, bf16, or bf16-kahan, which keeps the rounding error of their sums over several passes beside them", [flag("gradients", "TYPE"), only(STEPS), page_more("Gradients")];
        master: Master, "Master of bf16 weights: f32, in 16 bits more; or none, and updates round weights stochastically", [flag("master", "TYPE"), only(STEPS), page_more("Master weights")];
        optimizer_bits: StateBits, "Bits per number of optimizer state: 32, 16 or 8", [only(STEPS), page_more("Optimizer state")];
        table_bits: TableBits, "The same for tables of embeddings where optimizer_bits is 8: 32, or 8 with a scale for each row", [only(STEPS), page_more("State of tables")];
        offload: Offload, "What the host keeps for a GPU: optimizer (its state and the update), gradients, activations, weights", [flag("offload", "LIST"), only(STEPS), page_more("Offload")];
        shard: Sharding, "What each of several ranks holds a shard of: 0 nothing; 1 optimizer state and masters; 2 gradients too; 3 weights too; or auto, the fastest that fits", [flag("shard", "STAGE|auto"), only(STEPS), passing(), elsewhere(&["zero_stage", "fsdp"]), of_ranks()];
        consume_gradients: bool, "Update each weight as soon as its gradient is made: in one pass a step, without clipping, and without skipping steps that aren't finite", [only(STEPS), page_more("Consume gradients")];
        allow: Vec<Allow>, "What the planner may change to fit: optimizer_bits, table_bits, gradients, master, precision (which change numbers), offload", [only(STEPS)];
    }

    /// The text or the images.
    data "Data" => Data {
        files: Vec<PathBuf>, "Files of text, JSON, Parquet or token ids, .gz and .zst too, folders or globs of them; - is standard input; or images: a folder, two IDX files or the word digits; none is the built-in data", [flag("data", "FILE"), only(DATA), passing()];
        tokenizer: Option<String>, "Tokenizer: byte, gpt2, or a tokenizer.json", [reads(TEXT), unset("the one that fits the model"), flag("tokenizer", "NAME|FILE"), only(ENCODE), passing(), page("Tokenizer"), page_words(&["byte", "gpt2"])];
        text_key: Option<String>, "Field or column that holds the text in .jsonl, .json, .csv and .parquet files", [reads(TEXT), unset("text"), flag("text-key", "NAME"), only(Command::DOCUMENTS), elsewhere(&["text_column", "dataset_text_field"])];
        format: Option<RowFormat>, "What a row of .jsonl, .json, .csv and .parquet files holds", [reads(TEXT), unset("auto: told from the columns"), flag("format", "FORMAT"), only(Command::FORMATS), elsewhere(&["dataset_format"])];
        chat_template: Option<String>, "Chat template that writes conversations: chatml, llama-2, llama-3, gemma, phi-3, mistral, alpaca, zephyr, one of the model's by name, or a file", [reads(CAUSAL), unset("the model's own"), flag("chat-template", "NAME|FILE"), only(Command::TEMPLATES)];
        train_on: Option<TrainOn>, "Tokens of a conversation that are trained on: assistant (its turns), last (its last turn) or all", [reads(CAUSAL), unset("assistant"), flag("train-on", "WHICH"), only(Command::ROWS), elsewhere(&["assistant_only_loss", "completion_only_loss", "train_on_inputs"])];
        packing: bool, "Put several conversations into a sequence, each of which attends to itself alone", [reads(CAUSAL), flag("packing", "BOOL"), only(DATA)];
        buckets: Option<BucketCount>, "Put rows of like length into a batch, and pad it to one of so many lengths: a number, or auto, which chooses them by the rows", [reads(CAUSAL), unset("auto, and one length with packing"), flag("buckets", "N|auto"), only(CHATS), elsewhere(&["group_by_length"])];
        date: Option<String>, "Date that a chat template takes for today, such as 2026-11-25", [reads(CAUSAL), unset("the day that the run begins"), only(Command::TEMPLATES)];
        validation: Vec<PathBuf>, "Files that the run is evaluated on, of the same kinds as --data, instead of a part of that", [reads(TEXT), flag("validation", "FILE"), only(RUN), passing(), elsewhere(&["validation_file", "eval_dataset"])];
        holdout: f64 = defaults::HOLDOUT, "Part of the data kept for evaluation; `eval` scores all of it at 0 and at 1", [within(Share), only(DATA), page_more("Held-out share"), numbers_only()];
    }

    /// Where and how it runs. Intervals count optimizer steps.
    run "Run" => Run {
        out: Option<PathBuf>, "Run directory", [unset("a new one under runs/"), flag("out", "DIR"), only(RUN), passing(), elsewhere(&["output_dir", "out_dir"])];
        device: Device, "auto, cpu, wgpu, cuda, or wgpu:N and cuda:N", [flag("device", "DEVICE")];
        precision: Precision, "Storage of weights and activations; tf32 is f32 with less exact matmuls", [flag("precision", "TYPE"), only(READ), elsewhere(&["dtype"]), page("Precision"), page_words(&["f32", "bf16", "f16"])];
        matmul: Matmul, "Who multiplies matrices on an NVIDIA GPU", [old_keys(&["run.products"])];
        threads: Option<usize>, "CPU threads", [unset("one on every core; ranks share a machine's"), at_most(1024), flag("threads", "N"), passing()];
        ranks: usize = 1, "Processes that train together, each on its part of every batch; mpirun and others that launch them say how many", [at_most(65536), flag("ranks", "N"), only(STEPS), passing(), elsewhere(&["world_size", "nproc_per_node"]), of_ranks()];
        context_ranks: usize = 1, "Neighbouring ranks that share each sequence, where it's too long for one; divides ranks and the context", [at_most(1024), flag("context-ranks", "N"), only(STEPS), passing(), elsewhere(&["context_parallel_size", "context_parallel_degree", "sequence_parallel_size"]), of_ranks()];
        interconnect: Interconnect, "What connects the GPUs of ranks, for estimates: nvlink, pcie4, 100gbe, …, or 8xnvlink4+400gbe for nodes of 8 GPUs; auto is what the GPU has by its data sheet", [flag("interconnect", "LINKS"), only(STEPS), passing(), of_ranks()];
        rank_timeout: u64 = 60, "Seconds that a rank waits for one that says nothing before it names it and ends; 0 waits for ever", [at_least(0), at_most(86_400), flag("rank-timeout", "S"), only(RUN), passing(), elsewhere(&["ddp_timeout"]), of_ranks()];
        insecure_ranks: bool, "Let ranks that meet by TCP without TIGHTROPE_SECRET do so elsewhere than on this machine: whoever reaches them can join", [flag("insecure-ranks", "BOOL"), only(RUN), passing(), of_ranks()];
        log_every: u64 = 10, "Steps between logged losses", [flag("log-every", "STEPS"), only(RUN), passing(), elsewhere(&["logging_steps", "log_interval"])];
        eval_every: u64 = 250, "Steps between evaluations; 0 is only at the end", [at_least(0), flag("eval-every", "STEPS"), only(RUN), passing(), elsewhere(&["eval_steps", "eval_interval"])];
        sample_every: u64 = 0, "Steps between samples; 0 is only at the end", [at_least(0), flag("sample-every", "STEPS"), only(RUN), passing()];
        save_every: u64 = 500, "Steps between checkpoints; 0 is only at the end", [at_least(0), flag("save-every", "STEPS"), old_flags(&["checkpoint-every"]), old_keys(&["run.checkpoint_every"]), only(RUN), passing(), elsewhere(&["save_steps"])];
        keep: usize = KEPT, "Newest checkpoints that stay", [flag("keep", "N"), only(RUN), passing(), elsewhere(&["save_total_limit"])];
        keep_best: bool, "Save the step with the lowest held-out loss when it's evaluated, and keep that checkpoint beside the newest ones", [flag("keep-best", "BOOL"), only(RUN), passing(), elsewhere(&["load_best_model_at_end", "save_best_only"])];
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

//! Every command reads a setting, or refuses it by name.

use tightrope::recipe::Step;
use tightrope::settings::{Command, Kind, LIST, Origin, Setting, Settings};

/// A value that settings of this kind accept, as `--set` takes it.
fn example(kind: Kind) -> String {
    match kind {
        Kind::Text | Kind::Path => "a".to_owned(),
        Kind::Switch => "true".to_owned(),
        Kind::Word(words) => words()[0].to_owned(),
        Kind::OneOf(values) => values[0].to_string(),
        Kind::Whole(least, _) => least.max(1).to_string(),
        Kind::Number(_) => "0.5".to_owned(),
        Kind::Form(form) => {
            let texts = form.words.iter().copied().chain(["2GiB", "8x12"]);
            texts.filter(|text| (form.accepts)(&(*text).into())).map(str::to_owned).next().unwrap()
        }
        Kind::List(item) => format!("[\"{}\"]", example(*item)),
    }
}

fn said(setting: &Setting) -> Settings {
    let mut settings = Settings::default();
    settings.read_argument(&format!("{}={}", setting.key, example(setting.kind))).unwrap();
    settings
}

/// `export --set memory.weight_bits=4` wrote whole numbers and said nothing.
#[test]
fn a_command_refuses_each_setting_that_it_does_not_read() {
    let mut refusals = 0;
    for &command in Command::ALL {
        for setting in LIST {
            let settings = said(setting);
            match settings.read_by(command) {
                Ok(notes) => {
                    assert!(command.reads(setting), "{command:?} takes {}", setting.key);
                    let noted =
                        [Command::Plan, Command::Bench].contains(&command) && setting.numbers_only;
                    assert_eq!(
                        notes.len(),
                        usize::from(noted),
                        "{command:?} {}: {notes:?}",
                        setting.key
                    );
                }
                Err(error) => {
                    assert!(!command.reads(setting), "{command:?} {}: {error}", setting.key);
                    let message = format!("`{}` doesn't read `{}`", command.words(), setting.key);
                    assert_eq!(error.message, message);
                    assert!(error.help.starts_with("leave it out; "), "{}", error.help);
                    refusals += 1;
                }
            }
            let mut of_caller = Settings::default();
            let value = settings.value(setting.key).unwrap().unwrap();
            let value = serde_json::to_value(&value).unwrap();
            of_caller.set(setting.key, &value, Origin::Caller).unwrap();
            assert_eq!(
                of_caller.read_by(command).is_ok(),
                command.reads(setting),
                "{}",
                setting.key
            );
        }
    }
    assert!(refusals > 300, "{refusals}");
    let weight_bits = LIST.iter().find(|setting| setting.key == "memory.weight_bits").unwrap();
    let help = said(weight_bits).read_by(Command::Export).unwrap_err().help;
    let expected = "leave it out; `export` reads `model.init`, `lora.init`, `data.tokenizer` and `run.precision`; \
                    `memory.weight_bits` is read by `generate --prompt`";
    assert!(help.starts_with(expected), "{help}");
}

/// Commands may share a file.
#[test]
fn what_a_file_says_beyond_a_command_is_noted_in_a_line() {
    let mut settings = Settings::default();
    settings
        .read_text("run.toml", "[train]\nlr = 1.0\nsteps = 3\n[run]\nprecision = \"bf16\"\n")
        .unwrap();
    let notes = |command| settings.read_by(command).unwrap();
    assert_eq!(
        notes(Command::Export),
        ["`export` doesn't read `train.steps` and 1 other setting of run.toml"]
    );
    assert!(notes(Command::Train).is_empty());
    settings.read_argument("train.lr=2").unwrap();
    assert!(settings.read_by(Command::Export).is_err());
}

/// Settings that change nothing of a tiny language model by their example: the settings before the change, and the other value.
const WHERE: &[(&str, &[&str], &str)] = &[
    ("model.preset", &[], "small"),
    ("model.family", &["model.preset="], "llama"),
    ("model.kv_heads", &["model.preset=", "model.family=llama"], "1"),
    ("model.image_size", &["model.preset=vit-tiny"], "16"),
    ("model.patch_size", &["model.preset=vit-tiny"], "4"),
    ("model.image_channels", &["model.preset=vit-tiny"], "3"),
    ("model.classes", &["model.preset=vit-tiny"], "7"),
    ("model.channels", &[], "128"),
    ("model.hidden", &[], "100"),
    ("model.heads", &[], "1"),
    ("model.context", &[], "32"),
    ("model.vocab", &[], "300"),
    ("model.tied", &[], "false"),
    ("train.batch", &[], "3"),
    ("train.micro_batch", &[], "2"),
    ("train.gradient_sums", &[], "ordered"),
    ("train.optimizer", &[], "sgd"),
    ("train.clip", &[], "0"),
    ("train.freeze", &[], "[\"h.0.*\"]"),
    ("lora.targets", &["lora.rank=2"], "[\"c_attn\"]"),
    ("lora.dropout", &["lora.rank=2"], "0.5"),
    ("lora.base_bits", &["lora.rank=2"], "8"),
    ("lora.rslora", &["lora.rank=2"], "true"),
    ("lora.dora", &["lora.rank=2"], "true"),
    ("lora.rank_pattern", &["lora.rank=2", "lora.targets=[\"c_attn\",\"c_fc\"]"], "[\"c_attn=4\"]"),
    (
        "lora.alpha_pattern",
        &["lora.rank=2", "lora.targets=[\"c_attn\",\"c_fc\"]"],
        "[\"c_attn=4\"]",
    ),
    ("lora.layers", &["lora.rank=2", "lora.targets=[\"c_attn\",\"c_fc\"]"], "[\"1\"]"),
    (
        "lora.layers_pattern",
        &["lora.rank=2", "lora.targets=[\"c_attn\",\"c_fc\"]", "lora.layers=[\"1\"]"],
        "[\"h\"]",
    ),
    ("lora.exclude", &["lora.rank=2", "lora.targets=[\"c_attn\",\"c_fc\"]"], "[\"c_attn\"]"),
    ("lora.modules_to_save", &["lora.rank=2", "lora.targets=[\"c_attn\",\"c_fc\"]"], "[\"wpe\"]"),
    ("lora.bias", &["lora.rank=2"], "all"),
    ("memory.recompute", &[], "block"),
    ("memory.loss_chunk", &[], "64"),
    ("memory.attention", &[], "eager"),
    ("memory.gradients", &[], "bf16"),
    ("memory.master", &["run.precision=bf16"], "none"),
    ("memory.optimizer_bits", &[], "8"),
    ("memory.table_bits", &["memory.optimizer_bits=8"], "8"),
    ("memory.shard", &["run.ranks=2"], "2"),
    ("data.files", &["model.preset=vit-tiny", "model.patch_size=4"], "digits"),
    ("data.tokenizer", &[], "gpt2"),
    ("data.format", &[], "preference"),
    ("run.device", &[], "cuda:1"),
    ("run.precision", &[], "bf16"),
    ("run.matmul", &[], "own"),
    ("run.threads", &[], "3"),
    ("run.ranks", &[], "2"),
    ("run.context_ranks", &["run.ranks=2"], "2"),
    ("run.interconnect", &[], "pcie4"),
];

/// Settings of directories, and those that are read with the data.
const ELSEWHERE: [&str; 11] = [
    "model.init",
    "model.add_tokens",
    "model.mean_resizing",
    "train.teacher",
    "train.soft_share",
    "lora.init",
    "data.text_key",
    "data.chat_template",
    "data.train_on",
    "data.buckets",
    "data.date",
];

#[test]
fn a_planned_step_depends_on_each_setting_that_plan_reads() {
    let step = |words: &[String]| {
        let mut settings = Settings::default();
        for words in words.iter().filter(|words| !words.ends_with("preset=")) {
            settings.read_argument(words).unwrap();
        }
        let step = Step::of(&settings).unwrap_or_else(|error| panic!("{words:?}: {error}"));
        format!("{:?}", (&step.config, &step.scope, &step.device))
    };
    for setting in LIST.iter().filter(|setting| Command::Plan.reads(setting)) {
        let key = setting.key;
        if setting.numbers_only || ELSEWHERE.contains(&key) {
            continue;
        }
        let found = WHERE.iter().find(|(of, ..)| *of == key);
        let (given, value) = found.map_or((&[][..], example(setting.kind)), |(_, given, value)| {
            (*given, (*value).to_owned())
        });
        let mut words = vec!["train.batch=4".to_owned()];
        if !given.iter().any(|words| words.starts_with("model.preset=")) {
            words.push("model.preset=tiny".to_owned());
        }
        words.extend(given.iter().map(|words| (*words).to_owned()));
        let before = step(&words);
        words.push(format!("{key}={value}"));
        assert_ne!(step(&words), before, "{key}={value} changes nothing of {words:?}");
    }
}

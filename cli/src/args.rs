//! The command line.
//!
//! The flags that are settings are made from the [list](LIST) of them. They are read like `--set` and a settings
//! file.

mod data;
mod eval;
mod export;
mod generate;

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{
    Arg, ArgAction, ArgMatches, Args, Command as ClapCommand, FromArgMatches, Parser, Subcommand,
    ValueHint,
};
use clap_complete::Shell;

use crate::settings::{
    Command as Reader, Device, Flag, Kind, LIST, RETIRED, Retired, Setting, Settings,
    SettingsError, TABLES,
};

pub use data::{Data, DataShow, Tokenize, Tokenizer, TokenizerTrain};
pub use eval::Eval;
pub use export::Export;
pub use generate::Generate;

const AFTER_HELP: &str = "\
Exit codes: 0 done, 1 failed, 2 wrong usage, 3 does not fit the memory, 130 stopped by Ctrl+C or
a signal that asks to end, after writing a checkpoint; a second signal quits without it.

Examples:
  tightrope train                           train a small GPT on the built-in text
  tightrope plan --preset gpt2 --memory 8GiB
  tightrope generate runs/shakespeare --prompt 'To be'";

/// The release, the commit that it was built from, and the backends that were built in.
const VERSION: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (", env!("TIGHTROPE_COMMIT"), "; cpu, wgpu, cuda)");

/// Trains neural networks in the memory you have.
#[derive(Debug, Parser)]
#[command(name = "tightrope", version = VERSION, about, after_help = AFTER_HELP, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// A command and its arguments.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train a model, then print a sample of it
    Train(Train),
    /// Run a command as several processes on this machine that train together
    #[cfg(unix)]
    Launch(Launch),
    /// Show what training would take: memory, the choices made, time. Runs nothing
    Plan(Plan),
    /// Generate text from a run or a model directory
    Generate(Generate),
    /// Loss on held-out data, with perplexity of text and accuracy on images; or exact scores of texts and of multiple choice
    Eval(Eval),
    /// Write a model as a directory that transformers loads, with adapters merged into it
    Export(Export),
    /// Check this device against recorded reference cases
    Verify(Verify),
    /// Devices, limits, libraries and memory, and the largest preset that fits each
    Doctor(Doctor),
    /// Time each op and the whole step, against the device's measured peak
    Bench(Bench),
    /// Look at data, or encode it
    #[command(subcommand)]
    Data(Data),
    /// Make a tokenizer
    #[command(subcommand)]
    Tokenizer(Tokenizer),
    /// Print a script that completes this command line in a shell
    Completions(Completions),
    /// Write the manual pages, one for each command
    Man(Man),
    /// Print the JSON schema of settings files, by which editors complete and check them
    #[command(after_long_help = "Example:
  tightrope schema > tightrope.schema.json")]
    Schema,
}

impl Command {
    /// Whether results and errors go to stdout as JSON.
    pub fn json(&self) -> bool {
        match self {
            Self::Train(Train { json, .. })
            | Self::Plan(Plan { json, .. })
            | Self::Generate(Generate { json, .. })
            | Self::Eval(Eval { json, .. })
            | Self::Verify(Verify { json, .. })
            | Self::Doctor(Doctor { json, .. })
            | Self::Bench(Bench { json, .. })
            | Self::Data(
                Data::Show(DataShow { json, .. }) | Data::Tokenize(Tokenize { json, .. }),
            )
            | Self::Tokenizer(Tokenizer::Train(TokenizerTrain { json, .. })) => *json,
            #[cfg(unix)]
            Self::Launch(_) => false,
            Self::Completions(_) | Self::Export(_) | Self::Man(_) | Self::Schema => false,
        }
    }
}

/// `tightrope train`
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  tightrope train --data book.txt --preset gpt2 --memory 8GiB --steps 2000
  tightrope train --init models/gpt2 --data chats.jsonl --epochs 5 --eval-every 50 --keep-best --patience 3
  tightrope train --preset vit-tiny --data digits
  tightrope train --config runs/a/run.toml --lr 1e-3 --set train.beta2=0.99
  tightrope train --resume runs/a
  tightrope train --resume from-the-browser.tar --out runs/b
  tightrope train --plan runs/a/plan.json --config runs/a/run.toml --out runs/c

For the browser, pack a checkpoint into one file:
  tar -cf run.tar -C runs/a/checkpoints/step-1000 .")]
pub struct Train {
    /// Settings.
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Continue a run from its newest complete checkpoint; without DIR, the run of --out. A checkpoint
    /// alone, also as an archive (.tar), goes on as a new run
    #[arg(long, value_name = "DIR", num_args = 0..=1, value_hint = ValueHint::AnyPath)]
    pub resume: Option<Option<PathBuf>>,
    /// Continue the run of --out where there is one, and begin it where there is none: for what starts a command
    /// again, as Slurm does with --requeue
    #[arg(long, conflicts_with = "resume")]
    pub auto_resume: bool,
    /// Time every op of the step before the run, and write the times beside the predicted ones into the run
    /// directory (profile.json)
    #[arg(long)]
    pub profile: bool,
    /// Also write the step as a trace for ui.perfetto.dev, predicted and measured; measures as --profile does
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub perfetto: Option<PathBuf>,
    /// Print results and errors only
    #[arg(long, short)]
    pub quiet: bool,
    /// Print the results as one JSON object on stdout
    #[arg(long)]
    pub json: bool,
}

/// `tightrope launch`
#[cfg(unix)]
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  tightrope launch -n 4 train --data book.txt --preset gpt2

It starts them by the mpirun of Open MPI or MPICH 5 that is on PATH (pip install mpich brings one). Under
mpirun or srun, tightrope train is one of the processes by itself:
  mpirun -n 4 tightrope train --data book.txt --preset gpt2")]
pub struct Launch {
    /// How many processes
    #[arg(short = 'n', long = "ranks", value_name = "N")]
    pub ranks: std::num::NonZeroUsize,
    /// How often to start them again where a process is lost: `train` goes on from the last checkpoint of --out
    #[arg(long, value_name = "TIMES", default_value_t = 0)]
    pub restarts: usize,
    /// A command of tightrope and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub command: Vec<std::ffi::OsString>,
}

/// `tightrope plan`
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  tightrope plan --preset gpt2 --batch 64
  tightrope plan --preset gpt2 --batch 64 --memory 4GiB --set memory.allow=optimizer_bits --json
  tightrope plan --preset gpt2-xl --batch 32 --precision bf16 --gpu h100
  tightrope plan --preset gpt2 --batch 8 --memory 4GiB --techniques
  tightrope plan --preset llama-3.1-8b --context 8192 --batch 2 --precision bf16 --gpu h100 --scale
  tightrope plan --preset gpt2 --batch 4 --memory 3GiB --html plan.html
  tightrope plan --config runs/a/run.toml --plan runs/a/plan.json --measured runs/a --html a.html")]
pub struct Plan {
    /// Settings.
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Plan for a GPU that isn't here, such as h100 or rtx-4090, by its published memory and rates
    #[arg(long, value_name = "GPU", conflicts_with = "run.device")]
    pub gpu: Option<String>,
    /// Plan for budgets from the smallest that any plan fits to the fastest plan's, and print what bytes buy
    #[arg(long, conflicts_with = "memory.plan")]
    pub sweep: bool,
    /// Print what each memory technique saves and costs, alone and together, against a plan that has none of them
    #[arg(long, conflicts_with_all = ["sweep", "advice", "html", "perfetto", "measured"])]
    pub techniques: bool,
    /// Simulate the step on 8, 16, … 4,096 GPUs, each with as many samples, and print what each holds and sends and how fast they are
    #[arg(long, conflicts_with_all = ["memory.plan", "sweep", "techniques", "advice", "html", "perfetto", "measured"])]
    pub scale: bool,
    /// Say what more and fewer bytes would buy of models of any depth; without it, of those of up to about 200 layers
    #[arg(long, conflicts_with = "sweep")]
    pub advice: bool,
    /// Also write the plan as an interactive page, which needs no network
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "sweep")]
    pub html: Option<PathBuf>,
    /// Also write the predicted step as a trace for ui.perfetto.dev
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "sweep")]
    pub perfetto: Option<PathBuf>,
    /// Show beside it what a run of this plan measured with `train --profile`
    #[arg(long, value_name = "RUN", value_hint = ValueHint::AnyPath, conflicts_with = "sweep")]
    pub measured: Option<PathBuf>,
    /// Print the plan as one JSON object on stdout
    #[arg(long)]
    pub json: bool,
}

/// `tightrope verify`
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  tightrope verify parity/gpt2-case parity/llama-case --device cuda")]
pub struct Verify {
    /// Directories with config.json, model.safetensors and case.safetensors, and with adapters/ where those were trained
    #[arg(required = true, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub cases: Vec<PathBuf>,
    /// auto, cpu, wgpu, cuda, or wgpu:N and cuda:N
    #[arg(long, default_value = "auto")]
    pub device: Device,
    /// Print the results as one JSON object on stdout
    #[arg(long)]
    pub json: bool,
}

/// `tightrope doctor`
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  tightrope doctor --json
  tightrope doctor --check")]
pub struct Doctor {
    /// Run every kernel of every GPU on small cases first, and leave out those that are wrong
    #[arg(long)]
    pub check: bool,
    /// Print the results as one JSON object on stdout
    #[arg(long)]
    pub json: bool,
}

/// `tightrope bench`
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  tightrope bench --preset gpt2 --device cuda --precision bf16")]
pub struct Bench {
    /// Settings.
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Measure for a moment, to see that it works: a few steps, and no rates for estimates
    #[arg(long)]
    pub quick: bool,
    /// Print the results as one JSON object on stdout
    #[arg(long)]
    pub json: bool,
}

/// `tightrope completions`
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  tightrope completions bash > ~/.local/share/bash-completion/completions/tightrope")]
pub struct Completions {
    /// Shell
    pub shell: Shell,
}

/// `tightrope man`
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  tightrope man ~/.local/share/man/man1")]
pub struct Man {
    /// Folder for the pages
    #[arg(value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
}

/// The settings that a command line gives: `--config`, a flag for each frequent one, and `--set`.
#[derive(Debug, Default)]
pub struct SettingArgs {
    config: Option<PathBuf>,
    flags: Vec<(&'static Setting, Vec<String>)>,
    retired: Vec<&'static Retired>,
    set: Vec<String>,
}

impl SettingArgs {
    /// Settings for `command`: defaults, the file of `--config`, the flags, `--set`; each over the one before. With notes of what
    /// changes nothing.
    ///
    /// # Errors
    /// When a file can't be read, or a setting is unknown, unfit, or not read by the command.
    pub fn said(&self, command: Reader) -> Result<(Settings, Vec<String>), SettingsError> {
        let settings = self.read()?;
        let notes = settings.read_by(command)?;
        Ok((settings, notes))
    }

    fn read(&self) -> Result<Settings, SettingsError> {
        let mut settings = Settings::default();
        if let Some(file) = &self.config {
            settings.read_file(file)?;
        }
        for (setting, values) in &self.flags {
            settings.read_flag(setting, values)?;
        }
        self.retired.iter().for_each(|retired| settings.read_retired_flag(retired));
        for argument in &self.set {
            settings.read_argument(argument)?;
        }
        Ok(settings)
    }
}

const CONFIG: &str = "config";
const SET: &str = "set";

impl Args for SettingArgs {
    fn augment_args(command: ClapCommand) -> ClapCommand {
        let name = command.get_name().to_owned();
        let config = Arg::new(CONFIG)
            .long(CONFIG)
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf))
            .value_hint(ValueHint::FilePath)
            .help("Settings file (TOML), such as a run's run.toml");
        let set = Arg::new(SET)
            .long(SET)
            .value_name("KEY=VALUE")
            .action(ArgAction::Append)
            .help("Any setting, over the flags: --set train.beta2=0.99 (repeatable)")
            .long_help(set_help(LIST, &name));
        command
            .arg(config.help_heading("Settings"))
            .arg(set.help_heading("Settings"))
            .args(flags(LIST, &name))
            .args(RETIRED.iter().filter_map(retired_flag))
    }

    fn augment_args_for_update(command: ClapCommand) -> ClapCommand {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SettingArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut settings = Self::default();
        settings.update_from_arg_matches(matches)?;
        Ok(settings)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.config = matches.get_one(CONFIG).cloned();
        self.set = matches.get_many(SET).into_iter().flatten().cloned().collect();
        let given = LIST.iter().filter(|setting| setting.flag.is_some()).filter_map(|setting| {
            // Those that don't concern the command aren't defined.
            let given = matches.try_get_many::<String>(setting.key).ok()??;
            Some((setting, given.cloned().collect()))
        });
        self.flags = given.collect();
        let given = RETIRED
            .iter()
            .filter(|retired| retired.flag.is_some() && matches.contains_id(retired.key));
        self.retired = given.collect();
        Ok(())
    }
}

/// The flags of the settings in `list` that change something for the command `name`.
fn flags(list: &[Setting], name: &str) -> impl Iterator<Item = Arg> {
    let own = list.iter().filter(move |setting| concerns(setting, name));
    own.filter_map(|setting| Some(flag(setting, setting.flag?)))
}

/// The hidden flag of a retired setting, which takes any value.
fn retired_flag(retired: &Retired) -> Option<Arg> {
    let arg = Arg::new(retired.key).long(retired.flag?).hide(true).overrides_with(retired.key);
    Some(arg.allow_hyphen_values(true))
}

fn concerns(setting: &Setting, name: &str) -> bool {
    setting.commands.iter().any(|command| command.name() == name)
}

/// The flag of `setting`. The value stays text, for the settings to read and to complain about.
fn flag(setting: &Setting, flag: Flag) -> Arg {
    let table = TABLES.iter().find(|(table, _)| *table == setting.table());
    let arg = Arg::new(setting.key)
        .long(flag.name)
        .aliases(flag.old_names)
        .value_name(flag.placeholder)
        .help(setting.describe())
        .help_heading(table.map_or("Settings", |(_, title)| title))
        .allow_negative_numbers(true);
    if setting.kind.is_paths() {
        return arg.num_args(1..).action(ArgAction::Append).value_hint(ValueHint::FilePath);
    }
    // A script can append its caller's flags to its own: the last one counts.
    let arg = arg.overrides_with(setting.key);
    match setting.kind {
        Kind::Word(words) => arg.value_parser(PossibleValuesParser::new(words())),
        Kind::Path => arg.value_hint(ValueHint::AnyPath),
        Kind::Switch => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
        _ => arg,
    }
}

/// The help of `--set`, with the settings of `list` that have no flag.
fn set_help(list: &[Setting], name: &str) -> String {
    let mut text =
        "Any setting, over the flags: --set train.beta2=0.99 (repeatable). The value is \
                    TOML; text needs no quotes. The settings without a flag:\n"
            .to_owned();
    for setting in list.iter().filter(|it| it.flag.is_none() && concerns(it, name)) {
        text += &format!("\n  {}: {}", setting.key, setting.describe());
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::settings::{Bytes, Recompute, UpdateRule};

    fn parse(words: &str) -> Command {
        let words = std::iter::once("tightrope").chain(words.split_whitespace());
        Cli::try_parse_from(words).unwrap().command
    }

    fn said(words: &str) -> Result<Settings, SettingsError> {
        let Command::Train(train) = parse(&format!("train {words}")) else { unreachable!() };
        Ok(train.settings.said(Reader::Train)?.0)
    }

    fn train(words: &str) -> Result<Settings, SettingsError> {
        let settings = said(words)?;
        settings.check().map(|()| settings)
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_line_of_help_for_each_flag() {
        for name in ["train", "plan", "generate", "eval", "bench", "export"] {
            let mut cli = Cli::command();
            let help = cli.find_subcommand_mut(name).unwrap().render_long_help().to_string();
            for setting in LIST {
                let after = if matches!(setting.kind, Kind::Switch) { "[" } else { " " };
                let flag = setting.flag.map(|flag| format!("--{}{after}", flag.name));
                let shown = flag.unwrap_or_else(|| format!("{}: ", setting.key));
                assert_eq!(help.contains(&shown), concerns(setting, name), "{name} {shown}");
            }
            assert!(help.contains("Example"), "{name} --help has no example");
        }
    }

    #[test]
    fn every_flag_reaches_its_setting() {
        // Steps and epochs contradict each other.
        let settings = said(
            "--preset gpt2 --layers 2 --channels 64 --heads 4 --kv-heads 4 --hidden 256 \
             --context 128 --vocab 512 --image-size 8 --patch-size 4x2 --family gpt2 --init m --batch 8 --micro-batch 4 \
             --steps 10 --lr 1e-3 --min-lr 1e-4 --warmup 2 --optimizer lion --schedule linear \
             --weight-decay 0.2 --clip 0.5 --seed 7 --memory 2GiB --plan p.json --recompute every:2 \
             --loss-chunk 64 --data a.txt b.txt --data c.txt --validation v.txt --text-key body --tokenizer bytes \
             --out runs/x --device cpu --precision bf16 --threads 2 --ranks 2 --context-ranks 2 --interconnect pcie4 --rank-timeout 9 --insecure-ranks --shard 3 --log-every 1 --eval-every 5 \
             --sample-every 6 --save-every 7 --detect-anomaly --lora-rank 4 --lora-alpha 16 --lora-init a --offload optimizer \
             --format alpaca --chat-template chatml --train-on last --gradients bf16 --attention eager --master none \
             --gradient-sums ordered --packing --dpo-beta 0.3 --teacher t --teacher-temperature 3 --buckets 3 --soft-share 0.7 --add-tokens --epochs 1.5 --patience 4 --keep 3 --keep-best --neftune 5",
        )
        .unwrap();
        for setting in LIST.iter().filter(|it| it.flag.is_some() && concerns(it, "train")) {
            let said = settings.on_command_line(setting.key);
            assert!(said, "the test lacks {}", setting.key);
            assert_ne!(settings.value(setting.key).unwrap(), setting.default(), "{}", setting.key);
        }
        assert_eq!(settings.train.optimizer, UpdateRule::Lion);
        assert_eq!(settings.memory.budget, Some(Bytes(2 << 30)));
        assert_eq!(settings.memory.recompute, Recompute::Every(2));
        assert_eq!(settings.data.files, ["a.txt", "b.txt", "c.txt"].map(PathBuf::from));
    }

    #[test]
    fn a_line_of_the_list_is_a_flag() {
        let line = Setting::new("train.sharpness", Kind::Switch, "How sharp", || Some(true.into()))
            .flag("sharpness", "BOOL");
        let list = [LIST, &[line]].concat();
        let mut command = ClapCommand::new("train").args(flags(&list, "train"));
        let help = command.render_long_help().to_string();
        let (_, help) = help.split_once("--sharpness[=<BOOL>]").unwrap();
        assert!(help.trim().starts_with("How sharp [default: true]"), "{help}");
    }

    #[test]
    fn old_flags_are_accepted_and_not_listed() {
        let settings = train("--checkpoint sqrt --checkpoint-every 7").unwrap();
        assert_eq!(settings.memory.recompute, Recompute::Sqrt);
        assert_eq!(settings.run.save_every, 7);
        let help = Cli::command().find_subcommand_mut("train").unwrap().render_long_help();
        assert!(!help.to_string().contains("--checkpoint"), "{help}");
        // It is the same flag by another name, so that the last one counts.
        let settings = train("--recompute none --checkpoint block").unwrap();
        assert_eq!(settings.memory.recompute, Recompute::Block);
    }

    #[test]
    fn retired_flags_are_noted_and_not_listed() {
        let settings = train("--attention-chunk 64 --attention-chunk auto --steps 3").unwrap();
        assert_eq!(settings.train.steps, Some(3));
        let [note] = &settings.notes()[..] else { panic!("{:?}", settings.notes()) };
        assert!(
            note.starts_with("memory.attention_chunk does nothing any more; remove it"),
            "{note}"
        );
        let help = Cli::command().find_subcommand_mut("train").unwrap().render_long_help();
        assert!(!help.to_string().contains("attention-chunk"), "{help}");
    }

    #[test]
    fn order_of_precedence() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let base = write("base.toml", "[train]\nsteps = 1\nlr = 1\nseed = 1\nclip = 3\n");
        let config = write("config.toml", "[train]\nlr = 2\nseed = 2\nclip = 2\n");
        let line = format!(
            "train --set train.clip=4 --seed 3 --seed 4 --clip 3 --config {}",
            config.display()
        );
        let Command::Train(args) = parse(&line) else { unreachable!() };
        let mut before = Settings::default();
        before.read_file(&base).unwrap();
        let train = before.over(&args.settings.said(Reader::Train).unwrap().0).train;
        assert_eq!((train.steps, train.lr, train.seed, train.clip), (Some(1), Some(2.0), 4, 4.0));
    }

    #[test]
    fn negative_values_reach_the_range_check() {
        let error = train("--lr -1").unwrap_err();
        assert_eq!(error.message, "`train.lr` must be a number, 0 or more, not -1.0");
    }

    #[test]
    fn resume_with_and_without_a_directory() {
        let resume = |line: &str| match parse(line) {
            Command::Train(train) => train.resume,
            _ => unreachable!(),
        };
        assert_eq!(resume("train"), None);
        assert_eq!(resume("train --resume --json"), Some(None));
        assert_eq!(resume("train --resume runs/a"), Some(Some("runs/a".into())));
    }

    #[test]
    fn sampling() {
        let Command::Generate(generate) = parse("generate runs/a --top-k 5 --seed 3 --json") else {
            unreachable!()
        };
        assert_eq!(generate.model, Some("runs/a".into()));
        assert_eq!((generate.top_k, generate.temperature), (Some(5), None));
        assert!(generate.json);
        assert_eq!(generate.settings.said(Reader::Generate).unwrap().0.train.seed, 3);
        for wrong in ["--top-p 0", "--top-p 1.1", "--temperature -1", "--temperature nan"] {
            let words = format!("tightrope generate {wrong}");
            assert!(Cli::try_parse_from(words.split_whitespace()).is_err(), "{wrong}");
        }
    }
}

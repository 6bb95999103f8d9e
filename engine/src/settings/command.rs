//! Commands, and which settings each reads.

use super::{LIST, Origin, Place, Setting, Settings, SettingsError};

/// A command that takes settings. One that does different things by its flags is several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Trains.
    Train,
    /// Shows what training would take.
    Plan,
    /// Continues a text.
    Generate,
    /// Answers by the model's chat template.
    Answer,
    /// Measures the loss on held-out data.
    Eval,
    /// Scores texts.
    Texts,
    /// Scores questions of multiple choice.
    Choices,
    /// Classifies texts.
    Predict,
    /// Measures times.
    Bench,
    /// Writes a model for others.
    Export,
    /// Shows rows of data.
    Show,
    /// Writes data as token ids.
    Tokenize,
}

use Command::{
    Answer, Bench, Choices, Eval, Export, Generate, Plan, Predict, Show, Texts, Tokenize, Train,
};

impl Command {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Train, Plan, Generate, Answer, Eval, Texts, Choices, Predict, Bench, Export, Show, Tokenize,
    ];
    /// Commands that run a model.
    pub const MODEL: &'static [Self] =
        &[Train, Plan, Generate, Answer, Eval, Texts, Choices, Predict, Bench];
    /// Commands that read a model, or may.
    pub const READ: &'static [Self] =
        &[Train, Plan, Generate, Answer, Eval, Texts, Choices, Predict, Bench, Export];
    /// Commands that make a training step.
    pub const STEPS: &'static [Self] = &[Train, Plan, Bench];
    /// Commands that draw random numbers: weights, dropout, rows, samples.
    pub const DRAWS: &'static [Self] = &[Train, Plan, Generate, Answer, Eval, Bench, Show];
    /// Commands that read the data of a run.
    pub const DATA: &'static [Self] = &[Train, Plan, Eval, Bench];
    /// Commands that put data into batches.
    pub const BATCHES: &'static [Self] = &[Train, Plan, Eval, Bench, Show];
    /// Commands that read a model and change nothing.
    pub const INFERENCE: &'static [Self] = &[Generate, Answer, Eval, Texts, Choices, Predict];
    /// Commands that read rows of conversations.
    pub const ROWS: &'static [Self] = &[Train, Plan, Eval, Bench, Show];
    /// Commands that tell what rows hold.
    pub const FORMATS: &'static [Self] = &[Train, Plan, Eval, Bench, Show, Tokenize];
    /// Commands that train on rows of conversations.
    pub const CHATS: &'static [Self] = &[Train, Plan, Bench, Show];
    /// Commands that write a conversation as text.
    pub const TEMPLATES: &'static [Self] = &[Train, Plan, Eval, Bench, Show, Answer];
    /// Commands that read texts from documents.
    pub const DOCUMENTS: &'static [Self] =
        &[Train, Plan, Eval, Texts, Predict, Bench, Show, Tokenize];
    /// Commands that have a sequence length.
    pub const SEQUENCES: &'static [Self] =
        &[Train, Plan, Generate, Answer, Eval, Texts, Choices, Predict, Bench, Show];
    /// Commands that compute a loss over a vocabulary.
    pub const LOSSES: &'static [Self] = &[Train, Plan, Eval, Texts, Choices, Bench];
    /// The command that writes a run.
    pub const RUN: &'static [Self] = &[Train];

    /// The last word of the subcommand.
    pub const fn name(self) -> &'static str {
        match self {
            Train => "train",
            Plan => "plan",
            Generate | Answer => "generate",
            Eval | Texts | Choices | Predict => "eval",
            Bench => "bench",
            Export => "export",
            Show => "show",
            Tokenize => "tokenize",
        }
    }

    /// As it's called.
    pub const fn words(self) -> &'static str {
        match self {
            Train => "train",
            Plan => "plan",
            Generate => "generate --prompt",
            Answer => "generate --chat",
            Eval => "eval",
            Texts => "eval --texts",
            Choices => "eval --choices",
            Predict => "eval --predict",
            Bench => "bench",
            Export => "export",
            Show => "data show",
            Tokenize => "data tokenize",
        }
    }

    /// Help without a setting that the command doesn't read: the few that it reads, and the commands that read the setting.
    fn help_without(self, setting: &Setting) -> String {
        const FEW: usize = 8;
        let own: Vec<&str> = LIST.iter().filter(|it| self.reads(it)).map(|it| it.key).collect();
        let own = match own.len() {
            ..=FEW => format!("; `{}` reads {}", self.words(), listed(&own)),
            _ => String::new(),
        };
        let others: Vec<&str> = setting.commands.iter().map(|it| it.words()).collect();
        format!("leave it out{own}; `{}` is read by {}", setting.key, listed(&others))
    }

    /// Returns `true` if the command reads a setting.
    pub fn reads(self, setting: &Setting) -> bool {
        setting.commands.contains(&self)
    }
}

impl Settings {
    /// Checks that `command` reads each setting that the command line or a caller says. Returns notes: of settings of a file that the
    /// command doesn't read, as commands may share files; and of settings that change numbers of a run alone, where the command plans or
    /// times a step.
    ///
    /// # Errors
    /// The first setting that changes nothing of the command.
    pub fn read_by(&self, command: Command) -> Result<Vec<String>, SettingsError> {
        let mut notes = vec![];
        let of_numbers = LIST.iter().filter(|it| it.numbers_only && command.reads(it));
        let said: Vec<&str> =
            of_numbers.map(|it| it.key).filter(|key| self.on_command_line(key)).collect();
        if [Plan, Bench].contains(&command) && !said.is_empty() {
            let keys = listed(&said);
            notes.push(format!("{keys}: no byte and no second of a step depends on it"));
        }
        let mut of_files = vec![];
        for setting in LIST.iter().filter(|setting| !command.reads(setting)) {
            let key = setting.key;
            match self.origin(key) {
                Origin::Text(Place { file: Some(file), .. }) => of_files.push((key, file)),
                Origin::Text(_) | Origin::Caller => {
                    let message = format!("`{}` doesn't read `{key}`", command.words());
                    return Err(self.error(&[key], message, &command.help_without(setting)));
                }
                Origin::Default | Origin::Checkpoint(_) => {}
            }
        }
        let Some((first, file)) = of_files.first() else { return Ok(notes) };
        let others = match of_files.len() - 1 {
            0 => String::new(),
            1 => " and 1 other setting".to_owned(),
            count => format!(" and {count} other settings"),
        };
        notes.push(format!("`{}` doesn't read `{first}`{others} of {file}", command.words()));
        Ok(notes)
    }
}

/// `a, b and c`.
fn listed(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match words.as_slice() {
        [] => String::new(),
        [word] => word.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

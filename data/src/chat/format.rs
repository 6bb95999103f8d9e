//! The words by which settings name row formats and trained tokens.

/// What a row of a data file holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RowFormat {
    /// Told from the columns of the first rows.
    #[default]
    Auto,
    /// A document.
    Text,
    /// OpenAI's: `messages`, an array of objects with `role` and `content`. A row that is such an array itself is one too.
    Messages,
    /// `prompt` and `completion`: texts, or arrays of messages.
    PromptCompletion,
    /// `conversations`, an array of objects with `from` and `value`.
    ShareGpt,
    /// `instruction`, `output` and perhaps `input`.
    Alpaca,
    /// `chosen` and `rejected`, the better and the worse answer to `prompt`: texts, or arrays of messages. Arrays that begin with the
    /// same messages are whole conversations, and need no `prompt`.
    Preference,
    /// A text, or two, and a `label`: for encoders, which classify them.
    Labelled,
}

impl RowFormat {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::Auto,
        Self::Text,
        Self::Messages,
        Self::PromptCompletion,
        Self::ShareGpt,
        Self::Alpaca,
        Self::Preference,
        Self::Labelled,
    ];

    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Text => "text",
            Self::Messages => "messages",
            Self::PromptCompletion => "prompt-completion",
            Self::ShareGpt => "sharegpt",
            Self::Alpaca => "alpaca",
            Self::Preference => "preference",
            Self::Labelled => "labelled",
        }
    }

    /// Columns that each of its rows has; none where that isn't fixed.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) const fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Auto | Self::Text | Self::Labelled => &[],
            Self::Messages => &["messages"],
            Self::PromptCompletion => &["prompt", "completion"],
            Self::ShareGpt => &["conversations"],
            Self::Alpaca => &["instruction", "output"],
            Self::Preference => &["chosen", "rejected"],
        }
    }

    /// Sequences of a row: two of preferences.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) const fn sequences(self) -> usize {
        match self {
            Self::Preference => 2,
            _ => 1,
        }
    }
}

/// Which tokens of a conversation are trained on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrainOn {
    /// What the assistant says, with the tokens that end its turns.
    #[default]
    Assistant,
    /// The assistant's last turn.
    Last,
    /// All of them.
    All,
}

impl TrainOn {
    /// All of them.
    pub const ALL: &'static [Self] = &[Self::Assistant, Self::Last, Self::All];

    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Assistant => "assistant",
            Self::Last => "last",
            Self::All => "all",
        }
    }
}

//! The format of rows of conversations, and the chat template that writes them.

use anyhow::anyhow;
use tightrope_data::{
    BucketCount, ChatTemplate, RowFormat, TemplateFiles, Tokenizer, TrainOn, row_format,
};

use crate::error::{Error, Result};
use crate::run::changed;
use crate::settings::Settings;
use crate::weights::source::Source as Weights;
use crate::weights::{templates, tokenizer as tokenizers};

/// Format and template of the conversations of a run.
pub struct Read {
    /// The format of a row.
    pub format: RowFormat,
    /// Writes messages as text.
    pub template: Option<ChatTemplate>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// The template that is taken first, of those of the settings and of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// The one that the settings name: a new run's.
    Asked,
    /// The one that the command line names, else the checkpoint's.
    Said,
    /// The checkpoint's: that of a run that goes on.
    Own,
}

/// Settings, tokenizer and model by which conversations are read.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    /// The settings.
    pub settings: &'a Settings,
    /// The tokenizer of the run.
    pub tokenizer: &'a Tokenizer,
    /// The model that the weights come from; `None` for a new one.
    pub model: Option<&'a Weights>,
    /// The template that is taken first.
    pub first: First,
}

impl Reader<'_> {
    /// Format and template of the files that the settings name; `None` of texts and token ids.
    ///
    /// # Errors
    /// Files whose format can't be told, and a template that isn't there or is malformed.
    pub fn read(self) -> Result<Option<Read>> {
        let Self { settings, tokenizer, first, .. } = self;
        let data = &settings.data;
        let format =
            row_format(&data.files, data.format.unwrap_or_default(), data.text_key.as_deref())?;
        let preferences = format == RowFormat::Preference;
        if !preferences && settings.on_command_line("train.dpo_beta") {
            let message = format!(
                "`train.dpo_beta` is for rows of preferences, and the data is read as {}",
                format.name()
            );
            let help =
                "leave it out, or name files whose rows have `chosen` and `rejected` answers";
            return Err(settings.error(&["train.dpo_beta"], message, help).into());
        }
        if preferences && data.packing {
            let message = "`data.packing` puts several rows into a sequence, and a pair of preferences is two sequences";
            let help = "leave --packing out";
            return Err(settings.error(&["data.packing"], message.to_owned(), help).into());
        }
        // A run that goes on has lengths of its own, which say nothing against what is changed.
        let new = first == First::Asked;
        let buckets = new && data.buckets.is_some_and(|count| count != BucketCount::ONE);
        if data.packing && buckets {
            let message = "`data.packing` fills sequences with several rows, and `data.buckets` pads each to one of several lengths";
            let help = "leave one of --packing and --buckets out";
            let keys = ["data.packing", "data.buckets"];
            return Err(settings.error(&keys, message.to_owned(), help).into());
        }
        if format == RowFormat::Text {
            if buckets {
                let message = "`data.buckets` is for rows of several lengths, and the data is text, which fills every sequence";
                let help = "leave --buckets out, or say with --format what rows hold";
                return Err(settings.error(&["data.buckets"], message.to_owned(), help).into());
            }
            if data.packing {
                return Err(Error::usage(
                    anyhow!(
                        "`data.packing` puts several conversations into a sequence, and the data is text, which fills every sequence"
                    ),
                    "leave --packing out, or say with --format what rows hold",
                ));
            }
            return Ok(None);
        }
        if format == RowFormat::Labelled {
            let message = "the rows are texts with labels, and the model continues text";
            let help = "choose an encoder to classify them, such as --preset bert-base or --init on one; or train on \
                        their text with --format text";
            return Err(settings.error(&["data.format"], message.to_owned(), help).into());
        }
        let mut notes = Vec::new();
        let mut template = self.template()?;
        if template.is_none() && format == RowFormat::Alpaca {
            template =
                ChatTemplate::find(Some("alpaca"), &TemplateFiles::default(), tokenizer, None)?;
            let note = "the model has no chat template: rows are written by the template `alpaca`";
            notes.push(note.to_owned());
        }
        let turns = matches!(format, RowFormat::Messages | RowFormat::ShareGpt | RowFormat::Alpaca);
        let by_turns = turns && data.train_on.unwrap_or_default() == TrainOn::Assistant;
        if by_turns && template.as_ref().is_some_and(ChatTemplate::has_training) {
            let note = "conversations are written by a training template, with the text of TRL's, in place of the model's own: it marks the assistant's turns and \
                        writes each in the same way whatever follows";
            notes.push(note.to_owned());
        }
        Ok(Some(Read { format, template, notes }))
    }

    /// The chat template: the one that is named, else the model's, if it has one.
    ///
    /// # Errors
    /// A template that isn't there or is malformed.
    pub fn template(self) -> Result<Option<ChatTemplate>> {
        let Self { settings, tokenizer, model, first } = self;
        let data = &settings.data;
        let beside = self.templates()?;
        let trained_by =
            beside.default.is_some() && model.is_some_and(|model| model.checkpoint.is_some());
        let own = match first {
            First::Asked => false,
            First::Said => trained_by && !settings.on_command_line("data.chat_template"),
            First::Own => trained_by,
        };
        let asked = data.chat_template.as_deref().filter(|_| !own);
        Ok(ChatTemplate::find(asked, &beside, tokenizer, data.date.as_deref())?)
    }

    /// The chat templates of the tokenizer that the settings name, else those of the model. Without a name, those in the tokenizer's own
    /// `tokenizer_config.json` are left to [`ChatTemplate::find`].
    fn templates(self) -> Result<TemplateFiles> {
        let Self { settings, tokenizer, model, first } = self;
        let own = model.map(Weights::chat_templates).transpose()?.unwrap_or_default();
        let is_new = match first {
            First::Asked => true,
            First::Said => settings.on_command_line("data.tokenizer"),
            First::Own => false,
        };
        let asks = is_new || model.is_none_or(|model| model.checkpoint.is_none());
        let Some(name) = settings.data.tokenizer.as_deref().filter(|_| asks) else {
            return Ok(own);
        };
        let asked = tokenizers::folder(name).map(templates::read_files).transpose()?;
        let asked = asked.unwrap_or_default();
        if !asked.is_empty() {
            return Ok(asked);
        }
        let in_config = TemplateFiles::of_tokenizer(tokenizer)?;
        match model {
            Some(model) if in_config.is_empty() && own.is_empty() && model.has_tokenizer() => {
                Ok(TemplateFiles::of_tokenizer(&model.tokenizer(None)?)?)
            }
            _ if in_config.is_empty() => Ok(own),
            _ => Ok(in_config),
        }
    }
}

/// Refuses a template on the command line that isn't the one that a run began with.
///
/// # Errors
/// Another one.
pub fn keeps_template(
    said: &Settings,
    template: Option<&ChatTemplate>,
    tokenizer: &Tokenizer,
) -> Result<()> {
    let asked = said.data.chat_template.as_deref();
    let asked = asked.filter(|_| said.on_command_line("data.chat_template"));
    // A file that the run began with may be gone.
    let now = asked
        .map(|name| ChatTemplate::find(Some(name), &TemplateFiles::default(), tokenizer, None));
    let (Some(was), Some(Ok(Some(now)))) = (template, now) else { return Ok(()) };
    if was.source() == now.source() {
        return Ok(());
    }
    changed("the chat template", "another one".to_owned(), format!("`{}`", now.name()))
}

//! Context and padded lengths of the data that settings name, for a plan without a run.

use tightrope_data::{RowFormat, row_format};
use tightrope_nn::Architecture;

use super::labelled;
use super::model::Described;
use super::{First, Reader, chats, corpus};
use crate::classifies::Classifies;
use crate::error::Result;
use crate::run::Batches as _;
use crate::settings::Settings;
use crate::weights::Source;

/// Settings, model and sequence lengths of a plan.
pub(super) struct Layout {
    /// The settings, with the context that the rows take.
    pub(super) settings: Settings,
    /// The model.
    pub(super) model: Architecture,
    /// Lengths that batches are padded to, besides the context.
    pub(super) shorter: Vec<usize>,
}

impl Layout {
    /// The layout of a new run with these settings, if the data has rows of different lengths. Files that aren't there yet have none.
    ///
    /// # Errors
    /// Rows that can't be read, and what else a run refuses of them.
    pub(super) fn of(settings: &Settings, described: Described) -> Result<Self> {
        let Described { model, texts, .. } = described;
        let mut layout = Self { settings: settings.clone(), model, shorter: vec![] };
        if !settings.data.files.is_empty() {
            layout.read(texts)?;
        }
        if settings.model.init.is_none() {
            layout.model = layout.model.with_positions(layout.settings.model.context);
        }
        Ok(layout)
    }

    fn read(&mut self, texts: Option<tightrope_data::LabelledTexts>) -> Result<()> {
        let settings = &mut self.settings;
        match &self.model {
            Architecture::Language(model) => {
                let data = &settings.data;
                let asked = data.format.unwrap_or_default();
                match row_format(&data.files, asked, data.text_key.as_deref()) {
                    Ok(RowFormat::Text | RowFormat::Labelled) => return Ok(()),
                    Err(_) if data.files.iter().any(|file| !file.exists()) => return Ok(()),
                    found => {
                        found?;
                    }
                }
                let own = corpus::of_vocabulary(settings, model.vocab)?;
                settings.data.tokenizer = settings.data.tokenizer.take().or(own.map(str::to_owned));
                let tokenizer = corpus::tokenizer(settings, model.vocab)?;
                let source = settings.model.init.as_deref().map(Source::open).transpose()?;
                let reader = Reader {
                    settings,
                    tokenizer: &tokenizer,
                    model: source.as_ref(),
                    first: First::Asked,
                };
                let Some(read) = reader.read()? else { return Ok(()) };
                settings.data.format = Some(read.format);
                self.shorter =
                    chats::laid_out(settings, &read, tokenizer, (model.context, model.vocab))?
                        .shorter();
            }
            Architecture::Classifier(model) => {
                let Some(texts) = texts else { return Ok(()) };
                let own = corpus::of_vocabulary(settings, model.decoder.vocab)?;
                settings.data.tokenizer = settings.data.tokenizer.take().or(own.map(str::to_owned));
                let tokenizer = corpus::tokenizer(settings, model.decoder.vocab)?;
                let described = (Classifies::of_decoder(model), model.decoder.context);
                labelled::opened(settings, described, (Some(texts), tokenizer), &mut vec![])?;
            }
            Architecture::Bert(model) => {
                let names_tokenizer =
                    settings.data.tokenizer.is_some() || settings.model.init.is_some();
                let texts = texts.filter(|_| names_tokenizer);
                let (Some(texts), Some(classifies)) = (texts, Classifies::of_encoder(model)) else {
                    return Ok(());
                };
                let tokenizer = corpus::encoder_tokenizer(settings, model.vocab)?;
                let described = (classifies, model.context);
                labelled::opened(settings, described, (Some(texts), tokenizer), &mut vec![])?;
            }
            Architecture::Vit(_) => {}
        }
        Ok(())
    }
}

//! Data of an encoder of text.

#[cfg(not(target_family = "wasm"))]
use tightrope_data::RowFormat;
use tightrope_nn::BertConfig;

#[cfg(not(target_family = "wasm"))]
use super::labelled;
use super::{LabelledTexts, Text, corpus};
#[cfg(not(target_family = "wasm"))]
use crate::classifies::Classifies;
use crate::error::Result;
use crate::run::Batches;
use crate::settings::Settings;
use crate::weights::Start;

/// Labelled texts if the model classifies, else text with masked tokens. Files of a checkpoint are added to `brought`, notes to `notes`, and format and
/// context of the rows to the settings.
pub(super) fn data(
    settings: &mut Settings,
    model: &BertConfig,
    start: &Start,
    (opened, brought): (Option<LabelledTexts>, &mut Vec<(String, Vec<u8>)>),
    notes: &mut Vec<String>,
) -> Result<Box<dyn Batches>> {
    let asked = settings.data.tokenizer.as_deref();
    let tokenizer = match start {
        Start::Checkpoint(source) => source.own_tokenizer(asked)?,
        _ => corpus::encoder_tokenizer(settings, model.vocab)?,
    };
    #[cfg(target_family = "wasm")]
    let _ = (opened, notes);
    #[cfg(not(target_family = "wasm"))]
    if let Some(classifies) = Classifies::of_encoder(model) {
        let described = (classifies, model.context);
        return labelled::opened(settings, described, (opened, tokenizer), notes);
    }
    #[cfg(not(target_family = "wasm"))]
    {
        settings.data.format = Some(RowFormat::Text);
    }
    if let (Start::Checkpoint(source), true) = (start, settings.data.files.is_empty()) {
        *brought = source.own_texts()?;
    }
    let text = Text::open(&settings.data, tokenizer, model.vocab, brought.clone())?;
    Ok(Box::new(text.masked(settings.train.seed)?))
}

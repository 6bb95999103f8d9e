//! Classes of texts, as models know them.

use tightrope_data::{Classes, TextReader};
use tightrope_nn::{Architecture, BertConfig, ClassifierConfig};

/// A model's reading of labelled texts, and the classes that it knows.
#[derive(Clone, Debug, PartialEq)]
pub struct Classifies {
    /// The classes.
    pub classes: Classes,
    /// Layout of a batch of texts.
    pub reader: TextReader,
}

impl Classifies {
    /// Of `model`; `None` where it classifies no texts.
    pub fn of(model: &Architecture) -> Option<Self> {
        match model {
            Architecture::Classifier(model) => Some(Self::of_decoder(model)),
            Architecture::Bert(model) => Self::of_encoder(model),
            Architecture::Language(_) | Architecture::Vit(_) => None,
        }
    }

    /// The classes of a decoder.
    pub(crate) fn of_decoder(model: &ClassifierConfig) -> Self {
        let classes = Classes { count: model.classes, names: model.labels.clone() };
        Self { classes, reader: reader(model) }
    }

    /// The classes of an encoder; `None` where it predicts masked tokens.
    pub(crate) fn of_encoder(model: &BertConfig) -> Option<Self> {
        let classes = Classes { count: model.classes?, names: model.labels.clone() };
        Some(Self { classes, reader: TextReader::Encoder })
    }
}

/// Layout of a batch of texts for this model.
fn reader(model: &ClassifierConfig) -> TextReader {
    let padding = model.padding.and_then(|id| u32::try_from(id).ok());
    // A token past the embedding's rows can't fill up sequences, and is in none.
    let fill = padding.filter(|&id| (id as usize) < model.decoder.vocab).unwrap_or(0);
    TextReader::Decoder { padding, fill }
}

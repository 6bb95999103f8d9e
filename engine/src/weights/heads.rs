//! Heads that a model gets: with adapters, or for added tokens.

use tightrope_nn::{Architecture, ClassifierConfig, Kind, TrainerConfig};

use super::{Places, Source, adapters, tokenizer};
use crate::error::{Error, Result};

impl Source {
    /// With the head of adapters that classify texts beside a model that continues them: PEFT's of the task `SEQ_CLS`.
    ///
    /// # Errors
    /// Adapters or a tokenizer that can't be read.
    pub(crate) fn with_head_of(mut self, places: &Places) -> Result<Self> {
        // A run's own adapters say by its settings what they are for, and those that it began with may be gone.
        let adapters = places.adapters.as_ref().filter(|_| self.base().is_none());
        let (Architecture::Language(decoder), Some(dir)) = (&self.config, adapters) else {
            return Ok(self);
        };
        let classes =
            adapters::classes_of(dir).map_err(|error| Error::usage(error, adapters::KIND))?;
        if let Some(classes) = classes {
            let padding = self.padding(None)?;
            let decoder = decoder.clone();
            let config = ClassifierConfig { decoder, classes, labels: vec![], padding };
            self.config = Architecture::Classifier(config);
            self.head_is_beside = true;
        }
        Ok(self)
    }

    /// The token that fills up texts: the one that the model's files name, else the tokenizer's, else the one that ends a text.
    ///
    /// # Errors
    /// Files that can't be read.
    pub(crate) fn padding(&self, asked: Option<&str>) -> Result<Option<usize>> {
        let file = self.config_file()?.unwrap_or_default();
        if let Some(id) = file["pad_token_id"].as_u64() {
            return Ok(usize::try_from(id).ok());
        }
        Ok(self.tokenizer_beside(asked)?.as_ref().and_then(tokenizer::padding_id))
    }

    /// A note on the rows that `config` adds to the embedding of this model, which adapters leave as they begin.
    ///
    /// # Errors
    /// A `config.json` or settings of adapters that can't be read.
    pub(crate) fn note_on_added(&self, config: &TrainerConfig) -> Result<Option<String>> {
        let Some(lora) = &config.lora else { return Ok(None) };
        let added = self.grown(&*config.model, &Places::default())?.count();
        let list = config.model.parameters();
        let mut tables = list.iter().filter(|parameter| parameter.kind == Kind::Table);
        let trains = match tables.next() {
            Some(table) => lora.trained_whole(table)?.is_some(),
            None => true,
        };
        Ok((added > 0 && !trains).then(|| {
            format!(
                "{added} rows are added to the embedding, and adapters neither train nor save them: name it in lora.modules_to_save, or export the \
                 run with --merge"
            )
        }))
    }
}

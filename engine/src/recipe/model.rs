//! The model that settings describe.

use std::mem::discriminant;
use std::path::Path;

use anyhow::anyhow;
#[cfg(not(target_family = "wasm"))]
use tightrope_data::Classes;
use tightrope_data::{ImageDataset, ImageShape, RowFormat};
use tightrope_nn::defaults::{self, Sizes};
use tightrope_nn::{Architecture, BertConfig, ClassifierConfig, ModelConfig, VitConfig};

use super::{LabelledTexts, images};
#[cfg(not(target_family = "wasm"))]
use super::{corpus, labelled};
#[cfg(not(target_family = "wasm"))]
use crate::classifies::Classifies;
use crate::error::{Error, Result};
use crate::settings::{self, Extents, Family, LIST, ModelFamily, Reads, Setting, Settings};
use crate::weights::source::{Source, config_of};
use crate::weights::tokenizer;

/// A model, with the data that was opened to learn its classes.
pub struct Described {
    /// The model.
    pub model: Architecture,
    /// The images that the settings name, where it reads some.
    pub images: Option<ImageDataset>,
    /// The labelled texts that the settings name, where it classifies them.
    pub texts: Option<LabelledTexts>,
}

impl Described {
    /// A model that is known already.
    pub fn known(model: Architecture) -> Self {
        Self { model, images: None, texts: None }
    }
}

/// The model that the settings describe. Its context is the number of positions it has, of which a run
/// may use fewer.
///
/// # Errors
/// An unknown preset, a model directory or images that can't be read, and sizes that don't fit each other.
pub fn described(settings: &Settings) -> Result<Described> {
    let own = &settings.model;
    let base = match (&own.init, &own.preset, own.family) {
        (Some(init), ..) => config_of(init)?,
        (None, Some(name), _) => Architecture::preset(name)?,
        (None, None, Some(ModelFamily::Language(Family::Gpt2)) | None) => {
            Architecture::Language(defaults::MODEL)
        }
        (None, None, Some(ModelFamily::Language(_))) => Architecture::preset(defaults::LLAMA)?,
        (None, None, Some(ModelFamily::Vit)) => Architecture::preset(defaults::VIT)?,
        (None, None, Some(ModelFamily::Bert)) => Architecture::preset(defaults::BERT)?,
    };
    let agree =
        |base: &Architecture| own.init.as_ref().map_or(Ok(()), |init| agrees(settings, base, init));
    match &base {
        Architecture::Language(sizes) => {
            let sizes = ModelConfig { vocab: grown(settings, sizes.vocab)?, ..sizes.clone() };
            let model = language(settings, &sizes)?;
            let base = Architecture::Language(sizes);
            // Whatever its head was for.
            #[cfg(not(target_family = "wasm"))]
            if own.classes.is_some() {
                agree(&base)?;
                let described = classifier(settings, model, None)?;
                check_keys(settings, &described.model)?;
                described.model.check()?;
                return Ok(described);
            }
            check_keys(settings, &base)?;
            let model = Architecture::Language(model);
            model.check()?;
            agree(&base)?;
            Ok(Described::known(model))
        }
        #[cfg(target_family = "wasm")]
        Architecture::Classifier(_) => Err(Error::usage(
            anyhow!("the model classifies texts, and a browser reads no rows with labels"),
            "train it with the command",
        )),
        #[cfg(not(target_family = "wasm"))]
        Architecture::Classifier(own) => {
            check_keys(settings, &base)?;
            let vocab = grown(settings, own.decoder.vocab)?;
            let decoder = ModelConfig { vocab, ..own.decoder.clone() };
            let base = ClassifierConfig { decoder, ..own.clone() };
            agree(&Architecture::Classifier(base.clone()))?;
            let model = language(settings, &base.decoder)?;
            let described = classifier(settings, model, Some(&base))?;
            described.model.check()?;
            Ok(described)
        }
        Architecture::Vit(sizes) => {
            check_keys(settings, &base)?;
            // Images are opened in the size that the model reads.
            agree(&base)?;
            let described = vision(settings, sizes)?;
            described.model.check()?;
            Ok(described)
        }
        Architecture::Bert(sizes) => {
            check_keys(settings, &base)?;
            agree(&base)?;
            let described = encoder(settings, sizes)?;
            described.model.check()?;
            Ok(described)
        }
    }
}

/// A decoder, with the sizes of `base` where none are set. Unchecked.
fn language(settings: &Settings, base: &ModelConfig) -> Result<ModelConfig> {
    let own = &settings.model;
    let sizes = Sizes { context: positions(own), vocab: vocab(settings)?, ..own.sizes() };
    Ok(sizes.over(base))
}

/// Tokens that a model is to know, where the settings or their tokenizer say how many.
fn vocab(settings: &Settings) -> Result<Option<usize>> {
    let own = &settings.model;
    Ok(match (own.vocab, &settings.data.tokenizer, &own.init) {
        (None, Some(name), None) => Some(tokenizer::vocab_size(name)?),
        (vocab, _, _) => vocab,
    })
}

/// Tokens of a model on disk that knows `vocab`, with a row for each token of its tokenizer where the settings add them.
fn grown(settings: &Settings, vocab: usize) -> Result<usize> {
    let settings::Model { init, add_tokens, .. } = &settings.model;
    let Some(init) = init.as_ref().filter(|_| *add_tokens) else { return Ok(vocab) };
    let asked = settings.data.tokenizer.as_deref();
    Ok(vocab.max(Source::open(init)?.tokenizer(asked)?.vocab_size()))
}

/// Positions that a new model is to have. One on disk keeps its own, of which a run may use fewer.
fn positions(own: &settings::Model) -> Option<usize> {
    own.context.filter(|_| own.init.is_none())
}

/// An encoder of text, with the sizes of `base` where none are set. It classifies where its data is labelled, or where settings or
/// `base` say so. Unchecked.
fn encoder(settings: &Settings, base: &BertConfig) -> Result<Described> {
    let own = &settings.model;
    let channels = own.channels.unwrap_or(base.channels);
    let hidden = base.hidden.saturating_mul(channels) / base.channels.max(1);
    let mut model = BertConfig {
        layers: own.layers.unwrap_or(base.layers),
        channels,
        heads: own.heads.unwrap_or(base.heads),
        hidden: own.hidden.unwrap_or(hidden.max(1)),
        context: positions(own).unwrap_or(base.context),
        vocab: vocab(settings)?.unwrap_or(base.vocab),
        dropout: own.dropout.unwrap_or(base.dropout),
        attention_dropout: own.dropout.unwrap_or(base.attention_dropout),
        ..base.clone()
    };
    if settings.data.format == Some(RowFormat::Text) {
        (model.classes, model.labels) = (None, vec![]);
    }
    #[cfg(target_family = "wasm")]
    let texts: Option<LabelledTexts> = None;
    #[cfg(not(target_family = "wasm"))]
    let texts = {
        // Rows that can't be classified are refused by what they lack, if the model is to classify them.
        let classifies = base.classes.is_some() || own.classes.is_some();
        let texts = labelled::named(settings, Classifies::of_encoder(&model), classifies)?;
        if let Some(texts) = &texts {
            let found = texts.classes();
            (model.classes, model.labels) = (Some(found.count), found.names.clone());
        }
        texts
    };
    let found = model.classes.map(|count| (count, model.labels.clone()));
    (model.classes, model.labels) = match classes(settings, found)? {
        Some((count, names)) => (Some(count), names),
        None => (None, vec![]),
    };
    Ok(Described { texts, ..Described::known(Architecture::Bert(model)) })
}

/// Number and names of a model's classes. `found` are those of the data, or of the model that it starts from; the settings may say more.
///
/// # Errors
/// More classes than the settings say.
pub(super) fn classes(
    settings: &Settings,
    found: Option<(usize, Vec<String>)>,
) -> Result<Option<(usize, Vec<String>)>> {
    let Some(said) = settings.model.classes else { return Ok(found) };
    let count = found.as_ref().map_or(0, |(count, _)| *count);
    if count > said {
        let message = format!("`model.classes` is {said}, and the labels make {count}");
        let help = "leave `model.classes` out, or correct the labels";
        return Err(settings.error(&["model.classes"], message, help).into());
    }
    let mut names = found.map(|(_, names)| names).unwrap_or_default();
    if !names.is_empty() {
        names.extend((count..said).map(|class| format!("LABEL_{class}")));
    }
    Ok(Some((said, names)))
}

/// The decoder of these sizes as the classifier that the settings describe, with the labelled texts that they name. `base` is the classifier
/// that it starts from, if its head was one. Unchecked.
///
/// # Errors
/// Rows that can't be classified; no classes, or more than the settings allow; and a model's files that can't be read.
#[cfg(not(target_family = "wasm"))]
fn classifier(
    settings: &Settings,
    decoder: ModelConfig,
    base: Option<&ClassifierConfig>,
) -> Result<Described> {
    let format = settings.data.format.unwrap_or_default();
    if !matches!(format, RowFormat::Auto | RowFormat::Labelled) {
        let message = format!("`data.format` is {}, and the model classifies texts", format.name());
        let help = "say labelled, or choose a model that continues text";
        return Err(settings.error(&["data.format"], message, help).into());
    }
    let texts = labelled::named(settings, base.map(Classifies::of_decoder), true)?;
    let of_texts = texts.as_ref().map(|texts| {
        let Classes { count, names } = texts.classes().clone();
        (count, names)
    });
    let found = of_texts.or(base.map(|base| (base.classes, base.labels.clone())));
    let Some((classes, labels)) = classes(settings, found)? else {
        return Err(Error::usage(
            anyhow!("nothing says how many classes the model has"),
            "name files of rows with a text and a label with --data, or say it with --set model.classes=N",
        ));
    };
    let padding = match base.and_then(|base| base.padding) {
        Some(padding) => Some(padding),
        None => padding(settings, decoder.vocab)?,
    };
    let model = ClassifierConfig { decoder, classes, labels, padding };
    Ok(Described { texts, ..Described::known(Architecture::Classifier(model)) })
}

/// The token that fills up texts for a new head: the one that the model's files name, else the tokenizer's, else the one that ends a text.
/// transformers refuses batches of models that name none.
#[cfg(not(target_family = "wasm"))]
fn padding(settings: &Settings, vocab: usize) -> Result<Option<usize>> {
    let asked = settings.data.tokenizer.as_deref();
    if let Some(init) = &settings.model.init {
        return Source::open(init)?.padding(asked);
    }
    let named = asked.or(corpus::of_vocabulary(settings, vocab)?);
    Ok(named.map(tokenizer::named).transpose()?.as_ref().and_then(tokenizer::padding_id))
}

/// A vision transformer, with the sizes of `base` where none are set. A new one has the data's classes, and where neither
/// a preset nor a setting says what images it reads, those of the data. Unchecked.
fn vision(settings: &Settings, base: &VitConfig) -> Result<Described> {
    let settings::Model { init, preset, image_size, image_channels, .. } = &settings.model;
    let own = &settings.model;
    let said =
        init.is_some() || preset.is_some() || image_size.is_some() || image_channels.is_some();
    let channels = own.channels.unwrap_or(base.channels);
    let hidden = base.hidden.saturating_mul(channels) / base.channels.max(1);
    let pixels = |extents: Option<Extents>, base| extents.map_or(base, |Extents(extents)| extents);
    let mut model = VitConfig {
        layers: own.layers.unwrap_or(base.layers),
        channels,
        heads: own.heads.unwrap_or(base.heads),
        hidden: own.hidden.unwrap_or(hidden.max(1)),
        image: pixels(*image_size, base.image),
        patch: pixels(own.patch_size, base.patch),
        colors: image_channels.unwrap_or(base.colors),
        classes: own.classes.unwrap_or(base.classes),
        labels: if own.classes.is_none_or(|classes| classes == base.classes) {
            base.labels.clone()
        } else {
            vec![]
        },
        dropout: own.dropout.unwrap_or(base.dropout),
        ..base.clone()
    };
    let images = images::named(&settings.data, said.then(|| images::shape(&model)))?;
    if let Some(images) = &images {
        let ImageShape { channels, height, width } = images.shape();
        (model.colors, model.image) = (channels, [height, width]);
        if own.classes.is_none() && init.is_none() {
            model.classes = images.classes().len();
            model.labels = images.classes().to_vec();
        }
    }
    Ok(Described { images, ..Described::known(Architecture::Vit(model)) })
}

/// Whether the settings name another family than the model's, or a size that its family doesn't have.
///
/// # Errors
/// The first one that is.
pub fn check_keys(settings: &Settings, model: &Architecture) -> Result<()> {
    let is = match model {
        Architecture::Language(_) => "a language model",
        Architecture::Classifier(_) => "a decoder that classifies texts",
        Architecture::Vit(_) => "a vision transformer",
        Architecture::Bert(_) => "an encoder",
    };
    let own = model.family();
    let other = |family: &ModelFamily| discriminant(family) != discriminant(&own);
    if let Some(family) = settings.model.family.filter(other) {
        let message = format!("`model.family` is {}, and the model is {is}", family.name());
        const HELP: &str =
            "leave `model.family` out, or name a preset or a directory of that family";
        return Err(settings.error(&["model.family"], message, HELP).into());
    }
    let is_of = |setting: &Setting, reads: Reads| match model {
        // It has all sizes of a decoder.
        Architecture::Classifier(_) => setting.table() == "model" || reads.is_of_classifier(),
        _ => reads.is_of(own),
    };
    let mut foreign = LIST.iter().filter(|it| it.reads.is_some_and(|reads| !is_of(it, reads)));
    // A run's own file says every default.
    match foreign.find(|setting| settings.is_changed(setting.key)) {
        Some(Setting { key, reads, .. }) => {
            let others = reads.map_or("another model", Reads::model);
            let message = format!("`{key}` is of {others}, and the model is {is}");
            Err(settings.error(&[key], message, &format!("leave `{key}` out")).into())
        }
        None => Ok(()),
    }
}

/// Whether the sizes that the settings name are those of the model in `dir`: weights of one shape can't
/// start a model of another.
///
/// # Errors
/// The first size that isn't.
pub fn agrees(settings: &Settings, model: &Architecture, dir: &Path) -> Result<()> {
    let own = &settings.model;
    let sides = |extents: Option<Extents>| extents.map(|Extents(extents)| extents);
    let pixels = |[height, width]: [usize; 2]| format!("{height}x{width}");
    let number = |asked: Option<usize>, found: usize| {
        asked.filter(|&asked| asked != found).map(|asked| (asked.to_string(), found.to_string()))
    };
    let area = |asked: Option<Extents>, found: [usize; 2]| {
        let asked = sides(asked).filter(|&asked| asked != found);
        asked.map(|asked| (pixels(asked), pixels(found)))
    };
    let family = |found: ModelFamily| {
        let asked = own.family.filter(|&asked| asked != found);
        asked.map(|asked| (asked.name().to_owned(), found.name().to_owned()))
    };
    let of_decoder = |model: &ModelConfig| {
        vec![
            ("family", family(ModelFamily::Language(model.family))),
            ("layers", number(own.layers, model.layers)),
            ("channels", number(own.channels, model.channels)),
            ("heads", number(own.heads, model.heads)),
            ("kv_heads", number(own.kv_heads, model.kv_heads)),
            ("hidden", number(own.hidden, model.hidden)),
            ("vocab", number(own.vocab, model.vocab)),
            ("tied", number(own.tied.map(usize::from), usize::from(model.tied))),
        ]
    };
    let differences = match model {
        Architecture::Language(model) => of_decoder(model),
        Architecture::Classifier(model) => {
            let mut list = of_decoder(&model.decoder);
            list.push(("classes", number(own.classes, model.classes)));
            list
        }
        Architecture::Vit(model) => vec![
            ("layers", number(own.layers, model.layers)),
            ("channels", number(own.channels, model.channels)),
            ("heads", number(own.heads, model.heads)),
            ("hidden", number(own.hidden, model.hidden)),
            ("image_size", area(own.image_size, model.image)),
            ("patch_size", area(own.patch_size, model.patch)),
            ("image_channels", number(own.image_channels, model.colors)),
            ("classes", number(own.classes, model.classes)),
        ],
        Architecture::Bert(model) => vec![
            ("layers", number(own.layers, model.layers)),
            ("channels", number(own.channels, model.channels)),
            ("heads", number(own.heads, model.heads)),
            ("hidden", number(own.hidden, model.hidden)),
            ("vocab", number(own.vocab, model.vocab)),
            (
                "classes",
                own.classes
                    .zip(model.classes)
                    .and_then(|(asked, found)| number(Some(asked), found)),
            ),
        ],
    };
    for (key, difference) in differences {
        if let Some((asked, found)) = difference {
            return Err(Error::usage(
                anyhow!(
                    "`model.{key}` is {asked}, and the model in `{}` has {found}",
                    dir.display()
                ),
                format!(
                    "leave `model.{key}` out, or start a model of these sizes from random weights"
                ),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(words: &[&str]) -> Settings {
        let mut settings = Settings::default();
        words.iter().for_each(|word| settings.read_argument(word).unwrap());
        settings
    }

    fn model(words: &[&str]) -> Architecture {
        described(&said(words)).unwrap_or_else(|error| panic!("{words:?}: {error}")).model
    }

    #[test]
    fn classes_that_the_data_lacks_are_numbered() {
        let names =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let found = Some((2, names(&["neg", "pos"])));
        assert_eq!(classes(&said(&[]), found.clone()).unwrap(), found);
        let more = classes(&said(&["model.classes=3"]), found).unwrap();
        assert_eq!(more, Some((3, names(&["neg", "pos", "LABEL_2"]))));
        assert_eq!(classes(&said(&["model.classes=3"]), None).unwrap(), Some((3, vec![])));
    }

    #[test]
    fn the_family_decides_which_model_it_is() {
        assert_eq!(model(&[]), Architecture::Language(defaults::MODEL));
        let tiny = Architecture::preset("vit-tiny").unwrap();
        assert_eq!(model(&["model.family=vit"]), tiny);
        assert_eq!(model(&["model.preset=vit-tiny"]), tiny);
        let labels = (0..10).map(|digit| digit.to_string()).collect();
        let Architecture::Vit(sizes) = tiny else { panic!("it is a vision transformer") };
        let named = Architecture::Vit(VitConfig { labels, ..sizes });
        assert_eq!(model(&["model.preset=vit-tiny", "data.files=digits"]), named);
        let Architecture::Vit(wide) = model(&[
            "model.preset=vit-tiny",
            "model.channels=128",
            "model.image_size=12x20",
            "model.patch_size=4x5",
            "model.image_channels=3",
            "model.classes=7",
        ]) else {
            panic!("it is a vision transformer")
        };
        assert_eq!((wide.channels, wide.hidden, wide.layers), (128, 512, 4));
        assert_eq!((wide.image, wide.patch, wide.colors), ([12, 20], [4, 5], 3));
        assert_eq!((wide.classes, wide.patches()), (7, 12));
    }

    #[test]
    fn classes_are_those_of_the_data() {
        let Architecture::Vit(model) =
            model(&["model.family=vit", "model.patch_size=4", "data.files=digits"])
        else {
            panic!("it is a vision transformer")
        };
        assert_eq!((model.classes, model.image, model.colors), (10, [8, 8], 1));
        let large = said(&["model.preset=vit-base-patch16-224", "data.files=digits"]);
        let error = described(&large).err().unwrap();
        let all = format!("{error}: {}", error.causes().join(": "));
        assert!(all.contains("the model reads 224 × 224 pixels of 3 channels"), "{all}");
    }

    #[test]
    fn sizes_of_another_family_are_refused() {
        for (words, expected) in [
            (
                &["model.preset=vit-tiny", "model.context=16"][..],
                "`model.context` is of a language model, and the model is a vision transformer",
            ),
            (
                &["model.family=vit", "data.tokenizer=byte"],
                "`data.tokenizer` is of a language model",
            ),
            (
                &["model.preset=tiny", "model.patch_size=2"],
                "`model.patch_size` is of a vision transformer, and the model is a language model",
            ),
            (
                &["model.preset=tiny", "model.family=vit"],
                "`model.family` is vit, and the model is a language model",
            ),
            (
                &["model.preset=vit-tiny", "model.family=gpt2"],
                "`model.family` is gpt2, and the model is a vision transformer",
            ),
            (&["model.family=vit", "model.patch_size=3"], "patches of 3 × 3 pixels don't divide"),
        ] {
            let error = described(&said(words)).err().unwrap();
            assert!(error.message().contains(expected), "{words:?}: {}", error.message());
            assert!(error.help().is_some(), "{words:?}");
        }
    }
}

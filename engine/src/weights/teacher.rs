//! The model that another learns of: it's read once, and a run goes on with the same one alone.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use tightrope_data::{Base, Checkpoint, Tokenizer, Weights};
use tightrope_nn::layers::Distillation;
use tightrope_nn::{Architecture, ModelConfig, Trainer};

use super::{Places, Source};
use crate::error::{Error, Help as _, Result};
use crate::settings::Settings;

const KEY: &str = "train.teacher";

/// The teacher that the settings name, and how the student learns of it.
///
/// # Errors
/// A teacher that can't be read or isn't a language model, and settings of one where none is named.
pub(crate) fn described(settings: &Settings) -> Result<Option<(ModelConfig, Distillation)>> {
    let train = &settings.train;
    let Some(dir) = &train.teacher else {
        let idle = ["train.teacher_temperature", "train.soft_share"];
        let said = idle.into_iter().find(|key| settings.on_command_line(key));
        return said.map_or(Ok(None), |key| {
            let message = format!("`{key}` is for a student, and no teacher is named");
            Err(settings.error(&[key], message, "give --teacher DIR, or leave it out").into())
        });
    };
    let how = Distillation { temperature: train.teacher_temperature, soft_share: train.soft_share };
    let config = match super::source::config_of(dir)? {
        Architecture::Language(config) => config,
        other => {
            let (shown, family) = (dir.display(), other.family().name());
            let message = format!(
                "`{shown}` holds a model of the family {family}, which predicts no next token"
            );
            let help = "name a language model as the teacher";
            return Err(settings.error(&[KEY], message, help).into());
        }
    };
    Ok(Some((config, how)))
}

/// Has a run that goes on from `checkpoint` find its teacher: where the settings say, or where it was.
pub(crate) fn found(settings: &mut Settings, checkpoint: Option<&Checkpoint>) {
    let said = settings.train.teacher.as_ref().is_some_and(|dir| dir.exists());
    let Some(Base::Model { path, .. }) = checkpoint.and_then(|it| it.manifest.teacher.as_ref())
    else {
        return;
    };
    if !said && !settings.on_command_line(KEY) {
        settings.train.teacher = Some(path.clone());
    }
}

/// Whether the teacher reads text as `tokenizer` does, or any token that a student of `vocab` does where that isn't known, and is the one that `checkpoint` began with.
///
/// # Errors
/// Another tokenizer or none, and weights that changed, by name.
pub(crate) fn check(
    settings: &Settings,
    (tokenizer, vocab): (Option<&Tokenizer>, Option<usize>),
    checkpoint: Option<&Checkpoint>,
) -> Result<()> {
    let before = checkpoint.map(|checkpoint| &checkpoint.manifest.teacher);
    let Some(dir) = &settings.train.teacher else { return Ok(()) };
    let source = Source::open_whole(dir)?;
    if let Some(tokenizer) = tokenizer {
        let help = "a student and its teacher read the same tokens: give the tokenizer of the teacher with --tokenizer, or name another teacher";
        let other = source.tokenizer(None).help(help)?;
        if let Some(differs) = difference(tokenizer, &other)? {
            let (own, shown) = (tokenizer.name(), dir.display());
            let message = format!(
                "the student's tokenizer, {own}, isn't {}, that of the teacher in `{shown}`: {differs}",
                other.name()
            );
            return Err(settings.error(&[KEY], message, help).into());
        }
    }
    let (known, vocab) = (source.vocab()?, vocab.unwrap_or_default());
    if tokenizer.is_none() && known < vocab {
        let shown = dir.display();
        let message =
            format!("the teacher in `{shown}` knows {known} tokens, and the student {vocab}");
        let help = "name the tokenizer of both with --tokenizer, or a teacher that knows as many";
        return Err(settings.error(&[KEY], message, help).into());
    }
    let Some(before) = before else { return Ok(()) };
    let fingerprint = source.fingerprint()?;
    let shown = dir.display();
    let message = match before {
        Some(Base::Model { fingerprint: was, .. }) if *was == fingerprint => return Ok(()),
        Some(Base::Model { path, .. }) => format!(
            "the weights in `{shown}` aren't those of the teacher that the run began with, which was `{}`",
            path.display()
        ),
        _ => "the run began without a teacher".to_owned(),
    };
    let help = "resume with the teacher that the run began with, or start a new run with --init on this checkpoint";
    Err(Error::usage(anyhow!("{message}"), help))
}

/// How two tokenizers differ, in words.
fn difference(own: &Tokenizer, other: &Tokenizer) -> Result<Option<String>> {
    const HELP: &str = "fetch the tokenizer again";
    let sizes = [own.vocab_size(), other.vocab_size()];
    if sizes[0] != sizes[1] {
        return Ok(Some(format!("they have {} and {} tokens", sizes[0], sizes[1])));
    }
    for id in 0..u32::try_from(sizes[0]).unwrap_or(u32::MAX) {
        // Ids without a token are decoded by neither.
        let [a, b] = [own, other].map(|tokenizer| tokenizer.decode(&[id]).ok());
        if a != b {
            let [a, b] =
                [a, b].map(|text| text.map_or("nothing".to_owned(), |it| format!("{it:?}")));
            return Ok(Some(format!("token {id} is {a} and {b}")));
        }
    }
    let [a, b] = [own.encode(PROBE).help(HELP)?, other.encode(PROBE).help(HELP)?];
    Ok((a != b).then(|| "they cut a text at other places".to_owned()))
}

/// A text of words, numbers, spaces and other scripts, which tokenizers cut differently.
const PROBE: &str =
    "It's 1,234.5 degrees:\n\n  don't  worry, naïve Zoë — 東京 and Привет; x_1 += f(y)\t🙂";

/// Where the teacher in `dir` is, and what tells its weights from others.
///
/// # Errors
/// A teacher that can't be read.
pub(crate) fn base(dir: &Path) -> Result<Base> {
    let path = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    Ok(Base::Model { path, fingerprint: Source::open_whole(dir)?.fingerprint()? })
}

/// Sets the weights of the model's teacher, where it has one.
///
/// # Errors
/// Weights that can't be read or of another model; a teacher of a model that learns of none; and those of the device.
pub(super) fn fill(trainer: &mut Trainer, places: &Places) -> Result<()> {
    let learns = trainer.config().model.teacher().is_some();
    match &places.teacher {
        None if learns => Err(Error::usage(
            anyhow!("the model learns of a teacher, and no weights of one are named"),
            "say with --teacher where they are",
        )),
        Some(dir) if !learns => Err(Error::usage(
            anyhow!("the model learns of no teacher, and `{}` is named as one", dir.display()),
            "leave --teacher out: a model of a program's own has none",
        )),
        None => Ok(()),
        Some(dir) => load(trainer, dir)
            .with_context(|| format!("can't load the teacher's weights in `{}`", dir.display()))
            .help("fetch or copy the teacher again, or name another one"),
    }
}

fn load(trainer: &mut Trainer, dir: &Path) -> anyhow::Result<()> {
    let source = Source::open_whole(dir)?;
    if let Some(checkpoint) = &source.checkpoint {
        let weights = &checkpoint.model;
        let mut get = |name: &str| Ok(weights.require(name)?.to_values()?);
        return Ok(trainer.load_teacher(weights.names(), &mut get)?);
    }
    let weights = Weights::open(&source.dir)?;
    let mut get = |name: &str| Ok(weights.require(name)?.to_values()?);
    Ok(trainer.load_teacher(weights.names(), &mut get)?)
}

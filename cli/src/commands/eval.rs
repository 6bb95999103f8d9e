//! `tightrope eval`: loss on held-out data, with perplexity of text and accuracy on images; exact scores of texts and of multiple
//! choice.

use std::cell::Cell;
use std::path::Path;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use tightrope::generate::Scored;
use tightrope::model::{self, Unit};
use tightrope::score::{Accuracy, ChoiceScores, Classified, TextScores};
use tightrope::settings::Command;

use super::load;
use crate::args::Eval;
use crate::failure::Failure;
use crate::output;

/// Scores the held-out part of the data, or all of it where nothing is held out. Prints what was scored, loss, perplexity
/// and bits per byte of the text; with `--json`, one object with `loss, perplexity, bits_per_byte, tokens, context, data,
/// model`. Of images, loss and accuracy; the object has `loss, accuracy, images, data, model`. With `--texts` and `--choices`, their
/// scores; with `--predict`, the classes of texts.
///
/// # Errors
/// A model or data that can't be read, and those of the device.
pub fn run(args: &Eval) -> Result<(), Failure> {
    let reader = match args {
        Eval { texts, .. } if !texts.is_empty() => Command::Texts,
        Eval { choices, .. } if !choices.is_empty() => Command::Choices,
        Eval { predict, .. } if !predict.is_empty() => Command::Predict,
        Eval { .. } => Command::Eval,
    };
    let (loaded, device) = load((args.model.as_deref(), args.best), &args.settings, reader)?;
    let dir = loaded.dir().to_owned();
    let loaded = loaded.watching(rows_shown());
    if !args.texts.is_empty() {
        return texts(&loaded.score_texts(device, &args.texts, args.stride)?, &dir, args.json);
    }
    if !args.choices.is_empty() {
        return choices(&loaded.score_choices(device, &args.choices)?, &dir, args.json);
    }
    if !args.predict.is_empty() {
        return classes(&loaded.classify_texts(device, &args.predict)?, &dir, args.json);
    }
    let scored = loaded.evaluate(device)?;
    let Scored { evaluation, unit, data, bits_per_byte, seq_len, notes } = scored;
    for note in notes {
        output::note(&format!("note: {note}"));
    }
    if unit != Unit::TOKEN {
        if args.json {
            let mut object = json!({ "loss": evaluation.loss, "data": data, "model": dir });
            object[unit.many] = json!(evaluation.tokens);
            for (name, value) in &evaluation.metrics {
                object[name] = json!(value);
            }
            return output::print_json(&object);
        }
        let widths = evaluation.metrics.keys().map(|name| name.len() + 2);
        let width = widths.fold(11, usize::max);
        let mut text = format!("{:<width$}{data}\n", "data");
        text += &format!("{:<width$}{:.4} nats per {}\n", "loss", evaluation.loss, unit.one);
        for (name, value) in &evaluation.metrics {
            let (name, value) = (model::words(name), model::figure(name, *value));
            text += &format!("{name:<width$}{value}\n");
        }
        return output::print(&format!("{text}{:<width$}{}\n", unit.many, evaluation.tokens));
    }
    if args.json {
        return output::print_json(&json!({
            "loss": evaluation.loss,
            "perplexity": evaluation.perplexity(),
            "bits_per_byte": bits_per_byte,
            "tokens": evaluation.tokens,
            "context": seq_len,
            "data": data,
            "model": dir,
        }));
    }
    let mut text = format!(
        "data           {data}\nloss           {:.4} nats per token\nperplexity     {:.3}\n",
        evaluation.loss,
        evaluation.perplexity()
    );
    if let Some(bits) = bits_per_byte {
        text += &format!("bits per byte  {bits:.4}\n");
    }
    output::print(&format!("{text}tokens         {}\n", evaluation.tokens))
}

/// Shows on stderr how many rows are scored: as a live line on a terminal, else at each tenth of them.
fn rows_shown() -> impl Fn(usize, usize) {
    const TEMPLATE: &str = "{percent:>3}% {pos}/{len} rows scored, {eta} left";
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
        bar.set_style(style);
    }
    let shown = Cell::new(0);
    move |done, all| {
        if !bar.is_hidden() {
            bar.set_length(all as u64);
            bar.set_position(done as u64);
            if done == all {
                bar.finish_and_clear();
            }
            return;
        }
        let tenth = 10 * done / all.max(1);
        if tenth > shown.replace(tenth) {
            output::note(&format!("{}% {done}/{all} rows scored", 10 * tenth));
        }
    }
}

/// With `--json`: `loss, perplexity, word_perplexity, byte_perplexity, bits_per_byte, log_likelihood, documents, tokens, words, bytes,
/// context, stride, model`.
fn texts(scores: &TextScores, model: &Path, as_json: bool) -> Result<(), Failure> {
    if as_json {
        return output::print_json(&json!({
            "loss": scores.loss(),
            "perplexity": scores.perplexity(),
            "word_perplexity": scores.word_perplexity(),
            "byte_perplexity": scores.byte_perplexity(),
            "bits_per_byte": scores.bits_per_byte(),
            "log_likelihood": scores.log_likelihood,
            "documents": scores.documents,
            "tokens": scores.tokens,
            "words": scores.words,
            "bytes": scores.bytes,
            "context": scores.context,
            "stride": scores.stride,
            "model": model,
        }));
    }
    let TextScores { documents, tokens, words, bytes, context, stride, .. } = scores;
    let figures = [
        ("loss", format!("{:.4} nats per token", scores.loss())),
        ("perplexity", format!("{:.3}", scores.perplexity())),
        ("of words", format!("{:.3}", scores.word_perplexity())),
        ("of bytes", format!("{:.4}", scores.byte_perplexity())),
        ("bits per byte", format!("{:.4}", scores.bits_per_byte())),
        (
            "scored",
            format!("{tokens} tokens of {documents} documents, {words} words, {bytes} bytes"),
        ),
        ("windows", format!("{context} tokens, {stride} apart")),
    ];
    output::print(&lines(&figures))
}

/// With `--json`: `acc, acc_norm, acc_bytes` and the standard error of each as `acc_stderr`, …, `questions, truncated, context, model`.
fn choices(scores: &ChoiceScores, model: &Path, as_json: bool) -> Result<(), Failure> {
    let ChoiceScores { questions, truncated, context, .. } = scores;
    let accuracies =
        [("acc", scores.acc()), ("acc_norm", scores.acc_norm()), ("acc_bytes", scores.acc_bytes())];
    if as_json {
        let mut object = json!({
            "questions": questions.len(),
            "truncated": truncated,
            "context": context,
            "model": model,
        });
        for (name, Accuracy { value, stderr }) in accuracies {
            object[name] = json!(value);
            object[format!("{name}_stderr")] = json!(stderr);
        }
        return output::print_json(&object);
    }
    let shown = |Accuracy { value, stderr }: Accuracy| match stderr {
        Some(stderr) => format!("{value:.4} ± {stderr:.4}"),
        None => format!("{value:.4}"),
    };
    let mut figures: Vec<(&str, String)> =
        accuracies.into_iter().map(|(name, accuracy)| (name, shown(accuracy))).collect();
    figures.push(("questions", questions.len().to_string()));
    figures.push(("cut", format!("{truncated} endings' contexts, to {context} tokens")));
    output::print(&lines(&figures))
}

/// A line for each text: its class, the probability of that, and how the text begins. With `--json`: `classes, predictions, model`, each
/// prediction with `label`, `probability` and the `probabilities` of all classes.
fn classes(found: &Classified, model: &Path, as_json: bool) -> Result<(), Failure> {
    if as_json {
        let rows = found.likeliest().zip(&found.probabilities);
        let rows = rows.map(|((label, probability), all)| {
            json!({ "label": label, "probability": probability, "probabilities": all })
        });
        return output::print_json(&json!({
            "classes": found.classes,
            "predictions": rows.collect::<Vec<_>>(),
            "model": model,
        }));
    }
    let width = found.classes.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let rows = found.likeliest().zip(&found.texts).map(|((label, probability), text)| {
        let begins: String =
            text.chars().take(TEXT_SHOWN).map(|c| if c.is_control() { ' ' } else { c }).collect();
        format!("{label:<width$}  {probability:.4}  {begins}\n")
    });
    output::print(&rows.collect::<String>())
}

/// Characters of a text that are shown.
const TEXT_SHOWN: usize = 60;

/// A name and a value on each line.
fn lines(figures: &[(&str, String)]) -> String {
    figures.iter().map(|(name, value)| format!("{name:<15}{value}\n")).collect()
}

//! Rows of conversations as training sees them: which tokens are trained on, how long they are, which are cut.
//!
//! ```
//! use tightrope::rows::Shown;
//! use tightrope::settings::Settings;
//!
//! # let folder = tempfile::tempdir()?;
//! # let file = folder.path().join("chats.jsonl");
//! std::fs::write(&file, r#"{"prompt": "1 + 1 = ", "completion": "2"}"#)?;
//! let mut said = Settings::default();
//! said.data.files = vec![file];
//! let shown = Shown::of(&said, 3)?;
//! assert!(shown.text(false).contains("1 + 1 = ⟦2\n⟧"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt::Write as _;

use anyhow::anyhow;
use serde_json::{Value, json};
use tightrope_data::{BucketCount, Chats, ChatsConfig, Counts, Sequences, Tokenizer};
use tightrope_nn::{Architecture, defaults};

use crate::error::{Error, Help as _, Result};
use crate::plain;
use crate::recipe::{Context, First, Reader, Text, described};
use crate::settings::Settings;
use crate::units::plural;
use crate::view::page::escaped;
use crate::weights::Source;
use crate::weights::tokenizer as tokenizers;

/// Shares of rows that are no longer than a percentile says.
const PERCENTILES: [usize; 6] = [0, 25, 50, 75, 95, 100];

/// What becomes of the rows of files, and the first of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    /// What a row holds, in a word.
    pub format: &'static str,
    /// The chat template, where one writes rows.
    pub template: Option<String>,
    /// The tokenizer.
    pub tokenizer: String,
    /// Texts of the tokens that the tokenizer puts before and behind a text that no template writes.
    pub around: [String; 2],
    /// Which tokens are trained on, in a word.
    pub train_on: &'static str,
    /// Tokens of a sequence.
    pub context: usize,
    /// What became of the rows.
    pub counts: Counts,
    /// Shares of positions that are padding.
    pub padding: Padding,
    /// Percent of the rows, and the most tokens that such a part of them has, uncut.
    pub lengths: Vec<(usize, u32)>,
    /// The first rows.
    pub rows: Vec<ShownRow>,
    /// What there is to tell.
    pub notes: Vec<String>,
}

/// Texts of the tokens that a tokenizer puts before and behind a text.
fn around(tokenizer: &Tokenizer) -> Result<[String; 2]> {
    const HELP: &str = "give another --tokenizer";
    let [before, behind] = tokenizer.around_texts().help(HELP)?;
    Ok([tokenizer.decode(&before).help(HELP)?, tokenizer.decode(&behind).help(HELP)?])
}

/// Shares of positions that are padding.
#[derive(Clone, Debug, PartialEq)]
pub struct Padding {
    /// With a sequence for each row.
    pub apart: f64,
    /// With packed rows.
    pub packed: f64,
    /// In batches of rows of like length.
    pub in_buckets: f64,
    /// The lengths that these batches are padded to.
    pub buckets: Vec<usize>,
    /// Rows of these batches.
    pub batch: usize,
}

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownRow {
    /// Its number among all rows of the files, from 1.
    pub number: usize,
    /// Which of its answers, where it has two.
    pub answer: Option<&'static str>,
    /// Its tokens, uncut.
    pub length: usize,
    /// Its tokens.
    pub tokens: usize,
    /// Those of them that are trained on.
    pub trained: usize,
    /// Its text in parts, each with whether it's trained on.
    pub parts: Vec<(String, bool)>,
}

impl Shown {
    /// Reads the files of the settings as training would, and the first `most` rows to show. Tokenizer and template are those of
    /// `model.init` where no others are named; without a model, tokens are bytes. The context is that of training.
    ///
    /// # Errors
    /// Files of text, and what training refuses.
    pub fn of(settings: &Settings, most: usize) -> Result<Self> {
        settings.check()?;
        let source = settings.model.init.as_deref().map(Source::open).transpose()?;
        let asked = settings.data.tokenizer.as_deref();
        let tokenizer = match (&source, asked) {
            (Some(source), asked) => source.tokenizer(asked)?,
            (None, Some(name)) => tokenizers::named(name)?,
            (None, None) => Tokenizer::Byte,
        };
        let model = source.as_ref();
        let reader = Reader { settings, tokenizer: &tokenizer, model, first: First::Asked };
        let Some(read) = reader.read()? else {
            // Files that have no text to train on say so.
            Text::open(&settings.data, tokenizer, usize::MAX, vec![])?;
            return Err(Error::usage(
                anyhow!("the files hold text, every token of which is trained on"),
                "name files of conversations, or say with --format what their rows hold",
            ));
        };
        let config = ChatsConfig {
            format: read.format,
            tokenizer: &tokenizer,
            template: read.template.as_ref(),
            templated_texts: settings.data.chat_template.is_some(),
            train_on: settings.data.train_on.unwrap_or_default(),
            context: None,
        };
        let positions = match described(settings)?.model {
            Architecture::Language(model) => model.context,
            Architecture::Classifier(model) => model.decoder.context,
            Architecture::Bert(model) => model.context,
            Architecture::Vit(_) => usize::MAX,
        };
        let asked = Context::asked(settings, positions);
        let (chats, context) = asked.read(&settings.data.files, config)?;
        let longest = chats.lengths().iter().copied().max().unwrap_or(0);
        let mut notes = read.notes;
        notes.extend(asked.note(context, longest as usize));
        let all = chats.rows();
        let rows = (0..most.saturating_mul(all.each()).min(all.len())).map(|index| {
            let number = all.number(index).unwrap_or_default();
            let tokens: Vec<_> = all.get(index).collect();
            let ids: Vec<u32> = tokens.iter().map(|(id, _)| id.cast_unsigned()).collect();
            let (mut before, mut end) = (String::new(), 0);
            // A part's first space belongs to it only behind what is before it.
            let parts = tokens.chunk_by(|one, other| one.1 == other.1).map(|part| {
                end += part.len();
                let all = tokenizer.decode(&ids[..end]).help("give another --tokenizer")?;
                let text = all.strip_prefix(&before).unwrap_or(&all).to_owned();
                before = all;
                Ok((text, part[0].1))
            });
            Ok(ShownRow {
                number: number + 1,
                answer: (all.each() == 2).then(|| ["chosen", "rejected"][index % 2]),
                length: all.uncut(index),
                tokens: tokens.len(),
                trained: tokens.iter().filter(|(_, trained)| *trained).count(),
                parts: parts.collect::<Result<_>>()?,
            })
        });
        let rows = rows.collect::<Result<_>>()?;
        Ok(Self {
            padding: Padding::of(&chats, context, settings)?,
            format: read.format.name(),
            template: (read.template.as_ref())
                .filter(|_| chats.counts().templated > 0)
                .map(|template| template.name().to_owned()),
            tokenizer: tokenizer.name().to_owned(),
            around: around(&tokenizer)?,
            train_on: settings.data.train_on.unwrap_or_default().name(),
            context,
            counts: chats.counts(),
            lengths: percentiles(chats.lengths()),
            rows,
            notes,
        })
    }

    /// The tokens that the tokenizer puts around a text, for people.
    fn adds(&self) -> String {
        let part = |place: &str, tokens: &str| match tokens {
            "" => format!("nothing {place}"),
            tokens => format!("{tokens} {place}"),
        };
        let [before, behind] = &self.around;
        let parts = [part("before", before), part("behind", behind)].join(", ");
        format!("{parts} a text; a template writes its own")
    }

    /// What there is to say of all rows: a name and a value each.
    fn facts(&self) -> Vec<(&'static str, String)> {
        let Counts { rows, tokens, trained, templated, merged, truncated, dropped } = self.counts;
        let share = 100.0 * trained as f64 / tokens.max(1) as f64;
        let lengths = self.lengths.iter().map(|(percent, most)| match percent {
            0 => format!("{most} shortest"),
            50 => format!("{most} median"),
            100 => format!("{most} longest"),
            percent => format!("{most} at {percent} %"),
        });
        let template = match &self.template {
            Some(name) if templated < rows => format!("{name}, of {templated} rows"),
            Some(name) => name.clone(),
            None => "none: rows are texts, put one after the other".to_owned(),
        };
        let mut facts = vec![
            ("rows", format!("{}, as {}", plural(rows, "row", "rows"), self.format)),
            ("template", template),
            ("tokenizer", self.tokenizer.clone()),
            ("adds", self.adds()),
            (
                "tokens",
                format!(
                    "{tokens}, of which {trained} ({share:.1} %) are trained on ({})",
                    self.train_on
                ),
            ),
            ("lengths", lengths.collect::<Vec<_>>().join(", ")),
        ];
        if merged > 0 {
            let rows = plural(merged, "row", "rows");
            let merged = format!(
                "the prompt of {rows} ends in other tokens before its completion than alone; trained on from the first of these"
            );
            facts.push(("merged", merged));
        }
        let context = self.context;
        let cut = format!("{truncated} cut to the context of {context} tokens, {dropped} left out");
        facts.push(("cut", cut));
        let Padding { apart, packed, in_buckets, buckets, batch } = &self.padding;
        let [apart, packed, in_buckets] = [apart, packed, in_buckets].map(|share| 100.0 * share);
        let lengths: Vec<String> = buckets.iter().map(ToString::to_string).collect();
        let padding = format!(
            "{apart:.1} % of the positions; {packed:.1} % with --packing; {in_buckets:.1} % with --buckets, in batches of {batch} and \
             {} of {} tokens",
            if buckets.len() == 1 { "sequences" } else { "lengths" },
            lengths.join(", ")
        );
        facts.push(("padding", padding));
        facts
    }

    /// For a terminal: trained tokens green where it's `coloured`, else in brackets.
    pub fn text(&self, coloured: bool) -> String {
        let mut text = String::new();
        for (name, value) in self.facts() {
            let _ = writeln!(text, "{name:<11}{}", plain::escaped(&value));
        }
        let [begin, end] = if coloured { ["\u{1b}[32m", "\u{1b}[0m"] } else { ["⟦", "⟧"] };
        for row in &self.rows {
            let _ = writeln!(text, "\n{}", plain::escaped(&row.heading()));
            for (part, trained) in &row.parts {
                let part = plain::escaped(part);
                text += &if *trained { format!("{begin}{part}{end}") } else { part.into_owned() };
            }
            text += "\n";
        }
        text
    }

    /// As one page that needs nothing else.
    pub fn html(&self) -> String {
        const STYLE: &str = include_str!("rows/rows.css");
        let mut body = String::new();
        for (name, value) in self.facts() {
            let _ = writeln!(body, "<dt>{name}</dt><dd>{}</dd>", escaped(&value));
        }
        body = format!("<dl>\n{body}</dl>\n");
        for row in &self.rows {
            let _ = write!(body, "<h2>{}</h2>\n<pre>", escaped(&row.heading()));
            for (part, trained) in &row.parts {
                let part = escaped(&plain::escaped(part));
                body += &if *trained { format!("<mark>{part}</mark>") } else { part };
            }
            body += "</pre>\n";
        }
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
             <title>{} rows</title>\n<style>\n{STYLE}</style>\n<h1>What is trained on</h1>\n\
             <p>Tokens that are trained on are <mark>marked</mark>.</p>\n{body}</html>\n",
            self.counts.rows
        )
    }

    /// As one object: `format, chat_template, tokenizer, adds_before, adds_behind, train_on, context`, counts of rows and tokens, `templated_rows`, `merged_rows`, `padding`, `padding_packed`,
    /// `padding_buckets` in batches padded to `buckets`, `lengths` and `shown`.
    pub fn json(&self) -> Value {
        let Counts { rows, tokens, trained, templated, merged, truncated, dropped } = self.counts;
        let shown = self.rows.iter().map(|row| {
            let parts =
                row.parts.iter().map(|(text, trained)| json!({ "text": text, "trained": trained }));
            json!({
                "row": row.number,
                "answer": row.answer,
                "tokens": row.tokens,
                "trained_tokens": row.trained,
                "uncut_tokens": row.length,
                "parts": parts.collect::<Vec<_>>(),
            })
        });
        let lengths =
            self.lengths.iter().map(|(percent, most)| (format!("p{percent}"), json!(most)));
        json!({
            "format": self.format,
            "chat_template": self.template,
            "tokenizer": self.tokenizer,
            "adds_before": self.around[0],
            "adds_behind": self.around[1],
            "train_on": self.train_on,
            "context": self.context,
            "rows": rows,
            "tokens": tokens,
            "trained_tokens": trained,
            "templated_rows": templated,
            "merged_rows": merged,
            "truncated_rows": truncated,
            "dropped_rows": dropped,
            "padding": self.padding.apart,
            "padding_packed": self.padding.packed,
            "padding_buckets": self.padding.in_buckets,
            "buckets": self.padding.buckets,
            "lengths": Value::Object(lengths.collect()),
            "shown": shown.collect::<Vec<_>>(),
        })
    }
}

impl Padding {
    /// That of rows in sequences of `context` tokens, by the batch, the seed and the lengths of the settings; lengths are chosen by the rows
    /// where the settings have one.
    fn of(chats: &Chats, context: usize, settings: &Settings) -> Result<Self> {
        let asked = settings.data.buckets.filter(|&count| count != BucketCount::ONE);
        let count = asked.unwrap_or(BucketCount::Auto);
        let batch = settings.train.batch.unwrap_or(defaults::BATCH);
        let apart = Sequences::new(chats.rows(), context, false)?;
        let grouped = apart.clone().in_buckets(count);
        Ok(Self {
            apart: apart.padding(),
            packed: Sequences::new(chats.rows(), context, true)?.padding(),
            in_buckets: grouped.padding_in_batches(batch, settings.train.seed)?,
            buckets: grouped.buckets().to_vec(),
            batch,
        })
    }
}

impl ShownRow {
    fn heading(&self) -> String {
        let Self { number, answer, length, tokens, trained, .. } = self;
        let answer = answer.map_or(String::new(), |answer| format!(", {answer}"));
        let cut = if length > tokens { format!(", cut from {length}") } else { String::new() };
        format!("row {number}{answer}: {tokens} tokens{cut}, {trained} trained on")
    }
}

/// The longest of each part of the rows that [`PERCENTILES`] names, by nearest rank.
fn percentiles(lengths: &[u32]) -> Vec<(usize, u32)> {
    let mut sorted = lengths.to_vec();
    sorted.sort_unstable();
    let of = |percent: usize| {
        let rank = (percent * sorted.len()).div_ceil(100).max(1);
        sorted.get(rank - 1).map(|&length| (percent, length))
    };
    PERCENTILES.into_iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_rows_that_are_there() {
        let found = percentiles(&[5, 1, 4, 2, 3]);
        assert_eq!(found, [(0, 1), (25, 2), (50, 3), (75, 4), (95, 5), (100, 5)]);
        assert_eq!(percentiles(&[]), []);
    }
}

//! Rows as token ids, and which of them are trained on.

use std::ops::Range;

use super::ChatTemplate;
use super::format::TrainOn;
use super::jinja::{MARKS, Rendered};
use super::row::{Conversation, Problem, Row, Turn};
use crate::Tokenizer;

/// A bit of a stored token that says that it's trained on. Ids are below it.
pub(super) const TRAINED: u32 = 1 << 31;

/// Turns of a conversation whose every prefix is rendered.
const FEW: usize = 16;

/// What rows are encoded by.
pub(super) struct Encoding<'a> {
    pub tokenizer: &'a Tokenizer,
    pub template: Option<&'a ChatTemplate>,
    /// Whether a template writes `prompt` and `completion` that are plain texts too.
    pub templated_texts: bool,
    pub train_on: TrainOn,
}

/// A row as tokens.
#[derive(Debug)]
pub(super) struct Sequence {
    /// Ids, with [`TRAINED`] on those that are trained on.
    pub tokens: Vec<u32>,
    /// True if tokens at the end of a plain prompt aren't those of the prompt alone.
    pub merged: bool,
}

impl Sequence {
    /// Trains a pair of answers to one prompt from the first token on that either is trained from.
    pub fn align(pair: &mut [Self]) {
        let first = |it: &Self| it.tokens.iter().position(|token| token & TRAINED != 0);
        let Some(start) = pair.iter().filter_map(first).min() else { return };
        for sequence in pair {
            let given = first(sequence).unwrap_or(start);
            sequence.tokens.iter_mut().take(given).skip(start).for_each(|token| *token |= TRAINED);
        }
    }
}

impl Encoding<'_> {
    /// The tokens of a row, with [`TRAINED`] on those that are trained on. The first is never one: nothing predicts it.
    ///
    /// # Errors
    /// A template that refuses the row, or that writes turns otherwise when others follow; a row without a trained token.
    pub fn tokens(&self, row: &Row) -> Result<Sequence, Problem> {
        let sequence = match row {
            Row::Messages(conversation) => self.by_spans(&self.rendered(conversation)?),
            Row::Plain { prompt, completion } => match self.template {
                Some(template) if self.is_templated(row) => {
                    let conversation = Conversation::of_texts(prompt, completion);
                    self.by_spans(&self.spans(&conversation, template)?)
                }
                _ => self.plain(prompt, completion),
            },
        }?;
        if sequence.tokens.iter().all(|token| token & TRAINED == 0) {
            return Err(match row {
                Row::Messages(chat) if chat.turns.iter().all(|turn| *turn != Turn::Assistant) => {
                    "it has no assistant turn to train on; remove it, or give --train-on all"
                        .to_owned()
                }
                _ => "it has no token to train on; remove it".to_owned(),
            });
        }
        Ok(sequence)
    }

    /// The tokens of a text, trained on where they overlap its parts.
    fn by_spans(&self, (text, trained): &(String, Vec<Range<usize>>)) -> Result<Sequence, Problem> {
        let all = self.train_on == TrainOn::All;
        let encoded = self.tokenizer.encode_spans(text, false);
        let encoded = encoded.map_err(|error| error.to_string())?;
        let mut spans = trained.iter().peekable();
        let (mut tokens, mut end) = (Vec::with_capacity(encoded.len()), 0);
        for (id, place) in encoded {
            // Some tokenizers cut spaces off every token's place, so that spaces alone have an empty one behind them.
            let spaces = place.is_empty() && place.start > end;
            let place = if spaces { end..place.start } else { place };
            end = end.max(place.end);
            while spans.next_if(|span| span.end <= place.start).is_some() {}
            let within = spans.peek().is_some_and(|span| {
                span.start < place.end && place.start < span.end && !place.is_empty()
            });
            let trained = !tokens.is_empty() && (all || within);
            tokens.push(id | if trained { TRAINED } else { 0 });
        }
        Ok(Sequence { tokens, merged: false })
    }

    /// The tokens of a prompt and a completion one after the other, trained on from where they part from those of the prompt alone: tokens
    /// may merge across the boundary.
    fn plain(&self, prompt: &str, completion: &str) -> Result<Sequence, Problem> {
        let text = format!("{prompt}{completion}{}", self.end_after(completion)?);
        let encode =
            |text: &str| self.tokenizer.encode_spans(text, true).map_err(|error| error.to_string());
        let (whole, alone) = (encode(&text)?, encode(prompt)?);
        let pairs = alone.iter().zip(&whole);
        let shared = pairs.take_while(|((one, _), (other, _))| one == other).count();
        // Tokens that the tokenizer adds behind a text aren't the prompt's.
        let merged = shared < alone.len() && {
            let [_, behind] = self.tokenizer.added().map_err(|error| error.to_string())?;
            shared + behind.len() < alone.len()
        };
        let all = self.train_on == TrainOn::All;
        let mark = |(place, (id, _)): (usize, (u32, Range<usize>))| {
            let trained = place > 0 && (all || place >= shared);
            id | if trained { TRAINED } else { 0 }
        };
        Ok(Sequence { tokens: whole.into_iter().enumerate().map(mark).collect(), merged })
    }

    /// Number of the `tokens` of a row before the assistant's first turn, if all are trained on: those that the template writes of the messages
    /// before it, with the generation prompt. 0 if the row doesn't begin so.
    pub fn question(&self, row: &Row, tokens: &[u32]) -> usize {
        let (TrainOn::All, Some(template)) = (self.train_on, self.template) else { return 0 };
        let of_texts;
        let chat = match row {
            Row::Messages(chat) => chat,
            Row::Plain { prompt, completion } if self.templated_texts => {
                of_texts = Conversation::of_texts(prompt, completion);
                &of_texts
            }
            Row::Plain { .. } => return 0,
        };
        let first = chat.turns.iter().position(|turn| *turn != Turn::Other).unwrap_or(0);
        let text = match first {
            0 => return 0,
            first => template.render(&chat.messages[..first], chat, true),
        };
        let ids = text.ok().and_then(|text| self.tokenizer.encode(&text).ok()).unwrap_or_default();
        let begins = tokens.iter().zip(&ids).all(|(token, id)| token & !TRAINED == *id);
        if begins && ids.len() < tokens.len() { ids.len() } else { 0 }
    }

    /// Returns `true` if the template writes a row.
    pub fn is_templated(&self, row: &Row) -> bool {
        match row {
            Row::Messages(_) => true,
            Row::Plain { .. } => self.templated_texts && self.template.is_some(),
        }
    }

    /// The text of a conversation, and the parts of it that are trained on, in bytes.
    fn rendered(&self, chat: &Conversation) -> Result<(String, Vec<Range<usize>>), Problem> {
        match self.template {
            Some(template) => self.spans(chat, template),
            None => {
                Err("the model has no chat template to write it by; name one with --chat-template"
                    .to_owned())
            }
        }
    }

    fn spans(
        &self,
        chat: &Conversation,
        template: &ChatTemplate,
    ) -> Result<(String, Vec<Range<usize>>), Problem> {
        // A prompt and its answer are written by the model's own template, as in TRL.
        let template = match self.train_on == TrainOn::Assistant && chat.whole {
            true => template.for_training(),
            false => template,
        };
        let Rendered { text: full, parts } = template.render_parts(&chat.messages, chat, false)?;
        if !template.writes_texts() {
            return Err("the chat template doesn't write what messages say as they say it: it reads lists of parts alone, or changes the text; \
                        name another with --chat-template"
                .to_owned());
        }
        if self.train_on == TrainOn::All && chat.turns.contains(&Turn::Given) {
            return Err("a message has a `weight` of 0, and every token is trained on; leave the weight or --train-on all out".to_owned());
        }
        let answers: Vec<usize> =
            (0..chat.turns.len()).filter(|&turn| chat.turns[turn] != Turn::Other).collect();
        let mut wanted: Vec<usize> =
            answers.iter().copied().filter(|&turn| chat.turns[turn] == Turn::Assistant).collect();
        if self.train_on == TrainOn::Last {
            wanted.retain(|turn| answers.last() == Some(turn));
        }
        if template.marks() {
            let (full, marked) = marked(&full)?;
            if marked.len() == answers.len() {
                let places = answers.iter().zip(marked);
                let wanted = places.filter(|(turn, _)| wanted.contains(turn));
                return Ok((full, wanted.map(|(_, place)| place).collect()));
            }
            let given = chat.turns.contains(&Turn::Given);
            return match self.train_on {
                TrainOn::Last if !given => {
                    Ok((full, marked.into_iter().next_back().into_iter().collect()))
                }
                _ if given => Err(format!(
                    "the chat template marks {} parts, and the assistant has {} turns; name another with --chat-template",
                    marked.len(),
                    answers.len()
                )),
                _ => Ok((full, marked)),
            };
        }
        if self.train_on == TrainOn::All {
            return Ok((full, Vec::new()));
        }
        let prefixes = Prefixes { chat, template, full: &full };
        let exact = |turns: &[usize]| -> Result<Vec<Option<Range<usize>>>, Problem> {
            turns.iter().map(|&turn| prefixes.span(turn)).collect()
        };
        // Every prefix is rendered of a short conversation. Of a long one that would take time with the square of its length.
        let few = wanted.len() <= FEW;
        let tried = match few {
            true => wanted.clone(),
            false => {
                let tried = [0, 1, wanted.len() / 2, wanted.len() - 2, wanted.len() - 1];
                tried.into_iter().map(|at| wanted[at]).collect()
            }
        };
        let found = exact(&tried)?;
        if few && let Some(spans) = found.iter().cloned().collect::<Option<Vec<_>>>() {
            return Ok((full, spans));
        }
        let written = prefixes.written(&wanted, &parts)?;
        let agrees = |turn: &usize, span: &Option<Range<usize>>| {
            let at = wanted.iter().position(|own| own == turn);
            span.is_none()
                || at.zip(written.as_ref()).is_some_and(|(at, all)| Some(&all[at]) == span.as_ref())
        };
        let agree = few || tried.iter().zip(&found).all(|(turn, span)| agrees(turn, span));
        match written {
            Some(spans) if agree => Ok((full, spans)),
            _ => {
                let spans = if few { found } else { exact(&wanted)? };
                let missing = spans.iter().position(Option::is_none);
                if let Some(at) = missing {
                    let turn = wanted[at];
                    return Err(self.not_nested(turn, turn + 1 == chat.messages.len()));
                }
                Ok((full, spans.into_iter().flatten().collect()))
            }
        }
    }

    fn not_nested(&self, turn: usize, last: bool) -> Problem {
        let next = match last || self.train_on == TrainOn::Last {
            true => "name another with --chat-template, such as chatml",
            false => "give --train-on last, or name another with --chat-template, such as chatml",
        };
        format!(
            "the chat template writes the first {} messages otherwise where others follow, so that the assistant's \
             turns can't be told apart; {next}",
            turn + 1
        )
    }

    /// What ends a plain text that doesn't end so already: the end-of-text token, or a newline where there is none to be had.
    fn end_after(&self, text: &str) -> Result<String, Problem> {
        let end = match (self.tokenizer, self.tokenizer.eos()) {
            (Tokenizer::Byte, _) => "\n".to_owned(),
            (_, None) => String::new(),
            (tokenizer, Some(end)) => {
                tokenizer.decode(&[end]).map_err(|error| error.to_string())?
            }
        };
        Ok(if text.ends_with(&end) { String::new() } else { end })
    }
}

/// A conversation and what its beginnings are rendered as.
struct Prefixes<'a> {
    chat: &'a Conversation,
    template: &'a ChatTemplate,
    full: &'a str,
}

impl Prefixes<'_> {
    fn render(&self, count: usize, prompt: bool) -> Result<String, Problem> {
        self.template.render(&self.chat.messages[..count], self.chat, prompt)
    }

    /// The bytes of an assistant's turn: from the prompt to it up to what follows; `None` where the template writes the messages before
    /// it, or the turn itself, otherwise where others follow.
    fn span(&self, turn: usize) -> Result<Option<Range<usize>>, Problem> {
        let full = self.full;
        let before = match self.render(turn, true) {
            // Templates that look at the first message refuse a conversation without one.
            Err(_) if turn == 0 => match self.up_to_the_first()? {
                Some(before) => before,
                None => return Ok(None),
            },
            before => before?,
        };
        let end = if turn + 1 == self.chat.messages.len() {
            full.len()
        } else {
            let through = self.render(turn + 1, false)?;
            let through = match full.starts_with(&through) {
                true => through.as_str(),
                // Some end every conversation with the end-of-text token.
                false => through.strip_suffix(self.template.eos()).unwrap_or(&through),
            };
            if !full.starts_with(through) {
                return Ok(None);
            }
            through.len()
        };
        Ok(full[..end].starts_with(&before).then_some(before.len()..end))
    }

    /// The text before the assistant's first words of a conversation that it begins: up to the first prompt to it. `None` where that isn't
    /// in the text.
    fn up_to_the_first(&self) -> Result<Option<String>, Problem> {
        let (through, asked) = (self.render(1, false)?, self.render(1, true)?);
        let prompt = asked.strip_prefix(&through).filter(|prompt| !prompt.is_empty());
        let found = prompt.and_then(|prompt| Some(self.full.find(prompt)? + prompt.len()));
        Ok(found.map(|end| self.full[..end].to_owned()))
    }

    /// The bytes of assistant's turns by what the template's loop over the messages wrote for each, without the prompt to it; `None` where
    /// it has no such loop, or begins turns otherwise than their prompts.
    fn written(
        &self,
        turns: &[usize],
        parts: &[(usize, Range<usize>)],
    ) -> Result<Option<Vec<Range<usize>>>, Problem> {
        let Some(&last) = turns.last() else { return Ok(Some(Vec::new())) };
        let mut by_message: Vec<Option<Range<usize>>> = vec![None; self.chat.messages.len()];
        for (message, part) in parts.iter().filter(|(_, part)| !part.is_empty()) {
            match by_message.get_mut(*message) {
                Some(place @ None) => *place = Some(part.clone()),
                _ => return Ok(None),
            }
        }
        // The prompt is what is asked for behind the messages before the last turn.
        let (before, asked) = (self.render(last, false), self.render(last, true));
        let (Ok(before), Ok(asked)) = (before, asked) else { return Ok(None) };
        let Some(prompt) = asked.strip_prefix(&before).filter(|prompt| !prompt.is_empty()) else {
            return Ok(None);
        };
        let mut spans = Vec::with_capacity(turns.len());
        for &turn in turns {
            let Some(part) = by_message[turn].clone() else { return Ok(None) };
            let text = &self.full[part.clone()];
            let shared = match text.starts_with(prompt) {
                true => prompt.len(),
                // A prompt may open the thoughts, which earlier turns lack. Its whole lines are shared.
                false => {
                    let alike =
                        text.bytes().zip(prompt.bytes()).take_while(|(a, b)| a == b).count();
                    match text.as_bytes()[..alike].iter().rposition(|&byte| byte == b'\n') {
                        Some(line) => line + 1,
                        None => return Ok(None),
                    }
                }
            };
            let end = if turn + 1 == self.chat.messages.len() { self.full.len() } else { part.end };
            spans.push(part.start + shared..end);
        }
        Ok(Some(spans))
    }
}

/// A text without its marks, and the parts between them.
fn marked(text: &str) -> Result<(String, Vec<Range<usize>>), Problem> {
    let mut plain = String::with_capacity(text.len());
    let (mut spans, mut begun) = (Vec::new(), None);
    for c in text.chars() {
        match (c, begun) {
            (c, None) if c == MARKS[0] => begun = Some(plain.len()),
            (c, Some(start)) if c == MARKS[1] => {
                spans.push(start..plain.len());
                begun = None;
            }
            (c, _) if MARKS.contains(&c) => {
                return Err(
                    "the parts that its chat template marks with {% generation %} overlap; name another with --chat-template"
                        .to_owned(),
                );
            }
            (c, _) => plain.push(c),
        }
    }
    match begun {
        None => Ok((plain, spans)),
        Some(_) => Err(
            "its chat template marks a part that doesn't end; name another with --chat-template"
                .to_owned(),
        ),
    }
}

//! Rows of preferences: a prompt with a chosen and a rejected answer.

use minijinja::Value;
use minijinja::value::ValueKind;

use super::format::RowFormat;
use super::row::{Conversation, Problem, Row, Turn, field, kind, present};

/// The names of the answers, the better one first.
pub const ANSWERS: [&str; 2] = ["chosen", "rejected"];

/// The conversations of a row: of preferences, that with the chosen and that with the rejected answer.
///
/// # Errors
/// As [`Row::read`] and [`preference`].
pub fn conversations(row: &Value, format: RowFormat) -> Result<Vec<Row>, Problem> {
    match format {
        RowFormat::Preference => preference(row).map(Vec::from),
        _ => Row::read(row, format).map(|row| vec![row]),
    }
}

/// A row's conversations: with the chosen and with the rejected answer, each of which is trained on from where the two part.
///
/// # Errors
/// What the row doesn't have, in words, and answers that are the same.
fn preference(row: &Value) -> Result<[Row; 2], Problem> {
    let begun = Conversation::of_row(row, RowFormat::Preference)?;
    let [chosen, rejected] = ANSWERS.map(|name| field(row, name));
    let answers = [chosen?, rejected?];
    if answers[0] == answers[1] {
        return Err("its `chosen` and its `rejected` answer are the same; remove it".to_owned());
    }
    let prompt = present(row, "prompt");
    if let [Some(chosen), Some(rejected)] = answers.each_ref().map(|answer| answer.as_str()) {
        return texts(begun, prompt.as_ref(), [chosen, rejected]);
    }
    if answers.iter().any(|answer| answer.kind() != ValueKind::Seq) {
        return Err(format!(
            "`chosen` is {} and `rejected` is {}; give two texts or two arrays of messages",
            kind(&answers[0]),
            kind(&answers[1])
        ));
    }
    let [chosen, rejected] =
        answers.each_ref().map(|answer| answer.try_iter().into_iter().flatten());
    let shared: Vec<Value> =
        chosen.zip(rejected).map_while(|(one, other)| (one == other).then_some(one)).collect();
    // Answers of several messages may begin alike, but a conversation that has a prompt doesn't begin with an answer.
    let whole = match (&prompt, shared.first()) {
        (None, _) => true,
        // Whole conversations repeat a prompt of messages; a text is that of their user.
        (Some(prompt), _) if prompt.kind() == ValueKind::Seq => {
            let given: Vec<Value> = prompt.try_iter().into_iter().flatten().collect();
            shared.starts_with(&given)
        }
        (Some(_), first) => first.is_some_and(|first| {
            present(first, "role").is_some_and(|role| role.as_str() != Some("assistant"))
        }),
    };
    if whole && shared.is_empty() {
        return Err("it has no `prompt`, and its `chosen` and `rejected` conversations don't begin with the same message; \
                    correct it or remove it"
            .to_owned());
    }
    let conversation = |index: usize| -> Result<Row, Problem> {
        let (name, answer) = (format!("`{}`", ANSWERS[index]), &answers[index]);
        let mut chat = match &prompt {
            Some(prompt) if !whole => prompted(begun.clone(), prompt)?,
            _ => begun.clone(),
        };
        chat = chat.with(&name, answer, false)?;
        if whole {
            let given = chat.turns.iter_mut().take(shared.len());
            given.filter(|turn| **turn == Turn::Assistant).for_each(|turn| *turn = Turn::Given);
        }
        Ok(Row::Messages(chat))
    };
    Ok([conversation(0)?, conversation(1)?])
}

/// Of answers that are texts.
fn texts(
    begun: Conversation,
    prompt: Option<&Value>,
    answers: [&str; 2],
) -> Result<[Row; 2], Problem> {
    let Some(prompt) = prompt else {
        let (prompt, answers) = parted(answers);
        if prompt.is_empty() {
            return Err("it has no `prompt`, and its `chosen` and `rejected` texts don't begin alike; correct it or remove it".to_owned());
        }
        return Ok(answers.map(|answer| Row::Plain {
            prompt: prompt.to_owned(),
            completion: answer.to_owned(),
        }));
    };
    if let Some(prompt) = prompt.as_str() {
        return Ok(answers.map(|answer| Row::Plain {
            prompt: prompt.to_owned(),
            completion: answer.to_owned(),
        }));
    }
    let prompted = prompted(begun, prompt)?;
    Ok(answers.map(|answer| {
        let mut chat = prompted.clone();
        chat.say("assistant", answer);
        Row::Messages(chat)
    }))
}

/// The prompt that two texts begin with, and the rest of each, as TRL's `extract_prompt` parts them: the space before what differs is the
/// answers', and of a text that the other begins with, the last character is.
fn parted(texts: [&str; 2]) -> (&str, [&str; 2]) {
    let pairs = texts[0].char_indices().zip(texts[1].chars());
    let alike = pairs.take_while(|((_, one), other)| one == other);
    let last = alike.last().map(|(last, _)| last);
    let mut end = last.map_or(0, |(at, one)| at + one.len_utf8());
    let ended = texts.iter().any(|text| text.len() == end);
    if let Some((at, _)) = last.filter(|&(_, one)| ended || one == ' ') {
        end = at;
    }
    (&texts[0][..end], texts.map(|text| &text[end..]))
}

/// A conversation that begins with a prompt: a text of the user's, or messages.
fn prompted(mut begun: Conversation, prompt: &Value) -> Result<Conversation, Problem> {
    match prompt.as_str() {
        None => begun.with("`prompt`", prompt, true),
        Some(text) => {
            begun.say("user", text);
            Ok(begun)
        }
    }
}

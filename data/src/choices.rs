//! Questions with several endings, of which one is right: the rows of HellaSwag and of ARC, written out as
//! lm-evaluation-harness (0.4) does.

use std::ops::ControlFlow;
use std::path::Path;

use minijinja::Value;
use minijinja::value::ValueKind;

use crate::bytes::Bytes;
use crate::chat::{Layout, Problem, field, kind, refused, text};
use crate::corpus::{named, unpacked};
use crate::{Error, Result, Scored, Tokenizer};

/// What both formats have, for messages.
const FORMATS: &str = "give HellaSwag's `ctx_a` with `endings` and `label`, or ARC's `question` with `choices` and `answerKey`";

/// A question and its endings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The file that it's from.
    pub file: String,
    /// Its row there, from 1.
    pub row: usize,
    /// What each ending is scored under; a space follows.
    pub context: String,
    /// What may follow: two or more.
    pub endings: Vec<String>,
    /// The one that is right.
    pub label: usize,
}

/// Reads the questions of JSON, JSONL or Parquet files, folders and globs.
///
/// # Errors
/// Files that can't be read or hold no rows, and a row of neither format, by its number.
pub fn questions<P: AsRef<Path>>(files: &[P]) -> Result<Vec<Question>> {
    let mut all = Vec::new();
    for file in named(files)? {
        let (path, before) = (&file.path, all.len());
        let name = path.display().to_string();
        let bytes = unpacked(&name, Bytes::open(path)?)?;
        let none = |problem: String| Error::RowFormat { name: name.clone(), problem };
        let Some((layout, _)) = Layout::of(path, &bytes) else {
            return Err(none(format!("it holds no rows of JSON or Parquet; {FORMATS}")));
        };
        layout.rows(&name, bytes, &mut |row, value| {
            let question = read(&value).map_err(|problem| refused(&name, row, problem))?;
            let (context, endings, label) = question;
            all.push(Question { file: name.clone(), row, context, endings, label });
            Ok(ControlFlow::Continue(()))
        })?;
        if all.len() == before {
            return Err(none(format!("it has no rows; {FORMATS}")));
        }
    }
    Ok(all)
}

impl Question {
    /// The tokens of the context and of each ending, of which the ending's are scored. White space at the end of the context belongs to
    /// the ending. An ending's tokens are those of both together behind as many as the context has by itself, as in
    /// lm-evaluation-harness.
    ///
    /// # Errors
    /// An ending without tokens of its own, and text that the tokenizer can't represent.
    pub fn rows(&self, tokenizer: &Tokenizer) -> Result<Vec<Scored>> {
        let endings = self.endings.iter().enumerate();
        endings.map(|(index, ending)| self.encoded(index, ending, tokenizer)).collect()
    }

    fn encoded(&self, index: usize, ending: &str, tokenizer: &Tokenizer) -> Result<Scored> {
        let context = self.context.trim_end_matches(is_white);
        let whole = format!("{} {ending}", self.context);
        let mut ids = tokenizer.encode_with_specials(context)?;
        let whole = tokenizer.encode_with_specials(&whole)?;
        let own = whole.get(ids.len()..).unwrap_or_default();
        let count = own.len();
        if ids.is_empty() || own.is_empty() {
            let what = if ids.is_empty() { "context has" } else { "ending has" };
            let problem =
                format!("ending {}: its {what} no token of its own; correct it", index + 1);
            return Err(refused(&self.file, self.row, problem));
        }
        ids.extend(own);
        Ok(Scored { ids, count })
    }
}

/// Context, endings and label.
type Parts = (String, Vec<String>, usize);
type Read<T> = std::result::Result<T, Problem>;

fn read(row: &Value) -> Read<Parts> {
    if row.kind() != ValueKind::Map {
        return Err(format!("it is {}, not an object; {FORMATS}", kind(row)));
    }
    let has = |key: &str| field(row, key).is_ok();
    if has("endings") {
        return hellaswag(row);
    }
    if has("question") {
        return arc(row);
    }
    Err(format!("it has no `endings` and no `question`; {FORMATS}"))
}

fn hellaswag(row: &Value) -> Read<Parts> {
    let [activity, first, second] = ["activity_label", "ctx_a", "ctx_b"].map(|key| text(row, key));
    let context = format!("{}: {} {}", activity?, first?, capitalized(&second?));
    let endings = texts(&field(row, "endings")?, "endings")?;
    let label = field(row, "label")?;
    // Published files have it as a text.
    let label = match label.as_str() {
        Some(text) => text.trim().parse().ok(),
        None => usize::try_from(label.clone()).ok(),
    };
    let label = label.ok_or("its `label` isn't the number of an ending; correct it")?;
    if label >= endings.len() {
        return Err(format!(
            "its `label` is {label}, and its endings are 0 to {}; correct it",
            endings.len() - 1
        ));
    }
    let endings = endings.iter().map(|ending| without_artefacts(ending)).collect();
    Ok((without_artefacts(&context), endings, label))
}

fn arc(row: &Value) -> Read<Parts> {
    let question = field(row, "question")?;
    // AI2's own files have the choices in the question.
    let (stem, choices) = match question.kind() {
        ValueKind::Map => (text(&question, "stem")?, field(&question, "choices")?),
        _ => (text(row, "question")?, field(row, "choices")?),
    };
    let (endings, labels) = match choices.kind() {
        ValueKind::Map => {
            let of = |key: &str| texts(&field(&choices, key)?, key);
            (of("text")?, of("label")?)
        }
        ValueKind::Seq => {
            let of = |key: &str| -> Read<Vec<String>> {
                choices.try_iter().into_iter().flatten().map(|choice| text(&choice, key)).collect()
            };
            (of("text")?, of("label")?)
        }
        _ => return Err(format!("its `choices` are {}; {FORMATS}", kind(&choices))),
    };
    if endings.len() < 2 || endings.len() != labels.len() {
        return Err(format!(
            "it has {} choices with {} labels; give two or more, each with one",
            endings.len(),
            labels.len()
        ));
    }
    let key = text(row, "answerKey")?;
    let label = labels.iter().position(|label| *label == key).ok_or_else(|| {
        format!("its `answerKey` is {key:?}, and its labels are {}; correct it", labels.join(", "))
    })?;
    Ok((format!("Question: {stem}\nAnswer:"), endings, label))
}

/// The texts of an array; two or more where they are endings.
fn texts(array: &Value, name: &str) -> Read<Vec<String>> {
    if array.kind() != ValueKind::Seq {
        return Err(format!("its `{name}` is {}, not an array of texts; correct it", kind(array)));
    }
    let texts = array.try_iter().into_iter().flatten().map(|value| {
        let text = value.as_str().map(str::to_owned);
        text.ok_or_else(|| {
            format!("its `{name}` holds {}, not texts alone; correct it", kind(&value))
        })
    });
    let texts: Vec<String> = texts.collect::<Read<_>>()?;
    if texts.len() < 2 {
        return Err(format!("its `{name}` has fewer than two texts; correct it"));
    }
    Ok(texts)
}

/// The first character in upper case, the others in lower case, as Python's `capitalize` has it.
fn capitalized(text: &str) -> String {
    let mut rest = text.chars();
    let Some(first) = rest.next() else { return String::new() };
    // Where upper case is several characters, title case is the first of them.
    let mut upper = first.to_uppercase();
    let begun = upper.next().into_iter().chain(upper.flat_map(char::to_lowercase));
    begun.collect::<String>() + &rest.as_str().to_lowercase()
}

/// Without what HellaSwag's rows have from WikiHow: `[title]` becomes a full stop, and other brackets go.
fn without_artefacts(text: &str) -> String {
    let text = text.trim_matches(is_white).replace(" [title]", ". ");
    let (mut kept, mut rest) = (String::with_capacity(text.len()), text.as_str());
    while let Some((before, after)) = rest.split_once('[') {
        kept += before;
        let line = after.split('\n').next().unwrap_or_default();
        match line.find(']') {
            Some(end) => rest = &after[end + 1..],
            None => {
                kept.push('[');
                rest = after;
            }
        }
    }
    (kept + rest).replace("  ", " ")
}

/// White space as Python's regular expressions and `strip` have it.
pub fn is_white(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Vec<Question>> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("rows.jsonl");
        std::fs::write(&file, text).unwrap();
        questions(&[file])
    }

    fn problem(text: &str) -> String {
        of(text).unwrap_err().to_string()
    }

    #[test]
    fn artefacts_go_as_in_the_harness() {
        for (text, expected) in [
            (
                "  How to knit [title] Get yarn. [step] Buy  some. ",
                "How to knit. Get yarn. Buy some.",
            ),
            ("a [b [c] d] e", "a d] e"),
            ("open [ stays\n] here", "open [ stays\n] here"),
            ("three   spaces", "three  spaces"),
        ] {
            assert_eq!(without_artefacts(text), expected, "{text:?}");
        }
    }

    #[test]
    fn capitals_are_those_of_python() {
        for (text, expected) in
            [("", ""), ("tHE End", "The end"), ("ßa", "Ssa"), ("ÉCOLE", "École")]
        {
            assert_eq!(capitalized(text), expected);
        }
    }

    #[test]
    fn rows_of_each_format_are_read() {
        let hellaswag = r#"{"activity_label": "Cooking", "ctx_a": "A man cuts bread.", "ctx_b": "he THEN", "ctx": "", "endings": ["eats it.", "[substeps] sings."], "label": "1"}"#;
        let arc = r#"{"question": "What is wet?", "choices": {"text": ["Water", "Sand"], "label": ["A", "B"]}, "answerKey": "A"}"#;
        let ai2 = r#"{"question": {"stem": "What is wet?", "choices": [{"text": "Sand", "label": "1"}, {"text": "Water", "label": "2"}]}, "answerKey": "2"}"#;
        let found = of(&[hellaswag, arc, ai2].join("\n")).unwrap();
        assert_eq!(found[0].context, "Cooking: A man cuts bread. He then");
        assert_eq!((&found[0].endings[1][..], found[0].label), (" sings.", 1));
        assert_eq!(found[1].context, "Question: What is wet?\nAnswer:");
        assert_eq!((found[1].row, found[1].label, found[2].label), (2, 0, 1));
        assert_eq!(found[2].endings, ["Sand", "Water"]);
        let rows = found[1].rows(&Tokenizer::Byte).unwrap();
        assert_eq!(rows[0].count, " Water".len());
        assert_eq!(rows[1].ids.len(), "Question: What is wet?\nAnswer: Sand".len());
    }

    #[test]
    fn white_space_at_the_end_of_a_context_belongs_to_the_ending() {
        let row = r#"{"activity_label": "A", "ctx_a": "b", "ctx_b": "", "endings": ["c", "d"], "label": 0}"#;
        let question = of(row).unwrap().remove(0);
        // The harness strips the context, so nothing is left at its end here.
        assert_eq!(question.context, "A: b");
        let spaced = Question { context: "A: b \n".to_owned(), ..question };
        assert_eq!(spaced.rows(&Tokenizer::Byte).unwrap()[0].count, " \n c".len());
    }

    /// The harness computes an ending's tokens from both together, and scores them behind those of the context alone.
    #[cfg(not(target_family = "wasm"))]
    #[test]
    fn a_token_that_spans_context_and_ending_is_as_in_the_harness() {
        let json = serde_json::json!({ "version": "1.0", "model": {
            "type": "BPE",
            "vocab": {"b": 0, " ": 1, "c": 2, " c": 3, "b c": 4},
            "merges": [[" ", "c"], ["b", " c"]],
        }});
        let tokenizer = Tokenizer::parse("t", json.to_string().as_bytes(), None).unwrap();
        let question = Question {
            file: String::new(),
            row: 1,
            context: "bb".to_owned(),
            endings: vec!["cc".to_owned()],
            label: 0,
        };
        let row = question.rows(&tokenizer).unwrap().remove(0);
        // "bb cc" is b, "b c", c.
        assert_eq!((row.ids, row.count), (vec![0, 0, 2], 1));
    }

    #[test]
    fn a_row_of_neither_format_is_refused_by_its_number() {
        let good = r#"{"question": "Q", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answerKey": "A"}"#;
        for (row, what) in [
            ("[1]", "it is an array"),
            (r#"{"text": "a"}"#, "no `endings` and no `question`"),
            (
                r#"{"activity_label": "A", "ctx_a": "b", "endings": ["c", "d"], "label": 0}"#,
                "no `ctx_b`",
            ),
            (
                r#"{"activity_label": "A", "ctx_a": "b", "ctx_b": "", "endings": ["c"], "label": 0}"#,
                "fewer than two",
            ),
            (
                r#"{"activity_label": "A", "ctx_a": "b", "ctx_b": "", "endings": ["c", "d"], "label": 2}"#,
                "`label` is 2",
            ),
            (
                r#"{"activity_label": "A", "ctx_a": "b", "ctx_b": "", "endings": ["c", "d"], "label": ""}"#,
                "isn't the number",
            ),
            (
                r#"{"question": "Q", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answerKey": "C"}"#,
                "A, B",
            ),
            (
                r#"{"question": "Q", "choices": {"text": ["a", "b", "c"], "label": ["A", "B"]}, "answerKey": "A"}"#,
                "3 choices with 2 labels",
            ),
            (r#"{"question": "Q", "choices": 3, "answerKey": "A"}"#, "a number"),
            (r#"{"question": {"stem": "Q"}, "answerKey": "A"}"#, "no `choices`"),
        ] {
            let message = problem(&format!("{good}\n{row}"));
            assert!(message.contains("row 2: ") && message.contains(what), "{row}: {message}");
        }
        assert!(problem("").contains("it has no rows"));
    }
}

//! Messages about settings: what is wrong, where it stands, what to do.

use std::fmt;
use std::ops::Range;

/// A setting that can't be used.
///
/// It prints as a message of one line and, where the place is known, the line of the file or the
/// command line with the wrong part marked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError {
    /// What is wrong, without a full stop.
    pub message: String,
    /// Where it stands.
    pub place: Option<Box<Place>>,
    /// What to do.
    pub help: String,
}

impl SettingsError {
    /// An error that stands in no file.
    pub fn new(message: String, help: &str) -> Self {
        Self { message, place: None, help: help.to_owned() }
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.place {
            Some(place) => write!(f, "\n{place}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for SettingsError {}

/// A part of one line of a settings file or of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// File, or `None` for the command line.
    pub file: Option<String>,
    /// Line, from 1.
    pub line: usize,
    /// First character of the part, from 1.
    pub column: usize,
    /// The whole line.
    text: String,
    /// Characters in the part, at least 1.
    width: usize,
}

impl Place {
    /// The part of `text` at the bytes `span`, up to the end of its first line. Spans outside
    /// `text` or inside a character are moved to the nearest one.
    pub fn new(file: Option<&str>, text: &str, span: Range<usize>) -> Self {
        let start = text.floor_char_boundary(span.start);
        let line_start = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |newline| start + newline);
        let end = text.floor_char_boundary(span.end).clamp(start, line_end);
        Self {
            file: file.map(str::to_owned),
            line: text[..start].matches('\n').count() + 1,
            column: text[line_start..start].chars().count() + 1,
            text: text[line_start..line_end].trim_end().to_owned(),
            width: text[start..end].trim_end().chars().count().max(1),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.file.as_ref().map_or_else(String::new, |_| self.line.to_string());
        let gutter = " ".repeat(number.len());
        match &self.file {
            Some(file) => writeln!(f, "{gutter} --> {file}:{}:{}", self.line, self.column)?,
            None => writeln!(f, "{gutter} --> command line")?,
        }
        // Tabs are repeated, so that the mark stands below its part at any tab width.
        let before = self.text.chars().take(self.column - 1);
        let indent: String = before.map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        writeln!(f, "{gutter} |")?;
        writeln!(f, "{number} | {}", self.text)?;
        write!(f, "{gutter} | {indent}{}", "^".repeat(self.width))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_characters_not_bytes() {
        let text = "a = 1\n\té = \"ü\"\r\nb";
        let start = text.find('"').unwrap();
        let place = Place::new(Some("f.toml"), text, start..start + 4);
        assert_eq!(place.to_string(), "  --> f.toml:2:6\n  |\n2 | \té = \"ü\"\n  | \t    ^^^");
    }

    #[test]
    fn any_span_is_safe() {
        let text = "é\nü";
        for start in 0..9 {
            for end in 0..9 {
                assert!(Place::new(None, text, start..end).to_string().contains('^'));
            }
        }
    }
}

//! Text from files and from other processes, as a terminal may show it: nothing in it moves the cursor, renames a window, or reorders what
//! stands beside it.

use std::borrow::Cow;

/// Characters of a line that [`brief`] keeps.
const LINE: usize = 2_000;
/// Lines that [`brief`] keeps.
const LINES: usize = 400;

/// Returns true if a terminal would obey a character instead of showing it. Line feeds and tabs are shown.
fn is_obeyed(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        // Marks and overrides of the direction of text.
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        // Line breaks that few programs know.
        '\u{2028}' | '\u{2029}' => true,
        c => c.is_control(),
    }
}

/// Returns the text with each character that a terminal would obey written out, as `\u{1b}`.
pub fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match is_obeyed(c) {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// Returns JSON on which a terminal acts no more than on [`escaped`] text. JSON itself escapes control characters of ASCII alone.
pub fn escaped_json(object: &serde_json::Value) -> String {
    let text = object.to_string();
    if !text.contains(is_obeyed) {
        return text;
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match is_obeyed(c) {
            // Such characters stand in strings alone, and none needs two units of UTF-16.
            true => shown += &format!("\\u{:04x}", u32::from(c)),
            false => shown.push(c),
        }
    }
    shown
}

/// Returns a message as [`escaped`], with at most 2,000 characters of a line and 400 lines. It says how much was left out.
pub fn brief(text: &str) -> Cow<'_, str> {
    let text = escaped(text);
    let is_long = |line: &str| line.len() > LINE && line.chars().nth(LINE).is_some();
    if text.lines().nth(LINES).is_none() && !text.lines().any(is_long) {
        return text;
    }
    let mut shown = String::new();
    for line in text.lines().take(LINES) {
        match line.char_indices().nth(LINE) {
            Some((end, _)) => {
                let left = line[end..].chars().count();
                shown += &format!("{} … ({left} more characters)\n", &line[..end]);
            }
            None => shown += &format!("{line}\n"),
        }
    }
    let left = text.lines().count().saturating_sub(LINES);
    if left > 0 {
        shown += &format!("… ({left} more lines)\n");
    }
    if !text.ends_with('\n') {
        shown.pop();
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_written_out() {
        for (text, shown) in [
            ("a\n\t\u{1b}[2Jé", "a\n\t\\u{1b}[2Jé"),
            ("\u{1b}]0;PWN\u{7}", "\\u{1b}]0;PWN\\u{7}"),
            ("a\rb\u{8}\0", "a\\rb\\u{8}\\u{0}"),
            ("\u{9b}31m\u{7f}", "\\u{9b}31m\\u{7f}"),
            ("\u{202e}txt.exe\u{2069}", "\\u{202e}txt.exe\\u{2069}"),
            ("\u{2028}", "\\u{2028}"),
            // Emoji of several parts and scripts from right to left are shown.
            ("👩\u{200d}🔬 שלום", "👩\u{200d}🔬 שלום"),
        ] {
            assert_eq!(escaped(text), shown);
        }
        assert!(matches!(escaped("plain"), Cow::Borrowed("plain")));
    }

    #[test]
    fn escaped_json_reads_as_what_it_was() {
        let object = serde_json::json!({ "\u{9b}key": "\u{1b}[2J\u{7f}\u{202e}é\u{2028}" });
        let text = escaped_json(&object);
        assert!(!text.contains(is_obeyed), "{text}");
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read, object);
    }

    #[test]
    fn long_messages_are_cut_and_say_so() {
        let keys = "é".repeat(300_000);
        let shown = brief(&keys);
        assert_eq!(shown.chars().filter(|c| *c == 'é').count(), LINE);
        assert!(shown.ends_with(" … (298000 more characters)"), "{shown}");
        let lines = "a\n".repeat(1_000);
        let shown = brief(&lines);
        assert_eq!(shown.lines().count(), LINES + 1);
        assert!(shown.ends_with("a\n… (600 more lines)\n"), "{shown}");
        for kept in ["", "a", "a\n", "a\n\nb"] {
            assert_eq!(brief(kept), kept);
        }
        let limits = format!("{}\n", "x".repeat(LINE)).repeat(LINES);
        assert_eq!(brief(&limits), limits);
    }
}

//! The card of a data set: the `README.md` of its folder, whose front matter of YAML describes columns and files.

/// Name of the file.
pub(crate) const FILE: &str = "README.md";

/// A line of YAML: its indentation, a `- ` included, and its text.
pub(crate) type Line<'a> = (usize, &'a str);

/// The lines of the front matter, without comments; `None` of a card that has none.
pub(crate) fn lines(card: &str) -> Option<Vec<Line<'_>>> {
    let front = card.strip_prefix("---")?;
    let (front, _) = front.split_once("\n---")?;
    Some(front.lines().filter_map(line).collect())
}

fn line(line: &str) -> Option<Line<'_>> {
    let text = line.trim_start();
    let text = text.strip_prefix("- ").unwrap_or(text);
    let indent = line.len() - text.len();
    (!text.is_empty() && !text.starts_with('#')).then(|| (indent, text.trim_end()))
}

/// A key and its value, which is empty where it follows on other lines.
pub(crate) fn pair(text: &str) -> Option<(&str, &str)> {
    let (key, value) = text.split_once(": ").or_else(|| Some((text.strip_suffix(':')?, "")))?;
    Some((unquoted(key)?, value.trim()))
}

/// A text without the quotes around it; `None` if it has an escape, which isn't read here.
pub(crate) fn unquoted(text: &str) -> Option<&str> {
    let within = |quote| text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote));
    let inner = within('\'').or_else(|| within('"')).unwrap_or(text);
    let escapes = inner.len() < text.len() && inner.contains(['\\', '\'', '"']);
    (!escapes).then_some(inner)
}

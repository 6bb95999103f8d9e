//! The declarations of a kernel's text that an entry reaches: drivers compile what they are given, used or not.

use std::collections::{HashMap, HashSet};

/// What `text` declares that `entry` uses, in its order and without comments. Bindings stay in any case.
pub fn reachable(text: &str, entry: &str) -> String {
    let declarations = declarations(text);
    let mut by_name: HashMap<&str, Vec<usize>> = HashMap::new();
    for (index, declaration) in declarations.iter().enumerate() {
        if let Some(name) = name(declaration) {
            by_name.entry(name).or_default().push(index);
        }
    }
    let mut kept = vec![false; declarations.len()];
    let mut open: Vec<usize> = vec![];
    let bound = declarations.iter().enumerate();
    open.extend(bound.filter(|(_, text)| text.starts_with("@group")).map(|(index, _)| index));
    open.extend(by_name.get(entry).into_iter().flatten());
    let mut seen: HashSet<&str> = HashSet::new();
    while let Some(index) = open.pop() {
        if std::mem::replace(&mut kept[index], true) {
            continue;
        }
        for word in words(&declarations[index]) {
            if seen.insert(word) {
                open.extend(by_name.get(word).into_iter().flatten());
            }
        }
    }
    let kept = declarations.iter().zip(kept).filter(|(_, kept)| *kept);
    kept.map(|(declaration, _)| format!("{declaration}\n")).collect()
}

/// Declarations at module scope, without comments.
fn declarations(text: &str) -> Vec<String> {
    let mut list = vec![];
    let (mut current, mut depth) = (String::new(), 0_usize);
    for line in text.lines() {
        let code = line.split("//").next().unwrap_or_default().trim_end();
        for character in code.chars() {
            current.push(character);
            match character {
                '{' | '(' => depth += 1,
                '}' | ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 && matches!(character, ';' | '}') {
                list.push(std::mem::take(&mut current).trim().to_owned());
            }
        }
        if !current.trim().is_empty() && !code.is_empty() {
            current.push('\n');
        }
    }
    list
}

/// Identifiers, keywords and numbers of a piece of text.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Name of what a declaration declares.
fn name(declaration: &str) -> Option<&str> {
    const KEYWORDS: [&str; 5] = ["fn", "const", "var", "struct", "alias"];
    // Attributes and address spaces stand in front of a name.
    const BESIDE: [&str; 5] = ["workgroup", "private", "storage", "uniform", "read_write"];
    let mut words = words(declaration).skip_while(|word| !KEYWORDS.contains(word));
    words.next()?;
    words.find(|word| !BESIDE.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
struct Params { n: u32, }
@group(0) @binding(0) var<storage, read_write> b0: array<f32>;
const SIZE: u32 = HALF * 2u; // of_a_comment
const HALF: u32 = 4u;
const UNUSED: u32 = 1u;
alias Part = vec4<f32>;
var<workgroup> parts: array<Part, SIZE>;

fn used(i: u32) -> f32 {
    if (i > 1u) { return 0.0; }
    return parts[i].x;
}

fn of_a_comment() { }

@compute @workgroup_size(HALF)
fn first(@builtin(local_invocation_index) thread: u32) { b0[thread] = used(thread); }

@compute @workgroup_size(1)
fn second() { of_a_comment(); }
";

    #[test]
    fn what_an_entry_uses_stays_and_nothing_else() {
        let text = reachable(TEXT, "first");
        for name in ["b0", "SIZE", "HALF", "Part", "parts", "used"] {
            assert!(text.contains(name), "{name} is gone:\n{text}");
        }
        for name in ["Params", "UNUSED", "of_a_comment", "second"] {
            assert!(!text.contains(name), "{name} stays:\n{text}");
        }
        assert!(text.contains("@compute @workgroup_size(HALF)\nfn first("));
        let text = reachable(TEXT, "second");
        assert!(text.contains("fn of_a_comment()") && !text.contains("Part"), "{text}");
    }
}

//! No files of a crate import each other in a circle: whoever reads one should not have to know the others first. A parent
//! module and those within it are the exception, as a parent is what its parts share.
//!
//! Imports are read as text. Paths from `crate`, `super` and `self` count, those from a name that was imported, and those
//! from a module within the file's own; each up to the last module that it names. Tests within a file don't count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Names from the root of a crate to a module; none for the root.
type Module = Vec<String>;

/// The text of every module.
type Texts = BTreeMap<Module, String>;

/// Crates that still have circles. One that has none any more leaves this list.
const CIRCULAR: &[&str] = &[];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate is inside the workspace")
}

/// Folders of the packages of the workspace.
fn members() -> Vec<String> {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("a manifest");
    let (_, rest) = manifest.split_once("members = [").expect("a list of members");
    let (list, _) = rest.split_once(']').expect("the list ends");
    let quoted = list.split(',').map(|item| item.trim().trim_matches('"').to_owned());
    quoted.filter(|member| !member.is_empty()).collect()
}

/// Adds the modules in a folder, which is that of `module`.
fn read(folder: &Path, module: &Module, texts: &mut Texts) {
    for entry in fs::read_dir(folder).expect("sources are readable") {
        let path = entry.expect("sources are readable").path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let within = [&module[..], std::slice::from_ref(&stem)].concat();
        if path.is_dir() {
            read(&path, &within, texts);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let is_parent = ["lib", "main", "mod"].contains(&stem.as_str());
            let text = fs::read_to_string(&path).expect("sources are readable");
            texts.insert(if is_parent { module.clone() } else { within }, text);
        }
    }
}

/// A file's text without comments and without its tests.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// Path and name of everything that a `use` names.
fn named(tree: &str, before: &[String], found: &mut Vec<(Vec<String>, String)>) {
    let tree = tree.trim();
    if let Some((path, list)) = tree.split_once('{') {
        let path: Vec<String> = [before, &segments(path)].concat();
        let list = list.trim_end().strip_suffix('}').unwrap_or(list);
        let (mut depth, mut start) = (0, 0);
        for (at, letter) in list.char_indices().chain([(list.len(), ',')]) {
            match letter {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    named(&list[start..at], &path, found);
                    start = list.len().min(at + 1);
                }
                _ => {}
            }
        }
    } else if !tree.is_empty() {
        let (path, alias) = tree.split_once(" as ").map_or((tree, None), |(p, a)| (p, Some(a)));
        let mut path = [before, &segments(path)].concat();
        path.pop_if(|last| last == "self");
        let last = path.last().cloned().unwrap_or_default();
        found.push((path, alias.map_or(last, |alias| alias.trim().to_owned())));
    }
}

fn segments(path: &str) -> Vec<String> {
    path.split("::").map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
}

/// Every path that a file names, from `crate`, `super` or `self`.
fn paths(module: &Module, text: &str, texts: &Texts) -> Vec<Vec<String>> {
    let code = code(text);
    let (mut uses, mut rest) = (vec![], String::new());
    let mut import = String::new();
    for line in code.lines() {
        let words = line.trim_start();
        let words = words.strip_prefix("pub(crate) ").unwrap_or(words);
        let words = words.strip_prefix("pub(super) ").unwrap_or(words);
        let words = words.strip_prefix("pub ").unwrap_or(words);
        if import.is_empty() && !words.starts_with("use ") {
            rest += line;
            rest.push('\n');
            continue;
        }
        import += if import.is_empty() { &words["use ".len()..] } else { words };
        if let Some(tree) = import.trim_end().strip_suffix(';') {
            named(tree, &[], &mut uses);
            import.clear();
        }
    }
    let imported: BTreeMap<&str, &Vec<String>> =
        uses.iter().map(|(path, name)| (name.as_str(), path)).collect();
    let is_path = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
    let inline = rest.split(|letter| !is_path(letter)).filter(|word| word.contains("::"));
    let mut paths: Vec<Vec<String>> = inline
        .map(|word| {
            let path = segments(word);
            match path.first().and_then(|first| imported.get(first.as_str())) {
                Some(known) => [known, &path[1..]].concat(),
                None => path,
            }
        })
        .collect();
    paths.extend(uses.iter().map(|(path, _)| path.clone()));
    let within =
        |name: &String| texts.contains_key(&[&module[..], std::slice::from_ref(name)].concat());
    for path in &mut paths {
        if path.first().is_some_and(within) {
            path.insert(0, "self".into());
        }
    }
    paths.retain(|path| {
        path.first().is_some_and(|first| ["crate", "super", "self"].contains(&first.as_str()))
    });
    paths
}

/// The module that a path of `module` leads to.
fn target(module: &Module, path: &[String], texts: &Texts) -> Module {
    let mut at = if path[0] == "crate" { vec![] } else { module.clone() };
    for name in path {
        match name.as_str() {
            "crate" | "self" => {}
            "super" => {
                at.pop();
            }
            _ => {
                at.push(name.clone());
                if !texts.contains_key(&at) {
                    at.pop();
                    break;
                }
            }
        }
    }
    at
}

/// Modules that import each other by however many others, each group with who imports whom in it.
fn circles(texts: &Texts) -> Vec<String> {
    let mut imports: BTreeMap<&Module, BTreeSet<Module>> = BTreeMap::new();
    for (module, text) in texts {
        let targets = paths(module, text, texts).into_iter();
        let targets = targets.map(|path| target(module, &path, texts));
        // What a module takes from one that it's in is the exception.
        let others = targets.filter(|target| !module.starts_with(target));
        imports.insert(module, others.collect());
    }
    let reached = |from: &Module| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(module) = next.pop() {
            next.extend(imports[module].iter().filter(|target| seen.insert((*target).clone())));
        }
        seen
    };
    let reached: BTreeMap<&Module, BTreeSet<Module>> =
        texts.keys().map(|module| (module, reached(module))).collect();
    let mut found = vec![];
    for (module, targets) in &imports {
        for target in targets.iter().filter(|target| reached[target].contains(*module)) {
            let name = |module: &Module| ["crate", &module.join("::")].join("::");
            found.push(format!("{} -> {}", name(module), name(target)));
        }
    }
    found
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let mut failed = vec![];
    let mut circular = vec![];
    for member in members() {
        let mut texts = Texts::new();
        read(&root().join(&member).join("src"), &vec![], &mut texts);
        let circles = circles(&texts);
        if CIRCULAR.contains(&member.as_str()) {
            circular.extend((!circles.is_empty()).then_some(member));
        } else {
            failed.extend(circles.into_iter().map(|circle| format!("{member}: {circle}")));
        }
    }
    assert_eq!(failed, [] as [String; 0], "move what both need to where neither is");
    circular.sort();
    assert_eq!(circular, CIRCULAR, "what has no circle any more leaves the list");
}

#[test]
fn circles_are_found_and_parents_are_no_circles() {
    let crate_of = |files: &[(&str, &str)]| -> Texts {
        files.iter().map(|(name, text)| (segments(name), text.to_string())).collect()
    };
    let parent = "mod a;\nmod b;\npub use a::A;\npub struct Shared;";
    let alone = crate_of(&[
        ("", parent),
        ("a", "use crate::Shared;\npub struct A;\n#[cfg(test)]\nmod tests { use crate::b::B; }"),
        ("b", "use super::Shared; // crate::a::A reads it\nuse super::a::A;\npub struct B(A);"),
    ]);
    assert_eq!(circles(&alone), [] as [String; 0]);
    for import in [
        "use crate::b::B;",
        "use super::{Shared, b::{self as other, B}};",
        "fn b() -> super::b::B { unreachable() }",
        "use crate::b;\nfn f() { b::make() }",
    ] {
        let mut texts = alone.clone();
        texts.insert(segments("a"), import.into());
        let found = circles(&texts);
        assert_eq!(found, ["crate::a -> crate::b", "crate::b -> crate::a"], "{import}");
    }
    // Through a third file, and through the part of a module.
    let through = crate_of(&[
        ("", "mod a;\nmod b;\nmod c;"),
        ("a", "mod part;\nuse part::P;"),
        ("a::part", "use crate::b::B;"),
        ("b", "use crate::c::C;"),
        ("c", "use crate::a::A;"),
    ]);
    assert_eq!(circles(&through).len(), 4);
}

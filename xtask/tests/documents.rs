//! What the documents promise is there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn document(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap()
}

/// Names of all functions that are marked, or listed, as tests.
fn tests_of(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let passed_over =
            name.starts_with('.') || name.starts_with("target") || name == "node_modules";
        if path.is_dir() && !passed_over {
            tests_of(&path, found);
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(&path).unwrap();
            for after in text.split("#[test]").skip(1) {
                let function = after.split_once("fn ").and_then(|(_, rest)| rest.split_once('('));
                found.extend(function.map(|(name, _)| name.to_owned()));
            }
            // A macro of a file makes several tests of each function that it lists.
            let lists = text.split("\ntests! {").skip(1).filter_map(|rest| rest.split('}').next());
            found.extend(lists.flat_map(str::split_whitespace).map(str::to_owned));
        } else if name.ends_with(".mjs") {
            let text = fs::read_to_string(&path).unwrap();
            let named =
                text.split("runner.test(\"").skip(1).filter_map(|rest| rest.split_once('"'));
            found.extend(named.map(|(name, _)| name.to_owned()));
        }
    }
}

/// Words between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn every_invariant_names_a_test_that_exists() {
    let table = document("docs/invariants.md");
    let mut tests = BTreeSet::new();
    tests_of(&root(), &mut tests);
    let mut invariants = 0;
    for line in table.lines().filter(|line| line.starts_with("| ") && !line.ends_with("| test |")) {
        let (_, cell) = line.trim_end_matches('|').trim_end().rsplit_once('|').unwrap();
        let named: Vec<&str> = quoted(cell).collect();
        assert!(!named.is_empty(), "no test holds: {line}");
        for name in named {
            assert!(tests.contains(name), "there is no test `{name}`: {line}");
        }
        invariants += 1;
    }
    assert!(invariants > 10, "{invariants}");
}

/// Documents at the root and under `docs`.
fn documents() -> Vec<PathBuf> {
    let folders = [root(), root().join("docs")];
    let entries = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

#[test]
fn links_lead_somewhere() {
    let documents = documents();
    assert!(documents.len() > 5, "{documents:?}");
    for path in documents {
        let text = fs::read_to_string(&path).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap_or_default();
            if !link.starts_with("http") {
                let found = path.parent().unwrap().join(file).exists();
                assert!(found, "{} links to {link}", path.display());
            }
        }
    }
}

#[test]
fn the_readme_opens_with_the_two_commands() {
    let readme = document("README.md");
    let (_, rest) = readme.split_once("```").unwrap();
    let (block, _) = rest.split_once("```").unwrap();
    let commands: Vec<&str> = block.lines().skip(1).collect();
    assert!(commands[0].starts_with("cargo run --release -- train"), "{block}");
    assert!(commands[1].starts_with("cargo xtask test"), "{block}");
}

//! Rules of the house that no compiler holds.

use std::fs;
use std::path::{Path, PathBuf};

const LINES: usize = 600;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate is inside the workspace")
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Rust sources under `folder`, build outputs and hidden folders apart.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![];
    for entry in fs::read_dir(folder).expect("the workspace is readable") {
        let entry = entry.expect("the workspace is readable");
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let skipped = name.starts_with('.') || name.starts_with("target") || name == "node_modules";
        if path.is_dir() && !skipped {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

#[test]
fn files_are_short() {
    let sources = sources(root());
    assert!(sources.len() > 20, "found only {sources:?}");
    let long: Vec<String> = sources
        .iter()
        .map(|path| (path, text(path).lines().count()))
        .filter(|&(_, lines)| lines > LINES)
        .map(|(path, lines)| format!("{} has {lines} lines", shown(path)))
        .collect();
    assert_eq!(long, [] as [String; 0], "at most {LINES}");
}

#[test]
fn core_and_models_have_no_unsafe_code() {
    for lib in ["core/src/lib.rs", "nn/src/lib.rs"] {
        let forbids = text(&root().join(lib)).contains("#![forbid(unsafe_code)]");
        assert!(forbids, "{lib} lacks #![forbid(unsafe_code)]");
    }
}

/// Threads of `spawn` panic where the system starts none: memory or a limit has run out.
#[test]
fn threads_that_the_system_refuses_are_no_panic() {
    let of_users = |path: &&PathBuf| {
        let parts = ["tests", "examples", "bench", "xtask", "tests.rs"];
        !path
            .strip_prefix(root())
            .is_ok_and(|path| path.iter().any(|part| parts.iter().any(|p| part == *p)))
    };
    let mut found = vec![];
    for path in sources(root()).iter().filter(of_users) {
        let text = text(path);
        let own = text.split("#[cfg(test)]").next().unwrap_or_default();
        let starts = |line: &&str| line.contains("scope.spawn(") || line.contains("thread::spawn(");
        found.extend(
            own.lines().filter(starts).map(|line| format!("{}: {}", shown(path), line.trim())),
        );
    }
    assert_eq!(found, [] as [String; 0], "tightrope_core::threads, or a Builder, in its place");
}

#[test]
fn nothing_is_left_to_do() {
    // In halves, or this file would find itself.
    let banned =
        [["to", "do!("], ["unimpl", "emented!("], ["db", "g!("]].map(|halves| halves.concat());
    let mut found = vec![];
    for path in sources(root()) {
        for (number, line) in text(&path).lines().enumerate() {
            if banned.iter().any(|word| line.contains(word)) {
                found.push(format!("{}:{}: {}", shown(&path), number + 1, line.trim()));
            }
        }
    }
    assert_eq!(found, [] as [String; 0]);
}

/// The version in the first heading `## [1.2.3]` of a changelog that isn't "Unreleased".
fn newest(changelog: &str) -> Option<&str> {
    changelog
        .lines()
        .filter_map(|line| line.strip_prefix("## ["))
        .filter_map(|heading| heading.split(']').next())
        .find(|version| !version.eq_ignore_ascii_case("unreleased"))
}

#[test]
fn the_changelog_is_up_to_date() {
    let path = root().join("CHANGELOG.md");
    if path.exists() {
        let changelog = text(&path);
        assert_eq!(newest(&changelog), Some(env!("CARGO_PKG_VERSION")), "CHANGELOG.md");
    }
}

#[test]
fn the_newest_version_is_found() {
    let changelog = "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-11-20\n\n## [0.1.0]\n";
    assert_eq!(newest(changelog), Some("0.2.0"));
    assert_eq!(newest("# Changelog\n"), None);
}

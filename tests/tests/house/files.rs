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

/// Files of others may be pipes, devices and links, or go on for gigabytes; one module knows.
#[test]
fn one_module_opens_files() {
    let opener = root().join("data/src/files.rs");
    let folders = ["core", "nn", "data", "engine", "cli", "python", "web"];
    let of_users = |path: &PathBuf| {
        let parts = ["tests", "tests.rs", "examples", "build.rs", "node_modules"];
        *path != opener && !path.iter().any(|part| parts.iter().any(|own| part == *own))
    };
    // Blanks are left out, so that a call over several lines is one too.
    let banned = [
        "File::open(",
        "File::create(",
        "File::create_new(",
        "File::options(",
        "fs::read(",
        "fs::read_to_string(",
        "fs::write(",
        "fs::copy(",
        "OpenOptions::new().read(true).open(",
        ").open(&path)",
        ").open(path)",
    ];
    let mut found = vec![];
    for path in folders.iter().flat_map(|folder| sources(&root().join(folder))).filter(of_users) {
        let text = text(&path);
        let own = text.split("\nmod tests {").next().unwrap_or_default();
        let code = own.lines().map(str::trim).filter(|line| !line.starts_with("//"));
        let code: String = code.flat_map(str::chars).filter(|c| !c.is_whitespace()).collect();
        let uses = banned.iter().filter(|banned| {
            let is_call = |(at, _): (usize, &str)| {
                // `MetricsFile::create(` is another one.
                let before = code[..at].chars().next_back();
                banned.starts_with(')') || before.is_none_or(|c| !c.is_alphanumeric())
            };
            code.match_indices(**banned).any(is_call)
        });
        found.extend(uses.map(|banned| format!("{}: {banned}", shown(&path))));
    }
    assert_eq!(found, [] as [String; 0], "tightrope_data::files, in its place");
}

/// Text of files and of other processes goes through `output`, which escapes it.
#[test]
fn the_command_prints_by_one_module() {
    let prints = ["println!(", "eprintln!(", "print!(", "eprint!("];
    let mut found = vec![];
    for path in sources(&root().join("cli/src")) {
        let text = text(&path);
        let own = text.split("#[cfg(test)]").next().unwrap_or_default();
        let printing = |line: &&str| prints.iter().any(|print| line.trim().starts_with(print));
        found.extend(
            own.lines().filter(printing).map(|line| format!("{}: {}", shown(&path), line.trim())),
        );
    }
    assert_eq!(found, [] as [String; 0], "cli's output::note, in its place");
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

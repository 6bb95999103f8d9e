//! Which stages passed with the files that they're about: those that take long and haven't changed are left out most days.
//!
//! `xtask/passed.tsv` has a line for each such stage: its name, a hash of its files, and the day on which it passed with them. A run in
//! which a stage passes with other files writes the line anew; it's committed with the change.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

use crate::shell::Draw;

/// What a stage that takes long is about.
#[derive(Clone, Copy)]
pub struct About {
    /// Files and folders that are its own, from the workspace's root.
    pub files: &'static [&'static str],
    /// It's run one day of so many even though they haven't changed: others' changes may break it too.
    pub days: u64,
}

/// What `xtask/passed.tsv` says, by stage.
pub struct Passed {
    file: PathBuf,
    /// The hash and the day.
    pub lines: BTreeMap<String, (String, String)>,
}

impl Passed {
    /// Reads the file of the workspace in `root`.
    ///
    /// # Errors
    /// Where there is none, and where a line isn't three words.
    pub fn read(root: &Path) -> anyhow::Result<Self> {
        let file = root.join("xtask").join("passed.tsv");
        let text =
            fs::read_to_string(&file).with_context(|| format!("can't read {}", file.display()))?;
        let mut lines = BTreeMap::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            let words: Vec<&str> = line.split('\t').collect();
            let [stage, hash, day] = words[..] else {
                anyhow::bail!("{}: `{line}` isn't a stage, a hash and a day", file.display());
            };
            lines.insert(stage.to_owned(), (hash.to_owned(), day.to_owned()));
        }
        Ok(Self { file, lines })
    }

    /// The day on which the stage passed with files of this hash, where it's known and the draw doesn't take the stage anyway.
    /// `place` is the stage's among all, so that not all are drawn on the same day.
    pub fn leaves_out(
        &self,
        (stage, place): (&str, u64),
        about: About,
        hash: &str,
        draw: Draw,
    ) -> Option<&str> {
        let (known, day) = self.lines.get(stage)?;
        (known == hash && !draw.takes_a_day_of(about.days, place)).then_some(day.as_str())
    }

    /// Writes that a stage passed with files of this hash today, unless that's known.
    ///
    /// # Errors
    /// Where the file can't be written.
    pub fn write(&mut self, stage: &str, hash: &str) -> anyhow::Result<()> {
        if self.lines.get(stage).is_some_and(|(known, _)| known == hash) {
            return Ok(());
        }
        let date = Command::new("date").args(["-u", "+%F"]).output().context("can't start date")?;
        let day = String::from_utf8_lossy(&date.stdout).trim().to_owned();
        self.lines.insert(stage.to_owned(), (hash.to_owned(), day));
        let line = |(stage, (hash, day)): (&String, &(String, String))| {
            format!("{stage}\t{hash}\t{day}\n")
        };
        let text: String = self.lines.iter().map(line).collect();
        fs::write(&self.file, text).with_context(|| format!("can't write {}", self.file.display()))
    }
}

/// A hash of these files and folders of the workspace in `root` as they are now: of names and contents of what git tracks, and of what
/// it doesn't and doesn't ignore.
///
/// # Errors
/// Where git is missing or fails, and where a name has nothing behind it.
pub fn hash(root: &Path, files: &[&str]) -> anyhow::Result<String> {
    let mut names = String::new();
    for file in files {
        let words =
            ["ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate", "--"];
        let found = git(root, words.iter().chain([file]), "")?;
        // What is deleted and still tracked has no contents.
        let there = found.lines().filter(|name| root.join(name).is_file());
        let before = names.len();
        names.extend(there.flat_map(|name| [name, "\n"]));
        ensure!(names.len() > before, "there is no {file}");
    }
    let contents = git(root, &["hash-object", "--stdin-paths"], &names)?;
    let listed: String = names
        .lines()
        .zip(contents.lines())
        .map(|(name, hash)| format!("{hash} {name}\n"))
        .collect();
    Ok(git(root, &["hash-object", "--stdin"], &listed)?.trim().to_owned())
}

/// What git answers, given `input`.
fn git<'a>(
    root: &Path,
    words: impl IntoIterator<Item = &'a &'a str>,
    input: &str,
) -> anyhow::Result<String> {
    let mut git = Command::new("git");
    git.args(words).current_dir(root).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = git.spawn().context("can't start git")?;
    let mut stdin = child.stdin.take().context("git has an input")?;
    let input = input.to_owned();
    // It answers while it reads.
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "{git:?} failed with {}", output.status);
    writer.join().map_err(|_| anyhow::anyhow!("git's input broke"))??;
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("tightrope-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join("xtask")).unwrap();
        folder
    }

    #[test]
    fn a_hash_is_of_names_and_contents_tracked_or_not() {
        let folder = folder("hash");
        git(&folder, &["init", "--quiet"], "").unwrap();
        fs::write(folder.join("xtask/one"), "1").unwrap();
        let first = hash(&folder, &["xtask"]).unwrap();
        assert_eq!(hash(&folder, &["xtask/one"]).unwrap(), first);
        fs::write(folder.join("xtask/one"), "2").unwrap();
        let second = hash(&folder, &["xtask"]).unwrap();
        assert_ne!(second, first);
        fs::rename(folder.join("xtask/one"), folder.join("xtask/two")).unwrap();
        assert_ne!(hash(&folder, &["xtask"]).unwrap(), second);
        fs::write(folder.join(".gitignore"), "two\n").unwrap();
        assert!(hash(&folder, &["xtask"]).is_err(), "nothing is there that counts");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_stage_is_left_out_only_while_its_files_are_those_that_passed() {
        let folder = folder("passed");
        fs::write(folder.join("xtask/passed.tsv"), "").unwrap();
        let mut passed = Passed::read(&folder).unwrap();
        // A day that never comes, and every day.
        let [never, daily] = [u64::MAX, 1].map(|days| About { files: &[], days });
        let left_out = |passed: &Passed, about, hash, draw| {
            passed.leaves_out(("stage", 0), about, hash, draw).is_some()
        };
        assert!(!left_out(&passed, never, "a", Draw::Part));
        passed.write("stage", "a").unwrap();
        let passed = Passed::read(&folder).unwrap();
        assert!(left_out(&passed, never, "a", Draw::Part));
        assert!(!left_out(&passed, never, "b", Draw::Part));
        assert!(!left_out(&passed, never, "a", Draw::All));
        assert!(!left_out(&passed, daily, "a", Draw::Part));
        fs::write(folder.join("xtask/passed.tsv"), "stage a\n").unwrap();
        assert!(Passed::read(&folder).is_err());
        fs::remove_dir_all(folder).unwrap();
    }
}

//! What was checked on a device, kept on disk: one small file for each device.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tightrope_core::{Backend, KernelUse};
use tightrope_data::{files, limits};

use crate::machine;

/// A kernel that is wrong on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wrong {
    /// The variant that is left out for it; none where nothing stands in for the kernel.
    pub variant: Option<String>,
    /// The kernels that ran.
    pub kernels: Vec<String>,
    /// Hashes of their texts: other texts may be right.
    texts: BTreeSet<u64>,
    /// The op that they ran for, and its types.
    pub op: String,
    /// What it did.
    pub reason: String,
}

impl Wrong {
    /// Of these kernels, which ran for `op`.
    pub fn new(variant: Option<&str>, kernels: &[KernelUse], op: String, reason: String) -> Self {
        Self {
            variant: variant.map(str::to_owned),
            kernels: kernels.iter().map(|kernel| kernel.label.clone()).collect(),
            texts: kernels.iter().map(|kernel| kernel.text).collect(),
            op,
            reason,
        }
    }

    /// The sentence about it, for people.
    pub fn text(&self) -> String {
        let Self { kernels, op, reason, .. } = self;
        let kernels = kernels.join(", ");
        match &self.variant {
            Some(variant) => format!("{variant} is left out: {kernels} for {op}: {reason}"),
            None => format!("{kernels} is wrong, and nothing stands in for it: {op}: {reason}"),
        }
    }
}

/// What is known of a device with one driver, one compiler and one set of kernels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Which.
    pub identity: String,
    /// Hashes of the texts of kernels that are right.
    passed: BTreeSet<u64>,
    /// What is wrong.
    pub wrong: Vec<Wrong>,
}

impl Record {
    /// Whether a kernel is known to be right.
    pub fn has(&self, kernel: &KernelUse) -> bool {
        self.passed.contains(&kernel.text)
    }

    /// Notes that kernels are right.
    pub fn pass(&mut self, kernels: &[KernelUse]) {
        self.passed.extend(kernels.iter().map(|kernel| kernel.text));
    }

    /// What is known to be wrong of these kernels, for which nothing stands in.
    pub fn unusable(&self, kernels: &[KernelUse]) -> Option<&Wrong> {
        self.wrong.iter().find(|wrong| {
            wrong.variant.is_none()
                && kernels.iter().any(|kernel| wrong.texts.contains(&kernel.text))
        })
    }
}

/// The folder with the records of devices.
#[derive(Clone, Debug)]
pub struct Records(Option<PathBuf>);

/// What begins the names of the files.
const PREFIX: &str = "checks-";

impl Records {
    /// Those in a folder; none are kept where there's none.
    pub fn in_folder(folder: Option<PathBuf>) -> Self {
        Self(folder)
    }

    fn file(&self, device: &str) -> Option<PathBuf> {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        let name: String = device.chars().map(plain).collect();
        let name: Vec<&str> = name.split('-').filter(|word| !word.is_empty()).collect();
        Some(self.0.as_ref()?.join(format!("{PREFIX}{}.json", name.join("-"))))
    }

    /// What is known of the device called `device`, where it's still the one that was checked. A file that can't be read is
    /// none.
    pub fn read(&self, device: &str, identity: &str) -> Record {
        let kept = self.file(device).and_then(|file| read(&file));
        let kept = kept.filter(|kept| kept.identity == identity);
        kept.unwrap_or_else(|| Record { identity: identity.to_owned(), ..Record::default() })
    }

    /// Keeps it. Where it can't be written, the device is checked again next time.
    pub fn write(&self, device: &str, record: &Record) {
        let Some(file) = self.file(device) else { return };
        let Ok(text) = serde_json::to_vec(record) else { return };
        // Renamed, so that nobody reads half a file.
        let own = file.with_extension(std::process::id().to_string());
        let folder = file.parent().map_or(Ok(()), fs::create_dir_all);
        let kept =
            folder.and_then(|()| files::write(&own, text)).and_then(|()| fs::rename(&own, file));
        if kept.is_err() {
            let _ = fs::remove_file(&own);
        }
    }

    /// Forgets the device called `device`.
    pub fn forget(&self, device: &str) {
        // One that isn't there is forgotten.
        let _ = self.file(device).map(fs::remove_file);
    }

    /// Those of all devices.
    pub fn all(&self) -> Vec<Record> {
        let entries = self.0.iter().filter_map(|folder| fs::read_dir(folder).ok());
        let mut files: Vec<PathBuf> = entries
            .flatten()
            .flatten()
            .filter(|entry| {
                let name = entry.file_name().to_string_lossy().into_owned();
                name.starts_with(PREFIX) && name.ends_with(".json")
            })
            .map(|entry| entry.path())
            .collect();
        files.sort();
        files.iter().filter_map(|file| read(file)).collect()
    }
}

fn read(file: &Path) -> Option<Record> {
    serde_json::from_slice(&files::read(file, limits::DESCRIPTION).ok()?).ok()
}

/// The records of this user.
pub(crate) fn records() -> Records {
    Records::in_folder(machine::cache_folder())
}

/// What was found wrong on devices of this user, for people: each with the device.
pub fn found() -> Vec<(String, Wrong)> {
    let of = |record: Record| {
        let identity = record.identity;
        record.wrong.into_iter().map(move |wrong| (identity.clone(), wrong))
    };
    records().all().into_iter().flat_map(of).collect()
}

/// Leaves out of a device what was found wrong on it, and says so.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub(crate) fn leave_out(device: &mut dyn Backend) -> Vec<String> {
    let name = device.name();
    let Some(variants) = device.variants() else { return vec![] };
    let record = records().read(&name, &variants.identity());
    let mut notes = vec![];
    for wrong in record.wrong {
        if let Some(variant) = &wrong.variant {
            variants.leave_out(variant);
            notes.push(format!("{name}: {}", wrong.text()));
        }
    }
    notes
}

/// Why a device isn't taken where there's a choice: a kernel of it that nothing stands in for.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub(crate) fn unusable(device: &mut dyn Backend) -> Option<String> {
    let name = device.name();
    let record = records().read(&name, &device.variants()?.identity());
    record.wrong.iter().find(|wrong| wrong.variant.is_none()).map(Wrong::text)
}

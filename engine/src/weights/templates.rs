//! Chat templates beside the weights. A checkpoint, which has no folders, holds those of `additional_chat_templates` in one file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use tightrope_data::{
    PACKED_TEMPLATES as PACKED, TEMPLATE_FILE, TEMPLATE_FOLDER, TemplateFiles, files, limits,
};

use super::Source;
use crate::error::{Error, Help as _, Result};
use crate::units::json_text;

const EXTENSION: &str = "jinja";
const HELP: &str = "fetch or copy the file again, or name another with --chat-template";

impl Source {
    /// The chat templates in files beside the weights: of a run on conversations, those that it was trained by.
    ///
    /// # Errors
    /// A file that can't be read, or that isn't UTF-8.
    pub fn chat_templates(&self) -> Result<TemplateFiles> {
        let Some(checkpoint) = &self.checkpoint else { return read_files(&self.dir) };
        let default = self.companion(TEMPLATE_FILE)?;
        let default =
            default.map(|bytes| text(&self.dir.join(TEMPLATE_FILE), bytes)).transpose()?;
        let others = match checkpoint.has(PACKED) {
            true => unpacked(&self.dir.join(PACKED), &checkpoint.extra(PACKED).help(HELP)?)?,
            false => BTreeMap::new(),
        };
        Ok(TemplateFiles { default, others })
    }
}

/// The chat templates in files of a model directory, or of a tokenizer's.
///
/// # Errors
/// A file that can't be read, or that isn't UTF-8.
pub(crate) fn read_files(dir: &Path) -> Result<TemplateFiles> {
    let file = dir.join(TEMPLATE_FILE);
    let default = file.exists().then(|| read(&file)).transpose()?;
    Ok(TemplateFiles { default, others: of_folder(&dir.join(TEMPLATE_FOLDER))? })
}

/// Names and contents of the files of a checkpoint that hold `templates`.
pub(crate) fn packed(templates: &TemplateFiles) -> Result<Vec<(String, Vec<u8>)>> {
    let default = templates.default.iter();
    let mut files: Vec<_> =
        default.map(|text| (TEMPLATE_FILE.to_owned(), text.clone().into_bytes())).collect();
    if !templates.others.is_empty() {
        let others = serde_json::to_value(&templates.others).help("report it")?;
        files.push((PACKED.to_owned(), json_text(&others)?));
    }
    Ok(files)
}

/// Replaces [`PACKED`] in `files` by the files of a model directory that it holds.
///
/// # Errors
/// A file that isn't texts by names of files.
pub(crate) fn unpack(files: &mut BTreeMap<String, Vec<u8>>) -> Result<()> {
    let Some(bytes) = files.remove(PACKED) else { return Ok(()) };
    for (name, text) in unpacked(Path::new(PACKED), &bytes)? {
        files.insert(format!("{TEMPLATE_FOLDER}/{name}.{EXTENSION}"), text.into_bytes());
    }
    Ok(())
}

fn unpacked(file: &Path, bytes: &[u8]) -> Result<BTreeMap<String, String>> {
    let refused = || format!("`{}` isn't chat templates by name", file.display());
    let templates: BTreeMap<String, String> =
        serde_json::from_slice(bytes).with_context(refused).help(HELP)?;
    // A name becomes one of a file.
    let is_name = |name: &String| !name.is_empty() && !name.contains(['/', '\\', ':', '\0']);
    match templates.keys().find(|name| !is_name(name)) {
        None => Ok(templates),
        Some(name) => Err(Error::failed(anyhow!("{}: {name:?} is no name", refused()), HELP)),
    }
}

/// Texts of the templates of a folder, by name; none where there is no folder.
fn of_folder(folder: &Path) -> Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    if !folder.is_dir() {
        return Ok(found);
    }
    let unreadable = || format!("can't read `{}`", folder.display());
    for entry in fs::read_dir(folder).with_context(unreadable).help(HELP)? {
        let path = entry.with_context(unreadable).help(HELP)?.path();
        let name = path.file_stem().and_then(|name| name.to_str()).map(str::to_owned);
        let is_template = path.extension().is_some_and(|extension| extension == EXTENSION);
        let Some(name) = name.filter(|_| is_template) else { continue };
        found.insert(name, read(&path)?);
    }
    Ok(found)
}

fn read(file: &Path) -> Result<String> {
    let bytes = files::read(file, limits::DESCRIPTION);
    text(file, bytes.with_context(|| format!("can't read `{}`", file.display())).help(HELP)?)
}

fn text(file: &Path, bytes: Vec<u8>) -> Result<String> {
    let text = String::from_utf8(bytes);
    text.with_context(|| format!("`{}` isn't UTF-8", file.display())).help(HELP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_of_a_checkpoint_become_files_of_a_folder() {
        let others = [("tool_use", "{{ tools }}"), ("rag", "r")];
        let others = others.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
        let templates = TemplateFiles { default: Some("d".to_owned()), others };
        let mut files: BTreeMap<String, Vec<u8>> =
            packed(&templates).unwrap().into_iter().collect();
        assert_eq!(files.keys().collect::<Vec<_>>(), [PACKED, TEMPLATE_FILE]);
        unpack(&mut files).unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join(TEMPLATE_FOLDER)).unwrap();
        for (name, bytes) in &files {
            fs::write(folder.path().join(name), bytes).unwrap();
        }
        assert_eq!(files[TEMPLATE_FILE], *b"d");
        assert_eq!(of_folder(&folder.path().join(TEMPLATE_FOLDER)).unwrap(), templates.others);
    }

    #[test]
    fn a_name_that_leads_elsewhere_is_refused() {
        for name in ["../rag", "/rag", "a\\b", "c:rag", ""] {
            let bytes = serde_json::to_vec(&serde_json::json!({ name: "r" })).unwrap();
            let error = unpack(&mut [(PACKED.to_owned(), bytes)].into()).unwrap_err();
            assert!(error.message().contains("is no name"), "{name}: {error:?}");
        }
    }
}

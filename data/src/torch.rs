//! `pytorch_model.bin`: the zip archives that `torch.save` writes, read without running anything that they say.
//!
//! An archive holds a pickle, `data.pkl`, which describes a dictionary of tensors, and the bytes of each tensor's storage, uncompressed.
//! The [pickle](pickle) is read by a list of what such a dictionary needs; anything else is refused by its name. Bytes stay in
//! the mapped file.

mod pickle;
mod zip;

use std::collections::HashMap;
use std::ops::Range;

use crate::entry::Entry;
use pickle::{Storage, Tensor};
use zip::Archive;

/// What to do about a file that isn't read.
const CONVERT: &str = "convert it to safetensors, with AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(NEW) in transformers";
/// How files of PyTorch before 1.6 begin: a pickle of a magic number.
const LEGACY: &[u8] = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";

/// The tensors of a file of `torch.save`.
///
/// # Errors
/// A file of another format or a damaged one, what isn't a dictionary of tensors, and tensors whose elements don't lie in order.
pub(crate) fn entries(bytes: &[u8]) -> Result<Vec<Entry>, String> {
    if bytes.starts_with(LEGACY) {
        return Err(format!("it has the format of PyTorch before 1.6; {CONVERT}"));
    }
    if bytes.starts_with(b"version https://git-lfs") {
        return Err("it's a pointer of Git LFS, and not the weights; fetch it again".to_owned());
    }
    let archive = Archive::read(bytes)
        .map_err(|problem| format!("{problem}; fetch it again, or {CONVERT}"))?;
    let mut pickles = archive.names().filter_map(|name| name.strip_suffix("/data.pkl"));
    let (Some(root), None) = (pickles.next(), pickles.next()) else {
        return Err(format!("it's a zip archive without one data.pkl in it; {CONVERT}"));
    };
    let order = format!("{root}/byteorder");
    if archive.has(&order) && &bytes[archive.checked(bytes, &order)?] != b"little" {
        return Err(format!("its bytes are in another order than little-endian; {CONVERT}"));
    }
    // A copy, which stays text whoever writes the file.
    let pickle = bytes[archive.checked(bytes, &format!("{root}/data.pkl"))?].to_vec();
    let tensors = pickle::tensors(&pickle).map_err(|problem| format!("{problem}; {CONVERT}"))?;
    let mut entries = Vec::with_capacity(tensors.len());
    // Tied weights share one.
    let mut storages: HashMap<&str, Range<usize>> = HashMap::new();
    for (name, tensor) in tensors {
        let key = tensor.storage.key;
        let range = match storages.get(key) {
            Some(range) => range.clone(),
            None => {
                let range = archive.checked(bytes, &format!("{root}/data/{key}"))?;
                storages.insert(key, range.clone());
                range
            }
        };
        let entry = placed(name, &tensor, &range);
        entries.push(entry.map_err(|problem| format!("tensor \"{name}\": {problem}; {CONVERT}"))?);
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    if let Some([twice, _]) = entries.array_windows().find(|[one, other]| one.name == other.name) {
        return Err(format!("it has two tensors called \"{}\"; {CONVERT}", twice.name));
    }
    Ok(entries)
}

/// Where the elements of a tensor are in the file, of whose bytes its storage has a `range`.
fn placed(name: &str, tensor: &Tensor<'_>, range: &Range<usize>) -> Result<Entry, String> {
    let Tensor { storage, offset, shape, strides } = tensor;
    let Storage { dtype, size, key, elements } = *storage;
    if elements.checked_mul(size) != Some(range.len()) {
        return Err(format!(
            "its storage `data/{key}` has {} bytes, and {elements} elements of {dtype} were written",
            range.len()
        ));
    }
    let mut count = 1_usize;
    for (&extent, &stride) in shape.iter().zip(strides).rev() {
        if extent > 1 && stride != count {
            return Err(format!(
                "it's a view whose elements don't lie in order (shape {shape:?}, strides {strides:?})"
            ));
        }
        count =
            count.checked_mul(extent).ok_or_else(|| format!("its shape {shape:?} overflows"))?;
    }
    let end = offset.checked_add(count).filter(|&end| end <= elements).ok_or_else(|| {
        format!("its {count} elements from {offset} on aren't in its storage of {elements}")
    })?;
    let (start, end) = (range.start + offset * size, range.start + end * size);
    Ok(Entry { name: name.to_owned(), dtype, shape: shape.clone(), start, end })
}

#[cfg(test)]
mod tests;

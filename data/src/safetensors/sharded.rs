//! A model's weights in one file, or in shards listed by `model.safetensors.index.json`; and in the files of `torch.save`.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::bitsandbytes::{self, Quantized};
use super::{SafeTensors, TensorView, missing};
use crate::bytes::Bytes;
#[cfg(not(target_family = "wasm"))]
use crate::torch;
use crate::{Error, Result, files, limits};

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const TORCH_SINGLE: &str = "pytorch_model.bin";
const TORCH_INDEX: &str = "pytorch_model.bin.index.json";

/// Tensors by name, whichever file each is in.
#[derive(Debug)]
pub struct Weights {
    files: Vec<SafeTensors>,
    /// File of each tensor, and its name there.
    places: BTreeMap<String, (usize, String)>,
    /// Weights that bitsandbytes quantized, and the same of the tensors that they're made of besides their codes.
    quantized: BTreeMap<String, Quantized>,
    parts: BTreeMap<String, (usize, String)>,
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Weights {
    /// Opens a safetensors file, a file of `torch.save` (`.bin`), an index of either (`.json`), or a folder with
    /// `model.safetensors`, `pytorch_model.bin` or the index of one in it. Safetensors come first.
    ///
    /// # Errors
    /// A folder with neither, a broken index, a shard outside the index' folder, a shard that is
    /// missing, broken, or lacks a tensor the index places in it.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        if path.is_dir() {
            let files = [SINGLE, INDEX, TORCH_SINGLE, TORCH_INDEX].map(|name| path.join(name));
            let found = files.iter().find(|file| file.exists());
            return Self::open_at(found.unwrap_or(&files[0]));
        }
        Self::open_at(path)
    }

    fn open_at(path: &Path) -> Result<Self> {
        match path.extension() {
            Some(extension) if extension == "json" => Self::open_index(path),
            _ => Self::open_single(path),
        }
    }

    fn open_single(path: &Path) -> Result<Self> {
        let file = open_file(path)?;
        let places = file.names().map(|name| (name.to_owned(), (0, name.to_owned()))).collect();
        Self::of_files(vec![file], places)
    }

    fn open_index(path: &Path) -> Result<Self> {
        let broken = |problem: String| Error::SafeTensors { path: path.to_owned(), problem };
        let text = files::read(path, limits::DESCRIPTION).map_err(Error::io("read", path))?;
        let Index { weight_map } = serde_json::from_slice(&text)
            .map_err(|e| broken(format!("its index cannot be read ({e}); fetch it again")))?;
        if weight_map.is_empty() {
            return Err(broken("its index lists no tensor; fetch it again".to_owned()));
        }
        let mut files: Vec<SafeTensors> = Vec::new();
        let mut opened = BTreeMap::new();
        let mut places = BTreeMap::new();
        for (tensor, shard) in weight_map {
            let index = match opened.get(&shard) {
                Some(&index) => index,
                None => {
                    if !is_file_name(&shard) {
                        return Err(broken(format!(
                            "it names the shard \"{shard}\", not a plain file name"
                        )));
                    }
                    files.push(open_file(&path.with_file_name(&shard))?);
                    opened.insert(shard, files.len() - 1);
                    files.len() - 1
                }
            };
            files[index].require(&tensor)?;
            places.insert(tensor.clone(), (index, tensor));
        }
        Self::of_files(files, places)
    }

    fn of_files(
        files: Vec<SafeTensors>,
        places: BTreeMap<String, (usize, String)>,
    ) -> Result<Self> {
        let none = BTreeMap::new();
        let mut all = Self { files, places, quantized: none, parts: BTreeMap::new() }.with_shared();
        // A browser's tab reads no weights that were quantized elsewhere.
        if cfg!(target_family = "wasm") {
            return Ok(all);
        }
        let get = |name: &str| all.at(all.places.get(name)?);
        let found = bitsandbytes::found(all.places.keys().map(String::as_str), &get);
        let (quantized, parts) = found.map_err(|(tensor, problem)| {
            let path = all.files.first().map_or_else(|| INDEX.into(), |it| it.path().to_owned());
            let problem = format!("it is quantized by bitsandbytes, and {problem}; fetch it again");
            Error::Tensor { path, tensor, problem }
        })?;
        let parts = parts.into_iter().filter_map(|name| all.places.remove_entry(&name));
        let parts = parts.collect();
        Ok(Self { quantized, parts, ..all })
    }

    fn at(&self, (index, name): &(usize, String)) -> Option<TensorView<'_>> {
        self.files[*index].get(name)
    }

    /// With the names of tensors that share another's elements: `save_model` of safetensors writes one of them, and the names of the others into
    /// the header's metadata.
    fn with_shared(mut self) -> Self {
        for (index, file) in self.files.iter().enumerate() {
            for (name, kept) in file.metadata() {
                if file.get(kept).is_some() {
                    self.places.entry(name.clone()).or_insert_with(|| (index, kept.clone()));
                }
            }
        }
        self
    }

    /// All names, sorted, those of shared tensors included. A weight that bitsandbytes quantized is one tensor.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.places.keys().map(String::as_str)
    }

    /// Whether bitsandbytes quantized some of them.
    pub fn is_quantized(&self) -> bool {
        !self.quantized.is_empty()
    }

    /// With the transposes of the quantized matrices whose names `is` picks: bitsandbytes stores those of GPT-2's `Conv1D` as (out, in).
    pub fn transposing(mut self, is: impl Fn(&str) -> bool) -> Self {
        let transpose = |(name, found): (String, Quantized)| {
            let found = if is(&name) { found.transposed() } else { found };
            (name, found)
        };
        self.quantized = self.quantized.into_iter().map(transpose).collect();
        self
    }

    /// The tensor called `name`.
    pub fn get(&self, name: &str) -> Option<TensorView<'_>> {
        let (name, place) = self.places.get_key_value(name)?;
        let codes = self.at(place)?;
        let Some(how) = self.quantized.get(name) else { return Some(codes) };
        let packed = how.packed(name, &|part| self.at(self.parts.get(part)?))?;
        Some(TensorView { packed: Some(packed), shape: how.shape(), dtype: how.dtype(), ..codes })
    }

    /// The tensor called `name`, or an error that says what there is instead.
    ///
    /// # Errors
    /// Where there is none.
    pub fn require(&self, name: &str) -> Result<TensorView<'_>> {
        self.get(name).ok_or_else(|| Error::Tensor {
            path: self.files.first().map_or_else(|| INDEX.into(), |file| file.path().to_owned()),
            tensor: name.to_owned(),
            problem: missing(self.names()),
        })
    }

    /// The files, in the order they were opened.
    pub fn files(&self) -> &[SafeTensors] {
        &self.files
    }
}

/// A file of either format. A page has no folders to read PyTorch's from.
fn open_file(path: &Path) -> Result<SafeTensors> {
    match path.extension() {
        #[cfg(not(target_family = "wasm"))]
        Some(extension) if extension == "bin" => {
            let bytes = Bytes::open(path)?;
            let entries = torch::entries(&bytes);
            let entries =
                entries.map_err(|problem| Error::Torch { path: path.to_owned(), problem })?;
            Ok(SafeTensors::of_ranges(path.to_owned(), bytes, entries))
        }
        _ => SafeTensors::open(path),
    }
}

/// Whether joining `name` to a folder stays in that folder, on every system.
pub(crate) fn is_file_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\\', ':', '\0'])
}

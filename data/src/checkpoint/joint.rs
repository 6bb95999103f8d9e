//! A checkpoint whose tensors several processes write, each its own ranges of the files, which are those that one process would write.
//!
//! One process makes the folder and the files in their full length ([`Begun`]). All write ([`Part::write`]) and then read back
//! ([`Part::check`]) a part of them. When each has said that its bytes are on the disk, the one publishes the folder. A process that doesn't
//! see the folder, or another one under its name, doesn't find the token in it: [`Part::open`] says so.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use tightrope_core::Type;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::fill::{describe, metadata, small, sums};
use super::save::{Folder, Saved, Unfinished, prune};
use super::{ADAPTERS, MODEL, Manifest, OPTIMIZER};
use crate::files::{create_new, open};
use crate::safetensors::header;
use crate::{Error, Result};

/// The file with the token, as long as the checkpoint isn't whole.
const TOKEN: &str = ".token";
/// Bytes that are read back at once.
const BUFFER: usize = 1 << 20;

/// A tensor of which each process writes some elements.
#[derive(Clone, Debug)]
pub struct CutTensor {
    /// Its name in the file.
    pub name: String,
    /// Dtype and shape.
    pub ty: Type,
    /// Elements that each process writes, ascending; together they are all of them.
    pub runs: Vec<Vec<Range<usize>>>,
}

/// The tensors of a checkpoint, cut among processes.
#[derive(Clone, Debug)]
pub struct Cuts {
    /// Whether the weights are adapters.
    pub adapters: bool,
    /// Weights.
    pub model: Vec<CutTensor>,
    /// Optimizer state.
    pub optimizer: Vec<CutTensor>,
}

/// A file of tensors.
struct Layout<'a> {
    name: &'static str,
    header: Vec<u8>,
    tensors: &'a [CutTensor],
}

impl Cuts {
    /// All tensors, in the order of the files.
    pub fn tensors(&self) -> impl Iterator<Item = &CutTensor> {
        self.model.iter().chain(&self.optimizer)
    }

    fn files(&self, folder: &Path) -> Result<[Layout<'_>; 2]> {
        let weights = if self.adapters { ADAPTERS } else { MODEL };
        let of = |name, tensors: &'_ [CutTensor]| {
            let listed = tensors.iter().map(|tensor| (&*tensor.name, &tensor.ty));
            header(&folder.join(name), listed, &metadata())
        };
        let [of_model, of_optimizer] = [of(weights, &self.model)?, of(OPTIMIZER, &self.optimizer)?];
        Ok([
            Layout { name: weights, header: of_model, tensors: &self.model },
            Layout { name: OPTIMIZER, header: of_optimizer, tensors: &self.optimizer },
        ])
    }
}

impl Layout<'_> {
    /// Each tensor with its bytes in the file.
    fn places(&self) -> impl Iterator<Item = (&CutTensor, Range<u64>)> {
        let mut end = self.header.len() as u64;
        self.tensors.iter().map(move |tensor| {
            let start = end;
            end += tensor.ty.bytes() as u64;
            (tensor, start..end)
        })
    }

    fn len(&self) -> u64 {
        self.places().last().map_or(self.header.len() as u64, |(_, place)| place.end)
    }
}

/// A checkpoint that is being written, in the process that publishes it. Its folder is removed where it isn't published.
pub struct Begun {
    unfinished: Unfinished,
}

impl Begun {
    /// Makes the folder of `checkpoints/step-N` under the run folder `root` with files of the length that they'll have, and the `token` by
    /// which the other processes know it.
    ///
    /// # Errors
    /// As [`save`](super::save).
    pub fn new(root: impl AsRef<Path>, step: u64, cuts: &Cuts, token: &str) -> Result<Self> {
        let unfinished = Unfinished::new(root.as_ref(), step)?;
        let folder = unfinished.path();
        for layout in cuts.files(folder)? {
            let path = folder.join(layout.name);
            let made = create_new(&path).and_then(|mut file| {
                file.write_all(&layout.header)?;
                file.set_len(layout.len())?;
                file.sync_all()
            });
            made.map_err(Error::io("write", &path))?;
        }
        small(&mut Folder, folder, TOKEN, token.as_bytes())?;
        Ok(Self { unfinished })
    }

    /// Where the files are until it's published.
    pub fn folder(&self) -> &Path {
        self.unfinished.path()
    }

    /// Writes the other files and gives the folder its name, as [`save`](super::save) does. `hashes` are those that [`Part::check`] gave, of all
    /// tensors.
    ///
    /// # Errors
    /// As [`save`](super::save), and another number of hashes than of tensors.
    pub fn publish(
        self,
        root: impl AsRef<Path>,
        manifest: Manifest,
        cuts: &Cuts,
        hashes: &[u64],
        extra: Vec<(String, Vec<u8>)>,
        keep: usize,
    ) -> Result<Saved> {
        let (folder, step) = (self.folder().to_owned(), manifest.step);
        let spared = manifest.evaluations.and_then(|it| it.kept());
        if hashes.len() != cuts.tensors().count() {
            let problem = format!("{} of its tensors were read back", hashes.len());
            return Err(Error::Checkpoint { path: folder, problem });
        }
        let mut checksums = BTreeMap::new();
        let mut hashes = hashes.iter();
        for layout in cuts.files(&folder)? {
            let tensors =
                layout.tensors.iter().map(|tensor| &*tensor.name).zip(hashes.by_ref().copied());
            checksums.extend(sums(layout.name, xxh3_64(&layout.header), tensors));
        }
        describe(&mut Folder, &folder, manifest, checksums, extra)?;
        let token = folder.join(TOKEN);
        std::fs::remove_file(&token).map_err(Error::io("remove", token))?;
        self.unfinished.publish(|folder| prune(folder, root.as_ref(), step, (keep, spared)))
    }
}

/// What one process writes of a checkpoint.
pub struct Part {
    folder: PathBuf,
    rank: usize,
    files: Vec<File>,
}

impl Part {
    /// Opens the files that [`Begun`] made in `folder`, in the process `rank`. `None` where it isn't there, or is another one.
    pub fn open(folder: &Path, token: &str, cuts: &Cuts, rank: usize) -> Option<Self> {
        // For writing alone: a network file system then sends no byte of a page that this process didn't write.
        let opened = |layout: Layout<'_>| {
            open(&folder.join(layout.name), OpenOptions::new().write(true)).ok()
        };
        let files = cuts.files(folder).ok()?.into_iter().map(opened).collect::<Option<_>>()?;
        // The files are opened first: another folder under this name, made later, has another token.
        let mut found = String::new();
        let file = open(&folder.join(TOKEN), OpenOptions::new().read(true)).ok()?;
        file.take(1 + token.len() as u64).read_to_string(&mut found).ok()?;
        (found == token).then(|| Self { folder: folder.to_owned(), rank, files })
    }

    /// Writes this process's elements of each tensor, which `write` is asked for by the tensor's index, and flushes them to the disk. Gives a
    /// hash of this process's bytes of each tensor.
    ///
    /// # Errors
    /// A full disk, any failed write, and another number of bytes than of elements.
    pub fn write(
        &mut self,
        cuts: &Cuts,
        mut write: impl FnMut(usize, &mut dyn Write) -> io::Result<()>,
    ) -> Result<Vec<u64>> {
        let mut hashes = Vec::new();
        for (layout, file) in cuts.files(&self.folder)?.iter().zip(&mut self.files) {
            let path = self.folder.join(layout.name);
            for (tensor, place) in layout.places() {
                let runs = ranges(tensor, self.rank, place.start).into_iter();
                let mut out = Scattered { file: &mut *file, runs, left: 0, hash: Xxh3::new() };
                write(hashes.len(), &mut out).map_err(Error::io("write", &path))?;
                if out.left > 0 || out.runs.next().is_some() {
                    let problem = "its payload has fewer bytes than its elements".to_owned();
                    return Err(Error::Tensor { path, tensor: tensor.name.clone(), problem });
                }
                hashes.push(out.hash.digest());
            }
            file.sync_all().map_err(Error::io("flush", &path))?;
        }
        Ok(hashes)
    }

    /// Reads back this process's part of the tensors, when all have written theirs: other ones than those it wrote. `written` are the hashes
    /// that [`Part::write`] gave each process. Gives a hash of all bytes of each of them, in their order: those of all processes, one after the
    /// other, are those of all tensors.
    ///
    /// # Errors
    /// A file that can't be read, and bytes that aren't those that a process wrote.
    pub fn check(&self, cuts: &Cuts, written: &[Vec<u64>]) -> Result<Vec<u64>> {
        let layouts = cuts.files(&self.folder)?;
        let all: u64 = cuts.tensors().map(|tensor| tensor.ty.bytes() as u64).sum();
        let (mut index, mut before, mut hashes) = (0, 0, vec![]);
        for layout in &layouts {
            let path = self.folder.join(layout.name);
            let mut file = None;
            for (tensor, place) in layout.places() {
                let (reader, bytes) = (reader(before, all, written.len()), place.end - place.start);
                before += bytes;
                if reader == self.rank {
                    let file = match &mut file {
                        Some(file) => file,
                        None => file.insert(
                            open(&path, OpenOptions::new().read(true))
                                .map_err(Error::io("read", &path))?,
                        ),
                    };
                    let (hash, of_ranks) = read_back(file, tensor, place, written.len())
                        .map_err(Error::io("read", &path))?;
                    let of = |written: &Vec<u64>| written.get(index).copied();
                    let differs = of_ranks
                        .iter()
                        .zip(written)
                        .position(|(found, written)| of(written) != Some(*found));
                    if let Some(rank) = differs {
                        let problem = format!("what is read isn't what rank {rank} wrote");
                        return Err(Error::Tensor { path, tensor: tensor.name.clone(), problem });
                    }
                    hashes.push(hash);
                }
                index += 1;
            }
        }
        Ok(hashes)
    }
}

/// Which of `count` processes reads a tensor back that has so many bytes of `all` before it: each about as many, in their order.
fn reader(before: u64, all: u64, count: usize) -> usize {
    (u128::from(before) * count as u128 / u128::from(all.max(1))) as usize
}

/// Bytes of the file that a process writes of a tensor, which begins at `start`.
fn ranges(tensor: &CutTensor, rank: usize, start: u64) -> Vec<Range<u64>> {
    let size = tensor.ty.dtype.size();
    let at = |element: usize| start + (element * size) as u64;
    let runs = tensor.runs.get(rank).into_iter().flatten();
    runs.filter(|run| !run.is_empty()).map(|run| at(run.start)..at(run.end)).collect()
}

/// Hashes of a tensor's bytes, and of those that each process wrote.
fn read_back(
    file: &mut File,
    tensor: &CutTensor,
    place: Range<u64>,
    count: usize,
) -> io::Result<(u64, Vec<u64>)> {
    let of_rank = |rank| ranges(tensor, rank, place.start).into_iter().map(move |run| (run, rank));
    let mut runs: Vec<(Range<u64>, usize)> = (0..count).flat_map(of_rank).collect();
    runs.sort_unstable_by_key(|(run, _)| run.start);
    let (mut whole, mut of_ranks) = (Xxh3::new(), vec![Xxh3::new(); count]);
    let mut buffer = vec![0; BUFFER.min((place.end - place.start) as usize)];
    file.seek(SeekFrom::Start(place.start))?;
    let (mut at, mut next) = (place.start, 0);
    while at < place.end {
        let bytes = (place.end - at).min(buffer.len() as u64);
        let piece = &mut buffer[..bytes as usize];
        file.read_exact(piece)?;
        whole.update(piece);
        let piece_end = at + bytes;
        while let Some((run, rank)) = runs.get(next).filter(|(run, _)| run.start < piece_end) {
            let (start, end) = (run.start.max(at), run.end.min(piece_end));
            of_ranks[*rank].update(&piece[(start - at) as usize..(end - at) as usize]);
            if run.end > piece_end {
                break;
            }
            next += 1;
        }
        at = piece_end;
    }
    Ok((whole.digest(), of_ranks.iter().map(Xxh3::digest).collect()))
}

/// Writes bytes one after the other into ranges of a file.
struct Scattered<'a, I> {
    file: &'a mut File,
    runs: I,
    /// Bytes that the current range still takes.
    left: u64,
    hash: Xxh3,
}

impl<I: Iterator<Item = Range<u64>>> Write for Scattered<'_, I> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.left == 0 && !bytes.is_empty() {
            let Some(run) = self.runs.next() else {
                let problem = "more bytes than the tensor's elements have";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
            };
            self.file.seek(SeekFrom::Start(run.start))?;
            self.left = run.end - run.start;
        }
        let count = bytes.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let count = self.file.write(&bytes[..count])?;
        self.hash.update(&bytes[..count]);
        self.left -= count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::tempdir;
    use tightrope_core::DType;

    use super::super::tests::manifest;
    use super::super::{Contents, MANIFEST, save};
    use super::*;
    use crate::safetensors::Tensor;

    const TOKEN_OF_TEST: &str = "5eed";

    /// Tensors with odd extents, and of no elements, which are cut in all ways: by chance, at the ends, and a whole one each.
    fn cuts(count: usize) -> Cuts {
        let tensor = |index: usize, name: &str, ty: Type| {
            let elements = ty.elements();
            let mut runs = vec![vec![]; count];
            let mut start = 0;
            while start < elements {
                let end = elements.min(start + 1 + (start * 7 + index * 3) % 11);
                runs[(start + index) % count].push(start..end);
                start = end;
            }
            CutTensor { name: name.to_owned(), ty, runs }
        };
        let large = Type::new(DType::F32, [700, 601]);
        Cuts {
            adapters: false,
            model: vec![
                tensor(0, "wte.weight", large.clone()),
                tensor(1, "odd", Type::new(DType::BF16, [3, 5, 7])),
                tensor(2, "none", Type::new(DType::F32, [0, 4])),
            ],
            optimizer: vec![
                tensor(3, "wte.weight.m", large),
                tensor(4, "one", Type::new(DType::U8, [1])),
            ],
        }
    }

    fn bytes(index: usize, tensor: &CutTensor) -> Vec<u8> {
        (0..tensor.ty.bytes()).map(|i| (i * 31 + index * 17 + i / 251) as u8).collect()
    }

    /// Gives the bytes of a process, in pieces that end anywhere.
    fn give(cuts: &Cuts, rank: usize) -> impl FnMut(usize, &mut dyn Write) -> io::Result<()> {
        let of = |(index, tensor): (usize, &CutTensor)| {
            let (all, size) = (bytes(index, tensor), tensor.ty.dtype.size());
            let own =
                tensor.runs[rank].iter().flat_map(|run| &all[run.start * size..run.end * size]);
            own.copied().collect::<Vec<u8>>()
        };
        let given: Vec<Vec<u8>> = cuts.tensors().enumerate().map(of).collect();
        move |index, out| given[index].chunks(977).try_for_each(|piece| out.write_all(piece))
    }

    fn extra() -> Vec<(String, Vec<u8>)> {
        vec![("config.json".to_owned(), b"{}".to_vec())]
    }

    fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
        let entries = fs::read_dir(folder).unwrap().flatten();
        let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
        entries.map(|entry| (name(&entry.path()), fs::read(entry.path()).unwrap())).collect()
    }

    #[test]
    fn its_files_are_those_of_one_process() {
        let root = tempdir().unwrap();
        let whole = cuts(1);
        let all: Vec<Vec<u8>> = whole.tensors().enumerate().map(|(i, t)| bytes(i, t)).collect();
        let of = |first: usize, tensors: &[CutTensor]| -> Vec<Tensor<'_>> {
            let each = tensors.iter().zip(&all[first..]);
            each.map(|(tensor, bytes)| {
                let bytes = bytes.clone();
                Tensor::streamed(&*tensor.name, tensor.ty.clone(), move |out| out.write_all(&bytes))
            })
            .collect()
        };
        let contents = Contents {
            model: of(0, &whole.model),
            optimizer: of(3, &whole.optimizer),
            extra: extra(),
        };
        let expected =
            files(&save(root.path().join("one"), manifest(7), contents, 2).unwrap().path);
        for count in 1..=5 {
            let (root, cuts) = (root.path().join(count.to_string()), cuts(count));
            let begun = Begun::new(&root, 7, &cuts, TOKEN_OF_TEST).unwrap();
            let folder = begun.folder();
            assert!(Part::open(folder, "another", &cuts, 0).is_none());
            let parts =
                (0..count).map(|rank| Part::open(folder, TOKEN_OF_TEST, &cuts, rank).unwrap());
            let mut parts: Vec<Part> = parts.collect();
            let written: Vec<Vec<u64>> = std::thread::scope(|scope| {
                let cuts = &cuts;
                let writes = parts.iter_mut().enumerate().map(|(rank, part)| {
                    scope.spawn(move || part.write(cuts, give(cuts, rank)).unwrap())
                });
                let writes: Vec<_> = writes.collect();
                writes.into_iter().map(|write| write.join().unwrap()).collect()
            });
            let hashes = parts.iter().flat_map(|part| part.check(&cuts, &written).unwrap());
            let hashes: Vec<u64> = hashes.collect();
            let saved = begun.publish(&root, manifest(7), &cuts, &hashes, extra(), 2).unwrap();
            let found = files(&saved.path);
            assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
            assert!(found == expected && found.contains_key(MANIFEST), "{count} processes");
        }
    }

    #[test]
    fn what_is_read_back_is_what_each_process_wrote() {
        let root = tempdir().unwrap();
        let cuts = cuts(2);
        let begun = Begun::new(root.path(), 7, &cuts, TOKEN_OF_TEST).unwrap();
        let open = |rank| Part::open(begun.folder(), TOKEN_OF_TEST, &cuts, rank).unwrap();
        let mut parts = [0, 1].map(open);
        let written = [0, 1].map(|rank| parts[rank].write(&cuts, give(&cuts, rank)).unwrap());
        let path = begun.folder().join(OPTIMIZER);
        let mut spoilt = fs::read(&path).unwrap();
        let last = spoilt.len() - 1;
        spoilt[last] ^= 1;
        fs::write(&path, spoilt).unwrap();
        assert!(parts[0].check(&cuts, &written).is_ok());
        let said = parts[1].check(&cuts, &written).unwrap_err().to_string();
        assert!(said.contains("\"one\"") && said.contains("isn't what rank 0 wrote"), "{said}");
        // A hash too few, from a process of another version.
        assert!(parts[1].check(&cuts, &[written[0].clone(), vec![]]).is_err());
        assert!(begun.publish(root.path(), manifest(7), &cuts, &[1, 2], extra(), 2).is_err());
    }

    #[test]
    fn one_that_is_not_published_leaves_nothing_and_writes_into_no_other() {
        let root = tempdir().unwrap();
        let cuts = cuts(1);
        let begun = Begun::new(root.path(), 7, &cuts, TOKEN_OF_TEST).unwrap();
        let folder = begun.folder().to_owned();
        let mut late = Part::open(&folder, TOKEN_OF_TEST, &cuts, 0).unwrap();
        let short = late.write(&cuts, |_, _| Ok(())).unwrap_err().to_string();
        assert!(short.contains("fewer bytes"), "{short}");
        let long =
            late.write(&cuts, |_, out| out.write_all(&[0; 1 << 22])).unwrap_err().to_string();
        assert!(long.contains("more bytes"), "{long}");
        drop(begun);
        assert!(!folder.exists());
        assert!(Part::open(&folder, TOKEN_OF_TEST, &cuts, 0).is_none());
        let next = Begun::new(root.path(), 7, &cuts, "another").unwrap();
        late.write(&cuts, give(&cuts, 0)).unwrap();
        let made = fs::read(next.folder().join(MODEL)).unwrap();
        let header = made.len() - cuts.model.iter().map(|tensor| tensor.ty.bytes()).sum::<usize>();
        assert!(made[header..].iter().all(|&byte| byte == 0), "written by a process of before");
    }
}

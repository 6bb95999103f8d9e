//! A checkpoint as one file: a tar archive (POSIX ustar) of its folder, for where there are no folders.
//!
//! The fields are written here and not by the crate `tar`, which would add 39 kB to the page's WebAssembly (15 kB with gzip), most of it for
//! links, extended headers and files on disk. A test holds that the system's `tar` reads what is written, and the other way round.

use std::collections::BTreeMap;
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::fill::{Sink, fill};
use super::{Contents, MANIFEST, Manifest};
use crate::bytes::Bytes;
use crate::{Error, Result};

/// Unit of an archive: a header takes one, a file's bytes as many as they need.
const BLOCK: usize = 512;
/// Ustar writes sizes in eleven octal digits.
const LARGEST: u64 = (1 << 33) - 1;

// Fields of a header.
const NAME: Range<usize> = 0..100;
const MODE: Range<usize> = 100..107;
const OWNER: Range<usize> = 108..115;
const GROUP: Range<usize> = 116..123;
const SIZE: Range<usize> = 124..135;
const MODIFIED: Range<usize> = 136..147;
const CHECKSUM: Range<usize> = 148..156;
const KIND: usize = 156;
const MAGIC: Range<usize> = 257..265;

/// An archive that is being written.
struct Tar {
    bytes: Vec<u8>,
}

impl Sink for Tar {
    fn file<T>(
        &mut self,
        path: &Path,
        name: &str,
        write: impl FnOnce(&mut dyn Write) -> Result<T>,
    ) -> Result<T> {
        let refuse = |problem: String| Error::Checkpoint { path: path.to_owned(), problem };
        if name.len() > NAME.len() {
            return Err(refuse("its name is too long for an archive; rename it".to_owned()));
        }
        let start = self.bytes.len();
        self.bytes.resize(start + BLOCK, 0);
        let result = write(&mut self.bytes)?;
        let size = self.bytes.len() - start - BLOCK;
        if size as u64 > LARGEST {
            return Err(refuse(format!("its {size} bytes are too many for an archive")));
        }
        self.bytes.resize(self.bytes.len().next_multiple_of(BLOCK), 0);
        let header = &mut self.bytes[start..start + BLOCK];
        header[..name.len()].copy_from_slice(name.as_bytes());
        octal(&mut header[MODE], 0o644);
        for field in [OWNER, GROUP, MODIFIED] {
            octal(&mut header[field], 0);
        }
        octal(&mut header[SIZE], size);
        header[KIND] = b'0';
        header[MAGIC].copy_from_slice(b"ustar\x0000");
        let sum = checksum(header);
        header[CHECKSUM].copy_from_slice(b"000000\0 ");
        octal(&mut header[CHECKSUM.start..CHECKSUM.start + 6], sum);
        Ok(result)
    }
}

/// Fills `field` with the octal digits of `value`.
fn octal(field: &mut [u8], mut value: usize) {
    for digit in field.iter_mut().rev() {
        *digit = b'0' + (value % 8) as u8;
        value /= 8;
    }
}

/// Sum of a header's bytes, its checksum counted as spaces.
fn checksum(header: &[u8]) -> usize {
    let sum: usize = header.iter().map(|&byte| usize::from(byte)).sum();
    let own: usize = header[CHECKSUM].iter().map(|&byte| usize::from(byte)).sum();
    sum - own + CHECKSUM.len() * usize::from(b' ')
}

/// The bytes of an archive of what [`super::save`] writes into a checkpoint's folder. Equal arguments give
/// equal bytes.
///
/// # Errors
/// As [`super::save`], the disk apart.
pub fn to_archive(manifest: Manifest, contents: Contents<'_>) -> Result<Vec<u8>> {
    let mut tar = Tar { bytes: Vec::new() };
    fill(&mut tar, Path::new(""), manifest, contents)?;
    // Two empty blocks end an archive.
    tar.bytes.resize(tar.bytes.len() + 2 * BLOCK, 0);
    Ok(tar.bytes)
}

/// The files of one folder of an archive: the one with the manifest.
pub(super) struct Archive {
    bytes: Arc<Bytes>,
    files: BTreeMap<String, Range<usize>>,
}

impl Archive {
    /// Finds the checkpoint in an archive that this module or any tar wrote; `path` is for messages.
    pub fn read(path: &Path, bytes: Bytes) -> Result<Self> {
        let broken = |problem: String| Error::Checkpoint { path: path.to_owned(), problem };
        let mut folders: BTreeMap<String, BTreeMap<String, Range<usize>>> = BTreeMap::new();
        let mut at = 0;
        while let Some(header) = bytes.get(at..at + BLOCK).filter(|block| block[0] != 0) {
            // A copy, which stays text whoever writes the file.
            let header = header.to_vec();
            let parsed = parse(&header)
                .ok_or_else(|| broken(format!("it is no tar archive, or damaged at byte {at}")))?;
            let start = at + BLOCK;
            let end = start.checked_add(parsed.size).filter(|&end| end <= bytes.len());
            let end = end.ok_or_else(|| {
                broken(format!("it is cut off in \"{}\"; fetch it again", parsed.name))
            })?;
            if parsed.is_file {
                let (folder, name) = parsed.name.rsplit_once('/').unwrap_or((".", &parsed.name));
                folders.entry(folder.to_owned()).or_default().insert(name.to_owned(), start..end);
            }
            at = end.next_multiple_of(BLOCK);
        }
        let mut with_manifest =
            folders.into_iter().filter(|(_, files)| files.contains_key(MANIFEST));
        let Some((_, files)) = with_manifest.next() else {
            return Err(broken(format!(
                "it holds no {MANIFEST}; pack a checkpoint: tar -cf FILE.tar -C RUN/checkpoints/step-N ."
            )));
        };
        if with_manifest.next().is_some() {
            return Err(broken(
                "it holds several checkpoints; pack one: tar -cf FILE.tar -C RUN/checkpoints/step-N ."
                    .to_owned(),
            ));
        }
        Ok(Self { bytes: Arc::new(bytes), files })
    }

    /// The bytes of a file, shared with the archive.
    pub fn get(&self, name: &str) -> Option<Bytes> {
        let range = self.files.get(name)?.clone();
        Some(Bytes::Part { whole: self.bytes.clone(), range })
    }
}

/// What a header says.
struct Parsed {
    name: String,
    size: usize,
    is_file: bool,
}

/// `None` where its checksum or a field isn't one.
fn parse(header: &[u8]) -> Option<Parsed> {
    let text = |field: Range<usize>| {
        let field = &header[field];
        let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
        std::str::from_utf8(&field[..end]).ok()
    };
    let number =
        |field: Range<usize>| usize::from_str_radix(text(field)?.trim_matches(' '), 8).ok();
    if number(CHECKSUM)? != checksum(header) {
        return None;
    }
    // Sizes beyond eleven digits are binary, with the highest bit set.
    let size = match header[SIZE.start] & 0x80 {
        0 => number(SIZE.start..SIZE.end + 1)?,
        _ => {
            let digits = header[SIZE.end + 1 - size_of::<u64>()..SIZE.end + 1].try_into().ok()?;
            usize::try_from(u64::from_be_bytes(digits)).ok()?
        }
    };
    // A kind of 0 is that of archives older than ustar.
    let is_file = matches!(header[KIND], b'0' | 0);
    Some(Parsed { name: text(NAME)?.to_owned(), size, is_file })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut tar = Tar { bytes: Vec::new() };
        for (name, bytes) in files {
            let write =
                |out: &mut dyn Write| out.write_all(bytes).map_err(Error::io("write", "memory"));
            tar.file(Path::new(name), name, write).unwrap();
        }
        tar.bytes.resize(tar.bytes.len() + 2 * BLOCK, 0);
        tar.bytes
    }

    fn read(bytes: Vec<u8>) -> Result<Archive> {
        Archive::read(Path::new("x.tar"), bytes.into())
    }

    #[test]
    fn files_of_the_folder_with_the_manifest_come_back() {
        let long = vec![7; 3 * BLOCK + 1];
        for folder in ["", "./", "step-7/", "run/checkpoints/step-7/"] {
            let (manifest, large) = (format!("{folder}manifest.json"), format!("{folder}large"));
            let bytes = tar(&[("elsewhere/large", b"other"), (&large, &long), (&manifest, b"{}")]);
            let archive = read(bytes).unwrap();
            assert_eq!(&*archive.get("manifest.json").unwrap(), b"{}");
            assert_eq!(&*archive.get("large").unwrap(), long);
            assert!(archive.get("absent").is_none());
        }
    }

    #[test]
    fn what_is_no_single_checkpoint_is_refused() {
        let two = tar(&[("a/manifest.json", b"{}"), ("b/manifest.json", b"{}")]);
        for (bytes, words) in [
            (two, "several checkpoints"),
            (tar(&[("config.json", b"{}")]), "no manifest.json"),
            (b"not an archive, ".repeat(64), "no tar archive"),
            (tar(&[("manifest.json", &[1; 600])])[..1000].to_vec(), "cut off"),
            (Vec::new(), "no manifest.json"),
        ] {
            let message = read(bytes).err().unwrap().to_string();
            assert!(message.contains(words), "{message}");
        }
    }

    #[test]
    fn the_systems_tar_reads_it_and_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.tar");
        std::fs::write(&path, tar(&[("manifest.json", b"{}"), ("b", &[5; 700])])).unwrap();
        let run = |words: &[&str]| {
            let status =
                std::process::Command::new("tar").args(words).current_dir(folder.path()).status();
            status.is_ok_and(|status| status.success())
        };
        std::fs::create_dir(folder.path().join("out")).unwrap();
        assert!(run(&["-xf", "x.tar", "-C", "out"]));
        assert_eq!(std::fs::read(folder.path().join("out/b")).unwrap(), [5; 700]);
        assert!(run(&["-cf", "y.tar", "-C", "out", "."]) && run(&["-cf", "z.tar", "out"]));
        for name in ["y.tar", "z.tar"] {
            let archive = read(std::fs::read(folder.path().join(name)).unwrap()).unwrap();
            assert_eq!(&*archive.get("b").unwrap(), [5; 700]);
        }
    }

    proptest! {
        #[test]
        fn mutated_archives_never_panic(at in 0usize..2048, byte in any::<u8>(), cut in 0usize..2560) {
            let mut bytes = tar(&[("manifest.json", b"{}"), ("b", b"abc")]);
            bytes[at] = byte;
            bytes.truncate(cut);
            let _ = read(bytes);
        }
    }
}

//! Token ids as files that [`Corpus::open`](crate::Corpus::open) reads without a tokenizer.

use std::fs;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use super::ids::{MAGIC_16, MAGIC_32, SHARD_HEADER};
use crate::{Error, Result, Tokens, files};

/// Ids that are read at once.
const BLOCK: usize = 1 << 16;

impl Tokens {
    /// Writes the ids into the new directory `dir`, as llm.c's shards of at most `most` ids each: `tokens-00000.bin` and so on,
    /// of 16 bits where `vocab` allows it and else of 32.
    ///
    /// # Errors
    /// A directory that isn't empty or can't be written, an id that isn't below `vocab`, and a corpus that can't be read any more.
    pub fn write_shards(&self, vocab: usize, dir: &Path, most: usize) -> Result<Vec<PathBuf>> {
        self.check_vocab(vocab)?;
        // A shard counts its ids in 31 bits.
        let most = most.clamp(1, i32::MAX as usize);
        fs::create_dir_all(dir).map_err(Error::io("create", dir))?;
        let mut found = fs::read_dir(dir).map_err(Error::io("read", dir))?;
        if found.next().is_some() {
            let problem = "it isn't empty; give --out a new directory".to_owned();
            return Err(Error::TokenIds { name: dir.display().to_string(), problem });
        }
        let mut files = Vec::new();
        for start in (0..self.len()).step_by(most) {
            let path = dir.join(format!("tokens-{:05}.bin", files.len()));
            self.write_shard(start, most.min(self.len() - start), vocab <= 1 << 16, &path)?;
            files.push(path);
        }
        Ok(files)
    }

    fn write_shard(&self, start: usize, count: usize, narrow: bool, path: &Path) -> Result<()> {
        let refused = |error| Error::io("write", path)(error);
        let mut file = BufWriter::new(files::create(path).map_err(refused)?);
        let mut header = [0_i32; SHARD_HEADER / 4];
        header[..3].copy_from_slice(&[if narrow { MAGIC_16 } else { MAGIC_32 }, 1, count as i32]);
        for word in header {
            file.write_all(&word.to_le_bytes()).map_err(refused)?;
        }
        let mut ids = vec![0; BLOCK.min(count)];
        for from in (start..start + count).step_by(BLOCK) {
            let ids = &mut ids[..(start + count - from).min(BLOCK)];
            self.read(from..from + ids.len(), ids)?;
            for id in ids {
                match narrow {
                    true => file.write_all(&(*id as u16).to_le_bytes()),
                    false => file.write_all(&id.to_le_bytes()),
                }
                .map_err(refused)?;
            }
        }
        file.flush().map_err(refused)
    }
}

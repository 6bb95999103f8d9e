//! A text that comes through a pipe, as token ids: read and encoded by a thread, a little ahead of who asks.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use crate::source::content;
use crate::{Error, Result, Tokenizer};

/// Bytes that are read at once.
const BLOCK: usize = 64 << 10;
/// Bytes without the end of a line that are encoded as they are.
const LONGEST_LINE: usize = 1 << 20;
/// Encoded blocks that may wait.
const AHEAD: usize = 8;

/// Token ids of a text that is read once, from its start. Each line is encoded by itself, and a line of more than 1 MiB in
/// parts.
pub struct Pipe {
    blocks: Receiver<Result<Vec<u32>>>,
    content: String,
    /// Ids that weren't forgotten, and the number of those that were.
    ids: VecDeque<i32>,
    forgotten: u64,
    ended: bool,
}

/// What [`Pipe::reach`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// All ids up to there are known.
    Yes,
    /// Not in this time.
    NotYet,
    /// The text ends before.
    Ended,
}

impl Pipe {
    /// Of `text`, called `name` in messages. Waits for its first bytes, which tell it from others.
    ///
    /// # Errors
    /// A text without a byte, and one that can't be read.
    pub fn new(
        name: &str,
        mut text: impl Read + Send + 'static,
        tokenizer: Arc<Tokenizer>,
    ) -> Result<Self> {
        let mut reader = Reader { name: name.to_owned(), rest: Vec::new(), read: 0 };
        let first = (&mut text).take(BLOCK as u64).read_to_end(&mut reader.rest);
        let ended = first.map_err(Error::io("read", name))? < BLOCK;
        if reader.rest.is_empty() {
            return Err(Error::NoTokens { name: name.to_owned(), tokens: 0 });
        }
        let content = content(&reader.rest);
        let (sender, blocks) = sync_channel(AHEAD);
        thread::Builder::new()
            .name("pipe".to_owned())
            .spawn(move || reader.encode(text, ended, &tokenizer, &sender))
            .map_err(Error::io("start a thread for", name))?;
        Ok(Self { blocks, content, ids: VecDeque::new(), forgotten: 0, ended: false })
    }

    /// A hash of the first bytes.
    pub fn content(&self) -> &str {
        &self.content
    }

    /// Ids that were read so far.
    pub fn known(&self) -> u64 {
        self.forgotten + self.ids.len() as u64
    }

    /// Waits at most `time` for more ids, until all below the number `end` are known.
    ///
    /// # Errors
    /// Text that isn't UTF-8, and a pipe that breaks.
    pub fn reach(&mut self, end: u64, time: Duration) -> Result<Reached> {
        while self.known() < end && !self.ended {
            match self.blocks.recv_timeout(time) {
                Ok(ids) => self.ids.extend(ids?.into_iter().map(u32::cast_signed)),
                Err(RecvTimeoutError::Timeout) => return Ok(Reached::NotYet),
                Err(RecvTimeoutError::Disconnected) => self.ended = true,
            }
        }
        Ok(if self.known() < end { Reached::Ended } else { Reached::Yes })
    }

    /// The ids from number `first` on; `None` where they were forgotten, or aren't known.
    pub fn ids(&self, first: u64, count: usize) -> Option<Vec<i32>> {
        let start = usize::try_from(first.checked_sub(self.forgotten)?).ok()?;
        let end = start.checked_add(count).filter(|end| *end <= self.ids.len())?;
        Some(self.ids.range(start..end).copied().collect())
    }

    /// Forgets ids below number `first`, as far as they are known.
    pub fn forget(&mut self, first: u64) {
        let count = first.saturating_sub(self.forgotten).min(self.ids.len() as u64);
        self.ids.drain(..count as usize);
        self.forgotten += count;
    }
}

/// What reads and encodes.
struct Reader {
    name: String,
    /// What was read and not encoded.
    rest: Vec<u8>,
    /// Bytes that were encoded.
    read: usize,
}

impl Reader {
    /// Reads what there is, or waits for it; whether the text has ended.
    fn read(&mut self, text: &mut impl Read) -> Result<bool> {
        let known = self.rest.len();
        self.rest.resize(known + BLOCK, 0);
        let read = loop {
            match text.read(&mut self.rest[known..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        self.rest.truncate(known + read.as_ref().unwrap_or(&0));
        Ok(read.map_err(Error::io("read", &self.name))? == 0)
    }

    /// Encodes until the text ends, or nobody asks any more.
    fn encode(
        mut self,
        mut text: impl Read,
        mut ended: bool,
        tokenizer: &Tokenizer,
        to: &SyncSender<Result<Vec<u32>>>,
    ) {
        loop {
            let block = self.encoded(ended, tokenizer);
            let broken = block.is_err();
            if to.send(block).is_err() || broken || ended {
                return;
            }
            match self.read(&mut text) {
                Ok(now) => ended = now,
                Err(error) => {
                    // Nobody may be there to hear of it.
                    let _ = to.send(Err(error));
                    return;
                }
            }
        }
    }

    /// The ids of whole lines, or of all where the text has `ended`.
    fn encoded(&mut self, ended: bool, tokenizer: &Tokenizer) -> Result<Vec<u32>> {
        let lines = self.rest.iter().rposition(|&byte| byte == b'\n').map(|last| last + 1);
        let end = match lines {
            _ if ended => self.rest.len(),
            Some(end) => end,
            None if self.rest.len() < LONGEST_LINE => return Ok(Vec::new()),
            None => self.whole_characters(),
        };
        let text = std::str::from_utf8(&self.rest[..end]).map_err(|error| Error::NotUtf8 {
            name: self.name.clone(),
            offset: self.read + error.valid_up_to(),
        })?;
        let mut ids = Vec::new();
        for line in text.split_inclusive('\n') {
            ids.extend(tokenizer.encode(line)?);
        }
        self.rest.drain(..end);
        self.read += end;
        Ok(ids)
    }

    /// Bytes without a last character that may not be whole.
    fn whole_characters(&self) -> usize {
        match std::str::from_utf8(&self.rest) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => self.rest.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    fn all(text: &[u8]) -> Result<Vec<i32>> {
        let mut pipe = Pipe::new("-", Cursor::new(text.to_vec()), Arc::new(Tokenizer::Byte))?;
        assert_eq!(pipe.reach(u64::MAX, SOON)?, Reached::Ended);
        Ok(pipe.ids(0, pipe.known() as usize).unwrap())
    }

    #[test]
    fn every_byte_comes_once_however_long_lines_are() {
        let long = "é".repeat(LONGEST_LINE);
        let lines = "a line\n".repeat(BLOCK);
        for text in ["x", "no end", lines.as_str(), long.as_str(), "a\n\nb"] {
            let ids: Vec<i32> = text.bytes().map(i32::from).collect();
            assert!(all(text.as_bytes()).unwrap() == ids, "{} bytes", text.len());
        }
        assert!(all(b"").is_err());
        let mut broken = lines.into_bytes();
        broken.extend([0xff, b'\n']);
        let said = all(&broken).unwrap_err().to_string();
        assert!(said.contains(&(broken.len() - 2).to_string()), "{said}");
    }

    #[test]
    fn what_is_forgotten_is_gone_and_the_rest_keeps_its_numbers() {
        let text: Vec<u8> = (0..100).map(|n| b'a' + n % 26).collect();
        let mut pipe = Pipe::new("-", Cursor::new(text), Arc::new(Tokenizer::Byte)).unwrap();
        assert_eq!(pipe.reach(50, SOON).unwrap(), Reached::Yes);
        let before = pipe.ids(30, 5).unwrap();
        pipe.forget(20);
        assert_eq!(pipe.ids(30, 5).unwrap(), before);
        assert_eq!((pipe.ids(19, 1), pipe.ids(99, 2)), (None, None));
        pipe.forget(1000);
        assert_eq!((pipe.known(), pipe.ids(99, 1)), (100, None));
    }
}

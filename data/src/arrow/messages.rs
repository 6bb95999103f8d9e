//! The messages of a stream, each within its bounds.

use arrow_ipc::{BodyCompression, Buffer, Endianness, Message, MessageHeader, root_as_message};

use crate::limits::Made;

/// The reason why a stream is refused.
type Problem = String;

/// First bytes of a message since version 0.15 of the format.
const CONTINUATION: &[u8] = &[0xff; 4];

/// A message, copied: the library reads lengths and texts that it has checked without another look, and a mapped file may
/// change meanwhile.
pub(super) struct Owned {
    header: Vec<u8>,
    pub body: Vec<u8>,
}

impl Owned {
    /// The header.
    ///
    /// # Errors
    /// Bytes that aren't one.
    pub fn message(&self) -> Result<Message<'_>, Problem> {
        root_as_message(&self.header).map_err(|_| "the header of a message is damaged".to_owned())
    }

    /// Refuses numbers in the other order of bytes, and counts what compressed buffers become.
    ///
    /// # Errors
    /// The reason why the message is refused.
    pub fn check(&self, unpacked: &mut Made) -> Result<(), Problem> {
        let message = self.message()?;
        let batch = match message.header_type() {
            MessageHeader::Schema => {
                let schema = message.header_as_schema();
                return match schema.is_some_and(|it| it.endianness() == Endianness::Big) {
                    true => Err("its numbers are big-endian, which isn't read".to_owned()),
                    false => Ok(()),
                };
            }
            MessageHeader::RecordBatch => message.header_as_record_batch(),
            MessageHeader::DictionaryBatch => {
                message.header_as_dictionary_batch().and_then(|batch| batch.data())
            }
            _ => None,
        };
        let Some(batch) = batch else { return Ok(()) };
        let compression: Option<BodyCompression> = batch.compression();
        let buffers = batch.buffers().into_iter().flatten();
        for buffer in buffers.filter(|_| compression.is_some()) {
            unpacked.add(self.length(buffer))?;
        }
        Ok(())
    }

    /// The length that a compressed buffer says that it becomes.
    fn length(&self, buffer: &Buffer) -> usize {
        let start = usize::try_from(buffer.offset()).unwrap_or(usize::MAX);
        let prefix = self.body.get(start..).and_then(|bytes| bytes.first_chunk());
        // -1 is a buffer that isn't compressed.
        prefix.map_or(0, |prefix| usize::try_from(i64::from_le_bytes(*prefix)).unwrap_or(0))
    }
}

/// The text that the schema of a stream, or of the stream in a file, has under `key`; `None` where it has none, or is damaged.
pub(crate) fn metadata(bytes: &[u8], key: &str) -> Option<String> {
    let head = Messages::of(bytes).next().ok()??;
    let pairs = head.message().ok()?.header_as_schema()?.custom_metadata()?;
    let pair = pairs.iter().find(|pair| pair.key() == Some(key))?;
    pair.value().map(str::to_owned)
}

/// The messages of a stream that are left.
pub(super) struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Messages<'a> {
    /// Messages of a stream, or of the stream in a file.
    pub fn of(bytes: &'a [u8]) -> Self {
        Self { rest: bytes.strip_prefix(super::MAGIC).unwrap_or(bytes) }
    }

    /// The next one; `None` at the end of the stream.
    ///
    /// # Errors
    /// A message that is cut off or damaged.
    pub fn next(&mut self) -> Result<Option<Owned>, Problem> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let start = self.rest.strip_prefix(CONTINUATION).unwrap_or(self.rest);
        let Some((length, rest)) = start.split_first_chunk() else { return Err(cut()) };
        // The end of a stream. The footer of a file comes behind it.
        let length = u32::from_le_bytes(*length) as usize;
        if length == 0 {
            return Ok(None);
        }
        let Some((header, rest)) = rest.split_at_checked(length) else { return Err(cut()) };
        let mut owned = Owned { header: header.to_vec(), body: Vec::new() };
        let length = owned.message()?.bodyLength();
        let length =
            usize::try_from(length).map_err(|_| "the header of a message is damaged".to_owned())?;
        let Some((body, rest)) = rest.split_at_checked(length) else { return Err(cut()) };
        owned.body = body.to_vec();
        self.rest = rest;
        Ok(Some(owned))
    }
}

fn cut() -> Problem {
    "it ends within a message".to_owned()
}

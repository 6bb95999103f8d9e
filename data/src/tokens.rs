//! A stream of token ids over several files, and views of it.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::bytes::Bytes;
use crate::{Error, Result};

/// Where a segment's ids are, and how wide they are.
pub(crate) enum Ids {
    /// Every byte is a token, from `skip` on (a byte-order mark).
    Text { bytes: Bytes, skip: usize },
    /// A shard of little-endian 16-bit ids behind a header of `skip` bytes.
    Shard16 { bytes: Bytes, skip: usize },
    /// The same with 32-bit ids.
    Shard32 { bytes: Bytes, skip: usize },
    /// Encoded in memory, ids below 2¹⁶.
    Memory16(Vec<u16>),
    /// Encoded in memory.
    Memory32(Vec<u32>),
}

impl Ids {
    pub fn len(&self) -> usize {
        match self {
            Self::Text { bytes, skip } => bytes.len() - skip,
            Self::Shard16 { bytes, skip } => (bytes.len() - skip) / 2,
            Self::Shard32 { bytes, skip } => (bytes.len() - skip) / 4,
            Self::Memory16(ids) => ids.len(),
            Self::Memory32(ids) => ids.len(),
        }
    }

    /// No id can reach this.
    fn bound(&self) -> u64 {
        match self {
            Self::Text { .. } => 1 << 8,
            Self::Shard16 { .. } | Self::Memory16(_) => 1 << 16,
            Self::Shard32 { .. } | Self::Memory32(_) => 1 << 32,
        }
    }

    /// Writes the ids from `from` on to `out`. One of 2³¹ and more comes out negative.
    fn fill(&self, from: usize, out: &mut [i32]) {
        let to = from + out.len();
        match self {
            Self::Text { bytes, skip } => copy(&bytes[skip + from..skip + to], out, |b| b.into()),
            Self::Shard16 { bytes, skip } => {
                let (words, _) = bytes[skip + 2 * from..skip + 2 * to].as_chunks();
                copy(words, out, |w| u16::from_le_bytes(w).into());
            }
            Self::Shard32 { bytes, skip } => {
                let (words, _) = bytes[skip + 4 * from..skip + 4 * to].as_chunks();
                copy(words, out, i32::from_le_bytes);
            }
            Self::Memory16(ids) => copy(&ids[from..to], out, i32::from),
            Self::Memory32(ids) => copy(&ids[from..to], out, u32::cast_signed),
        }
    }

    fn check_length(&self, name: &str) -> Result<()> {
        match self {
            Self::Text { bytes, .. }
            | Self::Shard16 { bytes, .. }
            | Self::Shard32 { bytes, .. } => bytes.check_length(name),
            Self::Memory16(_) | Self::Memory32(_) => Ok(()),
        }
    }
}

fn copy<T: Copy>(from: &[T], to: &mut [i32], convert: impl Fn(T) -> i32) {
    for (to, &from) in to.iter_mut().zip(from) {
        *to = convert(from);
    }
}

/// The ids of one file or document set.
pub(crate) struct Segment {
    pub name: String,
    pub ids: Ids,
}

/// Segments one after the other.
pub(crate) struct Stream {
    segments: Vec<Segment>,
    /// Position of the first token behind each segment.
    ends: Vec<usize>,
}

impl Stream {
    pub fn new(segments: Vec<Segment>) -> Self {
        let mut len = 0;
        let ends = segments
            .iter()
            .map(|segment| {
                len += segment.ids.len();
                len
            })
            .collect();
        Self { segments, ends }
    }

    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    pub fn len(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Fills `out` with the ids from `start` on; the range is inside the stream.
    fn read(&self, mut start: usize, mut out: &mut [i32]) -> Result<()> {
        let mut index = self.ends.partition_point(|&end| end <= start);
        while !out.is_empty() {
            let Segment { name, ids } = &self.segments[index];
            let offset = start - (self.ends[index] - ids.len());
            let count = out.len().min(ids.len() - offset);
            ids.check_length(name)?;
            let (head, tail) = out.split_at_mut(count);
            ids.fill(offset, head);
            if let Some(bad) = head.iter().position(|&id| id < 0) {
                return Err(Error::TokenRange {
                    name: name.clone(),
                    offset: offset + bad,
                    id: head[bad].cast_unsigned(),
                    vocab: i32::MAX as usize + 1,
                });
            }
            out = tail;
            start += count;
            index += 1;
        }
        Ok(())
    }
}

/// A contiguous part of a corpus' token stream. Cheap to clone; the files stay open behind it.
#[derive(Clone)]
pub struct Tokens {
    stream: Arc<Stream>,
    range: Range<usize>,
}

impl Tokens {
    pub(crate) fn new(stream: Arc<Stream>, range: Range<usize>) -> Self {
        Self { stream, range }
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Writes the ids at positions `range` of this view to `out`, which has the range's length.
    ///
    /// # Errors
    /// A range beyond the view or of another length than `out`; a file that has shrunk since it
    /// was opened; a 32-bit id of 2³¹ and more.
    pub fn read(&self, range: Range<usize>, out: &mut [i32]) -> Result<()> {
        if range.start > range.end || range.end > self.len() || range.len() != out.len() {
            return Err(Error::Setting {
                what: "token range",
                value: format!("{range:?} for a buffer of {}", out.len()),
                domain: "inside the stream, and as long as the buffer",
            });
        }
        self.stream.read(self.range.start + range.start, out)
    }

    /// Errors at the first id that is not below `vocab`, naming the file and the token's offset in
    /// it. Reads the whole view once, unless its ids are too narrow to be wrong.
    ///
    /// # Errors
    /// [`Error::TokenRange`], or a file that has shrunk since it was opened.
    pub fn check_vocab(&self, vocab: usize) -> Result<()> {
        const BLOCK: usize = 1 << 16;
        let mut block = vec![0; BLOCK];
        let mut first = 0;
        for (Segment { name, ids }, &end) in self.stream.segments.iter().zip(&self.stream.ends) {
            let last = self.range.end.min(end).saturating_sub(first);
            let mut from = self.range.start.saturating_sub(first);
            first = end;
            if ids.bound() <= vocab as u64 {
                continue;
            }
            while from < last {
                let block = &mut block[..(last - from).min(BLOCK)];
                ids.check_length(name)?;
                ids.fill(from, block);
                let outside = |id: &i32| id.cast_unsigned() as usize >= vocab;
                if let Some(bad) = block.iter().position(outside) {
                    return Err(Error::TokenRange {
                        name: name.clone(),
                        offset: from + bad,
                        id: block[bad].cast_unsigned(),
                        vocab,
                    });
                }
                from += block.len();
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("range", &self.range).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> Arc<Stream> {
        let shard: Vec<u8> = [7u32, 70_000, 9].iter().flat_map(|id| id.to_le_bytes()).collect();
        Arc::new(Stream::new(vec![
            Segment { name: "a".into(), ids: Ids::Text { bytes: b"xab".to_vec().into(), skip: 1 } },
            Segment { name: "empty".into(), ids: Ids::Memory16(vec![]) },
            Segment { name: "b".into(), ids: Ids::Memory16(vec![300, 301]) },
            Segment { name: "c".into(), ids: Ids::Shard32 { bytes: shard.into(), skip: 0 } },
            Segment {
                name: "d".into(),
                ids: Ids::Shard16 { bytes: vec![9, 9, 1, 2, 3, 4].into(), skip: 2 },
            },
            Segment { name: "e".into(), ids: Ids::Memory32(vec![u32::MAX]) },
        ]))
    }

    #[test]
    fn every_range_reads_across_segments() {
        let all = [97, 98, 300, 301, 7, 70_000, 9, 0x201, 0x403];
        let tokens = Tokens::new(stream(), 0..10);
        for start in 0..=all.len() {
            for end in start..=all.len() {
                let mut out = vec![0; end - start];
                tokens.read(start..end, &mut out).unwrap();
                assert_eq!(out, all[start..end]);
            }
        }
        let view = Tokens::new(stream(), 3..6);
        let mut out = [0; 2];
        view.read(1..3, &mut out).unwrap();
        assert_eq!(out, [7, 70_000]);
        assert!(view.read(2..4, &mut out).is_err());
        assert!(view.read(0..1, &mut out).is_err());
    }

    #[test]
    fn bad_ids_are_named_by_file_and_offset() {
        let tokens = Tokens::new(stream(), 0..9);
        tokens.check_vocab(70_001).unwrap();
        let at = |vocab| match tokens.check_vocab(vocab) {
            Err(Error::TokenRange { name, offset, id, .. }) => (name, offset, id),
            other => panic!("{other:?}"),
        };
        assert_eq!(at(70_000), ("c".into(), 1, 70_000));
        assert_eq!(at(301), ("b".into(), 1, 301));
        assert_eq!(at(98), ("a".into(), 1, 98));
        let tail = Tokens::new(stream(), 6..9);
        tail.check_vocab(0x404).unwrap();
        assert!(matches!(tail.check_vocab(0x403), Err(Error::TokenRange { offset: 1, .. })));
        let mut out = [0];
        assert!(matches!(
            Tokens::new(stream(), 0..10).read(9..10, &mut out),
            Err(Error::TokenRange { id: u32::MAX, offset: 0, .. })
        ));
    }
}

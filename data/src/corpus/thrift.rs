//! Thrift's compact protocol, in which Parquet files describe themselves.

/// Structures within structures at most; a footer has a dozen.
pub(super) const NESTED: usize = 64;

pub(super) const LIST: u8 = 9;
pub(super) const STRUCT: u8 = 12;

/// Bytes that are read from their start.
pub(super) struct Thrift<'a> {
    pub bytes: &'a [u8],
    /// Structures in lists that were passed over.
    pub elements: usize,
}

impl<'a> Thrift<'a> {
    pub fn of(bytes: &'a [u8]) -> Self {
        Self { bytes, elements: 0 }
    }

    pub fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(first)
    }

    /// A number of up to 64 bits.
    pub fn number(&mut self) -> Option<u64> {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte < 0x80 {
                return Some(number);
            }
            shift += 7;
        }
    }

    /// A whole number with its sign, as fields hold them.
    pub fn signed(&mut self) -> Option<i64> {
        let number = self.number()?;
        Some((number >> 1).cast_signed() ^ (number & 1).cast_signed().wrapping_neg())
    }

    /// A field's number and kind; kind 0 at the end.
    pub fn field(&mut self, before: u64) -> Option<(u64, u8)> {
        let byte = self.byte()?;
        if byte == 0 {
            return Some((0, 0));
        }
        let number = match byte >> 4 {
            0 => self.signed()?.cast_unsigned(),
            more => before.wrapping_add(u64::from(more)),
        };
        Some((number, byte & 0xf))
    }

    /// The number of elements of a list and their kind. Each takes a byte or more.
    pub fn list(&mut self) -> Option<(u64, u8)> {
        let byte = self.byte()?;
        let count = if byte >> 4 == 15 { self.number()? } else { u64::from(byte >> 4) };
        (count <= self.bytes.len() as u64).then_some((count, byte & 0xf))
    }

    /// Passes over a value of this kind, and notes how deep it goes.
    pub fn skip(&mut self, kind: u8, depth: usize, deepest: &mut usize) -> Option<()> {
        *deepest = (*deepest).max(depth);
        if depth >= NESTED {
            return None;
        }
        match kind {
            1 | 2 => {}
            3 => drop(self.byte()?),
            4..=6 => drop(self.number()?),
            7 => self.bytes = self.bytes.get(8..)?,
            8 => {
                let length = usize::try_from(self.number()?).ok()?;
                self.bytes = self.bytes.get(length..)?;
            }
            LIST | 10 => {
                let (count, kind) = self.list()?;
                if kind == STRUCT {
                    self.elements = self.elements.saturating_add(count as usize);
                }
                for _ in 0..count {
                    if matches!(kind, 1 | 2) {
                        self.byte()?;
                    } else {
                        self.skip(kind, depth + 1, deepest)?;
                    }
                }
            }
            STRUCT => {
                let mut before = 0;
                loop {
                    let (number, kind) = self.field(before)?;
                    if kind == 0 {
                        break;
                    }
                    before = number;
                    self.skip(kind, depth + 1, deepest)?;
                }
            }
            _ => return None,
        }
        Some(())
    }
}

//! The depth of a Parquet file's schema, read before the library walks it: it does so by recursion.

/// Groups within groups at most.
const DEEPEST: usize = 64;
/// Structures within structures of Thrift at most; a footer has a dozen.
const NESTED: usize = 64;

/// Refuses a file whose schema is too deep. The library refuses bytes that aren't a footer.
///
/// # Errors
/// A message with the schema's depth.
pub(crate) fn check(file: &[u8]) -> Result<(), String> {
    let Some((rest, [a, b, c, d, b'P', b'A', b'R', b'1'])) = file.split_last_chunk::<8>() else {
        return Ok(());
    };
    let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
    let Some(start) = rest.len().checked_sub(length) else { return Ok(()) };
    let mut footer = Thrift { bytes: &rest[start..] };
    match footer.schema() {
        Some(children) => depth(&children),
        // The library says what is wrong with bytes that aren't Thrift, unless they nest too deep for it.
        None if footer.bytes.len() > 1 && nests(&rest[start..]) => {
            Err(format!("its footer has more than {NESTED} structures within each other"))
        }
        None => Ok(()),
    }
}

/// Refuses children that nest too deep.
fn depth(children: &[u64]) -> Result<(), String> {
    let mut open: Vec<u64> = Vec::new();
    for &count in children {
        while open.last() == Some(&0) {
            open.pop();
        }
        if let Some(left) = open.last_mut() {
            *left -= 1;
        }
        if count > 0 {
            open.push(count);
        }
        if open.len() > DEEPEST {
            return Err(format!("its schema has more than {DEEPEST} groups within each other"));
        }
    }
    Ok(())
}

fn nests(footer: &[u8]) -> bool {
    let mut footer = Thrift { bytes: footer };
    let mut deepest = 0;
    footer.skip(STRUCT, 0, &mut deepest);
    deepest >= NESTED
}

const STRUCT: u8 = 12;
const LIST: u8 = 9;

/// Thrift's compact protocol.
struct Thrift<'a> {
    bytes: &'a [u8],
}

impl Thrift<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(first)
    }

    fn number(&mut self) -> Option<u64> {
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

    /// A field's number and kind; kind 0 at the end.
    fn field(&mut self, before: u64) -> Option<(u64, u8)> {
        let byte = self.byte()?;
        if byte == 0 {
            return Some((0, 0));
        }
        let number = match byte >> 4 {
            0 => {
                let number = self.number()?;
                (number >> 1) ^ (number & 1).wrapping_neg()
            }
            more => before.wrapping_add(u64::from(more)),
        };
        Some((number, byte & 0xf))
    }

    fn list(&mut self) -> Option<(u64, u8)> {
        let byte = self.byte()?;
        let count = if byte >> 4 == 15 { self.number()? } else { u64::from(byte >> 4) };
        (count <= self.bytes.len() as u64).then_some((count, byte & 0xf))
    }

    fn skip(&mut self, kind: u8, depth: usize, deepest: &mut usize) -> Option<()> {
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

    /// The number of children of each element of the schema, which is the footer's second field.
    fn schema(&mut self) -> Option<Vec<u64>> {
        let mut before = 0;
        loop {
            let (number, kind) = self.field(before)?;
            if kind == 0 {
                return None;
            }
            before = number;
            if (number, kind) != (2, LIST) {
                self.skip(kind, 0, &mut 0)?;
                continue;
            }
            let (count, _) = self.list()?;
            let mut children = Vec::new();
            for _ in 0..count {
                let (mut within, mut before) = (0, 0);
                loop {
                    let (number, kind) = self.field(before)?;
                    if kind == 0 {
                        break;
                    }
                    before = number;
                    match (number, kind) {
                        (5, 4..=6) => within = self.number()? >> 1,
                        (_, kind) => self.skip(kind, 0, &mut 0)?,
                    }
                }
                children.push(within);
            }
            return Some(children);
        }
    }
}

//! The depth of a Parquet file's schema and the lengths of its lists, read before the library walks them: it does so by recursion, and makes
//! room for what a length says.

use super::thrift::{LIST, NESTED, STRUCT, Thrift};
use crate::limits::Made;

/// Groups within groups at most.
const DEEPEST: usize = 64;
/// Bytes at most that the library takes for an element of a list: the descriptions of a column.
const ELEMENT: usize = 1024;

/// Refuses a file whose schema is too deep, and one whose lists are longer than its footer. The library refuses a file without a footer.
///
/// # Errors
/// A message with the schema's depth, or the damage.
pub(crate) fn check(file: &[u8], made: &mut Made) -> Result<(), String> {
    let Some((rest, [a, b, c, d, b'P', b'A', b'R', b'1'])) = file.split_last_chunk::<8>() else {
        return Ok(());
    };
    let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
    let Some(start) = rest.len().checked_sub(length) else { return Ok(()) };
    let footer = &rest[start..];
    let (mut all, mut deepest) = (Thrift::of(footer), 0);
    match all.skip(STRUCT, 0, &mut deepest) {
        Some(()) => made.add(all.elements.saturating_mul(ELEMENT))?,
        None if deepest >= NESTED => {
            return Err(format!("its footer has more than {NESTED} structures within each other"));
        }
        None => return Err("its footer is damaged".to_owned()),
    }
    Thrift::of(footer).schema().map_or(Ok(()), |children| depth(&children))
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

impl Thrift<'_> {
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

//! Zip archives (APPNOTE 6.3.10) whose entries are stored as they are: names, and where their bytes lie.

use std::collections::HashMap;
use std::ops::Range;

const END: u32 = 0x0605_4b50;
const END_LEN: usize = 22;
const END64: u32 = 0x0606_4b50;
const END64_LEN: usize = 56;
const LOCATOR64: u32 = 0x0706_4b50;
const LOCATOR64_LEN: usize = 20;
const CENTRAL: u32 = 0x0201_4b50;
const CENTRAL_LEN: usize = 46;
const LOCAL: u32 = 0x0403_4b50;
const LOCAL_LEN: usize = 30;
/// Of an extra field with sizes and places beyond 32 bits.
const ZIP64: u16 = 1;
const ENCRYPTED: u16 = 1;

type Read<T> = Result<T, String>;

/// Where the entries of an archive lie in its bytes.
pub(super) struct Archive {
    entries: HashMap<String, Entry>,
}

struct Entry {
    range: Range<usize>,
    crc: u32,
}

/// Bytes that are read by their place.
#[derive(Clone, Copy)]
struct At<'a>(&'a [u8]);

impl<'a> At<'a> {
    fn bytes(self, start: usize, len: usize) -> Read<&'a [u8]> {
        let end = start.checked_add(len);
        end.and_then(|end| self.0.get(start..end))
            .ok_or_else(|| "the archive is cut off".to_owned())
    }

    fn number<const N: usize>(self, start: usize) -> Read<[u8; N]> {
        Ok(self.bytes(start, N)?.try_into().expect("so many bytes"))
    }

    fn u16(self, start: usize) -> Read<u16> {
        self.number(start).map(u16::from_le_bytes)
    }

    fn u32(self, start: usize) -> Read<u32> {
        self.number(start).map(u32::from_le_bytes)
    }

    /// A number of 64 bits that a place or a size can be.
    fn u64(self, start: usize) -> Read<usize> {
        let number = self.number(start).map(u64::from_le_bytes)?;
        usize::try_from(number).map_err(|_| "a size in the archive is beyond the memory".to_owned())
    }
}

impl Archive {
    /// Reads the directory of an archive.
    ///
    /// # Errors
    /// What isn't one, entries that are compressed, encrypted, outside of the file, over each other or of one name.
    pub fn read(bytes: &[u8]) -> Read<Self> {
        let at = At(bytes);
        let (count, start, end) = directory(at)?;
        // A directory's entry takes so many bytes, so that no count asks for more memory than the file has.
        if count > (end - start) / CENTRAL_LEN {
            return Err(format!("its directory can't have {count} entries"));
        }
        let mut entries = HashMap::with_capacity(count);
        let mut taken = Vec::with_capacity(count);
        let mut next = start;
        for _ in 0..count {
            let header = At(at.bytes(next, CENTRAL_LEN)?);
            if header.u32(0)? != CENTRAL {
                return Err("its directory is broken".to_owned());
            }
            let [name, extra, comment] =
                [28, 30, 32].map(|place| header.u16(place).map(usize::from));
            let (name_len, extra_len, comment_len) = (name?, extra?, comment?);
            let name = at.bytes(next + CENTRAL_LEN, name_len)?;
            // A copy, which stays text whoever writes the file.
            let name = String::from_utf8(name.to_vec())
                .map_err(|_| "a name in it isn't UTF-8".to_owned())?;
            let extra = at.bytes(next + CENTRAL_LEN + name_len, extra_len)?;
            next += CENTRAL_LEN + name_len + extra_len + comment_len;
            if next > end {
                return Err("its directory is cut off".to_owned());
            }
            let (place, range) = entry(at, header, &name, extra, start)?;
            taken.push(place..range.end);
            if entries.contains_key(&name) {
                return Err(format!("it has two entries called `{name}`"));
            }
            entries.insert(name, Entry { range, crc: header.u32(16)? });
        }
        if next != end {
            return Err("its directory has more than its entries".to_owned());
        }
        taken.sort_by_key(|range| range.start);
        if taken.array_windows().any(|[one, other]| one.end > other.start) {
            return Err("entries of it overlap".to_owned());
        }
        Ok(Self { entries })
    }

    /// Names, with folders.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Whether there is an entry of this name.
    pub fn has(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// Where the bytes of an entry lie, which must have the sum that was written with them.
    ///
    /// # Errors
    /// An entry that is missing or damaged.
    pub fn checked(&self, bytes: &[u8], name: &str) -> Read<Range<usize>> {
        let entry = self
            .entries
            .get(name)
            .ok_or_else(|| format!("`{name}` isn't in it; fetch it again"))?;
        if crc32fast::hash(&bytes[entry.range.clone()]) != entry.crc {
            return Err(format!("`{name}` in it is damaged; fetch it again"));
        }
        Ok(entry.range.clone())
    }
}

/// The number of entries, and where their directory begins and ends.
fn directory(at: At<'_>) -> Read<(usize, usize, usize)> {
    const NONE: &str = "it's neither a zip archive nor another format of PyTorch's";
    let none = || NONE.to_owned();
    // PyTorch writes no comment behind the last record.
    let record = at.0.len().checked_sub(END_LEN).ok_or_else(none)?;
    if at.u32(record)? != END {
        return Err(none());
    }
    let small = [at.u16(record + 8)?, at.u16(record + 10)?];
    let places = [at.u32(record + 12)?, at.u32(record + 16)?];
    if at.u32(record + 4)? != 0 || small[0] != small[1] || at.u16(record + 20)? != 0 {
        return Err("it's a part of an archive of several".to_owned());
    }
    let locator = record.checked_sub(LOCATOR64_LEN);
    let locator = locator.filter(|&locator| at.u32(locator) == Ok(LOCATOR64));
    let wide = small[0] == u16::MAX || places.contains(&u32::MAX);
    let (count, len, start, end) = match locator {
        Some(locator) => {
            let wide = at.u64(locator + 8)?;
            if wide.checked_add(END64_LEN) != Some(locator) || at.u32(wide)? != END64 {
                return Err("its directory of 64 bits is broken".to_owned());
            }
            (at.u64(wide + 32)?, at.u64(wide + 40)?, at.u64(wide + 48)?, wide)
        }
        None if wide => return Err("its directory of 64 bits is missing".to_owned()),
        None => (usize::from(small[0]), places[0] as usize, places[1] as usize, record),
    };
    if start.checked_add(len) != Some(end) {
        return Err("its directory isn't where it should be".to_owned());
    }
    Ok((count, start, end))
}

/// Where an entry begins, and where its bytes lie: before the `directory`.
fn entry(
    at: At<'_>,
    header: At<'_>,
    name: &str,
    extra: &[u8],
    directory: usize,
) -> Read<(usize, Range<usize>)> {
    let mut wide = wide(extra)?;
    let mut size = |place| match header.u32(place)? {
        u32::MAX => wide.next().ok_or_else(|| format!("the size of `{name}` is missing"))?,
        number => Ok(number as usize),
    };
    // In this order, each where 32 bits aren't enough.
    let (len, packed, place) = (size(24)?, size(20)?, size(42)?);
    if header.u16(8)? & ENCRYPTED != 0 {
        return Err(format!("`{name}` in it is encrypted"));
    }
    if header.u16(10)? != 0 || len != packed {
        return Err(format!("`{name}` in it is compressed"));
    }
    let local = At(at.bytes(place, LOCAL_LEN)?);
    let name_len = usize::from(local.u16(26)?);
    let own = at.bytes(place + LOCAL_LEN, name_len)?;
    if local.u32(0)? != LOCAL || own != name.as_bytes() || local.u16(8)? != 0 {
        return Err(format!("`{name}` isn't where its directory says"));
    }
    let start = place + LOCAL_LEN + name_len + usize::from(local.u16(28)?);
    let end = start.checked_add(len).filter(|&end| end <= directory);
    let end = end.ok_or_else(|| format!("`{name}` is longer than the archive"))?;
    Ok((place, start..end))
}

/// The numbers of 64 bits in an entry's extra fields.
fn wide(mut extra: &[u8]) -> Read<impl Iterator<Item = Read<usize>>> {
    let mut found: &[u8] = &[];
    while !extra.is_empty() {
        let at = At(extra);
        let (kind, len) = (at.u16(0)?, usize::from(at.u16(2)?));
        let field = at.bytes(4, len)?;
        extra = &extra[4 + len..];
        if kind == ZIP64 {
            found = field;
        }
    }
    Ok(found.chunks_exact(8).map(|number| At(number).u64(0)))
}

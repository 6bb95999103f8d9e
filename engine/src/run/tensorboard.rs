//! TensorBoard event files.
//!
//! An event file is a sequence of TFRecords (length and payload, each with a masked CRC-32C:
//! `tensorflow/core/lib/io/record_writer.h`), and each record is an `Event` message
//! (`tensorflow/core/util/event.proto`, `summary.proto`, `tensor.proto`), encoded here by hand.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use tightrope_data::files;

/// Writes one event file.
#[derive(Debug)]
pub struct EventWriter {
    path: PathBuf,
    file: BufWriter<File>,
}

impl EventWriter {
    /// Starts `events.out.tfevents.<unix time>.tightrope` in `dir`, which is made if needed. A
    /// second file of the same second gets a number behind its name.
    ///
    /// # Errors
    /// When the directory or the file can't be made or written.
    pub fn create(dir: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(dir)
            .with_context(|| format!("can't make the directory `{}`", dir.display()))?;
        let name = format!("events.out.tfevents.{:.0}.tightrope", now().floor());
        let (path, file) = create_new(dir, &name)
            .with_context(|| format!("can't make an event file in `{}`", dir.display()))?;
        let mut writer = Self { path, file: BufWriter::new(file) };
        let mut version = Message::default();
        version.double(1, now()).bytes(3, b"brain.Event:2");
        writer.record(&version.0)?;
        writer.flush()?;
        Ok(writer)
    }

    /// One that writes to an open file.
    #[cfg(test)]
    pub(super) fn of(file: File) -> Self {
        Self { path: PathBuf::new(), file: BufWriter::new(file) }
    }

    /// Adds a point of the curve `tag`.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn scalar(&mut self, tag: &str, step: u64, value: f64) -> anyhow::Result<()> {
        let mut summary = Message::default();
        summary.bytes(1, tag.as_bytes()).float(2, value as f32);
        self.event(step, &summary)
    }

    /// Adds a text, shown as Markdown.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn text(&mut self, tag: &str, step: u64, text: &str) -> anyhow::Result<()> {
        const DT_STRING: u64 = 7;
        let (mut plugin, mut metadata) = (Message::default(), Message::default());
        plugin.bytes(1, b"text");
        metadata.bytes(1, &plugin.0);
        let (mut dimension, mut shape, mut tensor) =
            (Message::default(), Message::default(), Message::default());
        dimension.integer(1, 1);
        shape.bytes(2, &dimension.0);
        tensor.integer(1, DT_STRING).bytes(2, &shape.0).bytes(8, text.as_bytes());
        let mut summary = Message::default();
        summary.bytes(1, tag.as_bytes()).bytes(8, &tensor.0).bytes(9, &metadata.0);
        self.event(step, &summary)
    }

    /// Makes what was added visible to a reader of the file.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn flush(&mut self) -> anyhow::Result<()> {
        self.file.flush().with_context(|| self.failure())
    }

    fn event(&mut self, step: u64, value: &Message) -> anyhow::Result<()> {
        let (mut summary, mut event) = (Message::default(), Message::default());
        summary.bytes(1, &value.0);
        event.double(1, now()).integer(2, step).bytes(5, &summary.0);
        self.record(&event.0)
    }

    fn record(&mut self, payload: &[u8]) -> anyhow::Result<()> {
        let length = (payload.len() as u64).to_le_bytes();
        let parts: [&[u8]; 4] = [
            &length,
            &masked_crc(&length).to_le_bytes(),
            payload,
            &masked_crc(payload).to_le_bytes(),
        ];
        parts.iter().try_for_each(|part| self.file.write_all(part)).with_context(|| self.failure())
    }

    fn failure(&self) -> String {
        format!("can't write the event file `{}`", self.path.display())
    }
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

fn create_new(dir: &Path, name: &str) -> io::Result<(PathBuf, File)> {
    let mut path = dir.join(name);
    let mut number = 0;
    loop {
        match files::create_new(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                number += 1;
                path = dir.join(format!("{name}.{number}"));
            }
            file => return Ok((path, file?)),
        }
    }
}

/// A protobuf message under construction: fields by number, in wire format.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    const VARINT: u64 = 0;
    const FIXED64: u64 = 1;
    const DELIMITED: u64 = 2;
    const FIXED32: u64 = 5;

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn tag(&mut self, field: u64, wire_type: u64) {
        self.varint(field << 3 | wire_type);
    }

    fn integer(&mut self, field: u64, value: u64) -> &mut Self {
        self.tag(field, Self::VARINT);
        self.varint(value);
        self
    }

    fn double(&mut self, field: u64, value: f64) -> &mut Self {
        self.tag(field, Self::FIXED64);
        self.0.extend(value.to_le_bytes());
        self
    }

    fn float(&mut self, field: u64, value: f32) -> &mut Self {
        self.tag(field, Self::FIXED32);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Bytes, text, or a message inside this one.
    fn bytes(&mut self, field: u64, value: &[u8]) -> &mut Self {
        self.tag(field, Self::DELIMITED);
        self.varint(value.len() as u64);
        self.0.extend(value);
        self
    }
}

/// The checksum of a TFRecord. The rotation and the constant keep a record that holds records
/// from having their checksums as its own.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32C (Castagnoli; RFC 3720, appendix B.4).
fn crc32c(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = table();
    !bytes.iter().fold(!0, |crc, byte| TABLE[usize::from(crc as u8 ^ byte)] ^ (crc >> 8))
}

const fn table() -> [u32; 256] {
    const REVERSED_POLYNOMIAL: u32 = 0x82f6_3b78;
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ REVERSED_POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// CRC-32C bit by bit, most significant bit first, on reversed bytes: shares nothing with
    /// the table above.
    fn slow_crc(bytes: &[u8]) -> u32 {
        let mut crc = u32::MAX;
        for byte in bytes {
            crc ^= u32::from(byte.reverse_bits()) << 24;
            for _ in 0..8 {
                crc = if crc >> 31 == 1 { crc << 1 ^ 0x1edc_6f41 } else { crc << 1 };
            }
        }
        (!crc).reverse_bits()
    }

    #[derive(Debug, PartialEq)]
    enum Field<'a> {
        Integer(u64),
        Fixed64([u8; 8]),
        Bytes(&'a [u8]),
        Fixed32([u8; 4]),
    }

    fn take_varint(bytes: &mut &[u8]) -> u64 {
        let length = bytes.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
        let (varint, rest) = bytes.split_at(length);
        *bytes = rest;
        varint.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f))
    }

    /// The fields of a message; none of the messages here repeats one.
    fn fields(mut bytes: &[u8]) -> BTreeMap<u64, Field<'_>> {
        let mut fields = BTreeMap::new();
        while !bytes.is_empty() {
            let tag = take_varint(&mut bytes);
            let field = match tag & 7 {
                0 => Field::Integer(take_varint(&mut bytes)),
                1 => Field::Fixed64(*bytes.split_off(..8).unwrap().first_chunk().unwrap()),
                2 => {
                    let length = take_varint(&mut bytes) as usize;
                    Field::Bytes(bytes.split_off(..length).unwrap())
                }
                5 => Field::Fixed32(*bytes.split_off(..4).unwrap().first_chunk().unwrap()),
                other => panic!("wire type {other}"),
            };
            assert!(fields.insert(tag >> 3, field).is_none(), "field {} twice", tag >> 3);
        }
        fields
    }

    fn inner<'a>(message: &BTreeMap<u64, Field<'a>>, field: u64) -> BTreeMap<u64, Field<'a>> {
        match message[&field] {
            Field::Bytes(bytes) => fields(bytes),
            ref other => panic!("{other:?}"),
        }
    }

    fn records(mut file: &[u8]) -> Vec<&[u8]> {
        let checked = |bytes: &[u8], sum: &[u8]| {
            let masked = u32::from_le_bytes(sum.try_into().unwrap());
            let crc = masked.wrapping_sub(0xa282_ead8).rotate_left(15);
            assert_eq!(crc, slow_crc(bytes));
        };
        let mut records = Vec::new();
        while !file.is_empty() {
            let length = file.split_off(..8).unwrap();
            checked(length, file.split_off(..4).unwrap());
            let length = u64::from_le_bytes(length.try_into().unwrap()) as usize;
            let payload = file.split_off(..length).unwrap();
            checked(payload, file.split_off(..4).unwrap());
            records.push(payload);
        }
        records
    }

    #[test]
    fn crc_of_rfc_3720() {
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(slow_crc(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn events_decode() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = EventWriter::create(&dir.path().join("tb")).unwrap();
        writer.scalar("train/loss", 300, 2.5).unwrap();
        writer.text("sample", 1, &"é".repeat(100)).unwrap();
        writer.flush().unwrap();

        let name = writer.path.file_name().unwrap().to_str().unwrap();
        let rest = name.strip_prefix("events.out.tfevents.").unwrap();
        let (time, host) = rest.split_once('.').unwrap();
        assert!(time.parse::<u64>().unwrap() > 1_600_000_000);
        assert!(!host.is_empty());

        let file = std::fs::read(&writer.path).unwrap();
        let events: Vec<_> = records(&file).into_iter().map(fields).collect();
        assert_eq!(events.len(), 3);
        assert_eq!(events[0][&3], Field::Bytes(b"brain.Event:2"));

        let Field::Fixed64(time) = events[1][&1] else { panic!("no time") };
        assert!((now() - f64::from_le_bytes(time)).abs() < 60.0);
        assert_eq!(events[1][&2], Field::Integer(300));
        let value = inner(&inner(&events[1], 5), 1);
        assert_eq!(value[&1], Field::Bytes(b"train/loss"));
        assert_eq!(value[&2], Field::Fixed32(2.5f32.to_le_bytes()));

        let value = inner(&inner(&events[2], 5), 1);
        let tensor = inner(&value, 8);
        assert_eq!(tensor[&1], Field::Integer(7));
        assert_eq!(inner(&inner(&tensor, 2), 2)[&1], Field::Integer(1));
        assert_eq!(tensor[&8], Field::Bytes("é".repeat(100).as_bytes()));
        assert_eq!(inner(&inner(&value, 9), 1)[&1], Field::Bytes(b"text"));
    }

    #[test]
    fn files_of_one_second_differ() {
        let dir = tempfile::tempdir().unwrap();
        for _ in 0..3 {
            EventWriter::create(dir.path()).unwrap();
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
    }
}

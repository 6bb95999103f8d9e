use std::path::{Path, PathBuf};

use serde_json::Value;

use super::entries;
use crate::Weights;

/// What `make.py` there made.
const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/torch");

fn file(name: &str) -> PathBuf {
    Path::new(FILES).join(name)
}

fn refusal(name: &str) -> String {
    Weights::open(file(name)).err().unwrap_or_else(|| panic!("{name} is read")).to_string()
}

#[test]
fn tensors_are_those_of_torch() {
    let expected: Value =
        serde_json::from_slice(&std::fs::read(file("expected.json")).unwrap()).unwrap();
    let expected = expected.as_object().unwrap();
    let weights = Weights::open(FILES).unwrap();
    assert_eq!(weights.names().len(), expected.len());
    for (name, one) in expected {
        let found = weights.require(name).unwrap();
        let shape = one["shape"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize);
        assert_eq!(found.shape, shape.collect::<Vec<_>>(), "{name}");
        let numbers = one["values"].as_array().unwrap().iter().map(|n| n.as_f64().unwrap());
        match found.dtype {
            "BOOL" => assert!(found.bytes.iter().map(|&b| f64::from(b)).eq(numbers), "{name}"),
            "I64" => {
                let ids = found.bytes.as_chunks().0.iter().map(|&id| i64::from_le_bytes(id) as f64);
                assert!(ids.eq(numbers), "{name}");
            }
            _ => {
                let values = found.to_f32().unwrap();
                assert_eq!(values, numbers.map(|n| n as f32).collect::<Vec<_>>(), "{name}");
            }
        }
    }
    assert_eq!(weights.get("gain").unwrap().dtype, "BF16");
}

#[test]
fn shards_are_found_by_their_index() {
    let (whole, shards) = (Weights::open(FILES).unwrap(), Weights::open(file("sharded")).unwrap());
    assert_eq!(shards.files().len(), 2);
    assert_eq!(shards.names().collect::<Vec<_>>(), ["gain", "half", "wte"]);
    for name in shards.names() {
        assert_eq!(shards.get(name).unwrap().bytes, whole.get(name).unwrap().bytes, "{name}");
    }
}

#[test]
fn what_isnt_read_is_refused_by_its_name() {
    for (name, what) in [
        (
            "strided.bin",
            "\"w\": it's a view whose elements don't lie in order (shape [3, 4], strides [1, 3])",
        ),
        ("legacy.bin", "the format of PyTorch before 1.6"),
        ("call.bin", "asks for `posix.system`"),
        ("nested.bin", "`model` is a dictionary in it, not a tensor"),
        ("number.bin", "`step` is a number in it"),
        ("tensor.bin", "it holds a tensor, not a dictionary"),
        ("float8.bin", "asks for `torch."),
        ("protocol.bin", "the protocol 4"),
        ("compressed.bin", "is compressed"),
        ("make.py", "another format"),
    ] {
        let message = refusal(name);
        assert!(message.contains(what), "{name}: {message}");
        assert!(message.contains("convert it to safetensors") || name == "make.py", "{message}");
    }
}

#[test]
fn no_changed_byte_changes_what_is_read() {
    let whole = std::fs::read(file("pytorch_model.bin")).unwrap();
    let told = |bytes: &[u8]| {
        let entries = entries(bytes)?;
        let told = entries.into_iter().map(|entry| {
            let bytes = bytes[entry.start..entry.end].to_vec();
            (entry.name, entry.dtype, entry.shape, bytes)
        });
        Ok::<_, String>(told.collect::<Vec<_>>())
    };
    let expected = told(&whole).unwrap();
    let mut refused = 0;
    for at in 0..whole.len() {
        for mask in [1, 0x10, 0x80, 0xff] {
            let mut changed = whole.clone();
            changed[at] ^= mask;
            match told(&changed) {
                Ok(found) => assert!(found == expected, "byte {at}, by {mask:#x}"),
                Err(_) => refused += 1,
            }
        }
    }
    // Times, padding and what describes entries a second time may change.
    assert!(refused > whole.len(), "{refused} of {}", 4 * whole.len());
    for len in 0..whole.len() {
        assert!(told(&whole[..len]).is_err(), "cut to {len} bytes");
    }
}

/// An archive of these entries, and of its directory's entries by name where `also` has some.
fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut bytes, mut directory) = (vec![], vec![]);
    for (name, content) in files {
        let place = bytes.len() as u32;
        let mut described = vec![20, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        described.extend(crc32fast::hash(content).to_le_bytes());
        described.extend([content.len() as u32; 2].map(u32::to_le_bytes).concat());
        described.extend((name.len() as u16).to_le_bytes());
        described.extend([0, 0]);
        bytes.extend(b"PK\x03\x04");
        bytes.extend(&described);
        bytes.extend(name.as_bytes());
        bytes.extend(*content);
        directory.extend(b"PK\x01\x02\x14\x00");
        directory.extend(&described);
        directory.extend([0; 10]);
        directory.extend(place.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let start = bytes.len() as u32;
    let count = (files.len() as u16).to_le_bytes();
    bytes.extend(&directory);
    bytes.extend(b"PK\x05\x06\0\0\0\0");
    bytes.extend([count, count].concat());
    bytes.extend((directory.len() as u32).to_le_bytes());
    bytes.extend(start.to_le_bytes());
    bytes.extend([0, 0]);
    bytes
}

fn of_pickle(pickle: &[u8]) -> Result<Vec<crate::entry::Entry>, String> {
    entries(&archive(&[("a/data.pkl", pickle), ("a/data/0", &[0; 24])]))
}

/// A dictionary of one tensor of 6 numbers, with these words for offset, shape and strides.
fn tensor(offset: &[u8], shape: &[u8], strides: &[u8]) -> Vec<u8> {
    let parts: [&[u8]; 6] = [
        b"\x80\x02}X\x01\0\0\0wctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0\
          0X\x03\0\0\0cpuK\x06tQ",
        offset,
        shape,
        strides,
        b"\x89ccollections\nOrderedDict\n)R",
        b"tRs.",
    ];
    parts.concat()
}

#[test]
fn views_outside_of_their_storage_are_refused() {
    let found = of_pickle(&tensor(b"K\x00", b"K\x02K\x03\x86", b"K\x03K\x01\x86")).unwrap();
    assert_eq!((found[0].shape.clone(), found[0].end - found[0].start), (vec![2, 3], 24));
    let long = b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f";
    let all = [&b"("[..], long, long, b"t"].concat();
    let strides = [long, &b"K\x01\x86"[..]].concat();
    for (offset, shape, strides, what) in [
        (&b"K\x01"[..], &b"K\x06\x85"[..], &b"K\x01\x85"[..], "aren't in its storage of 6"),
        (b"J\xff\xff\xff\xff", b"K\x06\x85", b"K\x01\x85", "is -1"),
        (b"K\x00", b"J\xff\xff\xff\xff\x85", b"K\x01\x85", "is -1"),
        (b"K\x00", b"K\x07\x85", b"K\x01\x85", "aren't in its storage"),
        (b"K\x00", &all, &strides, "overflows"),
        (long, b"K\x06\x85", b"K\x01\x85", "aren't in its storage"),
        (b"K\x00", b"K\x06\x85", b")", "isn't as PyTorch writes it"),
        (b"K\x00", b"N", b")", "is None, not as PyTorch writes it"),
        (b"K\x00", b"K\x06\x85", b"K\x00\x85", "don't lie in order"),
    ] {
        let message = of_pickle(&tensor(offset, shape, strides)).unwrap_err();
        assert!(message.contains(what), "{shape:?}: {message}");
    }
}

#[test]
fn hostile_pickles_are_refused() {
    let deep = [&b"\x80\x02)"[..], &[0x85; 1_000_000], b"."].concat();
    let marks = [&b"\x80\x02"[..], &[b'('; 1_000_000], b"."].concat();
    let shared = [&b"\x80\x02)q\0"[..], &b"h\0h\0\x86q\0".repeat(10_000), b"."].concat();
    let twice = b"\x80\x02}X\x01\0\0\0wK\x01sX\x01\0\0\0wK\x01s.";
    for (pickle, what) in [
        (&deep[..], "it holds a tuple"),
        (&marks, "takes what isn't there"),
        (&shared, "it holds a tuple"),
        (twice, "`w` is a number"),
        (b"\x80\x02}r\xff\xff\xff\xffK\x01K\x01s.", "a key of it is a number"),
        (b"\x80\x02j\xff\xff\xff\xff.", "takes what isn't there"),
        (b"\x80\x02X\xff\xff\xff\xffa.", "cut off"),
        (b"\x80\x02\x8a\xffa.", "cut off"),
        (b"\x80\x02\x8a\x09aaaaaaaaa.", "more than 64 bits"),
        (b"\x80\x02", "cut off"),
        (b"", "cut off"),
        (b"\x80\x02.", "takes what isn't there"),
        (b"\x80\x02K\x01(\x85.", "takes what isn't there"),
        (b"\x80\x02t.", "takes what isn't there"),
        (b"\x80\x02}(K\x01u.", "a key without a value"),
        (b"\x80\x02)(K\x01K\x02u.", "to what is no dictionary"),
        (b"\x80\x02)}b.", "the state of a tuple"),
        (b"\x80\x02))R.", "isn't one that makes a tensor"),
        (b"\x80\x02cos\nsystem\n.", "asks for `os.system`"),
        (b"\x80\x02c\x1b[2J\nx\n.", "asks for `\\u{1b}[2J.x`"),
        (b"\x80\x02)Q.", "a storage in its pickle"),
        (b"\x80\x02ios\nsystem\n.", "the opcode 0x69"),
    ] {
        let message = of_pickle(pickle).unwrap_err();
        assert!(message.contains(what), "{what}: {message}");
    }
}

#[test]
fn entries_over_each_other_or_outside_are_refused() {
    let pickle = tensor(b"K\x00", b"K\x06\x85", b"K\x01\x85");
    let files: [(&str, &[u8]); 2] = [("a/data.pkl", &pickle), ("a/data/0", &[0; 24])];
    let good = archive(&files);
    assert!(entries(&good).is_ok());
    let changed = |place: usize, value: u32| {
        let mut bytes = good.clone();
        bytes[place..place + 4].copy_from_slice(&value.to_le_bytes());
        entries(&bytes).unwrap_err()
    };
    let directory = good.len() - 22 - 2 * 46 - "a/data.pkla/data/0".len();
    let second = directory + 46 + "a/data.pkl".len();
    for (message, what) in [
        // Sizes of the first entry, packed and not, up to the directory: it has the second within.
        (
            {
                let mut bytes = good.clone();
                let size = (directory - 40) as u32;
                bytes[directory + 20..directory + 28]
                    .copy_from_slice(&[size; 2].map(u32::to_le_bytes).concat());
                entries(&bytes).unwrap_err()
            },
            "overlap",
        ),
        (changed(second + 42, 0), "isn't where its directory says"),
        (changed(second + 42, 0xffff_fff0), "cut off"),
        (changed(second + 42, u32::MAX), "is missing"),
        (changed(good.len() - 10, 0xffff_fff0), "isn't where it should be"),
        (changed(good.len() - 14, 0x0003_0002), "a part of an archive"),
        (changed(good.len() - 14, 0x7fff_7fff), "can't have 32767 entries"),
        (changed(good.len() - 14, u32::MAX), "of 64 bits is missing"),
    ] {
        assert!(message.contains(what), "{what}: {message}");
    }
    let missing = entries(&archive(&files[..1])).unwrap_err();
    assert!(missing.contains("`a/data/0` isn't in it"), "{missing}");
    let both = entries(&archive(&[("a/data.pkl", &pickle), ("b/data.pkl", &pickle)])).unwrap_err();
    assert!(both.contains("without one data.pkl"), "{both}");
    let twice = entries(&archive(&[files[0], files[0]])).unwrap_err();
    assert!(twice.contains("two entries"), "{twice}");
    let big: [(&str, &[u8]); 3] = [files[0], files[1], ("a/byteorder", b"big")];
    assert!(entries(&archive(&big)).unwrap_err().contains("another order"));
}

use std::fs;
use std::io;

use proptest::prelude::*;
use safetensors::tensor::{Dtype as TheirDtype, TensorView as TheirView};
use tempfile::tempdir;

use super::*;

/// A file from a header and so many zero bytes of data.
fn file(header: &str, data: usize) -> Result<SafeTensors> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    SafeTensors::from_bytes("x.safetensors", bytes)
}

fn refusal(header: &str, data: usize) -> String {
    let message = file(header, data).expect_err(header).to_string();
    assert!(message.contains("x.safetensors"), "{message}");
    message
}

fn entry(name: &str, dtype: &str, shape: &str, from: u64, to: u64) -> String {
    format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{from},{to}]}}"#)
}

const ALL: [DType; 9] = [
    DType::F64,
    DType::F32,
    DType::BF16,
    DType::F16,
    DType::I32,
    DType::U32,
    DType::I16,
    DType::I8,
    DType::U8,
];

#[test]
fn the_reference_crate_reads_what_is_written_here() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("ours.safetensors");
    let types: Vec<Type> = ALL.iter().map(|&dtype| Type::new(dtype, [2, 3])).collect();
    let data: Vec<Vec<u8>> =
        types.iter().map(|ty| (0..ty.bytes()).map(|i| (i * 7) as u8).collect()).collect();
    let mut tensors: Vec<Tensor> = types
        .iter()
        .zip(&data)
        .map(|(ty, bytes)| Tensor::new(ty.dtype.name(), ty.clone(), bytes))
        .collect();
    tensors.push(Tensor::new("empty \"quoted\"", Type::new(DType::F32, [0, 4]), &[]));
    tensors.push(Tensor::streamed("scalar", Type::new(DType::F32, []), |out| {
        out.write_all(&[0, 0])?;
        out.write_all(&[0x80, 0x3f])
    }));
    let metadata = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
    write(&path, tensors, &metadata).unwrap();

    let bytes = fs::read(&path).unwrap();
    let header_len = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert_eq!(header_len % 8, 0);
    let theirs = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(theirs.len(), 11);
    for (ty, data) in types.iter().zip(&data) {
        let tensor = theirs.tensor(ty.dtype.name()).unwrap();
        assert_eq!((tensor.data(), tensor.shape()), (&data[..], &ty.shape[..]));
        assert_eq!(format!("{:?}", tensor.dtype()), ty.dtype.name().to_uppercase());
    }
    assert_eq!(theirs.tensor("scalar").unwrap().data(), 1f32.to_le_bytes());
    let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    assert_eq!(header.metadata().as_ref().unwrap()["format"], "pt");

    let ours = SafeTensors::open(&path).unwrap();
    assert_eq!(ours.names().collect::<Vec<_>>()[..2], ["f64", "f32"]);
    for ty in &types {
        assert_eq!(ours.get(ty.dtype.name()).unwrap().ty().unwrap(), *ty);
    }
    assert_eq!(ours.metadata()["format"], "pt");
}

#[test]
fn what_the_reference_crate_writes_is_read_here() {
    let floats: Vec<u8> = [1.5f32, -2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    let longs: Vec<u8> = [7i64, -9].iter().flat_map(|x| x.to_le_bytes()).collect();
    let views = [
        ("w", TheirView::new(TheirDtype::F32, vec![2], &floats).unwrap()),
        ("ids", TheirView::new(TheirDtype::I64, vec![1, 2], &longs).unwrap()),
        ("mask", TheirView::new(TheirDtype::BOOL, vec![3], &[1, 0, 1]).unwrap()),
    ];
    let bytes = safetensors::serialize(views, None).unwrap();
    let ours = SafeTensors::from_bytes("theirs", bytes).unwrap();
    assert_eq!(ours.get("w").unwrap().to_f32().unwrap(), [1.5, -2.0]);
    assert_eq!(ours.get("ids").unwrap().to_i32().unwrap(), [7, -9]);
    assert_eq!(ours.get("ids").unwrap().shape, [1, 2]);
    assert_eq!(ours.get("ids").unwrap().ty(), None);
    assert_eq!(ours.get("mask").unwrap().bytes, [1, 0, 1]);
    let error = ours.require("v").unwrap_err().to_string();
    assert!(error.contains("\"v\"") && error.contains("3 tensors"), "{error}");
    let nothing = safetensors::serialize(Vec::<(&str, TheirView)>::new(), None).unwrap();
    assert_eq!(SafeTensors::from_bytes("none", nothing).unwrap().names().len(), 0);
}

#[test]
fn conversions_are_exact_or_refused() {
    let with = |dtype: &str, data: &[u8]| {
        let header = format!("{{{}}}", entry("x", dtype, "[1]", 0, data.len() as u64));
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(data);
        SafeTensors::from_bytes("x", bytes).unwrap()
    };
    let float = |dtype, data: &[u8]| with(dtype, data).get("x").unwrap().to_f32().map(|v| v[0]);
    let int = |dtype, data: &[u8]| with(dtype, data).get("x").unwrap().to_i32().map(|v| v[0]);
    assert_eq!(float("F64", &0.1f64.to_le_bytes()).unwrap(), 0.1f32);
    assert_eq!(float("F32", &0.1f32.to_le_bytes()).unwrap(), 0.1f32);
    assert_eq!(float("BF16", &[0xc0, 0x3f]).unwrap(), 1.5);
    assert_eq!(float("F16", &[0x00, 0xbe]).unwrap(), -1.5);
    assert!(float("I32", &[0; 4]).unwrap_err().to_string().contains("holds I32"));
    assert_eq!(int("I32", &(-5i32).to_le_bytes()).unwrap(), -5);
    assert_eq!(int("I16", &(-5i16).to_le_bytes()).unwrap(), -5);
    assert_eq!(int("I8", &[0xff]).unwrap(), -1);
    assert_eq!(int("U8", &[0xff]).unwrap(), 255);
    assert_eq!(int("U32", &5u32.to_le_bytes()).unwrap(), 5);
    assert!(int("U32", &[0xff; 4]).unwrap_err().to_string().contains("4294967295"));
    assert!(int("I64", &(1i64 << 40).to_le_bytes()).unwrap_err().to_string().contains("element 0"));
    assert!(int("F32", &[0; 4]).is_err());
    let state = |dtype, data: &[u8]| with(dtype, data).get("x").unwrap().to_state().map(|v| v.1[0]);
    assert_eq!(state("BF16", &[0xc0, 0x3f]).unwrap(), 1.5);
    assert_eq!(state("U8", &[0xff]).unwrap(), 255.0);
    assert!(state("I8", &[0xff]).is_err());
}

#[test]
fn every_departure_from_the_format_is_named() {
    let one = |name, dtype, shape, from, to| format!("{{{}}}", entry(name, dtype, shape, from, to));
    assert_eq!(file(&one("a", "F32", "[2]", 0, 8), 8).unwrap().names().len(), 1);
    assert_eq!(file("{}   ", 0).unwrap().names().len(), 0);

    for (header, data, expected) in [
        (one("a", "F32", "[2]", 0, 8), 7, "0..8 are not inside the data, which has 7"),
        (one("a", "F32", "[2]", 0, 8), 9, "end at byte 8 of the data, which has 9"),
        (one("a", "F32", "[2]", 8, 0), 8, "8..0 are not inside"),
        (one("a", "F32", "[3]", 0, 8), 8, "takes 12 bytes and 0..8 holds 8"),
        (one("a", "F32", "[-1]", 0, 8), 8, "not valid"),
        (one("a", "F32", "[1.5]", 0, 8), 8, "not valid"),
        (one("a", "F4", "[2]", 0, 8), 8, "\"F4\" is not known"),
        (one("a", "f32", "[2]", 0, 8), 8, "\"f32\" is not known"),
        (one("a", "F32", "[9223372036854775807,9]", 0, 8), 8, "overflows"),
        (one("a", "U8", "[18446744073709551616]", 0, 8), 8, "not valid"),
        (one("a", "U8", "[1]", 1, 2), 2, "leaves a hole"),
        (one("a", "U8", "[1]", 0, u64::MAX), 2, "not inside"),
        ("[]".into(), 0, "does not start with '{'"),
        (" {}".into(), 0, "does not start with '{'"),
        ("{".into(), 0, "not valid"),
        ("{}x".into(), 0, "not valid"),
        ("".into(), 0, "does not start"),
        (r#"{"a":{"dtype":"U8","shape":[]}}"#.into(), 1, "data_offsets"),
        (
            r#"{"a":{"dtype":"U8","shape":[],"data_offsets":[0,1],"z":1}}"#.into(),
            1,
            "unknown field",
        ),
        (r#"{"__metadata__":{"a":1}}"#.into(), 0, "not valid"),
        (r#"{"__metadata__":{},"__metadata__":{}}"#.into(), 0, "appears twice"),
    ] {
        let message = refusal(&header, data);
        assert!(message.contains(expected), "{message} lacks {expected}");
    }
    let two = |b: String| format!("{{{},{b}}}", entry("a", "U8", "[4]", 0, 4));
    assert!(refusal(&two(entry("b", "U8", "[4]", 3, 7)), 7).contains("\"b\": it overlaps"));
    assert!(refusal(&two(entry("b", "U8", "[4]", 0, 4)), 4).contains("\"b\": it overlaps"));
    assert!(refusal(&two(entry("b", "U8", "[4]", 5, 9)), 9).contains("\"b\": it leaves a hole"));
    assert!(refusal(&two(entry("a", "U8", "[4]", 4, 8)), 8).contains("\"a\" appears twice"));

    let raw = |bytes: &[u8]| SafeTensors::from_bytes("x", bytes.to_vec()).unwrap_err().to_string();
    assert!(raw(&[1, 2, 3]).contains("it has 3 bytes"));
    assert!(raw(&u64::MAX.to_le_bytes()).contains("over the limit"));
    assert!(raw(&9u64.to_le_bytes()).contains("cut off after 0"));
    let deep = format!("{{\"a\":{}", "[".repeat(100_000));
    assert!(refusal(&deep, 0).contains("not valid"));
}

#[test]
fn memory_and_file_get_the_same_bytes() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    let metadata =
        BTreeMap::from([("b".to_owned(), "1".to_owned()), ("a".to_owned(), "2".to_owned())]);
    let tensors = || {
        [("z", &[1, 2][..]), ("y", &[3][..])]
            .map(|(name, bytes)| Tensor::new(name, Type::new(DType::U8, [bytes.len()]), bytes))
    };
    write(&path, tensors(), &metadata).unwrap();
    let bytes = to_bytes(tensors(), &metadata).unwrap();
    assert_eq!(fs::read(&path).unwrap(), bytes);
    let expected = concat!(
        r#"{"__metadata__":{"a":"2","b":"1"},"z":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"#,
        r#""y":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}"#,
    );
    assert_eq!(std::str::from_utf8(&bytes[8..8 + expected.len()]).unwrap(), expected);
    assert_eq!(bytes[bytes.len() - 3..], [1, 2, 3]);
}

#[test]
fn payloads_of_another_length_and_bad_names_are_refused() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("bad.safetensors");
    let ty = Type::new(DType::F32, [2]);
    let message =
        |tensors: Vec<Tensor>| write(&path, tensors, &BTreeMap::new()).unwrap_err().to_string();
    assert!(message(vec![Tensor::new("w", ty.clone(), &[0; 7])]).contains("its payload has 7"));
    assert!(message(vec![Tensor::new("w", ty.clone(), &[0; 9])]).contains("its payload has more"));
    let swallows = Tensor::streamed("w", ty.clone(), |out| {
        let _ = out.write_all(&[0; 9]);
        Ok(())
    });
    assert!(message(vec![swallows]).contains("has more"));
    let fails = Tensor::streamed("w", ty.clone(), |_| Err(io::Error::other("device lost")));
    assert!(message(vec![fails]).contains("device lost"));
    let twice = || Tensor::new("w", ty.clone(), &[0; 8]);
    assert!(message(vec![twice(), twice()]).contains("two tensors"));
    assert!(message(vec![Tensor::new(METADATA, ty.clone(), &[0; 8])]).contains("reserves"));
    let huge = Type::new(DType::F64, [usize::MAX, 2]);
    assert!(message(vec![Tensor::new("w", huge, &[])]).contains("overflows"));
    let absent = folder.path().join("no/such/folder.safetensors");
    assert!(
        write(&absent, [], &BTreeMap::new())
            .unwrap_err()
            .to_string()
            .contains("folder.safetensors")
    );
}

#[test]
fn shards_make_one_model() {
    let folder = tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let ty = Type::new(DType::U8, [1]);
    let shard = |file: &str, name: &str, byte: &'static [u8]| {
        write(at(file), [Tensor::new(name, ty.clone(), byte)], &BTreeMap::new()).unwrap();
    };
    shard("one.safetensors", "a", &[1]);
    shard("two.safetensors", "b", &[2]);
    let index = |map: &str| {
        let text = format!("{{\"metadata\":{{\"total_size\":2}},\"weight_map\":{map}}}");
        fs::write(at("model.safetensors.index.json"), text).unwrap();
        Weights::open(folder.path())
    };
    let weights = index(r#"{"b":"two.safetensors","a":"one.safetensors"}"#).unwrap();
    assert_eq!(weights.names().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(weights.get("b").unwrap().bytes, [2]);
    assert_eq!(weights.files().len(), 2);
    assert!(weights.require("c").is_err());

    let refused = |map: &str| index(map).unwrap_err().to_string();
    assert!(refused(r#"{"b":"one.safetensors"}"#).contains("\"b\""));
    assert!(refused(r#"{"b":"../one.safetensors"}"#).contains("plain file name"));
    assert!(refused(r#"{"b":"/etc/passwd"}"#).contains("plain file name"));
    assert!(refused(r#"{"b":"three.safetensors"}"#).contains("three.safetensors"));
    assert!(refused("{}").contains("lists no tensor"));
    assert!(refused("7").contains("cannot be read"));

    shard("model.safetensors", "single", &[3]);
    assert_eq!(Weights::open(folder.path()).unwrap().names().collect::<Vec<_>>(), ["single"]);
    assert_eq!(Weights::open(at("one.safetensors")).unwrap().get("a").unwrap().bytes, [1]);
    let empty = tempdir().unwrap();
    assert!(Weights::open(empty.path()).unwrap_err().to_string().contains("model.safetensors"));
}

#[test]
fn shared_tensors_have_all_of_their_names() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("model.safetensors");
    let metadata = [("embed", "head"), ("format", "pt"), ("lost", "none")];
    let metadata = metadata.map(|(name, kept)| (name.to_owned(), kept.to_owned())).into();
    let bytes = [1.0_f32, 2.0].map(f32::to_le_bytes).concat();
    let tensor = Tensor::new("head", Type::new(DType::F32, [2]), &bytes);
    write(&file, [tensor], &metadata).unwrap();
    let weights = Weights::open(dir.path()).unwrap();
    assert_eq!(weights.names().collect::<Vec<_>>(), ["embed", "head"]);
    assert_eq!(weights.require("embed").unwrap().to_f32().unwrap(), [1.0, 2.0]);
}

proptest! {
    /// Whatever is accepted here is accepted, with the same tensors, by the reference crate.
    #[test]
    fn mutations_never_panic_and_acceptance_is_never_laxer(
        flips in prop::collection::vec((0usize..400, any::<u8>()), 1..4), cut in 0usize..400,
    ) {
        let header = format!(
            "{{{},{},\"__metadata__\":{{\"k\":\"v\"}}}}",
            entry("a", "F32", "[2,3]", 0, 24), entry("b", "U8", "[]", 24, 25),
        );
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(&[7; 25]);
        prop_assert!(SafeTensors::from_bytes("x", bytes.clone()).is_ok());
        for (at, value) in flips {
            let len = bytes.len();
            bytes[at % len] = value;
        }
        if cut < bytes.len() {
            bytes.truncate(cut);
        }
        if let Ok(ours) = SafeTensors::from_bytes("x", bytes.clone()) {
            let theirs = safetensors::SafeTensors::deserialize(&bytes);
            prop_assert!(theirs.is_ok(), "{:?}", theirs.err());
            let theirs = theirs.unwrap();
            prop_assert_eq!(theirs.len(), ours.names().len());
            for tensor in ours.tensors() {
                prop_assert_eq!(theirs.tensor(tensor.name).unwrap().data(), tensor.bytes);
            }
        }
    }
}

/// The folder of a model that bitsandbytes quantized, in each form.
fn quantized(form: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/parity/bitsandbytes").join(form)
}

#[test]
fn weights_of_bitsandbytes_are_what_it_dequantizes_them_to() {
    for (form, dtype) in [("nf4", "BF16"), ("fp4", "F16"), ("nf4-f32", "F32"), ("int8", "F32")] {
        let weights = Weights::open(quantized(form)).unwrap();
        let expected = SafeTensors::open(quantized(form).join("expected.safetensors")).unwrap();
        let mut names: Vec<&str> = expected.names().collect();
        names.sort_unstable();
        assert_eq!(weights.names().collect::<Vec<_>>(), names, "{form}");
        assert!(weights.is_quantized());
        for name in names {
            let (found, there) = (weights.require(name).unwrap(), expected.require(name).unwrap());
            assert_eq!(found.shape, there.shape, "{form}, {name}");
            if name.contains("_proj") {
                assert_eq!(found.dtype, dtype, "{form}, {name}");
            }
            let bits = |view: TensorView<'_>| -> Vec<u32> {
                view.to_f32().unwrap().into_iter().map(f32::to_bits).collect()
            };
            assert!(bits(found) == bits(there), "{form}, {name}");
        }
    }
    let plain = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/parity/llama-gqa-case");
    assert!(!Weights::open(plain).unwrap().is_quantized());
}

#[test]
fn quantized_matrices_are_transposed_where_that_is_asked_for() {
    let is = |name: &str| name.ends_with("down_proj.weight");
    for form in ["nf4", "int8"] {
        let stored = Weights::open(quantized(form)).unwrap();
        let read = Weights::open(quantized(form)).unwrap().transposing(is);
        for name in stored.names() {
            let [(shape, values), (turned, found)] =
                [&stored, &read].map(|weights| weights.require(name).unwrap().to_values().unwrap());
            if !is(name) {
                assert!(shape == turned && values == found, "{form}, {name}");
                continue;
            }
            let [rows, columns] = shape[..] else { panic!("{name} is no matrix") };
            assert_eq!(turned, [columns, rows]);
            let same = |at: usize| values[at] == found[at % columns * rows + at / columns];
            assert!(rows != columns && (0..values.len()).all(same), "{form}, {name}");
        }
    }
}

/// `bnb_4bit_quant_storage` has the bytes of codes stored as floats.
#[test]
fn codes_are_read_in_every_type_that_they_are_stored_in() {
    const DOWN: &str = "model.layers.0.mlp.down_proj.weight";
    let source = SafeTensors::open(quantized("nf4").join("model.safetensors")).unwrap();
    let expected = Weights::open(quantized("nf4")).unwrap();
    let expected = expected.require(DOWN).unwrap().to_values().unwrap();
    for dtype in [DType::BF16, DType::F16, DType::F32] {
        let tensors = source.tensors().map(|view| match view.name == DOWN {
            true => {
                let ty = Type::new(dtype, vec![view.bytes.len() / dtype.size(), 1]);
                Tensor::new(view.name, ty, view.bytes)
            }
            false => Tensor::new(view.name, view.ty().unwrap(), view.bytes),
        });
        let folder = tempdir().unwrap();
        let file = folder.path().join("model.safetensors");
        write(&file, tensors, source.metadata()).unwrap();
        let found = Weights::open(&file).unwrap();
        assert!(found.require(DOWN).unwrap().to_values().unwrap() == expected, "{dtype:?}");
    }
}

#[test]
fn parts_of_quantized_weights_that_are_missing_or_do_not_fit_are_refused() {
    const DOWN: &str = "model.layers.0.mlp.down_proj";
    for (form, part, shortened, words) in [
        ("nf4", "weight.absmax", false, "weight.absmax` is missing"),
        ("nf4", "weight.nested_absmax", true, "its scales don't fit its shape"),
        ("nf4", "weight.quant_map", true, "its scales don't fit its shape"),
        ("fp4", "weight", true, "which aren't two a byte of shape"),
        ("fp4", "weight.quant_state.bitsandbytes__fp4", true, "its description can't be read"),
        ("int8", "SCB", true, "with a scale for each row"),
    ] {
        let source = SafeTensors::open(quantized(form).join("model.safetensors")).unwrap();
        let changed = format!("{DOWN}.{part}");
        assert!(source.get(&changed).is_some(), "{changed}");
        let kept = source.tensors().filter(|view| shortened || view.name != changed);
        let kept = kept.map(|view| {
            let ty = view.ty().unwrap();
            if view.name != changed {
                return Tensor::new(view.name, ty, view.bytes);
            }
            // Without its first element.
            let size = ty.dtype.size();
            let left = vec![view.bytes.len() / size - 1];
            Tensor::new(view.name, Type::new(ty.dtype, left), &view.bytes[size..])
        });
        let folder = tempdir().unwrap();
        let file = folder.path().join("model.safetensors");
        write(&file, kept, source.metadata()).unwrap();
        let message = Weights::open(&file).unwrap_err().to_string();
        assert!(message.contains(words) && message.contains(DOWN), "{part}: {message}");
    }
}

//! Models for others: directories with all that transformers looks for.

use tightrope::data::SafeTensors;

use super::*;

fn loss(dir: &Path, words: &str) -> f64 {
    json(&ok(dir, &format!("eval {words} --data text.txt --json")))["loss"].as_f64().unwrap()
}

fn config(dir: &Path, file: &str) -> Value {
    serde_json::from_slice(&fs::read(dir.join(file)).unwrap()).unwrap()
}

#[test]
fn a_run_is_exported_in_each_type_of_number() {
    let dir = folder();
    ok(dir.path(), &format!("train --preset gpt2 {TINY} --data text.txt --out a"));
    let before = loss(dir.path(), "a");
    for (precision, dtype, name, off) in [
        ("f32", "F32", "float32", 1e-9),
        ("bf16", "BF16", "bfloat16", 0.1),
        ("f16", "F16", "float16", 0.01),
    ] {
        ok(dir.path(), &format!("export a {precision} --precision {precision}"));
        let exported = dir.path().join(precision);
        let weights = SafeTensors::open(exported.join("model.safetensors")).unwrap();
        assert!(weights.tensors().all(|tensor| tensor.dtype == dtype));
        let config = config(&exported, "config.json");
        assert_eq!((&config["dtype"], &config["eos_token_id"]), (&name.into(), &50_256.into()));
        let after = loss(dir.path(), &format!("{precision} --batch 4"));
        assert!((after - before).abs() <= off, "{precision}: {after}, before {before}");
    }
    let exported = dir.path().join("f32");
    assert_eq!(config(&exported, "generation_config.json")["eos_token_id"], 50_256);
    let tokenizer = config(&exported, "tokenizer_config.json");
    assert_eq!(
        (&tokenizer["eos_token"], &tokenizer["tokenizer_class"]),
        (&"<|endoftext|>".into(), &"GPT2Tokenizer".into())
    );
    assert_eq!(config(&exported, "vocab.json")["\u{120}the"], 262);
    let merges = fs::read_to_string(exported.join("merges.txt")).unwrap();
    assert_eq!(merges.lines().nth(1), Some("\u{120} t"));

    let (code, message) = refused(dir.path(), "export a f32");
    assert_eq!(code, 2);
    assert!(message.contains("`f32` isn't empty"), "{message}");
    let (_, message) = refused(dir.path(), "export a b --merge");
    assert!(message.contains("has no adapters to merge"), "{message}");
}

#[test]
fn merged_adapters_are_a_model_that_scores_as_they_did() {
    for (family, quantized) in [
        ("gpt2", ""),
        ("llama", ""),
        ("gpt2", "--set lora.base_bits=8"),
        ("llama", "--set lora.base_bits=4"),
    ] {
        let dir = folder();
        ok(dir.path(), &format!("train --family {family} {TINY} --data text.txt --out base"));
        let lora = format!("--lora-rank 4 {quantized} --lr 3e-2 --steps 20 --threads 1");
        ok(dir.path(), &format!("train --init base --data text.txt {lora} --out a"));
        let (code, message) = refused(dir.path(), "export a b");
        assert_eq!(code, 2);
        assert!(message.contains("give --merge"), "{message}");
        let [base, adapted] = ["base", "a"].map(|model| loss(dir.path(), model));
        assert!((adapted - base).abs() > 1e-3, "{family}: {adapted} with adapters, {base} without");
        for (precision, dtype, off) in
            [("f32", "F32", 1e-4), ("bf16", "BF16", 0.1), ("f16", "F16", 0.01)]
        {
            ok(dir.path(), &format!("export a {precision} --merge --precision {precision}"));
            let file = dir.path().join(precision).join("model.safetensors");
            let weights = SafeTensors::open(file).unwrap();
            assert!(weights.tensors().all(|tensor| tensor.dtype == dtype), "{precision}");
            let merged = loss(dir.path(), &format!("{precision} --batch 4"));
            assert!(
                (adapted - merged).abs() < off,
                "{family} {quantized} {precision}: {adapted}, merged {merged}"
            );
        }
    }
}

#[test]
fn adapters_of_peft_are_merged_into_the_model_that_they_are_named_beside() {
    let dir = folder();
    let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/parity/llama-lora-case");
    let (base, adapters) = (case.display(), case.join("adapters"));
    let beside = format!("--lora-init {}", adapters.display());
    ok(dir.path(), &format!("export {base} merged --merge {beside} --tokenizer byte"));
    let adapted = loss(dir.path(), &format!("{base} {beside}"));
    let merged = loss(dir.path(), "merged");
    assert!((adapted - merged).abs() < 1e-4, "{adapted}, merged {merged}");
}

#[test]
fn a_model_without_a_tokenizer_is_exported_and_computes_the_same() {
    for name in ["qwen3-case", "bert-case", "bert-classes-case"] {
        let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/parity").join(name);
        let dir = tempfile::tempdir().unwrap();
        ok(dir.path(), &format!("export {} out", case.display()));
        let out = dir.path().join("out");
        assert!(!out.join("tokenizer_config.json").exists(), "{name}");
        fs::copy(case.join("case.safetensors"), out.join("case.safetensors")).unwrap();
        ok(dir.path(), "verify out --device cpu");
    }
}

// The weights were written first, and stayed alone in the directory.
#[test]
fn a_tokenizer_that_is_broken_is_refused_before_anything_is_written() {
    let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/parity/qwen3-case");
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("model");
    fs::create_dir(&model).unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(case.join(file), model.join(file)).unwrap();
    }
    fs::write(model.join("tokenizer.json"), "{").unwrap();
    refused(dir.path(), "export model out");
    assert!(!dir.path().join("out").exists());
}

//! Models that bitsandbytes quantized: trained beside by adapters, continued, and exported in the numbers that they dequantize to.

use std::path::PathBuf;

use tightrope::data::SafeTensors;

use super::*;

fn form(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/parity/bitsandbytes").join(name)
}

/// The model `name` with its weights dequantized, in the folder `name` of `dir`.
fn dequantized(dir: &TempDir, name: &str) {
    let folder = dir.path().join(name);
    fs::create_dir(&folder).unwrap();
    let file = fs::read(form(name).join("config.json")).unwrap();
    let mut config: Value = serde_json::from_slice(&file).unwrap();
    config.as_object_mut().unwrap().remove("quantization_config").unwrap();
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
    fs::copy(form(name).join("expected.safetensors"), folder.join("model.safetensors")).unwrap();
}

#[test]
fn a_quantized_base_is_its_dequantized_weights() {
    for name in ["nf4", "fp4", "int8"] {
        let dir = folder();
        dequantized(&dir, name);
        let words = "--data text.txt --lora-rank 2 --steps 2 --batch 2 --context 16 --threads 1 --device cpu --json";
        let trained = |base: &str, out: &str| {
            let output = ok(dir.path(), &format!("train --init {base} {words} --out {out}"));
            (json(&output)["last_loss"].clone(), stderr(&output))
        };
        let shown = form(name).display().to_string();
        let (loss, said) = trained(&shown, "a");
        assert!(said.contains("are quantized by bitsandbytes"), "{said}");
        let (plain, said) = trained(name, "b");
        assert!(!said.contains("bitsandbytes"), "{said}");
        assert_eq!(loss, plain, "{name}");
        ok(dir.path(), "train --resume a --steps 3");
        let text = |model: &str| {
            let words = format!(
                "generate {model} --prompt 1 --max-tokens 8 --temperature 0 --device cpu --json"
            );
            json(&ok(dir.path(), &words))["text"].clone()
        };
        assert_eq!(text(&shown), text(name), "{name}");
        ok(dir.path(), &format!("export {shown} out"));
        let config: Value =
            serde_json::from_slice(&fs::read(dir.path().join("out/config.json")).unwrap()).unwrap();
        assert!(config["quantization_config"].is_null(), "{config}");
        let open = |dir: &Path, file: &str| SafeTensors::open(dir.join(file)).unwrap();
        let out = open(&dir.path().join("out"), "model.safetensors");
        let expected = open(&form(name), "expected.safetensors");
        for tensor in expected.tensors() {
            let found = out.require(tensor.name).unwrap();
            assert!(found.to_f32().unwrap() == tensor.to_f32().unwrap(), "{name}: {}", tensor.name);
        }
    }
    let dir = folder();
    let shown = form("nf4").display().to_string();
    let words = format!(
        "train --init {shown} --data text.txt --lora-rank 2 --set lora.base_bits=4 --steps 1 --batch 2 --context 16 --device cpu --out again"
    );
    let said = stderr(&ok(dir.path(), &words));
    assert!(said.contains("`lora.base_bits` quantizes them anew"), "{said}");
}

//! Models for others: directories with all that transformers looks for.

use tightrope::data::SafeTensors;

use super::*;

/// The template of conversations with tools.
const FOR_TOOLS: &str = "additional_chat_templates/tool_use.jinja";

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
    for name in ["qwen3-case", "bert-case", "bert-classes-case", "gpt2-classes-case"] {
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

/// Writes `value` as the JSON file `path`.
fn put(path: &Path, value: &Value) {
    fs::write(path, value.to_string()).unwrap();
}

/// Names, types and bytes of the tensors of a model.
fn tensors(dir: &Path) -> Vec<(String, &'static str, Vec<u8>)> {
    let file = SafeTensors::open(dir.join("model.safetensors")).unwrap();
    let mut all: Vec<_> =
        file.tensors().map(|it| (it.name.to_owned(), it.dtype, it.bytes.to_vec())).collect();
    all.sort();
    all
}

// Ids of special tokens became the tokenizer's, defaults of generation went, and bf16 became f32.
#[test]
fn an_export_copies_what_it_does_not_change() {
    let families = [
        "gpt2", "llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "smollm3",
        "olmo2",
    ];
    for family in families {
        let dir = folder();
        let at = |name: &str| dir.path().join(name);
        ok(dir.path(), &format!("train --family {family} {TINY} --data text.txt --out own"));
        ok(dir.path(), "export own source --precision bf16");
        let source = at("source");
        let mut described = config(&source, "config.json");
        for (key, value) in [
            ("bos_token_id", 3.into()),
            ("eos_token_id", vec![1, 4].into()),
            ("pad_token_id", 2.into()),
            ("initializer_range", 0.05.into()),
            ("transformers_version", "5.24.0".into()),
            ("use_cache", true.into()),
        ] {
            described[key] = value;
        }
        described.as_object_mut().unwrap().remove("torch_dtype");
        put(&source.join("config.json"), &described);
        let generation = serde_json::json!({
            "bos_token_id": 3, "eos_token_id": [1, 4], "pad_token_id": 2, "do_sample": true,
            "temperature": 0.6, "top_p": 0.9, "transformers_version": "5.24.0",
        });
        put(&source.join("generation_config.json"), &generation);
        put(&source.join("special_tokens_map.json"), &serde_json::json!({ "eos_token": "a" }));
        fs::write(source.join("chat_template.jinja"), "{{ messages[0]['content'] }}").unwrap();
        fs::create_dir(source.join("additional_chat_templates")).unwrap();
        fs::write(source.join(FOR_TOOLS), "{{ tools }}").unwrap();
        let words = "--data text.txt --steps 1 --lr 0 --batch 2 --threads 1 --device cpu";
        ok(dir.path(), &format!("train --init source {words} --out run"));
        // A run may begin with a run, and a model be exported as it is.
        ok(dir.path(), &format!("train --init run {words} --out again"));
        ok(dir.path(), &format!("train --init source {words} --lora-rank 2 --out lora"));
        for (model, more) in [("source", ""), ("run", ""), ("again", ""), ("lora", "--merge")] {
            let out = format!("out-{model}");
            ok(dir.path(), &format!("export {model} {out} {more}"));
            let out = at(&out);
            assert_eq!(config(&out, "config.json"), described, "{family}, {model}");
            for file in [
                "generation_config.json",
                "special_tokens_map.json",
                "chat_template.jinja",
                FOR_TOOLS,
            ] {
                let [one, other] = [&source, &out].map(|dir| fs::read(dir.join(file)).ok());
                assert!(one == other, "{family}, {model}: {file}");
            }
            assert!(tensors(&out) == tensors(&source), "{family}, {model}: tensors");
        }
        ok(dir.path(), "export run wide --precision f32");
        assert_eq!(config(&at("wide"), "config.json")["dtype"], "float32", "{family}");
    }
}

// One id of `eos_token_id` ended a text: the tokenizer's.
#[test]
fn each_id_of_the_list_ends_a_text() {
    let dir = folder();
    ok(dir.path(), &format!("train --family llama {TINY} --data text.txt --out own"));
    ok(dir.path(), "export own model");
    let file = dir.path().join("model/generation_config.json");
    let text = |words: &str| {
        let words = format!("generate model --prompt 1 --max-tokens 5 --device cpu --json {words}");
        json(&ok(dir.path(), &words))["text"].as_str().unwrap().to_owned()
    };
    put(&file, &serde_json::json!({ "do_sample": false }));
    let greedy = text("");
    assert_eq!(greedy, text("--temperature 0"));
    let first = greedy.as_bytes()[0];
    put(&file, &serde_json::json!({ "do_sample": false, "eos_token_id": [255, first] }));
    assert_eq!(text(""), "");
    put(&file, &serde_json::json!({ "do_sample": true, "top_k": 1, "eos_token_id": 255 }));
    assert_eq!(text(""), greedy);
    put(&file, &serde_json::json!({ "repetition_penalty": 1.1 }));
    let note = stderr(&ok(dir.path(), "generate model --prompt 1 --max-tokens 5 --device cpu"));
    assert!(note.contains("`repetition_penalty` of 1.1, which isn't applied"), "{note}");
    put(&file, &serde_json::json!({ "eos_token_id": "x" }));
    let (_, message) = refused(dir.path(), "generate model --prompt 1 --device cpu");
    assert!(message.contains("`eos_token_id` is \"x\""), "{message}");
}

// A token that the embedding has no row for was refused though no text has it.
#[test]
fn a_tokenizer_with_ids_past_the_embedding_is_read_and_rows_are_added() {
    let dir = folder();
    ok(dir.path(), "tokenizer train text.txt --vocab 300 --out tokenizer");
    let words = format!("{TINY} --tokenizer tokenizer --data text.txt");
    ok(dir.path(), &format!("train --family llama {words} --set model.tied=false --out own"));
    ok(dir.path(), "export own model");
    let loss = |words: &str| json(&ok(dir.path(), words))["loss"].as_f64().unwrap();
    let before = loss("eval model --texts text.txt --device cpu --json");
    let file = dir.path().join("model/tokenizer.json");
    let mut tokenizer = config(dir.path(), "model/tokenizer.json");
    let rows = config(dir.path(), "model/config.json")["vocab_size"].as_u64().unwrap();
    let added = serde_json::json!({
        "id": rows, "content": "<image>", "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": true,
    });
    tokenizer["added_tokens"].as_array_mut().unwrap().push(added);
    put(&file, &tokenizer);
    assert_eq!(loss("eval model --texts text.txt --device cpu --json"), before);
    fs::write(dir.path().join("image.txt"), "1 and 2 make <image>\n".repeat(50)).unwrap();
    let chat = |answer: &str| format!("{{\"prompt\": \"1 and\", \"completion\": \"{answer}\"}}\n");
    fs::write(dir.path().join("chat.jsonl"), chat("2 make 3").repeat(4)).unwrap();
    fs::write(dir.path().join("image.jsonl"), chat("2 make 3").repeat(4) + &chat("<image>"))
        .unwrap();
    ok(
        dir.path(),
        "train --init model --data chat.jsonl --steps 1 --batch 2 --device cpu --out rows",
    );
    let rows_of = format!("id {rows}");
    for words in [
        "eval model --texts image.txt --device cpu",
        "generate model --prompt <image> --device cpu",
        "train --init model --data image.txt --steps 1 --device cpu --out none",
        "train --init model --data image.jsonl --steps 1 --device cpu --out none",
    ] {
        let (_, message) = refused(dir.path(), words);
        assert!(message.contains(&rows_of), "`{words}`: {message}");
        assert!(message.contains("--add-tokens"), "`{words}`: {message}");
    }
    let words = "--data image.txt --steps 1 --lr 0 --batch 2 --device cpu --add-tokens";
    for (name, more) in [("mean", ""), ("drawn", "--set model.mean_resizing=false")] {
        ok(dir.path(), &format!("train --init model {words} {more} --out {name}"));
        ok(dir.path(), &format!("export {name} {name}-model"));
        ok(
            dir.path(),
            &format!("train --init model {words} {more} --lora-rank 2 --out {name}-lora"),
        );
        ok(dir.path(), &format!("export {name}-lora {name}-merged --merge"));
        let [whole, merged] = [format!("{name}-model"), format!("{name}-merged")]
            .map(|it| tensors(&dir.path().join(it)));
        assert!(whole == merged, "{name}");
        let out = dir.path().join(format!("{name}-model"));
        assert_eq!(config(&out, "config.json")["vocab_size"], rows + 1);
        ok(dir.path(), &format!("train --resume {name} --steps 2"));
        loss(&format!("eval {name}-model --texts image.txt --device cpu --json"));
        for table in ["model.embed_tokens.weight", "lm_head.weight"] {
            let file = SafeTensors::open(out.join("model.safetensors")).unwrap();
            let values = file.require(table).unwrap().to_f32().unwrap();
            let (old, new) = values.split_at(rows as usize * 16);
            for (column, &new) in new.iter().enumerate() {
                let sum: f64 = old.iter().skip(column).step_by(16).map(|&x| f64::from(x)).sum();
                let off = f64::from(new) - sum / rows as f64;
                assert!((off.abs() < 1e-8) == (name == "mean"), "{name}, {table}: {off}");
            }
        }
    }
}

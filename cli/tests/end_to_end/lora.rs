//! Adapters from outside: trained, saved as PEFT's, resumed, generated from and evaluated.

use std::path::PathBuf;

use tightrope::data::SafeTensors;
use tightrope::data::safetensors::{Tensor, write};

use super::*;

const LORA: &str = "--lora-rank 4 --lr 1e-2 --set run.save_every=6";

/// A folder with a run `m` to start from.
fn base() -> TempDir {
    let dir = folder();
    ok(dir.path(), &format!("train --data text.txt --out m {TINY}"));
    dir
}

fn read(dir: &TempDir, file: &str) -> Vec<u8> {
    fs::read(dir.path().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

#[test]
fn adapters_are_saved_alone_and_continue_bit_for_bit() {
    let dir = base();
    let starts = ["--init m/checkpoints/step-12", TINY];
    for (index, (start, bits)) in starts
        .into_iter()
        .flat_map(|start| {
            [(start, ""), (start, "--set lora.base_bits=8"), (start, "--set lora.base_bits=4")]
        })
        .enumerate()
    {
        let words = format!(
            "train --data text.txt --out a{index} {TINY} {start} {LORA} {bits} \
             --set lora.dropout=0.1 --json"
        );
        let trained = json(&ok(dir.path(), &words));
        assert!(trained["last_loss"].as_f64() < trained["first_loss"].as_f64(), "{trained}");
        assert_eq!(trained["predicted_peak_bytes"], trained["measured_peak_bytes"]);
        // A and B of four layers of 16 channels, at rank 4: attention's 16 to 48 and to 16, and 16 to 64 and back.
        assert_eq!(trained["trained_parameters"], 4 * (16 + 48 + 16 + 16 + 16 + 64 + 64 + 16));
        let folder = format!("a{index}/checkpoints/step-12");
        assert!(!dir.path().join(&folder).join("model.safetensors").exists());
        let config: Value =
            serde_json::from_slice(&read(&dir, &format!("{folder}/adapter_config.json"))).unwrap();
        assert_eq!((&config["peft_type"], &config["r"]), (&"LORA".into(), &4.into()));
        assert_eq!(config["target_modules"], "all-linear");

        let evaluated = json(&ok(dir.path(), &format!("eval a{index} --json")));
        assert_eq!(evaluated["loss"], trained["heldout_loss"]);
        let text =
            |path: &str| stdout(&ok(dir.path(), &format!("generate {path} --max-tokens 20")));
        assert_eq!(text(&format!("a{index}")), text(&folder));

        let again = format!("train --resume a{index}/checkpoints/step-6 --out b{index}");
        ok(dir.path(), &format!("{again} --data text.txt"));
        for file in ["adapter_model.safetensors", "optimizer.safetensors", "manifest.json"] {
            let [one, other] = ["a", "b"]
                .map(|run| read(&dir, &format!("{run}{index}/checkpoints/step-12/{file}")));
            assert!(one == other, "{file} of {start} {bits}");
        }
    }
}

#[test]
fn what_does_not_fit_the_adapters_is_refused() {
    let dir = base();
    let words = format!("train --data text.txt --init m/checkpoints/step-12 {TINY}");
    for (more, expected) in [
        ("--lora-rank 4 --set lora.targets=c_atn", "did you mean `c_attn`?"),
        ("--lora-rank 4 --set lora.base_bits=5", "`lora.base_bits` must be 8 or 4, not 5"),
        ("--lora-rank 4 --lora-alpha 0", "`lora.alpha` must be a number above 0"),
        ("--lora-rank 1000", "`lora.rank`: 1000 must lie between 1 and 64"),
    ] {
        let (code, message) = refused(dir.path(), &format!("{words} {more}"));
        assert_eq!(code, 2, "{message}");
        assert!(message.contains(expected), "{message}");
    }
    ok(dir.path(), &format!("{words} {LORA} --out a"));
    for (words, expected) in [
        ("train --resume a --lora-rank 8 --steps 20", "`lora.rank` was 4"),
        ("train --init a --data text.txt --steps 2", "holds adapters, and not the weights"),
        ("train --resume m --lora-rank 8 --steps 20", "`lora.rank` was 0"),
    ] {
        let (_, message) = refused(dir.path(), words);
        assert!(message.contains(expected), "{message}");
    }
    // The base moves: it is found where --init says, and nothing else passes for it.
    fs::rename(dir.path().join("m"), dir.path().join("n")).unwrap();
    let (code, message) = refused(dir.path(), "eval a");
    assert_eq!(code, 1);
    assert!(message.contains("aren't there") && message.contains("--init"), "{message}");
    ok(dir.path(), "eval a --init n/checkpoints/step-12");
    ok(dir.path(), &format!("train --data text.txt --out m {TINY} --seed 5"));
    let (_, message) = refused(dir.path(), "eval a --init m");
    assert!(message.contains("aren't there"), "{message}");
}

/// A recorded case of adapters that PEFT made, beside its model.
fn recorded(family: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/parity");
    root.join(format!("{family}-lora-case"))
}

/// Names and extents of the adapters in a directory.
fn adapters(dir: &Path) -> Vec<(String, Vec<usize>)> {
    let file = SafeTensors::open(dir.join("adapter_model.safetensors")).unwrap();
    let mut found: Vec<_> =
        file.tensors().map(|view| (view.name.to_owned(), view.shape.to_vec())).collect();
    found.sort();
    found
}

/// The `adapter_config.json` in a directory.
fn described(dir: &Path) -> Value {
    serde_json::from_slice(&fs::read(dir.join("adapter_config.json")).unwrap()).unwrap()
}

#[test]
fn adapters_of_peft_are_trained_on_and_saved_as_they_came() {
    for family in ["gpt2", "llama"] {
        let (dir, case) = (folder(), recorded(family));
        let (base, peft) = (case.display(), case.join("adapters"));
        let from = format!("--data text.txt --lora-init {}", peft.display());
        let loss = |words: String| json(&ok(dir.path(), &words))["loss"].as_f64().unwrap();
        let alone = loss(format!("eval {base} --data text.txt --json"));
        let adapted = loss(format!("eval {base} {from} --json"));
        assert!(
            (adapted - alone).abs() > 1e-3,
            "{family}: {adapted} with adapters, {alone} without"
        );
        let beside = peft.display();
        ok(dir.path(), &format!("generate {base} --lora-init {beside} --max-tokens 4"));
        ok(dir.path(), &format!("plan --init {base} {from} --device cpu"));

        let words = "--batch 4 --steps 2 --threads 1 --device cpu";
        ok(dir.path(), &format!("train --init {base} {from} {words} --lr 1e-12 --out a"));
        let saved = dir.path().join("a/checkpoints/step-2");
        assert_eq!(adapters(&saved), adapters(&peft), "{family}");
        let [ours, theirs] = [&saved, &peft].map(|dir| described(dir));
        for (key, value) in ours.as_object().unwrap() {
            let same = match key.as_str() {
                "base_model_name_or_path" => {
                    value.as_str().is_some_and(|path| Path::new(path).exists())
                }
                _ => theirs.get(key) == Some(value),
            };
            assert!(same, "{family}: `{key}` is {value}, and PEFT wrote {}", theirs[key]);
        }
        let continued = loss("eval a --data text.txt --json".to_owned());
        assert!((continued - adapted).abs() < 1e-5, "{family}: {continued} and {adapted}");
        // What this program saves can be started from as well.
        let again =
            loss(format!("eval {base} --data text.txt --lora-init {} --json", saved.display()));
        assert!((again - continued).abs() < 1e-5, "{family}: {again} and {continued}");
        let of_run = loss(format!("eval {base} --data text.txt --lora-init a --json"));
        assert_eq!(of_run, again, "{family}");
        // The adapters that a run began with may go.
        let copy = dir.path().join("copy");
        fs::create_dir(&copy).unwrap();
        for file in ["adapter_config.json", "adapter_model.safetensors"] {
            fs::copy(peft.join(file), copy.join(file)).unwrap();
        }
        let words = format!("--init {base} --data text.txt --lora-init copy {words} --out b");
        ok(dir.path(), &format!("train {words}"));
        fs::remove_dir_all(&copy).unwrap();
        ok(dir.path(), "train --resume b --steps 3");
        ok(dir.path(), "eval b");
        // Their dropout is trained with, unless another is asked for.
        let mut config = described(&peft);
        config["lora_dropout"] = 0.5.into();
        fs::create_dir(&copy).unwrap();
        fs::write(copy.join("adapter_config.json"), config.to_string()).unwrap();
        let file = "adapter_model.safetensors";
        fs::copy(peft.join(file), copy.join(file)).unwrap();
        for (more, dropout) in [("", 0.5), ("--set lora.dropout=0.0", 0.0)] {
            let out = format!("dropped-{dropout}");
            ok(dir.path(), &format!("train {words} --out {out} {more}").replace("--out b", ""));
            let saved = dir.path().join(out).join("checkpoints/step-2");
            assert_eq!(described(&saved)["lora_dropout"], dropout, "{family}");
        }
        // Its own adapters are what a run goes on with.
        let other = peft.display();
        for words in [
            format!("train --resume b --steps 4 --lora-init {other}"),
            format!(
                "train --resume b/checkpoints/step-3 --steps 4 --set lora.init={other} --out c"
            ),
            format!("eval b --set lora.init={other}"),
            format!("generate b --lora-init {other}"),
        ] {
            let (code, message) = refused(dir.path(), &words);
            assert_eq!(code, 2, "`{words}`: {message}");
            assert!(message.contains("has adapters of its own"), "`{words}`: {message}");
        }
        ok(dir.path(), "eval b --config b/run.toml");
    }
}

#[test]
fn adapters_that_do_not_fit_are_refused() {
    let dir = folder();
    let copy = |name: &str, change: &dyn Fn(&mut Value), lost: Option<&str>| {
        let (from, to) = (recorded("gpt2").join("adapters"), dir.path().join(name));
        fs::create_dir(&to).unwrap();
        let mut config = described(&from);
        change(&mut config);
        fs::write(to.join("adapter_config.json"), config.to_string()).unwrap();
        let file = SafeTensors::open(from.join("adapter_model.safetensors")).unwrap();
        let kept = file.tensors().filter(|view| lost.is_none_or(|lost| !view.name.contains(lost)));
        let tensors = kept.map(|view| Tensor::new(view.name, view.ty().unwrap(), view.bytes));
        write(to.join("adapter_model.safetensors"), tensors, file.metadata()).unwrap();
    };
    copy("whole", &|_| {}, None);
    copy("rank", &|config| config["r"] = 8.into(), None);
    copy("dora", &|config| config["use_dora"] = true.into(), None);
    copy("qalora", &|config| config["use_qalora"] = true.into(), None);
    copy("target", &|config| config["target_modules"] = vec!["c_atn"].into(), None);
    copy("fewer", &|config| config["target_modules"] = vec!["c_attn"].into(), None);
    copy("lost", &|_| {}, Some("h.1.attn.c_attn.lora_B"));
    fs::create_dir(dir.path().join("empty")).unwrap();
    let (gpt2, llama) = (recorded("gpt2"), recorded("llama"));
    let [gpt2, llama] = [&gpt2, &llama].map(|case| case.display());
    for (words, code, expected) in [
        (
            format!("--init {gpt2} --lora-init whole --lora-rank 8"),
            2,
            "`lora.rank` is 8, and the adapters in `whole` have 4",
        ),
        (
            format!("--init {gpt2} --lora-init whole --lora-alpha 9"),
            2,
            "`lora.alpha` is 9, and the adapters in `whole` have 8",
        ),
        (
            format!("--init {gpt2} --lora-init whole --set lora.targets=c_fc"),
            1,
            "is not an adapter that the settings of `lora` describe",
        ),
        (
            format!("--init {gpt2} --lora-init rank"),
            1,
            "has shape [4, 32], the model needs [8, 32]",
        ),
        (format!("--init {gpt2} --lora-init dora"), 1, "lora_magnitude_vector` [96] is missing"),
        (
            format!("--init {gpt2} --lora-init qalora"),
            2,
            "key `use_qalora`: is true; supported: false",
        ),
        (format!("--init {gpt2} --lora-init target"), 2, "did you mean `c_attn`?"),
        (
            format!("--init {gpt2} --lora-init fewer"),
            1,
            "is not an adapter that the settings of `lora` describe",
        ),
        (
            format!("--init {gpt2} --lora-init lost"),
            1,
            "h.1.attn.c_attn.lora_B.weight` [96, 4] is missing",
        ),
        (format!("--init {gpt2} --lora-init empty"), 2, "can't read `adapter_config.json`"),
        (format!("--init {gpt2} --lora-init empty"), 2, "the adapters in `empty` can't be used"),
        (
            format!("--init {llama} --lora-init whole"),
            2,
            "no linear layer of the model is called `c_attn`. It has embed_tokens, q_proj",
        ),
        ("--init m --lora-init whole".to_owned(), 1, "has shape [4, 32], the model needs [4, 16]"),
        (format!("--lora-init whole {TINY}"), 2, "say with --init where that model is"),
    ] {
        if words.starts_with("--init m") {
            ok(dir.path(), &format!("train --data text.txt --out m {TINY} --set model.layers=2"));
        }
        let words =
            format!("train --data text.txt --device cpu --threads 1 --steps 2 --out run {words}");
        let (found, message) = refused(dir.path(), &words);
        assert!(message.contains(expected), "`{words}`: {message}");
        assert_eq!(found, code, "`{words}`: {message}");
        assert!(!dir.path().join("run").exists(), "`{words}` left a run");
    }
}

// DoRA, rsLoRA, other ranks and alphas by name, excluded layers, an adapter of the head, and modules that are trained whole: each was refused.
#[test]
fn variants_of_peft_are_trained_as_it_does_saved_and_merged() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/parity");
    for case in ["gpt2-dora-case", "llama-adapters-case"] {
        let (dir, case) = (folder(), root.join(case));
        let (base, peft) = (case.display(), case.join("adapters"));
        ok(dir.path(), &format!("verify {base} --device cpu"));
        let loss = |words: String| json(&ok(dir.path(), &words))["loss"].as_f64().unwrap();
        let beside = format!("--lora-init {}", peft.display());
        let adapted = loss(format!("eval {base} {beside} --data text.txt --json"));
        let words = "--data text.txt --batch 4 --steps 1 --lr 0 --threads 1 --device cpu";
        ok(dir.path(), &format!("train --init {base} {beside} {words} --out a"));
        let saved = dir.path().join("a/checkpoints/step-1");
        // The weight that the head's adapter is beside is the model's own.
        let mut expected = adapters(&peft);
        expected.retain(|(name, _)| !name.contains("base_layer"));
        assert_eq!(adapters(&saved), expected, "{base}");
        let [mut ours, mut theirs] = [&saved, &peft].map(|dir| described(dir));
        for file in [&mut ours, &mut theirs] {
            file["base_model_name_or_path"] = Value::Null;
        }
        assert_eq!(ours, theirs, "{base}");
        ok(dir.path(), "export a merged --merge --tokenizer byte");
        ok(dir.path(), &format!("export {base} theirs --merge {beside} --tokenizer byte"));
        for (name, words) in [("a", "eval a"), ("merged", "eval merged"), ("theirs", "eval theirs")]
        {
            let found = loss(format!("{words} --data text.txt --json"));
            assert!((found - adapted).abs() < 1e-5, "{base}, {name}: {found}, not {adapted}");
        }
        ok(dir.path(), "train --resume a --steps 2 --lr 1e-3");
        let more =
            format!("train --init {base} {words} --out new --lora-rank 2 --set lora.dora=true");
        ok(dir.path(), &format!("{more} --set lora.rank_pattern=up_proj=3,c_fc=3"));
        // New lengths begin as those of the rows, so that the model is as it was.
        let alone = loss(format!("eval {base} --data text.txt --json"));
        let begun = loss("eval new --data text.txt --json".to_owned());
        assert!((begun - alone).abs() < 1e-5, "{base}: {begun}, not {alone}");
    }
}

#[test]
fn adapters_of_another_base_are_refused() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/parity");
    let (dir, case) = (folder(), root.join("llama-adapters-case"));
    let other = dir.path().join("other");
    ok(
        dir.path(),
        "train --family llama --layers 2 --channels 32 --heads 4 --context 16 --steps 1 --set model.hidden=72 --set model.kv_heads=2 --set model.tied=false --data text.txt --out run",
    );
    ok(dir.path(), "export run other --tokenizer byte");
    let words =
        format!("eval {} --lora-init {}/adapters --data text.txt", other.display(), case.display());
    let (code, message) = refused(dir.path(), &words);
    assert_eq!(code, 2, "{message}");
    assert!(message.contains("lm_head.base_layer.weight` isn't `lm_head.weight`"), "{message}");
}

//! Model directories: started from, generated from, evaluated; and broken ones.

use tightrope::core::{DType, Type};
use tightrope::data::{SafeTensors, Tensor, safetensors};

use super::*;

/// A folder with a run `a` and its model as a Hugging Face directory `m`.
fn model() -> TempDir {
    let dir = folder();
    ok(dir.path(), &format!("train --data text.txt --out a {TINY}"));
    let (from, to) = (dir.path().join("a/checkpoints/step-12"), dir.path().join("m"));
    fs::create_dir(&to).unwrap();
    for name in ["config.json", "model.safetensors"] {
        fs::copy(from.join(name), to.join(name)).unwrap();
    }
    dir
}

#[test]
fn evaluation_agrees_with_the_run_and_every_form_of_its_model() {
    let dir = folder();
    let words = format!("train --data text.txt --out a {TINY} --json");
    let trained = json(&ok(dir.path(), &words));
    for name in ["a", "a/checkpoints/step-12"] {
        let object = json(&ok(dir.path(), &format!("eval {name} --json")));
        assert_eq!(object["loss"], trained["heldout_loss"], "{name}");
        assert_eq!(object["tokens"], trained["heldout_tokens"]);
        let loss = object["loss"].as_f64().unwrap();
        assert!((object["perplexity"].as_f64().unwrap() - loss.exp()).abs() < 1e-9);
        let bits = object["bits_per_byte"].as_f64().unwrap();
        assert!((bits - loss / 2f64.ln()).abs() < 1e-9);
    }
    let text = stdout(&ok(dir.path(), "eval a"));
    assert!(text.contains("bits per byte") && text.contains("perplexity"), "{text}");
}

#[test]
fn generation_repeats_and_obeys_its_flags() {
    let dir = model();
    let text = |words: &str| {
        let object = json(&ok(dir.path(), &format!("generate {words} --json")));
        object["text"].as_str().unwrap().to_owned()
    };
    let of_run = text("a --prompt 12 --max-tokens 40");
    assert_eq!(of_run, text("m --prompt 12 --max-tokens 40"), "a run and its exported model");
    assert_eq!(of_run, text("a/checkpoints/step-12 --prompt 12 --max-tokens 40 --threads 2"));
    assert_ne!(of_run, text("a --prompt 12 --max-tokens 40 --seed 5"));
    let greedy = text("a --prompt 12 --max-tokens 40 --temperature 0");
    assert_eq!(greedy, text("a --prompt 12 --max-tokens 40 --top-k 1 --seed 9"));
    assert_eq!(greedy, text("a --prompt 12 --max-tokens 40 --top-p 1e-9"));
    // 100 tokens are six times the context.
    let object = json(&ok(dir.path(), "generate a --max-tokens 100 --json"));
    assert_eq!(object["tokens"], 100);
    let shown = stdout(&ok(dir.path(), "generate a --prompt 12 --max-tokens 40"));
    assert_eq!(shown, format!("12{of_run}\n"));
    // A prompt that fills the context is read whole; a longer one isn't cut.
    let prompt = "0123456789012345";
    let words = "--preset llama-tiny --layers 1 --channels 32 --context 32 --data text.txt --steps 8 --lr 1e-2 --threads 1";
    ok(dir.path(), &format!("train {words} --device cpu --out longer"));
    let first = |context: usize| {
        text(&format!(
            "longer --prompt {prompt} --context {context} --max-tokens 1 --temperature 0"
        ))
    };
    assert_eq!(first(16), first(32));
    let words = format!("generate longer --prompt {prompt} --context 15");
    let (code, message) = refused(dir.path(), &words);
    assert_eq!(code, 2, "{message}");
    assert!(message.contains("the prompt has 16 tokens, more than the context of 15"), "{message}");
    assert!(message.contains("give --context 16 or more"), "{message}");
    let words = format!("generate longer --prompt {prompt}{prompt}{prompt}");
    let (_, message) = refused(dir.path(), &words);
    assert!(message.contains("the model has 32 positions"), "{message}");
    let (code, message) = refused(dir.path(), "generate a --tokenizer nowhere.json");
    assert_eq!(code, 1, "{message}");
}

#[test]
fn training_starts_from_a_model() {
    let dir = model();
    let held_out = json(&ok(dir.path(), "eval a --json"))["loss"].as_f64().unwrap();
    for init in ["m", "a", "a/checkpoints/step-12"] {
        let words =
            format!("train --data text.txt --init {init} --steps 2 --batch 4 --lr 1e-6 --json");
        let object = json(&ok(dir.path(), &words));
        let loss = object["heldout_loss"].as_f64().unwrap();
        assert!((loss - held_out).abs() < 1e-3, "{init}: {loss} against {held_out}");
    }
    let words = "train --data text.txt --init m --steps 2";
    let (code, message) = refused(dir.path(), &format!("{words} --layers 3"));
    assert_eq!(code, 2);
    assert!(message.contains("`model.layers` is 3, and the model in `m` has 1"), "{message}");
    let (code, message) = refused(dir.path(), &format!("{words} --context 17"));
    assert_eq!(code, 2);
    assert!(message.contains("the model has 16 positions"), "{message}");
    ok(dir.path(), &format!("{words} --context 8"));
}

/// Rewrites the weights of `m`, each tensor as `change` returns it.
fn rewrite(dir: &Path, change: impl Fn(&str, Vec<usize>, Vec<f32>) -> (Type, Vec<u8>)) {
    let file = dir.join("m/model.safetensors");
    let bytes = fs::read(&file).unwrap();
    let old = SafeTensors::from_bytes("m", bytes).unwrap();
    let changed: Vec<(String, Type, Vec<u8>)> = old
        .tensors()
        .map(|view| {
            let (ty, bytes) = change(view.name, view.shape.to_vec(), view.to_f32().unwrap());
            (view.name.to_owned(), ty, bytes)
        })
        .collect();
    let tensors = changed.iter().map(|(name, ty, bytes)| Tensor::new(name, ty.clone(), bytes));
    fs::write(&file, safetensors::to_bytes(tensors, &Default::default()).unwrap()).unwrap();
}

fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

const NORM: &str = "transformer.ln_f.weight";

#[test]
fn broken_weights_are_named() {
    let f32_type = |shape: Vec<usize>| Type::new(DType::F32, shape);
    let refusal = |dir: &TempDir| {
        let (code, message) = refused(dir.path(), "generate m");
        assert_eq!(code, 1, "{message}");
        assert!(message.contains("`m`"), "{message}");
        message
    };
    let dir = model();
    rewrite(dir.path(), |name, shape, mut values| {
        if name == NORM {
            values[3] = f32::NAN;
        }
        (f32_type(shape), bytes_of(&values))
    });
    let message = refusal(&dir);
    assert!(message.contains(&format!("tensor `{NORM}` holds NaN at element 3")), "{message}");

    let dir = model();
    rewrite(dir.path(), |name, mut shape, mut values| {
        if name == NORM {
            shape[0] -= 1;
            values.pop();
        }
        (f32_type(shape), bytes_of(&values))
    });
    let message = refusal(&dir);
    assert!(message.contains("has shape [15], the model needs [16]"), "{message}");

    let dir = model();
    rewrite(dir.path(), |name, shape, values| {
        let dtype = if name == NORM { DType::I32 } else { DType::F32 };
        (Type::new(dtype, shape), bytes_of(&values))
    });
    let message = refusal(&dir);
    assert!(message.contains(NORM) && message.contains("holds I32, not floats"), "{message}");
}

#[test]
fn broken_files_are_named() {
    let dir = model();
    let file = dir.path().join("m/model.safetensors");
    let whole = fs::read(&file).unwrap();
    let mut lying = whole.clone();
    lying[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    for bytes in [&whole[..whole.len() - 1], &whole[..40], &lying, b""] {
        fs::write(&file, bytes).unwrap();
        let (code, message) = refused(dir.path(), "eval m --data text.txt");
        assert_eq!(code, 1);
        assert!(message.contains("m/model.safetensors"), "{message}");
        let words = ["is not a valid safetensors file", "are not inside the data"];
        assert!(words.iter().any(|words| message.contains(words)), "{message}");
    }
    fs::write(dir.path().join("m/config.json"), "{").unwrap();
    let (code, message) = refused(dir.path(), "train --init m --data text.txt");
    assert_eq!(code, 1);
    assert!(message.contains("config.json` is not JSON"), "{message}");
    let (code, message) = refused(dir.path(), "eval text.txt");
    assert_eq!(code, 2);
    assert!(message.contains("is no model directory"), "{message}");
}

#[test]
fn published_vocabularies_have_their_tokenizer_or_are_refused() {
    let dir = folder();
    let sizes = "--layers 1 --channels 16 --heads 2 --context 16 --batch 2 --steps 2 --threads 1 --data text.txt";
    // The name that Hugging Face has for it is as good.
    let preset = "--preset openai-community/gpt2";
    let run = ok(dir.path(), &format!("train {preset} {sizes} --out a"));
    assert!(stderr(&run).contains("vocabulary 50257"), "{}", stderr(&run));
    assert!(
        fs::read_to_string(dir.path().join("a/run.toml")).unwrap().contains("tokenizer = \"gpt2\"")
    );
    // Tokens stand for several bytes each.
    let score = json(&ok(dir.path(), "eval a --json"));
    let per_token = score["loss"].as_f64().unwrap() / 2f64.ln();
    assert!(score["bits_per_byte"].as_f64().unwrap() < 0.8 * per_token, "{score}");
    assert_eq!(score["data"], "the held-out 10 % of text.txt");
    let whole = json(&ok(dir.path(), "eval a --set data.holdout=1 --json"));
    assert_eq!(whole["data"], "all of text.txt");
    assert!(whole["tokens"].as_u64() > score["tokens"].as_u64(), "{whole}");

    let llama = sizes.replace("--heads", "--kv-heads 2 --heads");
    let (code, message) =
        refused(dir.path(), &format!("train --preset llama-135m {llama} --out b"));
    assert_eq!(code, 2);
    assert!(message.contains("`llama-135m` has a vocabulary of 49152 tokens"), "{message}");
    ok(dir.path(), &format!("train --preset llama-135m {llama} --tokenizer byte --out b"));
}

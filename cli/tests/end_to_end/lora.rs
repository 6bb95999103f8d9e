//! Adapters from outside: trained, saved as PEFT's, resumed, generated from and evaluated.

use super::*;

const LORA: &str = "--lora-rank 4 --lr 1e-2 --set run.checkpoint_every=6";

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
        .flat_map(|start| [(start, ""), (start, "--set lora.base_bits=8")])
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
        ("--lora-rank 4 --set lora.base_bits=4", "`lora.base_bits` must be 8, not 4"),
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

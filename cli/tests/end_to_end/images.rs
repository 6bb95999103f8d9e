//! A vision transformer from outside: trained on images, saved, resumed, scored, adapted, within a budget.

use std::path::PathBuf;

use super::*;

/// Words of a run of 6 steps that takes a moment.
const SMALL: &str = "--preset vit-tiny --layers 2 --channels 16 --heads 2 --batch 16 --steps 6 --threads 1 --device cpu";

fn read(dir: &TempDir, file: &str) -> Vec<u8> {
    fs::read(dir.path().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn object(dir: &TempDir, file: &str) -> Value {
    serde_json::from_slice(&read(dir, file)).unwrap()
}

#[test]
fn a_run_on_digits_is_scored_saved_and_resumed() {
    let dir = tempfile::tempdir().unwrap();
    let words = format!(
        "train {SMALL} --data digits --out a --save-every 3 --eval-every 4 --log-every 1 --json"
    );
    let output = ok(dir.path(), &words);
    let (trained, err) = (json(&output), stderr(&output));
    for word in ["vit: 2 layers", "images of 8 × 8 pixels of 1 channel", "  accuracy ", " img/s"] {
        assert!(err.contains(word), "{word}: {err}");
    }
    assert!(err.contains("step 4: held-out loss") && err.contains("(179 images)"), "{err}");
    for key in ["accuracy", "heldout_accuracy"] {
        let share = trained[key].as_f64().unwrap_or_else(|| panic!("{key}: {trained}"));
        assert!((0.0..=1.0).contains(&share), "{key}: {share}");
    }
    assert_eq!((&trained["heldout_tokens"], &trained["tokens"]), (&179.into(), &96.into()));
    assert_eq!(trained["predicted_peak_bytes"], trained["measured_peak_bytes"]);
    let steps = metrics(&dir.path().join("a"), "loss");
    let last = steps.last().unwrap();
    assert_eq!((&last["step"], &last["accuracy"]), (&6.into(), &trained["accuracy"]));
    let scored = metrics(&dir.path().join("a"), "heldout_loss");
    assert_eq!(scored.last().unwrap()["heldout_accuracy"], trained["heldout_accuracy"]);
    assert!(!dir.path().join("a/samples").exists());

    let scored = json(&ok(dir.path(), "eval a --json"));
    let [loss, accuracy] = ["loss", "accuracy"].map(|key| &scored[key]);
    assert_eq!((loss, accuracy), (&trained["heldout_loss"], &trained["heldout_accuracy"]));
    assert_eq!(scored["images"], 179);
    let text = stdout(&ok(dir.path(), "eval a"));
    assert!(text.contains("nats per image") && text.contains("accuracy"), "{text}");
    let (code, message) = refused(dir.path(), "generate a");
    assert_eq!(code, 2, "{message}");
    assert!(message.contains("the family vit, which continues no text"), "{message}");

    ok(dir.path(), "train --resume a/checkpoints/step-3 --out b");
    let files = ["model.safetensors", "optimizer.safetensors", "manifest.json"];
    for file in files.into_iter().chain(["config.json", "preprocessor_config.json"]) {
        let [one, other] =
            ["a", "b"].map(|run| read(&dir, &format!("{run}/checkpoints/step-6/{file}")));
        assert!(one == other, "{file}");
    }
    let (code, message) =
        refused(dir.path(), "train --resume a --steps 9 --data digits --set train.freeze=h.0.*");
    assert_eq!(code, 2, "{message}");
    assert!(message.contains("`train.freeze` was [] when the run began"), "{message}");

    // The files that transformers reads are a model to score and to start from.
    fs::create_dir(dir.path().join("hf")).unwrap();
    for file in ["model.safetensors", "config.json", "preprocessor_config.json"] {
        fs::write(
            dir.path().join("hf").join(file),
            read(&dir, &format!("a/checkpoints/step-6/{file}")),
        )
        .unwrap();
    }
    assert_eq!(object(&dir, "hf/config.json")["architectures"][0], "ViTForImageClassification");
    assert_eq!(json(&ok(dir.path(), "eval hf --batch 16 --json"))["loss"], scored["loss"]);
    let words = "train --init hf --batch 16 --steps 2 --device cpu --out c --json";
    let further = json(&ok(dir.path(), words));
    assert_eq!(further["parameters"], trained["parameters"]);
    assert_eq!(
        object(&dir, "c/checkpoints/step-2/preprocessor_config.json"),
        object(&dir, "hf/preprocessor_config.json")
    );
    let (code, message) = refused(dir.path(), "train --init hf --image-size 16 --data digits");
    assert_eq!(code, 2, "{message}");
    assert!(
        message.contains("`model.image_size` is 16x16, and the model in `hf` has 8x8"),
        "{message}"
    );
}

#[test]
fn adapters_and_frozen_parameters_are_trained_around() {
    let dir = tempfile::tempdir().unwrap();
    ok(dir.path(), &format!("train {SMALL} --out m"));
    let words = "train --init m --device cpu --batch 16 --steps 4 --lora-rank 2 --out a --save-every 2 --json";
    let adapted = json(&ok(dir.path(), words));
    // A and B of four layers of 16 channels in two blocks, of which queries, keys and values are three.
    let of_block = 3 * (16 + 16) + (16 + 16) + (16 + 64) + (64 + 16);
    assert_eq!(adapted["trained_parameters"], 2 * 2 * of_block);
    assert!(!dir.path().join("a/checkpoints/step-4/model.safetensors").exists());
    assert_eq!(json(&ok(dir.path(), "eval a --json"))["loss"], adapted["heldout_loss"]);
    ok(dir.path(), "train --resume a/checkpoints/step-2 --out b");
    for file in ["adapter_model.safetensors", "optimizer.safetensors", "adapter_config.json"] {
        let [one, other] =
            ["a", "b"].map(|run| read(&dir, &format!("{run}/checkpoints/step-4/{file}")));
        assert!(one == other, "{file}");
    }

    let freeze = "--set train.freeze=[\"patches.*\",\"h.0.*\"]";
    let words = format!("train {SMALL} {freeze} --out f --save-every 3 --json");
    let frozen = json(&ok(dir.path(), &words));
    let weights = |step: u64| {
        let file = dir.path().join(format!("f/checkpoints/step-{step}/model.safetensors"));
        let file = tightrope::data::SafeTensors::open(file).unwrap();
        file.tensors().map(|view| (view.name.to_owned(), view.bytes.to_vec())).collect::<Vec<_>>()
    };
    let mut kept = 0;
    for ((name, before), (_, after)) in weights(3).into_iter().zip(weights(6)) {
        let still = name.contains("patch_embeddings") || name.contains("encoder.layer.0.");
        // The loss doesn't depend on a key's bias, which rounding noise moves or doesn't.
        if still || !name.ends_with("key.bias") {
            assert_eq!(before == after, still, "{name}");
        }
        kept += if still { before.len() as u64 / 4 } else { 0 };
    }
    let count = |key: &str| frozen[key].as_u64().unwrap();
    assert_eq!(count("parameters") - count("trained_parameters"), kept);
    ok(dir.path(), "train --resume f/checkpoints/step-3 --out g");
    assert!(
        read(&dir, "f/checkpoints/step-6/model.safetensors")
            == read(&dir, "g/checkpoints/step-6/model.safetensors")
    );

    for (freeze, expected) in [
        ("h.9.*", "no parameter is called `h.9.*`"),
        ("*", "it names every parameter, and leaves none to train"),
    ] {
        let words = format!("train {SMALL} --set train.freeze={freeze} --out x");
        let (code, message) = refused(dir.path(), &words);
        assert_eq!(code, 2, "{message}");
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn a_text_model_can_have_frozen_parameters_too() {
    let dir = folder();
    let words = format!("train --data text.txt {TINY} --set train.freeze=h.0.* --out a --json");
    let trained = json(&ok(dir.path(), &words));
    assert!(trained["trained_parameters"].as_u64() < trained["parameters"].as_u64(), "{trained}");
    assert!(trained["last_loss"].as_f64() < trained["first_loss"].as_f64(), "{trained}");
}

#[test]
fn a_budget_is_met_by_recomputation_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let words = "--preset vit-tiny --layers 3 --batch 64 --micro-batch 64 --steps 3 --threads 1 --device cpu";
    let plan = json(&ok(dir.path(), &format!("plan {words} --json")));
    let peak = plan["peak_bytes"].as_u64().unwrap();
    let budget = peak * 3 / 4;
    let losses = |out: &str, more: &str| {
        let words = format!("train {words} --out {out} --log-every 1 --json {more}");
        let trained = json(&ok(dir.path(), &words));
        let losses = metrics(&dir.path().join(out), "loss").into_iter();
        (
            trained["measured_peak_bytes"].as_u64().unwrap(),
            losses.map(|mut line| line["loss"].take()).collect::<Vec<_>>(),
        )
    };
    let (whole_bytes, whole) = losses("a", "");
    let (bytes, recomputed) = losses("b", &format!("--memory {budget}B"));
    assert_eq!(whole_bytes, peak);
    assert!(bytes <= budget, "{bytes} of {budget}");
    assert_eq!(recomputed, whole);
    let (narrow, _) = losses("c", "--set memory.optimizer_bits=8");
    assert!(narrow < peak, "{narrow} of {peak}");
    let (code, message) = refused(dir.path(), &format!("train {words} --memory 64KiB --out d"));
    assert_eq!(code, 3, "{message}");
    assert!(message.contains("no smaller batch and no smaller preset does"), "{message}");
    let text = stdout(&ok(dir.path(), &format!("plan {words}")));
    assert!(text.contains("step       64 images\n") && text.contains("images/s"), "{text}");
    let (code, message) =
        refused(dir.path(), &format!("train {words} --offload optimizer --out d"));
    assert_eq!(code, 2, "{message}");
    assert!(message.contains("`memory.offload` is set, and the device is the cpu"), "{message}");
}

/// An IDX file of these extents.
fn idx(extents: &[u32], bytes: &[u8]) -> Vec<u8> {
    let mut file = vec![0, 0, 8, extents.len() as u8];
    file.extend(extents.iter().flat_map(|extent| extent.to_be_bytes()));
    file.extend(bytes);
    file
}

/// A grey PNG file.
fn png(path: PathBuf, width: u32, height: u32, pixels: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut encoder = png::Encoder::new(fs::File::create(path).unwrap(), width, height);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.write_header().unwrap().write_image_data(pixels).unwrap();
}

#[test]
fn images_come_from_every_format() {
    let dir = tempfile::tempdir().unwrap();
    let pixels: Vec<u8> = (0..60 * 144u32).map(|n| (n * 7 % 251) as u8).collect();
    let labels: Vec<u8> = (0..60).map(|n| n % 3).collect();
    let write = |name: &str, bytes: Vec<u8>| {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    write("idx/train-images-idx3-ubyte", idx(&[60, 12, 12], &pixels));
    write("idx/train-labels-idx1-ubyte", idx(&[60], &labels));
    let record = |n: u8| {
        std::iter::once(n % 10).chain((0..3072u32).map(move |i| (i * u32::from(n) % 255) as u8))
    };
    write("cifar/data_batch_1.bin", (0..30).flat_map(record).collect());
    write("cifar/test_batch.bin", (30..50).flat_map(record).collect());
    for class in ["cats", "dogs"] {
        for image in 0..10 {
            png(
                dir.path().join(format!("pets/{class}/{image}.png")),
                20,
                12,
                &pixels[image..][..240],
            );
        }
    }
    let small = "--family vit --layers 1 --channels 8 --heads 2 --batch 4 --steps 2 --threads 1 --device cpu --json";
    let idx_files = "idx/train-labels-idx1-ubyte idx/train-images-idx3-ubyte";
    for (index, (data, more, size, classes, held_out)) in [
        ("idx", "--patch-size 4", "12 × 12 pixels of 1 channel", 3, 6),
        (idx_files, "--patch-size 4", "12 × 12 pixels of 1 channel", 3, 6),
        ("cifar", "--patch-size 8", "32 × 32 pixels of 3 channels", 10, 20),
        ("pets", "--patch-size 4", "12 × 20 pixels of 1 channel", 2, 2),
        ("pets", "--image-size 8", "8 × 8 pixels of 1 channel", 2, 2),
    ]
    .into_iter()
    .enumerate()
    {
        let output = ok(dir.path(), &format!("train {small} {more} --out r{index} --data {data}"));
        let err = stderr(&output);
        assert!(err.contains(size), "{data}: {err}");
        assert!(err.contains(&format!("{held_out} held out, {classes} classes")), "{data}: {err}");
        let trained = json(&output);
        assert_eq!(trained["heldout_tokens"], held_out, "{data}");
        let config = object(&dir, &format!("r{index}/checkpoints/step-2/config.json"));
        assert_eq!(config["id2label"].as_object().unwrap().len(), classes, "{data}");
        if data == "pets" {
            assert_eq!(config["id2label"], serde_json::json!({ "0": "cats", "1": "dogs" }));
        }
    }
    for (words, expected) in [
        (
            "--preset vit-tiny --data idx",
            "its images are 12 × 12 pixels of 1 channel, and the model reads 8 × 8",
        ),
        ("--preset vit-tiny --data nowhere", "nowhere"),
        ("--preset vit-tiny --context 8", "`model.context` is of a language model"),
        ("--preset tiny --image-size 8", "`model.image_size` is of a vision transformer"),
        ("--preset vit-tiny --set model.classes=3", "10 classes, and the model knows 3"),
    ] {
        let (_, message) = refused(dir.path(), &format!("train {words} --device cpu --out x"));
        assert!(message.contains(expected), "{words}: {message}");
        assert!(!dir.path().join("x").exists(), "{words}");
    }
}

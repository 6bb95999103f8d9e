//! The recorded cases pass, and a copy in which one number was changed doesn't.

use std::path::PathBuf;

use tightrope_backend_cpu::Cpu;
use tightrope_backend_cuda::Cuda;
use tightrope_backend_cuda::driver::Emulated;
use tightrope_core::{Backend, DType, Type};
use tightrope_data::SafeTensors;
use tightrope_data::safetensors::{Tensor, write};
use tightrope_nn::FrozenBits;

use super::measure::training_run;
use super::*;
use crate::error::Kind;
use crate::settings::{Device, Settings};

fn verdict(dir: &Path) -> Result<Verdict> {
    let mut settings = Settings::default();
    settings.run.device = Device::Cpu;
    Verification::on(Spec::of(&settings))?.check(dir).cloned()
}

fn cases() -> Vec<PathBuf> {
    case::recorded()
}

fn named(name: &str) -> PathBuf {
    cases().into_iter().find(|dir| dir.ends_with(name)).expect("a recorded case of this name")
}

#[test]
fn recorded_cases_pass() {
    for dir in cases() {
        let verdict = verdict(&dir).unwrap();
        assert!(verdict.pass, "{}", verdict.text());
        // Distances of exactly 0 would mean that something was compared with itself.
        assert!(verdict.errors.logits_max_abs_err > 0.0, "{}", verdict.text());
        assert!(verdict.errors.grad_rel_l2.values().all(|&error| error > 0.0));
        assert_eq!(verdict.errors.grad_rel_l2.len(), verdict.errors.after_rel_l2.len());
    }
}

#[test]
fn adapters_beside_4_bits_learn_as_those_of_peft_do() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/parity");
    let case = Case::open(&root.join("llama-qlora-run")).unwrap();
    assert_eq!(case.lora().unwrap().base_bits, FrozenBits::B4);
    let recorded = case.recorded("train.losses", &[50]).unwrap();
    assert!(recorded[49] < recorded[0] - 0.5, "{recorded:?}");
    let cpu = Box::new(Cpu::new(1).unwrap());
    let cuda = Box::new(Cuda::new(Box::new(Emulated::new(cache(), 1))));
    for device in [cpu as Box<dyn Backend>, cuda] {
        let kind = device.kind();
        let losses = pollster::block_on(training_run(&case, device)).unwrap().losses;
        let off = losses.iter().zip(&recorded).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        println!("{kind:?}: off by at most {off:.1e} in 50 steps");
        assert!(0.0 < off && off < 1e-3, "{kind:?}: {off}: {losses:?}, and {recorded:?}");
    }
}

/// Where the tests of CUDA keep kernels that they compiled for the processor: the folder that cargo gives to integration tests.
fn cache() -> PathBuf {
    let own = std::env::current_exe().expect("a path");
    let target = own.ancestors().nth(3).expect("a test lies in target/PROFILE/deps");
    target.join("tmp/emulated")
}

#[test]
fn recorded_cases_pass_through_the_kernels_for_cuda() {
    let mut seed = 0;
    let mut device = || {
        seed += 1;
        let backend: Box<dyn Backend> = Box::new(Cuda::new(Box::new(Emulated::new(cache(), seed))));
        Ok(backend)
    };
    for dir in cases() {
        let errors = measure(&Case::open(&dir).unwrap(), &mut device).unwrap();
        let verdict = Verdict::new(dir.display().to_string(), errors, &Tolerances::STRICT);
        println!("{}", verdict.text());
        assert!(verdict.pass, "{}", verdict.text());
        assert!(verdict.errors.logits_max_abs_err > 0.0, "{}", verdict.text());
    }
}

/// Copies a case with one element of one tensor of `file` changed by `change`.
fn copy_with(
    from: &Path,
    to: &Path,
    file: &str,
    tensor: &str,
    index: usize,
    change: impl Fn(f32) -> f32,
) {
    let adapters = ["adapters/adapter_config.json", "adapters/adapter_model.safetensors"];
    let adapters = adapters.into_iter().filter(|name| from.join(name).exists());
    for name in ["config.json", "model.safetensors", "case.safetensors"].into_iter().chain(adapters)
    {
        let path = to.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::copy(from.join(name), &path).unwrap();
    }
    let source = SafeTensors::open(from.join(file)).unwrap();
    let mut changed = source.require(tensor).unwrap().bytes.to_vec();
    let element = &mut changed[4 * index..][..4];
    let value = f32::from_le_bytes((&*element).try_into().unwrap());
    element.copy_from_slice(&change(value).to_le_bytes());
    let tensors = source.tensors().map(|view| {
        let ty = view.ty().unwrap_or_else(|| Type::new(DType::F32, view.shape));
        Tensor::new(view.name, ty, if view.name == tensor { &changed } else { view.bytes })
    });
    write(to.join(file), tensors, source.metadata()).unwrap();
}

#[test]
fn one_changed_number_fails_and_is_named() {
    let [weights, record] = ["model.safetensors", "case.safetensors"];
    let gain = "transformer.h.0.ln_1.weight";
    let gradient = "grad.transformer.h.1.mlp.c_fc.weight";
    let key_bias = "after.transformer.h.0.attn.c_attn.bias";
    let small = [
        (weights, gain, 5, 0.05, ""),
        (record, gradient, 7, 0.02, "gradient of `transformer.h.1.mlp.c_fc.weight`"),
        (record, "after.transformer.wpe.weight", 3, 0.01, "trained `transformer.wpe.weight`"),
        // Nothing depends on a key bias, so only its drift is bounded.
        (record, key_bias, 64, 0.05, "weights without influence"),
        (record, "train.losses", 9, 0.001, "losses of the training run"),
        (record, "train.grad_norms", 4, 0.01, "gradient norms"),
        (record, "loss", 0, 0.001, "loss"),
        (record, "logits", 1000, f32::NAN, "logits"),
    ];
    let adapter = "base_model.model.transformer.h.1.mlp.c_proj.lora_A.weight";
    let [gradient, trained] = ["grad", "after"].map(|what| format!("{what}.{adapter}"));
    let [of_gradient, of_trained] =
        ["gradient of", "trained"].map(|what| format!("{what} `{adapter}`"));
    let patches = "vit.embeddings.patch_embeddings.projection.weight";
    let of_patches = format!("grad.{patches}");
    let vit = [
        (record, "images", 5, 0.5, ""),
        (record, &of_patches, 7, 0.1, "gradient of"),
        (record, "logits", 3, 0.01, "logits"),
        (record, "train.losses", 9, 0.001, "losses of the training run"),
        // Nothing depends on it, so only its drift is bounded.
        (
            record,
            "after.vit.encoder.layer.0.attention.attention.key.bias",
            3,
            0.05,
            "weights without influence",
        ),
    ];
    let lora = [
        ("adapters/adapter_model.safetensors", adapter, 5, 0.05, ""),
        (record, &gradient, 7, 0.01, &of_gradient),
        (record, &trained, 3, 0.01, &of_trained),
    ];
    for (case, changes) in
        [("gpt2-small-case", &small[..]), ("gpt2-lora-case", &lora), ("vit-case", &vit)]
    {
        let from = named(case);
        for &(file, tensor, index, add, named) in changes {
            let dir = tempfile::tempdir().unwrap();
            copy_with(&from, dir.path(), file, tensor, index, |value| value + add);
            let verdict = verdict(dir.path()).unwrap();
            assert!(!verdict.pass, "{tensor} + {add}: {}", verdict.text());
            assert!(verdict.worst.name.contains(named), "{tensor}: {}", verdict.text());
        }
    }
}

#[test]
fn broken_cases_are_errors_with_a_place() {
    let from = &named("llama-gqa-case");
    let message = |break_it: &dyn Fn(&Path)| {
        let dir = tempfile::tempdir().unwrap();
        copy_with(from, dir.path(), "case.safetensors", "loss", 0, |loss| loss);
        break_it(dir.path());
        let failure = verdict(dir.path()).unwrap_err();
        assert_eq!(failure.kind(), Kind::Failed);
        format!("{failure:?}")
    };
    let reshaped = |tensor: &'static str, shape: &'static [usize]| {
        move |dir: &Path| {
            let source = SafeTensors::open(from.join("case.safetensors")).unwrap();
            let tensors = source.tensors().filter(|view| view.name != tensor || !shape.is_empty());
            let tensors = tensors.map(|view| {
                let ty = view.ty().unwrap();
                let shape = if view.name == tensor { shape } else { view.shape };
                Tensor::new(view.name, Type::new(ty.dtype, shape), view.bytes)
            });
            write(dir.join("case.safetensors"), tensors, source.metadata()).unwrap();
        }
    };
    let gone = |name: &'static str| move |dir: &Path| std::fs::remove_file(dir.join(name)).unwrap();
    for (found, words) in [
        (message(&gone("config.json")), "config.json"),
        (message(&gone("model.safetensors")), "model.safetensors"),
        (message(&gone("case.safetensors")), "case.safetensors"),
        (message(&reshaped("loss", &[])), "loss"),
        (message(&reshaped("tokens", &[11, 41, 2])), "its shape is [11, 41, 2]"),
        (message(&reshaped("tokens", &[])), "tokens"),
    ] {
        assert!(found.contains(words), "{found}");
    }
}

#[test]
fn several_cases_report_the_worst() {
    let errors = |loss: f64, name: &str| Errors {
        loss_abs_err: loss,
        logits_max_abs_err: 0.0,
        grad_rel_l2: [(name.to_owned(), loss)].into(),
        train_loss_max_abs_err: 0.0,
        train_grad_norm_max_rel_err: 0.0,
        after_rel_l2: BTreeMap::new(),
        free_weights_max_drift: 0.0,
    };
    let verdict = |errors| Verdict::new("case".to_owned(), errors, &Tolerances::STRICT);
    let cases =
        [verdict(errors(1e-7, "a")), verdict(errors(3e-3, "b")), verdict(errors(2e-7, "a"))];
    assert_eq!([&cases[0], &cases[1]].map(|case| case.pass), [true, false]);
    assert_eq!(cases[1].worst.name, "loss");
    let object = Report { device: "d", tolerances: &Tolerances::STRICT, cases: &cases }.json();
    assert_eq!((&object["pass"], &object["loss_abs_err"]), (&false.into(), &3e-3.into()));
    assert_eq!(object["grad_rel_l2"]["a"], 2e-7);
    assert_eq!(object["cases"].as_array().unwrap().len(), 3);
    let broken = verdict(errors(f64::NAN, "a"));
    assert!(!broken.pass && broken.worst.error.is_nan());
}

#[test]
fn help_fits_the_failure() {
    let kernel = "norm".to_owned();
    let compile = || DeviceError::Compile { kernel: kernel.clone(), log: "no".to_owned() };
    let lost = DeviceError::Lost { device: "gpu".to_owned(), reason: "reset".to_owned() };
    for (error, words) in [
        (anyhow!(compile()), "update its driver"),
        (anyhow!(tightrope_nn::TrainError::from(compile())), "update its driver"),
        (anyhow!(lost).context("the device can't be opened again"), "try again"),
        (anyhow!("no such file"), "DIR must hold"),
    ] {
        let error = wrong(error);
        assert_eq!(error.kind(), Kind::Failed);
        assert!(error.help().is_some_and(|help| help.contains(words)), "{error:?}");
    }
}

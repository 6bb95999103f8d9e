//! A crate outside the workspace trains models of its own: within a budget that forces recomputation, killed and gone on
//! from bit for bit.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What the workspace depends on and asks features for that reach far: with them, third-party crates have the same features
/// here, and none is compiled again. The crate uses none of these.
const FEATURES: &str = "\
arrow-array = { version = \"60\", default-features = false, features = [\"ffi\"] }
clap = { version = \"4.6\", features = [\"derive\", \"string\", \"wrap_help\"] }
gemm = \"0.19\"
numpy = \"0.30\"
proptest = \"1\"
pyo3 = { version = \"0.30\", features = [\"abi3-py310\", \"experimental-inspect\"] }
safetensors = \"0.8\"
tempfile = \"3\"
";

/// Crates that are compiled for it alone, since it isn't of their workspace, and how far each is optimised: there is little to do
/// but for the processor.
const CRATES: [(&str, u8); 7] = [
    ("", 0),
    ("-core", 0),
    ("-nn", 0),
    ("-data", 0),
    ("-ranks", 0),
    ("-backend-cpu", 1),
    ("-backend-wgpu", 0),
];

/// Copies the crate to where no workspace is, and builds it there.
fn build() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = tests.parent().expect("the workspace");
    let there = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stranger");
    fs::create_dir_all(there.join("src")).expect("a folder");
    for file in ["src/main.rs", "src/models.rs"] {
        fs::copy(tests.join("stranger").join(file), there.join(file)).expect("a source");
    }
    let read = |path: PathBuf| fs::read_to_string(path).expect("a manifest");
    let own = read(tests.join("stranger/Cargo.toml"));
    let own = own.replace("../../engine", &root.join("engine").display().to_string());
    // The profiles and versions of the workspace: what it has compiled is taken as it is.
    let workspace = read(root.join("Cargo.toml"));
    let profiles = &workspace[workspace.find("[profile.").expect("profiles")..];
    let manifest = format!("{own}{FEATURES}\n{profiles}");
    fs::write(there.join("Cargo.toml"), manifest).expect("a file");
    fs::copy(root.join("Cargo.lock"), there.join("Cargo.lock")).expect("the lock file");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target folder");
    let quick = |(name, level): (&str, u8)| {
        let profile = format!("profile.dev.package.tightrope{name}");
        [format!("opt-level={level}"), "debug=false".to_owned(), "codegen-units=16".to_owned()]
            .map(|setting| format!("--config={profile}.{setting}"))
    };
    let built = super::cargo::cargo()
        .args(["build", "--quiet", "--offline", "--manifest-path"])
        .arg(there.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target)
        .args(CRATES.map(quick).as_flattened())
        .output()
        .expect("cargo");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    target.join("debug/stranger")
}

fn run(program: &Path, device: &str, model: &str, folder: &Path, dies: Option<u64>) -> Output {
    let mut command = Command::new(program);
    command.args([device, model]).arg(folder).args(dies.map(|step| step.to_string()));
    command.output().expect("the program")
}

/// What a run that ends well says.
fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
#[ignore = "compiles the engine again: cargo xtask stranger"]
fn a_strangers_models_are_trained_killed_and_gone_on_from_bit_for_bit() {
    let program = build();
    for (device, model) in [("cpu", "mlp"), ("cpu", "conv"), ("wgpu", "mlp"), ("wgpu", "conv")] {
        let folder = tempfile::tempdir().expect("a folder");
        let (whole, killed) = (folder.path().join("whole"), folder.path().join("killed"));
        let whole = said(&run(&program, device, model, &whole, None));
        let died = run(&program, device, model, &killed, Some(5));
        assert!(!died.status.success() && died.stdout.is_empty(), "{device} {model} lived on");
        let resumed = said(&run(&program, device, model, &killed, None));
        assert_eq!(whole.replace("from 0", "from 4"), resumed, "{device} {model}");
        println!("{device} {model}: {resumed}");
    }
}

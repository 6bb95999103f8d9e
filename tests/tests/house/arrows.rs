//! Which crate may depend on which.

use std::collections::BTreeMap;

use serde_json::Value;

/// Every package of the workspace, with the packages of the workspace that it may depend on. A package that
/// isn't here fails the test: decide first what it may know of.
const ALLOWED: &[(&str, &[&str])] = &[
    ("tightrope-core", &[]),
    ("tightrope-nn", &["tightrope-core"]),
    ("tightrope-data", &["tightrope-core"]),
    ("tightrope-backend-cpu", &["tightrope-core"]),
    ("tightrope-backend-wgpu", &["tightrope-core"]),
    ("tightrope-backend-cuda", &["tightrope-core"]),
    ("tightrope-ranks", &["tightrope-core"]),
    ("tightrope-web", &["tightrope"]),
    ("tightrope-python", &["tightrope"]),
    ("tightrope", ENGINE),
    ("tightrope-cli", COMMAND_LINE),
    ("conformance", ENGINE),
    (
        "conformance-browser",
        &[
            "conformance",
            "tightrope-core",
            "tightrope-nn",
            "tightrope-backend-cpu",
            "tightrope-backend-wgpu",
        ],
    ),
    (
        "gpu-cases",
        &[
            "conformance",
            "tightrope",
            "tightrope-core",
            "tightrope-nn",
            "tightrope-backend-cpu",
            "tightrope-backend-cuda",
        ],
    ),
    ("torture", &["tightrope"]),
    ("xtask", &[]),
];

/// The engine, and for its tests the page's half of a checkpoint's way.
const COMMAND_LINE: &[&str] = &[
    "tightrope",
    "tightrope-core",
    "tightrope-nn",
    "tightrope-data",
    "tightrope-backend-cpu",
    "tightrope-backend-wgpu",
    "tightrope-backend-cuda",
    "tightrope-web",
];

const ENGINE: &[&str] = &[
    "tightrope-core",
    "tightrope-ranks",
    "tightrope-nn",
    "tightrope-data",
    "tightrope-backend-cpu",
    "tightrope-backend-wgpu",
    "tightrope-backend-cuda",
];

/// Dependencies within the workspace by package, those for tests and build scripts included.
fn dependencies(metadata: &Value) -> BTreeMap<String, Vec<String>> {
    let packages = metadata["packages"].as_array().expect("cargo lists packages");
    let name = |value: &Value| value["name"].as_str().expect("cargo names packages").to_string();
    let members: Vec<String> = packages.iter().map(name).collect();
    let within = |package: &Value| {
        let all = package["dependencies"].as_array().expect("cargo lists dependencies");
        all.iter().map(name).filter(|dependency| members.contains(dependency)).collect()
    };
    packages.iter().map(|package| (name(package), within(package))).collect()
}

/// Arrows that [`ALLOWED`] lacks.
fn forbidden(dependencies: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let mut problems = vec![];
    for (package, found) in dependencies {
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| name == package) else {
            problems.push(format!("{package} is not in the table"));
            continue;
        };
        let wrong = found.iter().filter(|dependency| !allowed.contains(&dependency.as_str()));
        problems.extend(wrong.map(|dependency| format!("{package} → {dependency}")));
    }
    problems
}

/// What cargo says of the workspace.
fn metadata() -> Value {
    let output = super::cargo::cargo()
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo prints JSON")
}

#[test]
fn crates_depend_only_along_the_arrows() {
    let dependencies = dependencies(&metadata());
    assert!(dependencies.contains_key("tightrope-core"), "{dependencies:?}");
    assert_eq!(forbidden(&dependencies), [] as [String; 0]);
}

#[test]
fn only_tests_take_the_emulation_of_a_gpu() {
    let metadata = metadata();
    let mut found = vec![];
    for package in metadata["packages"].as_array().expect("cargo lists packages") {
        for dependency in package["dependencies"].as_array().expect("cargo lists dependencies") {
            let features = dependency["features"].as_array().expect("cargo lists features");
            if features.iter().any(|feature| feature == "emulation") {
                assert_eq!(
                    dependency["kind"], "dev",
                    "{} → {}",
                    package["name"], dependency["name"]
                );
                found.push(package["name"].as_str().unwrap_or_default());
            }
        }
        if package["name"] == "tightrope-backend-cuda" {
            assert!(package["features"]["emulation"].is_array(), "the feature has this name");
            assert!(package["features"]["default"].is_null(), "nothing is on by default");
        }
    }
    assert!(found.contains(&"tightrope") && found.contains(&"conformance"), "{found:?}");
}

#[test]
fn wrong_arrows_are_seen() {
    let graph = |arrows: &[(&str, &[&str])]| {
        let own = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        arrows.iter().map(|(from, to)| (from.to_string(), own(to))).collect()
    };
    for (from, to) in [
        ("tightrope-core", "tightrope-backend-cpu"),
        ("tightrope-backend-wgpu", "tightrope-backend-cpu"),
        ("tightrope-nn", "tightrope-backend-cpu"),
        ("tightrope-backend-cpu", "tightrope-nn"),
        ("tightrope-web", "tightrope-backend-cuda"),
        ("tightrope-web", "tightrope-cli"),
        ("tightrope", "tightrope-web"),
        ("tightrope-backend-wgpu", "tightrope-web"),
        ("tightrope-newcomer", "tightrope-core"),
    ] {
        assert_eq!(forbidden(&graph(&[(from, &[to])])).len(), 1, "{from} → {to}");
    }
    assert!(forbidden(&graph(&[("tightrope", ENGINE)])).is_empty());
}

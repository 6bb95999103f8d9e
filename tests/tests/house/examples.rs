//! Every example of the library is short and runs.

use std::fs;
use std::path::Path;
use std::process::Command;

use conformance::draw::Draw;

/// Lines that an example may have.
const LINES: usize = 80;

#[test]
fn examples_are_short_and_run_for_two_steps() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target folder");
    let entries = fs::read_dir(root.join("engine/examples")).expect("examples");
    let paths: Vec<_> = entries.map(|entry| entry.expect("an example").path()).collect();
    for path in &paths {
        let lines = fs::read_to_string(path).expect("a source").lines().count();
        assert!(lines < LINES, "{} has {lines} lines", path.display());
    }
    assert!(!paths.is_empty(), "there are no examples");
    // Lints compile each of them every day; linking takes long.
    let paths = Draw::of_today().one_of(3, "examples", paths);
    let name = |path: &Path| path.file_stem().expect("a name").to_owned();
    // Of the packages that are tested, so that crates have the features that they have in tests, and are not built again.
    let built = super::cargo::cargo()
        .args(["build", "--quiet", "--offline", "--workspace"])
        .args(["--exclude", "xtask", "--target-dir"])
        .arg(target)
        .args(paths.iter().flat_map(|path| ["--example".into(), name(path)]))
        .current_dir(root)
        .output()
        .expect("cargo");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    for path in &paths {
        let example = target.join("debug/examples").join(name(path));
        let output = Command::new(example).arg("2").output().expect("an example");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{}: {output:?}", path.display());
        assert!(said.lines().count() >= 2, "{}: {said}", path.display());
    }
}

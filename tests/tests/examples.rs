//! Every example of the library is short and runs.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Lines that an example may have.
const LINES: usize = 80;

#[test]
fn examples_are_short_and_run_for_two_steps() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target folder");
    // All of the workspace, so that crates are built with the features that its tests have.
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--offline", "--workspace", "--examples", "--target-dir"])
        .arg(target)
        .current_dir(root)
        .output()
        .expect("cargo");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let mut ran = 0;
    for entry in fs::read_dir(root.join("engine/examples")).expect("examples") {
        let path = entry.expect("an example").path();
        let name = path.file_stem().expect("a name");
        let lines = fs::read_to_string(&path).expect("a source").lines().count();
        assert!(lines < LINES, "{} has {lines} lines", path.display());
        let example = target.join("debug/examples").join(name);
        let output = Command::new(example).arg("2").output().expect("an example");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{}: {output:?}", path.display());
        assert!(said.lines().count() >= 2, "{}: {said}", path.display());
        ran += 1;
    }
    assert!(ran > 0, "there are examples");
}

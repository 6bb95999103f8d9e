//! Copies the kernel files without their comments, and lists them, for the crate to include.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// Files whose kernels all need subgroups, which browsers aren't asked for: a page would load them for nothing.
const OF_SUBGROUPS: [&str; 2] = ["matmul_cooperative", "matmul_shuffled"];

fn main() {
    println!("cargo::rerun-if-changed=../shaders");
    let root = env::var("CARGO_MANIFEST_DIR").expect("set by cargo");
    let shaders = Path::new(&root).join("../shaders");
    let out = PathBuf::from(env::var("OUT_DIR").expect("set by cargo"));
    copy(&shaders.join("shared"), &out.join("shared"));
    let in_browsers = env::var("CARGO_CFG_TARGET_FAMILY").is_ok_and(|family| family == "wasm");
    let entries = copy(&shaders, &out.join("kernels")).into_iter().filter_map(|path| {
        let stem = path.file_stem()?.to_str()?;
        let needed = !in_browsers || !OF_SUBGROUPS.contains(&stem);
        needed.then(|| format!("    ({stem:?}, include_str!({path:?})),\n"))
    });
    let text = format!(
        "/// Every kernel file of the folder `shaders`: its stem and its text.\n\
         static FILES: &[(&str, &str)] = &[\n{}];\n",
        entries.collect::<String>()
    );
    fs::write(out.join("kernels.rs"), text).expect("a writable folder");
}

/// Copies the kernel files of a folder into another one; the copies, in order. No shader is compiled with its comments, and a
/// page would load them.
fn copy(from: &Path, to: &Path) -> Vec<PathBuf> {
    fs::create_dir_all(to).expect("a writable folder");
    let files = fs::read_dir(from).expect("the kernels' folder");
    let mut kernels: Vec<_> = files.map(|entry| entry.expect("readable").path()).collect();
    kernels.retain(|path| path.extension().is_some_and(|extension| extension == "wgsl"));
    kernels.sort();
    let copied = |path: &PathBuf| {
        let text = fs::read_to_string(path).expect("readable");
        let code = text.lines().map(|line| line.split("//").next().unwrap_or(line).trim_end());
        let copy = to.join(path.file_name()?);
        fs::write(&copy, code.collect::<Vec<_>>().join("\n") + "\n").expect("a writable folder");
        Some(copy)
    };
    kernels.iter().filter_map(copied).collect()
}

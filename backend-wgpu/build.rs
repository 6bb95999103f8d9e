//! Lists the kernel files, for the crate to include.

use std::path::Path;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=../shaders");
    let root = env::var("CARGO_MANIFEST_DIR").expect("set by cargo");
    let files = fs::read_dir(Path::new(&root).join("../shaders")).expect("the kernels' folder");
    let mut kernels: Vec<_> = files.map(|entry| entry.expect("readable").path()).collect();
    kernels.retain(|path| path.extension().is_some_and(|extension| extension == "wgsl"));
    kernels.sort();
    let entries = kernels.iter().filter_map(|path| {
        Some(format!("    ({:?}, include_str!({path:?})),\n", path.file_stem()?))
    });
    let text = format!(
        "/// Every kernel file of the folder `shaders`: its stem and its text.\n\
         static FILES: &[(&str, &str)] = &[\n{}];\n",
        entries.collect::<String>()
    );
    let out = env::var("OUT_DIR").expect("set by cargo");
    fs::write(Path::new(&out).join("kernels.rs"), text).expect("a writable folder");
}

//! Developer tasks of the workspace: `cargo xtask test` and `cargo xtask bench`.

mod bench;
mod test;

use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask TASK

  test                       format, lints, documentation and every test; the last line counts them
  bench [--peer FILE] [--runs N] [--steps N] [--precision f32|bf16]...
                             side by side with PyTorch, results in bench/results/
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.split_first().map(|(task, rest)| (task.as_str(), rest)) {
        Some(("test", [])) => test::run(),
        Some(("bench", options)) => bench::run(options),
        Some(("help" | "--help", _)) => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The folder of the workspace.
fn root() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root
}

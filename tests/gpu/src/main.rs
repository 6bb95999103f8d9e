//! `gpu-cases [--few] [--from N] [--apart] STAGE…`: cases on an NVIDIA GPU, one after the other.
//!
//! It says on stdout what it does before it does it, a JSON object a line, so that whoever reads them knows what hangs, or what
//! broke the device. `bench/gpu` does, and starts it anew for the cases that are left:
//!
//! | line | means |
//! |---|---|
//! | `{"cases": 12}` | there are so many |
//! | `{"begins": 3, "case": "…", "kernels": ["map.elements"]}` | case 3 begins; `null` is what comes before cases |
//! | `{"at": "step 7 of 20"}` | the case is so far; with `"compiles": true`, kernels compile, which takes long |
//! | `{"ended": 3, "outcome": "passed", "says": "…", "seconds": 0.1}` | or `failed`; or `lost`, and nothing follows |
//! | `{"left_out": 4, "why": "…"}` | so many cases are for another GPU |
//! | `{"done": true}` | it was all |
//!
//! The GPU is number 0, or the one that `TIGHTROPE_CUDA` says.

mod losses;
mod run;
mod stages;
mod tell;

use std::process::ExitCode;

use stages::STAGES;

const USAGE: &str = "usage: gpu-cases [--few] [--from N] [--apart] STAGE…";

/// Exit code where the device was lost.
const LOST: u8 = 3;

/// What is asked for.
#[derive(Debug, Default)]
struct Asked {
    /// One case for each kernel.
    few: bool,
    /// The first case that runs.
    from: usize,
    /// Each case compiles its own kernels when it comes to it.
    apart: bool,
    stages: Vec<&'static stages::Stage>,
}

fn asked(words: impl Iterator<Item = String>) -> Result<Asked, String> {
    let mut asked = Asked::default();
    let mut words = words.peekable();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--few" => asked.few = true,
            "--apart" => asked.apart = true,
            "--from" => {
                let number = words.next().and_then(|word| word.parse().ok());
                asked.from = number.ok_or("--from takes a number")?;
            }
            name => {
                let known = || STAGES.iter().map(|stage| stage.name).collect::<Vec<_>>().join(", ");
                let stage = STAGES.iter().find(|stage| stage.name == name);
                let stage = stage.ok_or_else(|| format!("`{name}` is none of: {}", known()))?;
                asked.stages.push(stage);
            }
        }
    }
    if asked.stages.is_empty() { Err("no stage is named".into()) } else { Ok(asked) }
}

fn main() -> ExitCode {
    let asked = match asked(std::env::args().skip(1)) {
        Ok(asked) => asked,
        Err(problem) => {
            eprintln!("{problem}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let parts = asked.stages.iter().flat_map(|stage| (stage.parts)(asked.few)).collect();
    if run::all(parts, asked.from, asked.apart) { ExitCode::SUCCESS } else { ExitCode::from(LOST) }
}

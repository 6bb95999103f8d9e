//! How fast one step is on more and more GPUs, by what connects their nodes, drawn; on 8, 16, … as many times doubled as an argument says.
//!
//! `cargo xtask picture` writes `docs/scale.svg` by it.

use std::error::Error;
use std::thread;

use tightrope::cards::Card;
use tightrope::devices::Devices;
use tightrope::plan::scale::{GPUS, Scale};
use tightrope::recipe::Step;
use tightrope::settings::{Device, Settings};
use tightrope::view::curve::svg;

const STEP: [&str; 4] =
    ["model.preset=llama-3.1-8b", "model.context=8192", "train.batch=2", "run.precision=bf16"];
const NETWORKS: [&str; 3] = ["400gbe", "200gbe", "100gbe"];

/// The step on so many numbers of GPUs.
fn scale(network: &str, rows: usize) -> tightrope::Result<Scale> {
    let mut said = Settings::default();
    STEP.iter().try_for_each(|words| said.read_argument(words))?;
    said.read_argument(&format!("run.interconnect=8xnvlink4+{network}"))?;
    said.run.device = Device::Cuda(0);
    let mut step = Step::of(&said)?;
    step.device.card = Some(Card::named("h100")?);
    let device = Devices::default().open(&step.device)?;
    Scale::new(&step.scope, &step.config, &*device, &GPUS[..rows.min(GPUS.len())], &mut |_, _| {})
}

fn main() -> Result<(), Box<dyn Error>> {
    let rows = std::env::args().nth(1).map_or(Ok(GPUS.len()), |rows| rows.parse())?;
    let scales = thread::scope(|scope| {
        let begun = NETWORKS.map(|network| scope.spawn(move || scale(network, rows)));
        let made = begun.into_iter().map(|thread| thread.join().map_err(|_| "a table failed"));
        made.collect::<Result<Vec<_>, _>>()
    })?;
    let scales = scales.into_iter().collect::<Result<Vec<_>, _>>()?;
    let lines: Vec<_> = NETWORKS.into_iter().zip(&scales).collect();
    print!(
        "{}",
        svg(
            "Llama 3.1 8B in bf16 on H100, 2 × 8,192 tokens on each a step: simulated, not run",
            "tokens/s of a GPU as a part of one GPU's alone; 8 a node by NVLink, and between nodes, for each:",
            &lines
        )
    );
    Ok(())
}

//! What a process takes beyond its plan: at its peak at most 32 MiB, in runs that are drawn.

use std::fs;
use std::path::Path;

use crate::chamber::{Case, Chamber};
use crate::command::Orders;
use crate::results;
use crate::tally::{Tally, Violation, Well, Wrong};

/// Bytes beyond the plan: the program, its tables, the data's pages, and the text of a checkpoint.
const MOST: u64 = 32 << 20;
/// How many runs are drawn.
const RUNS: u64 = 40;

/// So many.
pub fn cases(_: &Chamber) -> Option<u64> {
    Some(RUNS)
}

/// A run of a model of a few MiB.
pub fn attempt(case: &mut Case<'_>) -> anyhow::Result<Tally> {
    let chamber = case.chamber;
    case.begin(&chamber.configurations[0])?;
    let draws = &mut case.draws;
    let heads = *draws.one_of(&[1, 2, 4]);
    let (threads, precision) = (1 + draws.below(2), *draws.one_of(&["f32", "bf16", "f16"]));
    let words = format!(
        "train --data text.txt --out a --json --device cpu --steps 3 --save-every 1 --layers {} --channels {} --heads {heads} \
         --context {} --batch {} --threads {threads} --precision {precision} {} {}",
        1 + draws.below(4),
        heads * 8 * (1 + draws.below(8)),
        8 << draws.below(5),
        1 << draws.below(4),
        draws.one_of(&["", "--set memory.optimizer_bits=8", "--lora-rank 4", "--optimizer lion"]),
        draws.one_of(&["", "--recompute block", "--recompute none", "--micro-batch 1"]),
    );
    // A device is measured once, by a step that takes more memory than these.
    let measured = chamber.work.join("runs").join(format!("measured-{precision}-{threads}"));
    if measured.exists() {
        results::copy(&measured, &case.dir.join("cache"))?;
    } else {
        case.run(&words.replace("--out a", "--out other"), &Orders::none())?;
        trust(&case.dir.join("cache"))?;
        results::copy(&case.dir.join("cache"), &case.dir.join("measured"))?;
        // Another case may have been as fast.
        let _ = fs::rename(case.dir.join("measured"), &measured);
    }
    let ended = case.run(&words, &Orders::none())?;
    Ok(Tally::of(ended.check().and_then(|()| {
        let wrong = |what: String| Err(Violation::new(Wrong::Silent, what));
        let results = ended.stdout.lines().last().map(serde_json::from_str::<serde_json::Value>);
        let Some(Ok(results)) = results.filter(|_| ended.is_done()) else {
            return wrong(format!("it failed: {}", ended.stderr));
        };
        let bytes = |name: &str| results[name].as_u64();
        let (Some(resident), Some(predicted)) =
            (bytes("resident_peak_bytes"), bytes("predicted_peak_bytes"))
        else {
            return wrong(format!("no peak is told: {results}"));
        };
        let copy = bytes("checkpoint_copy_bytes").unwrap_or(0);
        let beyond = resident.saturating_sub(predicted + copy);
        if beyond > MOST {
            return wrong(format!("{beyond} bytes beyond the plan's {predicted} and {copy}"));
        }
        Ok(Well::Identical)
    })))
}

/// Has kept rates count as measured again: those of a machine with other work would be measured by the run that counts.
fn trust(cache: &Path) -> anyhow::Result<()> {
    let mut kept = 0;
    for entry in fs::read_dir(cache.join("tightrope"))? {
        let path = entry?.path();
        let is_rates =
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("rates-"));
        if is_rates {
            let mut text = fs::read_to_string(&path)?;
            for trust in ["under_load", "new", "doubted"] {
                text = text.replace(&format!("\"{trust}\""), "\"again\"");
            }
            fs::write(&path, text)?;
            kept += 1;
        }
    }
    anyhow::ensure!(kept > 0, "no rates are kept in {}", cache.display());
    Ok(())
}

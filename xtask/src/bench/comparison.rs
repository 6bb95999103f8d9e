//! One case: whether the losses fall alike, then timed runs in turn, and the ratios.

use std::path::Path;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::sides::{Batches, Figures, Side};
use super::{Case, Options};

/// Steps on one sequence, behind those that warm up, by which losses are compared.
const CHECKED_STEPS: usize = 7;
/// How much the losses of two sides may differ, since each draws its weights: at the start in nats, ...
const START: f64 = 0.1;
/// ... and in the share of the fall on one sequence. GPT-2's is 4.24 nats in PyTorch, 4.55 in candle and 3.80 here.
const FALL: f64 = 0.25;

/// The case's row, where there is somebody to compare with.
///
/// # Errors
/// When a side fails, or its losses aren't as Tightrope's.
pub fn compare(
    options: &Options,
    case: &Case,
    sides: &[Side],
    scratch: &Path,
) -> anyhow::Result<Option<Value>> {
    let sides: Vec<&Side> = sides.iter().filter(|side| side.runs_on(case.device)).collect();
    if sides.len() < 2 {
        return Ok(None);
    }
    println!("{} on {} in {}", case.model.name, case.device, case.precision);
    let falls = sides.iter().map(|side| side.train(case, Batches::Fixed, CHECKED_STEPS, scratch));
    let falls = falls.collect::<anyhow::Result<Vec<Figures>>>()?;
    let mut runs = vec![vec![]; sides.len()];
    // In turn, so that a slow minute hits all.
    for _ in 0..options.runs {
        for (side, runs) in sides.iter().zip(&mut runs) {
            runs.push(side.train(case, Batches::Fresh, options.steps, scratch)?);
        }
    }
    let medians: Vec<Figures> = runs.iter().map(|runs| median(runs)).collect();
    println!("  medians of {} runs in turn, and losses of steps on one sequence", options.runs);
    for ((side, figures), fall) in sides.iter().zip(&medians).zip(&falls) {
        let mebibytes = figures.resident_bytes / f64::from(1 << 20);
        println!(
            "  {:<16} {:>7.0} tokens/s {mebibytes:>6.0} MiB resident, losses {:.3} to {:.3}",
            side.name(),
            figures.tokens_per_s,
            fall.first_loss,
            fall.last_loss
        );
    }
    for ((side, figures), fall) in sides.iter().zip(&medians).zip(&falls) {
        alike(&medians[0], figures, START)
            .and_then(|()| {
                alike(&falls[0], fall, FALL * (falls[0].first_loss - falls[0].last_loss))
            })
            .with_context(|| format!("{} beside tightrope", side.name()))?;
    }
    let ratios = ratios(&sides, &medians);
    for Ratio { library, speed, memory } in &ratios {
        println!("  {speed:.2} x the speed of {library}, {memory:.2} x its memory");
    }
    Ok(Some(row(case, &sides, &medians, &falls, &ratios)))
}

fn row(
    case: &Case,
    sides: &[&Side],
    medians: &[Figures],
    falls: &[Figures],
    ratios: &[Ratio],
) -> Value {
    let sides = sides.iter().zip(medians).zip(falls).map(|((side, figures), fall)| {
        json!({
            "library": side.library,
            "way": side.way,
            "version": figures.version,
            "tokens_per_s": figures.tokens_per_s,
            "resident_bytes": figures.resident_bytes,
            "losses": [figures.first_loss, figures.last_loss],
            "losses_on_one_sequence": [fall.first_loss, fall.last_loss],
        })
    });
    let ratios = ratios.iter().map(
        |ratio| json!({"library": ratio.library, "speed": ratio.speed, "memory": ratio.memory}),
    );
    json!({
        "model": case.model.name,
        "device": case.device,
        "precision": case.precision,
        "batch": case.model.batch,
        "seq_len": case.model.seq_len,
        "sides": sides.collect::<Vec<_>>(),
        "ratios": ratios.collect::<Vec<_>>(),
    })
}

/// Refuses losses that are further than `most` from those of the first.
fn alike(first: &Figures, other: &Figures, most: f64) -> anyhow::Result<()> {
    let at_first = (other.first_loss - first.first_loss).abs();
    let at_last = (other.last_loss - first.last_loss).abs();
    ensure!(
        at_first <= START && at_last <= most,
        "losses go from {:.3} to {:.3}, and there from {:.3} to {:.3}",
        other.first_loss,
        other.last_loss,
        first.first_loss,
        first.last_loss
    );
    Ok(())
}

/// The first side against another library's fastest and smallest way.
struct Ratio {
    library: &'static str,
    speed: f64,
    memory: f64,
}

fn ratios(sides: &[&Side], figures: &[Figures]) -> Vec<Ratio> {
    let mut best: Vec<Ratio> = vec![];
    for (side, found) in sides.iter().zip(figures).skip(1) {
        let speed = figures[0].tokens_per_s / found.tokens_per_s;
        let memory = figures[0].resident_bytes / found.resident_bytes;
        match best.iter_mut().find(|ratio| ratio.library == side.library) {
            Some(ratio) => {
                ratio.speed = ratio.speed.min(speed);
                ratio.memory = ratio.memory.max(memory);
            }
            None => best.push(Ratio { library: side.library, speed, memory }),
        }
    }
    best
}

/// The median of each figure by itself.
fn median(runs: &[Figures]) -> Figures {
    let of = |field: fn(&Figures) -> f64| {
        let mut values: Vec<f64> = runs.iter().map(field).collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        }
    };
    Figures {
        tokens_per_s: of(|run| run.tokens_per_s),
        resident_bytes: of(|run| run.resident_bytes),
        first_loss: of(|run| run.first_loss),
        last_loss: of(|run| run.last_loss),
        version: runs[0].version.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(tokens_per_s: f64, resident_bytes: f64) -> Figures {
        let version = String::new();
        Figures { tokens_per_s, resident_bytes, first_loss: 5.6, last_loss: 1.6, version }
    }

    #[test]
    fn medians_are_taken_field_by_field() {
        let odd = median(&[run(3.0, 10.0), run(1.0, 30.0), run(2.0, 20.0)]);
        assert_eq!((odd.tokens_per_s, odd.resident_bytes), (2.0, 20.0));
        let even = median(&[run(1.0, 4.0), run(2.0, 2.0)]);
        assert_eq!((even.tokens_per_s, even.resident_bytes), (1.5, 3.0));
    }

    #[test]
    fn ratios_are_to_the_best_way_of_each_library() {
        let side = |library| Side::of(library);
        let sides = [side("tightrope"), side("pytorch"), side("pytorch"), side("candle")];
        let sides: Vec<&Side> = sides.iter().collect();
        let figures = [run(8.0, 10.0), run(4.0, 40.0), run(2.0, 20.0), run(1.0, 50.0)];
        let found: Vec<_> = ratios(&sides, &figures)
            .iter()
            .map(|ratio| (ratio.library, ratio.speed, ratio.memory))
            .collect();
        assert_eq!(found, [("pytorch", 2.0, 0.5), ("candle", 8.0, 0.2)]);
    }

    #[test]
    fn losses_that_fall_otherwise_are_refused() {
        let own = run(1.0, 1.0);
        let other = |first_loss, last_loss| Figures { first_loss, last_loss, ..own.clone() };
        assert!(alike(&own, &other(5.55, 1.9), 0.4).is_ok());
        assert!(alike(&own, &other(5.55, 5.5), 0.4).is_err(), "it doesn't learn");
        assert!(alike(&own, &other(5.55, 1.0), 0.4).is_err(), "it does something else");
        assert!(alike(&own, &other(5.3, 1.6), 0.4).is_err(), "it begins elsewhere");
    }
}

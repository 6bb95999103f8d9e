//! What is said of a step that several ranks make: what each holds, what it sends, and how long that takes.

use std::fmt::Write as _;

use serde_json::{Value, json};
use tightrope_nn::{Planned, Shard};

use super::columns::columns;
use crate::plan::stages::{Stage, Stages};
use crate::rates::Known;
use crate::units::human_bytes;

/// A name and a line each.
pub(super) fn facts(planned: &Planned, known: &Known) -> Vec<(&'static str, String)> {
    let ranks = planned.config().ranks;
    let mut facts = vec![("ranks", held(planned))];
    if let Some(links) = known.links {
        facts.push(("links", links.describe(ranks)));
    }
    let sent = planned.sent_s(&known.rates);
    let step = planned.overlapped(&known.rates);
    let waits = match planned.plan.options.overlap {
        true => format!("ranks wait for {}", seconds(step.waited_s())),
        false => "ranks wait for what they send".to_owned(),
    };
    let part = |(name, &part_s): (&&str, &f64)| format!("{name} {}", seconds(part_s));
    let parts: Vec<String> = sent.iter().map(part).collect();
    facts.push((
        "sending",
        format!(
            "{} a step: {}; {} of computing; {:.0}% overlaps, {waits}",
            seconds(step.sent_s),
            parts.join(", "),
            seconds(step.compute_s),
            step.share() * 100.0
        ),
    ));
    facts
}

fn seconds(seconds: f64) -> String {
    format!("{seconds:.3} s")
}

/// What each rank holds, and what it sends the others in a step.
fn held(planned: &Planned) -> String {
    let config = planned.config();
    let held = match config.shard {
        Shard::Nothing => "each holds all of the state",
        Shard::State => "each holds a shard of optimizer state and masters",
        Shard::Gradients => "each holds a shard of optimizer state, masters and gradients",
        Shard::Weights => "each holds a shard of optimizer state, masters, gradients and weights",
    };
    let sent = planned.sent_bytes();
    let all = human_bytes(sent.values().sum());
    let of = |(name, bytes): (&&str, &u64)| format!("{name} {}", human_bytes(*bytes));
    let parts: Vec<String> = sent.iter().map(of).collect();
    let shared = match config.context_ranks {
        1 => String::new(),
        n => format!(", {n} of which share each sequence"),
    };
    format!(
        "{}{shared}: {held} (shard {}), and sends {all} a step: {}",
        config.ranks,
        u32::from(config.shard),
        parts.join(", ")
    )
}

/// Adds the same for machines to `object`.
pub(super) fn extend(object: &mut Value, planned: &Planned, known: &Known) {
    let config = planned.config();
    let step = planned.overlapped(&known.rates);
    object["ranks"] = config.ranks.into();
    object["context_ranks"] = config.context_ranks.into();
    object["shard"] = json!(config.shard);
    object["interconnect"] = json!(known.links.map(|links| links.to_string()));
    object["sent_bytes"] = json!(planned.sent_bytes());
    object["sent_s"] = json!(planned.sent_s(&known.rates));
    object["compute_s"] = step.compute_s.into();
    object["overlapped_share"] = step.share().into();
}

/// What each stage would take, for people.
pub fn stages_text(found: &Stages) -> String {
    let heads = ["shard", "peak", "fits", "sends", "step", "sending", "fewest ranks"];
    let mut rows = vec![heads.map(str::to_owned)];
    for stage in &found.stages {
        rows.push([
            u32::from(stage.shard).to_string(),
            human_bytes(stage.peak_bytes),
            if stage.fits { "yes" } else { "no" }.to_owned(),
            human_bytes(stage.sent_bytes),
            seconds(stage.step_s),
            seconds(stage.sent_s),
            stage.fewest_ranks.map_or("none".to_owned(), |ranks| ranks.to_string()),
        ]);
    }
    let mut text =
        format!("\nwhat each of {} ranks would take, by what it holds a shard of\n", found.ranks);
    text += &columns(&rows);
    // Writing to a String can't fail.
    let _ = writeln!(
        text,
        "fewest ranks: of those that {} samples a step can be cut among, the fewest on which it fits",
        found.batch
    );
    text
}

/// The same for machines.
pub fn stages_json(found: &Stages) -> Value {
    let of = |stage: &Stage| {
        json!({
            "shard": stage.shard,
            "peak_bytes": stage.peak_bytes,
            "fits": stage.fits,
            "sent_bytes": stage.sent_bytes,
            "predicted_step_s": stage.step_s,
            "sent_s": stage.sent_s,
            "fewest_ranks": stage.fewest_ranks,
        })
    };
    found.stages.iter().map(of).collect()
}

//! `tightrope plan --scale`: the same step on more and more GPUs.

use std::fmt::Write as _;

use serde_json::{Value, json};
use tightrope_nn::TrainerConfig;

use super::columns::columns;
use crate::model::{self, Unit};
use crate::plan::scale::{Row, Scale};
use crate::units::{human_bytes, human_count, plural};

/// A table for people, and what it assumes.
pub fn text(found: &Scale, config: &TrainerConfig) -> String {
    let many = Unit::of(config).many;
    let per_s = format!("{many}/s");
    let heads =
        ["GPUs", "shard", "peak of each", "each sends", "step", "overlapped", &per_s, "efficiency"];
    let mut rows = vec![heads.map(str::to_owned)];
    for row in [&found.alone].into_iter().chain(&found.rows) {
        let among = row.gpus > 1;
        let only = |text: String| if among { text } else { "–".to_owned() };
        rows.push([
            row.gpus.to_string(),
            only(u32::from(row.shard).to_string()),
            format!("{}{}", human_bytes(row.peak_bytes), if row.fits { "" } else { " (too much)" }),
            only(human_bytes(row.sent_bytes)),
            format!("{:.3} s", row.step.step_s),
            only(format!("{:.0}%", 100.0 * row.step.share())),
            human_count(row.per_s),
            format!("{:.1}%", 100.0 * row.efficiency),
        ]);
    }
    let mut text = columns(&rows);
    let [one, samples] = model::sample(config);
    let mut line = |line: String| {
        // Writing to a String can't fail.
        let _ = writeln!(text, "{line}");
    };
    line(format!(
        "\nsimulated, not run: {} on each GPU in a step, linked by {}",
        plural(found.own_batch, one, samples),
        found.links.describe(usize::MAX)
    ));
    for assumed in ASSUMED {
        line(format!("  {assumed}"));
    }
    if !found.alone.fits {
        line("  one GPU alone is one with more memory: this one's is too small".to_owned());
    }
    line(format!("times are predicted {}", found.known.origin()));
    line(format!("planned in {:.3} s", found.seconds));
    text
}

/// What is assumed, a line each.
const ASSUMED: [&str; 4] = [
    "overlap: weights of a block come while the one before computes, gradients go while the next are made, as plans for NCCL say",
    "collectives: each rank sends its part to every other directly, as this program does, and adds up in the order of ranks",
    "links: a GPU's link within its node and its own to other nodes work at once, at full rate, with no congestion",
    "latency: that of NCCL's model for the first message of a collective, and for each that follows that of a short one",
];

/// The same for machines.
pub fn json(found: &Scale) -> Value {
    let row = |row: &Row| {
        json!({
            "gpus": row.gpus,
            "shard": row.shard,
            "choices": row.choices,
            "peak_bytes": row.peak_bytes,
            "fits": row.fits,
            "sent_bytes": row.sent_bytes,
            "simulated_step_s": row.step.step_s,
            "compute_s": row.step.compute_s,
            "sent_s": row.step.sent_s,
            "overlapped_share": row.step.share(),
            "per_s": row.per_s,
            "efficiency": row.efficiency,
        })
    };
    json!({
        "alone": row(&found.alone),
        "rows": found.rows.iter().map(row).collect::<Vec<_>>(),
        "own_batch": found.own_batch,
        "interconnect": found.links.to_string(),
        "assumed": ASSUMED,
        "rates": found.known.source.name(),
        "scale_s": found.seconds,
    })
}

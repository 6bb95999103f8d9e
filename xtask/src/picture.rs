//! `cargo xtask picture`: plans drawn as maps of time and arena, from what `tightrope plan --json` says.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::{built, object_of, root};

/// The step that is drawn, and the budget of the second panel.
const STEP: &str = "plan --json --preset gpt2 --batch 4 --device cpu --threads 2";
const PANELS: [(&str, &str); 2] = [
    ("everything kept", "--memory 64GiB --recompute none --micro-batch 4"),
    ("the same step in 2200 MiB", "--memory 2200MiB"),
];

/// Classes as plans name them, with their colours.
const COLOURS: [(&str, &str); 6] = [
    ("weight", "#4e79a7"),
    ("gradient", "#e15759"),
    ("optimizer", "#76b7b2"),
    ("activation", "#f28e2b"),
    ("workspace", "#9c755f"),
    ("input", "#bab0ac"),
];

const WIDTH: f64 = 440.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 58.0;
const TOP: f64 = 44.0;

/// Draws `docs/plan.svg`.
///
/// # Errors
/// A plan that can't be made, or a picture that can't be written.
pub fn run() -> anyhow::Result<bool> {
    let binary = built("release")?;
    let plans = PANELS
        .iter()
        .map(|(title, words)| {
            let words = STEP.split_whitespace().chain(words.split_whitespace());
            Ok((*title, object_of(Command::new(&binary).args(words))?))
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    let path = root().join("docs/plan.svg");
    fs::write(&path, drawing(&plans)?)
        .with_context(|| format!("can't write {}", path.display()))?;
    println!("written to {}", path.display());
    Ok(true)
}

/// Panels side by side on one scale, and a legend.
fn drawing(plans: &[(&str, Value)]) -> anyhow::Result<String> {
    let peak = |plan: &Value| plan["peak_bytes"].as_f64().context("the plan has no peak_bytes");
    let mut scale = 0f64;
    for (_, plan) in plans {
        scale = scale.max(peak(plan)?);
    }
    ensure!(scale > 0.0, "the plans take no memory");
    let width = plans.len() as f64 * (WIDTH + LEFT) + 20.0;
    let mut svg = String::new();
    // Writing to a String can't fail.
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {:.0}\" \
         font-family=\"sans-serif\" font-size=\"12\" fill=\"#888\">\n\
         <title>Arena of a training step over time, by class of tensor</title>\n",
        TOP + HEIGHT + 60.0
    );
    for (index, (title, plan)) in plans.iter().enumerate() {
        let left = LEFT + index as f64 * (WIDTH + LEFT);
        let choices = &plan["choices"];
        let _ = write!(
            svg,
            "<text x=\"{left:.0}\" y=\"16\" font-weight=\"bold\">{title}: {}</text>\n\
             <text x=\"{left:.0}\" y=\"32\">micro-batch {} × {}, recompute {}</text>\n",
            mebibytes(peak(plan)?),
            choices["micro_batch"],
            choices["accumulation"],
            shortened(choices["checkpoint"].as_str().unwrap_or_default()),
        );
        panel(&mut svg, plan, left, scale)?;
    }
    let mut x = LEFT;
    let y = TOP + HEIGHT + 40.0;
    for (class, colour) in COLOURS {
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.0}\" y=\"{:.0}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\
             <text x=\"{:.0}\" y=\"{y:.0}\">{class}</text>",
            y - 11.0,
            x + 17.0
        );
        x += 110.0;
    }
    svg += "</svg>\n";
    Ok(svg)
}

/// One plan: offsets from the bottom up, ops from left to right.
fn panel(svg: &mut String, plan: &Value, left: f64, scale: f64) -> anyhow::Result<()> {
    let list = |value: &Value, key: &str| {
        value[key].as_array().cloned().with_context(|| format!("the plan has no `{key}`"))
    };
    let programs = list(plan, "programs")?;
    let mut ops = 0.0;
    let mut begins = vec![];
    for program in &programs {
        begins.push(ops);
        ops += list(program, "phases")?.len() as f64;
    }
    let x = |op: f64| left + WIDTH * op / ops;
    let y = |bytes: f64| TOP + HEIGHT * (1.0 - bytes / scale);
    let mut paths: Vec<String> = vec![String::new(); COLOURS.len()];
    let mut add = |it: &Value, from: f64, to: f64| {
        let (offset, bytes) = (it["offset"].as_f64()?, it["bytes"].as_f64()?);
        let class = COLOURS.iter().position(|(class, _)| it["class"] == *class)?;
        let (high, low) = (y(offset + bytes), y(offset));
        // What is thinner than a fifth of a pixel would only make the file larger.
        if low - high >= 0.2 {
            let (x, right) = (x(from), x(to));
            let _ = write!(paths[class], "M{x:.1} {high:.1}H{right:.1}V{low:.1}H{x:.1}Z");
        }
        Some(())
    };
    for it in list(plan, "persistent")? {
        add(&it, 0.0, ops).context("the plan's `persistent` isn't as expected")?;
    }
    for (program, begin) in programs.iter().zip(begins) {
        for it in list(program, "arena")? {
            let step = |key: &str| it[key].as_f64().map(|step| step + begin);
            let life = step("birth").zip(step("death"));
            life.and_then(|(birth, death)| add(&it, birth, death + 1.0))
                .context("the plan's `arena` isn't as expected")?;
        }
    }
    let _ = writeln!(
        svg,
        "<rect x=\"{left:.1}\" y=\"{TOP}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#888\" \
         fill-opacity=\"0.08\"/>"
    );
    for (path, (_, colour)) in paths.iter().zip(COLOURS) {
        let _ = writeln!(
            svg,
            "<path d=\"{path}\" fill=\"{colour}\" stroke=\"#fff\" stroke-width=\"0.15\"/>"
        );
    }
    for part in [0.0, 0.5, 1.0] {
        let _ = writeln!(
            svg,
            "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\" font-size=\"10\">{}</text>",
            left - 4.0,
            y(part * scale) + 4.0,
            mebibytes(part * scale)
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{left:.0}\" y=\"{:.0}\" font-size=\"10\">ops of the step, in order →</text>",
        TOP + HEIGHT + 14.0
    );
    Ok(())
}

fn mebibytes(bytes: f64) -> String {
    format!("{:.0} MiB", bytes / f64::from(1 << 20))
}

/// A list as short as there's room for.
fn shortened(list: &str) -> String {
    const SHOWN: usize = 2;
    let parts: Vec<&str> = list.split(", ").collect();
    match parts.get(SHOWN..).filter(|rest| !rest.is_empty()) {
        Some(rest) => format!("{} and {} more", parts[..SHOWN].join(", "), rest.len()),
        None => list.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plan(peak: u64) -> Value {
        json!({
            "peak_bytes": peak,
            "choices": { "micro_batch": 2, "accumulation": 1, "checkpoint": "block" },
            "persistent": [{ "class": "weight", "offset": 0, "bytes": peak / 4 }],
            "programs": [{
                "phases": ["forward", "backward"],
                "arena": [
                    { "class": "activation", "offset": peak / 4, "bytes": peak / 2, "birth": 0, "death": 0 },
                    { "class": "gradient", "offset": peak / 4, "bytes": 1, "birth": 1, "death": 1 }
                ]
            }]
        })
    }

    #[test]
    fn boxes_lie_where_the_plan_says() {
        let svg = drawing(&[("whole", plan(1 << 30)), ("half", plan(1 << 29))]).unwrap();
        // The weight: all of the time, the lower quarter of the first panel.
        assert!(svg.contains("M58.0 269.0H498.0V344.0H58.0Z"), "{svg}");
        // The activation: the first half of the time, half of the height.
        assert!(svg.contains("M58.0 119.0H278.0V269.0H58.0Z"), "{svg}");
        // The second panel on the scale of the first.
        assert!(svg.contains("M556.0 306.5H996.0V344.0H556.0Z"), "{svg}");
        assert!(svg.contains("half: 512 MiB") && svg.contains("recompute block"), "{svg}");
        assert_eq!(svg.matches('Z').count(), 4, "the gradient of one byte isn't drawn");
    }

    #[test]
    fn what_is_missing_is_named() {
        let mut broken = plan(1 << 20);
        broken["programs"][0]["arena"].take();
        let error = drawing(&[("", broken)]).unwrap_err().to_string();
        assert!(error.contains("`arena`"), "{error}");
    }
}

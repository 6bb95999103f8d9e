//! `tightrope plan --techniques`: what each memory technique saves and costs.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::columns::columns;
use crate::plan::techniques::{Figures, Numerics, Outcome, RECORDED, Techniques, Together};
use crate::units::human_bytes;

/// The heads of the columns.
const HEADS: [&str; 5] = ["technique", "peak", "saves", "step", "numbers"];

/// A table for people.
pub fn text(found: &Techniques) -> String {
    let base = &found.base;
    let mut rows = vec![HEADS.map(str::to_owned)];
    let mut row = |name: &str, figures: &Figures, numbers: &str| {
        let (saves, step) = (saved(figures, base), slower(figures, base));
        let peak = human_bytes(figures.peak_bytes);
        rows.push([name.to_owned(), peak, saves, step, numbers.to_owned()]);
    };
    row("none of them", base, "");
    for ((technique, outcome), &numerics) in found.alone.iter().zip(&found.numerics) {
        if let Outcome::Alone(figures) = outcome {
            row(technique.name, figures, numbers(numerics));
        }
    }
    row("all that keep the numbers", &found.exact.figures, numbers(Numerics::Order));
    row("all", &found.all.figures, "changed");
    let chosen = &found.chosen;
    row(
        if chosen.fits { "the planner's choice" } else { "the smallest plan" },
        &chosen.figures,
        "as asked",
    );
    let mut text = columns(&rows);
    text += "\nEach is alone, on top of none of them: f32, all logits at once, scores of attention stored, nothing\n\
             recomputed, one pass a step. \"saves\" is of that peak, and \"step\" of its predicted time.\n";
    let note = |what: &str, together: &Together| {
        let each = together.without.iter().map(|(name, why)| format!("{name}: {why}"));
        let each: Vec<String> = each.collect();
        match each.is_empty() {
            true => String::new(),
            false => format!("{what} is without {}\n", each.join("; ")),
        }
    };
    text += &note("all that keep the numbers", &found.exact);
    text += &note("all", &found.all);
    if let Some(budget) = chosen.budget_bytes {
        let fits = if chosen.fits { "the planner's choice fits" } else { "no plan fits" };
        // Writing to a String can't fail.
        let _ = writeln!(text, "{fits} {}", human_bytes(budget));
    }
    let refused = found.alone.iter().filter_map(|(technique, outcome)| match outcome {
        Outcome::Not(why) => Some((technique.name, *why)),
        Outcome::Alone(_) => None,
    });
    let refused: Vec<_> = refused.collect();
    if !refused.is_empty() {
        text += "\nnot here\n";
        for (name, why) in refused {
            let _ = writeln!(text, "  {name}: {why}");
        }
    }
    let changed = found.alone.iter().filter_map(|(technique, outcome)| match technique.numerics {
        Numerics::Changed(recorded) if matches!(outcome, Outcome::Alone(_)) => {
            Some((technique.name, recorded))
        }
        _ => None,
    });
    let _ = writeln!(text, "\nwhat fewer bits changed where it was recorded ({RECORDED})");
    for (name, recorded) in changed {
        let _ = writeln!(text, "  {name}: {recorded}");
    }
    let _ = writeln!(text, "\ntimes are predicted {}", found.known.origin());
    let _ = writeln!(text, "planned in {:.3} s", found.seconds);
    text
}

/// Bytes and the part of the base's that a plan saves; nothing where it is the base.
fn saved(figures: &Figures, base: &Figures) -> String {
    let (bytes, most) = (figures.peak_bytes, base.peak_bytes);
    if figures == base {
        return String::new();
    }
    let sign = if bytes > most { "−" } else { "" };
    let part = 100.0 * bytes.abs_diff(most) as f64 / most.max(1) as f64;
    format!("{sign}{} {:>7}", human_bytes(bytes.abs_diff(most)), format!("{sign}{part:.1}%"))
}

fn slower(figures: &Figures, base: &Figures) -> String {
    if figures == base {
        return format!("{:.3} s", base.step_s);
    }
    format!("{:+.1}%", 100.0 * (figures.step_s / base.step_s - 1.0)).replace('-', "−")
}

fn numbers(numerics: Numerics) -> &'static str {
    match numerics {
        Numerics::Same => "the same bits",
        Numerics::Activations | Numerics::Order => "last bits",
        Numerics::Changed(_) => "changed",
    }
}

/// The same for machines.
pub fn json(found: &Techniques) -> Value {
    let figures = |figures: &Figures| {
        json!({
            "peak_bytes": figures.peak_bytes,
            "saved_bytes": found.base.peak_bytes as i64 - figures.peak_bytes as i64,
            "predicted_step_s": figures.step_s,
            "choices": figures.choices,
        })
    };
    let alone = found.alone.iter().zip(&found.numerics).map(|((technique, outcome), &numerics)| {
        let mut object = match outcome {
            Outcome::Alone(found) => figures(found),
            Outcome::Not(why) => json!({ "not_here": why }),
        };
        object["name"] = technique.name.into();
        object["setting"] = technique.setting.into();
        object["numerics"] = numbers(numerics).into();
        if let Numerics::Changed(recorded) = technique.numerics {
            object["recorded"] = recorded.into();
        }
        object
    });
    let together = |together: &Together| {
        let mut object = figures(&together.figures);
        object["techniques"] = together.names.clone().into();
        let without = together.without.iter();
        let without = without.map(|(name, why)| json!({ "name": name, "why": why }));
        object["without"] = without.collect();
        object
    };
    let mut chosen = figures(&found.chosen.figures);
    chosen["budget_bytes"] = found.chosen.budget_bytes.into();
    chosen["fits"] = found.chosen.fits.into();
    json!({
        "base": figures(&found.base),
        "techniques": alone.collect::<Vec<_>>(),
        "exact": together(&found.exact),
        "all": together(&found.all),
        "chosen": chosen,
        "rates": found.known.source.name(),
        "recorded_in": RECORDED,
        "techniques_s": found.seconds,
    })
}

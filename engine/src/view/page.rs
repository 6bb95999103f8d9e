//! `tightrope plan --html FILE`: the plan as one page that needs nothing else.

use serde_json::{Value, json};

use super::alive::grouped;
use super::layers::layers;
use super::step::{ShownPlan, ShownProgram};
use super::summary::Summary;
use super::sweep::Sweep;
use crate::model;
use crate::profile::Profile;
use crate::units::human_bytes;

const TEMPLATE: &str = include_str!("page/page.html");
/// Colours and what else both pages share, then the plan's own.
const STYLE: &str = concat!(
    include_str!("../../../web/page/src/style/tokens.css"),
    include_str!("../../../web/page/src/style/base.css"),
    include_str!("page/page.css"),
);
/// What words of the field mean: the same on both pages.
const WORDS: &str = include_str!("../../../web/page/src/words.json");
const SCRIPT: [&str; 2] = [include_str!("page/map.js"), include_str!("page/page.js")];

/// The page of a plan, with the plans of other budgets and what was measured, where something was.
pub fn page(
    summary: &Summary<'_>,
    programs: &[ShownProgram],
    sweep: &Sweep,
    profile: Option<&Profile>,
) -> String {
    let facts: Vec<String> = (summary.facts().iter())
        .map(|(name, value)| format!("<dt>{name}</dt><dd>{}</dd>", escaped(value)))
        .collect();
    let data = data(summary, programs, sweep, profile).to_string();
    filled(TEMPLATE, &|place| match place {
        "title" => escaped(&title(summary)),
        "style" => STYLE.to_owned(),
        "facts" => facts.join("\n"),
        // In JSON this is the same, and no name can end the script.
        "data" => data.replace('<', "\\u003c"),
        "words" => WORDS.to_owned(),
        "script" => SCRIPT.join("\n"),
        other => unreachable!("the template has no place for {other}"),
    })
}

fn title(summary: &Summary<'_>) -> String {
    let title = model::title(summary.config());
    format!("{title}: {} at the peak", human_bytes(summary.report.peak_bytes))
}

/// What the script shows.
fn data(
    summary: &Summary<'_>,
    programs: &[ShownProgram],
    sweep: &Sweep,
    profile: Option<&Profile>,
) -> Value {
    let (report, plan) = (&summary.report, &summary.planned.plan);
    let step_s = summary.estimate.step_s;
    let mut shown = json!(ShownPlan::new(plan, report, summary.budget, step_s, programs.to_vec()));
    let mut profile = profile.map(|profile| json!(profile));
    if let Some(profile) = &mut profile {
        // Beside the ops that they are of.
        let measured = profile["programs"].take();
        for (program, measured) in shown["programs"]
            .as_array_mut()
            .into_iter()
            .flatten()
            .zip(measured.as_array().into_iter().flatten())
        {
            let ops = measured["ops"].as_array().into_iter().flatten();
            program["measured_s"] = ops.map(|op| op["measured_s"].clone()).collect();
        }
    }
    shown["groups"] = json!(grouped(&report.alive));
    shown["layers"] = json!(layers(plan, programs));
    shown["plans"] = sweep.json()["plans"].take();
    shown["profile"] = json!(profile);
    shown
}

/// A template with what `value` has for each of its `{{places}}`.
fn filled(template: &str, value: &dyn Fn(&str) -> String) -> String {
    let mut page = String::new();
    let mut rest = template;
    while let Some((before, (place, after))) =
        rest.split_once("{{").and_then(|(before, rest)| Some((before, rest.split_once("}}")?)))
    {
        page += before;
        page += &value(place);
        rest = after;
    }
    page + rest
}

/// Text as HTML.
pub(crate) fn escaped(text: &str) -> String {
    let mut html = String::new();
    for c in text.chars() {
        match c {
            '&' => html += "&amp;",
            '<' => html += "&lt;",
            '>' => html += "&gt;",
            '"' => html += "&quot;",
            c => html.push(c),
        }
    }
    html
}

#[cfg(test)]
mod tests {
    use tightrope_core::Class;

    use super::*;

    #[test]
    fn places_are_filled_once() {
        let value = |place: &str| format!("[{place} {{{{b}}}}]");
        assert_eq!(filled("x{{a}}y{{b}}z", &value), "x[a {{b}}]y[b {{b}}]z");
        assert_eq!(escaped("a<b> & \"c\""), "a&lt;b&gt; &amp; &quot;c&quot;");
    }

    #[test]
    fn the_page_needs_nothing_else() {
        for text in [TEMPLATE, STYLE, WORDS, SCRIPT[0], SCRIPT[1]] {
            for outside in
                ["http:", "https:", "src=", "href=", "@import", "url(", "fetch(", "import("]
            {
                assert!(!text.contains(outside), "{outside}");
            }
        }
    }
    #[test]
    fn every_class_has_a_definition() {
        let words: Value = serde_json::from_str(WORDS).unwrap();
        for class in Class::ALL {
            let definition = words[class.name()].as_str().unwrap_or_default();
            assert!(definition.ends_with('.') && !definition.contains('<'), "{class:?}");
        }
    }
}

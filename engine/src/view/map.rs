//! Plans drawn as maps, as SVG: ops of the step from left to right, offsets in the arena from the bottom up, one colour a class.

use std::fmt::Write as _;

use tightrope_core::plan::GAPS;
use tightrope_core::{Class, Phase};

use super::names::phase_name;
use super::step::ShownPlan;
use crate::units::human_bytes;

/// One plan of a drawing.
#[derive(Clone, Copy, Debug)]
pub struct Panel<'a> {
    /// What it's called; its peak is added.
    pub title: &'a str,
    /// What was chosen for it.
    pub subtitle: &'a str,
    /// The plan.
    pub plan: &'a ShownPlan,
}

/// Colours of the classes: those of the pages, on a light ground.
const COLOURS: [(Class, &str); 7] = [
    (Class::Weight, "#3f6ea8"),
    (Class::Frozen, "#86a6cc"),
    (Class::Gradient, "#8b69b0"),
    (Class::Optimizer, "#55a39b"),
    (Class::Activation, "#dba33a"),
    (Class::Workspace, "#a08468"),
    (Class::Input, "#a5b0b8"),
];

/// Color of gaps: the ground between the boxes.
const GAPS_COLOUR: &str = "#8883";

/// Pixels of a panel, and of what stands around it.
const WIDTH: f64 = 440.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 64.0;
const TOP: f64 = 44.0;
/// Below it: parts of the step, then the classes in rows of so many.
const BELOW: f64 = 78.0;
const ROW: usize = 4;
/// Letters of a line that fit a panel.
const LINE: usize = 80;
/// Boxes lower than this would only make the file larger.
const LOWEST: f64 = 0.2;

/// Style of a picture that is made narrower where there is less room, and isn't cut off.
pub(super) const FITTING: &str = "max-width:100%;height:auto";

/// The plans side by side on one scale, each with its bytes by class.
pub fn svg(panels: &[Panel<'_>]) -> String {
    let scale = panels.iter().map(|panel| panel.plan.peak_bytes).max().unwrap_or(0).max(1) as f64;
    let width = panels.len().max(1) as f64 * (WIDTH + LEFT) + 20.0;
    let height = TOP + HEIGHT + BELOW;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         width=\"{width:.0}\" height=\"{height:.0}\" style=\"{FITTING}\" font-family=\"sans-serif\" font-size=\"12\" \
         fill=\"#888\" role=\"img\">\n<title>Memory of a training step over time, by class of tensor\
         </title>\n"
    );
    for (index, Panel { title, subtitle, plan }) in panels.iter().enumerate() {
        let left = LEFT + index as f64 * (WIDTH + LEFT);
        // Writing to a String can't fail.
        let _ = writeln!(
            svg,
            "<text x=\"{left:.0}\" y=\"16\" font-weight=\"bold\">{}: {}</text>\n\
             <text x=\"{left:.0}\" y=\"32\">{}<title>{}</title></text>",
            escaped(title),
            human_bytes(plan.peak_bytes),
            escaped(&cut(subtitle)),
            escaped(subtitle)
        );
        panel(&mut svg, plan, left, scale);
        phases(&mut svg, plan, left);
        legend(&mut svg, plan, left);
    }
    svg + "</svg>\n"
}

/// One plan, from `left` on.
fn panel(svg: &mut String, plan: &ShownPlan, left: f64, scale: f64) {
    let ops: usize = plan.programs.iter().map(|program| program.ops.len()).sum();
    let x = |op: usize| left + WIDTH * op as f64 / ops.max(1) as f64;
    let y = |bytes: f64| TOP + HEIGHT * (1.0 - bytes / scale);
    let mut paths = [const { String::new() }; COLOURS.len()];
    let (mut begin, mut tensors) = (0, 0);
    for (index, program) in plan.programs.iter().enumerate() {
        // What is kept is in every program, and lies there all the time.
        for tensor in program.tensors.iter().filter(|tensor| !tensor.kept || index == 0) {
            tensors += 1;
            let class = COLOURS.iter().position(|(class, _)| *class == tensor.class);
            let (high, low) = (y((tensor.offset + tensor.bytes) as f64), y(tensor.offset as f64));
            let Some(class) = class.filter(|_| low - high >= LOWEST) else { continue };
            let life = if tensor.kept {
                [0, ops]
            } else {
                [begin + tensor.birth, begin + tensor.death + 1]
            };
            let [from, to] = life.map(x);
            let _ = write!(paths[class], "M{from:.1} {high:.1}H{to:.1}V{low:.1}H{from:.1}Z");
        }
        begin += program.ops.len();
    }
    let _ = writeln!(
        svg,
        "<g><title>{} bytes at the peak; {tensors} tensors, {ops} ops</title>",
        plan.peak_bytes
    );
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
            human_bytes((part * scale) as u64)
        );
    }
    let _ = writeln!(
        svg,
        "<path d=\"M{left:.1} {top:.1}H{:.1}\" stroke=\"#888\" stroke-width=\"0.6\"/></g>",
        left + WIDTH,
        top = y(plan.peak_bytes as f64),
    );
}

/// The parts of the step, under its ops. Recomputation goes with the backward pass that it alternates with.
fn phases(svg: &mut String, plan: &ShownPlan, left: f64) {
    let ops = plan.programs.iter().flat_map(|program| &program.ops);
    let phases: Vec<Phase> = ops.map(|op| op.phase).collect();
    let part = |phase: &Phase| match phase {
        Phase::Recompute => Phase::Backward,
        &other => other,
    };
    let (y, mut begin) = (TOP + HEIGHT + 4.0, 0);
    for part in phases.chunk_by(|a, b| part(a) == part(b)) {
        let x = |op: usize| left + WIDTH * op as f64 / phases.len() as f64;
        let (from, to) = (x(begin), x(begin + part.len()));
        begin += part.len();
        let (shade, name) = match part[0] {
            Phase::Forward => (0.3, phase_name(Phase::Forward)),
            Phase::Update => (1.0, phase_name(Phase::Update)),
            _ if part.contains(&Phase::Recompute) => (0.6, "backward, recompute"),
            _ => (0.6, phase_name(Phase::Backward)),
        };
        let _ = write!(
            svg,
            "<rect x=\"{from:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"4\" opacity=\"{shade}\"/>",
            (to - from - 1.0).max(0.5)
        );
        // Letters are about half as wide as they are high.
        if to - from > 5.0 * name.len() as f64 {
            let _ = write!(
                svg,
                "<text x=\"{from:.0}\" y=\"{}\" font-size=\"10\">{name}</text>",
                y + 15.0
            );
        }
        svg.push('\n');
    }
}

/// Classes with their bytes at the peak.
fn legend(svg: &mut String, plan: &ShownPlan, left: f64) {
    let bytes = |name: &str| plan.by_class.get(name).copied().unwrap_or(0);
    let rows = COLOURS.map(|(class, colour)| (class.name(), colour)).into_iter();
    let rows = rows.chain([(GAPS, GAPS_COLOUR)]).filter(|&(name, _)| bytes(name) > 0);
    for (index, (name, colour)) in rows.enumerate() {
        let x = left + WIDTH / ROW as f64 * (index % ROW) as f64;
        let y = TOP + HEIGHT + 48.0 + 18.0 * (index / ROW) as f64;
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.0}\" y=\"{:.0}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>\
             <text x=\"{:.0}\" y=\"{y:.0}\" font-size=\"10\">{name} {}</text>",
            y - 9.0,
            x + 14.0,
            human_bytes(bytes(name))
        );
    }
}

/// The beginning of a line, where it doesn't fit.
fn cut(line: &str) -> String {
    if line.chars().count() <= LINE {
        return line.to_owned();
    }
    line.chars().take(LINE - 1).chain(['…']).collect()
}

/// Text in SVG.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use tightrope_core::plan::ByClass;
    use tightrope_core::{Phase, Role};

    use super::*;
    use crate::view::step::{ShownOp, ShownProgram, ShownTensor};

    fn tensor(class: Class, offset: u64, bytes: u64, life: [usize; 2], kept: bool) -> ShownTensor {
        ShownTensor {
            name: String::new(),
            ty: String::new(),
            class,
            offset,
            bytes,
            birth: life[0],
            death: life[1],
            read_by: vec![],
            kept,
            result: false,
            again_s: None,
        }
    }

    fn plan(peak: u64) -> ShownPlan {
        let op = ShownOp {
            op: "Map",
            name: String::new(),
            phase: Phase::Forward,
            seconds: 0.0,
            flops: 0,
            bytes: 0,
            live: peak,
        };
        let tensors = vec![
            tensor(Class::Weight, 0, peak / 4, [0, 1], true),
            tensor(Class::Activation, peak / 4, peak / 2, [0, 0], false),
            tensor(Class::Gradient, peak / 4, 1, [1, 1], false),
        ];
        ShownPlan {
            peak_bytes: peak,
            lower_bound_bytes: peak,
            budget_bytes: None,
            persistent_bytes: peak / 4,
            fixed_bytes: 0,
            by_class: ByClass::from([("weight", peak / 4), ("activation", peak / 2)]),
            why: String::new(),
            step_s: 0.0,
            programs: vec![ShownProgram {
                role: Role::Main,
                repeats: 1,
                ops: vec![op.clone(), op],
                tensors,
            }],
        }
    }

    #[test]
    fn boxes_lie_where_the_plan_says() {
        let (whole, half) = (plan(1 << 30), plan(1 << 29));
        let panels = [("whole", &whole), ("a < b", &half)];
        let svg = svg(&panels.map(|(title, plan)| Panel { title, subtitle: "chosen", plan }));
        // The weight: all of the time, the lower quarter of the first panel.
        assert!(svg.contains("M64.0 269.0H504.0V344.0H64.0Z"), "{svg}");
        // The activation: the first half of the time, half of the height.
        assert!(svg.contains("M64.0 119.0H284.0V269.0H64.0Z"), "{svg}");
        // The second panel on the scale of the first.
        assert!(svg.contains("M568.0 306.5H1008.0V344.0H568.0Z"), "{svg}");
        assert!(svg.contains("a &lt; b: 512 MiB"), "{svg}");
        assert!(svg.contains(">chosen<title>chosen</title></text>"), "{svg}");
        assert_eq!(svg.matches('Z').count(), 4, "the gradient of one byte isn't drawn");
        assert!(svg.contains(">weight 256 MiB<") && svg.contains(">activation 256 MiB<"), "{svg}");
        assert!(!svg.contains(">gradient"), "a class without bytes isn't named");
        assert!(svg.contains("1073741824 bytes at the peak; 3 tensors, 2 ops"), "{svg}");
        assert_eq!(svg.matches(">forward<").count(), 2, "{svg}");
    }

    #[test]
    fn a_long_line_ends_within_its_panel() {
        let long = "m".repeat(LINE);
        assert_eq!(cut(&long), long);
        let cut = cut(&format!("{long} more"));
        assert_eq!((cut.chars().count(), cut.ends_with('…')), (LINE, true));
    }
}

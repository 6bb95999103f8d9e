//! Efficiency over numbers of GPUs, as SVG.

use std::fmt::Write as _;

use crate::plan::scale::{Row, Scale};

/// Colours of the lines: those of the pages, on a light ground.
const COLOURS: [&str; 4] = ["#3f6ea8", "#55a39b", "#dba33a", "#8b69b0"];

/// Pixels of the diagram, and of what stands left of it and above it.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 56.0;
const TOP: f64 = 56.0;
/// From one name to the next.
const NAME: f64 = 150.0;

/// A line for each table, under a title and what is shown.
pub fn svg(title: &str, subtitle: &str, lines: &[(&str, &Scale)]) -> String {
    let (width, height, bottom) = (LEFT + WIDTH + 24.0, TOP + HEIGHT + 60.0, TOP + HEIGHT);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#888\" role=\"img\">\n\
         <title>{title}</title>\n\
         <text x=\"{LEFT}\" y=\"16\" font-weight=\"bold\">{title}</text>\n\
         <text x=\"{LEFT}\" y=\"34\">{subtitle}</text>\n\
         <rect x=\"{LEFT}\" y=\"{TOP}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#888\" \
         fill-opacity=\"0.08\"/>\n"
    );
    let mut line = |line: String| {
        // Writing to a String can't fail.
        let _ = writeln!(svg, "{line}");
    };
    let small = |x: f64, y: f64, anchor: &str, text: &str| {
        format!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"10\">{text}</text>"
        )
    };
    let y = |efficiency: f64| TOP + HEIGHT * (1.0 - efficiency.min(1.05));
    for percent in [0, 25, 50, 75, 100] {
        let y = y(f64::from(percent) / 100.0);
        line(format!("<path d=\"M{LEFT} {y:.1}h{WIDTH}\" stroke=\"#888\" stroke-width=\"0.4\"/>"));
        line(small(LEFT - 6.0, y + 4.0, "end", &format!("{percent} %")));
    }
    let columns = lines.iter().map(|(_, scale)| scale.rows.len()).max().unwrap_or(0);
    let x = |column: usize| LEFT + WIDTH * (column as f64 + 0.5) / columns.max(1) as f64;
    for (column, row) in lines.first().iter().flat_map(|(_, scale)| &scale.rows).enumerate() {
        line(small(x(column), bottom + 16.0, "middle", &row.gpus.to_string()));
    }
    line(small(LEFT + WIDTH / 2.0, bottom + 32.0, "middle", "GPUs"));
    for (index, ((name, scale), colour)) in lines.iter().zip(COLOURS).enumerate() {
        let at =
            |(column, row): (usize, &Row)| format!("{:.1} {:.1}", x(column), y(row.efficiency));
        let path: Vec<String> = scale.rows.iter().enumerate().map(at).collect();
        line(format!(
            "<path d=\"M{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            path.join("L")
        ));
        for (column, row) in scale.rows.iter().enumerate() {
            line(format!(
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\" fill=\"{colour}\"><title>{} GPUs, {name}: {:.1} %, {:.3} s \
                 a step, {:.0} % of sending overlaps</title></circle>",
                x(column),
                y(row.efficiency),
                row.gpus,
                100.0 * row.efficiency,
                row.step.step_s,
                100.0 * row.step.share()
            ));
        }
        let (left, low) = (LEFT + NAME * index as f64, bottom + 50.0);
        line(format!(
            "<rect x=\"{left:.1}\" y=\"{:.1}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"{low:.1}\">{name}</text>",
            low - 9.0,
            left + 16.0
        ));
    }
    svg + "</svg>\n"
}

//! Live bytes over the time of a step, drawn with block characters.

use std::fmt::Write as _;

use crate::units::human_bytes;

/// Columns left of the bars.
const MARGIN: usize = 11;
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// One op of the timeline.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Seconds it takes; its width.
    pub seconds: f64,
    /// Live bytes meanwhile; its height.
    pub live: u64,
    /// What the op belongs to.
    pub label: &'static str,
}

/// Draws `points` in `width` columns and `rows` rows above a line with the labels. What lies below
/// `persistent` bytes is shaded. A column shows the largest of its ops.
pub fn draw(points: &[Point], persistent: u64, width: usize, rows: usize) -> String {
    let columns = width.saturating_sub(MARGIN).max(1);
    let Some(peak) = points.iter().map(|point| point.live).max().filter(|&peak| peak > 0) else {
        return String::new();
    };
    let total: f64 = points.iter().map(|point| point.seconds).sum();
    let mut begins: Vec<f64> = vec![];
    let mut time = 0.0;
    for point in points {
        begins.push(time / total * columns as f64);
        time += point.seconds;
    }
    // The ops that begin in a column, and the one that runs when it begins.
    let of_column = |column: usize| {
        let first = begins.partition_point(|&begin| begin <= column as f64).saturating_sub(1);
        let end = begins.partition_point(|&begin| begin < (column + 1) as f64);
        &points[first..end.max(first + 1)]
    };
    let heights: Vec<u64> = (0..columns)
        .map(|column| of_column(column).iter().map(|point| point.live).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in (0..rows).rev() {
        let label = match row {
            _ if row + 1 == rows => human_bytes(peak),
            0 => "0".to_owned(),
            _ if row == rows / 2 => human_bytes(level(peak, row, rows)),
            _ => String::new(),
        };
        // Writing to a String can't fail.
        let _ = write!(text, "{label:>0$} ", MARGIN - 1);
        let line: String =
            heights.iter().map(|&height| cell(height, persistent, peak, row, rows)).collect();
        text += line.trim_end();
        text.push('\n');
    }
    let labels: Vec<&str> = (0..columns).map(|column| of_column(column)[0].label).collect();
    let _ = write!(text, "{:MARGIN$}", "");
    for run in labels.chunk_by(|a, b| a == b) {
        let words: String = run[0].chars().take(run.len() - 1).collect();
        let _ = write!(text, "│{words:<0$}", run.len() - 1);
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// Bytes at the lower edge of a row.
fn level(peak: u64, row: usize, rows: usize) -> u64 {
    (u128::from(peak) * row as u128 / rows as u128) as u64
}

fn cell(height: u64, persistent: u64, peak: u64, row: usize, rows: usize) -> char {
    if level(peak, row + 1, rows) <= persistent.min(height) {
        return '▒';
    }
    let eighths = u128::from(height) * rows as u128 * 8 / u128::from(peak);
    EIGHTHS[eighths.saturating_sub(row as u128 * 8).min(8) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(live: &[u64]) -> Vec<Point> {
        let labels = ["forward", "backward"];
        let half = live.len().div_ceil(2);
        let point = |(index, &live): (usize, &u64)| Point {
            seconds: 1.0,
            live,
            label: labels[index / half],
        };
        live.iter().enumerate().map(point).collect()
    }

    #[test]
    fn a_mountain() {
        let live = [2048, 3072, 4096, 4096, 3072, 2048];
        let text = draw(&points(&live), 2048, MARGIN + 12, 4);
        assert_eq!(
            text,
            "  4.00 KiB     ████\n\
             \x20 2.00 KiB   ████████\n\
             \x20          ▒▒▒▒▒▒▒▒▒▒▒▒\n\
             \x20        0 ▒▒▒▒▒▒▒▒▒▒▒▒\n\
             \x20          │forwa│backw\n"
        );
    }

    #[test]
    fn a_column_shows_its_largest_step() {
        let mut live = vec![1; 1000];
        live[501] = 8;
        let text = draw(&points(&live), 0, MARGIN + 10, 8);
        assert_eq!(text.lines().filter(|line| line.contains('█')).count(), 8);
        assert_eq!(text.chars().filter(|&c| c == '█').count(), 8 + 9);
    }

    #[test]
    fn widths_are_times() {
        let mut points = points(&[1, 2, 1, 1]);
        points[1].seconds = 7.0;
        let text = draw(&points, 0, MARGIN + 20, 2);
        let top = text.lines().next().unwrap();
        assert_eq!(top.chars().filter(|&c| c == '█').count(), 14, "{text}");
    }

    #[test]
    fn nothing_to_draw() {
        assert_eq!(draw(&[], 0, 80, 12), "");
        assert!(!draw(&points(&[1, 1]), 1, 0, 1).is_empty());
    }
}

//! Tables as text.

/// Rows under heads, columns as wide as needed.
pub(super) fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().enumerate().map(|(column, cell)| {
            let width = width(column).unwrap_or(0);
            match column {
                0 => format!("{cell:<width$}"),
                _ if column + 1 == N => format!("  {cell}"),
                _ => format!("  {cell:>width$}"),
            }
        });
        let line: String = cells.collect();
        text += line.trim_end();
        text.push('\n');
    }
    text
}

//! The table of figures: one row per recorded build, oldest first. It does not know how figures are measured.

use std::fmt::Write as _;
use std::path::Path;

/// Appends a row, with each figure's change against the row before.
pub(crate) fn add_row(table: &Path, label: &str, figures: &[f64]) -> Result<(), String> {
    let path = table.display();
    let mut text = std::fs::read_to_string(table).map_err(|error| format!("{path}: {error}"))?;
    let before = text.lines().rev().find(|line| line.starts_with('|')).map(figures_of).unwrap_or_default();
    let mut row = format!("| {label} |");
    for (at, figure) in figures.iter().enumerate() {
        let change = before.get(at).map(|before| format!(" ({:+.2} %)", (figure / before - 1.0) * 100.0));
        let _ = write!(row, " {figure:.0}{} |", change.unwrap_or_default());
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(&row);
    text.push('\n');
    std::fs::write(table, text).map_err(|error| format!("{path}: {error}"))
}

/// The figures of a row, without its label and without the changes in brackets.
fn figures_of(row: &str) -> Vec<f64> {
    let cells = row.split('|').skip(2);
    cells.filter_map(|cell| cell.split_whitespace().next()?.parse().ok()).collect()
}

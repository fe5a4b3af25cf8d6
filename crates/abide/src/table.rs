//! Text tables: columns are as wide as their contents, and only the last one is shortened to fit the terminal. Also the
//! formatting of counts and statuses that tables and other output share.

use std::io::IsTerminal;

use anstyle::{AnsiColor, Style};

use crate::output::{escape_control_chars, outln};

const HEADER_STYLE: Style = Style::new().bold();

#[derive(Clone, Debug)]
pub(crate) struct TextCell {
    text: String,
    style: Style,
    is_right_aligned: bool,
}

impl TextCell {
    pub(crate) fn styled(text: impl AsRef<str>, style: Style) -> Self {
        Self { text: escape_control_chars(text.as_ref()), style, is_right_aligned: false }
    }

    /// A right-aligned count with its digits in groups of three.
    pub(crate) fn count(count: u64) -> Self {
        Self { text: group_digits(count), style: Style::new(), is_right_aligned: true }
    }
}

impl<T: AsRef<str>> From<T> for TextCell {
    fn from(text: T) -> Self {
        Self::styled(text, Style::new())
    }
}

/// Rows under a header. If the terminal is too narrow, only the last column is shortened.
#[derive(Debug)]
pub(crate) struct TextTable<const N: usize> {
    header: [&'static str; N],
    rows: Vec<[TextCell; N]>,
}

impl<const N: usize> TextTable<N> {
    pub(crate) fn new(header: [&'static str; N]) -> Self {
        Self { header, rows: Vec::new() }
    }

    pub(crate) fn push_row(&mut self, cells: [TextCell; N]) {
        self.rows.push(cells);
    }

    /// Prints the table, or `no {items}` if it has no rows.
    pub(crate) fn print(&self, items: &str) {
        if self.rows.is_empty() {
            outln!("no {items}");
            return;
        }
        self.format_lines(terminal_columns()).iter().for_each(|line| outln!("{line}"));
    }

    fn format_lines(&self, columns: Option<usize>) -> Vec<String> {
        let mut header = self.header.map(|title| TextCell::styled(title, HEADER_STYLE));
        let mut widths = self.header.map(|title| title.chars().count());
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.chars().count());
            }
        }
        // The title of a column of counts is right-aligned too.
        if let Some(first) = self.rows.first() {
            for (title, cell) in header.iter_mut().zip(first) {
                title.is_right_aligned = cell.is_right_aligned;
            }
        }
        std::iter::once(&header).chain(&self.rows).map(|row| format_row(row, &widths, columns)).collect()
    }
}

fn format_row(row: &[TextCell], widths: &[usize], columns: Option<usize>) -> String {
    const GAP: &str = "  ";
    let mut text = String::new();
    let mut used = 0;
    for (place, (cell, width)) in row.iter().zip(widths).enumerate() {
        let is_last = place + 1 == row.len();
        let room = columns.map_or(usize::MAX, |columns| columns.saturating_sub(used).max(LAST_COLUMN_MIN));
        let shown = if is_last { truncate(&cell.text, room) } else { cell.text.clone() };
        let space = " ".repeat(width.saturating_sub(shown.chars().count()));
        let style = cell.style;
        match (cell.is_right_aligned, is_last) {
            (true, _) => text.push_str(&format!("{space}{style}{shown}{style:#}")),
            (false, true) => text.push_str(&format!("{style}{shown}{style:#}")),
            (false, false) => text.push_str(&format!("{style}{shown}{style:#}{space}")),
        }
        if !is_last {
            text.push_str(GAP);
        }
        used += width + GAP.len();
    }
    text
}

/// The minimum width of the last column.
const LAST_COLUMN_MIN: usize = 16;

/// Shortens text to at most `chars_max` characters.
pub(crate) fn truncate(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    text.chars().take(chars_max.saturating_sub(1)).chain(['…']).collect()
}

/// The width of the terminal, if standard output is one.
pub(crate) fn terminal_columns() -> Option<usize> {
    let out = std::io::stdout();
    let size = out.is_terminal().then(|| terminal_size::terminal_size_of(&out)).flatten();
    size.map(|(width, _)| usize::from(width.0))
}

/// A number with its digits in groups of three.
pub(crate) fn group_digits(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The style of a status of a run or a dead letter.
pub(crate) fn status_style(status: &str) -> Style {
    match status {
        "Completed" | "Resolved" => AnsiColor::Green.on_default(),
        "Failed" | "Parked" => AnsiColor::Red.on_default(),
        "Suspended" | "Terminated" | "Expired" => AnsiColor::Yellow.on_default(),
        "Running" | "Pending" => AnsiColor::Cyan.on_default(),
        _ => Style::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> TextTable<3> {
        let mut table = TextTable::new(["ID", "COUNT", "WHY"]);
        table.push_row(["a".into(), TextCell::count(7), "because of something long\n".into()]);
        table.push_row(["longer".into(), TextCell::count(12_345), "".into()]);
        table
    }

    fn plain(lines: &[String]) -> Vec<String> {
        lines.iter().map(|line| anstream::adapter::strip_str(line).to_string()).collect()
    }

    #[test]
    fn columns_are_as_wide_as_their_contents_and_counts_are_right_aligned() {
        let lines = plain(&table().format_lines(None));
        assert_eq!(
            lines,
            ["ID       COUNT  WHY", "a            7  because of something long\\n", "longer  12,345  "]
        );
    }

    #[test]
    fn only_the_last_column_is_shortened_and_keeps_a_minimum_width() {
        let lines = plain(&table().format_lines(Some(33)));
        assert_eq!(lines.get(1).unwrap(), "a            7  because of somet…");
        let lines = plain(&table().format_lines(Some(5)));
        assert_eq!(lines.get(1).unwrap(), "a            7  because of some…");
    }
}

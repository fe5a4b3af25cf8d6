//! Tables for people: columns as wide as they must be, and one that is cut where the terminal ends.

use std::io::IsTerminal;

use anstyle::{AnsiColor, Style};

use crate::say::{say, visible};

const HEAD: Style = Style::new().bold();

/// A cell: text, and how it looks.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    style: Style,
    to_the_right: bool,
}

impl Cell {
    pub(crate) fn styled(text: impl AsRef<str>, style: Style) -> Self {
        Self { text: visible(text.as_ref()), style, to_the_right: false }
    }

    /// A count: digits in groups of three, to the right.
    pub(crate) fn count(count: u64) -> Self {
        Self { text: grouped(count), style: Style::new(), to_the_right: true }
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::styled(text, Style::new())
    }
}

/// Rows under a head. The last column is cut if the terminal is too narrow; no other is.
#[derive(Debug)]
pub(crate) struct Table<const N: usize> {
    head: [&'static str; N],
    rows: Vec<[Cell; N]>,
}

impl<const N: usize> Table<N> {
    pub(crate) fn new(head: [&'static str; N]) -> Self {
        Self { head, rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: [Cell; N]) {
        self.rows.push(cells);
    }

    /// Prints it, or that there is nothing of what it would show.
    pub(crate) fn print(&self, what: &str) {
        if self.rows.is_empty() {
            say!("no {what}");
            return;
        }
        self.lines(terminal_columns()).iter().for_each(|line| say!("{line}"));
    }

    fn lines(&self, columns: Option<usize>) -> Vec<String> {
        let head = self.head.map(|title| Cell::styled(title, HEAD));
        let mut widths = self.head.map(|title| title.chars().count());
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.chars().count());
            }
        }
        // A column of counts has its title to the right as well.
        let mut head = head;
        if let Some(first) = self.rows.first() {
            for (title, cell) in head.iter_mut().zip(first) {
                title.to_the_right = cell.to_the_right;
            }
        }
        std::iter::once(&head).chain(&self.rows).map(|row| line(row, &widths, columns)).collect()
    }
}

fn line(row: &[Cell], widths: &[usize], columns: Option<usize>) -> String {
    const GAP: &str = "  ";
    let mut text = String::new();
    let mut used = 0;
    for (place, (cell, width)) in row.iter().zip(widths).enumerate() {
        let is_last = place + 1 == row.len();
        let room = columns.map_or(usize::MAX, |columns| columns.saturating_sub(used).max(LAST_MIN));
        let shown = if is_last { cut(&cell.text, room) } else { cell.text.clone() };
        let space = " ".repeat(width.saturating_sub(shown.chars().count()));
        let style = cell.style;
        match (cell.to_the_right, is_last) {
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

/// The last column has at least so much.
const LAST_MIN: usize = 16;

/// Text of at most so many characters.
pub(crate) fn cut(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    text.chars().take(chars_max.saturating_sub(1)).chain(['…']).collect()
}

/// How wide the terminal is, if standard output is one.
pub(crate) fn terminal_columns() -> Option<usize> {
    let out = std::io::stdout();
    let size = out.is_terminal().then(|| terminal_size::terminal_size_of(&out)).flatten();
    size.map(|(width, _)| usize::from(width.0))
}

/// Digits in groups of three.
pub(crate) fn grouped(count: u64) -> String {
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

/// How a run's status looks.
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

    fn table() -> Table<3> {
        let mut table = Table::new(["ID", "COUNT", "WHY"]);
        table.row(["a".into(), Cell::count(7), "because of something long\n".into()]);
        table.row(["longer".into(), Cell::count(12_345), "".into()]);
        table
    }

    fn plain(lines: &[String]) -> Vec<String> {
        lines.iter().map(|line| anstream::adapter::strip_str(line).to_string()).collect()
    }

    #[test]
    fn columns_are_as_wide_as_they_must_be_and_counts_stand_to_the_right() {
        let lines = plain(&table().lines(None));
        assert_eq!(
            lines,
            ["ID       COUNT  WHY", "a            7  because of something long\\n", "longer  12,345  "]
        );
    }

    #[test]
    fn only_the_last_column_is_cut_and_something_of_it_is_left() {
        let lines = plain(&table().lines(Some(33)));
        assert_eq!(lines.get(1).unwrap(), "a            7  because of somet…");
        let lines = plain(&table().lines(Some(5)));
        assert_eq!(lines.get(1).unwrap(), "a            7  because of some…");
    }
}

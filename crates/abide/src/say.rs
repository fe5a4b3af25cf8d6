//! Printing: what goes to a terminal is visible text, and a standard output that cannot be written ends the command.

use std::fmt;
use std::io::{ErrorKind, Write};

use crate::commands::exit;

/// Prints one line to standard output.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    let mut out = anstream::stdout().lock();
    if let Err(error) = writeln!(out, "{text}") {
        // Whoever reads has heard enough; anything else is told.
        if error.kind() != ErrorKind::BrokenPipe {
            anstream::eprintln!("abide: standard output: {error}");
        }
        std::process::exit(exit::UNUSABLE.into());
    }
}

/// Prints one line to standard output, formatted.
macro_rules! say {
    ($($arguments:tt)*) => { $crate::say::line(format_args!($($arguments)*)) };
}
pub(crate) use say;

/// Text from a file as it may go to a terminal: control characters and those that turn the reading direction are written out.
pub(crate) fn visible(text: &str) -> String {
    let hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if hidden(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}

/// JSON for people: indented, and as visible as any text.
pub(crate) fn pretty(value: &serde_json::Value) -> String {
    format!("{value:#}").lines().map(visible).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::visible;

    #[test]
    fn nothing_invisible_reaches_the_terminal() {
        assert_eq!(visible("a\u{1b}]0;x\u{7}\nb\u{202e}ä"), "a\\u{1b}]0;x\\u{7}\\nb\\u{202e}ä");
    }
}

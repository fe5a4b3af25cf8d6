//! Prints to standard output. Control characters never reach a terminal, and a failing write ends the command. It does
//! not know what is printed.

use std::fmt;
use std::io::{ErrorKind, Write};

use crate::commands::exit;

/// Prints one line to standard output.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    let mut out = anstream::stdout().lock();
    if let Err(error) = writeln!(out, "{text}") {
        // A closed pipe means that the reader has had enough. Other errors are reported.
        if error.kind() != ErrorKind::BrokenPipe {
            anstream::eprintln!("abide: standard output: {error}");
        }
        std::process::exit(exit::USAGE_ERROR.into());
    }
}

/// Formats and prints one line to standard output.
macro_rules! outln {
    ($($arguments:tt)*) => { $crate::output::line(format_args!($($arguments)*)) };
}
pub(crate) use outln;

/// Makes foreign text safe for a terminal: control characters, and those that change the reading direction, are
/// escaped.
pub(crate) fn escape_control_chars(text: &str) -> String {
    let hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if hidden(c) { escaped.extend(c.escape_default()) } else { escaped.push(c) }
    }
    escaped
}

/// Indented JSON, with control characters escaped.
pub(crate) fn pretty_json(value: &serde_json::Value) -> String {
    format!("{value:#}").lines().map(escape_control_chars).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::escape_control_chars;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escape_control_chars("a\u{1b}]0;x\u{7}\nb\u{202e}ä"), "a\\u{1b}]0;x\\u{7}\\nb\\u{202e}ä");
    }
}

//! Prints to standard output and standard error: the seam that everything passes which a terminal shows. It does not
//! know what is printed.
//!
//! Whatever a file, a server or an argument contains, no control character of it reaches the terminal: only the colours
//! and weights of this program do. A failing write to standard output ends the command.

use std::borrow::Cow;
use std::fmt;
use std::io::{ErrorKind, Write};

use abide_json::is_obeyed;

use crate::commands::exit;

/// Formats and prints one line to standard error.
macro_rules! errln {
    ($($arguments:tt)*) => { $crate::output::error_line(format_args!($($arguments)*)) };
}
pub(crate) use errln;

/// Prints one line to standard output.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    let mut out = anstream::stdout().lock();
    if let Err(error) = writeln!(out, "{}", without_controls(&text.to_string())) {
        // A closed pipe means that the reader has had enough. Other errors are reported.
        if error.kind() != ErrorKind::BrokenPipe {
            errln!("abide: standard output: {error}");
        }
        std::process::exit(exit::USAGE_ERROR.into());
    }
}

/// Prints one line to standard error.
pub(crate) fn error_line(text: fmt::Arguments<'_>) {
    anstream::eprintln!("{}", without_controls(&text.to_string()));
}

/// Formats and prints one line to standard output.
macro_rules! outln {
    ($($arguments:tt)*) => { $crate::output::line(format_args!($($arguments)*)) };
}
pub(crate) use outln;

/// Foreign text inside a line: it has no line breaks and no colours either.
pub(crate) fn escape_control_chars(text: &str) -> String {
    abide_json::escape_controls(text).into_owned()
}

/// Foreign text of several lines.
pub(crate) fn escape_lines(text: &str) -> String {
    text.lines().map(abide_json::escape_controls).collect::<Vec<_>>().join("\n")
}

/// The text with every control character escaped, as JSON would, except line breaks, tabs and the styles of this
/// program.
fn without_controls(text: &str) -> Cow<'_, str> {
    let is_foreign = |c: char| is_obeyed(c) && c != '\n' && c != '\t';
    let mut rest = text;
    let mut safe = String::new();
    while let Some(at) = rest.find(is_foreign) {
        let (before, from) = rest.split_at(at);
        let length = style_length(from);
        let shown = from.get(..length.unwrap_or_else(|| from.chars().next().map_or(0, char::len_utf8)));
        let shown = shown.unwrap_or_default();
        safe.push_str(before);
        safe.push_str(&length.map_or_else(|| abide_json::escape_controls(shown), |_| Cow::Borrowed(shown)));
        rest = from.get(shown.len()..).unwrap_or_default();
    }
    if safe.is_empty() && rest.len() == text.len() {
        return Cow::Borrowed(text);
    }
    safe.push_str(rest);
    Cow::Owned(safe)
}

/// The length of the colour or weight at the beginning. Nothing that hides text or moves the cursor is one.
fn style_length(text: &str) -> Option<usize> {
    let (codes, _) = text.strip_prefix("\u{1b}[")?.split_once('m')?;
    let is_style = |code: &str| matches!(code.parse(), Ok(0..=2_u8 | 30..=37 | 90..=97)) && code.len() <= 2;
    codes.split(';').all(is_style).then_some(codes.len() + 3)
}

/// Indented JSON, with control characters escaped.
pub(crate) fn pretty_json(value: &serde_json::Value) -> String {
    escape_lines(&format!("{value:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_styles_of_this_program_pass() {
        for (text, shown) in [
            ("plain\n\tgrößer 😀", "plain\n\tgrößer 😀"),
            (
                "\u{1b}[1mbold\u{1b}[0m \u{1b}[31;1mred\u{1b}[0m",
                "\u{1b}[1mbold\u{1b}[0m \u{1b}[31;1mred\u{1b}[0m",
            ),
            ("\u{1b}]0;x\u{7}", r"\u001b]0;x\u0007"),
            ("\u{1b}[2J\u{1b}[8mhidden\u{1b}[m", r"\u001b[2J\u001b[8mhidden\u001b[m"),
            ("\u{1b}[38;5;1m\u{1b}[001m", r"\u001b[38;5;1m\u001b[001m"),
            ("\u{9b}31m a\u{202e}b\r\u{8}\u{1b}", r"\u009b31m a\u202eb\r\u0008\u001b"),
            ("", ""),
        ] {
            assert_eq!(without_controls(text), shown);
        }
    }

    #[test]
    fn foreign_text_has_no_line_breaks_and_no_colours() {
        assert_eq!(escape_control_chars("\u{1b}[31ma\nb\u{202e}ä"), r"\u001b[31ma\nb\u202eä");
        assert_eq!(escape_lines("a\u{7}\nb\u{1b}[1m"), "a\\u0007\nb\\u001b[1m");
    }
}

//! Text from outside as it may be shown: characters that a terminal obeys, or that change the reading direction, are
//! written as JSON escapes.

use std::borrow::Cow;
use std::fmt::Write;

/// The text, with every such character escaped.
pub fn escape_controls(text: &str) -> Cow<'_, str> {
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            '\t' => escaped.push_str("\\t"),
            // All of them are in the first plane, so one escape is enough. Writing to a string cannot fail.
            c if is_obeyed(c) => drop(write!(escaped, "\\u{:04x}", u32::from(c))),
            c => escaped.push(c),
        }
    }
    Cow::Owned(escaped)
}

/// C0 with ESC, DEL, C1, line and paragraph separators, and the controls of the reading direction.
pub fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

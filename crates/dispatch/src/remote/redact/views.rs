//! A text with its escapes undone: percent encoding and JSON escapes, several layers of them in any order.
//!
//! Each byte of a view knows the place in the original text that it came from, so the original is what is cut.

use std::ops::Range;

use super::BYTES_MIN;
use super::forms::Form;

/// How many layers of escapes are undone: JSON in a JSON string in a query, say.
const LAYERS_MAX: usize = 3;

/// A text as bytes, and where each came from.
pub(super) struct View {
    bytes: Vec<u8>,
    places: Vec<Range<usize>>,
    /// The length of the original text.
    text_bytes: usize,
}

/// What the bytes at some place are.
enum Unit {
    /// A byte that stands for itself.
    Plain,
    /// An escape of so many bytes that stands for this character or byte.
    Escape(usize, Escaped),
    /// An escape that was cut off.
    Cut,
}

enum Escaped {
    Byte(u8),
    Char(char),
}

impl View {
    /// The text as it is, and every view that undoes something.
    pub(super) fn all_of(text: &str) -> Vec<Self> {
        let plain = Self {
            bytes: text.as_bytes().to_vec(),
            places: (0..text.len()).map(|at| at..at + 1).collect(),
            text_bytes: text.len(),
        };
        let mut views = Vec::new();
        let mut layer = vec![plain];
        for _ in 0..LAYERS_MAX {
            let undone = |view: &Self| [view.undo(percent), view.undo(json)];
            let next = layer.iter().flat_map(undone).flatten().collect();
            views.append(&mut layer);
            layer = next;
        }
        views.append(&mut layer);
        views
    }

    /// The view with one kind of escape undone; none if there is no such escape.
    fn undo(&self, unit_at: fn(&[u8]) -> Unit) -> Option<Self> {
        let mut view = Self { bytes: Vec::new(), places: Vec::new(), text_bytes: self.text_bytes };
        let mut at = 0;
        let mut changed = false;
        while let (Some(rest @ [byte, ..]), Some(place)) = (self.bytes.get(at..), self.places.get(at)) {
            match unit_at(rest) {
                Unit::Plain => {
                    view.push(&[*byte], place);
                    at += 1;
                }
                Unit::Escape(length, escaped) => {
                    let end = self.places.get(at + length - 1).map_or(self.text_bytes, |last| last.end);
                    let place = place.start..end;
                    match escaped {
                        Escaped::Byte(byte) => view.push(&[byte], &place),
                        Escaped::Char(char) => view.push(char.encode_utf8(&mut [0; 4]).as_bytes(), &place),
                    }
                    at += length;
                    changed = true;
                }
                Unit::Cut => {
                    changed = true;
                    break;
                }
            }
        }
        changed.then_some(view)
    }

    fn push(&mut self, bytes: &[u8], place: &Range<usize>) {
        for byte in bytes {
            self.bytes.push(*byte);
            self.places.push(place.clone());
        }
    }

    /// Where a form occurs in the original text; its beginning counts at the very end.
    pub(super) fn find(&self, form: &Form) -> Vec<Range<usize>> {
        let wanted = form.bytes.as_slice();
        let mut found = Vec::new();
        let mut from = 0;
        while let Some(at) = self.position(wanted, from) {
            from = at + wanted.len();
            found.extend(self.place(at, from, form.is_base64));
        }
        let beginnings = (BYTES_MIN..wanted.len()).rev().filter_map(|length| wanted.get(..length));
        let ends_with = |beginning: &&[u8]| {
            let tail = self.bytes.len().checked_sub(beginning.len()).and_then(|at| self.bytes.get(at..));
            tail.is_some_and(|tail| tail.eq_ignore_ascii_case(beginning))
        };
        if let Some(beginning) = beginnings.into_iter().find(ends_with) {
            let at = self.bytes.len() - beginning.len();
            let place = self.place(at, self.bytes.len(), form.is_base64);
            // An escape that was cut off belongs to it.
            found.extend(place.map(|place| place.start..self.text_bytes));
        }
        found
    }

    fn position(&self, wanted: &[u8], from: usize) -> Option<usize> {
        let mut windows = self.bytes.get(from..)?.windows(wanted.len());
        windows.position(|window| window.eq_ignore_ascii_case(wanted)).map(|at| from + at)
    }

    /// The place in the original text of some bytes, with the digits of base64 beside them if they are such.
    fn place(&self, start: usize, end: usize, is_base64: bool) -> Option<Range<usize>> {
        let is_digit = |at: usize| is_base64 && self.bytes.get(at).is_some_and(is_base64_digit);
        let start = if start > 0 && is_digit(start - 1) { start - 1 } else { start };
        let end = if is_digit(end) { end + 1 } else { end };
        Some(self.places.get(start)?.start..self.places.get(end.checked_sub(1)?)?.end)
    }
}

fn is_base64_digit(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_')
}

fn percent(rest: &[u8]) -> Unit {
    match rest {
        [b'%'] => Unit::Cut,
        [b'%', digit] if digit.is_ascii_hexdigit() => Unit::Cut,
        [b'%', digits @ ..] => match hexadecimal(digits, 2) {
            Some(byte) => Unit::Escape(3, Escaped::Byte(byte.to_le_bytes()[0])),
            None => Unit::Plain,
        },
        _ => Unit::Plain,
    }
}

/// JSON, and `\x` of languages that print bytes.
fn json(rest: &[u8]) -> Unit {
    let [b'\\', after @ ..] = rest else { return Unit::Plain };
    let Some((kind, digits)) = after.split_first() else { return Unit::Cut };
    let digits_wanted = match kind {
        b'"' | b'\\' | b'/' | b'\'' => return Unit::Escape(2, Escaped::Byte(*kind)),
        b'b' => return Unit::Escape(2, Escaped::Byte(8)),
        b'f' => return Unit::Escape(2, Escaped::Byte(12)),
        b'n' => return Unit::Escape(2, Escaped::Byte(b'\n')),
        b'r' => return Unit::Escape(2, Escaped::Byte(b'\r')),
        b't' => return Unit::Escape(2, Escaped::Byte(b'\t')),
        b'x' => 2,
        b'u' => 4,
        _ => return Unit::Plain,
    };
    if digits.len() < digits_wanted && digits.iter().all(u8::is_ascii_hexdigit) {
        return Unit::Cut;
    }
    let Some(code) = hexadecimal(digits, digits_wanted) else { return Unit::Plain };
    if digits_wanted == 2 {
        return Unit::Escape(4, Escaped::Byte(code.to_le_bytes()[0]));
    }
    match (char::from_u32(code), digits.get(4..)) {
        (Some(char), _) => Unit::Escape(6, Escaped::Char(char)),
        // The first half of a pair.
        (None, Some([b'\\', b'u', low @ ..])) if code < 0xdc00 => match hexadecimal(low, 4) {
            Some(low @ 0xdc00..0xe000) => {
                let char = char::from_u32(0x1_0000 + ((code - 0xd800) << 10) + (low - 0xdc00));
                char.map_or(Unit::Plain, |char| Unit::Escape(12, Escaped::Char(char)))
            }
            None if low.len() < 4 => Unit::Cut,
            _ => Unit::Plain,
        },
        (None, Some([] | [b'\\'])) if code < 0xdc00 => Unit::Cut,
        _ => Unit::Plain,
    }
}

/// The number that so many hexadecimal digits at the beginning mean.
fn hexadecimal(bytes: &[u8], digits: usize) -> Option<u32> {
    let digits = bytes.get(..digits)?;
    let is_number = digits.iter().all(u8::is_ascii_hexdigit);
    u32::from_str_radix(str::from_utf8(digits).ok().filter(|_| is_number)?, 16).ok()
}

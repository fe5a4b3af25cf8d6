//! Strict reading of incoming JSON: definitions, requests, and what activities answer; and text from outside as it may
//! be shown. Knows nothing of any of them.
//!
//! Strict means: no duplicate keys (one of the two would silently vanish), a bounded depth, and no integer that JSON
//! readers with 64-bit numbers would round.

mod display;
mod reader;

pub use display::{escape_controls, is_obeyed};

use serde::de::DeserializeSeed;
use serde_json::Value;
use serde_json::de::{Deserializer, Read, SliceRead, StrRead};

use reader::{Breach, Observed, StrictReader};

/// Why a JSON text is rejected. Lines and columns count from 1.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum JsonError {
    /// Not JSON.
    #[error("line {line}, column {column}: {reason}")]
    Malformed { line: usize, column: usize, reason: String },
    /// A key occurs twice in one object.
    #[error("line {line}, column {column}: duplicate key {key:?}")]
    DuplicateKey { line: usize, column: usize, key: String },
    /// Nested too deeply.
    #[error("line {line}, column {column}: nested more than {depth_max} levels deep")]
    TooDeep { line: usize, column: usize, depth_max: usize },
    /// An integer outside 64 bits, which would come back changed.
    #[error("line {line}, column {column}: the integer {number} does not fit 64 bits and would be rounded")]
    IntegerTooLarge {
        line: usize,
        column: usize,
        /// The number as written in the text.
        number: String,
    },
}

impl JsonError {
    /// Line and column, from 1.
    pub fn position(&self) -> (usize, usize) {
        match self {
            Self::Malformed { line, column, .. }
            | Self::DuplicateKey { line, column, .. }
            | Self::TooDeep { line, column, .. }
            | Self::IntegerTooLarge { line, column, .. } => (*line, (*column).max(1)),
        }
    }
}

/// Reads one JSON text strictly, nested at most `depth_max` levels deep.
pub fn parse(text: &str, depth_max: usize) -> Result<Value, JsonError> {
    read(StrRead::new(text), text.as_bytes(), depth_max)
}

/// The same for bytes, which must be UTF-8.
pub fn parse_bytes(bytes: &[u8], depth_max: usize) -> Result<Value, JsonError> {
    read(SliceRead::new(bytes), bytes, depth_max)
}

/// True if a value that was not read by [`parse`] keeps the depth limit.
pub fn depth_within(value: &Value, depth_left: usize) -> bool {
    match value {
        Value::Array(items) => depth_left > 0 && items.iter().all(|item| depth_within(item, depth_left - 1)),
        Value::Object(fields) => {
            depth_left > 0 && fields.values().all(|field| depth_within(field, depth_left - 1))
        }
        _ => true,
    }
}

fn read<'t>(source: impl Read<'t>, bytes: &[u8], depth_max: usize) -> Result<Value, JsonError> {
    let observed = Observed::default();
    let mut reader = Deserializer::new(source);
    let value = StrictReader { depth_left: depth_max, observed: &observed }.deserialize(&mut reader);
    let value = value.and_then(|value| reader.end().map(|()| value));
    // Text that is read without a suspicion is not read a second time.
    if (value.is_err() || observed.is_integer_suspected())
        && let Some(error) = integer_beyond_64_bits(bytes)
    {
        return Err(error);
    }
    value.map_err(|error| {
        let (line, column) = (error.line(), error.column());
        match observed.into_breach() {
            Some(Breach::DuplicateKey(key)) => JsonError::DuplicateKey { line, column, key },
            Some(Breach::TooDeep) => JsonError::TooDeep { line, column, depth_max },
            None => JsonError::Malformed { line, column, reason: reason_of(&error) },
        }
    })
}

/// Removes the position that serde_json appends to its message: [`JsonError`] reports it itself.
fn reason_of(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rfind(" at line ").and_then(|end| text.get(..end)).unwrap_or(&text).to_owned()
}

/// Finds an integer literal outside i64 and u64. serde_json would silently read it as a float.
fn integer_beyond_64_bits(text: &[u8]) -> Option<JsonError> {
    let mut in_string = false;
    let mut escaped = false;
    let mut number_start: Option<usize> = None;
    for (at, byte) in text.iter().copied().chain([b' ']).enumerate() {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        let part_of_number = byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E');
        match (number_start, part_of_number) {
            (None, true) if byte.is_ascii_digit() || byte == b'-' => number_start = Some(at),
            (Some(start), false) => {
                number_start = None;
                // Only the ASCII characters of a number are in it.
                let literal = text.get(start..at).and_then(|bytes| str::from_utf8(bytes).ok());
                let literal = literal.unwrap_or_default();
                let digits_only = literal.trim_start_matches('-').bytes().all(|b| b.is_ascii_digit());
                if digits_only
                    && literal.len() > 18
                    && literal.parse::<i64>().is_err()
                    && literal.parse::<u64>().is_err()
                {
                    let before = text.get(..start).unwrap_or_default();
                    let line_start =
                        before.iter().rposition(|b| *b == b'\n').map_or(0, |newline| newline + 1);
                    let line = before.iter().filter(|b| **b == b'\n').count() + 1;
                    let number = literal.chars().take(64).collect();
                    return Some(JsonError::IntegerTooLarge { line, column: start - line_start + 1, number });
                }
            }
            _ => {}
        }
        in_string = byte == b'"';
    }
    None
}

#[cfg(test)]
mod tests;

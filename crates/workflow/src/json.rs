//! Strict reading of incoming JSON, its size, and comparison without losing integers. This file knows nothing of
//! definitions.
//!
//! Strict means: no duplicate keys (one of the two would silently vanish), a bounded depth, and no integer that JSON
//! readers with 64-bit numbers would round.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::limits::definition::JSON_DEPTH_MAX;

/// A shared JSON value: results, inputs and slots are passed by reference, never copied.
pub type Json = Arc<Value>;

/// Why a JSON text is rejected.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum JsonError {
    /// Not JSON, nested too deeply, or with a duplicate key. Lines and columns count from 1.
    #[error("line {line}, column {column}: {reason}")]
    Malformed { line: usize, column: usize, reason: String },
    /// An integer outside 64 bits, which would come back changed. Lines and columns count from 1.
    #[error("line {line}, column {column}: the integer {number} does not fit 64 bits and would be rounded")]
    IntegerTooLarge {
        line: usize,
        column: usize,
        /// The number as written in the text.
        number: String,
    },
}

/// Reads one JSON text strictly.
pub fn parse(text: &str) -> Result<Value, JsonError> {
    if let Some((at, number)) = integer_beyond_64_bits(text) {
        let before = text.get(..at).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let (line, column) = (before.matches('\n').count() + 1, at - line_start + 1);
        return Err(JsonError::IntegerTooLarge { line, column, number });
    }
    let malformed = |error: serde_json::Error| JsonError::Malformed {
        line: error.line(),
        column: error.column(),
        reason: reason_of(&error),
    };
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = StrictReader { depth_left: JSON_DEPTH_MAX }.deserialize(&mut reader).map_err(malformed)?;
    reader.end().map_err(malformed)?;
    Ok(value)
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

/// An estimate of the bytes of the compact text, close enough for limits and never too small.
pub fn size(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) => 5,
        // The longest float is -2.2250738585072014e-308.
        Value::Number(number) if number.is_f64() => 24,
        Value::Number(number) => integer_size(number),
        Value::String(text) => string_size(text),
        Value::Array(items) => 2 + items.iter().map(|item| size(item) + 1).sum::<u64>(),
        Value::Object(fields) => {
            2 + fields.iter().map(|(name, field)| string_size(name) + 2 + size(field)).sum::<u64>()
        }
    }
}

/// Bytes of a string in JSON, quotes and escapes included.
fn string_size(text: &str) -> u64 {
    let byte = |byte: u8| match byte {
        b'"' | b'\\' => 2,
        0..0x20 => 6,
        _ => 1,
    };
    3 + text.bytes().map(byte).sum::<u64>()
}

/// Equality by value: 1 equals 1.0, and integers are compared as integers.
pub fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(a), Value::Number(b)) => compare_numbers(a, b) == Some(Ordering::Equal),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| equal(a, b)))
        }
        _ => left == right,
    }
}

/// Compares two numbers, exactly for integers of up to 64 bits.
pub fn compare_numbers(left: &Number, right: &Number) -> Option<Ordering> {
    match (integer(left), integer(right)) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        (Some(a), None) => compare_integer_float(a, right.as_f64()?),
        (None, Some(b)) => compare_integer_float(b, left.as_f64()?).map(Ordering::reverse),
        (None, None) => left.as_f64()?.partial_cmp(&right.as_f64()?),
    }
}

fn integer(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

/// Compares without turning the integer into a float, which would round it beyond 2^53.
fn compare_integer_float(integer: i128, float: f64) -> Option<Ordering> {
    const BEYOND: f64 = 1e30;
    if float.is_nan() {
        return None;
    }
    if float.abs() > BEYOND {
        return Some(if float > 0.0 { Ordering::Less } else { Ordering::Greater });
    }
    #[expect(clippy::cast_possible_truncation, reason = "|float| <= 1e30 fits i128")]
    let whole = float.trunc() as i128;
    Some(integer.cmp(&whole).then_with(|| 0.0_f64.partial_cmp(&float.fract()).unwrap_or(Ordering::Equal)))
}

fn integer_size(number: &Number) -> u64 {
    let magnitude = integer(number).unwrap_or(0);
    u64::from(magnitude.unsigned_abs().checked_ilog10().unwrap_or(0)) + 1 + u64::from(magnitude < 0)
}

/// Removes the position that serde_json appends to its message: [`JsonError`] reports it itself.
fn reason_of(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rfind(" at line ").and_then(|end| text.get(..end)).unwrap_or(&text).to_owned()
}

/// Finds an integer literal outside i64 and u64. serde_json would silently read it as a float.
fn integer_beyond_64_bits(text: &str) -> Option<(usize, String)> {
    let mut in_string = false;
    let mut escaped = false;
    let mut number_start: Option<usize> = None;
    for (at, byte) in text.bytes().chain([b' ']).enumerate() {
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
                let literal = text.get(start..at).unwrap_or_default();
                let digits_only = literal.trim_start_matches('-').bytes().all(|b| b.is_ascii_digit());
                if digits_only
                    && literal.len() > 18
                    && literal.parse::<i64>().is_err()
                    && literal.parse::<u64>().is_err()
                {
                    return Some((start, literal.chars().take(64).collect()));
                }
            }
            _ => {}
        }
        in_string = byte == b'"';
    }
    None
}

/// Builds a [`Value`] and rejects duplicate keys and excessive depth, which serde_json would accept.
struct StrictReader {
    depth_left: usize,
}

impl<'de> DeserializeSeed<'de> for StrictReader {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl JsonError {
    /// Line and column, from 1.
    pub fn position(&self) -> (usize, usize) {
        match self {
            Self::Malformed { line, column, .. } | Self::IntegerTooLarge { line, column, .. } => {
                (*line, (*column).max(1))
            }
        }
    }
}

impl StrictReader {
    fn checked_descend<E: serde::de::Error>(&self) -> Result<usize, E> {
        self.depth_left
            .checked_sub(1)
            .ok_or_else(|| E::custom(format!("nested more than {JSON_DEPTH_MAX} levels deep")))
    }
}

impl<'de> Visitor<'de> for StrictReader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }
    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }
    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let depth_left = self.checked_descend()?;
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(StrictReader { depth_left })? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let depth_left = self.checked_descend()?;
        let mut object = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if object.contains_key(&name) {
                return Err(serde::de::Error::custom(format!("duplicate key {name:?}")));
            }
            let value = fields.next_value_seed(StrictReader { depth_left })?;
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_duplicate_key_is_rejected_with_its_position() {
        let error = parse("{\"a\": 1,\n \"a\": 2}").unwrap_err();
        assert!(
            matches!(&error, JsonError::Malformed { line: 2, reason, .. } if reason.contains("\"a\"")),
            "{error}"
        );
    }

    #[test]
    fn integers_are_kept_exactly_or_rejected() {
        for text in ["18446744073709551615", "-9223372036854775808", "9007199254740993", "0"] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
        for text in ["18446744073709551616", "[-9223372036854775809]", "123456789012345678901234567890"] {
            assert!(matches!(parse(text), Err(JsonError::IntegerTooLarge { .. })), "{text}");
        }
        assert_eq!(parse("\"18446744073709551616\"").unwrap(), json!("18446744073709551616"));
        assert_eq!(parse(r#""\"99999999999999999999""#).unwrap(), json!("\"99999999999999999999"));
        assert!(parse("1e300").is_ok(), "a float is a float");
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(&nested(JSON_DEPTH_MAX)).is_ok());
        assert!(parse(&nested(JSON_DEPTH_MAX + 1)).is_err());
        assert!(
            depth_within(&parse(&nested(5)).unwrap(), 5) && !depth_within(&parse(&nested(5)).unwrap(), 4)
        );
    }

    #[test]
    fn numbers_compare_without_rounding() {
        let compare = |a: Value, b: Value| compare_numbers(a.as_number().unwrap(), b.as_number().unwrap());
        assert_eq!(compare(json!(9007199254740993_u64), json!(9007199254740992.0)), Some(Ordering::Greater));
        assert_eq!(compare(json!(1), json!(1.0)), Some(Ordering::Equal));
        assert_eq!(compare(json!(-1), json!(-1.5)), Some(Ordering::Greater));
        assert_eq!(compare(json!(u64::MAX), json!(i64::MIN)), Some(Ordering::Greater));
        assert_eq!(compare(json!(1), json!(1e300)), Some(Ordering::Less));
        assert!(equal(&json!({"a": [1, 2.0]}), &json!({"a": [1.0, 2]})));
        assert!(!equal(&json!({"a": 1}), &json!({"a": 1, "b": 1})));
    }

    #[test]
    fn size_is_at_least_the_compact_text() {
        for value in [
            json!(null),
            json!(-12),
            json!(u64::MAX),
            json!("abc"),
            json!({"a": [1, true, "x"]}),
            json!([]),
            json!("\u{1}\"\\\n\u{7f}ä"),
            json!({"\u{2}\u{3}": 1.5}),
            json!(-f64::MIN_POSITIVE),
        ] {
            assert!(size(&value) >= value.to_string().len() as u64, "{value}");
        }
    }
}

//! JSON as definitions and runs use it: strict reading, its size, and comparison without losing integers. This file
//! knows nothing of definitions.

use std::cmp::Ordering;
use std::sync::Arc;

use serde_json::{Number, Value};

pub use abide_json::{JsonError, depth_within};

use crate::evaluation::{BudgetExhausted, EvaluationBudget};
use crate::limits::definition::JSON_DEPTH_MAX;

/// A shared JSON value: results, inputs and slots are passed by reference, never copied.
pub type Json = Arc<Value>;

/// Reads one JSON text strictly.
pub fn parse(text: &str) -> Result<Value, JsonError> {
    abide_json::parse(text, JSON_DEPTH_MAX)
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
pub fn equal(left: &Value, right: &Value, budget: &EvaluationBudget) -> Result<bool, BudgetExhausted> {
    budget.charge_steps(1)?;
    match (left, right) {
        (Value::Number(a), Value::Number(b)) => Ok(compare_numbers(a, b) == Some(Ordering::Equal)),
        (Value::String(a), Value::String(b)) => {
            budget.charge_text(if a.len() == b.len() { a.len() } else { 0 })?;
            Ok(a == b)
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (a, b) in a.iter().zip(b) {
                if !equal(a, b, budget)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Value::Object(a), Value::Object(b)) if a.len() == b.len() => {
            for (name, a) in a {
                budget.charge_text(name.len())?;
                match b.get(name) {
                    Some(b) if equal(a, b, budget)? => {}
                    _ => return Ok(false),
                }
            }
            Ok(true)
        }
        (Value::Bool(a), Value::Bool(b)) => Ok(a == b),
        (Value::Null, Value::Null) => Ok(true),
        _ => Ok(false),
    }
}

/// The order of two numbers, or of two strings by their characters; other values have none.
pub fn order(
    left: &Value,
    right: &Value,
    budget: &EvaluationBudget,
) -> Result<Option<Ordering>, BudgetExhausted> {
    budget.charge_steps(1)?;
    match (left, right) {
        (Value::Number(a), Value::Number(b)) => Ok(compare_numbers(a, b)),
        (Value::String(a), Value::String(b)) => {
            budget.charge_text(a.len().min(b.len()))?;
            Ok(Some(a.cmp(b)))
        }
        _ => Ok(None),
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_compare_without_rounding() {
        let compare = |a: Value, b: Value| compare_numbers(a.as_number().unwrap(), b.as_number().unwrap());
        assert_eq!(compare(json!(9007199254740993_u64), json!(9007199254740992.0)), Some(Ordering::Greater));
        assert_eq!(compare(json!(1), json!(1.0)), Some(Ordering::Equal));
        assert_eq!(compare(json!(-1), json!(-1.5)), Some(Ordering::Greater));
        assert_eq!(compare(json!(u64::MAX), json!(i64::MIN)), Some(Ordering::Greater));
        assert_eq!(compare(json!(1), json!(1e300)), Some(Ordering::Less));
        let budget = EvaluationBudget::new(crate::evaluation::EvaluationLimits::default());
        assert_eq!(equal(&json!({"a": [1, 2.0]}), &json!({"a": [1.0, 2]}), &budget), Ok(true));
        assert_eq!(equal(&json!({"a": 1}), &json!({"a": 1, "b": 1}), &budget), Ok(false));
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

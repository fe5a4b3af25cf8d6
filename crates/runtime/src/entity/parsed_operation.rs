//! Parses operations as clients name them: built-in names are case-insensitive, every other name belongs to the kind.
//!
//! Nothing is executed here, and the kind's own names and inputs are not checked. The server and the entity activities
//! use it: they send changes to the shard, and answer reads themselves.

use abide_workflow::json::Json;
use serde_json::Value;

use super::{EntityOperation, OperationError};

/// An operation, parsed from its name and input.
#[derive(Clone, PartialEq, Debug)]
pub enum ParsedOperation {
    /// An operation that changes the entity, or may change it.
    Change(EntityOperation),
    /// Read events from a position on.
    GetEvents {
        from: u64,
        /// The most events to read.
        limit: Option<usize>,
    },
    /// Read the entity's state.
    GetState,
}

impl ParsedOperation {
    pub fn parse(name: &str, input: Json) -> Result<Self, OperationError> {
        let is = |builtin: &str| name.eq_ignore_ascii_case(builtin);
        if is("RecordEvent") {
            return Ok(Self::Change(EntityOperation::RecordEvent { event: input }));
        }
        if is("Clear") {
            let [up_to] = parse_numbers(&input, ["upTo"])?;
            return Ok(Self::Change(EntityOperation::Clear { up_to }));
        }
        if is("GetEvents") {
            let [from, limit] = parse_numbers(&input, ["from", "limit"])?;
            let limit = limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
            return Ok(Self::GetEvents { from: from.unwrap_or(0), limit });
        }
        if is("GetState") {
            let [] = parse_numbers(&input, [])?;
            return Ok(Self::GetState);
        }
        Ok(Self::Change(EntityOperation::Custom { name: name.to_owned(), input }))
    }
}

/// Reads these optional numbers from an object that has no other fields; a null input is an empty object.
fn parse_numbers<const N: usize>(
    input: &Value,
    names: [&str; N],
) -> Result<[Option<u64>; N], OperationError> {
    let invalid = |reason: String| OperationError::InvalidInput { reason };
    let mut numbers = [None; N];
    let fields = match input {
        Value::Null => return Ok(numbers),
        Value::Object(fields) => fields,
        _ => return Err(invalid("the input must be an object".to_owned())),
    };
    for (name, value) in fields {
        let index = names.iter().position(|expected| expected == name);
        let Some(slot) = index.and_then(|index| numbers.get_mut(index)) else {
            return Err(invalid(format!("unknown field {name:?}")));
        };
        match value {
            Value::Null => {}
            value => {
                let number = value.as_u64();
                *slot =
                    Some(number.ok_or_else(|| invalid(format!("{name} must be a non-negative integer")))?);
            }
        }
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn built_in_names_are_case_insensitive_and_other_names_belong_to_the_kind() {
        let parse = |name: &str, input: Value| ParsedOperation::parse(name, input.into()).unwrap();
        let record = ParsedOperation::Change(EntityOperation::RecordEvent { event: json!(1).into() });
        assert_eq!(parse("recordEVENT", json!(1)), record);
        assert_eq!(
            parse("clear", Value::Null),
            ParsedOperation::Change(EntityOperation::Clear { up_to: None })
        );
        assert_eq!(
            parse("Clear", json!({"upTo": 7})),
            ParsedOperation::Change(EntityOperation::Clear { up_to: Some(7) })
        );
        assert_eq!(
            parse("GetEvents", json!({"from": 3})),
            ParsedOperation::GetEvents { from: 3, limit: None }
        );
        assert_eq!(parse("GetState", json!({})), ParsedOperation::GetState);
        let custom = EntityOperation::Custom { name: "Add".to_owned(), input: json!(1).into() };
        assert_eq!(parse("Add", json!(1)), ParsedOperation::Change(custom));
    }

    #[test]
    fn an_invalid_input_is_refused() {
        for (name, input) in [
            ("Clear", json!({"upTo": -1})),
            ("Clear", json!({"upto": 1})),
            ("Clear", json!([])),
            ("GetEvents", json!({"limit": "x"})),
            ("GetState", json!({"x": 1})),
        ] {
            assert!(
                matches!(
                    ParsedOperation::parse(name, input.into()),
                    Err(OperationError::InvalidInput { .. })
                ),
                "{name}"
            );
        }
    }
}

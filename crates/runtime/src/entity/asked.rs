//! Operations as they are named from outside: the built-in ones without regard to case, anything else is the kind's own.

use abide_workflow::json::Json;
use serde_json::Value;

use super::{Operation, OperationError};

/// What an operation's name and input ask for.
#[derive(Clone, PartialEq, Debug)]
pub enum Asked {
    /// Something that changes the entity, or may.
    Operation(Operation),
    /// Events from a position on, at most so many.
    GetEvents {
        /// The first position.
        from: u64,
        /// How many.
        limit: Option<usize>,
    },
    /// The entity as it is.
    GetState,
}

impl Asked {
    /// Reads a name and its input.
    pub fn of(name: &str, input: Json) -> Result<Self, OperationError> {
        let is = |builtin: &str| name.eq_ignore_ascii_case(builtin);
        if is("RecordEvent") {
            return Ok(Self::Operation(Operation::RecordEvent { event: input }));
        }
        if is("Clear") {
            let [up_to] = numbers(&input, ["upTo"])?;
            return Ok(Self::Operation(Operation::Clear { up_to }));
        }
        if is("GetEvents") {
            let [from, limit] = numbers(&input, ["from", "limit"])?;
            let limit = limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
            return Ok(Self::GetEvents { from: from.unwrap_or(0), limit });
        }
        if is("GetState") {
            let [] = numbers(&input, [])?;
            return Ok(Self::GetState);
        }
        Ok(Self::Operation(Operation::Custom { name: name.to_owned(), input }))
    }
}

/// Whole numbers from an object that has nothing else; no input is an empty object.
fn numbers<const N: usize>(input: &Value, names: [&str; N]) -> Result<[Option<u64>; N], OperationError> {
    let wrong = |reason: String| OperationError::Input { reason };
    let mut found = [None; N];
    let fields = match input {
        Value::Null => return Ok(found),
        Value::Object(fields) => fields,
        _ => return Err(wrong("the input must be an object".to_owned())),
    };
    for (name, value) in fields {
        let place = names.iter().position(|known| known == name);
        let Some(slot) = place.and_then(|place| found.get_mut(place)) else {
            return Err(wrong(format!("there is no field {name:?}")));
        };
        match value {
            Value::Null => {}
            value => {
                let number = value.as_u64();
                *slot = Some(number.ok_or_else(|| wrong(format!("{name} must be a whole number from 0")))?);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn built_in_operations_are_known_in_any_case_and_others_are_the_kinds() {
        let of = |name: &str, input: Value| Asked::of(name, input.into()).unwrap();
        let record = Asked::Operation(Operation::RecordEvent { event: json!(1).into() });
        assert_eq!(of("recordEVENT", json!(1)), record);
        assert_eq!(of("clear", Value::Null), Asked::Operation(Operation::Clear { up_to: None }));
        assert_eq!(of("Clear", json!({"upTo": 7})), Asked::Operation(Operation::Clear { up_to: Some(7) }));
        assert_eq!(of("GetEvents", json!({"from": 3})), Asked::GetEvents { from: 3, limit: None });
        assert_eq!(of("GetState", json!({})), Asked::GetState);
        let custom = Operation::Custom { name: "Add".to_owned(), input: json!(1).into() };
        assert_eq!(of("Add", json!(1)), Asked::Operation(custom));
    }

    #[test]
    fn an_input_that_does_not_fit_is_refused() {
        for (name, input) in [
            ("Clear", json!({"upTo": -1})),
            ("Clear", json!({"upto": 1})),
            ("Clear", json!([])),
            ("GetEvents", json!({"limit": "x"})),
            ("GetState", json!({"x": 1})),
        ] {
            assert!(matches!(Asked::of(name, input.into()), Err(OperationError::Input { .. })), "{name}");
        }
    }
}

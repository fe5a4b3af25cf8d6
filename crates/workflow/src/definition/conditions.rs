//! Reads the JSON of a condition: `{path, op, value | valuePath}`, `{and: […]}`, `{or: […]}` or `{not: …}`. Conditions
//! are evaluated in `crate::condition`.

use serde_json::Value;

use super::fields::{FieldReader, Findings, closest_name};
use crate::condition::{Condition, Op, Operand};
use crate::finding::{Code, Finding};
use crate::limits::definition::EXPRESSION_DEPTH_MAX;
use crate::path::Template;

pub(super) fn read_condition(value: &Value, pointer: String, findings: &Findings) -> Option<Condition> {
    read_at_depth(value, pointer, findings, 0)
}

fn read_at_depth(value: &Value, pointer: String, findings: &Findings, depth: usize) -> Option<Condition> {
    if depth > EXPRESSION_DEPTH_MAX {
        let message = format!("conditions are nested more than {EXPRESSION_DEPTH_MAX} levels deep");
        findings.borrow_mut().push(Finding::new(
            Code::LimitExceeded,
            pointer,
            message,
            "split the condition",
        ));
        return None;
    }
    let fields = FieldReader::of(value, pointer, findings)?;
    let inner = |value: &Value, pointer: String| read_at_depth(value, pointer, findings, depth + 1);
    let several = |name: &'static str| -> Option<Vec<Condition>> {
        let entries = fields.array(name)?;
        if entries.is_empty() {
            fields.report(Code::InvalidValue, name, "there are no conditions", "add at least one");
        }
        let read = |(position, entry)| inner(entry, format!("{}/{position}", fields.pointer_of(name)));
        entries.iter().enumerate().map(read).collect()
    };
    let condition = if value.get("and").is_some() {
        several("and").map(Condition::And)
    } else if value.get("or").is_some() {
        several("or").map(Condition::Or)
    } else if let Some(condition) = fields.value("not") {
        inner(condition, fields.pointer_of("not")).map(|condition| Condition::Not(Box::new(condition)))
    } else {
        read_test(&fields)
    };
    fields.finish();
    condition
}

fn read_test(fields: &FieldReader<'_>) -> Option<Condition> {
    let path = fields.required_path("path");
    let op = fields.required_string("op").and_then(|name| {
        let op = Op::named(name);
        if op.is_none() {
            let hint = match closest_name(name, Op::NAMES.iter().copied()) {
                Some(near) => format!("did you mean {near:?}?"),
                None => format!("use one of {}", Op::NAMES.join(", ")),
            };
            fields.report(Code::InvalidValue, "op", format!("{name:?} is not an operator"), hint);
        }
        op
    });
    let value = fields.value("value");
    let value_path = fields.string("valuePath");
    let op = op?;
    let path = path?;
    let operand = match (op.takes_operand(), value, value_path) {
        (true, Some(value), None) if op == Op::In && !value.is_array() => {
            fields.report(
                Code::InvalidValue,
                "value",
                "the operator \"in\" needs an array",
                "write an array",
            );
            return None;
        }
        (true, Some(value), None) => Operand::Value(literal(fields, value)?),
        (true, None, Some(text)) => Operand::Path(fields.as_path("valuePath", text)?),
        (true, _, _) => {
            fields.report(
                Code::InvalidValue,
                "op",
                "this operator needs exactly one of value and valuePath",
                "add value or valuePath, not both",
            );
            return None;
        }
        (false, None, None) => Operand::None,
        (false, _, _) => {
            fields.report(
                Code::InvalidValue,
                "op",
                "this operator has neither value nor valuePath",
                "remove value and valuePath",
            );
            return None;
        }
    };
    Some(Condition::Test { path, op, operand })
}

/// Reads a literal. A leading `$` is written `$$`, here as everywhere; a path belongs in `valuePath`.
fn literal(fields: &FieldReader<'_>, value: &Value) -> Option<Value> {
    let mut errors = Vec::new();
    match Template::compile(value, &mut errors) {
        Template::Literal(literal) if errors.is_empty() => Some(literal),
        _ => {
            let message = "a value is compared literally, so a string that starts with $ is not a path here";
            fields.report(
                Code::InvalidValue,
                "value",
                message,
                "put the path in valuePath, or write $$ for a literal $",
            );
            None
        }
    }
}

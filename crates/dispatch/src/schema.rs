//! JSON Schema checks of inputs and outputs of calls, on a budget of their own for each value.
//!
//! A mismatch shows the location and the rule, never the value: inputs may contain resolved secrets.

use abide_evaluation::schema::{Schema, ShownValues};
use abide_evaluation::{EvaluationBudget, EvaluationLimits};
use serde_json::Value;

/// A compiled JSON Schema.
#[derive(Debug)]
pub(crate) struct PayloadSchema(Schema);

impl PayloadSchema {
    /// Compiles a schema of draft 2020-12, or of the draft its `$schema` names.
    pub(crate) fn compile(schema: &Value) -> Result<Self, String> {
        Schema::compile(schema).map(Self)
    }

    /// Checks a value. The error says where it does not match, as a JSON pointer, and why; or that the check would
    /// exceed its budget, so that nobody knows.
    pub(crate) fn check(&self, value: &Value) -> Result<(), String> {
        let budget = EvaluationBudget::new(EvaluationLimits::default());
        match self.0.check(value, &budget, ShownValues::Hidden, 1).map(|found| found.into_iter().next()) {
            Ok(None) => Ok(()),
            Ok(Some(mismatch)) => Err(format!("{:?}: {}", mismatch.pointer, mismatch.message)),
            Err(exceeded) => Err(format!("\"\": {exceeded}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_mismatch_shows_the_location_and_the_rule_but_not_the_value() {
        let schema =
            PayloadSchema::compile(&json!({"properties": {"a": {"items": {"type": "integer"}}}})).unwrap();
        let mismatch = schema.check(&json!({"a": [1, "s3cret"]})).unwrap_err();
        assert!(mismatch.contains("/a/1") && mismatch.contains("integer"), "{mismatch}");
        assert!(!mismatch.contains("s3cret"), "{mismatch}");
        assert_eq!(schema.check(&json!({"a": [1]})), Ok(()));
    }

    #[test]
    fn invalid_external_and_exploding_schemas_are_rejected() {
        for schema in [
            json!({"type": "no-such-type"}),
            json!({"$ref": "file:///etc/passwd"}),
            json!({"$ref": "https://example.com/schema"}),
            json!({"items": {"$ref": "#/items"}}),
            json!({"$dynamicRef": "#x"}),
            json!({"pattern": "(a+)+\\1"}),
        ] {
            assert!(PayloadSchema::compile(&schema).is_err(), "{schema}");
        }
        let mut doubling = json!({"$defs": {"d0": {"type": "integer"}}, "$ref": "#/$defs/d30"});
        for n in 1..=30 {
            let below = json!({"$ref": format!("#/$defs/d{}", n - 1)});
            doubling["$defs"][format!("d{n}")] = json!({"allOf": [below, below]});
        }
        assert!(PayloadSchema::compile(&doubling).is_err(), "exponential");
        let shared =
            json!({"$defs": {"id": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/id"}}});
        assert!(PayloadSchema::compile(&shared).is_ok());
    }
}

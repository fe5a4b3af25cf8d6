//! JSON Schema validation of values, compiled once per schema.
//!
//! It never loads anything: a `$ref` to anything outside the schema is rejected. Patterns run on a linear-time engine,
//! because schemas come from users.

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use crate::limits::definition::SCHEMA_PLACES_MAX;

/// A compiled schema.
#[derive(Clone, Debug)]
pub struct Schema(std::sync::Arc<Validator>);

/// One place where a value does not match its schema.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}: {message}", if pointer.is_empty() { "the value" } else { pointer.as_str() })]
pub struct Mismatch {
    /// JSON pointer into the value.
    pub pointer: String,
    /// The violated schema keyword.
    pub keyword: String,
    pub message: String,
    /// True if this part of the schema applies only if another part does.
    pub conditional: bool,
}

impl Schema {
    /// Mismatches reported at once; a value may have thousands.
    const MISMATCHES_MAX: usize = 20;

    /// Compiles a schema of draft 2020-12, or of the draft its `$schema` names.
    ///
    /// References must stay inside the schema and must not be circular. Their expansion is bounded, because otherwise a
    /// schema of a few lines can take years.
    pub fn compile(schema: &Value) -> Result<Self, String> {
        expanded_places(schema, schema, &mut Vec::new(), 0)?;
        Self::compile_trusted(schema)
    }

    /// Compiles a schema that ships with the server, which may be recursive.
    pub fn compile_trusted(schema: &Value) -> Result<Self, String> {
        let options = jsonschema::options().with_pattern_options(PatternOptions::regex().size_limit(1 << 20));
        options.build(schema).map(|validator| Self(validator.into())).map_err(|error| error.to_string())
    }

    /// True if a value matches the schema.
    pub fn is_valid(&self, value: &Value) -> bool {
        self.0.is_valid(value)
    }

    /// The places where a value does not match.
    pub fn mismatches(&self, value: &Value) -> Vec<Mismatch> {
        let is_condition = |segment: &str| {
            matches!(segment, "then" | "else" | "anyOf" | "oneOf" | "dependentSchemas" | "not")
        };
        let describe = |error: jsonschema::ValidationError<'_>| Mismatch {
            conditional: error.evaluation_path().as_str().split('/').any(is_condition),
            pointer: error.instance_path().as_str().to_owned(),
            keyword: error.kind().keyword().to_owned(),
            message: error.to_string().chars().take(400).collect(),
        };
        self.0.iter_errors(value).take(Self::MISMATCHES_MAX).map(describe).collect()
    }
}

/// Counts the JSON values of a schema with its references expanded.
fn expanded_places<'a>(
    schema: &'a Value,
    root: &'a Value,
    open: &mut Vec<&'a str>,
    counted: usize,
) -> Result<usize, String> {
    let mut places = counted + 1;
    if places > SCHEMA_PLACES_MAX {
        return Err(format!("with its references expanded it has more than {SCHEMA_PLACES_MAX} values"));
    }
    match schema {
        Value::Array(items) => {
            for item in items {
                places = expanded_places(item, root, open, places)?;
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                match (name.as_str(), field.as_str()) {
                    ("$ref", Some(reference)) => {
                        let target = reference.strip_prefix('#').filter(|pointer| pointer.starts_with('/'));
                        let target = target.and_then(|pointer| Some((pointer, root.pointer(pointer)?)));
                        let (pointer, target) = target.ok_or_else(|| {
                            format!("{reference:?} does not refer to a place in this schema (#/…)")
                        })?;
                        if open.contains(&pointer) {
                            return Err(format!("{reference:?} refers to itself"));
                        }
                        open.push(pointer);
                        places = expanded_places(target, root, open, places)?;
                        open.pop();
                    }
                    ("$dynamicRef" | "$recursiveRef", _) => return Err(format!("{name} is not supported")),
                    _ => places = expanded_places(field, root, open, places)?,
                }
            }
        }
        _ => {}
    }
    Ok(places)
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        std::sync::Arc::ptr_eq(&self.0, &other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn mismatches_name_the_place_and_the_keyword() {
        let schema =
            Schema::compile(&json!({"required": ["id"], "properties": {"n": {"type": "integer"}}})).unwrap();
        let mismatches = schema.mismatches(&json!({"n": "x"}));
        let reported: Vec<(&str, &str)> =
            mismatches.iter().map(|m| (m.pointer.as_str(), m.keyword.as_str())).collect();
        assert!(reported.contains(&("", "required")) && reported.contains(&("/n", "type")), "{reported:?}");
        assert!(schema.is_valid(&json!({"id": 1, "n": 2})));
    }

    #[test]
    fn an_invalid_schema_or_one_that_refers_outside_is_rejected() {
        assert!(Schema::compile(&json!({"type": "no-such-type"})).is_err());
        assert!(Schema::compile(&json!({"$ref": "file:///etc/passwd"})).is_err());
        assert!(Schema::compile(&json!({"pattern": "(a+)+\\1"})).is_err(), "back-references are not linear");
        assert!(Schema::compile(&json!({"items": {"$ref": "#/items"}})).is_err(), "circular");
        let mut doubling = json!({"$defs": {"d0": {"type": "integer"}}, "$ref": "#/$defs/d30"});
        for n in 1..=30 {
            let below = json!({"$ref": format!("#/$defs/d{}", n - 1)});
            doubling["$defs"][format!("d{n}")] = json!({"allOf": [below, below]});
        }
        assert!(Schema::compile(&doubling).is_err(), "exponential");
        assert!(
            Schema::compile(
                &json!({"$defs": {"id": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/id"}}})
            )
            .is_ok()
        );
    }
}

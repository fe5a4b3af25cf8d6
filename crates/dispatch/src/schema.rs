//! JSON Schema checks of inputs and outputs, with schemas that are compiled once.
//!
//! A schema refers to nothing outside itself, and its size with all references expanded is bounded. A mismatch shows
//! the location and the rule, never the value: inputs may contain resolved secrets.

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

/// A compiled JSON Schema.
#[derive(Debug)]
pub(crate) struct PayloadSchema(Validator);

/// Nodes that a schema may have with its references expanded. Without a limit, a schema of a few lines could take
/// years.
const PLACES_MAX: usize = 10_000;
/// The longest mismatch, in characters; a rule can be as long as its schema.
const MISMATCH_CHARS_MAX: usize = 400;

impl PayloadSchema {
    /// Compiles a schema of draft 2020-12, or of the draft its `$schema` names.
    pub(crate) fn compile(schema: &Value) -> Result<Self, String> {
        count_places(schema, schema, &mut Vec::new(), 0)?;
        // Patterns run on an engine with linear running time.
        let options = jsonschema::options().with_pattern_options(PatternOptions::regex().size_limit(1 << 20));
        options.build(schema).map(Self).map_err(|error| error.to_string())
    }

    /// Checks a value. The error says where it does not match, as a JSON pointer, and why.
    pub(crate) fn check(&self, value: &Value) -> Result<(), String> {
        // The plain check keeps no track of locations and is much cheaper.
        if self.0.is_valid(value) {
            return Ok(());
        }
        let mismatch = self.0.iter_errors(value).next().map(|error| {
            let rule: String = error.masked().to_string().chars().take(MISMATCH_CHARS_MAX).collect();
            format!("{:?}: {rule}", error.instance_path().as_str())
        });
        Err(mismatch.unwrap_or_else(|| "\"\": does not match the schema".to_owned()))
    }
}

/// Counts the nodes of a schema with its references expanded.
fn count_places<'s>(
    schema: &'s Value,
    root: &'s Value,
    open: &mut Vec<&'s str>,
    counted: usize,
) -> Result<usize, String> {
    let mut nodes = counted + 1;
    if nodes > PLACES_MAX {
        return Err(format!("with its references expanded it has more than {PLACES_MAX} values"));
    }
    match schema {
        Value::Array(items) => {
            for item in items {
                nodes = count_places(item, root, open, nodes)?;
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                nodes = match (name.as_str(), field.as_str()) {
                    ("$ref", Some(reference)) => count_referenced(reference, root, open, nodes)?,
                    ("$dynamicRef" | "$recursiveRef", _) => return Err(format!("{name} is not supported")),
                    _ => count_places(field, root, open, nodes)?,
                };
            }
        }
        _ => {}
    }
    Ok(nodes)
}

fn count_referenced<'s>(
    reference: &'s str,
    root: &'s Value,
    open: &mut Vec<&'s str>,
    counted: usize,
) -> Result<usize, String> {
    let pointer = reference.strip_prefix('#').filter(|pointer| pointer.starts_with('/'));
    let target = pointer.and_then(|pointer| Some((pointer, root.pointer(pointer)?)));
    let (pointer, target) =
        target.ok_or_else(|| format!("{reference:?} does not refer to a location in this schema (#/…)"))?;
    if open.contains(&pointer) {
        return Err(format!("{reference:?} refers to itself; recursive schemas are not supported"));
    }
    open.push(pointer);
    let nodes = count_places(target, root, open, counted)?;
    open.pop();
    Ok(nodes)
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

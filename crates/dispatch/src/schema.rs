//! JSON Schema checks of inputs and outputs, compiled once.
//!
//! A schema refers to nothing outside itself, and what its references expand to is bounded. A mismatch tells the place and the rule, never
//! the value: inputs hold resolved secrets.

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

/// A compiled schema.
#[derive(Debug)]
pub(crate) struct Schema(Validator);

/// Places a schema may have when its references are written out: one of a few lines can otherwise take years.
const PLACES_MAX: usize = 10_000;
/// Characters of a mismatch; a rule can be as long as its schema.
const MISMATCH_CHARS_MAX: usize = 400;

impl Schema {
    /// Compiles a schema of draft 2020-12, or of the draft its `$schema` names.
    pub(crate) fn compile(schema: &Value) -> Result<Self, String> {
        count_places(schema, schema, &mut Vec::new(), 0)?;
        // Patterns run on an engine whose time is linear.
        let options = jsonschema::options().with_pattern_options(PatternOptions::regex().size_limit(1 << 20));
        options.build(schema).map(Self).map_err(|error| error.to_string())
    }

    /// Where the value does not fit, as a JSON pointer, and why.
    pub(crate) fn check(&self, value: &Value) -> Result<(), String> {
        // The plain yes or no keeps no track of places and is much cheaper.
        if self.0.is_valid(value) {
            return Ok(());
        }
        let mismatch = self.0.iter_errors(value).next().map(|error| {
            let rule: String = error.masked().to_string().chars().take(MISMATCH_CHARS_MAX).collect();
            format!("{:?}: {rule}", error.instance_path().as_str())
        });
        Err(mismatch.unwrap_or_else(|| "it does not fit".to_owned()))
    }
}

/// Counts the places of a schema with its references written out.
fn count_places<'s>(
    schema: &'s Value,
    root: &'s Value,
    open: &mut Vec<&'s str>,
    counted: usize,
) -> Result<usize, String> {
    let mut places = counted + 1;
    if places > PLACES_MAX {
        return Err(format!("with its references written out it has more than {PLACES_MAX} places"));
    }
    match schema {
        Value::Array(items) => {
            for item in items {
                places = count_places(item, root, open, places)?;
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                places = match (name.as_str(), field.as_str()) {
                    ("$ref", Some(reference)) => follow(reference, root, open, places)?,
                    ("$dynamicRef" | "$recursiveRef", _) => return Err(format!("{name} is not available")),
                    _ => count_places(field, root, open, places)?,
                };
            }
        }
        _ => {}
    }
    Ok(places)
}

fn follow<'s>(
    reference: &'s str,
    root: &'s Value,
    open: &mut Vec<&'s str>,
    counted: usize,
) -> Result<usize, String> {
    let pointer = reference.strip_prefix('#').filter(|pointer| pointer.starts_with('/'));
    let target = pointer.and_then(|pointer| Some((pointer, root.pointer(pointer)?)));
    let (pointer, target) =
        target.ok_or_else(|| format!("{reference:?} does not refer to a place in this schema (#/…)"))?;
    if open.contains(&pointer) {
        return Err(format!("{reference:?} refers to itself"));
    }
    open.push(pointer);
    let places = count_places(target, root, open, counted)?;
    open.pop();
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_mismatch_tells_the_place_and_the_rule_but_not_the_value() {
        let schema = Schema::compile(&json!({"properties": {"a": {"items": {"type": "integer"}}}})).unwrap();
        let mismatch = schema.check(&json!({"a": [1, "s3cret"]})).unwrap_err();
        assert!(mismatch.contains("/a/1") && mismatch.contains("integer"), "{mismatch}");
        assert!(!mismatch.contains("s3cret"), "{mismatch}");
        assert_eq!(schema.check(&json!({"a": [1]})), Ok(()));
    }

    #[test]
    fn a_schema_that_is_none_refers_outside_or_blows_up_is_refused() {
        for schema in [
            json!({"type": "no-such-type"}),
            json!({"$ref": "file:///etc/passwd"}),
            json!({"$ref": "https://example.com/schema"}),
            json!({"items": {"$ref": "#/items"}}),
            json!({"$dynamicRef": "#x"}),
            json!({"pattern": "(a+)+\\1"}),
        ] {
            assert!(Schema::compile(&schema).is_err(), "{schema}");
        }
        let mut doubling = json!({"$defs": {"d0": {"type": "integer"}}, "$ref": "#/$defs/d30"});
        for n in 1..=30 {
            let below = json!({"$ref": format!("#/$defs/d{}", n - 1)});
            doubling["$defs"][format!("d{n}")] = json!({"allOf": [below, below]});
        }
        assert!(Schema::compile(&doubling).is_err(), "exponential");
        let shared =
            json!({"$defs": {"id": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/id"}}});
        assert!(Schema::compile(&shared).is_ok());
    }
}

//! Bounds a schema before it is compiled: its references, its size and its depth with all references expanded.

use serde_json::Value;

/// JSON values that a schema may have when its references are expanded.
const PLACES_MAX: usize = 10_000;
/// Levels of the same. Compiling and checking recurse as deeply.
const DEPTH_MAX: usize = 256;

pub(super) fn check(schema: &Value) -> Result<(), String> {
    let mut expansion = Expansion { root: schema, open: Vec::new(), places: 0 };
    expansion.add(schema, 0)
}

struct Expansion<'s> {
    root: &'s Value,
    /// The references that are being expanded.
    open: Vec<&'s str>,
    places: usize,
}

impl<'s> Expansion<'s> {
    fn add(&mut self, schema: &'s Value, depth: usize) -> Result<(), String> {
        self.places += 1;
        if self.places > PLACES_MAX {
            return Err(format!("with its references expanded it has more than {PLACES_MAX} values"));
        }
        if depth > DEPTH_MAX {
            return Err(format!(
                "with its references expanded it is nested more than {DEPTH_MAX} levels deep"
            ));
        }
        match schema {
            Value::Array(items) => items.iter().try_for_each(|item| self.add(item, depth + 1)),
            Value::Object(fields) => {
                fields.iter().try_for_each(|(name, field)| match (name.as_str(), field.as_str()) {
                    ("$ref", Some(reference)) => self.add_target(reference, depth),
                    ("$dynamicRef" | "$recursiveRef", _) => Err(format!("{name} is not supported")),
                    _ => self.add(field, depth + 1),
                })
            }
            _ => Ok(()),
        }
    }

    fn add_target(&mut self, reference: &'s str, depth: usize) -> Result<(), String> {
        let target = resolve(reference, self.root);
        let target =
            target.ok_or_else(|| format!("{reference:?} does not refer to a place in this schema (#/…)"))?;
        if self.open.contains(&reference) {
            return Err(format!("{reference:?} refers to itself; recursive schemas are not supported"));
        }
        self.open.push(reference);
        self.add(target, depth + 1)?;
        self.open.pop();
        Ok(())
    }
}

/// The place that a reference leads to.
pub(super) fn resolve<'s>(reference: &str, root: &'s Value) -> Option<&'s Value> {
    root.pointer(reference.strip_prefix('#').filter(|pointer| pointer.starts_with('/'))?)
}

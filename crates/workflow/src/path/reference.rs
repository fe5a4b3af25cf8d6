//! References: places in `$.state` that a result can be written to. This file does not store the result.
//!
//! Writing creates missing objects on the way. It never turns a value of another type into an object, and never grows
//! an array.

use serde_json::{Map, Value};

use super::{Path, PathError, Root, Segment};

/// A compiled place to write to.
#[derive(Clone, PartialEq, Debug)]
pub struct Reference {
    text: String,
    /// The top-level name; its value is stored as one part.
    slot: String,
    steps: Vec<Segment>,
}

/// Why a value cannot be written to a reference.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AssignError {
    /// A name is applied to a value that is not an object.
    #[error("{reference}: the value before {name:?} is not an object")]
    NotAnObject { reference: String, name: String },
    /// An index is applied to a value that is not an array, or is past its end.
    #[error("{reference}: there is no element {index} to replace")]
    NoElement { reference: String, index: i64 },
}

impl Reference {
    /// Compiles a reference such as `$.state.name`.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let not_a_reference = || PathError::NotAReference { path: text.chars().take(120).collect() };
        let path = Path::parse(text)?;
        let mut steps = path.steps.clone();
        let plain = path.root == Root::State && path.query.is_none() && !path.optional;
        let counts_from_end = steps.iter().any(|step| matches!(step, Segment::Index(index) if *index < 0));
        if !plain || steps.is_empty() || counts_from_end {
            return Err(not_a_reference());
        }
        match steps.remove(0) {
            Segment::Name(slot) => Ok(Self { text: text.to_owned(), slot, steps }),
            Segment::Index(_) => Err(not_a_reference()),
        }
    }

    /// The reference as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The name of the slot it writes to.
    pub fn slot(&self) -> &str {
        &self.slot
    }

    /// True if the whole slot is replaced.
    pub fn is_whole_slot(&self) -> bool {
        self.steps.is_empty()
    }

    /// Returns the slot's value with `value` at this place.
    pub fn assign(&self, slot: Option<&Value>, value: Value) -> Result<Value, AssignError> {
        let mut whole = slot.cloned().unwrap_or(Value::Null);
        let mut place = &mut whole;
        for step in &self.steps {
            place = match step {
                Segment::Name(name) => {
                    if place.is_null() {
                        *place = Value::Object(Map::new());
                    }
                    let object = place.as_object_mut().ok_or_else(|| AssignError::NotAnObject {
                        reference: self.text.clone(),
                        name: name.clone(),
                    })?;
                    object.entry(name.clone()).or_insert(Value::Null)
                }
                Segment::Index(index) => {
                    let element =
                        usize::try_from(*index).ok().and_then(|at| place.as_array_mut()?.get_mut(at));
                    element.ok_or_else(|| AssignError::NoElement {
                        reference: self.text.clone(),
                        index: *index,
                    })?
                }
            };
        }
        *place = value;
        Ok(whole)
    }
}

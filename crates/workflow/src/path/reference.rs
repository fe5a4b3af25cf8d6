//! A place in `$.state` that a result can be written to.
//!
//! Writing creates objects on the way; it never turns a value of another kind into an object, and never grows an array.

use serde_json::{Map, Value};

use super::{Path, PathError, Query, Root, Segment};

/// A compiled place to write to.
#[derive(Clone, PartialEq, Debug)]
pub struct Reference {
    text: String,
    /// The top-level name: what a turn stores as one part.
    slot: String,
    steps: Vec<Segment>,
}

/// Why a value cannot be written at its place.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AssignError {
    /// A name below something that is no object.
    #[error("{reference}: the value before {name:?} is not an object")]
    NotAnObject {
        /// Where to.
        reference: String,
        /// The name that has no place.
        name: String,
    },
    /// An index below something that is no array, or past its end.
    #[error("{reference}: there is no element {index} to replace")]
    NoElement {
        /// Where to.
        reference: String,
        /// The index that has no place.
        index: i64,
    },
}

impl Reference {
    /// Compiles a place: `$.state.name…`.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let refuse = || PathError::NotAReference { path: text.chars().take(120).collect() };
        let path = Path::parse(text)?;
        let mut steps = path.steps.clone();
        let plain = path.root == Root::State && matches!(path.query, Query::None) && !path.optional;
        let counts_from_end = steps.iter().any(|step| matches!(step, Segment::Index(index) if *index < 0));
        if !plain || steps.is_empty() || counts_from_end {
            return Err(refuse());
        }
        match steps.remove(0) {
            Segment::Name(slot) => Ok(Self { text: text.to_owned(), slot, steps }),
            Segment::Index(_) => Err(refuse()),
        }
    }

    /// As written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The slot it writes into.
    pub fn slot(&self) -> &str {
        &self.slot
    }

    /// Whether the whole slot is replaced.
    pub fn is_whole_slot(&self) -> bool {
        self.steps.is_empty()
    }

    /// The slot's value with `value` at this place.
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

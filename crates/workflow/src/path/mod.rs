//! Paths into a run's data: RFC 9535 JSONPath, compiled once, bounded in cost, evaluated without copying where
//! possible. This file does not know where the data is stored: see [`Roots`].
//!
//! A path starts at one of the roots (`$.input`, `$.state`, …). A singular path (names and indexes only) has one value,
//! or none: that is an error that names the path, or null if the path ends in `?`. Any other query gives an array of
//! the values it selects, possibly empty.

mod cost;
mod reference;
mod singular;
mod template;

use std::borrow::Cow;
use std::fmt;

use serde_json::Value;
use serde_json_path::JsonPath;

pub use reference::{AssignError, Reference};
pub use singular::Segment;
pub use template::{RenderError, Template};

/// The root that a path starts at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Root {
    /// The run's input.
    Input,
    /// The values that the run's states have written.
    State,
    /// Ids and times of the run.
    System,
    /// The last external event.
    Event,
    /// The last caught error.
    Error,
    /// The item of the innermost map.
    Item,
    /// The position of that item.
    Index,
}

impl Root {
    /// All roots with their names.
    pub const ALL: [(Self, &'static str); 7] = [
        (Self::Input, "input"),
        (Self::State, "state"),
        (Self::System, "system"),
        (Self::Event, "event"),
        (Self::Error, "error"),
        (Self::Item, "item"),
        (Self::Index, "index"),
    ];

    /// The root's name in a path.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(root, _)| *root == self).map_or("", |(_, name)| name)
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(root, _)| *root)
    }
}

/// The names below `$.system`.
pub const SYSTEM_FIELDS: [&str; 7] =
    ["instanceId", "executionId", "correlationId", "entityId", "startTime", "currentTime", "newId"];

/// Why a path is rejected. `path` is the text as written, truncated.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PathError {
    /// Not RFC 9535.
    #[error("{path:?} is not a JSONPath: {reason}")]
    Syntax { path: String, reason: String },
    /// The path starts at an unknown root.
    #[error("{path:?} must start with $.input, $.state, $.system, $.event, $.error, $.item or $.index")]
    UnknownRoot { path: String },
    /// `$.system` has a fixed set of names.
    #[error("{path:?} is not a field of $.system; it has {}", SYSTEM_FIELDS.join(", "))]
    UnknownSystemField { path: String },
    /// The path could take too long on large data.
    #[error("{path:?} could be too costly: {reason}")]
    TooCostly {
        path: String,
        /// The bound it breaks.
        reason: String,
    },
    /// A query always has a value, so marking it optional has no meaning.
    #[error(
        "{path:?} is a query and gives an array, possibly empty: the ? at its end has no meaning, remove it"
    )]
    OptionalQuery { path: String },
    /// The path is not a place in `$.state` that can be written.
    #[error("{path:?} cannot be written to: write $.state.name, with further names or indexes after it")]
    NotAReference { path: String },
}

/// The data that paths read, by root. The owner of the data implements it.
pub trait Roots {
    /// The value of `$.root`.
    fn root_value(&self, root: Root) -> Option<Cow<'_, Value>>;
    /// The value of `$.root.name`, without building the whole root where that is expensive.
    fn root_field(&self, root: Root, name: &str) -> Option<Cow<'_, Value>>;
}

/// A required path without a value.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{path} has no value here")]
pub struct MissingValue {
    /// The path as written.
    pub path: String,
}

/// A compiled path.
#[derive(Clone)]
pub struct Path {
    text: String,
    root: Root,
    /// Names and indexes that lead to one place.
    steps: Vec<Segment>,
    optional: bool,
    query: PathQuery,
}

/// The part of a path after its singular steps.
#[derive(Clone)]
enum PathQuery {
    /// Nothing: the path is singular.
    None,
    /// A query on the value that the steps lead to.
    Relative(Box<JsonPath>),
    /// A query whose filters refer to roots (`$` inside a filter), so it runs on a document with these roots.
    WholeDocument(Box<JsonPath>, Vec<Root>),
}

impl Path {
    /// Compiles a path.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let path = || text.chars().take(120).collect::<String>();
        let (body, optional) = text.strip_suffix('?').map_or((text, false), |body| (body, true));
        cost::check(body).map_err(|reason| PathError::TooCostly { path: path(), reason })?;
        let (mut steps, rest) = singular::singular_prefix(body).ok_or_else(|| PathError::Syntax {
            path: path(),
            reason: "it does not start with $".to_owned(),
        })?;
        let whole = JsonPath::parse(body)
            .map_err(|error| PathError::Syntax { path: path(), reason: error.message().to_owned() })?;
        let root = match steps.first() {
            Some(Segment::Name(name)) => Root::from_name(name),
            _ => None,
        };
        let root = root.ok_or_else(|| PathError::UnknownRoot { path: path() })?;
        steps.remove(0);
        if let (Root::System, Some(Segment::Name(name))) = (root, steps.first())
            && !SYSTEM_FIELDS.contains(&name.as_str())
        {
            return Err(PathError::UnknownSystemField { path: path() });
        }
        if optional && !rest.is_empty() {
            return Err(PathError::OptionalQuery { path: path() });
        }
        let query = if rest.is_empty() {
            PathQuery::None
        } else if let Some(roots) = cost::roots_in_filters(rest) {
            let mut roots: Vec<Root> = roots.iter().filter_map(|name| Root::from_name(name)).collect();
            roots.push(root);
            PathQuery::WholeDocument(Box::new(whole), roots)
        } else {
            let below = JsonPath::parse(&format!("${rest}"))
                .map_err(|error| PathError::Syntax { path: path(), reason: error.message().to_owned() })?;
            PathQuery::Relative(Box::new(below))
        };
        Ok(Self { text: text.to_owned(), root, steps, optional, query })
    }

    /// The path as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn root(&self) -> Root {
        self.root
    }

    /// The value, or `None` if a singular path has none: for conditions, where that is not an error.
    pub fn find<'a>(&self, roots: &'a dyn Roots) -> Option<Cow<'a, Value>> {
        if let PathQuery::WholeDocument(query, needed) = &self.query {
            let document = needed
                .iter()
                .filter_map(|root| Some((root.name().to_owned(), roots.root_value(*root)?.into_owned())))
                .collect();
            return Some(Cow::Owned(query_to_array(query, &Value::Object(document))));
        }
        let place = match self.steps.split_first() {
            Some((Segment::Name(name), rest)) => {
                roots.root_field(self.root, name).and_then(|value| follow_segments(value, rest))
            }
            _ => roots.root_value(self.root).and_then(|value| follow_segments(value, &self.steps)),
        };
        match &self.query {
            PathQuery::Relative(query) => Some(Cow::Owned(
                place.map_or_else(|| Value::Array(Vec::new()), |value| query_to_array(query, &value)),
            )),
            _ => place,
        }
    }

    /// The value for a template: a missing value is an error, or null if the path is optional.
    pub fn get<'a>(&self, roots: &'a dyn Roots) -> Result<Cow<'a, Value>, MissingValue> {
        match self.find(roots) {
            Some(value) => Ok(value),
            None if self.optional => Ok(Cow::Owned(Value::Null)),
            None => Err(MissingValue { path: self.text.clone() }),
        }
    }
}

fn query_to_array(query: &JsonPath, value: &Value) -> Value {
    Value::Array(query.query(value).all().into_iter().cloned().collect())
}

fn follow_segments<'a>(value: Cow<'a, Value>, steps: &[Segment]) -> Option<Cow<'a, Value>> {
    if steps.is_empty() {
        return Some(value);
    }
    match value {
        Cow::Borrowed(value) => steps.iter().try_fold(value, follow_segment).map(Cow::Borrowed),
        Cow::Owned(value) => steps.iter().try_fold(&value, follow_segment).cloned().map(Cow::Owned),
    }
}

fn follow_segment<'a>(value: &'a Value, segment: &Segment) -> Option<&'a Value> {
    match segment {
        Segment::Name(name) => value.as_object()?.get(name),
        Segment::Index(index) => {
            let array = value.as_array()?;
            let position = match usize::try_from(*index) {
                Ok(from_start) => from_start,
                Err(_) => array.len().checked_sub(usize::try_from(index.unsigned_abs()).ok()?)?,
            };
            array.get(position)
        }
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Path({})", self.text)
    }
}

impl PartialEq for Path {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

#[cfg(test)]
mod tests;

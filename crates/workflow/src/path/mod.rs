//! Paths into a run's data: RFC 9535 JSONPath, compiled once, bounded in cost, evaluated without copying where possible.
//!
//! A path starts at one of the roots (`$.input`, `$.state`, …). A singular path (names and indexes only) has one value or is
//! missing, which is an error naming the path unless it ends in `?`, which makes it null. Any other query gives an array of
//! what it finds, possibly empty. This file does not know where the data is kept: see [`Roots`].

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
pub use template::{Template, Unfilled};

/// What a path can start at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Root {
    /// The run's input.
    Input,
    /// What the run's states have written.
    State,
    /// Ids and times of the run.
    System,
    /// The last external event.
    Event,
    /// The last caught error.
    Error,
    /// The item of the innermost map.
    Item,
    /// Its position.
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

    /// Its name in a path.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(root, _)| *root == self).map_or("", |(_, name)| name)
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(root, _)| *root)
    }
}

/// The names below `$.system`.
pub const SYSTEM_FIELDS: [&str; 7] =
    ["instanceId", "executionId", "correlationId", "entityId", "startTime", "currentTime", "newId"];

/// Why a text is not a path we run.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PathError {
    /// Not RFC 9535.
    #[error("{path:?} is not a JSONPath: {reason}")]
    Syntax {
        /// As written.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// It starts at something a run does not have.
    #[error("{path:?} must start with $.input, $.state, $.system, $.event, $.error, $.item or $.index")]
    UnknownRoot {
        /// As written.
        path: String,
    },
    /// `$.system` has a fixed set of names.
    #[error("{path:?} names nothing below $.system; it has {}", SYSTEM_FIELDS.join(", "))]
    UnknownSystemField {
        /// As written.
        path: String,
    },
    /// It could take too long on large data.
    #[error("{path:?} could be too costly: {reason}")]
    TooCostly {
        /// As written.
        path: String,
        /// Which bound it breaks.
        reason: String,
    },
    /// A query is never missing, so marking it optional says nothing.
    #[error(
        "{path:?} is a query and gives an array, possibly empty: the ? at its end has no meaning, remove it"
    )]
    OptionalQuery {
        /// As written.
        path: String,
    },
    /// Only some places can be written.
    #[error("{path:?} cannot be written to: write $.state.name, with further names or indexes after it")]
    NotAReference {
        /// As written.
        path: String,
    },
}

/// Where data comes from, by root. Implemented by whoever holds it.
pub trait Roots {
    /// `$.root`
    fn whole(&self, root: Root) -> Option<Cow<'_, Value>>;
    /// `$.root.name`, without building the whole where that costs something.
    fn field(&self, root: Root, name: &str) -> Option<Cow<'_, Value>>;
}

/// A required path without a value.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{path} has no value here")]
pub struct Missing {
    /// As written.
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
    query: Query,
}

/// What is left after the singular steps.
#[derive(Clone)]
enum Query {
    /// Nothing: the place itself.
    None,
    /// A query on that place.
    Below(Box<JsonPath>),
    /// A query whose filters look elsewhere (`$` inside a filter), so it runs on the document with these roots.
    Across(Box<JsonPath>, Vec<Root>),
}

impl Path {
    /// Compiles a path.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let path = || text.chars().take(120).collect::<String>();
        let (body, optional) = text.strip_suffix('?').map_or((text, false), |body| (body, true));
        cost::check(body).map_err(|reason| PathError::TooCostly { path: path(), reason })?;
        let (mut steps, rest) = singular::prefix(body).ok_or_else(|| PathError::Syntax {
            path: path(),
            reason: "it does not start with $".to_owned(),
        })?;
        let whole = JsonPath::parse(body)
            .map_err(|error| PathError::Syntax { path: path(), reason: error.message().to_owned() })?;
        let root = match steps.first() {
            Some(Segment::Name(name)) => Root::named(name),
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
            Query::None
        } else if let Some(roots) = cost::roots_in_filters(rest) {
            let mut roots: Vec<Root> = roots.iter().filter_map(|name| Root::named(name)).collect();
            roots.push(root);
            Query::Across(Box::new(whole), roots)
        } else {
            let below = JsonPath::parse(&format!("${rest}"))
                .map_err(|error| PathError::Syntax { path: path(), reason: error.message().to_owned() })?;
            Query::Below(Box::new(below))
        };
        Ok(Self { text: text.to_owned(), root, steps, optional, query })
    }

    /// As written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Where it starts.
    pub fn root(&self) -> Root {
        self.root
    }

    /// The value, or `None` when a singular path finds nothing: for conditions, where that is no error.
    pub fn find<'a>(&self, roots: &'a dyn Roots) -> Option<Cow<'a, Value>> {
        if let Query::Across(query, needed) = &self.query {
            let document = needed
                .iter()
                .filter_map(|root| Some((root.name().to_owned(), roots.whole(*root)?.into_owned())))
                .collect();
            return Some(Cow::Owned(nodes(query, &Value::Object(document))));
        }
        let place = match self.steps.split_first() {
            Some((Segment::Name(name), rest)) => {
                roots.field(self.root, name).and_then(|value| walk(value, rest))
            }
            _ => roots.whole(self.root).and_then(|value| walk(value, &self.steps)),
        };
        match &self.query {
            Query::Below(query) => {
                Some(Cow::Owned(place.map_or_else(|| Value::Array(Vec::new()), |value| nodes(query, &value))))
            }
            _ => place,
        }
    }

    /// The value as a template uses it: missing is an error, or null when optional.
    pub fn get<'a>(&self, roots: &'a dyn Roots) -> Result<Cow<'a, Value>, Missing> {
        match self.find(roots) {
            Some(value) => Ok(value),
            None if self.optional => Ok(Cow::Owned(Value::Null)),
            None => Err(Missing { path: self.text.clone() }),
        }
    }
}

fn nodes(query: &JsonPath, value: &Value) -> Value {
    Value::Array(query.query(value).all().into_iter().cloned().collect())
}

fn walk<'a>(value: Cow<'a, Value>, steps: &[Segment]) -> Option<Cow<'a, Value>> {
    if steps.is_empty() {
        return Some(value);
    }
    match value {
        Cow::Borrowed(value) => steps.iter().try_fold(value, step).map(Cow::Borrowed),
        Cow::Owned(value) => steps.iter().try_fold(&value, step).cloned().map(Cow::Owned),
    }
}

fn step<'a>(value: &'a Value, segment: &Segment) -> Option<&'a Value> {
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

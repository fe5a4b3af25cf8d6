//! Paths into a run's data: RFC 9535 JSONPath, compiled once, evaluated on a budget and without copying where possible.
//! This file does not know where the data is stored: see [`Roots`].
//!
//! A path starts at one of the roots (`$.input`, `$.state`, …). A singular path (names and indexes only) has one value,
//! or none: that is an error that names the path, or null if the path ends in `?`. Any other query gives an array of
//! the values it selects, possibly empty.

mod absolute;
mod cost;
mod query;
mod query_evaluator;
mod query_parser;
mod reference;
mod singular;
mod template;

use std::borrow::Cow;
use std::fmt;
use std::ops::ControlFlow;

use serde_json::Value;
use serde_json_path::JsonPath;

pub use reference::{AssignError, Reference};
pub use singular::Segment;
pub use template::{RenderError, Template};

use crate::evaluation::{BudgetExhausted, EvaluationBudget, EvaluationLimitExceeded, memory};
use absolute::AbsoluteValue;
use query::{Query, QuerySegment, Start};
use query_evaluator::QueryEvaluator;

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

/// The data that paths read, by root, with the budget for reading it. The owner of the data implements it.
pub trait Roots {
    /// The value of `$.root`.
    fn root_value(&self, root: Root) -> Result<Option<Cow<'_, Value>>, BudgetExhausted>;
    /// The value of `$.root.name`, without building the whole root where that is expensive.
    fn root_field(&self, root: Root, name: &str) -> Result<Option<Cow<'_, Value>>, BudgetExhausted>;
    /// What everything that is evaluated on this data is charged to.
    fn budget(&self) -> &EvaluationBudget;
}

/// A required path without a value.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{path} has no value here")]
pub struct MissingValue {
    /// The path as written.
    pub path: String,
}

/// Why a path could not be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReadError {
    #[error(transparent)]
    Missing(#[from] MissingValue),
    #[error(transparent)]
    LimitExceeded(#[from] EvaluationLimitExceeded),
}

/// A compiled path.
#[derive(Clone)]
pub struct Path {
    text: String,
    root: Root,
    /// Names and indexes that lead to one place.
    steps: Vec<Segment>,
    optional: bool,
    query: Option<Box<PathQuery>>,
}

/// The part of a path after its singular steps, if there is one.
#[derive(Clone)]
struct PathQuery {
    query: Query,
    /// The values that its filters refer to by `$`.
    absolute: Vec<AbsoluteValue>,
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
        JsonPath::parse(body)
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
        let query = match rest {
            "" => None,
            rest => Some(Box::new(PathQuery::parse(rest).ok_or_else(|| PathError::Syntax {
                path: path(),
                reason: "it is not supported".to_owned(),
            })?)),
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
    pub fn find<'a>(&self, roots: &'a dyn Roots) -> Result<Option<Cow<'a, Value>>, EvaluationLimitExceeded> {
        self.find_on_budget(roots).map_err(|exhausted| exhausted.at(&self.text))
    }

    pub(crate) fn find_on_budget<'a>(
        &self,
        roots: &'a dyn Roots,
    ) -> Result<Option<Cow<'a, Value>>, BudgetExhausted> {
        roots.budget().charge_steps(1 + self.steps.len() as u64)?;
        let place = match self.steps.split_first() {
            Some((Segment::Name(name), rest)) => {
                follow_segments(roots.root_field(self.root, name)?, rest, roots.budget())?
            }
            _ => follow_segments(roots.root_value(self.root)?, &self.steps, roots.budget())?,
        };
        match (&self.query, place) {
            (None, place) => Ok(place),
            (Some(_), None) => Ok(Some(Cow::Owned(Value::Array(Vec::new())))),
            (Some(query), Some(place)) => query.select(roots, &place).map(|found| Some(Cow::Owned(found))),
        }
    }

    /// The value for a template: a missing value is an error, or null if the path is optional.
    pub fn get<'a>(&self, roots: &'a dyn Roots) -> Result<Cow<'a, Value>, ReadError> {
        match self.find(roots)? {
            Some(value) => Ok(value),
            None if self.optional => Ok(Cow::Owned(Value::Null)),
            None => Err(MissingValue { path: self.text.clone() }.into()),
        }
    }
}

impl PathQuery {
    fn parse(text: &str) -> Option<Self> {
        let mut absolute = Vec::new();
        let segments: Vec<QuerySegment> = query_parser::parse_segments(text, &mut absolute)?;
        Some(Self { query: Query { start: Start::Current, segments }, absolute })
    }

    /// Copies the values that the query selects into an array.
    fn select(&self, roots: &dyn Roots, place: &Value) -> Result<Value, BudgetExhausted> {
        let budget = roots.budget();
        let mut absolute = Vec::with_capacity(self.absolute.len());
        for value in &self.absolute {
            absolute.push(value.find(roots)?);
        }
        let absolute: Vec<Option<&Value>> = absolute.iter().map(Option::as_deref).collect();
        let mut found = Vec::new();
        let _ = QueryEvaluator { budget, absolute: &absolute }.select(&self.query, place, &mut |value| {
            // While the array grows, its old and its new memory exist side by side.
            budget.charge_bytes(3 * memory::VALUE_BYTES)?;
            found.push(budget.copy(value)?);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(Value::Array(found))
    }
}

fn follow_segments<'a>(
    value: Option<Cow<'a, Value>>,
    steps: &[Segment],
    budget: &EvaluationBudget,
) -> Result<Option<Cow<'a, Value>>, BudgetExhausted> {
    if steps.is_empty() {
        return Ok(value);
    }
    match value {
        None => Ok(None),
        Some(Cow::Borrowed(value)) => Ok(steps.iter().try_fold(value, follow_segment).map(Cow::Borrowed)),
        Some(Cow::Owned(value)) => {
            let found = steps.iter().try_fold(&value, follow_segment);
            found.map(|found| budget.copy(found).map(Cow::Owned)).transpose()
        }
    }
}

fn follow_segment<'a>(value: &'a Value, segment: &Segment) -> Option<&'a Value> {
    match segment {
        Segment::Name(name) => value.as_object()?.get(name),
        Segment::Index(index) => {
            let array = value.as_array()?;
            array.get(query_evaluator::position(*index, array.len())?)
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
mod oracle;
#[cfg(test)]
mod tests;

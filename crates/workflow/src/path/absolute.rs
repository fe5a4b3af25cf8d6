//! The values that filters refer to by `$`. They do not depend on the tested value, so they are found once per
//! evaluation, and only the part of the data that is named is read.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::query::{QuerySegment, Selector};
use super::{Root, Roots};
use crate::evaluation::{BudgetExhausted, memory};

/// Where a query inside a filter starts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum AbsoluteValue {
    /// `$.root.name`.
    Field(Root, String),
    /// `$.root`.
    Root(Root),
    /// `$` alone, or with something else than a name after it: an object of all roots.
    Document,
    /// There is no such root.
    Nothing,
}

/// Splits the segments of a query that starts with `$` into the value it starts at and the rest.
pub(super) fn split_root(mut segments: Vec<QuerySegment>) -> (AbsoluteValue, Vec<QuerySegment>) {
    let Some(name) = segments.first().and_then(single_name) else {
        return (AbsoluteValue::Document, segments);
    };
    let Some(root) = Root::from_name(name) else {
        return (AbsoluteValue::Nothing, Vec::new());
    };
    let field = segments.get(1).and_then(single_name).map(str::to_owned);
    segments.drain(..if field.is_some() { 2 } else { 1 });
    (field.map_or(AbsoluteValue::Root(root), |name| AbsoluteValue::Field(root, name)), segments)
}

fn single_name(segment: &QuerySegment) -> Option<&str> {
    match segment.selectors.as_slice() {
        [Selector::Name(name)] if !segment.descends => Some(name),
        _ => None,
    }
}

impl AbsoluteValue {
    pub(super) fn find<'a>(&self, roots: &'a dyn Roots) -> Result<Option<Cow<'a, Value>>, BudgetExhausted> {
        match self {
            Self::Field(root, name) => roots.root_field(*root, name),
            Self::Root(root) => roots.root_value(*root),
            Self::Nothing => Ok(None),
            Self::Document => {
                roots.budget().charge_bytes(memory::object(Root::ALL.len()))?;
                let mut document = Map::new();
                for (root, name) in Root::ALL {
                    let value = match roots.root_value(root)? {
                        None => continue,
                        Some(Cow::Borrowed(value)) => roots.budget().copy(value)?,
                        Some(Cow::Owned(value)) => value,
                    };
                    document.insert(name.to_owned(), value);
                }
                Ok(Some(Cow::Owned(Value::Object(document))))
            }
        }
    }
}

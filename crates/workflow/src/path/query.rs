//! A JSONPath query as a tree: what `query_parser` reads and `query_evaluator` walks.

use serde_json::Value;

/// Segments, applied one after the other to one value.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Query {
    pub(super) start: Start,
    pub(super) segments: Vec<QuerySegment>,
}

/// The value that a query starts at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Start {
    /// The value that the filter tests, or that the whole query is applied to.
    Current,
    /// One of the values that the filters of a path refer to by `$`, see [`super::absolute`].
    Absolute(usize),
}

/// One segment: its selectors, applied to a value, or to it and everything below it.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct QuerySegment {
    pub(super) descends: bool,
    pub(super) selectors: Vec<Selector>,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) enum Selector {
    Name(String),
    Wildcard,
    /// Negative counts from the end.
    Index(i64),
    Slice {
        start: Option<i64>,
        end: Option<i64>,
        step: i64,
    },
    Filter(Test),
}

/// What a filter tests.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Test {
    Or(Vec<Test>),
    And(Vec<Test>),
    Not(Box<Test>),
    /// The query selects something.
    Exists(Query),
    Compare {
        left: Operand,
        comparison: Comparison,
        right: Operand,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// One side of a comparison: a value, or nothing.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Operand {
    Literal(Value),
    /// The one value that a query selects: also the function `value()`.
    ValueOf(Query),
    /// The function `length()`.
    Length(Box<Operand>),
    /// The function `count()`.
    Count(Query),
}

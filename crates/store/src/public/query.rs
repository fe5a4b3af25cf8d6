//! Questions to a public table, and the pages that answer them.

use super::{Position, PublicRow, TableSchema};
use crate::rows::StoreError;

/// Which rows, in which order, how many.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Query {
    /// Column → the text it must equal. All must hold.
    pub equals: Vec<(String, String)>,
    /// Rows at or after this moment.
    pub from: Option<i64>,
    /// Rows before this moment.
    pub until: Option<i64>,
    /// Oldest first instead of newest first.
    pub oldest_first: bool,
    /// Rows in a page, 1 to [`Query::LIMIT_MAX`].
    pub limit: usize,
    /// Where the last page ended, as that page said it.
    pub continuation: Option<String>,
}

/// One page of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    /// The rows.
    pub rows: Vec<PublicRow>,
    /// What to ask with for the next page, or `None` at the end. Only good for the same question to the same store.
    pub continuation: Option<String>,
}

/// Why a question got no answer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum QueryError {
    /// No such column, or one that cannot be asked for.
    #[error("table {table} cannot be asked by column {column:?}")]
    Filter {
        /// Which table.
        table: &'static str,
        /// What was asked.
        column: String,
    },
    /// More rows than a page has, or none.
    #[error("a page has 1 to {max} rows, not {limit}", max = Query::LIMIT_MAX)]
    Limit {
        /// What was asked.
        limit: usize,
    },
    /// The continuation token was not made by this store for this question.
    #[error("the continuation token is not one that this store gave for this question")]
    Continuation,
    /// The store failed; the question may be repeated.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Default for Query {
    fn default() -> Self {
        Self {
            equals: Vec::new(),
            from: None,
            until: None,
            oldest_first: false,
            limit: 50,
            continuation: None,
        }
    }
}

impl Query {
    /// Most rows in a page.
    pub const LIMIT_MAX: usize = 1_000;
    /// Most rows a page looks at before it stops, however few passed.
    pub const EXAMINED_MAX: usize = 1_000;
    /// Most filters at once.
    pub const FILTERS_MAX: usize = 8;

    /// Adds a filter.
    #[must_use]
    pub fn equal(mut self, column: &str, value: &str) -> Self {
        self.equals.push((column.to_owned(), value.to_owned()));
        self
    }

    /// Rows in a page.
    #[must_use]
    pub fn limit(mut self, rows: usize) -> Self {
        self.limit = rows;
        self
    }

    /// Goes on where a page ended.
    #[must_use]
    pub fn after(mut self, continuation: Option<String>) -> Self {
        self.continuation = continuation;
        self
    }

    /// Whether the table can be asked this. Backends call it first.
    pub fn check(&self, table: &TableSchema) -> Result<(), QueryError> {
        if self.limit == 0 || self.limit > Self::LIMIT_MAX {
            return Err(QueryError::Limit { limit: self.limit });
        }
        let unknown = self.equals.iter().find(|(column, _)| !table.filters_by(column));
        let too_many = || self.equals.get(Self::FILTERS_MAX);
        match unknown.or_else(too_many) {
            Some((column, _)) => {
                Err(QueryError::Filter { table: table.name, column: column.chars().take(64).collect() })
            }
            None => Ok(()),
        }
    }

    /// Whether a row passes every filter.
    pub fn accepts(&self, table: &TableSchema, row: &PublicRow) -> bool {
        let in_time = row.ordered_at(table).is_some_and(|at| {
            self.from.is_none_or(|from| at >= from) && self.until.is_none_or(|until| at < until)
        });
        in_time && self.equals.iter().all(|(column, value)| row.text(column) == Some(value))
    }

    /// Whether `position` comes after `last` in this query's order.
    pub fn is_after(&self, position: &Position, last: &Position) -> bool {
        if self.oldest_first { position > last } else { position < last }
    }
}

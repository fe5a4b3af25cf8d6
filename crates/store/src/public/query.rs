//! Queries of a public table and their pages.
//!
//! A query knows nothing of indexes: the backend chooses how to find the rows.

use abide_ids::Timestamp;

use super::{PublicRow, RowPosition, TableSchema};
use crate::rows::StoreError;

/// The filters, the order and the page size of a query.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublicQuery {
    /// Column → the text that it must equal. A row must match all filters.
    pub filters: Vec<(String, String)>,
    /// Only rows at or after this time.
    pub from: Option<Timestamp>,
    /// Only rows before this time.
    pub until: Option<Timestamp>,
    /// Oldest first instead of newest first.
    pub oldest_first: bool,
    /// The most rows of a page, 1 to [`PublicQuery::LIMIT_MAX`].
    pub limit: usize,
    /// The token of the previous page.
    pub continuation: Option<String>,
}

/// One page of matching rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublicPage {
    pub rows: Vec<PublicRow>,
    /// The token for the next page, or `None` at the end. Valid only for the same query to the same store.
    pub continuation: Option<String>,
}

/// Why a query failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PublicQueryError {
    /// The column does not exist or has no index, or there are too many filters.
    #[error("table {table} cannot be filtered by column {column:?}")]
    UnknownFilter { table: &'static str, column: String },
    #[error("a page has 1 to {max} rows, not {limit}", max = PublicQuery::LIMIT_MAX)]
    InvalidLimit { limit: usize },
    #[error("invalid continuation token: issued by another store or for another query")]
    InvalidContinuation,
    /// The store failed; the query may be repeated.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Default for PublicQuery {
    fn default() -> Self {
        Self {
            filters: Vec::new(),
            from: None,
            until: None,
            oldest_first: false,
            limit: 50,
            continuation: None,
        }
    }
}

impl PublicQuery {
    /// The most rows in a page.
    pub const LIMIT_MAX: usize = 1_000;
    /// The most rows that a page examines, however few of them match.
    pub const EXAMINED_MAX: usize = 1_000;
    /// The most filters of a query.
    pub const FILTERS_MAX: usize = 8;

    #[must_use]
    pub fn filter(mut self, column: &str, value: &str) -> Self {
        self.filters.push((column.to_owned(), value.to_owned()));
        self
    }

    /// Sets the most rows of a page.
    #[must_use]
    pub fn limit(mut self, rows: usize) -> Self {
        self.limit = rows;
        self
    }

    /// Continues after a page, with its token.
    #[must_use]
    pub fn continue_from(mut self, continuation: Option<String>) -> Self {
        self.continuation = continuation;
        self
    }

    /// Checks that the table supports the query. Backends call this first.
    pub fn check(&self, table: &TableSchema) -> Result<(), PublicQueryError> {
        if self.limit == 0 || self.limit > Self::LIMIT_MAX {
            return Err(PublicQueryError::InvalidLimit { limit: self.limit });
        }
        let unknown = self.filters.iter().find(|(column, _)| !table.can_filter_by(column));
        let too_many = || self.filters.get(Self::FILTERS_MAX);
        match unknown.or_else(too_many) {
            Some((column, _)) => Err(PublicQueryError::UnknownFilter {
                table: table.name,
                column: column.chars().take(64).collect(),
            }),
            None => Ok(()),
        }
    }

    /// True if a row matches every filter.
    pub fn matches(&self, table: &TableSchema, row: &PublicRow) -> bool {
        let in_time = row.order_time(table).is_some_and(|at| {
            self.from.is_none_or(|from| at >= from) && self.until.is_none_or(|until| at < until)
        });
        in_time && self.filters.iter().all(|(column, value)| row.text(column) == Some(value))
    }

    /// True if `position` comes after `last` in the order of this query.
    pub fn is_after(&self, position: &RowPosition, last: &RowPosition) -> bool {
        if self.oldest_first { position > last } else { position < last }
    }
}

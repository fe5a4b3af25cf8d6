//! Public tables: declared columns, queried by people and other programs.
//!
//! They are fed at least once under deterministic keys, milliseconds behind the truth, and the runtime never decides on what
//! it reads here. Nothing in this folder knows what a table is about; the declarations are in [`crate::tables`].

mod query;
mod row;
mod schema;
mod token;

use std::future::Future;

pub use query::{Page, Query, QueryError};
pub use row::{PublicKey, PublicRow, PublicWrite, PutError, Value};
pub use schema::{Column, Index, Kind, TableSchema};
pub use token::{Position, TokenKey};

use crate::rows::StoreError;

/// Feeding and asking public tables.
pub trait PublicTables: Send + Sync {
    /// Writes rows and deletions by key, durable when it answers. A row is replaced only by one of the same or a higher
    /// revision, and deleted only up to the one the deletion names, so feeding the same facts again, in any order, ends in the
    /// same table. But a deletion leaves nothing: an older state that comes after it is there again. After an error the same call may be repeated: some or all of it may have
    /// happened.
    fn put(
        &self,
        table: &'static TableSchema,
        writes: Vec<PublicWrite>,
    ) -> impl Future<Output = Result<(), PutError>> + Send;

    /// One row by its key.
    fn get(
        &self,
        table: &'static TableSchema,
        key: &PublicKey,
    ) -> impl Future<Output = Result<Option<PublicRow>, StoreError>> + Send;

    /// One page of the rows that pass every filter, in order of time. A page examines a bounded number of rows, so it may
    /// have fewer than asked for, even none, and still name a next page.
    fn query(
        &self,
        table: &'static TableSchema,
        query: &Query,
    ) -> impl Future<Output = Result<Page, QueryError>> + Send;
}

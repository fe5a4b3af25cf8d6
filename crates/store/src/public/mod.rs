//! Public tables: declared columns, queried by people and other programs.
//!
//! Rows are written at least once under deterministic keys, milliseconds behind the truth, and the runtime never bases
//! a decision on them. Nothing in this folder knows the meaning of a table; the declarations are in [`crate::tables`].

mod continuation_token;
mod query;
mod row;
mod schema;

use std::future::Future;

pub use continuation_token::{RowPosition, TokenKey};
pub use query::{PublicPage, PublicQuery, PublicQueryError};
pub use row::{CellValue, PublicKey, PublicPutError, PublicRow, PublicWrite};
pub use schema::{Column, ColumnType, IndexColumns, TableSchema};

use crate::rows::StoreError;

/// Writes and queries of public tables.
pub trait PublicTables: Send + Sync {
    /// Writes and deletes rows by key; durable when this returns. A row is replaced only by one of the same or a higher
    /// revision, and deleted only if its revision is not above that of the deletion. So repeating the same writes, in
    /// any order, ends in the same table. But a deletion leaves no trace: an older row that is written after it appears
    /// again. After an error the same call may be repeated: some or all of the writes may have been applied.
    fn put(
        &self,
        table: &'static TableSchema,
        writes: Vec<PublicWrite>,
    ) -> impl Future<Output = Result<(), PublicPutError>> + Send;

    /// Reads one row by its key.
    fn get(
        &self,
        table: &'static TableSchema,
        key: &PublicKey,
    ) -> impl Future<Output = Result<Option<PublicRow>, StoreError>> + Send;

    /// Reads the first row, in the order of keys, of the partition of `prefix` whose row key begins with that of
    /// `prefix`.
    fn get_first(
        &self,
        table: &'static TableSchema,
        prefix: &PublicKey,
    ) -> impl Future<Output = Result<Option<PublicRow>, StoreError>> + Send;

    /// Reads one page of the rows that match every filter, in order of time. A page examines a bounded number of rows,
    /// so it may have fewer rows than its limit, even none, and still have a next page.
    fn query(
        &self,
        table: &'static TableSchema,
        query: &PublicQuery,
    ) -> impl Future<Output = Result<PublicPage, PublicQueryError>> + Send;
}

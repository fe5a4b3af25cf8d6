//! Public tables: `instances`, `engineHistory`, `engineDlq`, with declared columns for people and other programs.
//!
//! They are fed at least once under deterministic keys, so writing a row twice is one row. The runtime never decides on what
//! it reads here.

use std::collections::BTreeMap;
use std::future::Future;

use crate::rows::StoreError;

/// A row of a public table: its deterministic key and its declared columns, as text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublicRow {
    /// Same fact, same key: a second write replaces the first by the same content.
    pub row_key: String,
    /// Column name → value. Names outside the table's declaration are refused.
    pub columns: BTreeMap<String, String>,
}

/// Feeding public tables. Queries join this trait with the tables that need them.
pub trait PublicTables: Send + Sync {
    /// Writes or replaces rows by key.
    fn put(&self, table: &str, rows: Vec<PublicRow>) -> impl Future<Output = Result<(), StoreError>> + Send;
}

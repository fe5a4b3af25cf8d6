//! A row of a public table, and the check that it matches the table's declaration.
//!
//! The columns of the tables are not known here: the check takes the declaration.

use std::collections::BTreeMap;

use abide_ids::Timestamp;
use serde::{Deserialize, Serialize};

use super::{ColumnType, TableSchema};
use crate::rows::StoreError;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CellValue {
    /// The value of a text or JSON column.
    Text(String),
    /// The value of an integer column.
    Integer(i64),
    /// The value of a time column: milliseconds of UTC since 1970.
    Time(Timestamp),
}

/// The key of a public row. It is deterministic: repeating a write replaces the row by the same content.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct PublicKey {
    /// The `PartitionKey` that other programs see.
    pub partition: String,
    /// The `RowKey` that other programs see.
    pub row: String,
}

impl PublicKey {
    /// The longest partition key or row key, in bytes: the limit of Azure Tables.
    pub const BYTES_MAX: usize = 512;
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PublicRow {
    pub key: PublicKey,
    /// Orders the states of the row; a lower revision never replaces a higher one.
    pub revision: u64,
    /// Column name → value. An absent column is null.
    pub columns: BTreeMap<String, CellValue>,
}

/// One change of a public table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PublicWrite {
    /// Write the row, unless the stored row has a higher revision.
    Put(PublicRow),
    /// Delete the row, unless the stored row has a higher revision. The deletion leaves no trace: a later put writes
    /// the row again.
    Delete {
        key: PublicKey,
        /// The highest revision that is deleted.
        revision: u64,
    },
}

/// Why a put failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PublicPutError {
    /// The row does not match the table's declaration: the caller's mistake, so every attempt fails. Nothing was
    /// written.
    #[error("row {row:?} does not match table {table}: {problem}")]
    Malformed { table: &'static str, row: String, problem: String },
    /// The store failed; the call may be repeated.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl PublicRow {
    /// The largest row, in bytes of keys and cells.
    pub const BYTES_MAX: usize = 1024 * 1024;

    /// The most rows in one put.
    pub const PUT_ROWS_MAX: usize = 1_000;

    /// The most bytes in one put.
    pub const PUT_BYTES_MAX: usize = 16 * 1024 * 1024;

    /// Bytes in one page of a query. The row that crosses this limit is the last of its page.
    pub const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

    /// The text in a column, if there is one.
    pub fn text(&self, column: &str) -> Option<&str> {
        match self.columns.get(column) {
            Some(CellValue::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// The time that this row is ordered by.
    pub fn order_time(&self, table: &TableSchema) -> Option<Timestamp> {
        match self.columns.get(table.order_column) {
            Some(CellValue::Time(at)) => Some(*at),
            _ => None,
        }
    }

    /// Bytes of keys and cells.
    pub fn size_bytes(&self) -> usize {
        let cell = |value: &CellValue| if let CellValue::Text(text) = value { text.len() } else { 8 };
        let cells = self.columns.iter().map(|(name, value)| name.len() + cell(value));
        self.key.partition.len() + self.key.row.len() + cells.sum::<usize>()
    }
}

impl PublicWrite {
    /// The key of the row that is written or deleted.
    pub fn key(&self) -> &PublicKey {
        match self {
            Self::Put(row) => &row.key,
            Self::Delete { key, .. } => key,
        }
    }

    /// Checks that all writes of a put match the table. Backends call this first.
    pub fn check_all(writes: &[Self], table: &TableSchema) -> Result<(), PublicPutError> {
        if writes.len() > PublicRow::PUT_ROWS_MAX {
            let problem =
                format!("{} rows in one put exceed the limit of {}", writes.len(), PublicRow::PUT_ROWS_MAX);
            return Err(PublicPutError::Malformed { table: table.name, row: String::new(), problem });
        }
        let bytes: usize = writes.iter().map(Self::size_bytes).sum();
        if bytes > PublicRow::PUT_BYTES_MAX {
            let problem =
                format!("{bytes} bytes in one put exceed the limit of {}", PublicRow::PUT_BYTES_MAX);
            return Err(PublicPutError::Malformed { table: table.name, row: String::new(), problem });
        }
        writes.iter().try_for_each(|write| write.check(table))
    }

    /// Bytes of keys and cells.
    pub fn size_bytes(&self) -> usize {
        match self {
            Self::Put(row) => row.size_bytes(),
            Self::Delete { key, .. } => key.partition.len() + key.row.len(),
        }
    }

    /// Checks that the write matches the table.
    pub fn check(&self, table: &TableSchema) -> Result<(), PublicPutError> {
        let malformed =
            |problem| PublicPutError::Malformed { table: table.name, row: self.key().row.clone(), problem };
        let key = self.key();
        for (name, text) in [("partition key", &key.partition), ("row key", &key.row)] {
            if text.is_empty() || text.len() > PublicKey::BYTES_MAX || text.contains('\0') {
                return Err(malformed(format!(
                    "its {name} must have 1 to {} bytes and no NUL",
                    PublicKey::BYTES_MAX
                )));
            }
        }
        let Self::Put(row) = self else { return Ok(()) };
        if row.size_bytes() > PublicRow::BYTES_MAX {
            let problem = format!("{} bytes exceed the limit of {}", row.size_bytes(), PublicRow::BYTES_MAX);
            return Err(malformed(problem));
        }
        for (name, value) in &row.columns {
            let column =
                table.column(name).ok_or_else(|| malformed(format!("the table has no column {name}")))?;
            let fits = matches!(
                (column.column_type, value),
                (ColumnType::Text | ColumnType::Json, CellValue::Text(_))
                    | (ColumnType::Integer, CellValue::Integer(_))
                    | (ColumnType::Time, CellValue::Time(_))
            );
            if !fits {
                return Err(malformed(format!("column {name} must be of type {:?}", column.column_type)));
            }
        }
        match table.columns.iter().find(|column| column.required && !row.columns.contains_key(column.name)) {
            Some(column) => Err(malformed(format!("column {} is missing", column.name))),
            None => Ok(()),
        }
    }
}

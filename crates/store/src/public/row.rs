//! A row of a public table, and whether it fits its declaration.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Kind, TableSchema};
use crate::rows::StoreError;

/// A cell.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Value {
    /// Of a text or JSON column.
    Text(String),
    /// Of a number column.
    Integer(i64),
    /// Of a time column: milliseconds of UTC since 1970.
    Time(i64),
}

/// Same fact, same key: a second write replaces the first by the same content.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct PublicKey {
    /// The `PartitionKey` of the outside world.
    pub partition: String,
    /// The `RowKey` of the outside world.
    pub row: String,
}

impl PublicKey {
    /// Longest partition or row key, in bytes: what fits an Azure Tables key.
    pub const BYTES_MAX: usize = 512;
}

/// A row.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PublicRow {
    /// Where it is.
    pub key: PublicKey,
    /// Which state of the fact this is; a lower one never replaces a higher one.
    pub revision: u64,
    /// Column name → value. An absent column is null.
    pub columns: BTreeMap<String, Value>,
}

/// One change of a public table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PublicWrite {
    /// Write the row, unless one of a higher revision is there.
    Put(PublicRow),
    /// Remove the row, unless one of a higher revision is there. Nothing is left: a put that comes after it writes the row again.
    Delete {
        /// Where it is.
        key: PublicKey,
        /// The last state of the fact that goes.
        revision: u64,
    },
}

/// Why rows could not be put.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PutError {
    /// The row does not fit the table: the caller's mistake, the same on every attempt. Nothing was written.
    #[error("row {row:?} does not fit table {table}: {problem}")]
    Malformed {
        /// Which table.
        table: &'static str,
        /// Which row.
        row: String,
        /// What is wrong.
        problem: String,
    },
    /// The store failed; the call may be repeated.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl PublicRow {
    /// Longest encoded row, in bytes.
    pub const BYTES_MAX: usize = 1024 * 1024;

    /// Rows in one put.
    pub const PUT_MAX: usize = 1_000;

    /// Bytes in one put.
    pub const PUT_BYTES_MAX: usize = 16 * 1024 * 1024;

    /// Bytes in one page of an answer. The row that crosses this bound is the last of its page.
    pub const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

    /// The text in a column, if there is one.
    pub fn text(&self, column: &str) -> Option<&str> {
        match self.columns.get(column) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// The moment this row is ordered by.
    pub fn ordered_at(&self, table: &TableSchema) -> Option<i64> {
        match self.columns.get(table.ordered_by) {
            Some(Value::Time(at)) => Some(*at),
            _ => None,
        }
    }

    /// Bytes of keys and cells.
    pub fn bytes(&self) -> usize {
        let cell = |value: &Value| if let Value::Text(text) = value { text.len() } else { 8 };
        let cells = self.columns.iter().map(|(name, value)| name.len() + cell(value));
        self.key.partition.len() + self.key.row.len() + cells.sum::<usize>()
    }
}

impl PublicWrite {
    /// The row it is about.
    pub fn key(&self) -> &PublicKey {
        match self {
            Self::Put(row) => &row.key,
            Self::Delete { key, .. } => key,
        }
    }

    /// Whether all writes of a put fit the table. Backends call it first.
    pub fn check_all(writes: &[Self], table: &TableSchema) -> Result<(), PutError> {
        if writes.len() > PublicRow::PUT_MAX {
            let problem = format!("{} rows in one put are over {}", writes.len(), PublicRow::PUT_MAX);
            return Err(PutError::Malformed { table: table.name, row: String::new(), problem });
        }
        let bytes: usize = writes.iter().map(Self::bytes).sum();
        if bytes > PublicRow::PUT_BYTES_MAX {
            let problem = format!("{bytes} bytes in one put are over {}", PublicRow::PUT_BYTES_MAX);
            return Err(PutError::Malformed { table: table.name, row: String::new(), problem });
        }
        writes.iter().try_for_each(|write| write.check(table))
    }

    /// Bytes of keys and cells.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Put(row) => row.bytes(),
            Self::Delete { key, .. } => key.partition.len() + key.row.len(),
        }
    }

    /// Whether it fits the table.
    pub fn check(&self, table: &TableSchema) -> Result<(), PutError> {
        let malformed =
            |problem| PutError::Malformed { table: table.name, row: self.key().row.clone(), problem };
        let key = self.key();
        for (name, text) in [("partition key", &key.partition), ("row key", &key.row)] {
            if text.is_empty() || text.len() > PublicKey::BYTES_MAX || text.contains('\0') {
                return Err(malformed(format!(
                    "its {name} is not 1 to {} bytes without NUL",
                    PublicKey::BYTES_MAX
                )));
            }
        }
        let Self::Put(row) = self else { return Ok(()) };
        if row.bytes() > PublicRow::BYTES_MAX {
            return Err(malformed(format!("{} bytes are over {}", row.bytes(), PublicRow::BYTES_MAX)));
        }
        for (name, value) in &row.columns {
            let column = table.column(name).ok_or_else(|| malformed(format!("it has no column {name}")))?;
            let fits = matches!(
                (column.kind, value),
                (Kind::Text | Kind::Json, Value::Text(_))
                    | (Kind::Integer, Value::Integer(_))
                    | (Kind::Time, Value::Time(_))
            );
            if !fits {
                return Err(malformed(format!("column {name} does not hold a {:?}", column.kind)));
            }
        }
        match table.columns.iter().find(|column| column.required && !row.columns.contains_key(column.name)) {
            Some(column) => Err(malformed(format!("column {} is missing", column.name))),
            None => Ok(()),
        }
    }
}

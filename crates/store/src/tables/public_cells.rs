//! Cells and keys of public rows: what the files of the public tables share.
//!
//! A null is the absence of a cell. A cell that is missing or of another kind is told with table and column,
//! because such rows can come from other programs. Which columns a table has is not known here.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::public::{Column, Kind, PublicKey, PublicRow, TableSchema, Value};

/// A row of a public table that does not read as what the table is about.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("column {column} of a row of table {table} is missing or has no value that can be read")]
pub struct ColumnError {
    /// Which table.
    pub table: &'static str,
    /// Which column; `RowKey` for the key.
    pub column: &'static str,
}

/// A column every row has.
pub(super) const fn required(name: &'static str, kind: Kind) -> Column {
    Column { name, kind, required: true }
}

/// A column that may be null.
pub(super) const fn optional(name: &'static str, kind: Kind) -> Column {
    Column { name, kind, required: false }
}

/// Collects the cells of a row.
#[derive(Debug, Default)]
pub(super) struct CellWriter(BTreeMap<String, Value>);

impl CellWriter {
    pub(super) fn text(self, column: &str, text: &str) -> Self {
        self.cell(column, Some(Value::Text(text.to_owned())))
    }

    pub(super) fn optional_text(self, column: &str, text: Option<&str>) -> Self {
        self.cell(column, text.map(|text| Value::Text(text.to_owned())))
    }

    pub(super) fn integer(self, column: &str, number: i64) -> Self {
        self.cell(column, Some(Value::Integer(number)))
    }

    pub(super) fn time(self, column: &str, at: i64) -> Self {
        self.cell(column, Some(Value::Time(at)))
    }

    pub(super) fn optional_time(self, column: &str, at: Option<i64>) -> Self {
        self.cell(column, at.map(Value::Time))
    }

    pub(super) fn row(self, key: PublicKey, revision: u64) -> PublicRow {
        PublicRow { key, revision, columns: self.0 }
    }

    fn cell(mut self, column: &str, value: Option<Value>) -> Self {
        if let Some(value) = value {
            self.0.insert(column.to_owned(), value);
        }
        self
    }
}

/// Takes the cells of a row apart again.
#[derive(Debug)]
pub(super) struct CellReader<'r> {
    table: &'static str,
    row: &'r PublicRow,
}

impl<'r> CellReader<'r> {
    pub(super) fn new(table: &TableSchema, row: &'r PublicRow) -> Self {
        Self { table: table.name, row }
    }

    pub(super) fn text(&self, column: &'static str) -> Result<String, ColumnError> {
        self.optional_text(column)?.ok_or_else(|| self.unreadable(column))
    }

    pub(super) fn optional_text(&self, column: &'static str) -> Result<Option<String>, ColumnError> {
        match self.row.columns.get(column) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text.clone())),
            Some(_) => Err(self.unreadable(column)),
        }
    }

    pub(super) fn integer(&self, column: &'static str) -> Result<i64, ColumnError> {
        match self.row.columns.get(column) {
            Some(Value::Integer(number)) => Ok(*number),
            _ => Err(self.unreadable(column)),
        }
    }

    pub(super) fn time(&self, column: &'static str) -> Result<i64, ColumnError> {
        self.optional_time(column)?.ok_or_else(|| self.unreadable(column))
    }

    pub(super) fn optional_time(&self, column: &'static str) -> Result<Option<i64>, ColumnError> {
        match self.row.columns.get(column) {
            None => Ok(None),
            Some(Value::Time(at)) => Ok(Some(*at)),
            Some(_) => Err(self.unreadable(column)),
        }
    }

    pub(super) fn unreadable(&self, column: &'static str) -> ColumnError {
        ColumnError { table: self.table, column }
    }
}

/// The row key of a fact: `{id}-{timestamp}`, the milliseconds of UTC since 1970 in 15 digits, so that keys
/// of one id sort by time. A moment before 1970 counts as 1970.
pub(super) fn row_key(id: &str, at: i64) -> String {
    format!("{}-{:015}", escape(id), at.max(0))
}

/// A text in the alphabet of Azure table keys: `/ \ # ?` and control characters are not allowed there, so
/// their bytes become `%XX`, and so does `%` itself, which keeps different texts different.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, '/' | '\\' | '#' | '?' | '%') || character.is_control() {
            for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                // Writing to a string cannot fail.
                let _ = write!(escaped, "%{byte:02X}");
            }
        } else {
            escaped.push(character);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::super::{engine_dlq, engine_history, public_instances};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tables_are_ordered_by_a_required_time_and_indexed_by_text() {
        let schemas = [&public_instances::SCHEMA, &engine_history::SCHEMA, &engine_dlq::SCHEMA];
        for (place, schema) in schemas.into_iter().enumerate() {
            assert_eq!(usize::from(schema.tag), place + 1);
            let order = schema.column(schema.ordered_by);
            assert!(order.is_some_and(|column| column.required && column.kind == Kind::Time));
            for index in schema.indexes {
                for name in *index {
                    let column = schema.column(name);
                    assert!(column.is_some_and(|column| column.kind == Kind::Text), "{}.{name}", schema.name);
                    assert!(schema.filters_by(name), "{}.{name} has no index of its own", schema.name);
                }
            }
            for column in schema.columns {
                let same_name = schema.columns.iter().filter(|other| other.name == column.name);
                assert_eq!(same_name.count(), 1, "{}.{} is declared twice", schema.name, column.name);
            }
        }
    }

    #[test]
    fn keys_have_no_character_that_azure_refuses() {
        assert_eq!(row_key("/plans/a#b?", 1_700_000_000_000), "%2Fplans%2Fa%23b%3F-001700000000000");
        assert_eq!(row_key("50%", -1), "50%25-000000000000000");
        assert_eq!(row_key("\\\u{0}\u{7f}\u{85}ü", 0), "%5C%00%7F%C2%85ü-000000000000000");
    }

    proptest! {
        #[test]
        fn different_ids_and_moments_have_different_keys(
            one in ("[-a/%2F0\u{0}]{0,4}", 0..3i64),
            other in ("[-a/%2F0\u{0}]{0,4}", 0..3i64),
        ) {
            prop_assert_eq!(row_key(&one.0, one.1) == row_key(&other.0, other.1), one == other);
            prop_assert_eq!(escape(&one.0) == escape(&other.0), one.0 == other.0);
        }
    }
}

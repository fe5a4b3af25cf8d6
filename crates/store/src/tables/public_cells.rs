//! Cells and keys of public rows, shared by the files of the public tables.
//!
//! A null is the absence of a cell. A cell that is missing or has another type is an error that names table and column,
//! because such rows can come from other programs. The columns of the tables are not known here.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use abide_ids::Timestamp;

use crate::public::{CellValue, Column, ColumnType, PublicKey, PublicRow, TableSchema};

/// A row of a public table has a missing or invalid cell.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("column {column} of a row of table {table} is missing or has an invalid value")]
pub struct ColumnError {
    pub table: &'static str,
    /// The column; `RowKey` for the key.
    pub column: &'static str,
}

/// Declares a column that every row has.
pub(super) const fn required(name: &'static str, column_type: ColumnType) -> Column {
    Column { name, column_type, required: true }
}

/// Declares a column that may be null.
pub(super) const fn optional(name: &'static str, column_type: ColumnType) -> Column {
    Column { name, column_type, required: false }
}

/// Collects the cells of a row.
#[derive(Debug, Default)]
pub(super) struct CellWriter(BTreeMap<String, CellValue>);

impl CellWriter {
    pub(super) fn text(self, column: &str, text: &str) -> Self {
        self.cell(column, Some(CellValue::Text(text.to_owned())))
    }

    pub(super) fn optional_text(self, column: &str, text: Option<&str>) -> Self {
        self.cell(column, text.map(|text| CellValue::Text(text.to_owned())))
    }

    pub(super) fn integer(self, column: &str, number: i64) -> Self {
        self.cell(column, Some(CellValue::Integer(number)))
    }

    pub(super) fn time(self, column: &str, at: Timestamp) -> Self {
        self.cell(column, Some(CellValue::Time(at)))
    }

    pub(super) fn optional_time(self, column: &str, at: Option<Timestamp>) -> Self {
        self.cell(column, at.map(CellValue::Time))
    }

    pub(super) fn into_row(self, key: PublicKey, revision: u64) -> PublicRow {
        PublicRow { key, revision, columns: self.0 }
    }

    fn cell(mut self, column: &str, value: Option<CellValue>) -> Self {
        if let Some(value) = value {
            self.0.insert(column.to_owned(), value);
        }
        self
    }
}

/// Reads the cells of a row.
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
        self.optional_text(column)?.ok_or_else(|| self.column_error(column))
    }

    pub(super) fn optional_text(&self, column: &'static str) -> Result<Option<String>, ColumnError> {
        match self.row.columns.get(column) {
            None => Ok(None),
            Some(CellValue::Text(text)) => Ok(Some(text.clone())),
            Some(_) => Err(self.column_error(column)),
        }
    }

    pub(super) fn integer(&self, column: &'static str) -> Result<i64, ColumnError> {
        match self.row.columns.get(column) {
            Some(CellValue::Integer(number)) => Ok(*number),
            _ => Err(self.column_error(column)),
        }
    }

    pub(super) fn time(&self, column: &'static str) -> Result<Timestamp, ColumnError> {
        self.optional_time(column)?.ok_or_else(|| self.column_error(column))
    }

    pub(super) fn optional_time(&self, column: &'static str) -> Result<Option<Timestamp>, ColumnError> {
        match self.row.columns.get(column) {
            None => Ok(None),
            Some(CellValue::Time(at)) => Ok(Some(*at)),
            Some(_) => Err(self.column_error(column)),
        }
    }

    pub(super) fn column_error(&self, column: &'static str) -> ColumnError {
        ColumnError { table: self.table, column }
    }
}

/// The row key of an event with an id and a time: `{id}-{timestamp}`. The timestamp is the milliseconds of UTC since
/// 1970 in 15 digits, so that the keys of one id sort by time. A time before 1970 counts as 1970.
pub(super) fn row_key(id: &str, at: Timestamp) -> String {
    format!("{}{:015}", row_key_prefix(id), at.0.max(0))
}

/// What the row keys of an id begin with, whatever their times. Complete ids of one length, such as digests, are no
/// prefixes of each other.
pub(super) fn row_key_prefix(id: &str) -> String {
    format!("{}-", escape(id))
}

/// Escapes a text for a key of Azure Tables: `/ \ # ?` and control characters are not allowed there, so their bytes
/// become `%XX`. So does `%` itself, which keeps different texts different.
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
    use super::super::{dead_letters, engine_history, public_instances};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tables_are_ordered_by_a_required_time_and_indexed_by_text() {
        let schemas = [&public_instances::SCHEMA, &engine_history::SCHEMA, &dead_letters::SCHEMA];
        for (index, schema) in schemas.into_iter().enumerate() {
            assert_eq!(usize::from(schema.tag), index + 1);
            let order = schema.column(schema.order_column);
            assert!(order.is_some_and(|column| column.required && column.column_type == ColumnType::Time));
            for index in schema.indexes {
                for name in *index {
                    let column = schema.column(name);
                    assert!(
                        column.is_some_and(|column| column.column_type == ColumnType::Text),
                        "{}.{name}",
                        schema.name
                    );
                    assert!(schema.can_filter_by(name), "{}.{name} has no index of its own", schema.name);
                }
            }
            for column in schema.columns {
                let same_name = schema.columns.iter().filter(|other| other.name == column.name);
                assert_eq!(same_name.count(), 1, "{}.{} is declared twice", schema.name, column.name);
            }
        }
    }

    #[test]
    fn keys_have_no_character_that_azure_rejects() {
        assert_eq!(
            row_key("/plans/a#b?", Timestamp(1_700_000_000_000)),
            "%2Fplans%2Fa%23b%3F-001700000000000"
        );
        assert_eq!(row_key("50%", Timestamp(-1)), "50%25-000000000000000");
        assert_eq!(row_key("\\\u{0}\u{7f}\u{85}ü", Timestamp(0)), "%5C%00%7F%C2%85ü-000000000000000");
    }

    proptest! {
        #[test]
        fn different_ids_and_times_have_different_keys(
            one in ("[-a/%2F0\u{0}]{0,4}", 0..3i64),
            other in ("[-a/%2F0\u{0}]{0,4}", 0..3i64),
        ) {
            let shown = |(id, at): &(String, i64)| row_key(id, Timestamp(*at));
            prop_assert_eq!(shown(&one) == shown(&other), one == other);
            prop_assert_eq!(escape(&one.0) == escape(&other.0), one.0 == other.0);
        }
    }
}

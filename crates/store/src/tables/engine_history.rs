//! The public table `engineHistory`: one row per operation that an engine has finished, successfully or not.
//!
//! Columns, names and types are those of the engines' common tables, which other programs read. A row never changes.
//! This table does not detect repeated operations; [`super::idempotency`] does.

use abide_ids::Timestamp;

use super::public_cells::{self, CellReader, CellWriter, ColumnError, optional, required};
use crate::public::{ColumnType, PublicKey, PublicRow, TableSchema};

/// The declaration of the table.
pub static SCHEMA: TableSchema = TableSchema {
    tag: 2,
    name: "engineHistory",
    columns: &[
        required("Engine", ColumnType::Text),
        required("InstanceId", ColumnType::Text),
        required("Operation", ColumnType::Text),
        required("Status", ColumnType::Text),
        required("DurationMs", ColumnType::Integer),
        required("Input", ColumnType::Json),
        optional("Output", ColumnType::Json),
        optional("Error", ColumnType::Text),
        required("CreatedAtUtc", ColumnType::Time),
        required("CorrelationId", ColumnType::Text),
    ],
    order_column: "CreatedAtUtc",
    indexes: &[
        &["CorrelationId"],
        &["InstanceId"],
        &["Engine", "Status"],
        &["Engine", "Operation"],
        &["Operation"],
        &["Status"],
        &["Engine"],
    ],
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EngineOperationStatus {
    Succeeded,
    Failed,
}

impl EngineOperationStatus {
    /// The word in the column.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    /// The status with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Succeeded, Self::Failed].into_iter().find(|status| status.as_str() == word)
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EngineHistoryRow {
    /// The row's key within the engine, as [`row_key`] makes it. Not a column.
    pub row_key: String,
    /// The engine, which is also the partition.
    pub engine: String,
    /// The instance that the operation was for; `publisher` for operations of the publisher itself.
    pub instance_id: String,
    pub operation: String,
    pub status: EngineOperationStatus,
    pub duration_ms: i64,
    /// The input, as JSON text.
    pub input: String,
    /// The output, as JSON text, if there is one.
    pub output: Option<String>,
    pub error: Option<String>,
    pub created_at: Timestamp,
    pub correlation_id: String,
}

impl EngineHistoryRow {
    /// The public row of this operation.
    pub fn to_public_row(&self, revision: u64) -> PublicRow {
        CellWriter::default()
            .text("Engine", &self.engine)
            .text("InstanceId", &self.instance_id)
            .text("Operation", &self.operation)
            .text("Status", self.status.as_str())
            .integer("DurationMs", self.duration_ms)
            .text("Input", &self.input)
            .optional_text("Output", self.output.as_deref())
            .optional_text("Error", self.error.as_deref())
            .time("CreatedAtUtc", self.created_at)
            .text("CorrelationId", &self.correlation_id)
            .into_row(key(&self.engine, &self.row_key), revision)
    }

    /// Reads the operation of a public row.
    pub fn from_public_row(row: &PublicRow) -> Result<Self, ColumnError> {
        let cells = CellReader::new(&SCHEMA, row);
        let status = EngineOperationStatus::from_word(&cells.text("Status")?);
        Ok(Self {
            row_key: row.key.row.clone(),
            engine: cells.text("Engine")?,
            instance_id: cells.text("InstanceId")?,
            operation: cells.text("Operation")?,
            status: status.ok_or_else(|| cells.column_error("Status"))?,
            duration_ms: cells.integer("DurationMs")?,
            input: cells.text("Input")?,
            output: cells.optional_text("Output")?,
            error: cells.optional_text("Error")?,
            created_at: cells.time("CreatedAtUtc")?,
            correlation_id: cells.text("CorrelationId")?,
        })
    }
}

/// The key of an engine's operation.
pub fn key(engine: &str, row_key: &str) -> PublicKey {
    PublicKey { partition: engine.to_owned(), row: row_key.to_owned() }
}

/// The row key of an operation: `{correlationId}-{timestamp}`. Recording the same operation twice gives one row.
pub fn row_key(correlation_id: &str, at: Timestamp) -> String {
    public_cells::row_key(correlation_id, at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::public::PublicWrite;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_operation_round_trips(
            status in prop::sample::select(vec![EngineOperationStatus::Succeeded, EngineOperationStatus::Failed]),
            engine in "[-a-z]{1,20}",
            texts in (".{0,20}", ".{0,20}", ".{0,20}", ".{1,40}"),
            nullable: [Option<String>; 2],
            numbers: (i64, Timestamp),
            revision: u64,
        ) {
            let (instance_id, operation, input, correlation_id) = texts;
            let [output, error] = nullable;
            let (duration_ms, created_at) = numbers;
            let entry = EngineHistoryRow {
                row_key: row_key(&correlation_id, created_at), engine, instance_id, operation, status,
                duration_ms, input, output, error, created_at, correlation_id,
            };
            let row = entry.to_public_row(revision);
            prop_assert_eq!(row.revision, revision);
            prop_assert_eq!(EngineHistoryRow::from_public_row(&row), Ok(entry));
            prop_assert_eq!(PublicWrite::Put(row).check(&SCHEMA), Ok(()));
        }
    }
}

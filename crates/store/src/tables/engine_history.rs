//! The public table `engineHistory`: one row per operation an engine has finished, well or not.
//!
//! Columns, names and types are those of the engines' common tables, which other programs read. A row never
//! changes. Whether an operation was done already is not decided here, but by [`super::dedupe`].

use super::public_cells::{self, CellReader, CellWriter, ColumnError, optional, required};
use crate::public::{Kind, PublicKey, PublicRow, TableSchema};

/// The declaration of the table.
pub static SCHEMA: TableSchema = TableSchema {
    tag: 2,
    name: "engineHistory",
    columns: &[
        required("Engine", Kind::Text),
        required("InstanceId", Kind::Text),
        required("Operation", Kind::Text),
        required("Status", Kind::Text),
        required("DurationMs", Kind::Integer),
        required("Input", Kind::Json),
        optional("Output", Kind::Json),
        optional("Error", Kind::Text),
        required("CreatedAtUtc", Kind::Time),
        required("CorrelationId", Kind::Text),
    ],
    ordered_by: "CreatedAtUtc",
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

/// How an operation ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HistoryStatus {
    /// Well.
    Succeeded,
    /// With an error.
    Failed,
}

impl HistoryStatus {
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

/// One operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HistoryEntry {
    /// The row's key within the engine, as [`row_key`] makes it. Not a column.
    pub row_key: String,
    /// The engine, which is also the partition.
    pub engine: String,
    /// The instance it was done for; `publisher` for what concerns the publisher itself.
    pub instance_id: String,
    /// What was done.
    pub operation: String,
    /// How it ended.
    pub status: HistoryStatus,
    /// How long it took, in milliseconds.
    pub duration_ms: i64,
    /// Its input, as JSON text.
    pub input: String,
    /// Its output, as JSON text, if it has one.
    pub output: Option<String>,
    /// What went wrong, if something did.
    pub error: Option<String>,
    /// When it was, in milliseconds of UTC since 1970.
    pub created_at: i64,
    /// The trace it belongs to.
    pub correlation_id: String,
}

impl HistoryEntry {
    /// The row of this operation.
    pub fn to_row(&self, revision: u64) -> PublicRow {
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
            .row(key(&self.engine, &self.row_key), revision)
    }

    /// The operation in a row.
    pub fn from_row(row: &PublicRow) -> Result<Self, ColumnError> {
        let cells = CellReader::new(&SCHEMA, row);
        let status = HistoryStatus::from_word(&cells.text("Status")?);
        Ok(Self {
            row_key: row.key.row.clone(),
            engine: cells.text("Engine")?,
            instance_id: cells.text("InstanceId")?,
            operation: cells.text("Operation")?,
            status: status.ok_or_else(|| cells.unreadable("Status"))?,
            duration_ms: cells.integer("DurationMs")?,
            input: cells.text("Input")?,
            output: cells.optional_text("Output")?,
            error: cells.optional_text("Error")?,
            created_at: cells.time("CreatedAtUtc")?,
            correlation_id: cells.text("CorrelationId")?,
        })
    }
}

/// The row of an engine's operation.
pub fn key(engine: &str, row_key: &str) -> PublicKey {
    PublicKey { partition: engine.to_owned(), row: row_key.to_owned() }
}

/// The row key of an operation: `{correlationId}-{timestamp}`. The same operation told twice is one row.
pub fn row_key(correlation_id: &str, at: i64) -> String {
    public_cells::row_key(correlation_id, at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::public::PublicWrite;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_operation_survives_its_row(
            status in prop::sample::select(vec![HistoryStatus::Succeeded, HistoryStatus::Failed]),
            engine in "[-a-z]{1,20}",
            texts in (".{0,20}", ".{0,20}", ".{0,20}", ".{1,40}"),
            nullable: [Option<String>; 2],
            numbers: (i64, i64),
            revision: u64,
        ) {
            let (instance_id, operation, input, correlation_id) = texts;
            let [output, error] = nullable;
            let (duration_ms, created_at) = numbers;
            let entry = HistoryEntry {
                row_key: row_key(&correlation_id, created_at), engine, instance_id, operation, status,
                duration_ms, input, output, error, created_at, correlation_id,
            };
            let row = entry.to_row(revision);
            prop_assert_eq!(row.revision, revision);
            prop_assert_eq!(HistoryEntry::from_row(&row), Ok(entry));
            prop_assert_eq!(PublicWrite::Put(row).check(&SCHEMA), Ok(()));
        }
    }
}

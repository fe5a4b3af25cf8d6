//! The public table `instances`: one row for every run of every instance, for people to find.
//!
//! The row is rewritten whenever the status of the run changes. Its revision grows, so a late write changes nothing.
//! The runtime bases no decision on this table: the truth is in [`super::instances`].
//!
//! Input and output are not included: they may be large, truncated JSON is invalid, and the run itself has them. A row
//! is for finding runs, and for seeing at once why one failed.

use abide_ids::{RunNumber, Timestamp};

use super::public_cells::{CellReader, CellWriter, ColumnError, optional, required};
use crate::public::{ColumnType, PublicKey, PublicRow, TableSchema};

/// The declaration of the table.
pub static SCHEMA: TableSchema = TableSchema {
    tag: 1,
    name: "instances",
    columns: &[
        required("InstanceId", ColumnType::Text),
        required("ExecutionId", ColumnType::Text),
        required("Workflow", ColumnType::Text),
        required("Version", ColumnType::Text),
        required("Status", ColumnType::Text),
        required("CorrelationId", ColumnType::Text),
        optional("EntityId", ColumnType::Text),
        required("CreatedAtUtc", ColumnType::Time),
        required("LastUpdatedAtUtc", ColumnType::Time),
        optional("Error", ColumnType::Json),
    ],
    order_column: "CreatedAtUtc",
    indexes: &[
        &["InstanceId"],
        &["CorrelationId"],
        &["EntityId"],
        &["Workflow", "Status"],
        &["Workflow", "Version"],
        &["Version"],
        &["Status"],
        &["Workflow"],
    ],
};

/// A run, as clients see it in lists.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublicInstanceRow {
    /// The run number, from 1. It is the row's key, not a column.
    pub run_number: RunNumber,
    pub instance_id: String,
    /// The id of the run that activities receive.
    pub execution_id: String,
    /// The id of the definition.
    pub workflow: String,
    /// The version of the definition.
    pub version: String,
    /// The status, as the API spells it.
    pub status: String,
    pub correlation_id: String,
    /// The entity that the run acts for, if it has one.
    pub entity_id: Option<String>,
    /// When the run was accepted.
    pub created_at: Timestamp,
    /// When the run last changed.
    pub updated_at: Timestamp,
    /// The reason of a failed or parked run, as JSON text: `code`, `message` and, if there is one, `state`.
    pub error: Option<String>,
}

impl PublicInstanceRow {
    /// The public row of this state of the run.
    pub fn to_public_row(&self, revision: u64) -> PublicRow {
        CellWriter::default()
            .text("InstanceId", &self.instance_id)
            .text("ExecutionId", &self.execution_id)
            .text("Workflow", &self.workflow)
            .text("Version", &self.version)
            .text("Status", &self.status)
            .text("CorrelationId", &self.correlation_id)
            .optional_text("EntityId", self.entity_id.as_deref())
            .time("CreatedAtUtc", self.created_at)
            .time("LastUpdatedAtUtc", self.updated_at)
            .optional_text("Error", self.error.as_deref())
            .into_row(key(&self.instance_id, self.run_number), revision)
    }

    /// Reads the run of a public row.
    pub fn from_public_row(row: &PublicRow) -> Result<Self, ColumnError> {
        let cells = CellReader::new(&SCHEMA, row);
        Ok(Self {
            run_number: read_run_number(&row.key).ok_or_else(|| cells.column_error("RowKey"))?,
            instance_id: cells.text("InstanceId")?,
            execution_id: cells.text("ExecutionId")?,
            workflow: cells.text("Workflow")?,
            version: cells.text("Version")?,
            status: cells.text("Status")?,
            correlation_id: cells.text("CorrelationId")?,
            entity_id: cells.optional_text("EntityId")?,
            created_at: cells.time("CreatedAtUtc")?,
            updated_at: cells.time("LastUpdatedAtUtc")?,
            error: cells.optional_text("Error")?,
        })
    }
}

/// The key of a run. Instance ids contain only characters that are allowed in keys. Ten digits hold every run number,
/// so the runs of an instance sort as numbers do.
pub fn key(instance_id: &str, run_number: RunNumber) -> PublicKey {
    PublicKey { partition: instance_id.to_owned(), row: format!("{run_number:010}") }
}

/// The run number in a key.
pub fn read_run_number(key: &PublicKey) -> Option<RunNumber> {
    key.row.parse().ok().map(RunNumber)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::public::PublicWrite;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_run_round_trips(
            run_number: RunNumber,
            instance_id in "[-A-Za-z0-9._:~@]{1,40}",
            texts in (".{0,20}", ".{0,20}", ".{0,20}", ".{0,20}", ".{0,20}"),
            nullable: [Option<String>; 2],
            times: (Timestamp, Timestamp),
            revision: u64,
        ) {
            let (execution_id, workflow, version, status, correlation_id) = texts;
            let [entity_id, error] = nullable;
            let (created_at, updated_at) = times;
            let instance = PublicInstanceRow {
                run_number, instance_id, execution_id, workflow, version, status, correlation_id, entity_id,
                created_at, updated_at, error,
            };
            let row = instance.to_public_row(revision);
            prop_assert_eq!(row.revision, revision);
            prop_assert_eq!(PublicInstanceRow::from_public_row(&row), Ok(instance));
            prop_assert_eq!(PublicWrite::Put(row).check(&SCHEMA), Ok(()));
        }
    }
}

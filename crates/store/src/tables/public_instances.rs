//! The public table `instances`: every run of every instance, for people to find.
//!
//! A run has one row, written again whenever its status changes; its revision grows, so a late write changes
//! nothing. The runtime decides nothing by this table: the truth is in [`super::instances`].
//!
//! Input and output are not here: they may be large, a JSON that is cut is none, and the run itself has them. A row is for finding runs, and
//! for seeing at once why one failed.

use super::public_cells::{CellReader, CellWriter, ColumnError, optional, required};
use crate::public::{Kind, PublicKey, PublicRow, TableSchema};

/// The declaration of the table.
pub static SCHEMA: TableSchema = TableSchema {
    tag: 1,
    name: "instances",
    columns: &[
        required("InstanceId", Kind::Text),
        required("ExecutionId", Kind::Text),
        required("Workflow", Kind::Text),
        required("Version", Kind::Text),
        required("Status", Kind::Text),
        required("CorrelationId", Kind::Text),
        optional("EntityId", Kind::Text),
        required("CreatedAtUtc", Kind::Time),
        required("LastUpdatedAtUtc", Kind::Time),
        optional("Error", Kind::Json),
    ],
    ordered_by: "CreatedAtUtc",
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

/// A run, as people see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublicInstance {
    /// Which life of the id this is, from 1. It is the row's key, not a column.
    pub run_number: u32,
    /// The instance.
    pub instance_id: String,
    /// The run, as activities are told it.
    pub execution_id: String,
    /// The definition it runs.
    pub workflow: String,
    /// The version of the definition.
    pub version: String,
    /// The status, as the API spells it.
    pub status: String,
    /// The trace it belongs to.
    pub correlation_id: String,
    /// The entity it acts for, if it has one.
    pub entity_id: Option<String>,
    /// When it was accepted, in milliseconds of UTC since 1970.
    pub created_at: i64,
    /// When it last changed, in the same unit.
    pub updated_at: i64,
    /// Why it failed or is parked, as JSON text: `code`, `message` and, if there is one, `state`.
    pub error: Option<String>,
}

impl PublicInstance {
    /// The row of this state of the run.
    pub fn to_row(&self, revision: u64) -> PublicRow {
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
            .row(key(&self.instance_id, self.run_number), revision)
    }

    /// The run in a row.
    pub fn from_row(row: &PublicRow) -> Result<Self, ColumnError> {
        let cells = CellReader::new(&SCHEMA, row);
        Ok(Self {
            run_number: run_number(&row.key).ok_or_else(|| cells.unreadable("RowKey"))?,
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

/// The row of a run. Ids of instances have only characters that keys may have; ten digits hold every run
/// number, so that the runs of an instance sort as numbers do.
pub fn key(instance_id: &str, run_number: u32) -> PublicKey {
    PublicKey { partition: instance_id.to_owned(), row: format!("{run_number:010}") }
}

/// The number of the run whose row this is.
pub fn run_number(key: &PublicKey) -> Option<u32> {
    key.row.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::public::PublicWrite;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_run_survives_its_row(
            run_number: u32,
            instance_id in "[-A-Za-z0-9._:~@]{1,40}",
            texts in (".{0,20}", ".{0,20}", ".{0,20}", ".{0,20}", ".{0,20}"),
            nullable: [Option<String>; 2],
            times: (i64, i64),
            revision: u64,
        ) {
            let (execution_id, workflow, version, status, correlation_id) = texts;
            let [entity_id, error] = nullable;
            let (created_at, updated_at) = times;
            let instance = PublicInstance {
                run_number, instance_id, execution_id, workflow, version, status, correlation_id, entity_id,
                created_at, updated_at, error,
            };
            let row = instance.to_row(revision);
            prop_assert_eq!(row.revision, revision);
            prop_assert_eq!(PublicInstance::from_row(&row), Ok(instance));
            prop_assert_eq!(PublicWrite::Put(row).check(&SCHEMA), Ok(()));
        }
    }
}

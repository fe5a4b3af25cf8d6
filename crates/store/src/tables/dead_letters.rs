//! The public table `engineDlq`: messages that an engine has dead-lettered, until an operator resolves them.
//!
//! Columns, names and types are those of the engines' common tables, which other programs read. A row is written when
//! the message is dead-lettered, so both failure times are final; only status and resolution change later, each under a
//! higher revision. A message that is sent again and dead-lettered again has another enqueue time, and so another row.
//! Retrying a message is not done here.

use abide_ids::Timestamp;

use super::public_cells::{self, CellReader, CellWriter, ColumnError, optional, required};
use crate::public::{ColumnType, PublicKey, PublicRow, TableSchema};

/// The declaration of the table.
pub static SCHEMA: TableSchema = TableSchema {
    tag: 3,
    name: "engineDlq",
    columns: &[
        required("Engine", ColumnType::Text),
        required("InstanceId", ColumnType::Text),
        required("OriginalQueue", ColumnType::Text),
        required("OriginalMessage", ColumnType::Json),
        required("ErrorMessage", ColumnType::Text),
        required("DequeueCount", ColumnType::Integer),
        required("FirstFailureAtUtc", ColumnType::Time),
        required("LastFailureAtUtc", ColumnType::Time),
        required("Status", ColumnType::Text),
        optional("ResolutionNotes", ColumnType::Text),
        optional("ResolvedAtUtc", ColumnType::Time),
        optional("ResolvedBy", ColumnType::Text),
        required("CorrelationId", ColumnType::Text),
    ],
    order_column: "LastFailureAtUtc",
    indexes: &[&["CorrelationId"], &["InstanceId"], &["Engine", "Status"], &["Status"], &["Engine"]],
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeadLetterStatus {
    /// Waits for an operator.
    Pending,
    /// Was handled or sent again.
    Resolved,
    /// Was left until it was too old to matter.
    Expired,
}

impl DeadLetterStatus {
    /// The word in the column.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Resolved => "Resolved",
            Self::Expired => "Expired",
        }
    }

    /// The status with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Pending, Self::Resolved, Self::Expired].into_iter().find(|status| status.as_str() == word)
    }
}

/// A dead-lettered message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadLetterRow {
    /// The row's key within the engine, as [`row_key`] makes it. Not a column.
    pub row_key: String,
    /// The engine, which is also the partition.
    pub engine: String,
    /// The instance that the message was for; `publisher` for messages about the publisher itself.
    pub instance_id: String,
    /// The queue that the message came from. A retry puts it back there.
    pub original_queue: String,
    /// The message, as JSON text.
    pub original_message: String,
    /// The error of the last failure.
    pub error_message: String,
    pub dequeue_count: u32,
    pub first_failure_at: Timestamp,
    pub last_failure_at: Timestamp,
    pub status: DeadLetterStatus,
    pub resolution_notes: Option<String>,
    pub resolved_at: Option<Timestamp>,
    pub resolved_by: Option<String>,
    pub correlation_id: String,
}

impl DeadLetterRow {
    /// The public row of this state of the message.
    pub fn to_public_row(&self, revision: u64) -> PublicRow {
        CellWriter::default()
            .text("Engine", &self.engine)
            .text("InstanceId", &self.instance_id)
            .text("OriginalQueue", &self.original_queue)
            .text("OriginalMessage", &self.original_message)
            .text("ErrorMessage", &self.error_message)
            .integer("DequeueCount", i64::from(self.dequeue_count))
            .time("FirstFailureAtUtc", self.first_failure_at)
            .time("LastFailureAtUtc", self.last_failure_at)
            .text("Status", self.status.as_str())
            .optional_text("ResolutionNotes", self.resolution_notes.as_deref())
            .optional_time("ResolvedAtUtc", self.resolved_at)
            .optional_text("ResolvedBy", self.resolved_by.as_deref())
            .text("CorrelationId", &self.correlation_id)
            .into_row(key(&self.engine, &self.row_key), revision)
    }

    /// Reads the message of a public row.
    pub fn from_public_row(row: &PublicRow) -> Result<Self, ColumnError> {
        let cells = CellReader::new(&SCHEMA, row);
        let status = DeadLetterStatus::from_word(&cells.text("Status")?);
        let dequeue_count = u32::try_from(cells.integer("DequeueCount")?);
        Ok(Self {
            row_key: row.key.row.clone(),
            engine: cells.text("Engine")?,
            instance_id: cells.text("InstanceId")?,
            original_queue: cells.text("OriginalQueue")?,
            original_message: cells.text("OriginalMessage")?,
            error_message: cells.text("ErrorMessage")?,
            dequeue_count: dequeue_count.map_err(|_| cells.column_error("DequeueCount"))?,
            first_failure_at: cells.time("FirstFailureAtUtc")?,
            last_failure_at: cells.time("LastFailureAtUtc")?,
            status: status.ok_or_else(|| cells.column_error("Status"))?,
            resolution_notes: cells.optional_text("ResolutionNotes")?,
            resolved_at: cells.optional_time("ResolvedAtUtc")?,
            resolved_by: cells.optional_text("ResolvedBy")?,
            correlation_id: cells.text("CorrelationId")?,
        })
    }
}

/// The key of an engine's message.
pub fn key(engine: &str, row_key: &str) -> PublicKey {
    PublicKey { partition: engine.to_owned(), row: row_key.to_owned() }
}

/// The row key of a message: `{messageId}-{timestamp}`, with the time it was enqueued or, for an event from outside,
/// the time it arrived. Dead-lettering it twice with the same time gives one row.
pub fn row_key(message_id: &str, enqueued_at: Timestamp) -> String {
    public_cells::row_key(message_id, enqueued_at)
}

/// The key with which the keys of all dead letters of an engine's message begin, whatever their times.
pub fn key_prefix(engine: &str, message_id: &str) -> PublicKey {
    key(engine, &public_cells::row_key_prefix(message_id))
}

#[cfg(test)]
mod tests {
    use super::DeadLetterStatus::*;
    use super::*;
    use crate::public::PublicWrite;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_dead_letter_round_trips(
            id: (String, Timestamp),
            status in prop::sample::select(vec![Pending, Resolved, Expired]),
            engine in "[-a-z]{1,20}",
            texts in (".{0,20}", ".{0,20}", ".{0,20}", ".{0,20}", ".{0,20}"),
            counts: (u32, u64),
            times: (Timestamp, Timestamp, Option<Timestamp>),
            resolution: [Option<String>; 2],
        ) {
            let (instance_id, original_queue, original_message, error_message, correlation_id) = texts;
            let (dequeue_count, revision) = counts;
            let (first_failure_at, last_failure_at, resolved_at) = times;
            let [resolution_notes, resolved_by] = resolution;
            let letter = DeadLetterRow {
                row_key: row_key(&id.0, id.1), engine, instance_id, original_queue, original_message,
                error_message, dequeue_count, first_failure_at, last_failure_at, status, resolution_notes,
                resolved_at, resolved_by, correlation_id,
            };
            let row = letter.to_public_row(revision);
            prop_assert_eq!(row.revision, revision);
            prop_assert_eq!(DeadLetterRow::from_public_row(&row), Ok(letter));
            prop_assert_eq!(PublicWrite::Put(row).check(&SCHEMA), Ok(()));
        }
    }
}

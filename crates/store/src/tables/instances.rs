//! Instances: the id that a user knows → its current run.
//!
//! One row per instance id, rewritten when a run begins, becomes idle or ends. All other rows of a run are keyed by its
//! run id, so a purge is one commit that forgets the run id, and no key repeats a long instance id. This table does not
//! know what a run is doing; its parts ([`super::parts`]) and pages ([`super::history_pages`]) do.

use abide_ids::{CommandId, Digest, IdempotencyKey, PageNumber, RunId, RunNumber, Timestamp};
use serde::{Deserialize, Serialize};

use super::{KeyReader, KeyWriter, TableError, TableId, TableRow};
use crate::rows::{Key, Scan};

/// The status of a run. Stored by position: append only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RunStatus {
    /// Accepted; no turn has run yet.
    Pending,
    /// Processes messages and makes progress.
    Running,
    /// Keeps its messages and makes no progress until it is resumed.
    Suspended,
    /// Ended with an output.
    Completed,
    /// Ended with an error.
    Failed,
    /// Ended by a terminate request.
    Terminated,
    /// Cannot continue on its own and was set aside with a reason; nothing of it is lost, and it can be resumed.
    Parked,
    /// Forgotten: the row only keeps the id's run numbers from being reused too soon.
    Purged,
}

/// The current run of an instance.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InstanceRow {
    /// The shard's number of this run; new for every run, never reused.
    pub run_id: RunId,
    /// Counts the runs of the instance id, from 1.
    pub run_number: RunNumber,
    pub status: RunStatus,
    /// The definition that the run is pinned to.
    pub definition_id: String,
    /// The version that the run is pinned to.
    pub version: String,
    /// The digest of that version's content, so that no other content is mistaken for it.
    pub definition_hash: Digest,
    /// The page up to which the rows of [`super::parts`] are current; later pages overlay them.
    pub folded_page: PageNumber,
    /// The last page when this row was written. The newest page of the run may be later.
    pub last_page: PageNumber,
    /// When the run was accepted.
    pub created_at: Timestamp,
    /// When this row was written.
    pub updated_at: Timestamp,
    pub correlation_id: String,
    /// The entity that the run acts for, if it has one.
    pub entity_id: Option<String>,
    pub park_reason: Option<String>,
    /// The run that waits for this one, if this one is a child. Since format 2.
    pub parent: Option<Box<ParentRun>>,
    /// The key of the parent's item that started this run, if this one is a child: it is the parent item of calls
    /// outside any fan-out of this run. Since format 3; boxed, because most runs have none.
    pub parent_item_key: Option<Box<IdempotencyKey>>,
    /// Its place in the tree of runs that start each other, if this one is a child. Since format 4; children of older
    /// formats have none and count as roots.
    pub lineage: Option<Box<Lineage>>,
    /// The type of the entity that the run acts for, if it is known; `entity_id` is the key. A child has none of its
    /// own: it acts for the entity of its parent. Since format 5.
    pub entity_type: Option<Box<str>>,
}

impl InstanceRow {
    /// How many runs are above this one: a root has none.
    pub fn depth(&self) -> u32 {
        self.lineage.as_ref().map_or(0, |lineage| lineage.depth)
    }
}

/// The place of a child in the tree of runs that start each other.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Lineage {
    /// The instance of the root: the run that no other run started.
    pub root_id: String,
    pub root_run: RunNumber,
    /// How many runs are above this one, 1 for a child of the root.
    pub depth: u32,
}

/// The run that waits for a child. Stored in this row because the parent must learn of the child's end even if nothing
/// else of the child can be read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ParentRun {
    pub instance_id: String,
    pub run_number: RunNumber,
    /// The command of the parent that started this run.
    pub command: CommandId,
}

impl TableRow for InstanceRow {
    const TABLE: TableId = TableId::Instance;
    const FORMAT: u8 = 5;

    /// Format 1 has no parent, format 2 no parent item, format 3 no lineage, format 4 no entity type.
    fn default_suffix(format: u8) -> &'static [u8] {
        match format {
            1 => &[0, 0, 0, 0],
            2 => &[0, 0, 0],
            3 => &[0, 0],
            _ => &[0],
        }
    }
}

/// The key of an instance's row.
pub fn key(instance_id: &str) -> Key {
    KeyWriter::new(TableId::Instance).text(instance_id).key()
}

/// The instance id in a key.
pub fn read_key(key: &Key) -> Result<String, TableError> {
    let mut reader = KeyReader::new(TableId::Instance, key)?;
    let instance_id = reader.text()?;
    reader.finish(instance_id)
}

/// All instances of the partition, in the order of their ids.
pub fn all() -> Scan {
    TableId::Instance.scan()
}

#[cfg(test)]
mod tests {
    use super::super::codec::laws::{keys_round_trip_in_order, value_round_trips};
    use super::super::{decode, encode};
    use super::RunStatus::*;
    use super::*;
    use proptest::prelude::*;

    /// Format 1 ended before the parent, format 2 before its item, format 3 before the lineage, format 4 before the
    /// entity type.
    fn a_row_of_an_older_format_lacks(fields: usize, instance: &InstanceRow) {
        let mut bytes = encode(instance);
        bytes[0] = u8::try_from(5 - fields).unwrap();
        for _ in 0..fields {
            assert_eq!(bytes.pop(), Some(0));
        }
        assert_eq!(decode::<InstanceRow>(&bytes).as_ref(), Ok(instance));
        bytes.push(0);
        assert!(decode::<InstanceRow>(&bytes).is_err(), "bytes left over are damage in older formats too");
    }

    proptest! {
        #[test]
        fn an_instance_round_trips(
            numbers: (RunId, RunNumber, PageNumber, PageNumber),
            status in prop::sample::select(vec![
                Pending, Running, Suspended, Completed, Failed, Terminated, Parked, Purged,
            ]),
            texts in (".{0,20}", ".{0,20}", ".{0,20}"),
            definition_hash: Digest,
            times: (Timestamp, Timestamp),
            entity_id: Option<String>,
            park_reason: Option<String>,
            parent: Option<(String, RunNumber, CommandId)>,
            ends: (Option<IdempotencyKey>, Option<String>),
            lineage: Option<(String, RunNumber, u32)>,
        ) {
            let (run_id, run_number, folded_page, last_page) = numbers;
            let (definition_id, version, correlation_id) = texts;
            let (created_at, updated_at) = times;
            let (item, entity_type) = ends;
            let parent =
                parent.map(|(instance_id, run_number, command)| ParentRun { instance_id, run_number, command }.into());
            let instance = InstanceRow {
                run_id, run_number, status, definition_id, version, definition_hash, folded_page, last_page,
                created_at, updated_at, correlation_id, entity_id, park_reason, parent, parent_item_key: item.map(Box::new),
                lineage: lineage.map(|(root_id, root_run, depth)| Lineage { root_id, root_run, depth }.into()),
                entity_type: entity_type.map(Into::into),
            };
            value_round_trips(&instance);
            let instance = InstanceRow { entity_type: None, ..instance };
            a_row_of_an_older_format_lacks(1, &instance);
            let instance = InstanceRow { lineage: None, ..instance };
            a_row_of_an_older_format_lacks(2, &instance);
            let instance = InstanceRow { parent_item_key: None, ..instance };
            a_row_of_an_older_format_lacks(3, &instance);
            a_row_of_an_older_format_lacks(4, &InstanceRow { parent: None, ..instance });
        }

        #[test]
        fn instances_sort_by_id(ids in prop::collection::vec(".{0,20}", 1..8)) {
            keys_round_trip_in_order(ids, |id| key(id), read_key);
        }
    }
}

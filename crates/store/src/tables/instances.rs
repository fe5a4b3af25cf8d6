//! Instances: the id a user knows → the run that lives under it now.
//!
//! One row per id, rewritten when a run begins, rests or ends. Everything else of a run is keyed by its
//! number, so a purge is one commit that forgets the number, and no key repeats a long id. This table does
//! not know what a run is doing; its parts ([`super::parts`]) and pages ([`super::pages`]) do.

use serde::{Deserialize, Serialize};

use super::{KeyReader, KeyWriter, Stored, Table, TableError};
use crate::rows::{Key, Scan};

/// Where a run stands. Stored by place: append only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RunStatus {
    /// Accepted, and no turn taken yet.
    Pending,
    /// Takes messages and moves.
    Running,
    /// Keeps messages and does not move until it is resumed.
    Suspended,
    /// Ended with an output.
    Completed,
    /// Ended with an error.
    Failed,
    /// Ended by order.
    Terminated,
    /// Cannot go on by itself, and says why; nothing of it is lost, and it can be resumed.
    Parked,
    /// Forgotten: the row only keeps the id's run numbers from being used again too soon.
    Purged,
}

/// The current run of an instance.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Instance {
    /// The number the shard gave this run; new for every run, never used again.
    pub run: u64,
    /// Which life of the id this is, from 1.
    pub run_number: u32,
    /// Where the run stands.
    pub status: RunStatus,
    /// The definition it is pinned to.
    pub definition: String,
    /// The version of the definition.
    pub version: String,
    /// The content of that version, so that nothing else can be taken for it.
    pub definition_hash: [u8; 32],
    /// The turn up to which the rows of [`super::parts`] are the truth; later turns lie over them in their
    /// pages.
    pub folded_turn: u64,
    /// The last turn taken when this row was written; the run's last page tells the last of all.
    pub last_turn: u64,
    /// When the run was accepted, in milliseconds of UTC since 1970.
    pub created_at: i64,
    /// When this row was written, in the same unit.
    pub updated_at: i64,
    /// The trace it belongs to.
    pub correlation_id: String,
    /// The entity it acts for, if it has one.
    pub entity_id: Option<String>,
    /// Why it is parked, if it is.
    pub parked: Option<String>,
    /// The run that waits for this one, if it is a child. Since format 2.
    pub parent: Option<Box<Parent>>,
    /// The key of the item of the parent that started this run, if it is a child: calls that no fan-out of its own made belong to it. Since
    /// format 3; boxed, because most runs have none.
    pub parent_item: Option<Box<[u8; 32]>>,
}

/// Who waits for a child: here, because it must be told of an end also where nothing else of the child can be read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Parent {
    /// The parent's instance.
    pub instance_id: String,
    /// Which life of it.
    pub run_number: u32,
    /// The command of it that started this run.
    pub command: u64,
}

impl Stored for Instance {
    const TABLE: Table = Table::Instance;
    const FORMAT: u8 = 3;

    /// No parent; of a child no item.
    fn appended_since(format: u8) -> &'static [u8] {
        match format {
            1 => &[0, 0],
            _ => &[0],
        }
    }
}

/// The row of an instance id.
pub fn key(instance_id: &str) -> Key {
    KeyWriter::new(Table::Instance).text(instance_id).key()
}

/// The instance id of a key.
pub fn read_key(key: &Key) -> Result<String, TableError> {
    let mut reader = KeyReader::new(Table::Instance, key)?;
    let instance_id = reader.text()?;
    reader.end(instance_id)
}

/// All instances of the partition, in the order of their ids.
pub fn all() -> Scan {
    Table::Instance.scan()
}

#[cfg(test)]
mod tests {
    use super::super::codec::laws::{keys_round_trip_in_order, value_round_trips};
    use super::super::{decode, encode};
    use super::RunStatus::*;
    use super::*;
    use proptest::prelude::*;

    /// Format 1 ended before the parent, format 2 before its item.
    fn a_row_of_an_older_format_lacks(fields: usize, instance: &Instance) {
        let mut bytes = encode(instance);
        bytes[0] = u8::try_from(3 - fields).unwrap();
        for _ in 0..fields {
            assert_eq!(bytes.pop(), Some(0));
        }
        assert_eq!(decode::<Instance>(&bytes).as_ref(), Ok(instance));
        bytes.push(0);
        assert!(decode::<Instance>(&bytes).is_err(), "what is left over is damage there too");
    }

    proptest! {
        #[test]
        fn an_instance_survives_its_bytes(
            numbers: (u64, u32, u64, u64),
            status in prop::sample::select(vec![
                Pending, Running, Suspended, Completed, Failed, Terminated, Parked, Purged,
            ]),
            texts in (".{0,20}", ".{0,20}", ".{0,20}"),
            definition_hash: [u8; 32],
            times: (i64, i64),
            entity_id: Option<String>,
            parked: Option<String>,
            parent: Option<(String, u32, u64)>,
            item: Option<[u8; 32]>,
        ) {
            let (run, run_number, folded_turn, last_turn) = numbers;
            let (definition, version, correlation_id) = texts;
            let (created_at, updated_at) = times;
            let parent =
                parent.map(|(instance_id, run_number, command)| Parent { instance_id, run_number, command }.into());
            let instance = Instance {
                run, run_number, status, definition, version, definition_hash, folded_turn, last_turn,
                created_at, updated_at, correlation_id, entity_id, parked, parent, parent_item: item.map(Box::new),
            };
            value_round_trips(&instance);
            let instance = Instance { parent_item: None, ..instance };
            a_row_of_an_older_format_lacks(1, &instance);
            a_row_of_an_older_format_lacks(2, &Instance { parent: None, ..instance });
        }

        #[test]
        fn instances_sort_by_id(ids in prop::collection::vec(".{0,20}", 1..8)) {
            keys_round_trip_in_order(ids, |id| key(id), read_key);
        }
    }
}

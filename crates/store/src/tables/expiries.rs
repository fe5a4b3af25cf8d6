//! Expiries: deletions, by the time they are due.
//!
//! A row is written in the commit that makes something temporary or unreachable. The sweeper deletes the row in the
//! commit that deletes the last of its target, so no target is forgotten and a sweep can stop anywhere. This table does
//! not know if the target may still be deleted: the sweeper checks the target's own row.

use std::ops::Bound;

use abide_ids::{Digest, KeyDigest, RunId, RunNumber, Sequence, Timestamp};
use serde::{Deserialize, Serialize};

use super::{KeyReader, KeyWriter, TableError, TableId, TableRow, public_instances};
use crate::public::PublicKey;
use crate::rows::{Key, Scan};

/// The rows to delete. Stored by position: append only.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ExpiryTarget {
    /// All rows of this run, which no instance id leads to any more.
    Run(RunId),
    /// Events of an entity.
    EntityEvents {
        /// The generation that the events were recorded in.
        generation: u64,
        /// The position of the first event that stays.
        until: u64,
    },
    /// A stored reply.
    IdempotencyRecord {
        scope: String,
        /// The digest in its key.
        digest: KeyDigest,
    },
    Payload {
        run_id: RunId,
        digest: Digest,
    },
    /// The watermark of a source that has been silent.
    InboundWatermark(String),
    /// Ended runs whose retention ends at this time: instance id and run id. Only read, never written any more: it does
    /// not identify the run's public row.
    EndedRunsUnnumbered(Vec<(String, RunId)>),
    /// Stored replies: the scope and the digest of each.
    IdempotencyRecords(Vec<(String, KeyDigest)>),
    /// Ended runs that expire at this time: tombstones, and what earlier releases wrote for retained runs.
    EndedRuns(Vec<EndedRun>),
    /// Earlier runs of an instance that was purged.
    EarlierRuns {
        instance_id: String,
        /// Only runs with a lower run id are deleted.
        before_run_id: RunId,
        /// Public rows of a later revision do not belong to these runs.
        revision: u64,
    },
    /// Ended runs whose retention ends at this time.
    RetainedRuns {
        /// When their retention began. With another retention it ends at another time.
        since: Timestamp,
        runs: Vec<EndedRun>,
    },
}

/// A run that has ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EndedRun {
    pub instance_id: String,
    pub run_id: RunId,
    /// The run number, if it is known.
    #[serde(with = "run_number")]
    pub run_number: Option<RunNumber>,
    /// The revision of the run's last public row.
    pub revision: u64,
}

impl EndedRun {
    /// A run of which neither the run number nor the public row is known. No public row has revision 0.
    pub fn unnumbered(instance_id: String, run_id: RunId) -> Self {
        Self { instance_id, run_id, run_number: None, revision: 0 }
    }

    /// The key of the run's public row; of no row if the run number is unknown.
    pub fn public_key(&self) -> PublicKey {
        public_instances::key(&self.instance_id, self.run_number.unwrap_or(run_number::UNKNOWN))
    }
}

/// An unknown run number is stored as 0, which no run has.
mod run_number {
    use super::{Deserialize, RunNumber};
    use serde::{Deserializer, Serialize, Serializer};

    pub(super) const UNKNOWN: RunNumber = RunNumber(0);

    pub(super) fn serialize<S: Serializer>(
        number: &Option<RunNumber>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        number.unwrap_or(UNKNOWN).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<RunNumber>, D::Error> {
        RunNumber::deserialize(deserializer).map(|number| Some(number).filter(|number| *number != UNKNOWN))
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ExpiryRow {
    pub target: ExpiryTarget,
}

impl TableRow for ExpiryRow {
    const TABLE: TableId = TableId::Expiry;
    const FORMAT: u8 = 1;
}

/// The time of an expiry that is due at once, whatever the clock says.
pub const DUE_AT_ONCE: Timestamp = Timestamp(0);

/// The key of an expiry. The shard's sequence distinguishes expiries of the same time.
pub fn key(at: Timestamp, sequence: Sequence) -> Key {
    KeyWriter::new(TableId::Expiry).time(at).u64(sequence.0).key()
}

/// The time and the sequence in a key.
pub fn read_key(key: &Key) -> Result<(Timestamp, Sequence), TableError> {
    let mut reader = KeyReader::new(TableId::Expiry, key)?;
    let fields = (reader.time()?, Sequence(reader.u64()?));
    reader.finish(fields)
}

/// All expiries that are due before this time, the oldest first.
pub fn due_before(at: Timestamp) -> Scan {
    Scan::range(KeyWriter::new(TableId::Expiry).key(), KeyWriter::new(TableId::Expiry).time(at).key())
}

/// All expiries that are due at this time or later, the oldest first.
pub fn due_from(at: Timestamp) -> Scan {
    let Scan { until, .. } = Scan::prefix(KeyWriter::new(TableId::Expiry).key().as_bytes());
    Scan { from: Bound::Included(KeyWriter::new(TableId::Expiry).time(at).key()), until, ..Scan::all() }
}

#[cfg(test)]
mod tests {
    use std::ops::RangeBounds;

    use super::super::codec::laws::{keys_round_trip_in_order, value_round_trips};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_expiry_written_without_run_numbers_is_read() {
        let stored = [&[1, 5, 1, 1][..], b"a", &[9]].concat();
        let target = ExpiryTarget::EndedRunsUnnumbered(vec![("a".to_owned(), RunId(9))]);
        assert_eq!(super::super::decode::<ExpiryRow>(&stored), Ok(ExpiryRow { target }));
    }

    /// These bytes are stored: they must never change.
    #[test]
    fn an_unknown_run_number_is_stored_as_0() {
        let stored = postcard::to_stdvec(&EndedRun::unnumbered("a".to_owned(), RunId(9)));
        assert_eq!(stored, postcard::to_stdvec(&("a", 9u64, 0u32, 0u64)));
    }

    proptest! {
        #[test]
        fn an_expiry_round_trips(run_id: RunId, number: u64, until: u64, scope in ".{0,20}", digest: Digest) {
            for target in [
                ExpiryTarget::Run(run_id),
                ExpiryTarget::EntityEvents { generation: number, until },
                ExpiryTarget::IdempotencyRecord { scope, digest: KeyDigest(digest) },
                ExpiryTarget::Payload { run_id, digest },
                ExpiryTarget::EndedRunsUnnumbered(vec![("device-7".to_owned(), run_id)]),
                ExpiryTarget::EndedRuns(vec![EndedRun {
                    instance_id: "device-7".to_owned(), run_id, run_number: Some(RunNumber(3)), revision: until,
                }, EndedRun::unnumbered("device-7".to_owned(), run_id)]),
                ExpiryTarget::EarlierRuns { instance_id: "device-7".to_owned(), before_run_id: run_id, revision: until },
                ExpiryTarget::RetainedRuns { since: Timestamp(7), runs: vec![EndedRun::unnumbered("device-7".to_owned(), run_id)] },
            ] {
                value_round_trips(&ExpiryRow { target });
            }
        }

        #[test]
        fn expiries_sort_by_time(keys: Vec<(Timestamp, Sequence)>) {
            keys_round_trip_in_order(keys, |(at, sequence)| key(*at, *sequence), read_key);
        }

        #[test]
        fn a_scan_holds_only_due_expiries(at in -3..4i64, sequence: Sequence, until in -3..4i64) {
            let at = Timestamp(at);
            let until = Timestamp(until);
            let scan = due_before(until);
            prop_assert_eq!((scan.from, scan.until).contains(&key(at, sequence)), at < until);
            let rest = due_from(until);
            prop_assert_eq!((rest.from, rest.until).contains(&key(at, sequence)), at >= until);
        }
    }
}

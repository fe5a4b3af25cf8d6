//! Expiries: what is to be deleted when.
//!
//! A row is written in the commit that makes something mortal or unreachable, and deleted by the sweeper in
//! the commit that deletes the last of what it names; so nothing is forgotten and a sweep can stop anywhere.
//! Whether the thing may still be deleted is not known here: the sweeper asks its own row.

use serde::{Deserialize, Serialize};

use super::{KeyReader, KeyWriter, Stored, Table, TableError};
use crate::rows::{Key, Scan};

/// What is to be deleted. Stored by place: append only.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Expired {
    /// All rows of the run with this number, which no id leads to any more.
    Run(u64),
    /// Events of an entity.
    EntityEvents {
        /// The generation they were recorded in.
        generation: u64,
        /// The position of the first event that stays.
        until: u64,
    },
    /// A kept answer.
    Dedupe {
        /// Its scope.
        scope: String,
        /// The digest in its key.
        digest: [u8; 32],
    },
    /// A payload.
    Payload {
        /// The run it belongs to.
        run: u64,
        /// Its digest.
        digest: [u8; 32],
    },
    /// What is remembered of a source that has been silent.
    Source(String),
    /// Runs that have ended and are kept for a while: the id, and the run. Only read: it does not say which public row is the run's.
    Ended(Vec<(String, u64)>),
    /// Kept answers: scope and digest of each.
    Answers(Vec<(String, [u8; 32])>),
    /// Runs that have ended and are kept for a while.
    EndedRuns(Vec<EndedRun>),
    /// Earlier runs of an instance that was purged.
    EarlierRuns {
        /// The instance.
        instance_id: String,
        /// What the shard has numbered from this on is not meant.
        before: u64,
        /// Public rows of a later revision are not theirs.
        revision: u64,
    },
}

/// A run that has ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EndedRun {
    /// Its instance.
    pub instance_id: String,
    /// The number the shard gave it.
    pub run: u64,
    /// Which life of the id it was, from 1; 0 if that is not known.
    pub run_number: u32,
    /// The revision of its last public row.
    pub revision: u64,
}

/// Something that is to be deleted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Expiry {
    /// What.
    pub what: Expired,
}

impl Stored for Expiry {
    const TABLE: Table = Table::Expiry;
    const FORMAT: u8 = 1;
}

/// The row of an expiry. `at` is in milliseconds of UTC since 1970; the shard's sequence tells those of one
/// moment apart.
pub fn key(at: i64, sequence: u64) -> Key {
    KeyWriter::new(Table::Expiry).time(at).u64(sequence).key()
}

/// Time and sequence of a key.
pub fn read_key(key: &Key) -> Result<(i64, u64), TableError> {
    let mut reader = KeyReader::new(Table::Expiry, key)?;
    let fields = (reader.time()?, reader.u64()?);
    reader.end(fields)
}

/// All that is to be deleted before this moment, the oldest first.
pub fn due_before(at: i64) -> Scan {
    Scan::range(KeyWriter::new(Table::Expiry).key(), KeyWriter::new(Table::Expiry).time(at).key())
}

#[cfg(test)]
mod tests {
    use std::ops::RangeBounds;

    use super::super::codec::laws::{keys_round_trip_in_order, value_round_trips};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_expiry_of_before_the_run_number_is_read_as_it_was() {
        let stored = [&[1, 5, 1, 1][..], b"a", &[9]].concat();
        let what = Expired::Ended(vec![("a".to_owned(), 9)]);
        assert_eq!(super::super::decode::<Expiry>(&stored), Ok(Expiry { what }));
    }

    proptest! {
        #[test]
        fn an_expiry_survives_its_bytes(number: u64, until: u64, scope in ".{0,20}", digest: [u8; 32]) {
            for what in [
                Expired::Run(number),
                Expired::EntityEvents { generation: number, until },
                Expired::Dedupe { scope, digest },
                Expired::Payload { run: number, digest },
                Expired::Ended(vec![("device-7".to_owned(), number)]),
                Expired::EndedRuns(vec![EndedRun {
                    instance_id: "device-7".to_owned(), run: number, run_number: 3, revision: until,
                }]),
                Expired::EarlierRuns { instance_id: "device-7".to_owned(), before: number, revision: until },
            ] {
                value_round_trips(&Expiry { what });
            }
        }

        #[test]
        fn expiries_sort_by_time(keys: Vec<(i64, u64)>) {
            keys_round_trip_in_order(keys, |(at, sequence)| key(*at, *sequence), read_key);
        }

        #[test]
        fn a_scan_holds_what_is_due_and_nothing_else(at in -3..4i64, sequence: u64, until in -3..4i64) {
            let scan = due_before(until);
            prop_assert_eq!((scan.from, scan.until).contains(&key(at, sequence)), at < until);
        }
    }
}

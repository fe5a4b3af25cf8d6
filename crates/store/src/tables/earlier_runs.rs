//! Earlier runs: instance id and run number → the number the shard gave a run that another one has replaced under its id.
//!
//! [`super::instances`] leads to an id's current run only. A row here is written in the commit that replaces a run, and deleted in the one that
//! forgets it, so the history and the calls of every run that is still kept can be found. A run number may be given again long after a purge; the
//! shard's number in the key tells such runs apart, and the highest is the youngest.

use serde::{Deserialize, Serialize};

use super::{KeyReader, KeyWriter, Stored, Table, TableError};
use crate::rows::{Key, Scan};

/// A run that was replaced.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EarlierRun {
    /// When, in milliseconds of UTC since 1970.
    pub replaced_at: i64,
}

impl Stored for EarlierRun {
    const TABLE: Table = Table::EarlierRun;
    const FORMAT: u8 = 1;
}

/// The row of a run: its instance, which life of it, and the number the shard gave it.
pub fn key(instance_id: &str, run_number: u32, run: u64) -> Key {
    of_number(instance_id, run_number).u64(run).key()
}

/// Instance id, run number and the shard's number of a key.
pub fn read_key(key: &Key) -> Result<(String, u32, u64), TableError> {
    let mut reader = KeyReader::new(Table::EarlierRun, key)?;
    let fields = (reader.text()?, reader.u32()?, reader.u64()?);
    reader.end(fields)
}

/// The youngest run of an instance that had this number.
pub fn youngest(instance_id: &str, run_number: u32) -> Scan {
    Scan::prefix(of_number(instance_id, run_number).key().as_bytes()).backwards().at_most(1)
}

/// All earlier runs of an instance.
pub fn of_instance(instance_id: &str) -> Scan {
    Scan::prefix(KeyWriter::new(Table::EarlierRun).text(instance_id).key().as_bytes())
}

fn of_number(instance_id: &str, run_number: u32) -> KeyWriter {
    KeyWriter::new(Table::EarlierRun).text(instance_id).u32(run_number)
}

#[cfg(test)]
mod tests {
    use std::ops::RangeBounds;

    use super::super::codec::laws::{keys_round_trip_in_order, value_round_trips};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_earlier_run_survives_its_bytes(replaced_at: i64) {
            value_round_trips(&EarlierRun { replaced_at });
        }

        #[test]
        fn earlier_runs_sort_by_instance_and_number(keys in prop::collection::vec((".{0,20}", any::<u32>(), any::<u64>()), 1..8)) {
            keys_round_trip_in_order(keys, |(id, number, run)| key(id, *number, *run), read_key);
        }

        #[test]
        fn scans_hold_their_own_runs_and_nothing_else(id in "a{0,2}", other in "a{0,2}", number in 0..3u32, asked in 0..3u32, run: u64) {
            let key = key(&id, number, run);
            let holds = |scan: Scan| (scan.from, scan.until).contains(&key);
            prop_assert_eq!(holds(of_instance(&other)), id == other);
            prop_assert_eq!(holds(youngest(&other, asked)), id == other && number == asked);
        }
    }
}

//! Earlier runs: instance id and run number → the run id of a run that a later run of the same instance has replaced.
//!
//! [`super::instances`] has only the current run of an instance id. A row is written in the commit that replaces a run
//! and deleted in the commit that forgets it, so the history and the calls of every retained run can be found. Nothing
//! else of the run is known here. A run number may be reused long after a purge; the run id in the key distinguishes
//! such runs, and the highest is the latest.

use abide_ids::{RunId, RunNumber, Timestamp};
use serde::{Deserialize, Serialize};

use super::{KeyReader, KeyWriter, TableError, TableId, TableRow};
use crate::rows::{Key, Scan};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EarlierRunRow {
    pub replaced_at: Timestamp,
}

impl TableRow for EarlierRunRow {
    const TABLE: TableId = TableId::EarlierRun;
    const FORMAT: u8 = 1;
}

/// The key of a replaced run.
pub fn key(instance_id: &str, run_number: RunNumber, run_id: RunId) -> Key {
    run_number_prefix(instance_id, run_number).run_id(run_id).key()
}

/// The instance id, the run number and the run id in a key.
pub fn read_key(key: &Key) -> Result<(String, RunNumber, RunId), TableError> {
    let mut reader = KeyReader::new(TableId::EarlierRun, key)?;
    let fields = (reader.text()?, reader.run_number()?, reader.run_id()?);
    reader.finish(fields)
}

/// The latest run of an instance that had this run number.
pub fn latest(instance_id: &str, run_number: RunNumber) -> Scan {
    Scan::prefix(run_number_prefix(instance_id, run_number).key().as_bytes()).backwards().limit(1)
}

/// All earlier runs of an instance.
pub fn of_instance(instance_id: &str) -> Scan {
    Scan::prefix(KeyWriter::new(TableId::EarlierRun).text(instance_id).key().as_bytes())
}

fn run_number_prefix(instance_id: &str, run_number: RunNumber) -> KeyWriter {
    KeyWriter::new(TableId::EarlierRun).text(instance_id).run_number(run_number)
}

#[cfg(test)]
mod tests {
    use std::ops::RangeBounds;

    use super::super::codec::laws::{keys_round_trip_in_order, value_round_trips};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_earlier_run_round_trips(replaced_at: Timestamp) {
            value_round_trips(&EarlierRunRow { replaced_at });
        }

        #[test]
        fn earlier_runs_sort_by_instance_and_number(keys in prop::collection::vec((".{0,20}", any::<RunNumber>(), any::<RunId>()), 1..8)) {
            keys_round_trip_in_order(keys, |(id, number, run)| key(id, *number, *run), read_key);
        }

        #[test]
        fn scans_hold_only_their_own_runs(id in "a{0,2}", other in "a{0,2}", number in 0..3u32, wanted in 0..3u32, run_id: RunId) {
            let number = RunNumber(number);
            let wanted = RunNumber(wanted);
            let key = key(&id, number, run_id);
            let holds = |scan: Scan| (scan.from, scan.until).contains(&key);
            prop_assert_eq!(holds(of_instance(&other)), id == other);
            prop_assert_eq!(holds(latest(&other, wanted)), id == other && number == wanted);
        }
    }
}

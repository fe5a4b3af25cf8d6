//! Timers: what is due when, one row for each moment somebody waits for.
//!
//! The key begins with the moment, so the shard reads what is due next from one end, whoever it is for. A
//! timer does not know whether it is still wanted: when it fires, the run is asked. Deadlines of calls in
//! flight have no rows here.

use serde::{Deserialize, Serialize};

use super::{KeyReader, KeyWriter, Stored, Table, TableError};
use crate::rows::{Key, Scan};

/// What a timer is for. Stored by place: append only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum TimerPurpose {
    /// A state that waits for a moment.
    Wait,
    /// The next delivery of a call.
    Retry,
    /// The end of a step's patience, its retries included.
    StepDeadline,
    /// The end of the workflow's patience.
    WorkflowTimeout,
    /// The moment from which the run counts as stuck.
    StuckAfter,
    /// A message of a queue can be seen again.
    Visibility,
}

/// Something that will be due.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Timer {
    /// What it is for.
    pub purpose: TimerPurpose,
}

impl Stored for Timer {
    const TABLE: Table = Table::Timer;
    const FORMAT: u8 = 1;
}

/// The row of a run's timer. `timer` is the command that started it; `due_at` is in milliseconds of UTC since
/// 1970.
pub fn key(due_at: i64, run: u64, timer: u64) -> Key {
    KeyWriter::new(Table::Timer).time(due_at).u64(run).u64(timer).key()
}

/// Due time, run and timer of a key.
pub fn read_key(key: &Key) -> Result<(i64, u64, u64), TableError> {
    let mut reader = KeyReader::new(Table::Timer, key)?;
    let fields = (reader.time()?, reader.u64()?, reader.u64()?);
    reader.end(fields)
}

/// All timers due before this moment, the longest overdue first.
pub fn due_before(at: i64) -> Scan {
    Scan::range(KeyWriter::new(Table::Timer).key(), KeyWriter::new(Table::Timer).time(at).key())
}

/// All timers due at `from` or later and before `until`, in the order they are due.
pub fn due_between(from: i64, until: i64) -> Scan {
    let bound = |at| KeyWriter::new(Table::Timer).time(at).key();
    Scan::range(bound(from), bound(until))
}

#[cfg(test)]
mod tests {
    use std::ops::RangeBounds;

    use super::super::codec::laws::{keys_round_trip_in_order, value_round_trips};
    use super::TimerPurpose::*;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_timer_survives_its_bytes(
            purpose in prop::sample::select(vec![
                Wait, Retry, StepDeadline, WorkflowTimeout, StuckAfter, Visibility,
            ]),
        ) {
            value_round_trips(&Timer { purpose });
        }

        #[test]
        fn timers_sort_by_when_they_are_due(keys: Vec<(i64, u64, u64)>) {
            keys_round_trip_in_order(keys, |(due_at, run, timer)| key(*due_at, *run, *timer), read_key);
        }

        #[test]
        fn a_scan_holds_what_is_due_and_nothing_else(
            due in -3..4i64,
            run: u64,
            from in -3..4i64,
            until in -3..4i64,
        ) {
            let key = key(due, run, 1);
            let before = due_before(until);
            prop_assert_eq!((before.from, before.until).contains(&key), due < until);
            let between = due_between(from, until);
            prop_assert_eq!((between.from, between.until).contains(&key), (from..until).contains(&due));
        }
    }
}

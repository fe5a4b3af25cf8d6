//! Timers: what is due when, one row for each moment somebody waits for.
//!
//! The key begins with the moment, so the shard reads what is due next from one end, whoever it is for. A
//! timer does not know whether it is still wanted: when it fires, the run is asked. Deadlines of calls in
//! flight have no rows here.

use serde::{Deserialize, Serialize};

use super::{KeyReader, KeyWriter, Stored, Table, TableError};
use crate::rows::{Key, Scan};

/// What a timer is for. The numbers are stored: append only.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum TimerPurpose {
    /// A state that waits for a moment.
    Wait = 1,
    /// The next delivery of a call.
    Retry = 2,
    /// The end of a step's patience, its retries included.
    StepDeadline = 3,
    /// The end of the workflow's patience.
    WorkflowTimeout = 4,
    /// The moment from which the run counts as stuck.
    StuckAfter = 5,
    /// A message of a queue can be seen again.
    Visibility = 6,
}

impl TimerPurpose {
    const ALL: [Self; 6] = [
        Self::Wait,
        Self::Retry,
        Self::StepDeadline,
        Self::WorkflowTimeout,
        Self::StuckAfter,
        Self::Visibility,
    ];
}

/// Which timer: two that are due in the same millisecond are still two.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TimerKey {
    /// When it is due, in milliseconds of UTC since 1970.
    pub due_at: i64,
    /// Whose it is; 0 for a message that no run has taken.
    pub run: u64,
    /// What it is for.
    pub purpose: TimerPurpose,
    /// The command that started it, or the number of the message; 0 for the run itself.
    pub number: u64,
}

/// Something that will be due.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Timer {
    /// Whose it is, by the id that leads to the run.
    pub instance_id: String,
    /// When it was set, in milliseconds of UTC since 1970.
    pub set_at: i64,
}

impl Stored for Timer {
    const TABLE: Table = Table::Timer;
    const FORMAT: u8 = 1;
}

impl TimerKey {
    /// The timer's row.
    pub fn key(&self) -> Key {
        let writer = KeyWriter::new(Table::Timer).time(self.due_at).u64(self.run);
        writer.bytes(&[self.purpose as u8]).u64(self.number).key()
    }

    /// The timer of a row.
    pub fn read(key: &Key) -> Result<Self, TableError> {
        let mut reader = KeyReader::new(Table::Timer, key)?;
        let (due_at, run, [purpose]) = (reader.time()?, reader.u64()?, reader.array()?);
        let known = TimerPurpose::ALL.into_iter().find(|known| *known as u8 == purpose);
        let reason = "it has a purpose this program does not know";
        let purpose = known.ok_or(TableError::Key { table: Table::Timer, reason })?;
        let timer = Self { due_at, run, purpose, number: reader.u64()? };
        reader.end(timer)
    }
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
    use super::*;
    use proptest::prelude::*;

    fn timers() -> impl Strategy<Value = TimerKey> {
        let purpose = prop::sample::select(TimerPurpose::ALL.to_vec());
        (any::<i64>(), 0..3u64, purpose, any::<u64>()).prop_map(|(due_at, run, purpose, number)| TimerKey {
            due_at,
            run,
            purpose,
            number,
        })
    }

    proptest! {
        #[test]
        fn a_timer_survives_its_bytes(instance_id: String, set_at: i64) {
            value_round_trips(&Timer { instance_id, set_at });
        }

        #[test]
        fn timers_sort_by_when_they_are_due(keys in prop::collection::vec(timers(), 1..8)) {
            keys_round_trip_in_order(keys, TimerKey::key, TimerKey::read);
        }

        #[test]
        fn a_scan_holds_what_is_due_and_nothing_else(
            timer in timers(),
            due_at in -3..4i64,
            from in -3..4i64,
            until in -3..4i64,
        ) {
            let key = TimerKey { due_at, ..timer }.key();
            let before = due_before(until);
            prop_assert_eq!((before.from, before.until).contains(&key), due_at < until);
            let between = due_between(from, until);
            prop_assert_eq!((between.from, between.until).contains(&key), (from..until).contains(&due_at));
        }
    }
}

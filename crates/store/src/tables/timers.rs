//! Timers: one row for each time that a run waits for.
//!
//! The key begins with the due time, so the shard reads the timers that are due next from one end of the table, for all
//! runs. A timer does not know if it is still needed: when it fires, the run decides. Deadlines of calls in flight have
//! no rows here.

use abide_ids::{CommandId, RunId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{KeyReader, KeyWriter, TableError, TableId, TableRow};
use crate::rows::{Key, Scan};

/// The purpose of a timer. The numbers are stored: append only.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum TimerPurpose {
    /// A state waits until this time.
    Wait = 1,
    /// The next attempt of a call.
    Retry = 2,
    /// The deadline of a step, retries included.
    StepDeadline = 3,
    /// The timeout of the workflow.
    WorkflowTimeout = 4,
    /// The time from which the run counts as stuck.
    StuckCheck = 5,
    /// A message of a queue becomes visible again.
    Visibility = 6,
}

impl TimerPurpose {
    const ALL: [Self; 6] = [
        Self::Wait,
        Self::Retry,
        Self::StepDeadline,
        Self::WorkflowTimeout,
        Self::StuckCheck,
        Self::Visibility,
    ];
}

/// Identifies a timer, also among those that are due in the same millisecond.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TimerKey {
    pub due_at: Timestamp,
    pub run_id: RunId,
    pub purpose: TimerPurpose,
    /// The command that started the timer; `None` if the timer is of the run itself.
    pub command: Option<CommandId>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TimerRow {
    /// The instance id that leads to the run.
    pub instance_id: String,
    pub set_at: Timestamp,
}

impl TableRow for TimerRow {
    const TABLE: TableId = TableId::Timer;
    const FORMAT: u8 = 1;
}

impl TimerKey {
    /// Stands for no command in the key. Commands are numbered from 1, so the timers of the run itself sort first.
    const NO_COMMAND: CommandId = CommandId(0);

    pub fn key(&self) -> Key {
        let writer = KeyWriter::new(TableId::Timer).time(self.due_at).run_id(self.run_id);
        writer.bytes(&[self.purpose as u8]).u64(self.command.unwrap_or(Self::NO_COMMAND).0).key()
    }

    pub fn from_key(key: &Key) -> Result<Self, TableError> {
        let mut reader = KeyReader::new(TableId::Timer, key)?;
        let (due_at, run_id, [purpose]) = (reader.time()?, reader.run_id()?, reader.array()?);
        let known = TimerPurpose::ALL.into_iter().find(|known| *known as u8 == purpose);
        let reason = "this program does not know its timer purpose";
        let purpose = known.ok_or(TableError::InvalidKey { table: TableId::Timer, reason })?;
        let command = Some(CommandId(reader.u64()?)).filter(|command| *command != Self::NO_COMMAND);
        let timer = Self { due_at, run_id, purpose, command };
        reader.finish(timer)
    }
}

/// All timers due before this time, the longest overdue first.
pub fn due_before(at: Timestamp) -> Scan {
    Scan::range(KeyWriter::new(TableId::Timer).key(), KeyWriter::new(TableId::Timer).time(at).key())
}

/// All timers due at `from` or later and before `until`, in the order they are due.
pub fn due_between(from: Timestamp, until: Timestamp) -> Scan {
    let bound = |at| KeyWriter::new(TableId::Timer).time(at).key();
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
        (any::<Timestamp>(), 0..3u64, purpose, prop::option::of(1..=u64::MAX)).prop_map(
            |(due_at, run, purpose, command)| TimerKey {
                due_at,
                run_id: RunId(run),
                purpose,
                command: command.map(CommandId),
            },
        )
    }

    /// These bytes are stored: they must never change.
    #[test]
    fn a_timer_of_the_run_itself_is_stored_with_command_0() {
        let purpose = TimerPurpose::StuckCheck;
        let timer = TimerKey { due_at: Timestamp(0), run_id: RunId(1), purpose, command: None };
        let key = KeyWriter::new(TableId::Timer).u64(1 << 63).u64(1).bytes(&[5]).u64(0).key();
        assert_eq!((timer.key(), TimerKey::from_key(&key)), (key, Ok(timer)));
    }

    proptest! {
        #[test]
        fn a_timer_round_trips(instance_id: String, set_at: Timestamp) {
            value_round_trips(&TimerRow { instance_id, set_at });
        }

        #[test]
        fn timers_sort_by_when_they_are_due(keys in prop::collection::vec(timers(), 1..8)) {
            keys_round_trip_in_order(keys, TimerKey::key, TimerKey::from_key);
        }

        #[test]
        fn a_scan_holds_only_due_timers(
            timer in timers(),
            due_at in -3..4i64,
            from in -3..4i64,
            until in -3..4i64,
        ) {
            let due_at = Timestamp(due_at);
            let from = Timestamp(from);
            let until = Timestamp(until);
            let key = TimerKey { due_at, ..timer }.key();
            let before = due_before(until);
            prop_assert_eq!((before.from, before.until).contains(&key), due_at < until);
            let between = due_between(from, until);
            prop_assert_eq!((between.from, between.until).contains(&key), (from..until).contains(&due_at));
        }
    }
}

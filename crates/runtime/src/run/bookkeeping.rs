//! The runtime's own entries of a run: the due times of its timers, its children, up to where it has read events, and
//! the order to end its tree.
//!
//! Entries are stored as parts of the run, beside the workflow's parts and in the same pages and folds, under keys that
//! the workflow never uses. Each entry is a part of its own: a run with a thousand timers rewrites one entry to change
//! one. A change is made in memory and returned: the caller writes it with the page of the turn. Timer rows themselves
//! are written by the shard.

use std::collections::BTreeMap;

use abide_ids::RunId;
use abide_store::tables::timers::{TimerKey, TimerPurpose};
use abide_workflow::{CommandId, InstanceId, Timestamp};

/// First bytes of the runtime's own part keys. Those of the workflow are small numbers. Append only.
mod tag {
    pub(super) const LOWEST: u8 = 0xf0;
    pub(super) const TIMER: u8 = 0xf0;
    pub(super) const CHILD: u8 = 0xf1;
    pub(super) const STUCK: u8 = 0xf2;
    pub(super) const EVENTS_READ: u8 = 0xf3;
    pub(super) const TREE_ORDER: u8 = 0xf4;
}

/// The runtime's entries of one run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RunBookkeeping {
    /// Timers the run waits for, by the command that set them.
    pub timers: BTreeMap<CommandId, Timestamp>,
    /// Children the run waits for or has abandoned, by the command that started them.
    pub children: BTreeMap<CommandId, InstanceId>,
    /// Whether the run is watched for being stuck.
    pub stuck_watch: Option<StuckWatch>,
    /// The highest position of the events that the run has read, by entity as the reading calls named it. At most
    /// [`Self::EVENTS_READ_MAX`].
    pub events_read: BTreeMap<String, u64>,
    /// The reason why the run is ended with all its descendants, if that was ordered.
    pub tree_order: Option<String>,
}

/// The watch for a run that is stuck. Stored as a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StuckWatch {
    /// There is a timer row for the time at which the run counts as stuck.
    Due(Timestamp),
    /// The run was reported as stuck, which happens once.
    Reported,
}

impl StuckWatch {
    /// Stands for [`Self::Reported`] in the entry.
    const REPORTED: Timestamp = Timestamp::MAX;

    fn from_stored(at: Timestamp) -> Self {
        if at == Self::REPORTED { Self::Reported } else { Self::Due(at) }
    }

    fn stored(self) -> Timestamp {
        match self {
            Self::Due(at) => at,
            Self::Reported => Self::REPORTED,
        }
    }
}

/// A change of one part: its key, and its bytes, or `None` if it is deleted.
pub type EntryChange = (Vec<u8>, Option<Vec<u8>>);

impl RunBookkeeping {
    /// The keys of the timer rows that the run must have. fsck compares them with the rows; after damage, the shard
    /// keeps those in memory that a scan cannot find.
    pub fn timer_rows(&self, run_id: RunId) -> impl Iterator<Item = TimerKey> + '_ {
        let row = move |due_at, purpose, command| TimerKey { due_at, run_id, purpose, command };
        let waits =
            self.timers.iter().map(move |(command, due)| row(*due, TimerPurpose::Wait, Some(*command)));
        let stuck = match self.stuck_watch {
            Some(StuckWatch::Due(due)) => Some(row(due, TimerPurpose::StuckCheck, None)),
            Some(StuckWatch::Reported) | None => None,
        };
        waits.chain(stuck)
    }

    /// True if a part key belongs to the runtime.
    pub fn owns_key(key: &[u8]) -> bool {
        key.first().is_some_and(|tag| *tag >= tag::LOWEST)
    }

    /// Takes over one stored entry, when the run is loaded. False if this program does not know its form: then the run
    /// cannot be read.
    pub fn read_entry(&mut self, key: &[u8], bytes: &[u8]) -> bool {
        let due = || bytes.try_into().ok().map(i64::from_be_bytes).map(Timestamp);
        match key.split_first() {
            Some((&tag::TIMER, command)) => match (command_id(command), due()) {
                (Some(command), Some(due_at)) => self.timers.insert(command, due_at).is_none(),
                _ => false,
            },
            Some((&tag::CHILD, command)) => {
                let id = std::str::from_utf8(bytes).ok().and_then(|id| InstanceId::new(id).ok());
                match (command_id(command), id) {
                    (Some(command), Some(id)) => self.children.insert(command, id).is_none(),
                    _ => false,
                }
            }
            Some((&tag::EVENTS_READ, entity)) if entity.contains(&0) => {
                let position = bytes.try_into().ok().map(u64::from_be_bytes);
                match (std::str::from_utf8(entity), position) {
                    (Ok(entity), Some(position)) => {
                        self.events_read.insert(entity.to_owned(), position).is_none()
                    }
                    _ => false,
                }
            }
            Some((&tag::STUCK, [])) => {
                self.stuck_watch = due().map(StuckWatch::from_stored);
                self.stuck_watch.is_some()
            }
            Some((&tag::TREE_ORDER, [])) => {
                self.tree_order = std::str::from_utf8(bytes).ok().map(str::to_owned);
                self.tree_order.is_some()
            }
            _ => false,
        }
    }

    /// Adds a timer that a command of the run has set.
    pub fn set_timer(&mut self, command: CommandId, due_at: Timestamp) -> EntryChange {
        self.timers.insert(command, due_at);
        (entry_key(tag::TIMER, command), Some(time_bytes(due_at)))
    }

    /// Removes a timer that was cancelled, or whose message the run has consumed. Returns its due time if it existed.
    pub fn clear_timer(&mut self, command: CommandId) -> Option<(Timestamp, EntryChange)> {
        let due_at = self.timers.remove(&command)?;
        Some((due_at, (entry_key(tag::TIMER, command), None)))
    }

    /// Adds a child that a command of the run starts.
    pub fn set_child(&mut self, command: CommandId, id: InstanceId) -> EntryChange {
        let bytes = id.as_str().as_bytes().to_vec();
        self.children.insert(command, id);
        (entry_key(tag::CHILD, command), Some(bytes))
    }

    /// Removes a child that is to be terminated, or whose end the run has consumed. Returns its id if it existed.
    pub fn clear_child(&mut self, command: CommandId) -> Option<(InstanceId, EntryChange)> {
        let id = self.children.remove(&command)?;
        Some((id, (entry_key(tag::CHILD, command), None)))
    }

    /// Entities whose read position a run notes.
    pub const EVENTS_READ_MAX: usize = 1_000;

    /// Notes up to where the run has read the events of an entity. None if that is known, or if there are too many.
    pub fn set_events_read(&mut self, entity: String, position: u64) -> Option<EntryChange> {
        let known = self.events_read.get(&entity);
        if known.is_some_and(|known| *known >= position)
            || known.is_none() && self.events_read.len() >= Self::EVENTS_READ_MAX
        {
            return None;
        }
        let key = [&[tag::EVENTS_READ], entity.as_bytes()].concat();
        self.events_read.insert(entity, position);
        Some((key, Some(position.to_be_bytes().to_vec())))
    }

    /// Notes that the run is ended with all its descendants.
    pub fn set_tree_order(&mut self, reason: &str) -> EntryChange {
        self.tree_order = Some(reason.to_owned());
        (vec![tag::TREE_ORDER], Some(reason.as_bytes().to_vec()))
    }

    /// Notes that a run goes on that was ended with all its descendants: those that it starts now are not.
    pub fn clear_tree_order(&mut self) -> Option<EntryChange> {
        self.tree_order.take().map(|_| (vec![tag::TREE_ORDER], None))
    }

    /// Sets the time at which the run counts as stuck, notes that it was reported, or ends the watch with the run.
    pub fn set_stuck_watch(&mut self, watch: Option<StuckWatch>) -> EntryChange {
        self.stuck_watch = watch;
        (vec![tag::STUCK], watch.map(|watch| time_bytes(watch.stored())))
    }
}

fn time_bytes(at: Timestamp) -> Vec<u8> {
    at.0.to_be_bytes().to_vec()
}

fn entry_key(tag: u8, command: CommandId) -> Vec<u8> {
    let mut key = vec![tag];
    key.extend(command.0.to_be_bytes());
    key
}

fn command_id(bytes: &[u8]) -> Option<CommandId> {
    bytes.try_into().ok().map(u64::from_be_bytes).map(CommandId)
}

#[cfg(test)]
mod tests {
    use super::*;
    use abide_workflow::PartKey;

    #[test]
    fn entries_round_trip_and_are_never_mistaken_for_the_workflows_parts() {
        let child = InstanceId::new("parent~1.2").unwrap();
        let mut bookkeeping = RunBookkeeping::default();
        let changes = [
            bookkeeping.set_timer(CommandId(7), Timestamp(-5)),
            bookkeeping.set_child(CommandId(2), child),
            bookkeeping.set_stuck_watch(Some(StuckWatch::Due(Timestamp(9)))),
            bookkeeping.set_events_read("device\0k".to_owned(), 7).unwrap(),
            bookkeeping.set_tree_order("enough"),
        ];
        assert_eq!(
            changes[3],
            (b"\xf3device\0k".to_vec(), Some(vec![0, 0, 0, 0, 0, 0, 0, 7])),
            "stored bytes"
        );
        let mut read = RunBookkeeping::default();
        for (key, bytes) in changes {
            assert!(RunBookkeeping::owns_key(&key) && PartKey::from_bytes(&key).is_err());
            assert!(read.read_entry(&key, &bytes.unwrap()));
        }
        assert_eq!(read, bookkeeping);
        assert_eq!(read.clear_timer(CommandId(7)).unwrap().0, Timestamp(-5));
        assert!(read.clear_timer(CommandId(7)).is_none());
        assert_eq!(read.set_events_read("device\0k".to_owned(), 7), None);
        assert!(!RunBookkeeping::owns_key(&PartKey::Origin.to_bytes()));
    }

    /// These bytes are stored: they must never change.
    #[test]
    fn a_reported_run_is_stored_with_the_last_of_all_times() {
        let mut bookkeeping = RunBookkeeping::default();
        let (key, bytes) = bookkeeping.set_stuck_watch(Some(StuckWatch::Reported));
        assert_eq!((key.as_slice(), bytes.as_deref()), (&[0xf2][..], Some(&i64::MAX.to_be_bytes()[..])));
        assert!(bookkeeping.read_entry(&key, &bytes.unwrap()));
        assert_eq!(bookkeeping.stuck_watch, Some(StuckWatch::Reported));
        assert_eq!(bookkeeping.timer_rows(RunId(1)).count(), 0);
    }

    #[test]
    fn an_entry_of_unknown_form_is_not_read() {
        let mut bookkeeping = RunBookkeeping::default();
        for key in [
            &[0xf0][..],
            &[0xf0, 1],
            &[0xf3],
            &[0xf5],
            &[0xff, 0, 0, 0, 0, 0, 0, 0, 1],
            &[0xf2, 0],
            &[0xf4, 0],
        ] {
            assert!(!bookkeeping.read_entry(key, b"12345678"), "{key:?}");
        }
        assert!(!bookkeeping.read_entry(&entry_key(0xf1, CommandId(1)), b"a/b"));
        assert_eq!(bookkeeping, RunBookkeeping::default());
    }
}

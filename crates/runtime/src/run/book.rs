//! What the runtime itself must remember of a run: when its timers are due and who its children are.
//!
//! Entries are parts of the run like the workflow's own, under keys that those never have, and travel with them in pages and folds. One
//! part per entry: a run with a thousand timers does not rewrite a thousand entries for one.

use std::collections::BTreeMap;

use abide_store::tables::timers::{TimerKey, TimerPurpose};
use abide_workflow::{CommandId, InstanceId};

/// First bytes of the runtime's own part keys. The workflow's are small numbers. Append only.
mod tag {
    pub(super) const LOWEST: u8 = 0xf0;
    pub(super) const TIMER: u8 = 0xf0;
    pub(super) const CHILD: u8 = 0xf1;
    pub(super) const STUCK: u8 = 0xf2;
}

/// The runtime's entries of one run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Book {
    /// Timers the run waits for, by the command that set them.
    pub timers: BTreeMap<CommandId, i64>,
    /// Children the run waits for, by the command that started them.
    pub children: BTreeMap<CommandId, InstanceId>,
    /// When the run counts as stuck, if that has a timer row; or [`Book::TOLD`].
    pub stuck_at: Option<i64>,
}

/// A change of one part: its key, and its bytes or `None`.
pub type Change = (Vec<u8>, Option<Vec<u8>>);

impl Book {
    /// Stands for: the run was called stuck already.
    pub const TOLD: i64 = i64::MAX;

    /// The rows of the run's timers.
    pub fn timer_rows(&self, run: u64) -> impl Iterator<Item = TimerKey> + '_ {
        let row = move |due_at, purpose, number| TimerKey { due_at, run, purpose, number };
        let waits = self.timers.iter().map(move |(command, due)| row(*due, TimerPurpose::Wait, command.0));
        let stuck = self.stuck_at.filter(|due_at| *due_at != Self::TOLD);
        waits.chain(stuck.map(move |due| row(due, TimerPurpose::StuckAfter, 0)))
    }

    /// Whether a part key is the runtime's.
    pub fn owns(key: &[u8]) -> bool {
        key.first().is_some_and(|tag| *tag >= tag::LOWEST)
    }

    /// Reads one entry. False if it is none that this program knows.
    pub fn read(&mut self, key: &[u8], bytes: &[u8]) -> bool {
        let due = || bytes.try_into().ok().map(i64::from_be_bytes);
        match key.split_first() {
            Some((&tag::TIMER, command)) => match (number(command), due()) {
                (Some(command), Some(due_at)) => self.timers.insert(command, due_at).is_none(),
                _ => false,
            },
            Some((&tag::CHILD, command)) => {
                let id = std::str::from_utf8(bytes).ok().and_then(|id| InstanceId::new(id).ok());
                match (number(command), id) {
                    (Some(command), Some(id)) => self.children.insert(command, id).is_none(),
                    _ => false,
                }
            }
            Some((&tag::STUCK, [])) => {
                self.stuck_at = due();
                self.stuck_at.is_some()
            }
            _ => false,
        }
    }

    /// Notes a timer.
    pub fn set_timer(&mut self, command: CommandId, due_at: i64) -> Change {
        self.timers.insert(command, due_at);
        (key(tag::TIMER, command), Some(due_at.to_be_bytes().to_vec()))
    }

    /// Forgets a timer; when it was due, if it was there.
    pub fn clear_timer(&mut self, command: CommandId) -> Option<(i64, Change)> {
        let due_at = self.timers.remove(&command)?;
        Some((due_at, (key(tag::TIMER, command), None)))
    }

    /// Notes a child.
    pub fn set_child(&mut self, command: CommandId, id: InstanceId) -> Change {
        let bytes = id.as_str().as_bytes().to_vec();
        self.children.insert(command, id);
        (key(tag::CHILD, command), Some(bytes))
    }

    /// Forgets a child.
    pub fn clear_child(&mut self, command: CommandId) -> Option<(InstanceId, Change)> {
        let id = self.children.remove(&command)?;
        Some((id, (key(tag::CHILD, command), None)))
    }

    /// Notes when the run counts as stuck, or forgets it.
    pub fn set_stuck(&mut self, due_at: Option<i64>) -> Change {
        self.stuck_at = due_at;
        (vec![tag::STUCK], due_at.map(|due_at| due_at.to_be_bytes().to_vec()))
    }
}

fn key(tag: u8, command: CommandId) -> Vec<u8> {
    let mut key = vec![tag];
    key.extend(command.0.to_be_bytes());
    key
}

fn number(bytes: &[u8]) -> Option<CommandId> {
    bytes.try_into().ok().map(u64::from_be_bytes).map(CommandId)
}

#[cfg(test)]
mod tests {
    use super::*;
    use abide_workflow::PartKey;

    #[test]
    fn entries_survive_their_bytes_and_are_never_taken_for_the_workflows() {
        let child = InstanceId::new("parent~1.2").unwrap();
        let mut book = Book::default();
        let changes =
            [book.set_timer(CommandId(7), -5), book.set_child(CommandId(2), child), book.set_stuck(Some(9))];
        let mut read = Book::default();
        for (key, bytes) in changes {
            assert!(Book::owns(&key) && PartKey::from_bytes(&key).is_err());
            assert!(read.read(&key, &bytes.unwrap()));
        }
        assert_eq!(read, book);
        assert_eq!(read.clear_timer(CommandId(7)).unwrap().0, -5);
        assert!(read.clear_timer(CommandId(7)).is_none());
        assert!(!Book::owns(&PartKey::Origin.to_bytes()));
    }

    #[test]
    fn an_entry_of_another_shape_is_not_taken() {
        let mut book = Book::default();
        for key in [&[0xf0][..], &[0xf0, 1], &[0xf3], &[0xff, 0, 0, 0, 0, 0, 0, 0, 1], &[0xf2, 0]] {
            assert!(!book.read(key, b"12345678"), "{key:?}");
        }
        assert!(!book.read(&key(0xf1, CommandId(1)), b"a/b"));
        assert_eq!(book, Book::default());
    }
}

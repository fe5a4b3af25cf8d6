//! What a shard gathers for its commits, and the one commit that is out.
//!
//! Rows gather while a commit is out, and what follows from them waits with them. A row that is made and deleted in the same gathering was
//! never there. Knows nothing of what the rows mean.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use abide_store::rows::{Batch, Key, Limits};
use abide_store::tables::heads::CommitId;
use abide_store::tables::timers::TimerKey;
use abide_workflow::InstanceId;

use super::feed::FeedItem;
use super::schedule::DueKey;
use crate::event::Effect;
use crate::lease::Monotonic;

/// What happens when a commit is durable.
#[derive(Debug)]
pub(super) enum After {
    /// Done by the driver.
    Effect(Effect),
    /// A timer has a row now.
    Timer(TimerKey, InstanceId),
    /// Something is due that has no timer row.
    Due(DueKey, InstanceId),
    /// A state for the public table.
    Feed(u64, FeedItem),
    /// The run has ended and need not stay in memory.
    Forget(InstanceId),
    /// What waits for the instance can be served now.
    Serve(InstanceId),
}

/// Rows that become durable together.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    rows: BTreeMap<Key, Change>,
    bytes: usize,
    pub(super) after: Vec<After>,
    /// Something waits for this: it must not linger.
    pub(super) urgent: bool,
}

#[derive(Debug)]
struct Change {
    value: Option<Vec<u8>>,
    /// Made in this gathering; there is nothing in the store to delete.
    fresh: bool,
}

/// Rows to be written, or deleted.
pub(super) type Rows = Vec<(Key, Option<Vec<u8>>)>;

/// A commit that was sent.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) id: CommitId,
    pub(super) batch: Arc<Batch>,
    pub(super) after: Vec<After>,
    pub(super) sent: Monotonic,
    pub(super) tries: u32,
    pub(super) waiting: Waiting,
}

/// What a sent commit waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Waiting {
    /// Its answer.
    Answer,
    /// The head, to learn what came of it.
    Head,
    /// This moment, to be sent again.
    Retry(Monotonic),
    /// This moment, to ask for the head again.
    AskAgain(Monotonic),
}

/// All that is on its way to the store.
#[derive(Debug)]
pub(super) struct Commits {
    limits: Limits,
    open: Gathering,
    full: VecDeque<Gathering>,
    pub(super) in_flight: Option<InFlight>,
    /// The number of the open gathering; those below are full, out or durable.
    opened: u64,
    /// All gatherings up to this number are durable.
    pub(super) durable: u64,
    /// Rows written or deleted so far.
    pub(super) touched: u64,
}

/// Gatherings that may be full before turns wait.
const FULL_MAX: usize = 2;
/// Rows and bytes kept free in a gathering for what is added besides turns, the head included.
const ROWS_SPARE: usize = 8;
const BYTES_SPARE: usize = 64 * 1024;

impl Commits {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            open: Gathering::default(),
            full: VecDeque::new(),
            in_flight: None,
            opened: 1,
            durable: 0,
            touched: 0,
        }
    }

    /// The number of the gathering that changes go into now.
    pub(super) fn number(&self) -> u64 {
        self.opened
    }

    /// Whether another turn may be taken.
    pub(super) fn has_room(&self) -> bool {
        self.full.len() < FULL_MAX
    }

    /// Whether nothing is gathered or out.
    pub(super) fn is_idle(&self) -> bool {
        self.has_nothing_gathered() && self.in_flight.is_none()
    }

    /// Whether nothing waits to be sent.
    pub(super) fn has_nothing_gathered(&self) -> bool {
        self.open.is_empty() && self.full.is_empty()
    }

    /// Closes the open gathering if so many rows and bytes might not fit any more. What belongs together asks once, before its first row.
    pub(super) fn make_room(&mut self, rows: usize, bytes: usize) {
        let rows_max = self.limits.commit_rows_max.saturating_sub(ROWS_SPARE);
        let bytes_max = self.limits.commit_bytes_max / 2;
        if !self.open.rows.is_empty()
            && (self.open.rows.len() + rows > rows_max || self.open.bytes + bytes > bytes_max)
        {
            self.close();
        }
    }

    /// Whether a commit can hold so much, with nothing else in it.
    pub(super) fn can_hold(&self, rows: usize, bytes: usize) -> bool {
        rows.saturating_add(ROWS_SPARE) <= self.limits.commit_rows_max
            && bytes.saturating_add(BYTES_SPARE) <= self.limits.commit_bytes_max
    }

    /// Whether so much more fits beside what is gathered now.
    pub(super) fn fits(&self, rows: usize, bytes: usize) -> bool {
        self.can_hold(rows + self.open.rows.len(), bytes + self.open.bytes)
    }

    /// Rows and bytes that are gathered now.
    pub(super) fn gathered(&self) -> (usize, usize) {
        (self.open.rows.len(), self.open.bytes)
    }

    fn close(&mut self) {
        self.full.push_back(std::mem::take(&mut self.open));
        self.opened += 1;
    }

    /// A row that is not in the store and not on its way there.
    pub(super) fn create(&mut self, key: Key, value: Vec<u8>) {
        self.write(key, Some(value), true);
    }

    /// A row that may be there.
    pub(super) fn put(&mut self, key: Key, value: Vec<u8>) {
        self.write(key, Some(value), false);
    }

    pub(super) fn delete(&mut self, key: Key) {
        self.touched += 1;
        if self.open.rows.get(&key).is_some_and(|change| change.fresh) {
            if let Some(change) = self.open.rows.remove(&key) {
                self.open.bytes -= key.as_bytes().len() + change.value.map_or(0, |value| value.len());
            }
            return;
        }
        self.write(key, None, false);
    }

    fn write(&mut self, key: Key, value: Option<Vec<u8>>, fresh: bool) {
        self.touched += 1;
        self.open.bytes += key.as_bytes().len() + value.as_ref().map_or(0, Vec::len);
        // A row made here stays one that was made here, however often it is written; one that was deleted here is in the store.
        let before = self.open.rows.remove(&key);
        let fresh = before.as_ref().map_or(fresh, |before| before.fresh);
        if let Some(before) = before {
            self.open.bytes -= key.as_bytes().len() + before.value.map_or(0, |value| value.len());
        }
        self.open.rows.insert(key, Change { value, fresh });
    }

    /// What happens once what is gathered now is durable. The commit hurries.
    pub(super) fn then(&mut self, after: After) {
        self.open.urgent = true;
        self.open.after.push(after);
    }

    /// The commit hurries.
    pub(super) fn hurry(&mut self) {
        self.open.urgent = true;
    }

    /// What happens once the gathering of this number is durable; at once (given back) if it is.
    pub(super) fn when_durable(&mut self, number: u64, after: After) -> Option<After> {
        if number <= self.durable {
            return Some(after);
        }
        let ahead = self.opened.saturating_sub(number);
        let waiting = self.full.len() as u64;
        if ahead == 0 {
            self.open.after.push(after);
        } else if ahead <= waiting {
            // The last of the full ones is number `opened − 1`.
            let place = usize::try_from(waiting - ahead).unwrap_or(0);
            if let Some(gathering) = self.full.get_mut(place) {
                gathering.after.push(after);
            }
        } else if let Some(in_flight) = &mut self.in_flight {
            in_flight.after.push(after);
        } else {
            return Some(after);
        }
        None
    }

    /// The next gathering to commit; a hurried one, or any if `all`.
    pub(super) fn next(&mut self, all: bool) -> Option<(Rows, Vec<After>)> {
        if self.in_flight.is_some() {
            return None;
        }
        let gathering = match self.full.pop_front() {
            Some(gathering) => gathering,
            None if self.open.urgent || all && !self.open.is_empty() => {
                self.opened += 1;
                std::mem::take(&mut self.open)
            }
            None => return None,
        };
        let rows = gathering.rows.into_iter().map(|(key, change)| (key, change.value)).collect();
        Some((rows, gathering.after))
    }

    /// The commit that was out is durable.
    pub(super) fn settled(&mut self) -> Option<InFlight> {
        let in_flight = self.in_flight.take()?;
        self.durable += 1;
        Some(in_flight)
    }

    /// Whether something is gathered that hurries nobody.
    pub(super) fn has_lazy(&self) -> bool {
        !self.open.is_empty() && !self.open.urgent
    }

    /// Whether so much is gathered that it should not wait for company.
    pub(super) fn is_heavy(&self) -> bool {
        self.open.rows.len() * 2 > self.limits.commit_rows_max
    }
}

impl Gathering {
    fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.after.is_empty() && !self.urgent
    }
}

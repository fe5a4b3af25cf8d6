//! The queue of row changes on their way to the store: the open batch, the full batches, and the commit in flight.
//!
//! ```text
//!  create/put/delete ──> open batch ──> full batches ──> commit in flight ──> durable
//!                        number n       n−1, n−2         the oldest           up to `durable_batch`
//! ```
//!
//! Each batch is committed as a whole, in order, and carries the actions that wait for it. A row that is created and
//! deleted in the same batch never reaches the store. This is a data structure: it sends nothing, and does not know
//! what the rows mean.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use abide_store::rows::{Batch, Key, StoreLimits};
use abide_store::tables::heads::CommitId;
use abide_store::tables::timers::TimerKey;
use abide_workflow::InstanceId;

use crate::event::Effect;
use crate::lease::Monotonic;
use crate::shard::public_index::index_change::{IndexWrite, MarkerId};
use crate::shard::schedule::DueKey;

/// The number of a batch. They are numbered from 1 in the order they are committed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(in crate::shard) struct BatchNumber(u64);

impl BatchNumber {
    /// Before the first batch: of rows that this owner has not written, and so are durable.
    pub(in crate::shard) const NONE: Self = Self(0);

    fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The number of batches from `earlier` to this one; zero if `earlier` is not earlier.
    fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// An action that runs when a commit is durable.
#[derive(Debug)]
pub(in crate::shard) enum OnCommit {
    /// An effect for the driver.
    Effect(Effect),
    /// The timer has a row now, so it may fire.
    ArmTimer(TimerKey, InstanceId),
    /// Work that is due later and has no timer row.
    Schedule(DueKey, InstanceId),
    /// A write to the public index.
    PublishToIndex(MarkerId, Box<IndexWrite>),
    /// The instance need not stay in memory any more.
    Evict(InstanceId),
    /// The queue of the instance can be processed now.
    ProcessInstance(InstanceId),
}

/// Rows that become durable together.
#[derive(Debug, Default)]
pub(in crate::shard) struct CommitBatch {
    rows: BTreeMap<Key, RowChange>,
    bytes: usize,
    pub(in crate::shard) on_commit: Vec<OnCommit>,
    /// Something waits for this batch: it is committed without delay.
    pub(in crate::shard) urgent: bool,
}

#[derive(Debug)]
struct RowChange {
    value: Option<Vec<u8>>,
    /// Created in this batch; there is nothing in the store to delete.
    created_here: bool,
}

/// Rows to write, or to delete if there is no value.
pub(in crate::shard) type RowWrites = Vec<(Key, Option<Vec<u8>>)>;

#[derive(Debug)]
pub(in crate::shard) struct InFlightCommit {
    pub(in crate::shard) id: CommitId,
    pub(in crate::shard) batch: Arc<Batch>,
    pub(in crate::shard) on_commit: Vec<OnCommit>,
    pub(in crate::shard) sent_at: Monotonic,
    pub(in crate::shard) tries: u32,
    pub(in crate::shard) wait: CommitWait,
}

/// The thing that a commit in flight waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::shard) enum CommitWait {
    /// The outcome from the store.
    Outcome,
    /// The head, to resolve an unknown outcome.
    Head,
    /// This time, to be sent again.
    Retry(Monotonic),
    /// This time, to read the head again.
    HeadRetry(Monotonic),
}

/// All row changes that are not durable yet.
#[derive(Debug)]
pub(in crate::shard) struct CommitQueue {
    limits: StoreLimits,
    open_batch: CommitBatch,
    full_batches: VecDeque<CommitBatch>,
    pub(in crate::shard) in_flight: Option<InFlightCommit>,
    /// The number of the open batch. Batches with lower numbers are full, in flight or durable.
    open_number: BatchNumber,
    /// All batches up to this number are durable.
    pub(in crate::shard) durable_batch: BatchNumber,
}

/// Full batches from which on no new work is begun.
const FULL_BATCHES_MAX: usize = 2;
/// Rows and bytes kept free in a batch for the head row, and for rows that a merge writes uncounted, such as the
/// deletion of a handled expiry row.
pub(in crate::shard) const ROWS_SPARE: usize = 8;
pub(in crate::shard) const BYTES_SPARE: usize = 64 * 1024;

impl CommitQueue {
    pub(in crate::shard) fn new(limits: StoreLimits) -> Self {
        Self {
            limits,
            open_batch: CommitBatch::default(),
            full_batches: VecDeque::new(),
            in_flight: None,
            open_number: BatchNumber::NONE.next(),
            durable_batch: BatchNumber::NONE,
        }
    }

    /// The number of the batch that changes go into now.
    pub(in crate::shard) fn batch_number(&self) -> BatchNumber {
        self.open_number
    }

    /// The number of the batch that is durable next: the one in flight, or the next to be sent.
    pub(in crate::shard) fn next_durable(&self) -> BatchNumber {
        self.durable_batch.next()
    }

    /// Returns whether new work may begin: a turn, an operation on an entity, due work, a slice of a deletion.
    pub(in crate::shard) fn has_capacity(&self) -> bool {
        self.full_batches.len() < FULL_BATCHES_MAX
    }

    /// Returns whether the commit in flight waits for the head, to resolve its outcome.
    pub(in crate::shard) fn awaits_head(&self) -> bool {
        self.in_flight.as_ref().is_some_and(|commit| commit.wait == CommitWait::Head)
    }

    /// Returns whether nothing is pending or in flight.
    pub(in crate::shard) fn is_idle(&self) -> bool {
        self.has_nothing_pending() && self.in_flight.is_none()
    }

    /// Returns whether nothing waits to be sent.
    pub(in crate::shard) fn has_nothing_pending(&self) -> bool {
        self.open_batch.is_empty() && self.full_batches.is_empty()
    }

    /// Closes the open batch if these rows and bytes might not fit into it. Changes that must be committed together
    /// reserve once, before their first row; a unit with more than half the bytes of a commit gets a batch of its own.
    pub(in crate::shard) fn reserve(&mut self, rows: usize, bytes: usize) {
        let rows_max = self.limits.commit_rows_max.saturating_sub(ROWS_SPARE);
        let bytes_max = self.limits.commit_bytes_max / 2;
        if !self.open_batch.rows.is_empty()
            && (self.open_batch.rows.len() + rows > rows_max || self.open_batch.bytes + bytes > bytes_max)
        {
            self.close_open_batch();
        }
    }

    fn close_open_batch(&mut self) {
        self.full_batches.push_back(std::mem::take(&mut self.open_batch));
        self.open_number = self.open_number.next();
    }

    /// Writes a row that is neither in the store nor on its way there.
    pub(in crate::shard) fn create(&mut self, key: Key, value: Vec<u8>) {
        self.write(key, Some(value), true);
    }

    /// Writes a row that may already be in the store.
    pub(in crate::shard) fn put(&mut self, key: Key, value: Vec<u8>) {
        self.write(key, Some(value), false);
    }

    /// Deletes a row. A row that the open batch has created is taken out of it instead.
    pub(in crate::shard) fn delete(&mut self, key: Key) {
        if self.open_batch.rows.get(&key).is_some_and(|change| change.created_here) {
            if let Some(change) = self.open_batch.rows.remove(&key) {
                self.open_batch.bytes -= key.as_bytes().len() + change.value.map_or(0, |value| value.len());
            }
            return;
        }
        self.write(key, None, false);
    }

    fn write(&mut self, key: Key, value: Option<Vec<u8>>, created_here: bool) {
        self.open_batch.bytes += key.as_bytes().len() + value.as_ref().map_or(0, Vec::len);
        // A row created in this batch stays so, however often it is written. A row deleted in this batch is in the
        // store.
        let before = self.open_batch.rows.remove(&key);
        let created_here = before.as_ref().map_or(created_here, |before| before.created_here);
        if let Some(before) = before {
            self.open_batch.bytes -= key.as_bytes().len() + before.value.map_or(0, |value| value.len());
        }
        self.open_batch.rows.insert(key, RowChange { value, created_here });
    }

    /// Runs the action once the open batch is durable, and marks the batch urgent.
    pub(in crate::shard) fn on_commit(&mut self, action: OnCommit) {
        self.open_batch.urgent = true;
        self.open_batch.on_commit.push(action);
    }

    /// The open batch is committed without delay.
    pub(in crate::shard) fn mark_urgent(&mut self) {
        self.open_batch.urgent = true;
    }

    /// Runs the action once the batch with this number is durable, without making it urgent. If it already is durable,
    /// the action is returned for the caller to run.
    pub(in crate::shard) fn defer_until_durable(
        &mut self,
        number: BatchNumber,
        action: OnCommit,
    ) -> Option<OnCommit> {
        if number <= self.durable_batch {
            return Some(action);
        }
        let ahead = self.open_number.since(number);
        let waiting = self.full_batches.len() as u64;
        if ahead == 0 {
            self.open_batch.on_commit.push(action);
        } else if ahead <= waiting {
            // The last of the full batches has the number `open_number − 1`.
            let place = usize::try_from(waiting - ahead).unwrap_or(0);
            if let Some(batch) = self.full_batches.get_mut(place) {
                batch.on_commit.push(action);
            }
        } else if let Some(in_flight) = &mut self.in_flight {
            in_flight.on_commit.push(action);
        } else {
            return Some(action);
        }
        None
    }

    /// Takes the next batch to commit, unless a commit is in flight: the oldest full batch, else the open one if it is
    /// urgent or, with `all`, not empty. The caller sends it and sets `in_flight`.
    pub(in crate::shard) fn take_next(&mut self, all: bool) -> Option<(RowWrites, Vec<OnCommit>)> {
        if self.in_flight.is_some() {
            return None;
        }
        let batch = match self.full_batches.pop_front() {
            Some(batch) => batch,
            None if self.open_batch.urgent || all && !self.open_batch.is_empty() => {
                self.open_number = self.open_number.next();
                std::mem::take(&mut self.open_batch)
            }
            None => return None,
        };
        let rows = batch.rows.into_iter().map(|(key, change)| (key, change.value)).collect();
        Some((rows, batch.on_commit))
    }

    /// Removes the commit in flight, which is durable now. The caller runs its actions.
    pub(in crate::shard) fn complete_in_flight(&mut self) -> Option<InFlightCommit> {
        let in_flight = self.in_flight.take()?;
        self.durable_batch = self.durable_batch.next();
        Some(in_flight)
    }

    /// Returns whether the open batch has changes that nothing waits for.
    pub(in crate::shard) fn is_lingering(&self) -> bool {
        !self.open_batch.is_empty() && !self.open_batch.urgent
    }

    /// Returns whether the open batch is full enough to be committed without waiting for more changes.
    pub(in crate::shard) fn is_half_full(&self) -> bool {
        self.open_batch.rows.len() * 2 > self.limits.commit_rows_max
    }
}

impl CommitBatch {
    fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.on_commit.is_empty() && !self.urgent
    }
}

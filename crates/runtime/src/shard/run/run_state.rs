//! A run in memory: its interpreter state, its open calls, its queued messages, and how much of it is written.
//!
//! Memory may be ahead of the store; `written_batch` names the batch with the newest rows. This file neither reads nor
//! writes rows: [`load`](crate::shard::instances::load) builds a run from the store, [`turn`](crate::shard::turn)
//! advances it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use abide_ids::{KeyDigest, PageNumber, RunId, RunNumber, Sequence};
use abide_store::tables::history_pages::{CallFailures, SettledCall};
use abide_store::tables::idempotency::IdempotencyRow;
use abide_store::tables::instances::InstanceRow;
use abide_workflow::{CommandId, Instance, Message, Plan};

use crate::lease::Monotonic;
use crate::run::RunBookkeeping;
use crate::shard::calls::open_call::OpenCall;
use crate::shard::commit::commit_queue::{BatchNumber, OnCommit};
use crate::shard::work_item::{MessageSource, QueuedMessage};

/// A run in memory. It may be ahead of the store.
#[derive(Debug)]
pub(in crate::shard) struct ResidentRun {
    pub(in crate::shard) row: InstanceRow,
    pub(in crate::shard) plan: Arc<Plan>,
    pub(in crate::shard) instance: Instance,
    pub(in crate::shard) bookkeeping: RunBookkeeping,
    pub(in crate::shard) calls: BTreeMap<CommandId, OpenCall>,
    /// Calls whose failure the run holds, to decide about it when the run is resumed.
    pub(in crate::shard) held_calls: Vec<CommandId>,
    /// Calls settled by this turn, for its history page.
    pub(in crate::shard) settled_calls: Vec<(SettledCall, CallFailures)>,
    /// Messages that wait for a turn, and the source of each.
    pub(in crate::shard) messages: VecDeque<Message>,
    pub(in crate::shard) sources: VecDeque<MessageSource>,
    /// The last turn was cut short: there is more to do even without a message.
    pub(in crate::shard) unfinished: bool,
    /// The inbox row that records it.
    pub(in crate::shard) continuation_row: Option<Sequence>,
    pub(in crate::shard) last_page: PageNumber,
    /// Parts changed since the last fold, by name: the bytes, and the page that has them.
    pub(in crate::shard) unfolded_parts: BTreeMap<Vec<u8>, (Option<Vec<u8>>, PageNumber)>,
    pub(in crate::shard) unfolded_bytes: usize,
    pub(in crate::shard) fold: Option<FoldProgress>,
    /// The batch with its newest rows.
    pub(in crate::shard) written_batch: BatchNumber,
    /// Actions of the commit of its first turn. Until that turn nothing of the run is on its way to the store.
    pub(in crate::shard) first_turn_actions: Vec<FirstTurnAction>,
    /// How many runs in a row continued as new up to this one without consuming a message.
    pub(in crate::shard) empty_continuations: u32,
    /// It has had a turn since it came into memory, or nothing of it was stored before: its next turn needs no mark
    /// when the shard recovers carefully.
    pub(in crate::shard) is_proven: bool,
    /// The run is in `ready_runs`.
    pub(in crate::shard) in_ready_queue: bool,
    /// Since when the run is idle, if it is in `idle_runs`.
    pub(in crate::shard) idle_since: Option<Monotonic>,
}

impl ResidentRun {
    /// A run before its first turn.
    pub(in crate::shard) fn new(
        row: InstanceRow,
        plan: Arc<Plan>,
        instance: Instance,
        written_batch: BatchNumber,
    ) -> Self {
        Self {
            row,
            plan,
            instance,
            bookkeeping: RunBookkeeping::default(),
            calls: BTreeMap::new(),
            held_calls: Vec::new(),
            settled_calls: Vec::new(),
            messages: VecDeque::new(),
            sources: VecDeque::new(),
            unfinished: true,
            continuation_row: None,
            last_page: PageNumber::ZERO,
            unfolded_parts: BTreeMap::new(),
            unfolded_bytes: 0,
            fold: None,
            written_batch,
            first_turn_actions: Vec::new(),
            empty_continuations: 0,
            is_proven: false,
            in_ready_queue: false,
            idle_since: None,
        }
    }

    /// Returns whether a turn would do anything.
    pub(in crate::shard) fn needs_turn(&self) -> bool {
        self.unfinished || !self.messages.is_empty()
    }

    /// Queues a message for the turns of the run. The message of a call must have been noted in its open call before.
    pub(in crate::shard) fn push_message(&mut self, envelope: QueuedMessage) {
        if !envelope.message.terminates() {
            self.messages.push_back(envelope.message);
            return self.sources.push_back(envelope.source);
        }
        let earlier = self.messages.iter().take_while(|message| message.terminates()).count();
        self.messages.insert(earlier, envelope.message);
        self.sources.insert(earlier, envelope.source);
    }

    /// Returns whether a request under this key waits for a turn, so that another one may be its repeat.
    pub(in crate::shard) fn has_queued_key(&self, key: Option<KeyDigest>) -> bool {
        self.sources.iter().any(|source| match source {
            MessageSource::Client(_, Some(idempotency)) => Some(idempotency.key_digest) == key,
            _ => false,
        })
    }

    /// Returns whether the next message ends the run.
    pub(in crate::shard) fn ends_next(&self) -> bool {
        self.messages.front().is_some_and(Message::terminates)
    }

    /// Returns whether the run can be evicted: nothing waits for a turn, and the store has all of it.
    pub(in crate::shard) fn is_evictable(&self, durable: BatchNumber) -> bool {
        !self.needs_turn() && self.first_turn_actions.is_empty() && self.written_batch <= durable
    }

    /// A rough estimate of its memory.
    pub(in crate::shard) fn memory_bytes(&self) -> usize {
        const FIXED: usize = 4 * 1024;
        FIXED + self.unfolded_bytes * 3
    }

    /// Returns whether the run has ended in memory. The end may not be durable yet.
    pub(in crate::shard) fn has_ended(&self) -> bool {
        self.instance.status().is_terminal()
    }
}

/// An action of the commit of a run's first turn.
#[derive(Debug)]
pub(in crate::shard) enum FirstTurnAction {
    OnCommit(OnCommit),
    /// Stores the reply under the idempotency key of the request that started the run.
    StoreReply(KeyDigest, IdempotencyRow),
    /// Deletes the message that asked for the run.
    DeleteInboxRow(Sequence),
    /// Records the run that this one replaces as an earlier run of the instance.
    RecordReplacedRun {
        run_number: RunNumber,
        run_id: RunId,
    },
}

/// A fold in progress: the parts still to be written, all of them as of this page or later.
#[derive(Debug)]
pub(in crate::shard) struct FoldProgress {
    pub(in crate::shard) until_page: PageNumber,
    pub(in crate::shard) part_names: VecDeque<Vec<u8>>,
}

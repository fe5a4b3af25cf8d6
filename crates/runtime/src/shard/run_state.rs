//! A run in memory: its interpreter state, its open calls, its queued messages, and how much of it is written.
//!
//! Memory may be ahead of the store; `written_batch` names the batch with the newest rows. This file neither reads nor
//! writes rows: [`load`](super::load) builds a run from the store, [`turn`](super::turn) advances it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use abide_dispatch::call_journal::{CONSECUTIVE_UNANSWERED_MAX, FailedFinal, UnsettledCall};
use abide_ids::{IdempotencyKey, KeyDigest, PageNumber, RunId, RunNumber, Sequence};
use abide_store::tables::calls::{CallRow, CallRowState};
use abide_store::tables::idempotency::IdempotencyRow;
use abide_store::tables::instances::InstanceRow;
use abide_workflow::failure::code;
use abide_workflow::json::Json;
use abide_workflow::{CommandId, Failure, Instance, Message, Plan, Timestamp};

use super::attempt_outcome::AttemptOutcome;
use super::call_record::{self, SettledRecord};
use super::commit_queue::{BatchNumber, OnCommit};
use super::work_item::{MessageSource, QueuedMessage};
use crate::lease::Monotonic;
use crate::run::RunBookkeeping;

/// A run in memory. It may be ahead of the store.
#[derive(Debug)]
pub(super) struct ResidentRun {
    pub(super) row: InstanceRow,
    pub(super) plan: Arc<Plan>,
    pub(super) instance: Instance,
    pub(super) bookkeeping: RunBookkeeping,
    pub(super) calls: BTreeMap<CommandId, OpenCall>,
    /// Calls whose failure the run holds, to decide about it when the run is resumed.
    pub(super) held_calls: Vec<CommandId>,
    /// Calls settled by this turn, for its history page.
    pub(super) settled_calls: Vec<SettledRecord>,
    /// Messages that wait for a turn, and the source of each.
    pub(super) messages: VecDeque<Message>,
    pub(super) sources: VecDeque<MessageSource>,
    /// The last turn was cut short: there is more to do even without a message.
    pub(super) unfinished: bool,
    /// The inbox row that records it.
    pub(super) continuation_row: Option<Sequence>,
    pub(super) last_page: PageNumber,
    /// Parts changed since the last fold, by name: the bytes, and the page that has them.
    pub(super) unfolded_parts: BTreeMap<Vec<u8>, (Option<Vec<u8>>, PageNumber)>,
    pub(super) unfolded_bytes: usize,
    pub(super) fold: Option<FoldProgress>,
    /// The batch with its newest rows.
    pub(super) written_batch: BatchNumber,
    /// Actions of the commit of its first turn. Until that turn nothing of the run is on its way to the store.
    pub(super) first_turn_actions: Vec<FirstTurnAction>,
    /// How many runs in a row continued as new up to this one without consuming a message.
    pub(super) empty_continuations: u32,
    /// The run is in `ready_runs`.
    pub(super) in_ready_queue: bool,
    /// Since when the run is idle, if it is in `idle_runs`.
    pub(super) idle_since: Option<Monotonic>,
}

impl ResidentRun {
    /// A run before its first turn.
    pub(super) fn new(
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
            in_ready_queue: false,
            idle_since: None,
        }
    }

    /// Returns whether a turn would do anything.
    pub(super) fn needs_turn(&self) -> bool {
        self.unfinished || !self.messages.is_empty()
    }

    pub(super) fn push_message(&mut self, envelope: QueuedMessage) {
        self.messages.push_back(envelope.message);
        self.sources.push_back(envelope.source);
    }

    /// Returns whether the run can be evicted: nothing waits for a turn, and the store has all of it.
    pub(super) fn is_evictable(&self, durable: BatchNumber) -> bool {
        !self.needs_turn() && self.first_turn_actions.is_empty() && self.written_batch <= durable
    }

    /// A rough estimate of its memory.
    pub(super) fn memory_bytes(&self) -> usize {
        const FIXED: usize = 4 * 1024;
        FIXED + self.unfolded_bytes * 3
    }

    pub(super) fn has_ended(&self) -> bool {
        self.instance.status().is_terminal()
    }
}

/// An action of the commit of a run's first turn.
#[derive(Debug)]
pub(super) enum FirstTurnAction {
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
pub(super) struct FoldProgress {
    pub(super) until_page: PageNumber,
    pub(super) part_names: VecDeque<Vec<u8>>,
}

/// A call that is not settled.
#[derive(Debug)]
pub(super) struct OpenCall {
    pub(super) idempotency_key: IdempotencyKey,
    /// Its row, without the input.
    pub(super) row: CallRow,
    pub(super) input: Json,
    /// Bytes of the input in its row.
    pub(super) input_bytes: usize,
    /// This owner has an attempt in flight.
    pub(super) in_flight: bool,
    /// A result waits for a turn of the run.
    pub(super) has_result: bool,
    /// Its row has been written.
    pub(super) recorded: bool,
    /// The permanent failure that ends the call without another attempt.
    pub(super) final_failure: Option<FailedFinal>,
    /// The run holds its failure, and the row records that.
    pub(super) is_held: bool,
    /// The outcome of the last attempt, if it was reported.
    pub(super) last_outcome: Option<AttemptOutcome>,
}

impl OpenCall {
    /// The error code of a call whose attempts never got a response.
    pub(super) const POISON: &str = "Poison";
    /// Bytes of the last failure reason that the row keeps.
    pub(super) const REASON_BYTES_MAX: usize = 1024;

    /// A call whose row is not written yet.
    pub(super) fn new(idempotency_key: IdempotencyKey, row: CallRow, input: Json) -> Self {
        Self {
            idempotency_key,
            row,
            input,
            input_bytes: 0,
            in_flight: false,
            has_result: false,
            recorded: false,
            final_failure: None,
            is_held: false,
            last_outcome: None,
        }
    }

    /// Restores the state of a call of a loaded run that holds this failure.
    pub(super) fn restore_held_failure(&mut self, failure: &Failure) {
        self.is_held = self.row.state == CallRowState::FailedRetryable && self.row.not_before.is_none();
        let at = self.row.first_failure_at.unwrap_or(self.row.sent_at);
        // Activities may use the same codes. The server's own failures are permanent, and the row shows which one it
        // was.
        self.final_failure = match (failure.code.as_str(), call_record::state_of(&self.row)) {
            _ if failure.retryable => None,
            (code::TIMEOUT, open) if self.missed_deadline() => Some(open.expire(at)),
            (Self::POISON, UnsettledCall::FailedRetryable(failed))
                if failed.record.consecutive_unanswered >= CONSECUTIVE_UNANSWERED_MAX =>
            {
                Some(failed.poison(at))
            }
            _ => None,
        };
    }

    /// The failure of a call whose deadline has passed. The row stores the message, and [`Self::missed_deadline`]
    /// compares it: do not reword it.
    pub(super) fn deadline_failure() -> Failure {
        Failure::permanent(code::TIMEOUT, "the step's deadline has passed")
    }

    /// Returns whether the row says that the deadline passed: the call was never sent, or that is its last failure.
    fn missed_deadline(&self) -> bool {
        let Failure { code, message, .. } = Self::deadline_failure();
        let ours = self.row.failure_reason.as_deref() == Some(&format!("{code}: {message}"));
        self.row.deadline_at.is_some() && (ours || self.row.state == CallRowState::Pending)
    }

    /// Records the last failure in the row, for operators and the API.
    pub(super) fn record_failure(&mut self, failure: &Failure, status: Option<String>, now: Timestamp) {
        let reason = format!("{}: {}", failure.code, failure.message);
        let cut = reason.floor_char_boundary(Self::REASON_BYTES_MAX);
        self.row.failure_reason = Some(reason.get(..cut).unwrap_or_default().to_owned());
        // An attempt that was not sent has no status and keeps the last known one.
        self.row.failure_status = status.or_else(|| self.row.failure_status.take());
        self.row.first_failure_at.get_or_insert(now);
    }
}

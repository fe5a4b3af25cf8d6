//! One unit of work: a turn, a request, a firing, an arrival or a slice of a deletion fills it, and the root merges it
//! into one batch as a whole.
//!
//! ```text
//!  UnitOfWork::new ──> rows and follow-ups, in order ──> finish ──> FilledUnit ──> the root merges it
//!                                                                        └─ a turn too large for any commit: dropped
//! ```
//!
//! What follows a commit, such as messages, timers and replies, is in the unit too, so a dropped turn leaves nothing
//! behind; [`TurnUndo`](crate::shard::turn::TurnUndo) restores its run. Merging replays the steps in their order: a
//! row that is created and deleted in one unit never reaches the store. Other units always fit, because those who
//! fill them bound their rows, and may note in their own memory what they have taken. A unit does not know what its
//! rows mean, and does not decide which batch it joins.

use abide_dispatch::{CallAttempt, HoldReason};
use abide_ids::{KeyDigest, RunId, Sequence};
use abide_store::rows::{Key, StoreLimits};
use abide_store::tables::idempotency::IdempotencyRow;
use abide_workflow::{CommandId, InstanceId};

use crate::event::{AttemptId, Effect, OperatorEvent, ScanPurpose};
use crate::placement::ShardId;
use crate::request::{RequestError, RequestId, ShardReply};
use crate::shard::calls::attempts_in_flight::InFlightAttempt;
use crate::shard::commit::commit_queue::{BYTES_SPARE, OnCommit, ROWS_SPARE};
use crate::shard::context::Context;
use crate::shard::public_index::index_change::IndexChange;
use crate::shard::schedule::DueKey;
use crate::shard::work_item::WorkItem;

/// A unit of work that is being filled, with the context of its shard.
#[derive(Debug)]
pub(super) struct UnitOfWork<'c> {
    pub(super) ctx: &'c mut Context,
    unit: FilledUnit,
}

/// A filled unit of work.
#[derive(Debug, Default)]
pub(super) struct FilledUnit {
    steps: Vec<Step>,
    rows: usize,
    bytes: usize,
    /// The unit has the newest rows of the instance it was filled for.
    pub(super) has_newest_rows: bool,
}

/// Most units have no more steps, so their list grows once.
const USUAL_STEPS: usize = 16;

/// A place in a unit, to which it can be cut back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    steps: usize,
    rows: usize,
    bytes: usize,
}

/// One step of a unit. The root applies it to the component it is for.
#[derive(Debug)]
pub(super) enum Step {
    /// Writes a row that is neither in the store nor on its way there.
    Create(Key, Vec<u8>),
    /// Writes a row that may already be in the store.
    Put(Key, Vec<u8>),
    Delete(Key),
    /// The batch is committed without delay.
    Urgent,
    OnCommit(OnCommit),
    /// A message to another shard, whose outbox row is in this unit.
    SendMessage {
        target: ShardId,
        number: Sequence,
        bytes: Vec<u8>,
    },
    /// A work item for an instance of this shard, whose inbox row is in this unit. It is queued with the other messages
    /// that turns have sent.
    QueueMessage(InstanceId, Box<WorkItem>),
    /// A work item for an instance, processed right after the merge.
    Enqueue(InstanceId, Box<WorkItem>),
    /// A change of the public index.
    Index(Box<IndexChange>),
    /// The marker of a run is deleted.
    ForgetMarker(RunId),
    /// Work that is due later, or no longer due.
    Schedule(DueKey, InstanceId),
    Unschedule(DueKey),
    /// Starts an attempt once this is durable.
    StartAttempt(AttemptId, Box<CallAttempt>, InFlightAttempt),
    /// Tries to send a held call, whose row says that it was not sent.
    TryHeldCall(AttemptId, Box<CallAttempt>, InFlightAttempt),
    /// A call is held back, or not any more.
    NoteHold(RunId, CommandId, HoldReason),
    ForgetHold(RunId, CommandId),
    CancelAttempt(AttemptId),
    CancelAttemptsOf(RunId),
    /// A reply under an idempotency key, whose row is in this unit.
    RememberReply(KeyDigest, IdempotencyRow),
    /// A request waits for the end of the run.
    AwaitEnd(InstanceId, RequestId),
    /// The run will not end: those who wait for it are refused once this is durable.
    RefuseEndWaiters(InstanceId, RequestError),
    /// A row cannot be read.
    Unreadable(ScanPurpose, Key, String),
    /// There is something for the garbage collector to delete at once.
    CollectGarbage,
    /// The unit deletes expiry rows, which a scan would find again until it is durable.
    GarbageDeleted,
    /// One run of an expiry row was handled.
    ExpiryHandled(Key),
}

impl<'c> UnitOfWork<'c> {
    pub(super) fn new(ctx: &'c mut Context) -> Self {
        Self { ctx, unit: FilledUnit::default() }
    }

    /// Continues a unit that was begun before, such as one that was cut back.
    pub(super) fn resume(ctx: &'c mut Context, unit: FilledUnit) -> Self {
        Self { ctx, unit }
    }

    pub(super) fn finish(self) -> FilledUnit {
        self.unit
    }

    /// Writes a row that is neither in the store nor on its way there.
    pub(super) fn create(&mut self, key: Key, value: Vec<u8>) {
        self.count_row(&key, value.len());
        self.add(Step::Create(key, value));
    }

    /// Writes a row that may already be in the store.
    pub(super) fn put(&mut self, key: Key, value: Vec<u8>) {
        self.count_row(&key, value.len());
        self.add(Step::Put(key, value));
    }

    pub(super) fn delete(&mut self, key: Key) {
        self.count_row(&key, 0);
        self.add(Step::Delete(key));
    }

    pub(super) fn mark_urgent(&mut self) {
        self.add(Step::Urgent);
    }

    /// Runs the action once the unit is durable, and makes its batch urgent.
    pub(super) fn on_commit(&mut self, action: OnCommit) {
        self.add(Step::OnCommit(action));
    }

    /// Replies once the unit is durable.
    pub(super) fn reply_on_commit(&mut self, request_id: RequestId, reply: ShardReply) {
        self.on_commit(OnCommit::Effect(Effect::Reply(request_id, reply)));
    }

    pub(super) fn refuse_on_commit(&mut self, request_id: RequestId, refusal: RequestError) {
        self.reply_on_commit(request_id, ShardReply::Refused(refusal));
    }

    /// Tells the operator once the unit is durable.
    pub(super) fn notify_on_commit(&mut self, notice: OperatorEvent) {
        self.on_commit(OnCommit::Effect(Effect::Notify(notice)));
    }

    pub(super) fn add(&mut self, step: Step) {
        self.unit.add(step);
    }

    /// Counts a row that a step writes when it is merged.
    pub(super) fn count_row(&mut self, key: &Key, value_bytes: usize) {
        self.unit.rows += 1;
        self.unit.bytes += key.as_bytes().len() + value_bytes;
    }

    /// The unit has the newest rows of the instance or entity it is filled for. The root then notes its batch as their
    /// `written_batch`: until that is durable, the store is behind memory, and nothing of it is evicted or told.
    pub(super) fn note_newest_rows(&mut self) {
        self.unit.has_newest_rows = true;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.unit.steps.is_empty()
    }

    pub(super) fn row_count(&self) -> usize {
        self.unit.rows
    }

    /// Returns whether a commit can hold the unit with this much more. A fold asks: it writes its slice beside a turn,
    /// and must not make the turn too large.
    pub(super) fn has_room_for(&self, rows: usize, bytes: usize) -> bool {
        fits_alone(self.unit.rows + rows, self.unit.bytes + bytes, self.ctx.config.store_limits)
    }

    /// The present end of the unit. If the rest turns out too large, it is cut back to here.
    pub(super) fn mark(&self) -> Mark {
        Mark { steps: self.unit.steps.len(), rows: self.unit.rows, bytes: self.unit.bytes }
    }
}

impl FilledUnit {
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether some commit can hold the unit. Asked about a turn before it is merged; a turn that does not fit
    /// is cut back to its mark, and its run is parked.
    pub(super) fn fits_in_commit(&self, limits: StoreLimits) -> bool {
        fits_alone(self.rows, self.bytes, limits)
    }

    /// Drops everything after the mark, and returns the dropped steps.
    pub(super) fn cut_back(&mut self, mark: Mark) -> Vec<Step> {
        let dropped = self.steps.split_off(mark.steps);
        (self.rows, self.bytes, self.has_newest_rows) = (mark.rows, mark.bytes, false);
        dropped
    }

    pub(super) fn add(&mut self, step: Step) {
        if self.steps.capacity() == 0 {
            self.steps.reserve(USUAL_STEPS);
        }
        self.steps.push(step);
    }

    pub(super) fn into_steps(self) -> Vec<Step> {
        self.steps
    }
}

/// Returns whether a commit that holds nothing else can hold this much, with room to spare for the head row and for
/// what a merge writes uncounted.
fn fits_alone(rows: usize, bytes: usize, limits: StoreLimits) -> bool {
    rows.saturating_add(ROWS_SPARE) <= limits.commit_rows_max
        && bytes.saturating_add(BYTES_SPARE) <= limits.commit_bytes_max
}

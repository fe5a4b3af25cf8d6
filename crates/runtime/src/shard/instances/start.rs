//! Starts runs: for a client's request, or as the child of another run.
//!
//! A new run exists only in memory until its first turn, whose batch writes everything: the instance row, the stored
//! reply, and the record of the run it replaces. What the first turn does is the interpreter's business.
//! A run that an event starts begins in [`session_events`](crate::shard::instances::session_events); the next run of a
//! loop in [`continue_as_new`](crate::shard::turn::continue_as_new).

use std::sync::Arc;

use abide_ids::{PageNumber, RunId, Sequence};
use abide_store::tables::earlier_runs::{self, EarlierRunRow};
use abide_store::tables::instances::{InstanceRow, ParentRun, RunStatus};
use abide_store::tables::{encode, inbox};
use abide_workflow::failure::code;
use abide_workflow::{Failure, Instance, InstanceId, Message, Plan, RunNumber, RunOrigin};
use semver::VersionReq;

use crate::event::{Effect, LookupDepth, OperatorEvent, PlanError};
use crate::fault_check::fault_injected;
use crate::request::{RequestError, RequestId, ShardReply, StartRequest, StartedRun};
use crate::run::run_status::is_terminal;
use crate::run_message::{ChildStart, RunMessage};
use crate::shard::backoff::{backoff, later};
use crate::shard::commit::commit_queue::{BatchNumber, OnCommit};
use crate::shard::instances::index_runs;
use crate::shard::instances::input_check::check_input;
use crate::shard::instances::instance_slot::{InstanceSlot, SlotState, unavailable_refusal};
use crate::shard::messages::send_run_message;
use crate::shard::public_index::PublicIndex;
use crate::shard::requests::idempotency;
use crate::shard::run::run_state::{FirstTurnAction, ResidentRun};
use crate::shard::unit_of_work::{Step, UnitOfWork};
use crate::shard::work_item::PendingChild;

/// Handles a start, or a restart, that is no repeat of an earlier request. The new run replaces an ended one; the reply
/// waits for its first turn.
pub(in crate::shard) fn handle_start(
    work: &mut UnitOfWork<'_>,
    index: &PublicIndex,
    slot: &mut InstanceSlot,
    request_id: RequestId,
    start: StartRequest,
) {
    let id = start.instance_id.clone();
    let previous = match &slot.state {
        SlotState::Row(row) => row.as_ref(),
        SlotState::Run(run) => Some(&run.row),
        SlotState::Unreadable { row: Some(row), .. } => Some(&**row),
        other => {
            let refusal = unavailable_refusal(&id, other);
            return work.ctx.refuse(request_id, refusal);
        }
    };
    if previous.is_some() && start.idempotency.is_some_and(|idempotency| idempotency.derives_instance_id) {
        // The id is derived from the idempotency key: the work was started before, although its reply is no longer
        // stored.
        return slot.refuse_when_durable(work.ctx, request_id, RequestError::KeyExpired { instance_id: id });
    }
    if let Some(row) = previous.filter(|row| !is_terminal(row.status)) {
        let refused = RequestError::AlreadyRunning { instance_id: id, run_number: row.run_number };
        return slot.refuse_when_durable(work.ctx, request_id, refused);
    }
    let run_number = previous.map_or(RunNumber::FIRST, |row| row.run_number.next());
    let replaced = previous.and_then(replaced_run_action);
    index_runs::index_replaced_run(work, index, &id, slot);
    let mut origin = RunOrigin::new(id.clone(), run_number, &start.plan);
    origin.input = start.input;
    origin.event = start.event;
    origin.correlation_id = start.correlation_id;
    origin.entity_id = start.entity_id;
    let mut run = new_run(work, start.plan, origin, replaced);
    run.row.entity_type = start.entity_type.map(Into::into);
    if let Some(waiter) = start.await_end {
        work.add(Step::AwaitEnd(id.clone(), waiter));
    }
    // Nothing is stored that could repeat its first turn after the process has ended of it.
    run.is_proven = true;
    let mut started =
        StartedRun { instance_id: id, run_number, created_at: work.ctx.now.wall, idempotent_until: None };
    if let Some(idempotency) = start.idempotency {
        let record = idempotency::idempotency_record(work, &idempotency, &started);
        started.idempotent_until = Some(record.expires_at);
        run.first_turn_actions.push(FirstTurnAction::StoreReply(idempotency.key_digest, record));
    }
    let reply = ShardReply::Started(started);
    if fault_injected!(work.ctx, EarlyReply) {
        work.ctx.reply(request_id, reply);
    } else {
        run.first_turn_actions
            .push(FirstTurnAction::OnCommit(OnCommit::Effect(Effect::Reply(request_id, reply))));
    }
    slot.state = SlotState::Run(Box::new(run));
}

/// Applies the actions of the first turn of a run, in its batch. Every turn calls this, and later ones find none. So
/// does parking, if the first turn fails.
pub(in crate::shard) fn apply_first_turn_actions(work: &mut UnitOfWork<'_>, run: &mut ResidentRun) {
    for action in std::mem::take(&mut run.first_turn_actions) {
        match action {
            FirstTurnAction::OnCommit(action) => work.on_commit(action),
            FirstTurnAction::DeleteInboxRow(sequence) => work.delete(inbox::key(sequence)),
            FirstTurnAction::StoreReply(key, record) => idempotency::store_reply(work, key, record),
            FirstTurnAction::RecordReplacedRun { run_number, run_id: earlier } => {
                record_earlier_run(work, &run.instance.origin().instance_id, run_number, earlier);
            }
        }
    }
}

/// Records a replaced run, so that it can be found by its run number until its retention ends.
pub(in crate::shard) fn record_earlier_run(
    work: &mut UnitOfWork<'_>,
    id: &InstanceId,
    run_number: RunNumber,
    run: RunId,
) {
    let earlier = EarlierRunRow { replaced_at: work.ctx.now.wall };
    work.create(earlier_runs::key(id.as_str(), run_number, run), encode(&earlier));
}

/// A new run in memory. Nothing of it is written before its first turn. It may replace another run.
pub(in crate::shard) fn new_run(
    work: &mut UnitOfWork<'_>,
    plan: Arc<Plan>,
    origin: RunOrigin,
    replaced: Option<FirstTurnAction>,
) -> ResidentRun {
    let row = InstanceRow {
        run_id: work.ctx.next_run_id(),
        run_number: origin.run,
        status: RunStatus::Pending,
        definition_id: origin.workflow.clone(),
        version: origin.version.clone(),
        definition_hash: origin.plan_hash.0,
        folded_page: PageNumber::ZERO,
        last_page: PageNumber::ZERO,
        created_at: work.ctx.now.wall,
        updated_at: work.ctx.now.wall,
        correlation_id: origin.correlation_id.clone(),
        entity_id: origin.entity_id.clone(),
        park_reason: None,
        parent: origin.parent.as_ref().map(|parent| {
            let instance_id = parent.instance_id.as_str().to_owned();
            Box::new(ParentRun { instance_id, run_number: parent.run, command: parent.command })
        }),
        parent_item_key: None,
        lineage: None,
        entity_type: None,
    };
    let mut run =
        ResidentRun::new(row, plan, Instance::pending(origin, work.ctx.now.wall), BatchNumber::NONE);
    run.first_turn_actions
        .push(FirstTurnAction::OnCommit(OnCommit::Effect(Effect::Notify(OperatorEvent::RunStarted))));
    run.first_turn_actions.extend(replaced);
    run
}

/// Looks up the plan of a child. The child waits ahead of all other items of its instance.
pub(in crate::shard) fn find_child_plan(
    work: &mut UnitOfWork<'_>,
    id: &InstanceId,
    slot: &mut InstanceSlot,
    child: PendingChild,
) {
    let range = child.start.version.as_deref().map(VersionReq::parse).transpose();
    let workflow = child.start.workflow.clone();
    slot.pending_child = Some(child);
    match range {
        Ok(range) => {
            slot.begin_side_lookup();
            work.ctx.effects.push(Effect::FindPlan { instance_id: id.clone(), workflow, range });
        }
        Err(error) => {
            let failure = Failure::permanent(code::WORKFLOW_NOT_FOUND, error.to_string());
            refuse_pending_child(work, slot, failure);
        }
    }
}

/// Makes the run of the pending child in memory. Its first turn writes it and deletes the inbox row that asked for it.
fn begin_child(
    work: &mut UnitOfWork<'_>,
    index: &PublicIndex,
    id: &InstanceId,
    slot: &mut InstanceSlot,
    plan: Arc<Plan>,
) {
    let previous = match &slot.state {
        SlotState::Row(row) => row.clone(),
        SlotState::Run(run) => Some(run.row.clone()),
        SlotState::Unreadable { row, .. } => row.as_deref().cloned(),
        _ => None,
    };
    if previous.as_ref().is_some_and(|row| !is_terminal(row.status)) {
        let failure = Failure::permanent("InstanceLive", format!("instance {id} is already running"));
        return refuse_pending_child(work, slot, failure);
    }
    let Some(child) = slot.pending_child.take() else { return };
    let start = &child.start;
    let input: serde_json::Value = serde_json::from_str(&start.input).unwrap_or_default();
    if let Err(reason) = check_input(work.ctx, id, &plan, &input) {
        slot.pending_child = Some(child);
        return refuse_pending_child(work, slot, Failure::permanent(code::INPUT_INVALID, reason));
    }
    let PendingChild { inbox_sequence: sequence, parent_item: item, lineage, start } = child;
    let run_number = previous.as_ref().map_or(RunNumber::FIRST, |row| row.run_number.next());
    let mut origin = RunOrigin::new(id.clone(), run_number, &plan);
    origin.input = Arc::new(input);
    origin.correlation_id = start.correlation_id;
    origin.entity_id = start.entity_id;
    origin.parent = Some(start.parent);
    index_runs::index_replaced_run(work, index, id, slot);
    let mut run = new_run(work, plan, origin, previous.as_ref().and_then(replaced_run_action));
    run.row.parent_item_key = item.map(Box::new);
    run.row.lineage = lineage.map(Box::new);
    run.first_turn_actions.push(FirstTurnAction::DeleteInboxRow(sequence));
    slot.state = SlotState::Run(Box::new(run));
}

/// The pending child cannot be started.
fn refuse_pending_child(work: &mut UnitOfWork<'_>, slot: &mut InstanceSlot, failure: Failure) {
    if let Some(PendingChild { inbox_sequence: sequence, start, .. }) = slot.pending_child.take() {
        refuse_child(work, sequence, start, failure);
    }
}

/// A child cannot be started: one unit deletes the inbox row that asked for it and sends the failure to the parent.
pub(in crate::shard) fn refuse_child(
    work: &mut UnitOfWork<'_>,
    sequence: Sequence,
    start: ChildStart,
    failure: Failure,
) {
    work.delete(inbox::key(sequence));
    let message = Message::ChildFailed { command: start.parent.command, failure };
    let parent = start.parent;
    send_run_message(work, parent.instance_id.clone(), RunMessage::ChildEnded { parent, message });
}

/// The plan of a pending child was looked up. If there is none, the parent gets the failure; if the lookup failed, the
/// request for the child is processed again later.
pub(in crate::shard) fn on_child_plan_found(
    work: &mut UnitOfWork<'_>,
    index: &PublicIndex,
    id: &InstanceId,
    slot: &mut InstanceSlot,
    result: Result<Arc<Plan>, PlanError>,
) {
    match result {
        Ok(plan) => begin_child(work, index, id, slot, plan),
        Err(PlanError::NotFound(reason)) => {
            refuse_pending_child(work, slot, Failure::permanent(code::WORKFLOW_NOT_FOUND, reason));
        }
        Err(PlanError::Unavailable(_)) => {
            if let Some(child) = slot.pending_child.take() {
                slot.queue.push_front(child.into_work_item());
                let at = later(work.ctx.now.mono, backoff(4));
                slot.look_up_later(LookupDepth::Row { key_digest: None }, at);
            }
        }
    }
}

/// The action that records a replaced run; none if it was purged.
pub(in crate::shard) fn replaced_run_action(previous: &InstanceRow) -> Option<FirstTurnAction> {
    let InstanceRow { run_number, run_id: run, .. } = *previous;
    (previous.status != RunStatus::Purged)
        .then_some(FirstTurnAction::RecordReplacedRun { run_number, run_id: run })
}

//! Delivers external events to the run of their session: raises the event in the live run, or starts a run.
//!
//! The event is already recorded in its entity, and its run message is in the inbox since the same commit, so it cannot
//! be lost. It is delivered when the run has consumed all earlier messages: those may end the run, and then the event
//! starts the next one. An event that no run accepts is dead-lettered. Event routes are chosen elsewhere.

use std::sync::Arc;

use abide_ids::Sequence;
use abide_store::tables::dead_letters::{self, DeadLetterRow, DeadLetterStatus};
use abide_store::tables::inbox;
use abide_workflow::{InstanceId, Message, Plan, RunNumber, RunOrigin};
use semver::VersionReq;
use serde_json::{Value, json};

use crate::entity::{INGRESS_ENGINE, SessionEvent};
use crate::event::{Effect, LookupDepth, OperatorEvent, PlanError};
use crate::run::run_status::is_terminal;
use crate::run_message::RunMessage;
use crate::shard::backoff::{backoff, later};
use crate::shard::instances::index_runs;
use crate::shard::instances::input_check::check_input;
use crate::shard::instances::instance_slot::{InstanceSlot, SlotState};
use crate::shard::instances::start::{self, replaced_run_action};
use crate::shard::public_index::PublicIndex;
use crate::shard::public_index::changes::index_dead_letter;
use crate::shard::run::run_state::FirstTurnAction;
use crate::shard::unit_of_work::UnitOfWork;
use crate::shard::work_item::{MessageSource, QueuedMessage, WorkItem};

/// Delivers the event. The state of its session is loaded, and a run in memory has no messages left.
pub(in crate::shard) fn deliver_session_event(
    work: &mut UnitOfWork<'_>,
    id: &InstanceId,
    slot: &mut InstanceSlot,
    sequence: Sequence,
    session_event: Box<SessionEvent>,
) {
    match &mut slot.state {
        SlotState::Run(run) if !run.has_ended() => match &session_event.raised_as {
            Some(name) => {
                let payload = Arc::new(event_json(&session_event));
                let message = Message::EventRaised { name: name.clone(), payload };
                run.push_message(QueuedMessage {
                    message,
                    source: MessageSource::SessionEvent(sequence, session_event),
                });
            }
            // It is to start a run, and this one has ended but for its compensation.
            None if session_event.starts_run && run.instance.is_retrying_compensation() => {
                let reason = "the last run of this session runs its failed compensation steps again";
                dead_letter_event(work, sequence, &session_event, reason);
            }
            None => work.delete(inbox::key(sequence)),
        },
        // The run may be resumed, and then needs the event.
        SlotState::Unreadable { row, .. } if row.as_ref().is_none_or(|row| !is_terminal(row.status)) => {
            slot.parked_items.push_back(WorkItem::RunMessage {
                sequence,
                message: RunMessage::SessionEvent(session_event),
            });
        }
        _ if session_event.starts_run => find_session_plan(work, id, slot, sequence, session_event),
        _ => work.delete(inbox::key(sequence)),
    }
}

/// Looks up the plan of the run that the event is to start. Until then the queue of the instance waits.
fn find_session_plan(
    work: &mut UnitOfWork<'_>,
    id: &InstanceId,
    slot: &mut InstanceSlot,
    sequence: Sequence,
    session_event: Box<SessionEvent>,
) {
    let range = session_event.version.as_deref().map(VersionReq::parse).transpose();
    let workflow = session_event.workflow.clone();
    match range {
        Ok(range) => {
            slot.pending_event = Some((sequence, session_event));
            slot.begin_side_lookup();
            work.ctx.effects.push(Effect::FindPlan { instance_id: id.clone(), workflow, range });
        }
        Err(error) => dead_letter_event(work, sequence, &session_event, &error.to_string()),
    }
}

/// The plan for the run that an event starts was looked up. If there is none, the event is dead-lettered; if the lookup
/// failed, the event is delivered again later.
pub(in crate::shard) fn on_session_plan_found(
    work: &mut UnitOfWork<'_>,
    index: &PublicIndex,
    id: &InstanceId,
    slot: &mut InstanceSlot,
    result: Result<Arc<Plan>, PlanError>,
) {
    let Some((sequence, session_event)) = slot.pending_event.take() else { return };
    match result {
        Ok(plan) => start_session_run(work, index, id, slot, sequence, &session_event, plan),
        Err(PlanError::NotFound(reason)) => dead_letter_event(work, sequence, &session_event, &reason),
        Err(PlanError::Unavailable(_)) => {
            slot.queue.push_front(WorkItem::RunMessage {
                sequence,
                message: RunMessage::SessionEvent(session_event),
            });
            let at = later(work.ctx.now.mono, backoff(4));
            slot.look_up_later(LookupDepth::Run, at);
        }
    }
}

/// Replaces the run in the slot, if any, by a new one in memory. Its first turn writes it and deletes the inbox row of
/// the event.
fn start_session_run(
    work: &mut UnitOfWork<'_>,
    index: &PublicIndex,
    id: &InstanceId,
    slot: &mut InstanceSlot,
    sequence: Sequence,
    session_event: &SessionEvent,
    plan: Arc<Plan>,
) {
    let previous = match &slot.state {
        SlotState::Row(row) => row.clone(),
        SlotState::Run(run) => Some(run.row.clone()),
        SlotState::Unreadable { row, .. } => row.as_deref().cloned(),
        _ => None,
    };
    let event = event_json(session_event);
    let input = json!({
        "entityId": session_event.entity_key, "entityType": session_event.entity_type, "event": event,
    });
    if let Err(reason) = check_input(work.ctx, id, &plan, &input) {
        let reason = format!("invalid input for the run: {reason}");
        return dead_letter_event(work, sequence, session_event, &reason);
    }
    let run_number = previous.as_ref().map_or(RunNumber::FIRST, |row| row.run_number.next());
    let mut origin = RunOrigin::new(id.clone(), run_number, &plan);
    origin.input = Arc::new(input);
    origin.event = Some(Arc::new(event));
    origin.correlation_id.clone_from(&session_event.correlation_id);
    origin.entity_id = Some(session_event.entity_key.clone());
    index_runs::index_replaced_run(work, index, id, slot);
    let mut run = start::new_run(work, plan, origin, previous.as_ref().and_then(replaced_run_action));
    run.row.entity_type = Some(session_event.entity_type.as_str().into());
    run.first_turn_actions.push(FirstTurnAction::DeleteInboxRow(sequence));
    slot.state = SlotState::Run(Box::new(run));
}

/// No run accepts the event: the commit that deletes its inbox row has the marker of its dead letter, which is written
/// afterwards. The event stays in the entity.
pub(in crate::shard) fn dead_letter_event(
    work: &mut UnitOfWork<'_>,
    sequence: Sequence,
    session_event: &SessionEvent,
    reason: &str,
) {
    work.delete(inbox::key(sequence));
    let now = work.ctx.now.wall;
    let dead_letter = DeadLetterRow {
        row_key: dead_letters::row_key(&session_event.message_id, now),
        engine: INGRESS_ENGINE.to_owned(),
        instance_id: session_event.instance_id.as_str().to_owned(),
        original_queue: INGRESS_ENGINE.to_owned(),
        original_message: session_event.event.clone(),
        error_message: reason.to_owned(),
        dequeue_count: 1,
        first_failure_at: now,
        last_failure_at: now,
        status: DeadLetterStatus::Pending,
        resolution_notes: None,
        resolved_at: None,
        resolved_by: None,
        correlation_id: session_event.correlation_id.clone(),
    };
    let key = work.ctx.next_sequence();
    index_dead_letter(work, key, &dead_letter);
    let notice = OperatorEvent::DeadLettered { engine: INGRESS_ENGINE, reason: reason.to_owned() };
    work.notify_on_commit(notice);
}

fn event_json(session_event: &SessionEvent) -> Value {
    serde_json::from_str(&session_event.event).unwrap_or_default()
}

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

use super::Shard;
use super::commit_queue::OnCommit;
use super::instance_slot::{InstanceSlot, MessageSource, QueuedMessage, SlotState, WorkItem, is_terminal};
use super::run_state::FirstTurnAction;
use super::start::replaced_run_action;
use crate::entity::{INGRESS_ENGINE, SessionEvent};
use crate::event::{Effect, OperatorEvent, PlanError};
use crate::run_message::RunMessage;

/// Rows of dead-lettering an event: the inbox row, and the marker of the dead letter.
pub(super) const DEAD_LETTER_ROWS: usize = 2;

/// The most bytes of these rows.
pub(super) fn event_dead_letter_bytes(session_event: &SessionEvent) -> usize {
    session_event.event.len()
        + 2 * session_event.correlation_id.len()
        + 2 * session_event.message_id.len()
        + 4 * 1024
}

impl Shard {
    /// Delivers the event. The state of its session is loaded, and a run in memory has no messages left.
    pub(super) fn deliver_session_event(
        &mut self,
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
                None => self.commits.delete(inbox::key(sequence)),
            },
            // The run may be resumed, and then needs the event.
            SlotState::Unreadable { row, .. } if row.as_ref().is_none_or(|row| !is_terminal(row.status)) => {
                slot.parked_items.push_back(WorkItem::RunMessage {
                    sequence,
                    message: RunMessage::SessionEvent(session_event),
                });
            }
            _ if session_event.starts_run => self.find_session_plan(id, slot, sequence, session_event),
            _ => self.commits.delete(inbox::key(sequence)),
        }
    }

    fn find_session_plan(
        &mut self,
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
                self.effects.push(Effect::FindPlan { instance_id: id.clone(), workflow, range });
            }
            Err(error) => self.reserve_and_dead_letter_event(sequence, &session_event, &error.to_string()),
        }
    }

    pub(super) fn on_session_plan_found(
        &mut self,
        id: &InstanceId,
        slot: &mut InstanceSlot,
        result: Result<Arc<Plan>, PlanError>,
    ) {
        let Some((sequence, session_event)) = slot.pending_event.take() else { return };
        match result {
            Ok(plan) => self.start_session_run(id, slot, sequence, &session_event, plan),
            Err(PlanError::NotFound(reason)) => {
                self.reserve_and_dead_letter_event(sequence, &session_event, &reason)
            }
            Err(PlanError::Unavailable(_)) => {
                slot.queue.push_front(WorkItem::RunMessage {
                    sequence,
                    message: RunMessage::SessionEvent(session_event),
                });
                self.queued_items += 1;
                let at = super::later(self.now.mono, super::backoff(4));
                self.lookup_retries.push_back((at, id.clone()));
                slot.state = SlotState::LookupRetry(crate::event::LookupDepth::Run, at);
            }
        }
    }

    fn start_session_run(
        &mut self,
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
        if let Err(mismatches) = plan.check_input(&input) {
            let reason = mismatches.first().map(ToString::to_string).unwrap_or_default();
            let reason = format!("invalid input for the run: {reason}");
            return self.reserve_and_dead_letter_event(sequence, session_event, &reason);
        }
        let run_number = previous.as_ref().map_or(RunNumber::FIRST, |row| row.run_number.next());
        let mut origin = RunOrigin::new(id.clone(), run_number, &plan);
        origin.input = Arc::new(input);
        origin.event = Some(Arc::new(event));
        origin.correlation_id.clone_from(&session_event.correlation_id);
        origin.entity_id = Some(session_event.entity_key.clone());
        self.index_replaced_run(id, slot);
        let mut run = self.new_run(plan, origin, previous.as_ref().and_then(replaced_run_action));
        run.first_turn_actions.push(FirstTurnAction::DeleteInboxRow(sequence));
        slot.state = SlotState::Run(Box::new(run));
    }

    /// As [`Self::dead_letter_event`], outside a turn, which would have reserved the space.
    fn reserve_and_dead_letter_event(
        &mut self,
        sequence: Sequence,
        session_event: &SessionEvent,
        reason: &str,
    ) {
        self.commits.reserve(DEAD_LETTER_ROWS, event_dead_letter_bytes(session_event));
        self.dead_letter_event(sequence, session_event, reason);
    }

    /// No run accepts the event: the commit that deletes its inbox row adds it to the dead-letter queue. It stays in
    /// the entity.
    pub(super) fn dead_letter_event(
        &mut self,
        sequence: Sequence,
        session_event: &SessionEvent,
        reason: &str,
    ) {
        self.commits.delete(inbox::key(sequence));
        let now = self.now.wall;
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
        let key = self.next_sequence();
        self.index_dead_letter(key, &dead_letter);
        let notice = OperatorEvent::DeadLettered { engine: INGRESS_ENGINE, reason: reason.to_owned() };
        self.commits.on_commit(OnCommit::Effect(Effect::Notify(notice)));
    }
}

fn event_json(session_event: &SessionEvent) -> Value {
    serde_json::from_str(&session_event.event).unwrap_or_default()
}

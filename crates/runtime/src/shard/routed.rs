//! An event from outside that its session's run is told of, or started by.
//!
//! The event is recorded in the entity already; the message for the run is in the inbox from the same commit on, so nothing of it can be lost.
//! It is decided when the run rests: what it was given before may end it, and then the event starts the next one. What no run can
//! take is dead-lettered.

use std::sync::Arc;

use abide_store::tables::engine_dlq::{self, DeadLetter, DeadLetterStatus};
use abide_store::tables::inbox;
use abide_workflow::{InstanceId, Message, Origin, Plan, RunNumber};
use semver::VersionReq;
use serde_json::{Value, json};

use super::Shard;
use super::commits::After;
use super::slot::{Envelope, First, From, Item, Known, Slot, is_over};
use super::start::replaced;
use crate::entity::{INGRESS, Routed};
use crate::event::{Effect, Notice, PlanError};
use crate::post::Post;

/// Rows of giving an event up: the message, and the marker of the dead letter.
pub(super) const GIVEN_UP_ROWS: usize = 2;

/// Bytes of the same, at most.
pub(super) fn given_up_bytes(routed: &Routed) -> usize {
    routed.event.len() + 2 * routed.correlation_id.len() + 2 * routed.message_id.len() + 4 * 1024
}

impl Shard {
    /// The run of the event's session is known, and rests if there is one.
    pub(super) fn serve_routed(
        &mut self,
        id: &InstanceId,
        slot: &mut Slot,
        sequence: u64,
        routed: Box<Routed>,
    ) {
        match &mut slot.known {
            Known::Run(run) if !run.has_ended() => match &routed.raises {
                Some(name) => {
                    let payload = Arc::new(event_of(&routed));
                    let message = Message::EventRaised { name: name.clone(), payload };
                    run.push(Envelope { message, from: From::Routed(sequence, routed) });
                }
                None => self.commits.delete(inbox::key(sequence)),
            },
            // It may be resumed, and then this is needed.
            Known::Unreadable { row, .. } if row.as_ref().is_none_or(|row| !is_over(row.status)) => {
                slot.set_aside.push_back(Item::Post { sequence, post: Post::Routed(routed) });
            }
            _ if routed.starts => self.find_routed_plan(id, slot, sequence, routed),
            _ => self.commits.delete(inbox::key(sequence)),
        }
    }

    fn find_routed_plan(&mut self, id: &InstanceId, slot: &mut Slot, sequence: u64, routed: Box<Routed>) {
        let range = routed.version.as_deref().map(VersionReq::parse).transpose();
        let workflow = routed.workflow.clone();
        match range {
            Ok(range) => {
                slot.routed = Some((sequence, routed));
                slot.ask();
                self.effects.push(Effect::FindPlan { instance_id: id.clone(), workflow, range });
            }
            Err(error) => self.dead_letter_routed(sequence, &routed, &error.to_string()),
        }
    }

    pub(super) fn routed_plan_found(
        &mut self,
        id: &InstanceId,
        slot: &mut Slot,
        result: Result<Arc<Plan>, PlanError>,
    ) {
        let Some((sequence, routed)) = slot.routed.take() else { return };
        match result {
            Ok(plan) => self.begin_routed(id, slot, sequence, &routed, plan),
            Err(PlanError::NotFound(reason)) => self.dead_letter_routed(sequence, &routed, &reason),
            Err(PlanError::Unavailable(_)) => {
                slot.items.push_front(Item::Post { sequence, post: Post::Routed(routed) });
                self.waiting += 1;
                let at = super::later(self.now.mono, super::back_off(4));
                self.again.push_back((at, id.clone()));
                slot.known = Known::LookAgain(crate::event::Depth::Run, at);
            }
        }
    }

    fn begin_routed(
        &mut self,
        id: &InstanceId,
        slot: &mut Slot,
        sequence: u64,
        routed: &Routed,
        plan: Arc<Plan>,
    ) {
        let previous = match &slot.known {
            Known::Row(row) => row.clone(),
            Known::Run(run) => Some(run.row.clone()),
            Known::Unreadable { row, .. } => row.as_deref().cloned(),
            _ => None,
        };
        let event = event_of(routed);
        let input = json!({
            "entityId": routed.entity_key, "entityType": routed.entity_type, "event": event,
        });
        if let Err(mismatches) = plan.check_input(&input) {
            let reason = mismatches.first().map(ToString::to_string).unwrap_or_default();
            let reason = format!("the run's input does not fit: {reason}");
            return self.dead_letter_routed(sequence, routed, &reason);
        }
        let run_number = previous.as_ref().map_or(1, |row| row.run_number.saturating_add(1));
        let mut origin = Origin::new(id.clone(), RunNumber(run_number), &plan);
        origin.input = Arc::new(input);
        origin.event = Some(Arc::new(event));
        origin.correlation_id.clone_from(&routed.correlation_id);
        origin.entity_id = Some(routed.entity_key.clone());
        self.feed_replaced(id, slot);
        let mut run = self.begin_run(plan, origin, previous.as_ref().and_then(replaced));
        run.first.push(First::Inbox(sequence));
        slot.known = Known::Run(Box::new(run));
    }

    /// As [`Self::give_up_routed`], where no turn does it.
    fn dead_letter_routed(&mut self, sequence: u64, routed: &Routed, reason: &str) {
        self.commits.make_room(GIVEN_UP_ROWS, given_up_bytes(routed));
        self.give_up_routed(sequence, routed, reason);
    }

    /// No run takes the event: it is in the entity, and in the dead-letter queue, in the commit that forgets the message.
    pub(super) fn give_up_routed(&mut self, sequence: u64, routed: &Routed, reason: &str) {
        self.commits.delete(inbox::key(sequence));
        let now = self.now.wall.0;
        let letter = DeadLetter {
            row_key: engine_dlq::row_key(&routed.message_id, now),
            engine: INGRESS.to_owned(),
            instance_id: routed.instance_id.as_str().to_owned(),
            original_queue: INGRESS.to_owned(),
            original_message: routed.event.clone(),
            error_message: reason.to_owned(),
            dequeue_count: 1,
            first_failure_at: now,
            last_failure_at: now,
            status: DeadLetterStatus::Pending,
            resolution_notes: None,
            resolved_at: None,
            resolved_by: None,
            correlation_id: routed.correlation_id.clone(),
        };
        let key = self.next_sequence();
        self.feed_dead_letter(key, &letter);
        let notice = Notice::DeadLettered { engine: INGRESS, reason: reason.to_owned() };
        self.commits.then(After::Effect(Effect::Tell(notice)));
    }
}

fn event_of(routed: &Routed) -> Value {
    serde_json::from_str(&routed.event).unwrap_or_default()
}

//! Executes the effects of shards: they reach the store or an activity late or not at all, and so do their results.
//!
//! Failures of whole nodes are in [`crate::nodes`].

use std::sync::Arc;

use abide_dispatch::{AttemptResult, CallAttempt, CallFailure, HoldReason};
use abide_runtime::event::AttemptId;
use abide_runtime::fault_injection::Fault;
use abide_runtime::placement::ShardId;
use abide_runtime::{Effect, Event, SendTicket};
use abide_store::public::PublicWrite;
use abide_store::rows::{CommitOutcome, StoreError};
use abide_store::tables::{decode, heads};
use abide_testkit::shard_driver::execute_now;

use crate::cluster::Cluster;
use crate::sim_event::{ShardAddress, SimEvent};

impl Cluster {
    /// The delay of a message in milliseconds; sometimes very long.
    pub(crate) fn message_delay(&mut self) -> u64 {
        match self.dice.below(100) {
            0 if self.is_storm() => 1_000 + self.dice.below(15_000),
            1..=10 => 10 + self.dice.below(200),
            _ => 1 + self.dice.below(5),
        }
    }

    /// An effect reaches the store.
    pub(crate) fn execute_effect(&mut self, at: ShardAddress, mut effect: Effect) {
        let roll = if self.is_storm() { self.dice.below(1_000) } else { 999 };
        if roll < 40 {
            self.counts.faults += 1;
            self.counts.faults_in_flight += 1;
        }
        let wait = self.message_delay();
        if let Some(event) = injected_failure(&effect, roll) {
            return self.schedule_in(wait, SimEvent::Deliver(at, event));
        }
        let shard = self.shard_id(at.shard);
        if let Effect::Commit(_, batch) = &mut effect
            && self.scenario.injected_fault == Some(Fault::NoFence)
            && let (Some(fence), Some(own)) =
                (&mut Arc::make_mut(batch).fence, self.store_effects.partition(shard))
        {
            let head = self.store.read_now(own, &heads::key());
            fence.expected_version = head.ok().flatten().map(|row| row.version);
        }
        if let Effect::WritePublicIndex(_, writes) = &effect {
            self.check_public_writes(at, shard, writes);
        }
        let Ok(mut outcome) = execute_now(&self.store_effects, shard, effect) else { return };
        if let Some(batch) = &outcome.committed {
            self.counts.commits += 1;
            crate::model::on_commit(self, shard, batch);
        }
        // Executed, but the result is lost.
        if roll < 30 {
            match &mut outcome.event {
                Event::CommitFinished(_, outcome) => *outcome = unknown_outcome(),
                Event::MessagesSent(_, outcome) | Event::InboundDeleted(outcome) => {
                    *outcome = unknown_outcome()
                }
                Event::PublicIndexWritten(result) => *result = Err("by dice".to_owned()),
                _ => {}
            }
        }
        self.schedule_in(wait, SimEvent::Deliver(at, outcome.event));
        if let Some(target) = outcome.messages_to {
            self.notify_inbound(target);
        }
    }

    /// Compares public rows with the model, and records those written by a node that no longer owns the shard.
    fn check_public_writes(&mut self, at: ShardAddress, shard: ShardId, writes: &[PublicWrite]) {
        let head = self
            .store_effects
            .partition(shard)
            .and_then(|own| self.store.read_now(own, &heads::key()).ok()?);
        let owner =
            head.and_then(|row| decode::<heads::HeadRow>(&row.value).ok()).and_then(|head| head.owner);
        let stale = owner != Some(format!("node-{}-{}", at.node, at.incarnation));
        for write in writes {
            self.trace_instance(&write.key().partition, || format!("public write: {write:?}"));
            if let PublicWrite::Put(row) = write {
                self.violations.extend(self.model.contradiction_in_row(row));
                if stale {
                    self.stale_rows.push(row.key.clone());
                }
            }
        }
    }

    /// Hints to every node that the shard may have inbound messages.
    fn notify_inbound(&mut self, target: ShardId) {
        let shard = target.number() as usize;
        for node in 0..self.nodes.len() {
            let ownership = self.nodes[node].ownerships.get(shard).copied().unwrap_or(0);
            let address = ShardAddress { node, incarnation: self.nodes[node].incarnation, shard, ownership };
            let wait = self.message_delay();
            self.schedule_in(wait, SimEvent::Deliver(address, Event::InboundHinted));
        }
    }

    pub(crate) fn shard_id(&self, shard: usize) -> ShardId {
        self.shards.shards().nth(shard).unwrap_or_else(|| unreachable!("shard {shard}"))
    }

    /// Sends a call from its node. A draining node withdraws it; a dead one sends nothing.
    pub(crate) fn send_call(&mut self, at: ShardAddress, id: AttemptId, call: Box<CallAttempt>) {
        let Some(node) = self.node(at) else { return };
        let draining = node.is_draining();
        let wait = self.message_delay();
        if draining {
            self.counts.withdrawn_calls += 1;
            return self.schedule_in(wait, SimEvent::Deliver(at, Event::AttemptWithdrawn(id)));
        }
        self.schedule_in(wait, SimEvent::DeliverCall(at, id, call));
    }

    /// A node tries a held call: it could be sent, or it still cannot. A draining node withdraws it.
    pub(crate) fn try_held_call(&mut self, at: ShardAddress, id: AttemptId) {
        let Some(node) = self.node(at) else { return };
        let event = if node.is_draining() {
            self.counts.withdrawn_calls += 1;
            Event::AttemptWithdrawn(id)
        } else if self.is_storm() && self.dice.below(3) == 0 {
            let failure = CallFailure::held(HoldReason::CircuitOpen, "CircuitOpen", "by dice");
            Event::AttemptFinished(id, AttemptResult::Failed(failure))
        } else {
            Event::SendRequested(id, SendTicket(0))
        };
        let wait = self.message_delay();
        self.schedule_in(wait, SimEvent::Deliver(at, event));
    }

    /// An attempt reaches its activity.
    pub(crate) fn run_attempt(&mut self, at: ShardAddress, id: AttemptId, call: &CallAttempt) {
        // Some attempts fail to connect and some are rejected with a retry delay: neither reaches the activity.
        let roll = if self.is_storm() { self.dice.below(50) } else { u64::MAX };
        let failure = match roll {
            0 => Some(CallFailure::held(HoldReason::NotConnected, "ConnectFailed", "by dice")),
            1 => {
                let busy = CallFailure::retryable("Busy", "by dice").with_status("429 RESOURCE_EXHAUSTED");
                Some(CallFailure { retry_after_ms: Some(self.dice.below(2_000)), ..busy })
            }
            _ => None,
        };
        if let Some(failure) = failure {
            let wait = self.message_delay();
            return self.schedule_in(
                wait,
                SimEvent::Deliver(at, Event::AttemptFinished(id, AttemptResult::Failed(failure))),
            );
        }
        self.counts.attempts += 1;
        let calm = !self.is_storm();
        let result = self.activities.on_attempt(call, &mut self.dice, calm);
        let (wait, result) = match result {
            Some(result) => (self.message_delay() + self.dice.below(200), result),
            None => {
                let failure = CallFailure::retryable("AttemptTimeout", "nobody answered");
                (call.attempt_timeout_ms, AttemptResult::Failed(failure.with_outcome_unknown()))
            }
        };
        self.schedule_in(wait, SimEvent::Deliver(at, Event::AttemptFinished(id, result)));
    }
}

/// The failure that is returned instead of executing an effect, if any.
fn injected_failure(effect: &Effect, roll: u64) -> Option<Event> {
    let reason = || "by dice".to_owned();
    match effect {
        Effect::Commit(id, _) if roll < 10 => {
            Some(Event::CommitFinished(*id, CommitOutcome::Unavailable { reason: reason() }))
        }
        Effect::Commit(id, _) if roll < 12 => Some(Event::CommitFinished(*id, CommitOutcome::Fenced)),
        _ if roll >= 20 => None,
        Effect::Commit(id, _) => Some(Event::CommitFinished(*id, unknown_outcome())),
        Effect::SendMessages(target, _) => Some(Event::MessagesSent(*target, unknown_outcome())),
        Effect::DeleteInbound(_) => Some(Event::InboundDeleted(unknown_outcome())),
        Effect::ReadHead => Some(Event::HeadRead(Err(unavailable_error()))),
        Effect::Scan(purpose, _) => Some(Event::Scanned(*purpose, Err(unavailable_error()))),
        Effect::LookUpInstance(id, _) => {
            let nothing = abide_runtime::InstanceLookup::Unavailable(reason());
            Some(Event::InstanceLookedUp(id.clone(), Box::new(nothing)))
        }
        Effect::FindPlan { instance_id, .. } => {
            let nothing = abide_runtime::PlanError::Unavailable(reason());
            Some(Event::PlanFound(instance_id.clone(), Err(nothing)))
        }
        Effect::WritePublicIndex(..) => Some(Event::PublicIndexWritten(Err(reason()))),
        _ => None,
    }
}

fn unknown_outcome() -> CommitOutcome {
    CommitOutcome::Unknown { reason: "by dice".to_owned() }
}

fn unavailable_error() -> StoreError {
    StoreError::Unavailable { reason: "by dice".to_owned() }
}

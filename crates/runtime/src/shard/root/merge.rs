//! Merges units of work: each step goes to the batch or to the component it is for. And runs what waited for a commit.
//!
//! Steps of a unit reach other components only here. It decides nothing but what the receiver alone knows: whether a
//! timer is in the window, an attempt in flight, an expiry row done.

use crate::event::{AttemptId, Effect};
use crate::request::ShardReply;
use crate::shard::Shard;
use crate::shard::commit::commit_queue::{BatchNumber, OnCommit};
use crate::shard::schedule::DueKey;
use crate::shard::unit_of_work::{FilledUnit, Step};

impl Shard {
    /// Runs an action whose commit is durable.
    pub(in crate::shard) fn run_on_commit(&mut self, action: OnCommit) {
        match action {
            OnCommit::Effect(effect) => self.ctx.effects.push(effect),
            OnCommit::ArmTimer(timer, id) => {
                if self.timers.covers(timer.due_at) || self.components.damage.hides_timer(&timer.key()) {
                    self.due.schedule.add(DueKey::of_timer(&timer), id);
                }
            }
            OnCommit::Schedule(due, id) => self.due.schedule.add(due, id),
            OnCommit::PublishToIndex(marker, item) => self.index.enqueue(marker, *item, self.ctx.now.mono),
            OnCommit::Evict(id) => self.instances.evict_if_done(&self.ctx, &id),
            OnCommit::ProcessInstance(id) => self.process_instance(&id),
        }
    }

    /// Merges a unit of work into the open batch, or into a new one if it does not fit. Returns the batch's number.
    pub(in crate::shard) fn merge(&mut self, unit: FilledUnit) -> BatchNumber {
        // A unit without rows needs no room: it must not close a batch that is half full.
        if unit.rows() > 0 {
            self.ctx.commits.reserve(unit.rows(), unit.bytes());
        }
        let batch = self.ctx.commits.batch_number();
        let mut enqueued = Vec::new();
        for step in unit.into_steps() {
            match step {
                Step::Create(key, value) => self.ctx.commits.create(key, value),
                Step::Put(key, value) => self.ctx.commits.put(key, value),
                Step::Delete(key) => self.ctx.commits.delete(key),
                Step::Urgent => self.ctx.commits.mark_urgent(),
                Step::OnCommit(action) => self.ctx.commits.on_commit(action),
                Step::SendMessage { target, number, bytes } => {
                    self.outbox.queue(target, number, bytes, batch)
                }
                Step::QueueMessage(id, item) => self.instances.posted.push_back((id, *item)),
                Step::Enqueue(id, item) => enqueued.push((id, item)),
                Step::Index(change) => self.index.apply(*change, &mut self.ctx.commits),
                Step::ForgetMarker(run_id) => self.index.forget_marker(run_id),
                Step::Schedule(due, id) => self.due.schedule.add(due, id),
                Step::Unschedule(due) => self.due.schedule.remove(&due),
                Step::StartAttempt(id, call, in_flight) => {
                    self.attempts.insert(id.clone(), in_flight);
                    self.ctx.commits.on_commit(OnCommit::Effect(Effect::StartAttempt(id, call)));
                }
                Step::TryHeldCall(id, call, in_flight) => {
                    self.attempts.insert(id.clone(), in_flight);
                    let effect = Effect::TryHeldCall(id, call);
                    // Nothing is sent before the shard has confirmed it: only what it follows from must be durable.
                    if self.ctx.commits.is_idle() {
                        self.ctx.effects.push(effect);
                    } else {
                        self.ctx.commits.on_commit(OnCommit::Effect(effect));
                    }
                }
                Step::NoteHold(run_id, command, reason) => self.held_calls.note(run_id, command, reason),
                Step::ForgetHold(run_id, command) => self.held_calls.forget(run_id, command),
                Step::CancelAttempt(id) => {
                    self.held_calls.forget(id.run_id, id.command);
                    self.cancel_attempts(self.attempts.contains(&id).then_some(id));
                }
                Step::CancelAttemptsOf(run_id) => {
                    self.held_calls.forget_run(run_id);
                    let attempts = self.attempts.of_run(run_id);
                    self.cancel_attempts(attempts);
                }
                Step::RememberReply(key, record) => {
                    self.replies.add(key, batch, record, self.ctx.commits.durable_batch);
                }
                Step::AwaitEnd(id, request_id) => self.end_waiters.add(id, request_id),
                Step::RefuseEndWaiters(id, refusal) => {
                    for request_id in self.end_waiters.take(&id) {
                        let reply = Effect::Reply(request_id, ShardReply::Refused(refusal.clone()));
                        self.ctx.commits.on_commit(OnCommit::Effect(reply));
                    }
                }
                Step::Unreadable(purpose, key, reason) => {
                    self.report_unreadable_rows(purpose, vec![(key, reason)]);
                }
                Step::CollectGarbage => self.components.gc.collect_soon(self.ctx.now.mono, batch),
                Step::GarbageDeleted => self.components.gc.note_deleted(batch),
                Step::ExpiryHandled(expiry) => {
                    if self.components.gc.finish_run(&expiry) {
                        self.ctx.commits.delete(expiry);
                        self.components.gc.note_deleted(batch);
                    }
                }
            }
        }
        // Only now: processing an item merges units of its own, which may close this batch.
        for (id, item) in enqueued {
            self.enqueue(&id, *item);
        }
        batch
    }

    /// Stops these attempts once the open batch is durable.
    pub(in crate::shard) fn cancel_attempts(&mut self, attempts: impl IntoIterator<Item = AttemptId>) {
        for attempt in attempts {
            self.attempts.remove(&attempt);
            self.ctx.commits.on_commit(OnCommit::Effect(Effect::CancelAttempt(attempt)));
        }
    }
}

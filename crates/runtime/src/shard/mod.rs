//! The shard: the single owner of a set of instances, as a state machine that a driver runs.
//!
//! ```text
//!  event ──> handle() ──> memory, which may be ahead of the store ──> flush() ──> effects
//!    ▲                                                                              │
//!    └──────────── the driver executes the effects and reports their results ───────┘
//! ```
//!
//! [`Shard::handle`] applies an event to memory and runs the turns it makes possible, until too many batches wait.
//! [`Shard::flush`] runs the rest and sends the next commit. The effects of a change are released only once the change
//! is durable (docs/adr/0010).
//!
//! A shard owns no clock, no task and no socket, and draws no random numbers: the same events at the same times give
//! the same effects.

mod backoff;
mod calls;
mod commit;
mod component;
mod context;
mod entities;
mod instances;
mod messages;
mod ownership;
mod public_index;
mod recovery;
mod requests;
mod retention;
mod root;
mod run;
mod schedule;
mod timers;
#[cfg(test)]
mod toy;
mod turn;
mod unit_of_work;
mod work_item;

use std::collections::VecDeque;

use abide_dispatch::HoldReason;
use abide_store::rows::{Row, StoreError};

use crate::config::ShardConfig;
use crate::entity::EntityId;
use crate::event::{AttemptId, Effect, Event, StopReason};
use crate::lease::Monotonic;
use crate::now::Now;
use crate::placement::ShardId;
use crate::request::{RequestId, ShardRequest};
use backoff::later;
use calls::attempt_results;
use calls::attempts_in_flight::AttemptsInFlight;
use calls::held_calls::HeldCalls;
use calls::hold_report::HoldReport;
use calls::reconciliation::Reconciliation;
use commit::commit_pipeline::{CommitPipeline, CommitResult};
use component::Component;
use context::Context;
use entities::Entities;
use instances::Instances;
use messages::inbound::InboundReader;
use messages::outbox::Outbox;
use ownership::OwnershipPhase;
use ownership::careful::CarefulRecovery;
use public_index::PublicIndex;
use recovery::Recovery;
use recovery::damage::DamageTracker;
use requests::end_waiters::EndWaiters;
use requests::idempotency::UncommittedReplies;
use retention::gc::GarbageCollector;
use retention::retention_review::RetentionReview;
use schedule::DueQueue;
use timers::timer_window::TimerWindow;
use unit_of_work::UnitOfWork;
use work_item::WorkItem;

pub(crate) use public_index::unindexed::UnindexedRuns;

component::components! {
    inbound: InboundReader,
    gc: GarbageCollector,
    retention_review: RetentionReview,
    damage: DamageTracker,
    reconciliation: Reconciliation,
    #[cfg(test)]
    toy: toy::Toy,
}

/// One shard on one node: its context, and the components that own its state.
#[derive(Debug)]
pub struct Shard {
    ctx: Context,
    pipeline: CommitPipeline,
    recovery: Recovery,
    instances: Instances,
    /// Requests that arrived before recovery finished.
    deferred_requests: VecDeque<Vec<(RequestId, ShardRequest)>>,
    replies: UncommittedReplies,
    end_waiters: EndWaiters,
    attempts: AttemptsInFlight,
    held_calls: HeldCalls,
    due: DueQueue,
    timers: TimerWindow,
    index: PublicIndex,
    outbox: Outbox,
    entities: Entities,
    components: Components,
}

impl Shard {
    /// A shard that this node wants to own. The first [`Shard::flush`] reads its head.
    pub fn new(id: ShardId, config: ShardConfig, now: Now) -> Self {
        Self {
            pipeline: CommitPipeline::default(),
            recovery: Recovery::default(),
            instances: Instances::default(),
            deferred_requests: VecDeque::new(),
            replies: UncommittedReplies::default(),
            end_waiters: EndWaiters::default(),
            attempts: AttemptsInFlight::default(),
            held_calls: HeldCalls::default(),
            due: DueQueue::new(config.recovery_per_second),
            timers: TimerWindow::default(),
            index: PublicIndex::default(),
            outbox: Outbox::default(),
            entities: Entities::default(),
            components: Components::default(),
            ctx: Context::new(id, config, now),
        }
    }

    pub fn id(&self) -> ShardId {
        self.ctx.id
    }

    /// Returns whether this node owns the shard, as far as it knows.
    pub fn is_owned(&self) -> bool {
        self.ctx.phase.is_owned()
    }

    /// Returns whether it accepts requests.
    pub fn is_working(&self) -> bool {
        matches!(self.ctx.phase, OwnershipPhase::Working(_))
    }

    /// Returns whether it does stored work one instance at a time, because its owners have ended uncleanly.
    pub fn recovers_carefully(&self) -> bool {
        self.is_owned() && self.ctx.careful.is_on()
    }

    /// Instances with a slot in memory, those that are still being looked up included.
    pub fn resident_instances(&self) -> usize {
        self.instances.slots.len()
    }

    /// Calls that are held back for this reason, as far as they were taken up since this node owns the shard.
    pub fn held_calls(&self, reason: HoldReason) -> usize {
        self.held_calls.count(reason)
    }

    /// Work items queued for instances and entities.
    pub fn queued_items(&self) -> usize {
        self.instances.queued + self.entities.queued
    }

    /// The states that are not in the public index now; none if the shard is not working and cannot know.
    pub(crate) fn unindexed_runs(&self) -> Option<UnindexedRuns> {
        self.is_working().then(|| UnindexedRuns::of(&self.index))
    }

    /// Forgets the states that are in the public index by now. True if none is left.
    pub(crate) fn has_indexed(&self, unindexed: &mut UnindexedRuns) -> bool {
        unindexed.remove_indexed(&self.index)
    }

    /// Applies an event. Call [`Shard::flush`] after it, or after several.
    pub fn handle(&mut self, event: Event, now: Now) {
        self.ctx.now = now;
        if matches!(self.ctx.phase, OwnershipPhase::Stopped) {
            return;
        }
        #[cfg(feature = "faults")]
        let Some(event) = self.plant_in_event(event) else { return };
        match event {
            Event::Tick => {}
            Event::RequestReceived(request_id, request) => self.on_requests(vec![(request_id, request)]),
            Event::RequestGroupReceived(requests) => self.on_requests(requests),
            Event::HeadRead(result) => self.on_head_read(result),
            Event::CommitFinished(id, outcome) => {
                let result = self.pipeline.on_finished(&mut self.ctx, id, outcome);
                self.on_commit_result(result);
            }
            Event::Scanned(purpose, result) => self.on_scanned(purpose, result),
            Event::InstanceLookedUp(id, found) => self.on_instance_looked_up(&id, *found),
            Event::EntityLookedUp(entity, number, found) => {
                if self.entities.on_looked_up(&self.ctx, &entity, number, *found) {
                    self.process_entity(&entity);
                }
            }
            Event::PlanFound(id, result) => self.on_plan_found(&id, result),
            Event::AttemptFinished(call, result) => {
                self.attempts.remove(&call);
                let item = attempt_results::finished_item(&self.ctx, &call, result);
                if let WorkItem::Message { .. } = &item {
                    self.held_calls.forget(call.run_id, call.command);
                }
                self.enqueue(&call.instance_id, item);
            }
            Event::AttemptHeld(call, notice) => {
                let report = HoldReport::of_notice(&call, notice);
                self.enqueue(&call.instance_id, WorkItem::HoldCall(Box::new(report)));
            }
            Event::SendRequested(AttemptId { instance_id, run_id, command, attempt }, ticket) => {
                self.enqueue(&instance_id, WorkItem::ConfirmSend { run_id, command, attempt, ticket });
            }
            Event::AttemptWithdrawn(AttemptId { instance_id, run_id, command, attempt }) => {
                let call = AttemptId { instance_id, run_id, command, attempt };
                self.attempts.remove(&call);
                self.enqueue(&call.instance_id, WorkItem::WithdrawAttempt { run_id, command, attempt });
            }
            Event::PublicIndexWritten(result) => {
                let mut work = UnitOfWork::new(&mut self.ctx);
                self.index.on_written(&mut work, &result);
                let unit = work.finish();
                self.merge(unit);
            }
            Event::MessagesSent(target, outcome) => {
                let mut work = UnitOfWork::new(&mut self.ctx);
                self.outbox.on_sent(&mut work, target, &outcome);
                let unit = work.finish();
                self.merge(unit);
            }
            Event::InboundDeleted(outcome) => self.components.inbound.on_deleted(&self.ctx, &outcome),
            Event::InboundHinted => self.components.inbound.scan_requested = true,
            Event::ClientsGone(request_ids) => self.end_waiters.forget(&request_ids),
            Event::Drain => {
                if let Err(reason) = self.ctx.begin_drain() {
                    self.stop(reason);
                }
            }
        }
    }

    /// Does the work that is due, runs the turns that are needed, sends the next commit, and returns the effects for
    /// the driver.
    pub fn flush(&mut self, now: Now) -> Vec<Effect> {
        self.ctx.now = now;
        self.drive_timed_work();
        if self.is_owned() {
            self.process_ready_entities();
            self.run_ready_turns();
            self.drive_careful_recovery();
            self.index.drive(&mut self.ctx);
            self.outbox.send(&mut self.ctx);
            self.send_next_commit();
            self.instances.evict_idle_runs(&self.ctx);
            self.entities.evict_idle(&self.ctx);
        }
        let effects = std::mem::take(&mut self.ctx.effects);
        #[cfg(feature = "faults")]
        let effects = self.plant_in_effects(effects);
        effects
    }

    /// Milliseconds until [`Shard::flush`] must be called even without an event. Bounded, because the wall clock may
    /// jump.
    pub fn next_wake_ms(&self) -> u64 {
        const WAKE_MS_MAX: u64 = 5_000;
        let now = self.ctx.now;
        // Only a working shard acts on wall-clock times.
        let wakes = [self.due.schedule.next_at(), self.timers.next_at()];
        let wall = wakes.into_iter().flatten().min().filter(|_| self.is_working());
        let paused = self.due.paused_until().filter(|_| wall.is_some_and(|at| at <= now.wall));
        let wall = paused.or(wall);
        let wall_ms = wall.map(|at| at.since(now.wall).0);
        let mono = self.monotonic_wakes().into_iter().flatten().min();
        let mono_ms =
            mono.map(|at| u64::try_from(at.0.saturating_sub(now.mono.0).as_millis()).unwrap_or(u64::MAX) + 1);
        wall_ms.into_iter().chain(mono_ms).min().unwrap_or(WAKE_MS_MAX).min(WAKE_MS_MAX)
    }

    /// When each part of the shard must be driven, by the monotonic clock.
    fn monotonic_wakes(&self) -> [Option<Monotonic>; 12] {
        [
            self.ctx.phase.wake(self.ctx.config.exclusive),
            self.pipeline.wake(&self.ctx),
            self.pipeline.linger_wake(&self.ctx),
            self.index.wake(),
            self.outbox.wake(),
            self.instances.idle_runs.front().map(|idle| later(idle.since, self.ctx.config.idle_max)),
            self.recovery.wake(),
            self.ctx.careful.wake(self.ctx.now.mono),
            self.instances.lookup_retries.front().map(|(at, _)| *at),
            self.timers.retry_at,
            self.entities.wake(),
            self.components.wake(),
        ]
    }

    /// Work that starts by the passing of time alone.
    fn drive_timed_work(&mut self) {
        self.ctx.read_head_if_due();
        self.pipeline.drive(&mut self.ctx);
        if !self.is_owned() {
            return;
        }
        if let Err(reason) = self.ctx.drive_lease() {
            return self.stop(reason);
        }
        self.recovery.drive(&mut self.ctx);
        self.retry_lookups();
        self.entities.retry_lookups(&mut self.ctx);
        if self.is_working() {
            self.fire_due();
            self.timers.drive(&mut self.ctx, &self.due.schedule);
            for AttemptId { instance_id, run_id, .. } in self.attempts.take_slow(self.ctx.now) {
                self.enqueue(&instance_id, WorkItem::WatchStuck { run_id });
            }
            self.drive_components();
        }
        self.stop_if_drained();
    }

    /// Drives the components, each with a unit of work of its own. At most flushes none of them has anything to do.
    fn drive_components(&mut self) {
        let mut work = UnitOfWork::new(&mut self.ctx);
        let mut places = 0..;
        while let Some(component) = places.next().and_then(|place| self.components.get_mut(place)) {
            component.drive(&mut work);
            if !work.is_empty() {
                let unit = work.finish();
                self.merge(unit);
                work = UnitOfWork::new(&mut self.ctx);
            }
        }
    }

    /// Starts the work that is due, as far as there is capacity.
    fn fire_due(&mut self) {
        self.due.begin_round();
        loop {
            let busy =
                self.queued_items() * 2 > self.ctx.config.queued_max || !self.ctx.commits.has_capacity();
            match self.due.next(self.ctx.now, busy) {
                Some((id, Some(item))) => self.enqueue(&id, item),
                Some((id, None)) => self.process_instance(&id),
                None => return,
            }
        }
    }

    /// The head was read: to acquire the shard, or to resolve a commit of unknown outcome.
    fn on_head_read(&mut self, result: Result<Option<Row>, StoreError>) {
        if let OwnershipPhase::ReadingHead(watch) = &self.ctx.phase {
            let watch = watch.clone();
            match self.ctx.try_acquire(watch, result) {
                Ok(()) => self.send_next_commit(),
                Err(reason) => self.stop(reason),
            }
        } else if self.ctx.commits.awaits_head() {
            let result = self.pipeline.resolve_outcome(&mut self.ctx, result);
            self.on_commit_result(result);
        }
    }

    /// Sends the next commit, if one is due. The last one of a draining shard releases it.
    fn send_next_commit(&mut self) {
        let no_work_left = self.instances.ready_runs.is_empty()
            && self.entities.ready_count() == 0
            && self.attempts.is_empty()
            && self.queued_items() == 0
            && !self.ctx.careful.has_work();
        self.pipeline.send_next(&mut self.ctx, no_work_left);
    }

    /// Runs what waited for a commit that is durable now. Recovery begins after the commit that acquired the shard.
    fn on_commit_result(&mut self, result: CommitResult) {
        match result {
            CommitResult::Pending => {}
            CommitResult::Durable { on_commit, acquired } => {
                if acquired {
                    self.recovery.begin(&mut self.ctx);
                }
                for action in on_commit {
                    self.run_on_commit(action);
                }
            }
            CommitResult::Stop(reason) => self.stop(reason),
        }
    }

    /// Runs the operations of an entity, as far as possible now.
    fn process_entity(&mut self, entity: &EntityId) {
        while let Some(unit) = self.entities.run_next(&mut self.ctx, entity) {
            let has_newest_rows = unit.has_newest_rows;
            let batch = self.merge(unit);
            if !self.entities.on_merged(entity, has_newest_rows.then_some(batch)) {
                return;
            }
        }
    }

    /// Goes on with entities that had no room before, as far as there is room now.
    fn process_ready_entities(&mut self) {
        for _ in 0..self.entities.ready_count() {
            let Some(entity) = self.entities.next_ready(&self.ctx) else { return };
            self.process_entity(&entity);
        }
    }

    /// Stops a draining shard once nothing is queued or in flight. Usually its last commit has released it; if the last
    /// requests wrote nothing, it stops unreleased, and the next owner waits for the lease to expire.
    fn stop_if_drained(&mut self) {
        if self.ctx.is_draining()
            && self.ctx.commits.is_idle()
            && self.instances.ready_runs.is_empty()
            && self.attempts.is_empty()
            && self.queued_items() == 0
            && !self.ctx.careful.has_work()
            && self.instances.posted.is_empty()
        {
            self.stop(StopReason::Drained);
        }
    }

    /// Stops for good: later events are ignored. Clients get no reply; the driver tells them that the shard is lost.
    fn stop(&mut self, reason: StopReason) {
        self.ctx.phase = OwnershipPhase::Stopped;
        self.ctx.careful = CarefulRecovery::default();
        self.instances.slots.clear();
        self.entities = Entities::default();
        self.ctx.effects.push(Effect::Stopped(reason));
    }
}

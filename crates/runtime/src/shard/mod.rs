//! The shard: the single owner of a set of instances, as a state machine that a driver runs.
//!
//! ```text
//!  event ──> handle() ──> memory, which may be ahead of the store ──> flush() ──> effects
//!    ▲                                                                              │
//!    └──────────── the driver executes the effects and reports their results ───────┘
//! ```
//!
//! [`Shard::handle`] applies an event to memory. [`Shard::flush`] runs the turns that are due and sends the next
//! commit. The effects of a change are released only once the change is durable (docs/adr/0010).
//!
//! A shard owns no clock, no task and no socket, and draws no random numbers: the same events at the same times give
//! the same effects.

mod attempt_results;
mod call_record;
mod calls;
mod cancel;
mod commands;
mod commit_pipeline;
mod commit_queue;
mod commit_size;
mod continue_as_new;
mod damage;
mod dead_letters;
mod drain;
mod entities;
mod eviction;
mod fold;
mod gc;
mod history_pages;
mod idempotency;
mod inbound;
mod instance_queue;
mod instance_slot;
mod load;
mod operations;
mod outbox;
mod ownership;
mod park;
mod public_index;
mod reconciliation;
mod recovery;
mod requests;
mod retention;
mod retry;
mod run_state;
mod scan_results;
mod schedule;
mod session_events;
mod start;
mod stuck;
mod timers;
mod turn;
mod view;

use std::collections::{HashMap, VecDeque};

use abide_ids::{RunId, Sequence};
use abide_store::rows::Scan;
use abide_workflow::{InstanceId, Timestamp};

use crate::config::ShardConfig;
use crate::event::{AttemptId, Effect, Event, OperatorEvent, StopReason};
use crate::lease::{LeaseStatus, Monotonic};
use crate::now::Now;
use crate::placement::ShardId;
use crate::request::{RequestError, RequestId, ShardReply, ShardRequest};
use commit_queue::CommitQueue;
use instance_slot::InstanceSlot;
use ownership::OwnershipPhase;
use schedule::{OverdueLimiter, Schedule};

pub(crate) use instance_slot::row_status;
pub(crate) use public_index::UnindexedRuns;
pub(crate) use view::view_of_stored;

/// One shard on one node.
#[derive(Debug)]
pub struct Shard {
    id: ShardId,
    config: ShardConfig,
    now: Now,
    phase: OwnershipPhase,
    commits: CommitQueue,
    commits_sent: u64,
    sequence: Sequence,
    slots: HashMap<InstanceId, InstanceSlot>,
    /// Work items queued in all slots, without those that recovery found and has not scheduled yet.
    queued_items: usize,
    /// Run messages from turns to instances of this shard.
    local_messages: VecDeque<(InstanceId, instance_slot::WorkItem)>,
    /// Requests that arrived before recovery finished.
    deferred_requests: VecDeque<Vec<(RequestId, ShardRequest)>>,
    /// Replies to requests with an idempotency key, until their records are durable.
    uncommitted_replies: idempotency::UncommittedReplies,
    /// Requests that wait for the end of a run.
    end_waiters: HashMap<InstanceId, Vec<RequestId>>,
    /// Instances whose lookup failed, and when to look them up again.
    lookup_retries: VecDeque<(Monotonic, InstanceId)>,
    /// Attempts that this owner has started and not heard of yet.
    attempts_in_flight: HashMap<AttemptId, stuck::InFlightAttempt>,
    /// When the attempts in flight were last searched for slow ones.
    slow_calls_checked_at: Option<Monotonic>,
    /// Runs that need a turn and had no room in a batch.
    ready_runs: VecDeque<InstanceId>,
    /// Runs that are idle in memory, longest idle first.
    idle_runs: VecDeque<eviction::IdleRun>,
    idle_bytes: usize,
    schedule: Schedule,
    overdue_limiter: OverdueLimiter,
    overdue_paused_until: Option<Timestamp>,
    timer_window: timers::TimerWindow,
    public_index: public_index::PublicIndex,
    outbox: outbox::Outbox,
    inbound: inbound::InboundReader,
    gc: gc::GarbageCollector,
    entities: entities::Entities,
    damage: damage::DamageTracker,
    reconciliation: reconciliation::Reconciliation,
    /// The recovery scan in flight, and one that is to be repeated.
    recovery_scan: Option<Scan>,
    recovery_scan_retry: Option<recovery::ScanRetry>,
    lingering_since: Option<Monotonic>,
    effects: Vec<Effect>,
}

impl Shard {
    /// A shard that this node wants to own. It starts with the first [`Event::Tick`].
    pub fn new(id: ShardId, config: ShardConfig, now: Now) -> Self {
        Self {
            id,
            now,
            phase: OwnershipPhase::new(config.lease_times),
            commits: CommitQueue::new(config.store_limits),
            commits_sent: 0,
            sequence: Sequence::ZERO,
            slots: HashMap::new(),
            queued_items: 0,
            local_messages: VecDeque::new(),
            deferred_requests: VecDeque::new(),
            uncommitted_replies: idempotency::UncommittedReplies::default(),
            end_waiters: HashMap::new(),
            lookup_retries: VecDeque::new(),
            attempts_in_flight: HashMap::new(),
            slow_calls_checked_at: None,
            ready_runs: VecDeque::new(),
            idle_runs: VecDeque::new(),
            idle_bytes: 0,
            schedule: Schedule::default(),
            overdue_limiter: OverdueLimiter::new(config.recovery_per_second),
            overdue_paused_until: None,
            timer_window: timers::TimerWindow::default(),
            public_index: public_index::PublicIndex::default(),
            outbox: outbox::Outbox::default(),
            inbound: inbound::InboundReader::default(),
            gc: gc::GarbageCollector::default(),
            entities: entities::Entities::default(),
            damage: damage::DamageTracker::default(),
            reconciliation: reconciliation::Reconciliation::default(),
            recovery_scan: None,
            recovery_scan_retry: None,
            lingering_since: None,
            effects: Vec::new(),
            config,
        }
    }

    pub fn id(&self) -> ShardId {
        self.id
    }

    /// Returns whether this node owns the shard, as far as it knows.
    pub fn is_owned(&self) -> bool {
        matches!(
            self.phase,
            OwnershipPhase::Recovering(_) | OwnershipPhase::Working(_) | OwnershipPhase::Draining(_)
        )
    }

    /// Returns whether it accepts requests.
    pub fn is_working(&self) -> bool {
        matches!(self.phase, OwnershipPhase::Working(_))
    }

    pub fn resident_instances(&self) -> usize {
        self.slots.len()
    }

    /// Work items queued for instances.
    pub fn queued_items(&self) -> usize {
        self.queued_items
    }

    /// Applies an event. Call [`Shard::flush`] after it, or after several.
    pub fn handle(&mut self, event: Event, now: Now) {
        self.now = now;
        if matches!(self.phase, OwnershipPhase::Stopped) {
            return;
        }
        match event {
            Event::Tick => {}
            Event::RequestReceived(request_id, request) => self.on_requests(vec![(request_id, request)]),
            Event::RequestGroupReceived(requests) => self.on_requests(requests),
            Event::HeadRead(result) => self.on_head_read(result),
            Event::CommitFinished(id, outcome) => self.on_commit_finished(id, outcome),
            Event::Scanned(purpose, result) => self.on_scanned(purpose, result),
            Event::InstanceLookedUp(id, looked_up) => self.on_instance_looked_up(&id, *looked_up),
            Event::EntityLookedUp(entity, number, found) => {
                self.on_entity_looked_up(&entity, number, *found);
            }
            Event::PlanFound(id, result) => self.on_plan_found(&id, result),
            Event::AttemptFinished(call, result) => self.on_attempt_finished(call, result),
            Event::AttemptWithdrawn(call) => self.on_attempt_withdrawn(call),
            Event::PublicIndexWritten(result) => self.on_public_index_written(&result),
            Event::MessagesSent(target, outcome) => self.on_messages_sent(target, &outcome),
            Event::InboundDeleted(outcome) => self.on_inbound_deleted(&outcome),
            Event::InboundHinted => self.inbound.scan_requested = true,
            Event::ClientsGone(request_ids) => self.on_clients_gone(&request_ids),
            Event::Drain => self.begin_drain(),
        }
    }

    /// Does the work that is due, runs the turns that are needed, sends the next commit, and returns the effects for
    /// the driver.
    pub fn flush(&mut self, now: Now) -> Vec<Effect> {
        self.now = now;
        self.drive_timed_work();
        if self.is_owned() {
            self.process_ready_entities();
            self.run_ready_turns();
            self.write_public_index();
            self.send_outbox();
            self.send_next_commit();
            self.evict_idle_runs();
            self.evict_idle_entities();
        }
        std::mem::take(&mut self.effects)
    }

    /// Milliseconds until [`Shard::flush`] must be called even without an event. Bounded, because the wall clock may
    /// jump.
    pub fn next_wake_ms(&self) -> u64 {
        const WAKE_MS_MAX: u64 = 5_000;
        // Only a working shard acts on wall-clock times.
        let wakes = [self.schedule.next_at(), self.timer_window.next_at()];
        let wall = wakes.into_iter().flatten().min().filter(|_| self.is_working());
        let paused = self.overdue_paused_until.filter(|_| wall.is_some_and(|at| at <= self.now.wall));
        let wall = paused.or(wall);
        let wall_ms = wall.map(|at| at.since(self.now.wall).0);
        let mono = self.monotonic_wakes().into_iter().flatten().min();
        let mono_ms = mono.map(|at| {
            u64::try_from(at.0.saturating_sub(self.now.mono.0).as_millis()).unwrap_or(u64::MAX) + 1
        });
        wall_ms.into_iter().chain(mono_ms).min().unwrap_or(WAKE_MS_MAX).min(WAKE_MS_MAX)
    }

    fn monotonic_wakes(&self) -> [Option<Monotonic>; 13] {
        [
            self.phase.wake(self.config.exclusive),
            self.commit_wake(),
            self.public_index.wake(),
            self.outbox.wake(),
            self.lingering_since.map(|since| later(since, self.config.lazy_commit_delay)),
            self.idle_runs.front().map(|idle| later(idle.since, self.config.idle_max)),
            self.recovery_wake(),
            self.lookup_retries.front().map(|(at, _)| *at),
            self.timer_window.retry_at,
            self.inbound.retry_at,
            self.entities_wake(),
            self.damage.retry_at,
            self.reconciliation.wake(),
        ]
    }

    /// Work that starts by the passing of time alone.
    fn drive_timed_work(&mut self) {
        self.drive_ownership();
        self.drive_commit();
        if !self.is_owned() {
            return;
        }
        if let (
            OwnershipPhase::Recovering(owned)
            | OwnershipPhase::Working(owned)
            | OwnershipPhase::Draining(owned),
            false,
        ) = (&self.phase, self.config.exclusive)
        {
            match owned.lease.status(self.now.mono) {
                LeaseStatus::Expired => return self.stop(StopReason::Lost),
                LeaseStatus::RenewalDue => self.commits.mark_urgent(),
                LeaseStatus::Valid => {}
            }
        }
        self.drive_recovery();
        self.retry_lookups();
        self.retry_entity_lookups();
        if self.is_working() {
            self.fire_due();
            self.drive_timer_window();
            self.watch_slow_attempts();
            self.drive_inbound();
            self.drive_gc();
            self.drive_damage_check();
            self.drive_reconciliation();
        }
        self.stop_if_drained();
    }

    fn stop(&mut self, reason: StopReason) {
        self.phase = OwnershipPhase::Stopped;
        self.slots.clear();
        self.clear_entities();
        self.effects.push(Effect::Stopped(reason));
    }

    fn next_sequence(&mut self) -> Sequence {
        self.sequence = self.sequence.next();
        self.sequence
    }

    fn next_run_id(&mut self) -> RunId {
        RunId(self.next_sequence().0)
    }

    /// The number of the next state of a public row. Revisions grow with the sequence of the shard.
    fn next_revision(&mut self) -> u64 {
        self.next_sequence().0
    }

    fn reply(&mut self, request_id: RequestId, reply: ShardReply) {
        self.effects.push(Effect::Reply(request_id, reply));
    }

    fn refuse(&mut self, request_id: RequestId, refusal: RequestError) {
        self.reply(request_id, ShardReply::Refused(refusal));
    }

    fn notify(&mut self, notice: OperatorEvent) {
        self.effects.push(Effect::Notify(notice));
    }

    #[cfg(feature = "faults")]
    fn has_fault(&self, fault: crate::fault_injection::Fault) -> bool {
        self.config.fault == Some(fault)
    }
}

/// Evaluates to true if this fault is injected. Always false without the feature `faults`.
macro_rules! fault_injected {
    ($shard:expr, $fault:ident) => {{
        #[cfg(feature = "faults")]
        {
            $shard.has_fault($crate::fault_injection::Fault::$fault)
        }
        #[cfg(not(feature = "faults"))]
        {
            false
        }
    }};
}
use fault_injected;

fn later(moment: Monotonic, by: std::time::Duration) -> Monotonic {
    Monotonic(moment.0.saturating_add(by))
}

/// The delay before the next try, by the number of failed tries.
fn backoff(tries: u32) -> std::time::Duration {
    std::time::Duration::from_millis(20 << tries.min(7))
}

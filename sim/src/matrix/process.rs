//! One process across its incarnations: all shards of a store, one queue of events, simulated time, and a crash at the
//! end of each incarnation but the last.
//!
//! Time is in microseconds, so that a recovery is faster than anything in a case. The store takes its requests one at a
//! time. After a crash the next incarnation begins at the same time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use abide_dispatch::AttemptResult;
use abide_runtime::event::AttemptId;
use abide_runtime::fault_injection::Fault;
use abide_runtime::lease::Monotonic;
use abide_runtime::{Effect, Event, Now, Shard, ShardConfig};
use abide_store::rows::PrivateRows;
use abide_workflow::{InstanceId, Timestamp};

use super::case_activities::{CaseActivities, ResultScript};
use super::case_files::Case;
use super::case_store::{CaseStore, EPOCH_MS};
use super::client::CaseClient;
use super::crash_points::{MatrixCrashPoint, PlannedCrash};

/// How long the store takes for any request, in microseconds.
pub(super) const STORE_US: u64 = 1;
/// When the client starts the run: the process is up by then.
pub(super) const START_US: u64 = 1_000_000;
/// A shard whose next wake is at least this far away, in milliseconds, is idle.
const IDLE_MS: u64 = 5_000;
/// How long before the next due time an idle process is woken, in milliseconds.
const LOOKAHEAD_MS: u64 = 1_000;
/// A shard that is woken so often in a row without any effect is in a busy loop.
const IDLE_WAKES_MAX: u32 = 50;
/// No case has more events than this.
const STEPS_MAX: u64 = 5_000;
/// The id of the instance that every case starts; a rehearsal uses the same id.
pub(super) const INSTANCE: &str = "rehearsal";

/// A running process.
#[derive(Debug)]
pub(super) struct CaseProcess<'c> {
    pub(super) case: &'c Case,
    pub(super) case_store: &'c mut CaseStore,
    pub(super) activities: CaseActivities,
    pub(super) client: CaseClient,
    pub(super) id: InstanceId,
    shards: Vec<Shard>,
    wakes: Vec<Wake>,
    booted_us: u64,
    queue: BTreeMap<(u64, u64), ProcessEvent>,
    sequence: u64,
    pub(super) now_us: u64,
    /// The crashes to come, one in each incarnation.
    crashes: VecDeque<PlannedCrash>,
    injected_fault: Option<Fault>,
    /// How often each crash point was reached, by incarnation.
    pub(super) reached: Vec<BTreeMap<MatrixCrashPoint, u64>>,
    /// The keys of the unsettled calls at each crash.
    pub(super) open_calls_at_crash: Vec<BTreeSet<String>>,
    /// Violations seen while the process ran.
    pub(super) violations: Vec<String>,
}

/// The next wake of a shard.
#[derive(Clone, Copy, Debug, Default)]
struct Wake {
    stamp: u64,
    idle: bool,
    /// How often in a row it was woken soon and had no effects.
    idle_wakes: u32,
}

/// A scheduled event.
#[derive(Debug)]
pub(super) enum ProcessEvent {
    Wake(usize, u64),
    Execute(usize, Effect),
    Deliver(usize, Event),
    /// With the call's idempotency key.
    CallResult(usize, AttemptId, String, AttemptResult),
    ClientRequest,
}

impl<'c> CaseProcess<'c> {
    /// A process in its first incarnation, with the client's start scheduled.
    pub(super) fn new(
        case: &'c Case,
        case_store: &'c mut CaseStore,
        script: Option<Arc<ResultScript>>,
        crashes: &[PlannedCrash],
        fault: Option<Fault>,
    ) -> Result<Self, String> {
        let mut process = Self {
            case,
            case_store,
            activities: CaseActivities::new(case.mocks.clone(), script),
            client: CaseClient::new(&case.stimuli),
            id: InstanceId::new(INSTANCE).map_err(|error| error.to_string())?,
            shards: Vec::new(),
            wakes: Vec::new(),
            booted_us: 0,
            queue: BTreeMap::new(),
            sequence: 0,
            now_us: 0,
            crashes: crashes.iter().copied().collect(),
            injected_fault: fault,
            reached: Vec::new(),
            open_calls_at_crash: Vec::new(),
            violations: Vec::new(),
        };
        process.boot();
        process.schedule_at(START_US, ProcessEvent::ClientRequest);
        Ok(process)
    }

    /// Runs until no event is left.
    pub(super) fn run(&mut self) {
        for _ in 0..STEPS_MAX {
            let Some(((at, _), process_event)) = self.queue.pop_first() else { return };
            if matches!(process_event, ProcessEvent::Wake(..)) && self.is_idle() {
                match self.next_due_us() {
                    None => return,
                    Some(due) if due > at + IDLE_MS * 1_000 => {
                        self.skip_to(due - LOOKAHEAD_MS * 1_000);
                        continue;
                    }
                    Some(_) => {}
                }
            }
            self.now_us = at;
            self.handle(process_event);
        }
        self.violations.push("it never became quiescent".to_owned());
    }

    pub(super) fn schedule_at(&mut self, at_us: u64, process_event: ProcessEvent) {
        self.sequence += 1;
        self.queue.insert((at_us.max(self.now_us), self.sequence), process_event);
    }

    /// Cancels an attempt: its result is dropped.
    pub(super) fn cancel(&mut self, id: &AttemptId) {
        let cancelled = |process_event: &ProcessEvent| matches!(process_event, ProcessEvent::CallResult(_, known, ..) if known == id);
        self.queue.retain(|_, process_event| !cancelled(process_event));
    }

    pub(super) fn schedule_in(&mut self, by_us: u64, process_event: ProcessEvent) {
        self.schedule_at(self.now_us + by_us, process_event);
    }

    /// True if no shard has anything to do and the store has nothing under way.
    fn is_idle(&self) -> bool {
        let busy = |process_event: &ProcessEvent| {
            matches!(process_event, ProcessEvent::Execute(..) | ProcessEvent::Deliver(..))
        };
        self.wakes.iter().all(|wake| wake.idle) && !self.queue.values().any(busy)
    }

    /// The time of the next event that is not a wake, or of the next due row in the store.
    fn next_due_us(&self) -> Option<u64> {
        let wakes = |process_event: &ProcessEvent| matches!(process_event, ProcessEvent::Wake(..));
        let queued =
            self.queue.iter().find(|(_, process_event)| !wakes(process_event)).map(|((at, _), _)| *at);
        let stored = self.case_store.next_due_ms().map(|ms| ms * 1_000);
        queued.into_iter().chain(stored).min()
    }

    /// Skips idle time.
    fn skip_to(&mut self, at_us: u64) {
        self.now_us = self.now_us.max(at_us);
        let incarnation = self.reached.len();
        for shard in 0..self.shards.len() {
            if self.reached.len() == incarnation {
                self.deliver_event(shard, Event::Tick);
            }
        }
    }

    /// When the run is started.
    pub(super) fn start(&self) -> Timestamp {
        Timestamp(EPOCH_MS + i64::try_from(START_US / 1_000).unwrap_or(0))
    }

    fn now(&self) -> Now {
        let wall = EPOCH_MS + i64::try_from(self.now_us / 1_000).unwrap_or(i64::MAX);
        let mono = Duration::from_micros(self.now_us - self.booted_us);
        Now { wall: Timestamp(wall), mono: Monotonic(mono) }
    }

    fn boot(&mut self) {
        self.reached.push(BTreeMap::new());
        let incarnation = self.reached.len() as u64;
        self.booted_us = self.now_us;
        let shards = self.case_store.shards;
        let node = format!("life-{incarnation}");
        let mut config = ShardConfig::new(node, incarnation, shards, &self.case_store.store.capabilities());
        // Activities answer from their script, whatever their input is.
        config.resolves_secrets = true;
        config.exclusive = true;
        config.fault = self.injected_fault;
        // Runs are evicted soon, so that the next event finds a run that must be loaded from the store.
        config.idle_max = Duration::from_secs(1);
        let now = self.now();
        self.shards = shards.shards().map(|id| Shard::new(id, config.clone(), now)).collect();
        self.wakes = vec![Wake::default(); self.shards.len()];
        for shard in 0..self.shards.len() {
            self.deliver_event(shard, Event::Tick);
        }
    }

    /// Counts that a crash point is reached. Returns true if the process crashes here; the next incarnation has then
    /// begun.
    pub(super) fn crash_at(&mut self, point: MatrixCrashPoint) -> bool {
        let Some(reached) = self.reached.last_mut() else { return false };
        let times = reached.entry(point).or_default();
        *times += 1;
        let crashes = self.crashes.front() == Some(&PlannedCrash { point, occurrence: *times });
        if crashes {
            self.crash_and_reboot();
        }
        crashes
    }

    fn crash_and_reboot(&mut self) {
        self.crashes.pop_front();
        self.open_calls_at_crash.push(self.case_store.unsettled_calls());
        self.queue.retain(|_, process_event| matches!(process_event, ProcessEvent::ClientRequest));
        if self.client.is_waiting() {
            let seen_now = self.count_wanted_in_history();
            self.client.on_reply_lost(seen_now);
            self.schedule_client_request();
        }
        self.boot();
    }

    fn handle(&mut self, process_event: ProcessEvent) {
        match process_event {
            ProcessEvent::Wake(shard, stamp) => {
                if self.wakes[shard].stamp == stamp {
                    self.deliver_event(shard, Event::Tick);
                }
            }
            ProcessEvent::Execute(shard, effect) => self.execute_effect(shard, effect),
            ProcessEvent::Deliver(shard, event) => self.deliver_event(shard, event),
            ProcessEvent::CallResult(shard, id, key, result) => {
                if !self.case_store.has_call(&key) {
                    self.violations
                        .push(format!("{id:?} has no call record any more, but was not cancelled"));
                }
                if !self.crash_at(MatrixCrashPoint::AfterCall) {
                    self.deliver_event(shard, Event::AttemptFinished(id, result));
                }
            }
            ProcessEvent::ClientRequest => self.send_client_request(),
        }
    }

    /// Delivers an event to a shard and begins its effects.
    pub(super) fn deliver_event(&mut self, shard: usize, event: Event) {
        let now = self.now();
        let follows_commit = matches!(event, Event::CommitFinished(..));
        let ticks = matches!(event, Event::Tick);
        let fires = ticks
            && self.shards[shard].is_working()
            && self.case_store.timer_is_due(self.case_store.shard(shard), now.wall);
        let target = &mut self.shards[shard];
        target.handle(event, now);
        let effects = target.flush(now);
        let wake_ms = target.next_wake_ms().max(1);
        let nothing = ticks && effects.is_empty() && wake_ms < IDLE_MS;
        let idle_wakes = if nothing { self.wakes[shard].idle_wakes + 1 } else { 0 };
        if idle_wakes == IDLE_WAKES_MAX {
            self.violations.push(format!("shard {shard} is woken again and again and does nothing"));
        }
        self.sequence += 1;
        let idle = wake_ms >= IDLE_MS || idle_wakes >= IDLE_WAKES_MAX;
        self.wakes[shard] = Wake { stamp: self.sequence, idle, idle_wakes };
        self.schedule_in(wake_ms * 1_000, ProcessEvent::Wake(shard, self.wakes[shard].stamp));
        if fires && self.crash_at(MatrixCrashPoint::TimerFired) {
            return;
        }
        for effect in effects {
            if self.begin_effect(shard, effect) {
                return;
            }
        }
        if follows_commit {
            self.crash_at(MatrixCrashPoint::AfterEffects);
        }
    }
}

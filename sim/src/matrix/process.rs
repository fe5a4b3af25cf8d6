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
use abide_runtime::{Effect, Event, Now, Shard, ShardConfig};
use abide_store::rows::PrivateRows;
use abide_testkit::shard_driver::ShardDriver;
use abide_testkit::virtual_time::{VirtualClock, VirtualTime};
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
/// How long before the next due time an idle process is woken.
const LOOKAHEAD: Duration = Duration::from_secs(1);
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
    shards: Vec<CaseShard>,
    clock: VirtualClock,
    pub(super) time: VirtualTime<ProcessEvent>,
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

/// A shard, and whether it has anything to do.
#[derive(Debug)]
struct CaseShard {
    driver: ShardDriver,
    idle: bool,
    /// How often in a row it was woken soon and had no effects.
    idle_wakes: u32,
}

impl CaseShard {
    fn new(shard: Shard) -> Self {
        Self { driver: ShardDriver::new(shard), idle: false, idle_wakes: 0 }
    }
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
            clock: VirtualClock { wall_at_start_ms: EPOCH_MS, booted_at: Duration::ZERO },
            time: VirtualTime::default(),
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
            let Some((due, process_event)) = self.time.advance() else { return };
            if matches!(process_event, ProcessEvent::Wake(..)) && self.is_idle() {
                match self.next_due() {
                    None => return,
                    Some(next) if next > due + Duration::from_millis(IDLE_MS) => {
                        self.skip_to(next.saturating_sub(LOOKAHEAD));
                        continue;
                    }
                    Some(_) => {}
                }
            }
            self.handle(process_event);
        }
        self.violations.push("it never became quiescent".to_owned());
    }

    pub(super) fn schedule_at(&mut self, at_us: u64, process_event: ProcessEvent) {
        self.time.schedule_at(Duration::from_micros(at_us), process_event);
    }

    /// Cancels an attempt: its result is dropped.
    pub(super) fn cancel(&mut self, id: &AttemptId) {
        let cancelled = |process_event: &ProcessEvent| matches!(process_event, ProcessEvent::CallResult(_, known, ..) if known == id);
        self.time.retain(|process_event| !cancelled(process_event));
    }

    pub(super) fn schedule_in(&mut self, by_us: u64, process_event: ProcessEvent) {
        self.time.schedule_in(Duration::from_micros(by_us), process_event);
    }

    /// True if no shard has anything to do and the store has nothing under way.
    fn is_idle(&self) -> bool {
        let busy = |process_event: &ProcessEvent| {
            matches!(process_event, ProcessEvent::Execute(..) | ProcessEvent::Deliver(..))
        };
        self.shards.iter().all(|shard| shard.idle)
            && !self.time.upcoming().any(|(_, process_event)| busy(process_event))
    }

    /// The time of the next event that is not a wake, or of the next due row in the store.
    fn next_due(&self) -> Option<Duration> {
        let is_wake = |process_event: &ProcessEvent| matches!(process_event, ProcessEvent::Wake(..));
        let queued = self.time.upcoming().find(|(_, process_event)| !is_wake(process_event));
        let stored = self.case_store.next_due_ms().map(Duration::from_millis);
        queued.map(|(due, _)| due).into_iter().chain(stored).min()
    }

    /// Skips idle time.
    fn skip_to(&mut self, at: Duration) {
        self.time.advance_to(at);
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
        self.clock.now(self.time.now())
    }

    fn boot(&mut self) {
        self.reached.push(BTreeMap::new());
        let incarnation = self.reached.len() as u64;
        self.clock.booted_at = self.time.now();
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
        self.shards = shards.shards().map(|id| CaseShard::new(Shard::new(id, config.clone(), now))).collect();
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
        self.time.retain(|process_event| matches!(process_event, ProcessEvent::ClientRequest));
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
                if self.shards[shard].driver.is_next_wake(stamp) {
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
            && self.shards[shard].driver.shard().is_working()
            && self.case_store.timer_is_due(self.case_store.shard(shard), now.wall);
        let target = &mut self.shards[shard];
        let wake = |stamp| ProcessEvent::Wake(shard, stamp);
        let effects = target.driver.handle(event, now, &mut self.time, wake);
        let wake_ms = target.driver.next_wake_ms();
        let nothing = ticks && effects.is_empty() && wake_ms < IDLE_MS;
        target.idle_wakes = if nothing { target.idle_wakes + 1 } else { 0 };
        target.idle = wake_ms >= IDLE_MS || target.idle_wakes >= IDLE_WAKES_MAX;
        if target.idle_wakes == IDLE_WAKES_MAX {
            self.violations.push(format!("shard {shard} is woken again and again and does nothing"));
        }
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

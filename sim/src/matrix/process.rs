//! One process and its lives: all shards of a store, one queue of what is going to happen, simulated time, and a crash at the end of each life
//! but the last.
//!
//! Time is in microseconds, so that a recovery takes less time than anything in a case. The store takes its requests one at a time. After
//! a crash the next life begins at the same moment.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use abide_dispatch::Answer;
use abide_runtime::event::CallId;
use abide_runtime::lease::Monotonic;
use abide_runtime::planted::Bug;
use abide_runtime::{Config, Effect, Event, Moment, Shard};
use abide_store::rows::PrivateRows;
use abide_workflow::{InstanceId, Timestamp};

use super::cases::Case;
use super::client::Client;
use super::points::{Crash, Point};
use super::stage::{EPOCH_MS, Stage};
use super::world::{Script, World};

/// How long the store takes for anything, in microseconds.
pub(super) const STORE_US: u64 = 1;
/// When the client starts the run: everything is up by then.
pub(super) const START_US: u64 = 1_000_000;
/// A wake this far away, in milliseconds, says that the shard has nothing to do.
const IDLE_MS: u64 = 5_000;
/// How long before the next thing is due an idle process is looked at again, in milliseconds.
const AHEAD_MS: u64 = 1_000;
/// A shard that is woken so often in a row without wanting anything turns in circles.
const FOR_NOTHING_MAX: u32 = 50;
/// What happens in one case is less than this.
const STEPS_MAX: u64 = 5_000;
/// The instance every case starts; a rehearsal calls it so.
pub(super) const INSTANCE: &str = "rehearsal";

/// A process at work.
#[derive(Debug)]
pub(super) struct Process<'c> {
    pub(super) case: &'c Case,
    pub(super) stage: &'c mut Stage,
    pub(super) world: World,
    pub(super) client: Client,
    /// The instance that is started.
    pub(super) id: InstanceId,
    shards: Vec<Shard>,
    wakes: Vec<Wake>,
    booted_us: u64,
    queue: BTreeMap<(u64, u64), Happening>,
    sequence: u64,
    pub(super) now_us: u64,
    /// The crashes to come, one in each life.
    crashes: VecDeque<Crash>,
    bug: Option<Bug>,
    /// How often each point was reached, in each life.
    pub(super) reached: Vec<BTreeMap<Point, u64>>,
    /// The calls that were out at each crash there was.
    pub(super) out_at_crash: Vec<BTreeSet<String>>,
    /// What is wrong, seen while it happened.
    pub(super) wrong: Vec<String>,
}

/// When a shard is to be woken.
#[derive(Clone, Copy, Debug, Default)]
struct Wake {
    stamp: u64,
    idle: bool,
    /// Times in a row that it was woken soon, and wanted nothing.
    for_nothing: u32,
}

/// Something that is going to happen.
#[derive(Debug)]
pub(super) enum Happening {
    Wake(usize, u64),
    Execute(usize, Effect),
    Hear(usize, Event),
    /// With the call's idempotency key.
    Answered(usize, CallId, String, Answer),
    Ask,
}

impl<'c> Process<'c> {
    /// A process that has not begun.
    pub(super) fn new(
        case: &'c Case,
        stage: &'c mut Stage,
        script: Option<Arc<Script>>,
        crashes: &[Crash],
        bug: Option<Bug>,
    ) -> Result<Self, String> {
        let mut process = Self {
            case,
            stage,
            world: World::new(case.mocks.clone(), script),
            client: Client::new(&case.stimuli),
            id: InstanceId::new(INSTANCE).map_err(|error| error.to_string())?,
            shards: Vec::new(),
            wakes: Vec::new(),
            booted_us: 0,
            queue: BTreeMap::new(),
            sequence: 0,
            now_us: 0,
            crashes: crashes.iter().copied().collect(),
            bug,
            reached: Vec::new(),
            out_at_crash: Vec::new(),
            wrong: Vec::new(),
        };
        process.boot();
        process.at(START_US, Happening::Ask);
        Ok(process)
    }

    /// Until nothing is left to happen.
    pub(super) fn run(&mut self) {
        for _ in 0..STEPS_MAX {
            let Some(((at, _), happening)) = self.queue.pop_first() else { return };
            if matches!(happening, Happening::Wake(..)) && self.is_idle() {
                match self.next_due_us() {
                    None => return,
                    Some(due) if due > at + IDLE_MS * 1_000 => {
                        self.skip_to(due - AHEAD_MS * 1_000);
                        continue;
                    }
                    Some(_) => {}
                }
            }
            self.now_us = at;
            self.happen(happening);
        }
        self.wrong.push("it never came to rest".to_owned());
    }

    pub(super) fn at(&mut self, at_us: u64, happening: Happening) {
        self.sequence += 1;
        self.queue.insert((at_us.max(self.now_us), self.sequence), happening);
    }

    /// The answer of a call is not wanted any more.
    pub(super) fn cancel(&mut self, id: &CallId) {
        let cancelled =
            |happening: &Happening| matches!(happening, Happening::Answered(_, known, ..) if known == id);
        self.queue.retain(|_, happening| !cancelled(happening));
    }

    pub(super) fn later(&mut self, by_us: u64, happening: Happening) {
        self.at(self.now_us + by_us, happening);
    }

    /// Whether no shard has anything to do and the store has nothing under way.
    fn is_idle(&self) -> bool {
        let busy = |happening: &Happening| matches!(happening, Happening::Execute(..) | Happening::Hear(..));
        self.wakes.iter().all(|wake| wake.idle) && !self.queue.values().any(busy)
    }

    /// When something happens that no shard need be woken for, or something stored is due.
    fn next_due_us(&self) -> Option<u64> {
        let wakes = |happening: &Happening| matches!(happening, Happening::Wake(..));
        let queued = self.queue.iter().find(|(_, happening)| !wakes(happening)).map(|((at, _), _)| *at);
        let stored = self.stage.next_due_ms().map(|ms| ms * 1_000);
        queued.into_iter().chain(stored).min()
    }

    /// Lets idle time pass.
    fn skip_to(&mut self, at_us: u64) {
        self.now_us = self.now_us.max(at_us);
        let life = self.reached.len();
        for shard in 0..self.shards.len() {
            if self.reached.len() == life {
                self.step(shard, Event::Tick);
            }
        }
    }

    /// When the run is started.
    pub(super) fn start(&self) -> Timestamp {
        Timestamp(EPOCH_MS + i64::try_from(START_US / 1_000).unwrap_or(0))
    }

    fn moment(&self) -> Moment {
        let wall = EPOCH_MS + i64::try_from(self.now_us / 1_000).unwrap_or(i64::MAX);
        let mono = Duration::from_micros(self.now_us - self.booted_us);
        Moment { wall: Timestamp(wall), mono: Monotonic(mono) }
    }

    fn boot(&mut self) {
        self.reached.push(BTreeMap::new());
        let life = self.reached.len() as u64;
        self.booted_us = self.now_us;
        let shards = self.stage.shards;
        let node = format!("life-{life}");
        let mut config = Config::new(node, life, shards, &self.stage.store.capabilities());
        // Activities answer by their script, whatever they are given.
        config.resolves_secrets = true;
        config.alone = true;
        config.bug = self.bug;
        // Runs are dropped from memory soon, so that what happens next happens to a run from the store.
        config.resting_max = Duration::from_secs(1);
        let now = self.moment();
        self.shards = shards.shards().map(|id| Shard::new(id, config.clone(), now)).collect();
        self.wakes = vec![Wake::default(); self.shards.len()];
        for shard in 0..self.shards.len() {
            self.step(shard, Event::Tick);
        }
    }

    /// Comes to a point. True if the process ends here; then the next life has begun.
    pub(super) fn dies_at(&mut self, point: Point) -> bool {
        let Some(reached) = self.reached.last_mut() else { return false };
        let times = reached.entry(point).or_default();
        *times += 1;
        let dies = self.crashes.front() == Some(&Crash { point, time: *times });
        if dies {
            self.die();
        }
        dies
    }

    fn die(&mut self) {
        self.crashes.pop_front();
        self.out_at_crash.push(self.stage.calls_out());
        self.queue.retain(|_, happening| matches!(happening, Happening::Ask));
        if self.client.waits() {
            let told = self.told_of_wanted();
            self.client.lost_answer(told);
            self.ask_when_wanted();
        }
        self.boot();
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Wake(shard, stamp) => {
                if self.wakes[shard].stamp == stamp {
                    self.step(shard, Event::Tick);
                }
            }
            Happening::Execute(shard, effect) => self.execute(shard, effect),
            Happening::Hear(shard, event) => self.step(shard, event),
            Happening::Answered(shard, id, key, answer) => {
                if !self.stage.has_call(&key) {
                    self.wrong.push(format!("{id:?} was given up, and not cancelled"));
                }
                if !self.dies_at(Point::AfterCall) {
                    self.step(shard, Event::Answered(id, answer));
                }
            }
            Happening::Ask => self.ask(),
        }
    }

    /// An event reaches a shard, and what it wants is begun.
    pub(super) fn step(&mut self, shard: usize, event: Event) {
        let now = self.moment();
        let follows_commit = matches!(event, Event::CommitAnswered(..));
        let ticks = matches!(event, Event::Tick);
        let fires = ticks
            && self.shards[shard].is_working()
            && self.stage.timer_is_due(self.stage.shard(shard), now.wall);
        let carried = &mut self.shards[shard];
        carried.handle(event, now);
        let effects = carried.flush(now);
        let wake_ms = carried.next_wake_ms().max(1);
        let nothing = ticks && effects.is_empty() && wake_ms < IDLE_MS;
        let for_nothing = if nothing { self.wakes[shard].for_nothing + 1 } else { 0 };
        if for_nothing == FOR_NOTHING_MAX {
            self.wrong.push(format!("shard {shard} is woken again and again, and does nothing"));
        }
        self.sequence += 1;
        let idle = wake_ms >= IDLE_MS || for_nothing >= FOR_NOTHING_MAX;
        self.wakes[shard] = Wake { stamp: self.sequence, idle, for_nothing };
        self.later(wake_ms * 1_000, Happening::Wake(shard, self.wakes[shard].stamp));
        if fires && self.dies_at(Point::TimerFired) {
            return;
        }
        for effect in effects {
            if self.begin(shard, effect) {
                return;
            }
        }
        if follows_commit {
            self.dies_at(Point::AfterEffects);
        }
    }
}

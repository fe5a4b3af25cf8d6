//! One process and its lives: all shards of a store, one queue of what is going to happen, simulated time, and at most one crash.
//!
//! Time is in microseconds, so that a recovery takes less time than anything in a case. The store takes its requests one at a time. After
//! the crash the next life begins at the same moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use abide_dispatch::{Answer, Call};
use abide_runtime::event::CallId;
use abide_runtime::lease::Monotonic;
use abide_runtime::planted::Bug;
use abide_runtime::{
    Config, Effect, Event, Moment, Notice, Repeat, Reply, Request, Shard, Start, Stopped, Ticket,
};
use abide_store::rows::{CommitOutcome, PrivateRows};
use abide_workflow::{InstanceId, Timestamp};

use super::cases::Case;
use super::client::{Client, Want, tells_of};
use super::points::{Crash, Point};
use super::stage::{EPOCH_MS, Stage};
use super::world::{Script, World};
use crate::cluster::ready;

/// How long the store takes for anything, in microseconds.
const STORE_US: u64 = 10;
/// How long a client waits before it asks again.
const ASK_AGAIN_US: u64 = 50;
/// When the client starts the run: everything is up by then.
const START_US: u64 = 1_000_000;
/// A wake this far away, in milliseconds, says that the shard has nothing to do.
const IDLE_MS: u64 = 5_000;
/// How long before the next thing is due an idle process is looked at again, in milliseconds.
const AHEAD_MS: u64 = 1_000;
/// A shard that is woken so often in a row without wanting anything turns in circles.
const FOR_NOTHING_MAX: u32 = 50;
/// What happens in one case is less than this.
const STEPS_MAX: u64 = 50_000;
/// The instance every case starts.
const INSTANCE: &str = "matrix";

/// A process at work.
#[derive(Debug)]
pub(super) struct Process<'c> {
    case: &'c Case,
    pub(super) stage: &'c mut Stage,
    pub(super) world: World,
    pub(super) client: Client,
    id: InstanceId,
    shards: Vec<Shard>,
    wakes: Vec<Wake>,
    life: u64,
    booted_us: u64,
    queue: BTreeMap<(u64, u64), Happening>,
    sequence: u64,
    now_us: u64,
    /// The crash to come.
    crash: Option<Crash>,
    bug: Option<Bug>,
    /// How often each point was reached.
    pub(super) reached: BTreeMap<Point, u64>,
    /// The calls that were out at the crash, once it has happened.
    pub(super) out_at_crash: Option<BTreeSet<String>>,
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
enum Happening {
    Wake(usize, u64),
    Execute(usize, Effect),
    Hear(usize, Event),
    Answered(usize, CallId, Answer),
    Ask,
}

impl<'c> Process<'c> {
    /// A process that has not begun.
    pub(super) fn new(
        case: &'c Case,
        stage: &'c mut Stage,
        script: Option<Arc<Script>>,
        crash: Option<Crash>,
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
            life: 0,
            booted_us: 0,
            queue: BTreeMap::new(),
            sequence: 0,
            now_us: 0,
            crash,
            bug,
            reached: BTreeMap::new(),
            out_at_crash: None,
            wrong: Vec::new(),
        };
        process.boot();
        process.at(START_US, Happening::Ask);
        Ok(process)
    }

    /// The instance that is started.
    pub(super) fn instance(&self) -> &InstanceId {
        &self.id
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

    fn at(&mut self, at_us: u64, happening: Happening) {
        self.sequence += 1;
        self.queue.insert((at_us.max(self.now_us), self.sequence), happening);
    }

    fn later(&mut self, by_us: u64, happening: Happening) {
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
        for shard in 0..self.shards.len() {
            self.step(shard, Event::Tick);
        }
    }

    fn moment(&self) -> Moment {
        let wall = EPOCH_MS + i64::try_from(self.now_us / 1_000).unwrap_or(i64::MAX);
        let mono = Duration::from_micros(self.now_us - self.booted_us);
        Moment { wall: Timestamp(wall), mono: Monotonic(mono) }
    }

    fn boot(&mut self) {
        self.life += 1;
        self.booted_us = self.now_us;
        let shards = self.stage.shards;
        let node = format!("life-{}", self.life);
        let mut config = Config::new(node, self.life, shards, &self.stage.store.capabilities());
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
    fn dies_at(&mut self, point: Point) -> bool {
        let times = self.reached.entry(point).or_default();
        *times += 1;
        let dies = self.crash == Some(Crash { point, time: *times });
        if dies {
            self.die();
        }
        dies
    }

    fn die(&mut self) {
        self.crash = None;
        self.out_at_crash = Some(self.stage.calls_out());
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
            Happening::Answered(shard, id, answer) => {
                if !self.dies_at(Point::AfterCall) {
                    self.step(shard, Event::Answered(id, answer));
                }
            }
            Happening::Ask => self.ask(),
        }
    }

    /// An event reaches a shard, and what it wants is begun.
    fn step(&mut self, shard: usize, event: Event) {
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
        let for_nothing = match wake_ms < IDLE_MS && ticks && effects.is_empty() {
            true => self.wakes[shard].for_nothing + 1,
            false => 0,
        };
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

    /// Begins what a shard wants. True if the process ended over it.
    fn begin(&mut self, shard: usize, effect: Effect) -> bool {
        let point = match &effect {
            Effect::Commit(..) => Some(Point::BeforeCommit),
            Effect::Post(..) => Some(Point::BeforePost),
            Effect::DropArrivals(_) => Some(Point::BeforeDrop),
            Effect::Feed(_) => Some(Point::BeforeFeed),
            Effect::Reply(..) => Some(Point::BeforeReply),
            Effect::Call(..) => Some(Point::BeforeCall),
            _ => None,
        };
        if point.is_some_and(|point| self.dies_at(point)) {
            return true;
        }
        match effect {
            Effect::Reply(ticket, reply) => self.reply(ticket, &reply),
            Effect::Call(id, call) => self.deliver(shard, id, &call),
            Effect::CancelCall(id) => {
                let cancelled = |happening: &Happening| matches!(happening, Happening::Answered(_, known, _) if *known == id);
                self.queue.retain(|_, happening| !cancelled(happening));
            }
            Effect::Tell(Notice::Parked { instance_id, reason }) => {
                self.wrong.push(format!("{instance_id} was parked: {reason}"));
            }
            Effect::Tell(Notice::Unreadable { reason }) => self.wrong.push(reason),
            Effect::Tell(_) => {}
            Effect::Stopped(why) => self.wrong.push(match why {
                Stopped::Broken(reason) => format!("a shard broke: {reason}"),
                Stopped::Lost | Stopped::Drained => format!("a shard stopped: {why:?}"),
            }),
            other => self.later(STORE_US, Happening::Execute(shard, other)),
        }
        false
    }

    /// Something reaches the store.
    fn execute(&mut self, shard: usize, effect: Effect) {
        let id = self.stage.shard(shard);
        let batch = if let Effect::Commit(_, batch) = &effect { Some(batch.clone()) } else { None };
        let target = if let Effect::Post(target, _) = &effect { Some(*target) } else { None };
        let event = match ready(self.stage.hands.carry_out(id, effect)) {
            Ok(event) => event,
            Err(effect) => return self.wrong.push(format!("nobody carries out {effect:?}")),
        };
        if let (Event::CommitAnswered(_, CommitOutcome::Committed(_)), Some(batch)) = (&event, &batch) {
            self.stage.note_commit(id, batch);
        }
        let point = match &event {
            Event::CommitAnswered(..) => Some(Point::AfterCommit),
            Event::Posted(..) => Some(Point::AfterPost),
            Event::ArrivalsDropped(_) => Some(Point::AfterDrop),
            Event::Fed(_) => Some(Point::AfterFeed),
            _ => None,
        };
        if point.is_some_and(|point| self.dies_at(point)) {
            return;
        }
        self.later(STORE_US, Happening::Hear(shard, event));
        if let Some(target) = target {
            self.later(STORE_US, Happening::Hear(target.number() as usize, Event::ArrivalsHinted));
        }
    }

    /// A delivery reaches an activity; its answer is on its way.
    fn deliver(&mut self, shard: usize, id: CallId, call: &Call) {
        // The first delivery of all needs no look into the store.
        let taken = match id.attempt {
            0 => 0,
            _ => self.stage.answers_taken(self.stage.shard(shard), id.run, id.command.0),
        };
        if id.attempt > 0 && self.out_at_crash.is_none() {
            let unanswered = self.stage.unanswered(&call.metadata.idempotency_key);
            if unanswered > 0 {
                self.wrong
                    .push(format!("{} was not answered {unanswered} times without a crash", call.activity));
            }
        }
        match self.world.receive(call, self.now_us, taken) {
            Ok(given) => {
                self.at(
                    given.at_us.max(self.now_us + STORE_US),
                    Happening::Answered(shard, id, given.answer),
                );
            }
            Err(reason) => self.wrong.push(reason),
        }
    }

    /// How often history tells of what the client wants.
    fn told_of_wanted(&self) -> usize {
        match self.client.wants() {
            Some((_, Want::Message(message))) => self.stage.told(|event| tells_of(event, &message)),
            _ => 0,
        }
    }

    fn ask_when_wanted(&mut self) {
        if let Some((after, _)) = self.client.wants() {
            self.at(START_US + after.0 * 1_000, Happening::Ask);
        }
    }

    /// The client asks for what it wants next.
    fn ask(&mut self) {
        let Some((_, want)) = self.client.wants() else { return };
        let told = self.told_of_wanted();
        let ticket = self.client.ask(told);
        let instance_id = self.id.clone();
        let request = match want {
            Want::Start => Request::Start(Box::new(Start {
                instance_id,
                plan: Arc::clone(&self.stage.plan),
                input: Arc::new(self.case.input.clone()),
                event: None,
                correlation_id: "matrix".to_owned(),
                entity_id: None,
                repeat: Some(Repeat { key: [7; 32], payload: [1; 32] }),
                await_end: None,
            })),
            Want::Message(message) => Request::Deliver { instance_id, message },
        };
        let shard = self.stage.shards.shard_of_instance(&self.id).number() as usize;
        self.step(shard, Event::Asked(ticket, request));
    }

    fn reply(&mut self, ticket: Ticket, reply: &Reply) {
        if self.client.answered(ticket, reply) {
            self.ask_when_wanted();
        } else {
            self.later(ASK_AGAIN_US, Happening::Ask);
        }
    }
}

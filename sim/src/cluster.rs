//! The cluster: one queue of what is going to happen, ordered by simulated time; nodes that crash, pause and disagree about the time of day; a
//! store whose answers get lost.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use abide_dispatch::{Answer, Call, Failure};
use abide_runtime::definitions::Definitions;
use abide_runtime::event::CallId;
use abide_runtime::hands::Hands;
use abide_runtime::lease::{LeaseTimes, Monotonic};
use abide_runtime::placement::{ShardCount, ShardId};
use abide_runtime::planted::Bug;
use abide_runtime::{Config, Effect, Event, Moment, Notice, Reply, Request, Shard, Start, Ticket};
use abide_store::memory::{Dice, MemoryStore, Personality};
use abide_store::rows::{CommitOutcome, PrivateRows, StoreError};
use abide_store::tables::heads;
use abide_workflow::{InstanceId, Message, Timestamp};

use crate::Scenario;
use crate::clients::{Client, RaisedEvent, Step};
use crate::outside::Outside;
use crate::workload::{self, Kind};

/// When simulations begin.
const EPOCH_MS: i64 = 1_800_000_000_000;
/// How long everything may take to come to rest after the storm.
const REST_MS: u64 = 7_200_000;

/// A cluster at work.
#[derive(Debug)]
pub struct Cluster {
    pub(crate) scenario: Scenario,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) definitions: Arc<Definitions<MemoryStore>>,
    pub(crate) shards: ShardCount,
    hands: Hands<MemoryStore>,
    nodes: Vec<Node>,
    queue: BTreeMap<(u64, u64), Happening>,
    happened: u64,
    pub(crate) now_ms: u64,
    dice: Dice,
    pub(crate) outside: Outside,
    pub(crate) clients: Vec<Client>,
    last_ticket: u64,
    incarnations: u64,
    /// What is wrong, seen while it happened.
    pub(crate) seen: Vec<String>,
    pub(crate) counts: Counts,
    /// A digest of everything that happened, in order.
    pub(crate) trace: u64,
}

/// What happened how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Commits that were applied.
    pub commits: u64,
    /// Crashes, pauses, lost answers, refusals.
    pub faults: u64,
    /// Of those, while work was in flight.
    pub faults_in_flight: u64,
    /// Calls delivered.
    pub deliveries: u64,
    /// Times a shard was taken.
    pub claims: u64,
    /// Simulated milliseconds.
    pub simulated_ms: u64,
}

#[derive(Debug)]
struct Node {
    incarnation: u64,
    up: bool,
    booted_ms: u64,
    paused_until: u64,
    skew_ms: i64,
    shards: Vec<Shard>,
    wakes: Vec<u64>,
    claims: Vec<u64>,
    outstanding: u64,
}

/// Something that is going to happen.
#[derive(Debug)]
enum Happening {
    Wake(At, u64),
    Execute(At, Effect),
    Deliver(At, Event),
    Receive(At, CallId, Box<Call>),
    Claim(At),
    Act(usize),
    GiveUp(usize, u64),
    Crash(usize),
    Boot(usize),
    Pause(usize),
}

impl Happening {
    /// What it is, where, and something of its content.
    fn digest(&self) -> (u64, At, u64) {
        let nowhere = |node| At { node, incarnation: 0, shard: 0, claim: 0 };
        match self {
            Self::Wake(at, stamp) => (1, *at, *stamp),
            Self::Execute(at, effect) => match effect {
                Effect::Commit(id, batch) => {
                    (2, *at, batch.bytes() as u64 ^ u64::try_from(id.0 & 0xffff_ffff).unwrap_or(0))
                }
                Effect::Scan(purpose, _) => (3, *at, *purpose as u64),
                Effect::LookUp(id, _) => (4, *at, id.as_str().len() as u64),
                _ => (5, *at, 0),
            },
            Self::Deliver(at, event) => match event {
                Event::Asked(ticket, _) => (6, *at, ticket.0),
                Event::Answered(id, _) => (7, *at, id.run << 32 | id.command.0 << 8 | u64::from(id.attempt)),
                Event::CommitAnswered(_, outcome) => {
                    (8, *at, u64::from(matches!(outcome, CommitOutcome::Committed(_))))
                }
                _ => (9, *at, 0),
            },
            Self::Receive(at, id, _) => (10, *at, id.run << 32 | id.command.0 << 8 | u64::from(id.attempt)),
            Self::Claim(at) => (11, *at, 0),
            Self::Act(client) => (12, nowhere(*client), 0),
            Self::GiveUp(client, ticket) => (13, nowhere(*client), *ticket),
            Self::Crash(node) => (14, nowhere(*node), 0),
            Self::Boot(node) => (15, nowhere(*node), 0),
            Self::Pause(node) => (16, nowhere(*node), 0),
        }
    }
}

/// A shard on one life of a node.
#[derive(Clone, Copy, Debug)]
struct At {
    node: usize,
    incarnation: u64,
    shard: usize,
    /// What was asked for under one claim is not for the next.
    claim: u64,
}

impl Cluster {
    /// A cluster before anything happens.
    pub fn new(scenario: Scenario) -> Self {
        let store = Arc::new(MemoryStore::new(Personality::PLAIN));
        let definitions =
            Arc::new(Definitions::new(Arc::clone(&store)).unwrap_or_else(|error| unreachable!("{error}")));
        let shards = ShardCount::new(scenario.shards).unwrap_or_else(|| unreachable!("some shards"));
        for definition in workload::definitions() {
            let published = ready(definitions.publish(&definition.to_string(), None, Timestamp(EPOCH_MS)));
            published.unwrap_or_else(|error| unreachable!("{definition}: {error:?}"));
        }
        let hands = Hands::new(Arc::clone(&store), Arc::clone(&definitions), shards)
            .unwrap_or_else(|error| unreachable!("{error}"));
        let mut cluster = Self {
            scenario,
            store,
            definitions,
            shards,
            hands,
            nodes: Vec::new(),
            queue: BTreeMap::new(),
            happened: 0,
            now_ms: 0,
            dice: Dice::new(scenario.seed),
            outside: Outside::default(),
            clients: Vec::new(),
            last_ticket: 0,
            incarnations: 0,
            seen: Vec::new(),
            counts: Counts::default(),
            trace: 0xcbf2_9ce4_8422_2325,
        };
        cluster.populate();
        cluster
    }

    fn populate(&mut self) {
        for node in 0..self.scenario.nodes {
            self.nodes.push(Node {
                incarnation: 0,
                up: false,
                booted_ms: 0,
                paused_until: 0,
                skew_ms: 0,
                shards: Vec::new(),
                wakes: Vec::new(),
                claims: Vec::new(),
                outstanding: 0,
            });
            let at = self.dice.below(2_000);
            self.later(at, Happening::Boot(node));
            if self.scenario.faults {
                let crash = self.dice.below(60_000);
                self.later(crash, Happening::Crash(node));
                let pause = self.dice.below(120_000);
                self.later(pause, Happening::Pause(node));
            }
        }
        for number in 0..self.scenario.runs {
            let kind = Kind::ALL[number % Kind::ALL.len()];
            let id = format!("{}-{}", kind.workflow(), number);
            let events = (0..kind.events())
                .map(|event| RaisedEvent {
                    payload: serde_json::json!(format!("{id}-event-{event}")),
                    acknowledged: false,
                    unsure: false,
                    refused: false,
                })
                .collect();
            self.clients.push(Client::new(id, kind, events, &mut self.dice));
            let at = 3_000 + self.dice.below(self.scenario.storm_ms / 2);
            self.later(at, Happening::Act(number));
        }
    }

    fn later(&mut self, by_ms: u64, happening: Happening) {
        self.happened += 1;
        self.queue.insert((self.now_ms + by_ms, self.happened), happening);
    }

    /// Until everything rests, or too long.
    pub fn run(&mut self) {
        let end = self.scenario.storm_ms + REST_MS;
        let mut look = self.scenario.storm_ms;
        while let Some(((at, _), happening)) = self.queue.pop_first() {
            self.now_ms = at;
            if at > end || self.seen.len() > 20 {
                break;
            }
            if at >= look {
                if self.rests() {
                    break;
                }
                look = at + 30_000;
            }
            self.note(&happening);
            self.happen(happening);
        }
        self.counts.simulated_ms = self.now_ms;
    }

    fn note(&mut self, happening: &Happening) {
        let (what, at, detail) = happening.digest();
        for number in [self.now_ms, what, at.node as u64, at.incarnation, at.shard as u64, detail] {
            self.trace = (self.trace ^ number).wrapping_mul(0x100_0000_01b3).rotate_left(17);
        }
    }

    fn stormy(&self) -> bool {
        self.scenario.faults && self.now_ms < self.scenario.storm_ms
    }

    fn rests(&mut self) -> bool {
        self.clients.iter().all(|client| client.next == Step::Done) && crate::verdict::all_ended(self)
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Wake(at, stamp) => {
                let current = self.node(at).and_then(|node| node.wakes.get(at.shard)) == Some(&stamp);
                if current && !self.postponed(at, |at| Happening::Wake(at, stamp)) {
                    self.step(at, Event::Tick);
                }
            }
            Happening::Deliver(at, event) => {
                if self.node(at).is_none() {
                    return;
                }
                let paused = self.nodes[at.node].paused_until;
                if paused > self.now_ms {
                    self.later(paused - self.now_ms, Happening::Deliver(at, event));
                } else {
                    self.nodes[at.node].outstanding = self.nodes[at.node].outstanding.saturating_sub(1);
                    self.step(at, event);
                }
            }
            Happening::Execute(at, effect) => self.execute(at, effect),
            Happening::Receive(at, id, call) => self.receive(at, id, &call),
            Happening::Claim(at) => {
                if self.node(at).is_some() {
                    self.claim(at);
                }
            }
            Happening::Act(client) => self.act(client),
            Happening::GiveUp(client, ticket) => {
                if self.clients[client].asked == Some(ticket) {
                    self.clients[client].not_answered();
                    let wait = 500 + self.dice.below(3_000);
                    self.later(wait, Happening::Act(client));
                }
            }
            Happening::Crash(node) => {
                if self.stormy() {
                    self.crash(node);
                    let next = 20_000 + self.dice.below(120_000);
                    self.later(next, Happening::Crash(node));
                }
            }
            Happening::Boot(node) => self.boot(node),
            Happening::Pause(node) => self.pause(node),
        }
    }

    /// The node, if it is in the life that was meant.
    fn node(&self, at: At) -> Option<&Node> {
        let node = self.nodes.get(at.node)?;
        let same =
            node.up && node.incarnation == at.incarnation && node.claims.get(at.shard) == Some(&at.claim);
        same.then_some(node)
    }

    fn postponed(&mut self, at: At, again: impl FnOnce(At) -> Happening) -> bool {
        let paused = self.nodes[at.node].paused_until;
        if paused > self.now_ms {
            self.later(paused - self.now_ms, again(at));
            return true;
        }
        false
    }

    fn moment(&self, node: usize) -> Moment {
        let node = &self.nodes[node];
        let wall = EPOCH_MS + i64::try_from(self.now_ms).unwrap_or(i64::MAX) + node.skew_ms;
        let mono = Duration::from_millis(self.now_ms.saturating_sub(node.booted_ms));
        Moment { wall: Timestamp(wall), mono: Monotonic(mono) }
    }

    fn boot(&mut self, node: usize) {
        self.incarnations += 1;
        let incarnation = self.incarnations;
        let skew = i64::try_from(self.dice.below(7_200_000)).unwrap_or(0) - 3_600_000;
        let skew_ms = if self.scenario.faults && self.dice.below(3) == 0 { skew } else { 0 };
        let booted_ms = self.now_ms;
        let fresh = &mut self.nodes[node];
        fresh.up = true;
        fresh.incarnation = incarnation;
        fresh.booted_ms = booted_ms;
        fresh.paused_until = 0;
        fresh.skew_ms = skew_ms;
        fresh.shards.clear();
        fresh.wakes = vec![0; self.scenario.shards as usize];
        fresh.claims = vec![0; self.scenario.shards as usize];
        fresh.outstanding = 0;
        for shard in 0..self.scenario.shards as usize {
            let shard = self.new_shard(node, shard);
            self.nodes[node].shards.push(shard);
        }
        for shard in 0..self.scenario.shards as usize {
            // Nodes do not begin with the same shards, or one would have them all.
            let wait = self.dice.below(3_000);
            self.later(wait, Happening::Claim(At { node, incarnation, shard, claim: 0 }));
        }
    }

    fn new_shard(&self, node: usize, shard: usize) -> Shard {
        let mut config = Config::new(
            format!("node-{node}-{}", self.nodes[node].incarnation),
            self.nodes[node].incarnation,
            self.shards,
            &self.store.capabilities(),
        );
        config.alone = false;
        config.lease = LeaseTimes { ttl: Duration::from_secs(6), margin: Duration::from_secs(2) };
        config.resting_max = Duration::from_secs(2);
        config.bug = self.scenario.bug;
        let id = self.shards.shards().nth(shard).unwrap_or_else(|| unreachable!("shard {shard}"));
        Shard::new(id, config, self.moment(node))
    }

    fn claim(&mut self, at: At) {
        self.step(at, Event::Tick);
    }

    fn crash(&mut self, node: usize) {
        if !self.nodes[node].up {
            return;
        }
        self.counts.faults += 1;
        self.counts.faults_in_flight += u64::from(self.nodes[node].outstanding > 0);
        self.nodes[node].up = false;
        self.nodes[node].shards.clear();
        // What had not left the process is gone with it.
        let lost: Vec<(u64, u64)> = self
            .queue
            .iter()
            .filter(|(_, happening)| matches!(happening, Happening::Execute(at, _) | Happening::Receive(at, ..) if at.node == node))
            .map(|(key, _)| *key)
            .collect();
        for key in lost {
            if self.dice.below(2) == 0 {
                self.queue.remove(&key);
            }
        }
        let down = 500 + self.dice.below(20_000);
        self.later(down, Happening::Boot(node));
    }

    fn pause(&mut self, node: usize) {
        if !self.stormy() {
            return;
        }
        let length = 1_000 + self.dice.below(20_000);
        self.counts.faults += 1;
        self.counts.faults_in_flight += u64::from(self.nodes[node].outstanding > 0);
        self.nodes[node].paused_until = self.now_ms + length;
        // Half of the time its own clock stands still too, as that of a suspended machine does.
        if self.dice.below(2) == 0 {
            self.nodes[node].booted_ms += length;
        }
        let next = 30_000 + self.dice.below(180_000);
        self.later(next, Happening::Pause(node));
    }

    /// An event reaches a shard, and what it wants is under way.
    fn step(&mut self, at: At, event: Event) {
        let now = self.moment(at.node);
        let Some(shard) = self.nodes[at.node].shards.get_mut(at.shard) else { return };
        shard.handle(event, now);
        let effects = shard.flush(now);
        let wake = shard.next_wake_ms().max(1);
        self.happened += 1;
        let stamp = self.happened;
        self.nodes[at.node].wakes[at.shard] = stamp;
        self.later(wake, Happening::Wake(at, stamp));
        for effect in effects {
            // A crash between any two effects.
            if self.stormy() && self.dice.below(2_000) == 0 {
                return self.crash(at.node);
            }
            self.begin(at, effect);
        }
    }

    fn begin(&mut self, at: At, effect: Effect) {
        match effect {
            Effect::Reply(ticket, reply) => self.reply(ticket, &reply),
            Effect::Call(id, call) => {
                self.nodes[at.node].outstanding += 1;
                let wait = self.delay();
                self.later(wait, Happening::Receive(at, id, call));
            }
            Effect::CancelCall(_) => {}
            Effect::Tell(Notice::Owned { .. }) => self.counts.claims += 1,
            Effect::Tell(Notice::Parked { instance_id, reason }) => {
                self.seen.push(format!("{instance_id} was parked: {reason}"));
            }
            Effect::Tell(Notice::Unreadable { reason }) => self.seen.push(reason),
            Effect::Tell(_) => {}
            Effect::Stopped(why) => {
                if let abide_runtime::Stopped::Broken(reason) = why {
                    self.seen.push(format!("a shard broke: {reason}"));
                }
                let fresh = self.new_shard(at.node, at.shard);
                self.nodes[at.node].shards[at.shard] = fresh;
                self.nodes[at.node].claims[at.shard] += 1;
                let at = At { claim: at.claim + 1, ..at };
                let wait = 500 + self.dice.below(1_000);
                self.later(wait, Happening::Claim(at));
            }
            other => {
                self.nodes[at.node].outstanding += 1;
                let wait = self.delay();
                self.later(wait, Happening::Execute(at, other));
            }
        }
    }

    /// How long a message takes; sometimes very long.
    fn delay(&mut self) -> u64 {
        match self.dice.below(100) {
            0 if self.stormy() => 1_000 + self.dice.below(15_000),
            1..=10 => 10 + self.dice.below(200),
            _ => 1 + self.dice.below(5),
        }
    }

    /// Something reaches the store.
    fn execute(&mut self, at: At, mut effect: Effect) {
        let fate = if self.stormy() { self.dice.below(1_000) } else { 999 };
        if fate < 40 {
            self.counts.faults += 1;
            self.counts.faults_in_flight += 1;
        }
        let refused = match &effect {
            Effect::Commit(id, _) if fate < 10 => {
                let reason = "by dice".to_owned();
                Some(Event::CommitAnswered(*id, CommitOutcome::Unavailable { reason }))
            }
            Effect::Commit(id, _) if fate < 12 => Some(Event::CommitAnswered(*id, CommitOutcome::Fenced)),
            Effect::Commit(id, _) if fate < 20 => Some(Event::CommitAnswered(*id, unknown())),
            Effect::Post(target, _) if fate < 20 => Some(Event::Posted(*target, unknown())),
            Effect::DropArrivals(_) if fate < 20 => Some(Event::ArrivalsDropped(unknown())),
            Effect::ReadHead if fate < 20 => Some(Event::HeadRead(Err(unavailable()))),
            Effect::Scan(purpose, _) if fate < 20 => Some(Event::Scanned(*purpose, Err(unavailable()))),
            Effect::LookUp(id, _) if fate < 20 => {
                let nothing = abide_runtime::LookedUp::Unavailable("by dice".to_owned());
                Some(Event::LookedUp(id.clone(), Box::new(nothing)))
            }
            Effect::FindPlan { instance_id, .. } if fate < 20 => {
                let nothing = abide_runtime::PlanError::Unavailable("by dice".to_owned());
                Some(Event::PlanFound(instance_id.clone(), Err(nothing)))
            }
            Effect::Feed(..) if fate < 20 => Some(Event::Fed(Err("by dice".to_owned()))),
            _ => None,
        };
        let wait = self.delay();
        if let Some(event) = refused {
            return self.later(wait, Happening::Deliver(at, event));
        }
        let shard = self.shard_id(at.shard);
        if let Effect::Commit(_, batch) = &mut effect
            && self.scenario.bug == Some(Bug::NoFence)
            && let (Some(fence), Some(own)) = (&mut Arc::make_mut(batch).fence, self.hands.partition(shard))
        {
            let head = self.store.read_now(own, &heads::key());
            fence.expect = head.ok().flatten().map(|row| row.version);
        }
        let commits = matches!(effect, Effect::Commit(..));
        let batch = if let Effect::Commit(_, batch) = &effect { Some(batch.clone()) } else { None };
        let posted = if let Effect::Post(target, _) = &effect { Some(*target) } else { None };
        let Ok(mut event) = ready(self.hands.carry_out(shard, effect)) else { return };
        if let (Event::CommitAnswered(_, CommitOutcome::Committed(_)), Some(batch)) = (&event, &batch) {
            self.counts.commits += 1;
            crate::verdict::watch(self, shard, batch);
        }
        // Done, and the answer is lost.
        if fate < 30 {
            match &mut event {
                Event::CommitAnswered(_, outcome) if commits => *outcome = unknown(),
                Event::Posted(_, outcome) | Event::ArrivalsDropped(outcome) => *outcome = unknown(),
                Event::Fed(result) => *result = Err("by dice".to_owned()),
                _ => {}
            }
        }
        self.later(wait, Happening::Deliver(at, event));
        if let Some(target) = posted {
            for node in 0..self.nodes.len() {
                let hint = At {
                    node,
                    incarnation: self.nodes[node].incarnation,
                    shard: target.number() as usize,
                    claim: self.nodes[node].claims.get(target.number() as usize).copied().unwrap_or(0),
                };
                let wait = self.delay();
                self.later(wait, Happening::Deliver(hint, Event::ArrivalsHinted));
            }
        }
    }

    fn shard_id(&self, shard: usize) -> ShardId {
        self.shards.shards().nth(shard).unwrap_or_else(|| unreachable!("shard {shard}"))
    }

    /// A delivery reaches an activity.
    fn receive(&mut self, at: At, id: CallId, call: &Call) {
        self.counts.deliveries += 1;
        let calm = !self.stormy();
        let answer = self.outside.receive(call, &mut self.dice, calm);
        let (wait, answer) = match answer {
            Some(answer) => (self.delay() + self.dice.below(200), answer),
            None => {
                let failure = Failure {
                    code: "AttemptTimeout".to_owned(),
                    message: "nobody answered".to_owned(),
                    retryable: true,
                    outcome_unknown: true,
                };
                (call.attempt_timeout_ms, Answer::Failed(failure))
            }
        };
        self.later(wait, Happening::Deliver(at, Event::Answered(id, answer)));
    }

    /// A client does its next step.
    fn act(&mut self, number: usize) {
        let client = &self.clients[number];
        if client.next == Step::Done || client.asked.is_some() {
            return;
        }
        let Ok(id) = InstanceId::new(client.id.clone()) else { return };
        let order = |message| Request::Deliver { instance_id: id.clone(), message };
        let reason = "by a client".to_owned();
        let request = match client.next {
            Step::Start => match self.start(number, &id) {
                Some(start) => Request::Start(Box::new(start)),
                None => return,
            },
            Step::Raise(at) => order(Message::EventRaised {
                name: "go".to_owned(),
                payload: Arc::new(client.events[at].payload.clone()),
            }),
            Step::Suspend => order(Message::Suspend { reason }),
            Step::Resume => order(Message::Resume { reason }),
            Step::Terminate => order(Message::Terminate { reason }),
            Step::Done => return,
        };
        self.last_ticket += 1;
        let ticket = self.last_ticket;
        self.clients[number].asked = Some(ticket);
        let shard = self.shards.shard_of_instance(&id).number() as usize;
        // The node that owns the shard, if there is one; else any, which says no.
        let owner =
            self.nodes.iter().position(|node| node.up && node.shards.get(shard).is_some_and(Shard::is_owned));
        let any = usize::try_from(self.dice.below(self.nodes.len() as u64)).unwrap_or(0);
        let node = owner.filter(|_| self.dice.below(10) > 0).unwrap_or(any);
        let claim = self.nodes[node].claims.get(shard).copied().unwrap_or(0);
        let at = At { node, incarnation: self.nodes[node].incarnation, shard, claim };
        let wait = self.delay();
        self.later(wait, Happening::Deliver(at, Event::Asked(Ticket(ticket), request)));
        self.later(10_000, Happening::GiveUp(number, ticket));
    }

    fn start(&self, number: usize, id: &InstanceId) -> Option<Start> {
        let client = &self.clients[number];
        let plan = ready(self.definitions.pick(client.kind.workflow(), None)).ok()?;
        let repeat = client.keyed.then(|| {
            let mut key = [7; 32];
            key.iter_mut().zip(client.id.bytes()).for_each(|(to, from)| *to = from);
            abide_runtime::Repeat::new(key, [1; 32])
        });
        Some(Start {
            instance_id: id.clone(),
            plan,
            input: Arc::new(workload::input(client.kind, &client.id)),
            event: None,
            correlation_id: client.id.clone(),
            entity_id: None,
            repeat,
            await_end: None,
        })
    }

    fn reply(&mut self, ticket: Ticket, reply: &Reply) {
        let Some(number) = self.clients.iter().position(|client| client.asked == Some(ticket.0)) else {
            return;
        };
        self.clients[number].answered(reply);
        let wait = match self.clients[number].next {
            Step::Raise(_) if self.clients[number].kind == Kind::Steps => 60_000 + self.dice.below(60_000),
            _ => 200 + self.dice.below(20_000),
        };
        self.later(wait, Happening::Act(number));
    }
}

fn unknown() -> CommitOutcome {
    CommitOutcome::Unknown { reason: "by dice".to_owned() }
}

fn unavailable() -> StoreError {
    StoreError::Unavailable { reason: "by dice".to_owned() }
}

/// The result of a future that never waits: the reference store answers at once.
pub(crate) fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("the reference store answers at once"),
    }
}

//! The cluster: one queue of what is going to happen, ordered by simulated time, and what happens when it does.
//!
//! What goes wrong with nodes is in [`crate::nodes`], what with the store and the outside world in [`crate::carrying`].

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use abide_runtime::definitions::Definitions;
use abide_runtime::hands::Hands;
use abide_runtime::placement::{ShardCount, ShardId};
use abide_runtime::{Effect, Event, Notice};
use abide_store::memory::{Dice, MemoryStore, Personality};
use abide_store::rows::Scan;
use abide_store::tables::{Table, expiries};
use abide_workflow::Timestamp;

use crate::Scenario;
use crate::clients::Client;
use crate::counts::Counts;
use crate::digest::Digest;
use crate::happening::{At, Happening};
use crate::nodes::Node;
use crate::outside::Outside;
use crate::truth::Truth;
use crate::workload;

/// When simulations begin.
pub(crate) const EPOCH_MS: i64 = 1_800_000_000_000;
/// How long everything may take to come to rest after the storm.
const REST_MS: u64 = 7_200_000;
/// How often it is looked whether everything rests.
const LOOK_MS: u64 = 30_000;

/// A cluster at work.
#[derive(Debug)]
pub struct Cluster {
    pub(crate) scenario: Scenario,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) definitions: Arc<Definitions<MemoryStore>>,
    pub(crate) shards: ShardCount,
    pub(crate) hands: Hands<MemoryStore>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) queue: BTreeMap<(u64, u64), Happening>,
    pub(crate) happened: u64,
    pub(crate) now_ms: u64,
    pub(crate) dice: Dice,
    pub(crate) outside: Outside,
    pub(crate) clients: Vec<Client>,
    pub(crate) last_ticket: u64,
    pub(crate) incarnations: u64,
    pub(crate) truth: Truth,
    /// Public rows that were written by a node that did not own their shard any more.
    pub(crate) late_rows: Vec<abide_store::public::PublicKey>,
    /// The instance whose story is told, and the story.
    pub(crate) told_of: String,
    pub(crate) told: Vec<String>,
    /// What is wrong, seen while it happened.
    pub(crate) seen: Vec<String>,
    pub(crate) counts: Counts,
    /// A digest of everything that happened, in order.
    pub(crate) trace: u64,
    /// A digest of everything that shards asked for.
    pub(crate) digest: Digest,
}

impl Cluster {
    /// A cluster before anything happens.
    pub fn new(scenario: Scenario) -> Self {
        let personality = if scenario.azure { Personality::AZURE } else { Personality::PLAIN };
        let store = Arc::new(MemoryStore::new(personality));
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
            truth: Truth::default(),
            late_rows: Vec::new(),
            told_of: String::new(),
            told: Vec::new(),
            seen: Vec::new(),
            counts: Counts::default(),
            trace: 0xcbf2_9ce4_8422_2325,
            digest: Digest::default(),
        };
        cluster.add_nodes();
        cluster.add_clients();
        cluster
    }

    /// Something happens to an instance.
    pub(crate) fn tell(&mut self, id: &str, what: impl FnOnce() -> String) {
        if id == self.told_of {
            self.told.push(format!("{:>9} {}", self.now_ms, what()));
        }
    }

    pub(crate) fn later(&mut self, by_ms: u64, happening: Happening) {
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
                look = at + LOOK_MS;
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

    pub(crate) fn stormy(&self) -> bool {
        self.scenario.faults && self.now_ms < self.scenario.storm_ms
    }

    /// Everybody has done what they wanted, every run has ended, the public table knows, and what is kept for minutes only is gone.
    fn rests(&mut self) -> bool {
        let done = self.clients.iter().all(|client| client.next().is_none());
        if !done || !self.truth.all_ended() {
            if done {
                self.clear_up();
            }
            return false;
        }
        // What is to be deleted at once lies before all that is kept for a while.
        let mut left = vec![Table::Outbox.scan(), expiries::due_before(1)];
        if self.scenario.short {
            left.extend([Table::Instance.scan(), Table::Expiry.scan()]);
        }
        left.iter().all(|scan| self.shards.shards().all(|shard| self.is_empty(shard, scan)))
    }

    fn is_empty(&self, shard: ShardId, scan: &Scan) -> bool {
        let Some(partition) = self.hands.partition(shard) else { return true };
        self.store.scan_now(partition, scan.clone().at_most(1)).is_ok_and(|page| page.rows.is_empty())
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
            Happening::Leave(at, id, call) => self.leave(at, id, call),
            Happening::Receive(at, id, call) => self.receive(at, id, &call),
            Happening::Claim(at) => {
                if self.node(at).is_some() {
                    self.step(at, Event::Tick);
                }
            }
            Happening::Act(client) => self.act(client),
            Happening::GiveUp(client, ticket, at) => self.give_up(client, ticket, at),
            Happening::Crash(node) => self.crash_by_dice(node),
            Happening::Boot(node) => self.boot(node),
            Happening::Pause(node) => self.pause(node),
            Happening::Drain(node) => self.drain(node),
            Happening::Kill(node, incarnation) => {
                if self.nodes[node].incarnation == incarnation {
                    self.crash(node);
                }
            }
        }
    }

    /// The node, if it is in the life that was meant.
    pub(crate) fn node(&self, at: At) -> Option<&Node> {
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

    /// An event reaches a shard, and what it wants is under way.
    pub(crate) fn step(&mut self, at: At, event: Event) {
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
            self.digest.add(at.node, at.shard, &effect);
            if self.stormy() && self.crashes_before(&effect) {
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
                // Some wait for their target first.
                let waits = self.stormy() && self.dice.below(8) == 0;
                let wait = if waits { self.dice.below(20_000) } else { 0 };
                self.later(wait, Happening::Leave(at, id, call));
            }
            Effect::CancelCall(_) => {}
            Effect::Tell(Notice::Owned { .. }) => self.counts.claims += 1,
            Effect::Tell(Notice::Parked { instance_id, reason }) => {
                self.seen.push(format!("{instance_id} was parked: {reason}"));
            }
            Effect::Tell(Notice::Unreadable { reason }) => self.seen.push(reason),
            Effect::Tell(Notice::Stuck { instance_id, .. }) => self.told_stuck(instance_id.as_str()),
            Effect::Tell(_) => {}
            Effect::Stopped(why) => self.stopped(at, &why),
            other => {
                self.nodes[at.node].outstanding += 1;
                let wait = self.delay();
                self.later(wait, Happening::Execute(at, other));
            }
        }
    }

    /// A run is called stuck at most once.
    fn told_stuck(&mut self, id: &str) {
        self.counts.stuck += 1;
        let Some(instance) = self.truth.instances.get_mut(id) else {
            return self.seen.push(format!("{id} is called stuck and never began"));
        };
        instance.stuck += 1;
        if instance.stuck > instance.runs.len() {
            self.seen.push(format!(
                "{id} has {} runs and was called stuck {} times",
                instance.runs.len(),
                instance.stuck
            ));
        }
    }
}

/// The result of a future that never waits: the reference store answers at once.
pub(crate) fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("the reference store answers at once"),
    }
}

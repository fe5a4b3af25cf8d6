//! Nodes: they begin, crash, pause, go down in order, and disagree about the time of day.

use std::time::Duration;

use abide_runtime::lease::{LeaseTimes, Monotonic};
use abide_runtime::{Config, Effect, Event, Moment, Shard, Stopped};
use abide_store::rows::PrivateRows;
use abide_workflow::Timestamp;

use crate::cluster::{Cluster, EPOCH_MS};
use crate::happening::{At, Happening};

/// One server process, life after life.
#[derive(Debug, Default)]
pub(crate) struct Node {
    pub(crate) incarnation: u64,
    pub(crate) up: bool,
    booted_ms: u64,
    pub(crate) paused_until: u64,
    /// Shards that it still has to give up before it is down, if it is going down.
    draining: Option<usize>,
    skew_ms: i64,
    pub(crate) shards: Vec<Shard>,
    pub(crate) wakes: Vec<u64>,
    pub(crate) claims: Vec<u64>,
    pub(crate) outstanding: u64,
}

impl Node {
    /// Whether it takes nothing new.
    pub(crate) fn goes_down(&self) -> bool {
        self.draining.is_some()
    }
}

impl Cluster {
    pub(crate) fn add_nodes(&mut self) {
        for node in 0..self.scenario.nodes {
            self.nodes.push(Node::default());
            let at = self.dice.below(2_000);
            self.later(at, Happening::Boot(node));
            if self.scenario.faults {
                let crash = self.dice.below(60_000);
                self.later(crash, Happening::Crash(node));
                let pause = self.dice.below(120_000);
                self.later(pause, Happening::Pause(node));
                let drain = self.dice.below(240_000);
                self.later(drain, Happening::Drain(node));
            }
        }
    }

    pub(crate) fn moment(&self, node: usize) -> Moment {
        let node = &self.nodes[node];
        let wall = EPOCH_MS + i64::try_from(self.now_ms).unwrap_or(i64::MAX) + node.skew_ms;
        let mono = Duration::from_millis(self.now_ms.saturating_sub(node.booted_ms));
        Moment { wall: Timestamp(wall), mono: Monotonic(mono) }
    }

    pub(crate) fn boot(&mut self, node: usize) {
        self.incarnations += 1;
        let incarnation = self.incarnations;
        // Where things are kept for minutes only, an hour would be too much to disagree about.
        let most = if self.scenario.short { 30_000 } else { 3_600_000 };
        let skew = i64::try_from(self.dice.below(2 * most)).unwrap_or(0) - most.cast_signed();
        let skewed = self.scenario.faults && self.dice.below(3) == 0;
        let shards = self.scenario.shards as usize;
        self.nodes[node] = Node {
            incarnation,
            up: true,
            booted_ms: self.now_ms,
            skew_ms: if skewed { skew } else { 0 },
            wakes: vec![0; shards],
            claims: vec![0; shards],
            ..Node::default()
        };
        for shard in 0..shards {
            let shard = self.new_shard(node, shard);
            self.nodes[node].shards.push(shard);
        }
        for shard in 0..shards {
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
        if self.scenario.short {
            config.retention = abide_workflow::Duration::seconds(120);
            config.repeat_window = abide_workflow::Duration::seconds(300);
            config.sweep_every = Duration::from_secs(10);
        }
        Shard::new(self.shard_id(shard), config, self.moment(node))
    }

    pub(crate) fn crash_by_dice(&mut self, node: usize) {
        if !self.stormy() {
            return;
        }
        // Rather while something is under way.
        if self.nodes[node].up && self.nodes[node].outstanding == 0 && self.dice.below(20) > 0 {
            let wait = 1 + self.dice.below(100);
            return self.later(wait, Happening::Crash(node));
        }
        self.crash(node);
        let next = 20_000 + self.dice.below(120_000);
        self.later(next, Happening::Crash(node));
    }

    /// Whether a node dies just before this. What changes something outside is worth more than what only asks.
    pub(crate) fn crashes_before(&mut self, effect: &Effect) -> bool {
        let one_in = match effect {
            Effect::Reply(..) | Effect::Call(..) | Effect::Feed(..) | Effect::Post(..) => 150,
            Effect::Commit(..) | Effect::DropArrivals(_) => 600,
            _ => 2_000,
        };
        self.dice.below(one_in) == 0
    }

    pub(crate) fn crash(&mut self, node: usize) {
        if !self.nodes[node].up {
            return;
        }
        self.counts.faults += 1;
        self.counts.faults_in_flight += u64::from(self.nodes[node].outstanding > 0);
        // What had not left the process is gone with it.
        let of_node = |happening: &Happening| match happening {
            Happening::Execute(at, _) | Happening::Receive(at, ..) => at.node == node,
            _ => false,
        };
        let lost: Vec<(u64, u64)> =
            self.queue.iter().filter(|(_, happening)| of_node(happening)).map(|(key, _)| *key).collect();
        for key in lost {
            if self.dice.below(2) == 0 {
                self.queue.remove(&key);
            }
        }
        self.down(node);
    }

    fn down(&mut self, node: usize) {
        self.nodes[node].up = false;
        self.nodes[node].shards.clear();
        let wait = 500 + self.dice.below(20_000);
        self.later(wait, Happening::Boot(node));
    }

    pub(crate) fn pause(&mut self, node: usize) {
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

    /// A node is told to go down, and has some time to do it in order.
    pub(crate) fn drain(&mut self, node: usize) {
        if !self.stormy() {
            return;
        }
        let next = 60_000 + self.dice.below(240_000);
        self.later(next, Happening::Drain(node));
        let shards = self.nodes[node].shards.len();
        if !self.nodes[node].up || self.nodes[node].draining.is_some() {
            return;
        }
        self.counts.drains += 1;
        self.nodes[node].draining = Some(shards);
        let incarnation = self.nodes[node].incarnation;
        let patience = 1_000 + self.dice.below(30_000);
        self.later(patience, Happening::Kill(node, incarnation));
        for shard in 0..shards {
            let claim = self.nodes[node].claims[shard];
            let wait = self.delay();
            let at = At { node, incarnation, shard, claim };
            self.later(wait, Happening::Deliver(at, Event::Drain));
        }
    }

    /// A shard is not on its node any more. It is wanted again, unless the node is going down.
    pub(crate) fn stopped(&mut self, at: At, why: &Stopped) {
        if let Stopped::Broken(reason) = why {
            self.seen.push(format!("a shard broke: {reason}"));
        }
        self.nodes[at.node].claims[at.shard] += 1;
        if let Some(left) = &mut self.nodes[at.node].draining {
            *left -= 1;
            if *left == 0 {
                self.down(at.node);
            }
            return;
        }
        let fresh = self.new_shard(at.node, at.shard);
        self.nodes[at.node].shards[at.shard] = fresh;
        let at = At { claim: at.claim + 1, ..at };
        let wait = 500 + self.dice.below(1_000);
        self.later(wait, Happening::Claim(at));
    }
}

//! Nodes of a simulated cluster: they boot, crash, pause, drain, and disagree about the wall clock.
//!
//! Failures of the store and of activities are in [`crate::effects`].

use std::time::Duration;

use abide_runtime::lease::LeaseTimes;
use abide_runtime::turnstile::Turnstile;
use abide_runtime::{Effect, Event, Now, Shard, ShardConfig, StopReason};
use abide_store::rows::PrivateRows;
use abide_store::tables::decode;
use abide_store::tables::heads::{self, HeadRow};
use abide_testkit::shard_driver::ShardDriver;
use abide_testkit::virtual_time::VirtualClock;

use crate::cluster::{Cluster, EPOCH_MS};
use crate::sim_event::{ShardAddress, SimEvent};
use crate::workload;

/// Why a run is parked that the head of its shard named when the owner ended.
const ENDED_MEANWHILE: &str = "the server ended while it worked on this run";

/// One server process across its incarnations.
#[derive(Debug, Default)]
pub(crate) struct SimNode {
    pub(crate) incarnation: u64,
    pub(crate) up: bool,
    pub(crate) paused_until: u64,
    /// While the node drains: the number of shards it has not released yet.
    draining: Option<usize>,
    clock: VirtualClock,
    turnstile: Turnstile,
    pub(crate) shards: Vec<ShardDriver>,
    pub(crate) ownerships: Vec<u64>,
    pub(crate) outstanding: u64,
}

impl SimNode {
    /// True if the node accepts no new work.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.is_some()
    }
}

impl Cluster {
    pub(crate) fn add_nodes(&mut self) {
        for node in 0..self.scenario.nodes {
            self.nodes.push(SimNode::default());
            let at = self.dice.below(2_000);
            self.schedule_in(at, SimEvent::Boot(node));
            if self.scenario.faults {
                let crash = self.dice.below(60_000);
                self.schedule_in(crash, SimEvent::Crash(node));
                let pause = self.dice.below(120_000);
                self.schedule_in(pause, SimEvent::Pause(node));
                let drain = self.dice.below(240_000);
                self.schedule_in(drain, SimEvent::Drain(node));
            }
        }
    }

    pub(crate) fn now(&self, node: usize) -> Now {
        self.nodes[node].clock.now(self.time.now())
    }

    pub(crate) fn boot(&mut self, node: usize) {
        self.incarnations += 1;
        let incarnation = self.incarnations;
        // With a retention of minutes, a clock skew of an hour would be too much.
        let most = if self.scenario.short_retention { 30_000 } else { 3_600_000 };
        let skew = i64::try_from(self.dice.below(2 * most)).unwrap_or(0) - most.cast_signed();
        let skewed = self.scenario.faults && self.dice.below(3) == 0;
        let skew = if skewed { skew } else { 0 };
        let shards = self.scenario.shards as usize;
        self.nodes[node] = SimNode {
            incarnation,
            up: true,
            clock: VirtualClock { wall_at_start_ms: EPOCH_MS + skew, booted_at: self.time.now() },
            ownerships: vec![0; shards],
            ..SimNode::default()
        };
        for shard in 0..shards {
            let shard = self.new_shard(node, shard);
            self.nodes[node].shards.push(shard);
        }
        for shard in 0..shards {
            // Nodes take shards in different orders, or one node would own all of them.
            let wait = self.dice.below(3_000);
            self.schedule_in(
                wait,
                SimEvent::TakeOwnership(ShardAddress { node, incarnation, shard, ownership: 0 }),
            );
        }
    }

    fn new_shard(&self, node: usize, shard: usize) -> ShardDriver {
        let mut config = ShardConfig::new(
            format!("node-{node}-{}", self.nodes[node].incarnation),
            self.nodes[node].incarnation,
            self.shards,
            &self.store.capabilities(),
        );
        config.exclusive = false;
        config.lease_times = LeaseTimes { ttl: Duration::from_secs(6), margin: Duration::from_secs(2) };
        config.idle_max = Duration::from_secs(2);
        config.turnstile = self.nodes[node].turnstile.clone();
        config.poison = self.scenario.poisoned.then(workload::poison).flatten();
        config.run_limits.depth_max = 2;
        config.fault = self.scenario.injected_fault;
        if self.scenario.short_retention {
            config.retention = abide_workflow::Duration::seconds(120);
            config.idempotency_window = abide_workflow::Duration::seconds(300);
            config.sweep_interval = Duration::from_secs(10);
        }
        ShardDriver::new(Shard::new(self.shard_id(shard), config, self.now(node)))
    }

    pub(crate) fn maybe_crash(&mut self, node: usize) {
        if !self.is_storm() {
            return;
        }
        // Crashes are more useful while work is in flight.
        if self.nodes[node].up && self.nodes[node].outstanding == 0 && self.dice.below(20) > 0 {
            let wait = 1 + self.dice.below(100);
            return self.schedule_in(wait, SimEvent::Crash(node));
        }
        self.crash(node);
        let next = 20_000 + self.dice.below(120_000);
        self.schedule_in(next, SimEvent::Crash(node));
    }

    /// True if a node crashes just before this effect. Effects that change state outside are chosen more often than
    /// reads.
    pub(crate) fn crashes_before(&mut self, effect: &Effect) -> bool {
        let one_in = match effect {
            Effect::Reply(..)
            | Effect::StartAttempt(..)
            | Effect::AllowSend(..)
            | Effect::WritePublicIndex(..)
            | Effect::SendMessages(..) => 150,
            Effect::Commit(..) | Effect::DeleteInbound(_) => 600,
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
        // Half of the effects that had not left the process are lost with it.
        let of_node = |sim_event: &SimEvent| match sim_event {
            SimEvent::Execute(at, _) | SimEvent::DeliverCall(at, ..) => at.node == node,
            _ => false,
        };
        self.time.retain(|sim_event| !of_node(sim_event) || self.dice.below(2) > 0);
        self.shut_down(node);
    }

    fn shut_down(&mut self, node: usize) {
        self.nodes[node].up = false;
        self.nodes[node].shards.clear();
        let wait = 500 + self.dice.below(20_000);
        self.schedule_in(wait, SimEvent::Boot(node));
    }

    pub(crate) fn pause(&mut self, node: usize) {
        if !self.is_storm() {
            return;
        }
        let length = 1_000 + self.dice.below(20_000);
        self.counts.faults += 1;
        self.counts.faults_in_flight += u64::from(self.nodes[node].outstanding > 0);
        self.nodes[node].paused_until = self.time.now_ms() + length;
        // Half of the time its monotonic clock stops too, as on a suspended machine.
        if self.dice.below(2) == 0 {
            self.nodes[node].clock.booted_at += Duration::from_millis(length);
        }
        let next = 30_000 + self.dice.below(180_000);
        self.schedule_in(next, SimEvent::Pause(node));
    }

    /// Asks a node to drain. It is killed if it does not finish in time.
    pub(crate) fn drain(&mut self, node: usize) {
        if !self.is_storm() {
            return;
        }
        let next = 60_000 + self.dice.below(240_000);
        self.schedule_in(next, SimEvent::Drain(node));
        let shards = self.nodes[node].shards.len();
        if !self.nodes[node].up || self.nodes[node].draining.is_some() {
            return;
        }
        self.counts.drains += 1;
        self.nodes[node].draining = Some(shards);
        let incarnation = self.nodes[node].incarnation;
        let drain_timeout = 1_000 + self.dice.below(30_000);
        self.schedule_in(drain_timeout, SimEvent::KillDraining(node, incarnation));
        for shard in 0..shards {
            let ownership = self.nodes[node].ownerships[shard];
            let wait = self.message_delay();
            let at = ShardAddress { node, incarnation, shard, ownership };
            self.schedule_in(wait, SimEvent::Deliver(at, Event::Drain));
        }
    }

    /// A node has taken a shard over. The head still names the instance that the last owner was at when it ended.
    pub(crate) fn on_owned(&mut self, at: ShardAddress, carefully: bool) {
        self.counts.ownership_changes += 1;
        self.counts.careful_recoveries += u64::from(carefully);
        let Ok(partition) = self.shard_id(at.shard).partition() else { return };
        let row = self.store.read_now(&partition, &heads::key()).ok().flatten();
        let head: Option<HeadRow> = row.and_then(|row| decode(&row.value).ok());
        self.model.named_at_end.extend(head.and_then(|head| head.marked_instance));
    }

    /// A run was parked. An operator resumes one that was at work when an owner ended; nothing else may be parked.
    pub(crate) fn on_parked(&mut self, id: &str, reason: &str) {
        if reason != ENDED_MEANWHILE || !self.model.named_at_end.contains(id) {
            return self.violations.push(format!("{id} was parked: {reason}"));
        }
        self.counts.blamed += 1;
        self.add_operator(id);
    }

    /// A shard has stopped on its node. The node takes it again, unless it drains.
    pub(crate) fn on_shard_stopped(&mut self, at: ShardAddress, why: &StopReason) {
        if let StopReason::Broken(reason) = why {
            self.violations.push(format!("a shard broke: {reason}"));
        }
        self.nodes[at.node].ownerships[at.shard] += 1;
        if let Some(left) = &mut self.nodes[at.node].draining {
            *left -= 1;
            if *left == 0 {
                self.shut_down(at.node);
            }
            return;
        }
        let fresh = self.new_shard(at.node, at.shard);
        self.nodes[at.node].shards[at.shard] = fresh;
        let at = ShardAddress { ownership: at.ownership + 1, ..at };
        let wait = 500 + self.dice.below(1_000);
        self.schedule_in(wait, SimEvent::TakeOwnership(at));
    }
}

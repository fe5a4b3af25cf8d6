//! The cluster: one queue of events, ordered by simulated time, and the loop that handles them.
//!
//! Failures of nodes are in [`crate::nodes`]; failures of the store and of activities are in [`crate::effects`].

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use abide_runtime::definitions::Definitions;
use abide_runtime::fault_injection::ProcessDeath;
use abide_runtime::placement::{ShardCount, ShardId};
use abide_runtime::store_effects::StoreEffects;
use abide_runtime::{Effect, Event, OperatorEvent};
use abide_store::memory::{BackendProfile, MemoryStore, SeededRng};
use abide_store::rows::Scan;
use abide_store::tables::{TableId, expiries};
use abide_testkit::shard_driver::poll_ready;
use abide_testkit::virtual_time::VirtualTime;
use abide_workflow::Timestamp;

use crate::Scenario;
use crate::activities::SimActivities;
use crate::clients::SimClient;
use crate::counts::SimCounts;
use crate::digest::BehaviourDigest;
use crate::model::ClusterModel;
use crate::nodes::SimNode;
use crate::row_order::RowOrder;
use crate::sim_event::{ShardAddress, SimEvent};
use crate::workload;

/// The wall clock at the start of a simulation.
pub(crate) const EPOCH_MS: i64 = 1_800_000_000_000;
/// How long the cluster may take to become quiescent after the storm.
const QUIESCENCE_MAX_MS: u64 = 7_200_000;
/// How often quiescence is checked.
const QUIESCENCE_CHECK_MS: u64 = 30_000;

/// A running cluster.
#[derive(Debug)]
pub struct Cluster {
    pub(crate) scenario: Scenario,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) definitions: Arc<Definitions<MemoryStore>>,
    pub(crate) shards: ShardCount,
    pub(crate) store_effects: StoreEffects<MemoryStore>,
    pub(crate) nodes: Vec<SimNode>,
    pub(crate) time: VirtualTime<SimEvent>,
    pub(crate) dice: SeededRng,
    pub(crate) activities: SimActivities,
    pub(crate) clients: Vec<SimClient>,
    pub(crate) last_request_id: u64,
    pub(crate) incarnations: u64,
    pub(crate) model: ClusterModel,
    /// Public rows written by a node that no longer owned their shard.
    pub(crate) stale_rows: Vec<abide_store::public::PublicKey>,
    /// The instance that is traced.
    pub(crate) traced_instance: String,
    pub(crate) instance_trace: Vec<String>,
    /// Violations seen while the simulation ran.
    pub(crate) violations: Vec<String>,
    pub(crate) counts: SimCounts,
    /// A digest of all events, in order.
    pub(crate) trace: u64,
    /// A digest of all effects of shards.
    pub(crate) digest: BehaviourDigest,
    pub(crate) row_order: RowOrder,
}

impl Cluster {
    /// A cluster before its first event.
    pub fn new(scenario: Scenario) -> Self {
        let personality = if scenario.azure { BackendProfile::AZURE } else { BackendProfile::PLAIN };
        let store = Arc::new(MemoryStore::new(personality));
        let definitions =
            Arc::new(Definitions::new(Arc::clone(&store)).unwrap_or_else(|error| unreachable!("{error}")));
        let shards = ShardCount::new(scenario.shards)
            .unwrap_or_else(|| unreachable!("a scenario has at least one shard"));
        for definition in workload::definitions() {
            let published =
                poll_ready(definitions.publish(&definition.to_string(), None, Timestamp(EPOCH_MS)));
            published.unwrap_or_else(|error| unreachable!("{definition}: {error:?}"));
        }
        let store_effects = StoreEffects::new(Arc::clone(&store), Arc::clone(&definitions), shards)
            .unwrap_or_else(|error| unreachable!("{error}"));
        let mut cluster = Self {
            scenario,
            store,
            definitions,
            shards,
            store_effects,
            nodes: Vec::new(),
            time: VirtualTime::default(),
            dice: SeededRng::new(scenario.seed),
            activities: SimActivities::default(),
            clients: Vec::new(),
            last_request_id: 0,
            incarnations: 0,
            model: ClusterModel::default(),
            stale_rows: Vec::new(),
            traced_instance: String::new(),
            instance_trace: Vec::new(),
            violations: Vec::new(),
            counts: SimCounts::default(),
            trace: 0xcbf2_9ce4_8422_2325,
            digest: BehaviourDigest::default(),
            row_order: RowOrder::default(),
        };
        cluster.add_nodes();
        cluster.add_clients();
        cluster
    }

    /// Adds a line to the trace if this instance is traced.
    pub(crate) fn trace_instance(&mut self, id: &str, what: impl FnOnce() -> String) {
        if id == self.traced_instance {
            self.instance_trace.push(format!("{:>9} {}", self.time.now_ms(), what()));
        }
    }

    pub(crate) fn schedule_in(&mut self, by_ms: u64, sim_event: SimEvent) {
        self.time.schedule_in(Duration::from_millis(by_ms), sim_event);
    }

    /// Runs until the cluster is quiescent, or for too long.
    pub fn run(&mut self) {
        let end = self.scenario.storm_ms + QUIESCENCE_MAX_MS;
        let mut next_check = self.scenario.storm_ms;
        while let Some((_, sim_event)) = self.time.advance() {
            let at = self.time.now_ms();
            if at > end || self.violations.len() > 20 {
                break;
            }
            if at >= next_check {
                if self.is_quiescent() {
                    break;
                }
                next_check = at + QUIESCENCE_CHECK_MS;
            }
            self.add_to_trace(&sim_event);
            self.handle(sim_event);
        }
        self.counts.simulated_ms = self.time.now_ms();
    }

    fn add_to_trace(&mut self, sim_event: &SimEvent) {
        let (what, at, detail) = sim_event.digest();
        for number in [self.time.now_ms(), what, at.node as u64, at.incarnation, at.shard as u64, detail] {
            self.trace = (self.trace ^ number).wrapping_mul(0x100_0000_01b3).rotate_left(17);
        }
    }

    pub(crate) fn is_storm(&self) -> bool {
        self.scenario.faults && self.time.now_ms() < self.scenario.storm_ms
    }

    /// Every client has finished its script, every run has ended, the public table is up to date, and rows with a short
    /// retention are deleted.
    fn is_quiescent(&mut self) -> bool {
        self.add_operators();
        let done = self.clients.iter().all(|client| client.next_step().is_none());
        if !done || !self.model.all_ended() {
            if done {
                self.add_cleanup_clients();
            }
            return false;
        }
        // Rows to be deleted immediately sort before all rows with a later expiry.
        let mut left = vec![
            TableId::Outbox.scan(),
            expiries::due_before(expiries::DUE_AT_ONCE.plus(abide_workflow::Duration(1))),
        ];
        if self.scenario.short_retention {
            left.extend([TableId::Instance.scan(), TableId::Expiry.scan()]);
        }
        left.iter().all(|scan| self.shards.shards().all(|shard| self.is_empty(shard, scan)))
    }

    fn is_empty(&self, shard: ShardId, scan: &Scan) -> bool {
        let Some(partition) = self.store_effects.partition(shard) else { return true };
        self.store.scan_now(partition, scan.clone().limit(1)).is_ok_and(|page| page.rows.is_empty())
    }

    fn handle(&mut self, sim_event: SimEvent) {
        match sim_event {
            SimEvent::Wake(at, stamp) => {
                let driver = self.node(at).and_then(|node| node.shards.get(at.shard));
                let is_next = driver.is_some_and(|driver| driver.is_next_wake(stamp));
                if is_next && !self.defer_if_paused(at, |at| SimEvent::Wake(at, stamp)) {
                    self.deliver_event(at, Event::Tick);
                }
            }
            SimEvent::Deliver(at, event) => {
                if self.node(at).is_none() {
                    return;
                }
                let paused = self.nodes[at.node].paused_until;
                if paused > self.time.now_ms() {
                    self.schedule_in(paused - self.time.now_ms(), SimEvent::Deliver(at, event));
                } else {
                    self.nodes[at.node].outstanding = self.nodes[at.node].outstanding.saturating_sub(1);
                    self.deliver_event(at, event);
                }
            }
            SimEvent::Execute(at, effect) => self.execute_effect(at, effect),
            SimEvent::SendCall(at, id, call) => self.send_call(at, id, call),
            SimEvent::TryHeldCall(at, id) => self.try_held_call(at, id),
            SimEvent::DeliverCall(at, id, call) => self.run_attempt(at, id, &call),
            SimEvent::TakeOwnership(at) => {
                if self.node(at).is_some() {
                    self.deliver_event(at, Event::Tick);
                }
            }
            SimEvent::ClientStep(client) => self.step_client(client),
            SimEvent::ClientTimeout(client, request_id, at) => self.on_client_timeout(client, request_id, at),
            SimEvent::Crash(node) => self.maybe_crash(node),
            SimEvent::Boot(node) => self.boot(node),
            SimEvent::Pause(node) => self.pause(node),
            SimEvent::Drain(node) => self.drain(node),
            SimEvent::KillDraining(node, incarnation) => {
                if self.nodes[node].incarnation == incarnation {
                    self.crash(node);
                }
            }
        }
    }

    /// The node, if it is still in the same incarnation and ownership.
    pub(crate) fn node(&self, at: ShardAddress) -> Option<&SimNode> {
        let node = self.nodes.get(at.node)?;
        let same = node.up
            && node.incarnation == at.incarnation
            && node.ownerships.get(at.shard) == Some(&at.ownership);
        same.then_some(node)
    }

    fn defer_if_paused(&mut self, at: ShardAddress, again: impl FnOnce(ShardAddress) -> SimEvent) -> bool {
        let paused = self.nodes[at.node].paused_until;
        if paused > self.time.now_ms() {
            self.schedule_in(paused - self.time.now_ms(), again(at));
            return true;
        }
        false
    }

    /// Delivers an event to a shard and begins its effects.
    pub(crate) fn deliver_event(&mut self, at: ShardAddress, event: Event) {
        let now = self.now(at.node);
        let Some(driver) = self.nodes[at.node].shards.get_mut(at.shard) else { return };
        let time = &mut self.time;
        let handled = AssertUnwindSafe(|| driver.handle(event, now, time, |stamp| SimEvent::Wake(at, stamp)));
        let effects = match catch_unwind(handled) {
            Ok(effects) => effects,
            Err(death) if death.is::<ProcessDeath>() => {
                self.counts.deaths += 1;
                return self.crash(at.node);
            }
            Err(panic) => resume_unwind(panic),
        };
        for effect in effects {
            self.digest.add(at.node, at.shard, &effect);
            self.row_order.add(at.shard, &effect);
            if self.is_storm() && self.crashes_before(&effect) {
                return self.crash(at.node);
            }
            self.begin_effect(at, effect);
        }
    }

    fn begin_effect(&mut self, at: ShardAddress, effect: Effect) {
        match effect {
            Effect::Reply(request_id, reply) => self.on_client_reply(request_id, &reply),
            Effect::StartAttempt(id, call) => {
                self.nodes[at.node].outstanding += 1;
                // Some attempts wait for a permit of their target first.
                let waits = self.is_storm() && self.dice.below(8) == 0;
                let wait = if waits { self.dice.below(20_000) } else { 0 };
                self.schedule_in(wait, SimEvent::SendCall(at, id, call));
            }
            Effect::TryHeldCall(id, _) => {
                self.nodes[at.node].outstanding += 1;
                let wait = self.message_delay();
                self.schedule_in(wait, SimEvent::TryHeldCall(at, id));
            }
            Effect::AllowSend(id, _, call) => {
                self.nodes[at.node].outstanding += 1;
                self.schedule_in(0, SimEvent::SendCall(at, id, call));
            }
            Effect::CancelAttempt(_) => {}
            Effect::Notify(OperatorEvent::Owned { carefully, .. }) => self.on_owned(at, carefully),
            Effect::Notify(OperatorEvent::Parked { instance_id, reason }) => {
                self.on_parked(instance_id.as_str(), &reason);
            }
            Effect::Notify(OperatorEvent::Unreadable { reason }) => self.violations.push(reason),
            Effect::Notify(OperatorEvent::Stuck { instance_id, .. }) => self.on_stuck(instance_id.as_str()),
            Effect::Notify(_) => {}
            Effect::Stopped(why) => self.on_shard_stopped(at, &why),
            other => {
                self.nodes[at.node].outstanding += 1;
                let wait = self.message_delay();
                self.schedule_in(wait, SimEvent::Execute(at, other));
            }
        }
    }

    /// Checks that a run is reported as stuck at most once.
    fn on_stuck(&mut self, id: &str) {
        self.counts.stuck += 1;
        let Some(instance) = self.model.instances.get_mut(id) else {
            return self.violations.push(format!("{id} was reported as stuck and never began"));
        };
        instance.stuck += 1;
        if instance.stuck > instance.runs.len() {
            self.violations.push(format!(
                "{id} has {} runs and was reported as stuck {} times",
                instance.runs.len(),
                instance.stuck
            ));
        }
    }
}

//! The tokio driver: runs one task per shard, and carries requests to their shards and replies back.
//!
//! It decides nothing about runs. The server and the entity activities are its clients: what changes something goes to
//! a shard; most reads go to the store directly and see what is committed. The shard reads no clock; these files do.

mod attempt_reports;
mod clock;
mod entity_activities;
mod lanes;
mod metrics;
mod pending_replies;
mod running_attempts;
mod send_confirmation;
mod shard_task;

use std::sync::Arc;
use std::time::Duration;

use abide_dispatch::ActivityTransport;
use abide_ids::KeyDigest;
use abide_store::rows::{PartitionError, StoreError, StoreHealth};
use abide_workflow::{InstanceId, Timestamp};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tracing::Instrument as _;

use crate::config::ShardConfig;
use crate::definitions::Definitions;
use crate::entity::{EntityId, EntityReader, OperationReply};
use crate::event_routes::EventRoutes;
use crate::placement::ShardId;
use crate::request::{RequestError, RunView, ShardReply, ShardRequest, StartRequest};
pub use crate::run::RunReadError;
use crate::run::{CallReader, HistoryCursor, HistoryPage};
use crate::run_message;
use crate::store_effects::StoreEffects;
use abide_store::Store;
pub use clock::NodeClock;
pub use entity_activities::EntityActivities;
pub use lanes::ShardLanes;
pub use metrics::{Metrics, ShardMetrics};
use shard_task::{ShardTask, ShardTaskMessage};

/// The options of a node.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    pub shard_config: ShardConfig,
    /// The most activity calls that run at the same time (`maxConcurrentActivityFunctions`).
    pub concurrent_calls_max: usize,
    /// The time calls in flight are given to end when the node shuts down.
    pub drain_grace: Duration,
}

/// One running server process: all its shard tasks, and the way to them.
#[derive(Debug)]
pub struct Node<S> {
    store_effects: Arc<StoreEffects<S>>,
    event_routes: EventRoutes<S>,
    options: NodeOptions,
    shard_senders: Vec<mpsc::UnboundedSender<ShardTaskMessage>>,
    lanes: Vec<Arc<ShardLanes>>,
    tasks: tokio::sync::Mutex<JoinSet<()>>,
    metrics: Arc<Metrics>,
    clock: NodeClock,
}

/// No reply to a request, because this node lost the shard, or stopped working on it. The request may have been done or
/// not: the caller must check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("shard ownership was lost before the reply: the outcome is unknown")]
pub struct ShardLost;

/// A started run whose end can be awaited.
#[derive(Debug)]
pub struct StartHandle {
    /// The reply to the start.
    pub reply: ShardReply,
    /// Receives a reply when the run has ended, or a refusal if it is parked. If the start was refused, nothing comes.
    pub end: oneshot::Receiver<ShardReply>,
}

impl<S: Store> Node<S> {
    /// Starts a task for every shard of the store, which acquires the shard and works on it.
    pub fn start<T: ActivityTransport + 'static>(
        store: Arc<S>,
        definitions: Arc<Definitions<S>>,
        activities: &Arc<T>,
        #[cfg_attr(not(feature = "faults"), expect(unused_mut, reason = "only test builds plant faults"))]
        mut options: NodeOptions,
    ) -> Result<Self, PartitionError> {
        #[cfg(feature = "faults")]
        if options.shard_config.fault.is_none() {
            options.shard_config.fault = crate::fault_injection::Fault::from_environment();
        }
        #[cfg(feature = "faults")]
        if options.shard_config.poison.is_none() {
            options.shard_config.poison = crate::fault_injection::Poison::from_environment();
        }
        let event_routes = EventRoutes::new(Arc::clone(&store))?;
        let store_effects =
            Arc::new(StoreEffects::new(store, definitions, options.shard_config.shard_count)?);
        let metrics = Arc::new(Metrics::new(options.shard_config.shard_count));
        let clock = NodeClock::new();
        let permits = Arc::new(Semaphore::new(options.concurrent_calls_max.min(Semaphore::MAX_PERMITS)));
        let (senders, receivers): (Vec<_>, Vec<_>) =
            options.shard_config.shard_count.shards().map(|_| mpsc::unbounded_channel()).unzip();
        let config = &options.shard_config;
        let new_lanes =
            |shard| Arc::new(ShardLanes::new(shard, config.unanswered_max, config.unanswered_bytes_max));
        let lanes = config.shard_count.shards().map(new_lanes).collect();
        let mut tasks = JoinSet::new();
        for (id, (own, incoming)) in
            options.shard_config.shard_count.shards().zip(senders.iter().cloned().zip(receivers))
        {
            let attempts = running_attempts::RunningAttempts::new(
                Arc::clone(activities),
                Arc::clone(&permits),
                own,
                Arc::clone(&metrics),
            );
            let task = ShardTask {
                id,
                config: options.shard_config.clone(),
                store_effects: Arc::clone(&store_effects),
                shard_senders: senders.clone(),
                metrics: Arc::clone(&metrics),
                clock,
            };
            // The parent of the spans of turns, commits and attempts.
            let span = tracing::debug_span!("shard", shard = %id);
            tasks.spawn(task.run(incoming, attempts).instrument(span));
        }
        Ok(Self {
            store_effects,
            event_routes,
            options,
            shard_senders: senders,
            lanes,
            tasks: tokio::sync::Mutex::new(tasks),
            metrics,
            clock,
        })
    }

    /// Sends a request to its shard, and waits for the reply.
    pub async fn request(&self, request: ShardRequest) -> Result<ShardReply, ShardLost> {
        let (sender, reply) = oneshot::channel();
        self.send_to_shard(request, sender, None);
        reply.await.map_err(|_| ShardLost)
    }

    /// Sends requests with the same placement key to their shard, without waiting for the replies. The shard accepts
    /// all of them in this order, or refuses all of them: the server sends the events of a session so.
    pub fn request_group(
        &self,
        placement_key: &str,
        requests: Vec<ShardRequest>,
    ) -> Vec<oneshot::Receiver<ShardReply>> {
        let (senders, replies): (Vec<_>, Vec<_>) = requests.iter().map(|_| oneshot::channel()).unzip();
        let shard = self.options.shard_config.shard_count.shard_of(placement_key);
        let Some((sender, lanes)) = self.way_to(shard) else { return replies };
        match lanes.enter_group(&requests) {
            Ok(places) => {
                let group = requests.into_iter().zip(senders).zip(places);
                let group = group.map(|((request, reply), place)| (request, reply, place)).collect();
                drop(sender.send(ShardTaskMessage::RequestGroup(group)));
            }
            Err(refusal) => senders.into_iter().for_each(|reply| self.refuse(reply, refusal.clone())),
        }
        replies
    }

    /// The stored reply of an entity operation, by placement key, scope and digest of its idempotency key. None if it
    /// is not stored, has expired or cannot be read. The server asks before it dead-letters an event, which may have
    /// been recorded before.
    pub async fn stored_operation_reply(
        &self,
        placement_key: &str,
        scope: &str,
        digest: &KeyDigest,
    ) -> Result<Option<OperationReply>, StoreError> {
        let shard = self.options.shard_config.shard_count.shard_of(placement_key);
        let Some(partition) = self.store_effects.partition(shard) else { return Ok(None) };
        let stored = self.store_effects.read_stored_reply(partition, scope, digest).await?;
        let stored = stored.ok().flatten().filter(|stored| stored.expires_at > self.now());
        Ok(stored.and_then(|stored| run_message::decode::<OperationReply>(&stored.reply).ok()))
    }

    /// Starts a run, and returns a handle to await its end.
    pub async fn start_run(&self, start: StartRequest) -> Result<StartHandle, ShardLost> {
        let (reply_sender, reply) = oneshot::channel();
        let (end_sender, end) = oneshot::channel();
        self.send_to_shard(ShardRequest::Start(Box::new(start)), reply_sender, Some(end_sender));
        Ok(StartHandle { reply: reply.await.map_err(|_| ShardLost)?, end })
    }

    /// The current run of an instance, as it is stored; none if the instance was purged.
    pub async fn view_instance(&self, id: &InstanceId) -> Result<Option<RunView>, RunReadError> {
        let shard = self.options.shard_config.shard_count.shard_of_instance(id);
        let Some(partition) = self.store_effects.partition(shard) else { return Ok(None) };
        match self.store_effects.run_reader().view(partition, id).await? {
            Ok(view) => Ok(view),
            Err(unreadable) => Err(RunReadError::Unreadable(Box::new(unreadable))),
        }
    }

    /// A page of an instance's history, as JSON: events from a position on, and the position to continue from.
    pub async fn history(
        &self,
        id: &InstanceId,
        from: Option<HistoryCursor>,
        events_max: usize,
    ) -> Result<Option<HistoryPage>, RunReadError> {
        let shard = self.options.shard_config.shard_count.shard_of_instance(id);
        let Some(partition) = self.store_effects.partition(shard) else { return Ok(None) };
        self.store_effects.run_reader().history(partition, id, from, events_max).await
    }

    /// Reads the entities that share a shard with this one.
    pub fn entity_reader_for(&self, entity: &EntityId) -> Option<EntityReader<'_, S>> {
        self.entity_reader(self.shard_of_entity(entity))
    }

    /// Waits until the public table has every state that was durable at the time of the call, or a later one. Waits
    /// also for shards that this node does not own yet; returns an error if one is lost in the meantime. The server
    /// calls it before it counts runs in that table.
    pub async fn await_public_index(&self) -> Result<(), ShardLost> {
        let await_shard = |shard: &mpsc::UnboundedSender<ShardTaskMessage>| {
            let (sender, reply) = oneshot::channel();
            // If the shard task is gone, the sender is dropped with the message, and the receiver returns an error.
            drop(shard.send(ShardTaskMessage::AwaitPublicIndex(sender)));
            reply
        };
        let replies: Vec<_> = self.shard_senders.iter().map(await_shard).collect();
        for reply in replies {
            reply.await.map_err(|_| ShardLost)?;
        }
        Ok(())
    }

    pub fn shard_of_entity(&self, entity: &EntityId) -> ShardId {
        self.options.shard_config.shard_count.shard_of(&entity.placement_key())
    }

    /// Reads the entities of one shard.
    pub fn entity_reader(&self, shard: ShardId) -> Option<EntityReader<'_, S>> {
        let partition = self.store_effects.partition(shard)?;
        Some(EntityReader { store: self.store_effects.store(), partition })
    }

    pub fn shard_of_instance(&self, id: &InstanceId) -> ShardId {
        self.options.shard_config.shard_count.shard_of_instance(id)
    }

    /// Reads the calls of one shard's runs.
    pub fn call_reader(&self, shard: ShardId) -> Option<CallReader<'_, S>> {
        let partition = self.store_effects.partition(shard)?;
        Some(CallReader { run_reader: self.store_effects.run_reader(), partition })
    }

    pub fn shards(&self) -> impl Iterator<Item = ShardId> {
        self.options.shard_config.shard_count.shards()
    }

    /// The lanes into the shards, in the order of the shards.
    pub fn lanes(&self) -> impl Iterator<Item = &ShardLanes> {
        self.lanes.iter().map(Arc::as_ref)
    }

    /// The routes of external events.
    pub fn event_routes(&self) -> &EventRoutes<S> {
        &self.event_routes
    }

    pub fn definitions(&self) -> &Arc<Definitions<S>> {
        self.store_effects.definitions()
    }

    pub fn store(&self) -> &Arc<S> {
        self.store_effects.store()
    }

    /// Counters and gauges.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The machine's wall clock, which may jump: for timestamps, and to compare with stored ones. Durations are
    /// measured with [`Self::uptime`].
    pub fn now(&self) -> Timestamp {
        self.clock.now().wall
    }

    /// The time since the node was started.
    pub fn uptime(&self) -> Duration {
        self.clock.now().mono.0
    }

    /// Ok if the node can serve all requests; otherwise the reason. Blocks while the disk of the store hangs.
    pub fn readiness(&self) -> Result<(), String> {
        match self.store().health() {
            StoreHealth::Usable => {}
            StoreHealth::ReadOnly { reason } | StoreHealth::Unusable { reason } => return Err(reason),
        }
        let ready = self.metrics.working_shards();
        let all = self.shard_senders.len();
        if ready == all {
            return Ok(());
        }
        let mut reasons = self.metrics.shards().enumerate();
        let first = reasons.find_map(|(number, shard)| Some((number, shard.stop_reason()?)));
        let why = first.map(|(number, reason)| format!("; shard {number} stopped: {reason}"));
        Err(format!("{ready} of {all} shards are ready{}", why.unwrap_or_default()))
    }

    /// Accepts nothing new, lets calls in flight end within the grace period, and releases the shards. Called once,
    /// when the server stops. A shard task that is not done by then is aborted: its calls are left to the next owner.
    pub async fn drain(&self) {
        for shard in &self.shard_senders {
            // A shard task that has ended has nothing to drain.
            drop(shard.send(ShardTaskMessage::Drain));
        }
        let mut tasks = self.tasks.lock().await;
        let all = async { while tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(self.options.drain_grace, all).await.is_err() {
            tasks.shutdown().await;
        }
    }

    /// Sends a request to the task of its shard. With `end`, a start also asks for a second reply at the end of the
    /// run.
    fn send_to_shard(
        &self,
        request: ShardRequest,
        reply: oneshot::Sender<ShardReply>,
        end: Option<oneshot::Sender<ShardReply>>,
    ) {
        let shard = self.options.shard_config.shard_count.shard_of(&request.placement_key());
        let Some((sender, lanes)) = self.way_to(shard) else { return };
        match lanes.enter(&request) {
            // If the shard task is gone, the sender is dropped with the message, and the receiver returns an error.
            Ok(place) => drop(sender.send(ShardTaskMessage::Request { request, reply, end, place })),
            Err(refusal) => self.refuse(reply, refusal),
        }
    }

    fn way_to(&self, shard: ShardId) -> Option<(&mpsc::UnboundedSender<ShardTaskMessage>, &Arc<ShardLanes>)> {
        let number = shard.number() as usize;
        self.shard_senders.get(number).zip(self.lanes.get(number))
    }

    /// Refuses a request that has not reached its shard.
    fn refuse(&self, reply: oneshot::Sender<ShardReply>, refusal: RequestError) {
        self.metrics.record_refusal(&refusal);
        // A client that has disconnected needs no reply.
        drop(reply.send(ShardReply::Refused(refusal)));
    }
}

//! The tokio driver: a task per shard, and the way of a request to its shard and back.
//!
//! Decides nothing. The clock is read here and nowhere below.

mod calls;
mod carrier;
mod clock;
mod entity_activities;
mod metrics;
mod tickets;

use std::sync::Arc;
use std::time::Duration;

use abide_dispatch::Transport;
use abide_store::rows::{Health, PartitionError, StoreError};
use abide_workflow::{InstanceId, Timestamp};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;

use crate::config::Config;
use crate::definitions::Definitions;
use crate::entity::{EntityId, EntityReader, Operated};
use crate::hands::{Hands, Store};
use crate::placement::ShardId;
use crate::post;
use crate::request::{Reply, Request, RunView, Start};
use crate::routes::Routes;
pub use crate::run::ShowError;
use crate::run::{CallReader, HistoryPage, HistoryPlace};
use carrier::{Carrier, Incoming};
pub use clock::Clock;
pub use entity_activities::EntityDesk;
pub use metrics::{Metrics, ShardMetrics};

/// How a node works.
#[derive(Clone, Debug)]
pub struct Options {
    /// What each shard is told.
    pub shard: Config,
    /// Activities that run at the same time (`maxConcurrentActivityFunctions`).
    pub activities_max: usize,
    /// How long calls under way may go on when the node goes down.
    pub drain_grace: Duration,
}

/// One server process at work.
#[derive(Debug)]
pub struct Node<S> {
    hands: Arc<Hands<S>>,
    routes: Routes<S>,
    options: Options,
    shards: Vec<mpsc::UnboundedSender<Incoming>>,
    tasks: tokio::sync::Mutex<JoinSet<()>>,
    metrics: Arc<Metrics>,
    clock: Clock,
}

/// A request that was not answered: the shard was lost meanwhile. It may have been done or not; ask.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the shard was given up before it answered: the request may have been done or not")]
pub struct Unanswered;

/// A start whose run's end is waited for.
#[derive(Debug)]
pub struct Begun {
    /// How the start was answered.
    pub reply: Reply,
    /// Answered when the run has ended.
    pub end: oneshot::Receiver<Reply>,
}

impl<S: Store> Node<S> {
    /// Begins to take every shard of the store and to work on it.
    pub fn start<T: Transport + 'static>(
        store: Arc<S>,
        definitions: Arc<Definitions<S>>,
        activities: &Arc<T>,
        options: Options,
    ) -> Result<Self, PartitionError> {
        let routes = Routes::new(Arc::clone(&store))?;
        let hands = Arc::new(Hands::new(store, definitions, options.shard.shards)?);
        let metrics = Arc::new(Metrics::new(options.shard.shards));
        let clock = Clock::new();
        let slots = Arc::new(Semaphore::new(options.activities_max.min(Semaphore::MAX_PERMITS)));
        let (senders, receivers): (Vec<_>, Vec<_>) =
            options.shard.shards.shards().map(|_| mpsc::unbounded_channel()).unzip();
        let mut tasks = JoinSet::new();
        for (id, (own, incoming)) in options.shard.shards.shards().zip(senders.iter().cloned().zip(receivers))
        {
            let calls =
                calls::Calls::new(Arc::clone(activities), Arc::clone(&slots), own, Arc::clone(&metrics));
            let carrier = Carrier {
                id,
                config: options.shard.clone(),
                hands: Arc::clone(&hands),
                peers: senders.clone(),
                metrics: Arc::clone(&metrics),
                clock,
            };
            tasks.spawn(carrier.run(incoming, calls));
        }
        Ok(Self {
            hands,
            routes,
            options,
            shards: senders,
            tasks: tokio::sync::Mutex::new(tasks),
            metrics,
            clock,
        })
    }

    /// Asks the shard of an instance.
    pub async fn ask(&self, request: Request) -> Result<Reply, Unanswered> {
        let (reply, answer) = oneshot::channel();
        self.send(request, reply, None);
        answer.await.map_err(|_| Unanswered)
    }

    /// Asks without waiting for what is placed by one key: all of it is taken in this order, or all of it is refused.
    pub fn ask_together(&self, placement_key: &str, requests: Vec<Request>) -> Vec<oneshot::Receiver<Reply>> {
        let (replies, answers): (Vec<_>, Vec<_>) = requests.iter().map(|_| oneshot::channel()).unzip();
        let shard = self.options.shard.shards.shard_of(placement_key);
        if let Some(sender) = self.shards.get(shard.number() as usize) {
            let requests = requests.into_iter().zip(replies).collect();
            drop(sender.send(Incoming::AskTogether(requests)));
        }
        answers
    }

    /// How an operation was answered that is known by this digest and came to this key's shard, if it did.
    pub async fn recall_operation(
        &self,
        placement_key: &str,
        scope: &str,
        digest: &[u8; 32],
    ) -> Result<Option<Operated>, StoreError> {
        let shard = self.options.shard.shards.shard_of(placement_key);
        let Some(partition) = self.hands.partition(shard) else { return Ok(None) };
        let kept = self.hands.kept(partition, scope, digest).await?;
        let kept = kept.ok().flatten().filter(|kept| kept.expires_at > self.now().0);
        Ok(kept.and_then(|kept| post::decode::<Operated>(&kept.answer).ok()))
    }

    /// Begins a run, and says when it has ended.
    pub async fn begin(&self, start: Start) -> Result<Begun, Unanswered> {
        let (reply, answer) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        self.send(Request::Start(Box::new(start)), reply, Some(end));
        Ok(Begun { reply: answer.await.map_err(|_| Unanswered)?, end: ended })
    }

    /// An instance as the store has it.
    pub async fn show(&self, id: &InstanceId) -> Result<Option<RunView>, ShowError> {
        let shard = self.options.shard.shards.shard_of_instance(id);
        let Some(partition) = self.hands.partition(shard) else { return Ok(None) };
        match self.hands.reader().view(partition, id).await? {
            Ok(view) => Ok(view),
            Err(unreadable) => Err(ShowError::Unreadable(Box::new(unreadable))),
        }
    }

    /// A page of an instance's history, as JSON: events from this place on, and where to go on.
    pub async fn history(
        &self,
        id: &InstanceId,
        from: Option<HistoryPlace>,
        events_max: usize,
    ) -> Result<Option<HistoryPage>, ShowError> {
        let shard = self.options.shard.shards.shard_of_instance(id);
        let Some(partition) = self.hands.partition(shard) else { return Ok(None) };
        self.hands.reader().history(partition, id, from, events_max).await
    }

    /// Reads the entities that share a shard with this one.
    pub fn entities_with(&self, entity: &EntityId) -> Option<EntityReader<'_, S>> {
        self.entities_of(self.shard_of_entity(entity))
    }

    /// Waits until the public table has every state that was durable when this was asked, or a later one. Shards that are not at work here
    /// are waited for; there is no answer if one is lost meanwhile.
    pub async fn public_caught_up(&self) -> Result<(), Unanswered> {
        let show = |shard: &mpsc::UnboundedSender<Incoming>| {
            let (reply, answer) = oneshot::channel();
            // If the shard is gone the answer's other end is dropped with it, and that is the answer.
            drop(shard.send(Incoming::Show(reply)));
            answer
        };
        let answers: Vec<_> = self.shards.iter().map(show).collect();
        for answer in answers {
            answer.await.map_err(|_| Unanswered)?;
        }
        Ok(())
    }

    /// The shard of an entity.
    pub fn shard_of_entity(&self, entity: &EntityId) -> ShardId {
        self.options.shard.shards.shard_of(&entity.placement_key())
    }

    /// Reads the entities of one shard.
    pub fn entities_of(&self, shard: ShardId) -> Option<EntityReader<'_, S>> {
        let partition = self.hands.partition(shard)?;
        Some(EntityReader { store: self.hands.store(), partition })
    }

    /// The shard of an instance.
    pub fn shard_of_instance(&self, id: &InstanceId) -> ShardId {
        self.options.shard.shards.shard_of_instance(id)
    }

    /// Reads the calls of one shard's runs.
    pub fn calls_of(&self, shard: ShardId) -> Option<CallReader<'_, S>> {
        let partition = self.hands.partition(shard)?;
        Some(CallReader { reader: self.hands.reader(), partition })
    }

    /// Every shard, in order.
    pub fn shards(&self) -> impl Iterator<Item = ShardId> {
        self.options.shard.shards.shards()
    }

    /// Where events from outside go.
    pub fn routes(&self) -> &Routes<S> {
        &self.routes
    }

    /// The published definitions.
    pub fn definitions(&self) -> &Arc<Definitions<S>> {
        self.hands.definitions()
    }

    /// The store.
    pub fn store(&self) -> &Arc<S> {
        self.hands.store()
    }

    /// Counters and gauges.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The time of day.
    pub fn now(&self) -> Timestamp {
        self.clock.now().wall
    }

    /// How long it has been at work.
    pub fn uptime(&self) -> Duration {
        self.clock.now().mono.0
    }

    /// Whether requests can be served; the reason if not.
    pub fn readiness(&self) -> Result<(), String> {
        match self.store().health() {
            Health::Usable => {}
            Health::ReadOnly { reason } | Health::Unusable { reason } => return Err(reason),
        }
        let (working, all) = (self.metrics.shards_working(), self.shards.len());
        if working == all { Ok(()) } else { Err(format!("{working} of {all} shards are at work")) }
    }

    /// Takes nothing new, lets calls under way end within the grace, gives the shards up.
    pub async fn drain(&self) {
        for shard in &self.shards {
            // A shard that is gone has nothing to drain.
            drop(shard.send(Incoming::Drain));
        }
        let mut tasks = self.tasks.lock().await;
        let all = async { while tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(self.options.drain_grace, all).await.is_err() {
            tasks.shutdown().await;
        }
    }

    fn send(&self, request: Request, reply: oneshot::Sender<Reply>, end: Option<oneshot::Sender<Reply>>) {
        let shard = self.options.shard.shards.shard_of(&request.placement_key());
        if let Some(sender) = self.shards.get(shard.number() as usize) {
            // If the shard is gone the answer's other end is dropped with it, and that is the answer.
            drop(sender.send(Incoming::Ask { request, reply, end }));
        }
    }
}

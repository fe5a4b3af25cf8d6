//! Carries out what a shard wants of its store. Both drivers use it: tokio awaits these futures, the simulator polls them when it likes.

use std::sync::Arc;

use abide_store::public::PublicTables;
use abide_store::rows::{
    CommitOutcome, Partition, PartitionError, PrivateRows, StoreError, scan_past_damage,
};
use abide_store::tables::dedupe;
use abide_store::tables::entities::{self, Entity as EntityRow};
use abide_store::tables::instances::RunStatus;
use abide_store::tables::{decode, heads};
use abide_workflow::InstanceId;

use crate::definitions::Definitions;
use crate::entity::EntityId;
use crate::event::{Depth, Effect, Event, FoundEntity, Kept, LookedUp, ScanPurpose};
use crate::placement::{ShardCount, ShardId};
use crate::run::{RunReader, UnreadableRun};

/// A store as the runtime needs it.
pub trait Store: PrivateRows + PublicTables + 'static {}

impl<S: PrivateRows + PublicTables + 'static> Store for S {}

/// One node's way to its store.
#[derive(Debug)]
pub struct Hands<S> {
    store: Arc<S>,
    definitions: Arc<Definitions<S>>,
    shards: Vec<Partitions>,
}

#[derive(Debug)]
struct Partitions {
    own: Partition,
    inbox: Partition,
}

impl<S: Store> Hands<S> {
    /// For this many shards in this store.
    pub fn new(
        store: Arc<S>,
        definitions: Arc<Definitions<S>>,
        shards: ShardCount,
    ) -> Result<Self, PartitionError> {
        let partitions = |shard: ShardId| Ok(Partitions { own: shard.partition()?, inbox: shard.inbox()? });
        Ok(Self { store, definitions, shards: shards.shards().map(partitions).collect::<Result<_, _>>()? })
    }

    /// The store.
    pub fn store(&self) -> &Arc<S> {
        &self.store
    }

    /// The definitions in it.
    pub fn definitions(&self) -> &Arc<Definitions<S>> {
        &self.definitions
    }

    /// Reads runs.
    pub fn reader(&self) -> RunReader<'_, S> {
        RunReader { store: &self.store, definitions: &self.definitions }
    }

    /// The partition of a shard's own rows.
    pub fn partition(&self, shard: ShardId) -> Option<&Partition> {
        self.shards.get(shard.number() as usize).map(|partitions| &partitions.own)
    }

    /// Does it and says what came of it; gives the effect back if it is not the store's business.
    pub async fn carry_out(&self, shard: ShardId, effect: Effect) -> Result<Event, Effect> {
        let Some(Partitions { own, inbox }) = self.shards.get(shard.number() as usize) else {
            return Err(effect);
        };
        Ok(match effect {
            Effect::ReadHead => Event::HeadRead(self.store.read(own, &heads::key()).await),
            Effect::Commit(id, batch) => Event::CommitAnswered(id, self.store.commit(own, batch).await),
            Effect::Scan(purpose, scan) => {
                let partition = if purpose == ScanPurpose::Arrivals { inbox } else { own };
                Event::Scanned(purpose, scan_past_damage(&*self.store, partition, scan).await)
            }
            Effect::LookUp(id, depth) => {
                let found = self.look_up(own, &id, &depth).await;
                Event::LookedUp(id, Box::new(found))
            }
            Effect::FindPlan { instance_id, workflow, range } => {
                let plan = self.definitions.pick(&workflow, range.as_ref()).await;
                Event::PlanFound(instance_id, plan.map_err(Into::into))
            }
            Effect::LookUpEntity { entity, number, repeat } => {
                let found = self.look_up_entity(own, &entity, repeat).await;
                Event::EntityLookedUp(entity, number, Box::new(found))
            }
            Effect::Feed(table, writes) => {
                let fed = self.store.put(table, writes).await;
                Event::Fed(fed.map_err(|error| error.to_string()))
            }
            Effect::Post(target, batch) => {
                let outcome = match self.shards.get(target.number() as usize) {
                    Some(partitions) => self.store.commit(&partitions.inbox, batch).await,
                    None => CommitOutcome::Unavailable { reason: format!("there is no {target}") },
                };
                Event::Posted(target, outcome)
            }
            Effect::DropArrivals(batch) => Event::ArrivalsDropped(self.store.commit(inbox, batch).await),
            other => return Err(other),
        })
    }

    async fn look_up_entity(
        &self,
        own: &Partition,
        entity: &EntityId,
        repeat: Option<(&'static str, [u8; 32])>,
    ) -> FoundEntity {
        let failed = |error: StoreError| match error {
            StoreError::Corrupt { .. } => FoundEntity::Damaged(error.to_string()),
            StoreError::Unavailable { reason } => FoundEntity::Unavailable(reason),
        };
        let row = match self.store.read(own, &entities::key(entity.kind(), entity.key())).await {
            Ok(row) => row.map(|row| decode::<EntityRow>(&row.value)).transpose(),
            Err(error) => return failed(error),
        };
        let kept = match repeat {
            Some((scope, digest)) => self.kept(own, scope, &digest).await,
            None => Ok(Ok(None)),
        };
        // Without its answer nobody can say whether the operation was done: it is not guessed.
        match (row, kept) {
            (_, Err(error)) => failed(error),
            (Ok(row), Ok(Ok(kept))) => FoundEntity::Found(row, kept),
            (Err(error), _) => FoundEntity::Damaged(error.to_string()),
            (_, Ok(Err(reason))) => FoundEntity::Damaged(reason),
        }
    }

    async fn look_up(&self, own: &Partition, id: &InstanceId, depth: &Depth) -> LookedUp {
        let unavailable = |error: StoreError| LookedUp::Unavailable(error.to_string());
        match depth {
            Depth::Run => match self.reader().run(own, id).await {
                Ok(Ok(Some(run))) if run.row.status == RunStatus::Purged => {
                    LookedUp::Row(Some(run.row), Ok(None))
                }
                Ok(Ok(run)) => LookedUp::Run(run.map(Box::new)),
                Ok(Err(UnreadableRun { row: Some(row), .. })) if row.status == RunStatus::Purged => {
                    LookedUp::Row(Some(row), Ok(None))
                }
                Ok(Err(unreadable)) => LookedUp::Unreadable(unreadable, Ok(None)),
                Err(error) => unavailable(error),
            },
            Depth::Row { repeat } => {
                let row = match self.reader().row(own, id).await {
                    Ok(row) => row,
                    Err(error) => return unavailable(error),
                };
                let kept = match repeat {
                    Some(digest) => self.kept(own, dedupe::IDEMPOTENCY_KEY, digest).await,
                    None => Ok(Ok(None)),
                };
                match (row, kept) {
                    (_, Err(error)) => unavailable(error),
                    (Ok(row), Ok(kept)) => LookedUp::Row(row, kept),
                    (Err(unreadable), Ok(kept)) => LookedUp::Unreadable(unreadable, kept),
                }
            }
        }
    }

    /// What is kept under a client's key. The outer error is the store's: ask again.
    pub(crate) async fn kept(
        &self,
        own: &Partition,
        scope: &str,
        digest: &[u8; 32],
    ) -> Result<Kept, StoreError> {
        match self.store.read(own, &dedupe::key(scope, digest)).await {
            Ok(row) => {
                let answer = row.map(|row| decode(&row.value)).transpose();
                Ok(answer.map_err(|error| error.to_string()))
            }
            Err(error @ StoreError::Corrupt { .. }) => Ok(Err(error.to_string())),
            Err(error) => Err(error),
        }
    }
}

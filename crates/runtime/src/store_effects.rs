//! Executes the effects of a shard that need the store, and returns the resulting events.
//!
//! Both drivers use it: tokio awaits these futures, the simulator polls them in an order of its own. Nothing is decided
//! or retried here. The node also reads through it what clients ask for, without the shard.

use std::sync::Arc;

use abide_ids::KeyDigest;
use abide_store::Store;
use abide_store::rows::{CommitOutcome, Partition, PartitionError, StoreError, scan_past_damage};
use abide_store::tables::entities::{self, EntityRow};
use abide_store::tables::idempotency;
use abide_store::tables::instances::RunStatus;
use abide_store::tables::{decode, heads};
use abide_workflow::InstanceId;

use crate::definitions::Definitions;
use crate::entity::EntityId;
use crate::event::{
    Effect, EntityLookup, Event, InstanceLookup, LookupDepth, ScanPurpose, StoredReplyLookup,
};
use crate::placement::{ShardCount, ShardId};
use crate::run::{RunReader, StoredRun, UnreadableRun};

/// One node's access to its store.
#[derive(Debug)]
pub struct StoreEffects<S> {
    store: Arc<S>,
    definitions: Arc<Definitions<S>>,
    partitions: Vec<ShardPartitions>,
}

#[derive(Debug)]
struct ShardPartitions {
    own: Partition,
    inbound: Partition,
}

impl<S: Store> StoreEffects<S> {
    pub fn new(
        store: Arc<S>,
        definitions: Arc<Definitions<S>>,
        shards: ShardCount,
    ) -> Result<Self, PartitionError> {
        let partitions = |shard: ShardId| {
            Ok(ShardPartitions { own: shard.partition()?, inbound: shard.inbound_partition()? })
        };
        Ok(Self {
            store,
            definitions,
            partitions: shards.shards().map(partitions).collect::<Result<_, _>>()?,
        })
    }

    pub fn store(&self) -> &Arc<S> {
        &self.store
    }

    pub fn definitions(&self) -> &Arc<Definitions<S>> {
        &self.definitions
    }

    pub fn run_reader(&self) -> RunReader<'_, S> {
        RunReader { store: &self.store, definitions: &self.definitions }
    }

    /// The partition of a shard's own rows.
    pub fn partition(&self, shard: ShardId) -> Option<&Partition> {
        self.partitions.get(shard.number() as usize).map(|partitions| &partitions.own)
    }

    /// Executes an effect and returns the resulting event. Returns the effect itself if it does not concern the store.
    pub async fn execute(&self, shard: ShardId, effect: Effect) -> Result<Event, Effect> {
        let Some(ShardPartitions { own, inbound }) = self.partitions.get(shard.number() as usize) else {
            return Err(effect);
        };
        Ok(match effect {
            Effect::ReadHead => Event::HeadRead(self.store.read(own, &heads::key()).await),
            Effect::Commit(id, batch) => Event::CommitFinished(id, self.store.commit(own, batch).await),
            Effect::Scan(purpose, scan) => {
                let partition = if purpose == ScanPurpose::Inbound { inbound } else { own };
                Event::Scanned(purpose, scan_past_damage(&*self.store, partition, scan).await)
            }
            Effect::LookUpInstance(id, depth) => {
                let lookup = self.look_up_instance(own, &id, &depth).await;
                Event::InstanceLookedUp(id, Box::new(lookup))
            }
            Effect::FindPlan { instance_id, workflow, range } => {
                let plan = self.definitions.resolve(&workflow, range.as_ref()).await;
                Event::PlanFound(instance_id, plan.map_err(Into::into))
            }
            Effect::LookUpEntity { entity, operation_number, idempotency_key } => {
                let lookup = self.look_up_entity(own, &entity, idempotency_key).await;
                Event::EntityLookedUp(entity, operation_number, Box::new(lookup))
            }
            Effect::WritePublicIndex(table, writes) => {
                let outcome = self.store.put(table, writes).await;
                Event::PublicIndexWritten(outcome.map_err(|error| error.to_string()))
            }
            Effect::SendMessages(target, batch) => {
                let outcome = match self.partitions.get(target.number() as usize) {
                    Some(partitions) => self.store.commit(&partitions.inbound, batch).await,
                    None => CommitOutcome::Unavailable { reason: format!("no such shard: {target}") },
                };
                Event::MessagesSent(target, outcome)
            }
            Effect::DeleteInbound(batch) => Event::InboundDeleted(self.store.commit(inbound, batch).await),
            other => return Err(other),
        })
    }

    /// Reads the row of an entity and, if the operation has a key, the reply stored under it.
    async fn look_up_entity(
        &self,
        partition: &Partition,
        entity: &EntityId,
        idempotency_key: Option<(&'static str, KeyDigest)>,
    ) -> EntityLookup {
        let failed = |error: StoreError| match error {
            StoreError::Corrupt { .. } => EntityLookup::Damaged(error.to_string()),
            StoreError::Unavailable { reason } => EntityLookup::Unavailable(reason),
        };
        let row = match self.store.read(partition, &entities::key(entity.entity_type(), entity.key())).await {
            Ok(row) => row.map(|row| decode::<EntityRow>(&row.value)).transpose(),
            Err(error) => return failed(error),
        };
        let stored_reply = match idempotency_key {
            Some((scope, digest)) => self.read_stored_reply(partition, scope, &digest).await,
            None => Ok(Ok(None)),
        };
        // Without the stored reply it is unknown whether the operation was done, and nothing is guessed.
        match (row, stored_reply) {
            (_, Err(error)) => failed(error),
            (Ok(row), Ok(Ok(stored_reply))) => EntityLookup::Found(row, stored_reply),
            (Err(error), _) => EntityLookup::Damaged(error.to_string()),
            (_, Ok(Err(reason))) => EntityLookup::Damaged(reason),
        }
    }

    /// Reads as much of an instance as the shard asked for: its whole run, or its row and the reply stored under an
    /// idempotency key.
    async fn look_up_instance(
        &self,
        partition: &Partition,
        id: &InstanceId,
        depth: &LookupDepth,
    ) -> InstanceLookup {
        let unavailable = |error: StoreError| InstanceLookup::Unavailable(error.to_string());
        match depth {
            LookupDepth::Run => run_lookup(self.run_reader().load_run_unless_parked(partition, id).await),
            LookupDepth::ParkedRun => run_lookup(self.run_reader().load_run(partition, id).await),
            LookupDepth::Row { key_digest } => {
                let row = match self.run_reader().instance_row(partition, id).await {
                    Ok(row) => row,
                    Err(error) => return unavailable(error),
                };
                let stored_reply = match key_digest {
                    Some(digest) => {
                        self.read_stored_reply(partition, idempotency::SCOPE_IDEMPOTENCY_KEY, digest).await
                    }
                    None => Ok(Ok(None)),
                };
                match (row, stored_reply) {
                    (_, Err(error)) => unavailable(error),
                    (Ok(row), Ok(stored_reply)) => InstanceLookup::Row(row, stored_reply),
                    (Err(unreadable), Ok(stored_reply)) => {
                        InstanceLookup::Unreadable(unreadable, stored_reply)
                    }
                }
            }
        }
    }

    /// The reply stored under an idempotency key, even if it has expired: the caller checks that. The outer error is
    /// the store's: the caller should retry.
    pub(crate) async fn read_stored_reply(
        &self,
        partition: &Partition,
        scope: &str,
        digest: &KeyDigest,
    ) -> Result<StoredReplyLookup, StoreError> {
        match self.store.read(partition, &idempotency::key(scope, digest)).await {
            Ok(row) => {
                let stored_reply = row.map(|row| decode(&row.value)).transpose();
                Ok(stored_reply.map_err(|error| error.to_string()))
            }
            Err(error @ StoreError::Corrupt { .. }) => Ok(Err(error.to_string())),
            Err(error) => Err(error),
        }
    }
}

/// The result of looking up a run. A purged instance has a row but no run.
fn run_lookup(found: Result<Result<Option<StoredRun>, UnreadableRun>, StoreError>) -> InstanceLookup {
    match found {
        Ok(Ok(Some(run))) if run.row.status == RunStatus::Purged => {
            InstanceLookup::Row(Some(run.row), Ok(None))
        }
        Ok(Ok(run)) => InstanceLookup::Run(run.map(Box::new)),
        Ok(Err(UnreadableRun { row: Some(row), .. })) if row.status == RunStatus::Purged => {
            InstanceLookup::Row(Some(row), Ok(None))
        }
        Ok(Err(unreadable)) => InstanceLookup::Unreadable(unreadable, Ok(None)),
        Err(error) => InstanceLookup::Unavailable(error.to_string()),
    }
}

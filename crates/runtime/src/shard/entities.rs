//! Queues the operations on entities: in the order they arrived, one entity at a time, each with its effect once.
//!
//! As with runs, memory may be ahead of the store, and the reply to an operation waits until its rows are durable. Each
//! operation with an idempotency key is looked up when it arrives, so that a queue does not wait for one lookup after
//! the other. Replies stored since then are remembered here until every lookup would find them. The rows of an
//! operation are written in [`super::operations`].

use std::collections::{HashMap, VecDeque};

use abide_ids::KeyDigest;
use abide_store::tables::entities::EntityRow;
use abide_store::tables::idempotency::IdempotencyRow;
use abide_workflow::json::Json;

use super::commit_queue::BatchNumber;
use super::{Shard, backoff, later};
use crate::entity::{EntityId, OperationRequest};
use crate::event::{Effect, EntityLookup};
use crate::lease::Monotonic;
use crate::request::{RequestError, RequestId};

/// The entities in memory.
#[derive(Debug, Default)]
pub(super) struct Entities {
    slots: HashMap<EntityId, EntitySlot>,
    /// Entities without queued operations, the oldest first. An entity that was used since is in here again.
    idle: VecDeque<EntityId>,
    /// Entities with operations that had no room in a batch.
    ready_entities: VecDeque<EntityId>,
    /// Lookups that failed, and when to repeat them.
    lookup_retries: VecDeque<(Monotonic, EntityId, u64)>,
    pub(super) reply_expiry: Option<super::operations::ReplyExpiry>,
}

#[derive(Debug)]
pub(super) struct EntitySlot {
    pub(super) row_state: EntityRowState,
    /// The decoded state, read from the row when it is first needed.
    pub(super) state: Option<Json>,
    queue: VecDeque<QueuedOperation>,
    last_number: u64,
    /// A lookup was repeated for one of the operations, so later ones in the queue may know an older state of the
    /// store.
    lookup_retried: bool,
    /// Replies that a lookup made before they were durable does not find, and the batches that store them.
    recent_replies: HashMap<KeyDigest, IdempotencyRow>,
    recent_order: VecDeque<(BatchNumber, KeyDigest)>,
    /// The batch with its newest rows.
    pub(super) written_batch: BatchNumber,
}

#[derive(Debug)]
pub(super) enum EntityRowState {
    Unknown,
    /// Its row; none for a new entity.
    Row(Option<EntityRow>),
    /// It exists but cannot be read.
    Damaged(String),
}

#[derive(Debug)]
pub(super) struct QueuedOperation {
    number: u64,
    pub(super) request_id: RequestId,
    pub(super) request: Box<OperationRequest>,
    /// True if the lookup has returned, or none was needed.
    lookup_done: bool,
    stored_reply: Option<IdempotencyRow>,
    /// The last durable batch when the lookup was made.
    durable_at_lookup: BatchNumber,
}

/// Idle entities kept in memory.
const IDLE_MAX: usize = 4_096;

impl EntitySlot {
    fn new() -> Self {
        Self {
            row_state: EntityRowState::Unknown,
            state: None,
            queue: VecDeque::new(),
            last_number: 0,
            lookup_retried: false,
            recent_replies: HashMap::new(),
            recent_order: VecDeque::new(),
            written_batch: BatchNumber::NONE,
        }
    }

    /// The reply to an earlier operation with the same idempotency key. Called in queue order: it forgets remembered
    /// replies that this and every later lookup finds in the store.
    pub(super) fn take_stored_reply(&mut self, item: &QueuedOperation) -> Option<IdempotencyRow> {
        while let Some((batch, key)) = self.recent_order.front()
            && *batch <= item.durable_at_lookup
            && !self.lookup_retried
        {
            self.recent_replies.remove(key);
            self.recent_order.pop_front();
        }
        let key = item.request.idempotency.as_ref()?.key_digest;
        self.recent_replies.get(&key).or(item.stored_reply.as_ref()).cloned()
    }

    pub(super) fn remember_reply(&mut self, key: KeyDigest, reply: IdempotencyRow, batch: BatchNumber) {
        self.recent_replies.insert(key, reply);
        self.recent_order.push_back((batch, key));
    }
}

impl Shard {
    /// A client asks for an operation.
    pub(super) fn on_operation(&mut self, request_id: RequestId, request: Box<OperationRequest>) {
        let entity = request.entity.clone();
        let durable = self.commits.durable_batch;
        let slot = self.entities.slots.entry(entity.clone()).or_insert_with(EntitySlot::new);
        slot.last_number += 1;
        let number = slot.last_number;
        let lookup_done = request.idempotency.is_none() && !matches!(slot.row_state, EntityRowState::Unknown);
        let idempotency_key =
            request.idempotency.map(|idempotency| (request.idempotency_scope, idempotency.key_digest));
        slot.queue.push_back(QueuedOperation {
            number,
            request_id,
            request,
            lookup_done,
            stored_reply: None,
            durable_at_lookup: durable,
        });
        self.queued_items += 1;
        if !lookup_done {
            return self.effects.push(Effect::LookUpEntity {
                entity,
                operation_number: number,
                idempotency_key,
            });
        }
        self.process_entity(&entity);
    }

    pub(super) fn on_entity_looked_up(&mut self, entity: &EntityId, number: u64, found: EntityLookup) {
        let Some(slot) = self.entities.slots.get_mut(entity) else { return };
        let Some(item) = slot.queue.iter_mut().find(|item| item.number == number && !item.lookup_done) else {
            return;
        };
        let row_state = match found {
            EntityLookup::Unavailable(_) => {
                let at = later(self.now.mono, backoff(3));
                return self.entities.lookup_retries.push_back((at, entity.clone(), number));
            }
            EntityLookup::Found(row, stored_reply) => {
                item.stored_reply = stored_reply;
                EntityRowState::Row(row)
            }
            EntityLookup::Damaged(reason) => EntityRowState::Damaged(reason),
        };
        item.lookup_done = true;
        // Memory is newer than the lookup. Damage counts all the same: memory may not have met it.
        if matches!(slot.row_state, EntityRowState::Unknown)
            || matches!(row_state, EntityRowState::Damaged(_))
        {
            slot.row_state = row_state;
        }
        self.process_entity(entity);
    }

    /// Runs the queued operations of an entity, as far as possible now.
    fn process_entity(&mut self, entity: &EntityId) {
        let Some(mut slot) = self.entities.slots.remove(entity) else { return };
        while slot.queue.front().is_some_and(|item| item.lookup_done) {
            if !self.commits.has_capacity() {
                self.entities.ready_entities.push_back(entity.clone());
                break;
            }
            let Some(item) = slot.queue.pop_front() else { break };
            self.queued_items = self.queued_items.saturating_sub(1);
            self.run_operation(&mut slot, &item);
        }
        if slot.queue.is_empty() {
            slot.lookup_retried = false;
            self.entities.idle.push_back(entity.clone());
        }
        self.entities.slots.insert(entity.clone(), slot);
    }

    /// Goes on with entities that had no room before, as far as there is room now.
    pub(super) fn process_ready_entities(&mut self) {
        for _ in 0..self.entities.ready_entities.len() {
            if !self.commits.has_capacity() {
                return;
            }
            let Some(entity) = self.entities.ready_entities.pop_front() else { return };
            self.process_entity(&entity);
        }
    }

    /// Repeats the lookups that failed.
    pub(super) fn retry_entity_lookups(&mut self) {
        while self.entities.lookup_retries.front().is_some_and(|(at, ..)| *at <= self.now.mono) {
            let Some((_, entity, number)) = self.entities.lookup_retries.pop_front() else { return };
            let durable = self.commits.durable_batch;
            let Some(slot) = self.entities.slots.get_mut(&entity) else { continue };
            let item = slot.queue.iter_mut().find(|item| item.number == number);
            let Some(item) = item.filter(|item| !item.lookup_done) else { continue };
            slot.lookup_retried = true;
            item.durable_at_lookup = durable;
            let idempotency_key = item
                .request
                .idempotency
                .map(|idempotency| (item.request.idempotency_scope, idempotency.key_digest));
            self.effects.push(Effect::LookUpEntity { entity, operation_number: number, idempotency_key });
        }
    }

    pub(super) fn entities_wake(&self) -> Option<Monotonic> {
        self.entities.lookup_retries.front().map(|(at, ..)| *at)
    }

    /// Returns whether an entity waits for room in a batch.
    pub(super) fn has_ready_entities(&self) -> bool {
        !self.entities.ready_entities.is_empty()
    }

    /// Evicts the oldest idle entities when there are too many.
    pub(super) fn evict_idle_entities(&mut self) {
        for _ in 0..self.entities.idle.len().saturating_sub(IDLE_MAX) {
            let Some(entity) = self.entities.idle.pop_front() else { return };
            let Some(slot) = self.entities.slots.get(&entity) else { continue };
            if !slot.queue.is_empty() {
                continue;
            }
            if slot.written_batch <= self.commits.durable_batch {
                self.entities.slots.remove(&entity);
            } else {
                self.entities.idle.push_back(entity);
            }
        }
    }

    pub(super) fn clear_entities(&mut self) {
        self.entities = Entities::default();
    }

    pub(super) fn refuse_operation(
        &mut self,
        slot: &EntitySlot,
        request_id: RequestId,
        refusal: RequestError,
    ) {
        let reply = Effect::Reply(request_id, crate::request::ShardReply::Refused(refusal));
        // The refusal waits for the state it describes, so that a crash cannot contradict it.
        if let Some(action) =
            self.commits.defer_until_durable(slot.written_batch, super::commit_queue::OnCommit::Effect(reply))
        {
            self.run_on_commit(action);
        }
    }
}

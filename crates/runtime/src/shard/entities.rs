//! Queues the operations on entities: in the order they arrived, one entity at a time, each with its effect once.
//!
//! As with runs, memory may be ahead of the store, and the reply to an operation waits until its rows are durable. Each
//! operation with an idempotency key is looked up when it arrives, so that a queue does not wait for one lookup after
//! the other. Replies stored since then are remembered here until every lookup would find them. The rows of an
//! operation are written in [`crate::shard::entities::operations`].

pub(super) mod entity_slot;
pub(super) mod operations;

use std::collections::{HashMap, VecDeque};

use crate::entity::{EntityId, OperationRequest};
use crate::event::{Effect, EntityLookup};
use crate::lease::Monotonic;
use crate::request::RequestId;
use crate::shard::backoff::{backoff, later};
use crate::shard::commit::commit_queue::BatchNumber;
use crate::shard::context::Context;
use crate::shard::entities::entity_slot::{EntityRowState, EntitySlot, QueuedOperation};
use crate::shard::entities::operations::{ReplyExpiry, run_operation};
use crate::shard::unit_of_work::{FilledUnit, UnitOfWork};

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
    /// Operations queued in all slots.
    pub(super) queued: usize,
    reply_expiry: Option<ReplyExpiry>,
}

/// The most entries of the idle queue.
const IDLE_MAX: usize = 4_096;

impl Entities {
    /// A client or an activity asks for an operation: queues it, and looks up the entity and the reply stored under its
    /// idempotency key, if it must. Returns the entity if its operations can be run now.
    pub(super) fn on_operation(
        &mut self,
        ctx: &mut Context,
        request_id: RequestId,
        request: Box<OperationRequest>,
    ) -> Option<EntityId> {
        let entity = request.entity.clone();
        let durable = ctx.commits.durable_batch;
        let slot = self.slots.entry(entity.clone()).or_insert_with(EntitySlot::new);
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
        self.queued += 1;
        if lookup_done {
            return Some(entity);
        }
        ctx.effects.push(Effect::LookUpEntity { entity, operation_number: number, idempotency_key });
        None
    }

    /// The driver has looked up the entity for the operation with this number. A lookup that failed is repeated later.
    /// True if the operations of the entity can be run now.
    pub(super) fn on_looked_up(
        &mut self,
        ctx: &Context,
        entity: &EntityId,
        number: u64,
        found: EntityLookup,
    ) -> bool {
        let Some(slot) = self.slots.get_mut(entity) else { return false };
        let Some(item) = slot.queue.iter_mut().find(|item| item.number == number && !item.lookup_done) else {
            return false;
        };
        let row_state = match found {
            EntityLookup::Unavailable(_) => {
                let at = later(ctx.now.mono, backoff(3));
                self.lookup_retries.push_back((at, entity.clone(), number));
                return false;
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
        true
    }

    /// Runs the next operation of an entity, if it can be run now, and returns its unit of work, which the root merges
    /// and reports to [`Self::on_merged`]. An entity that finds no room in a batch waits in `ready_entities`.
    pub(super) fn run_next(&mut self, ctx: &mut Context, entity: &EntityId) -> Option<FilledUnit> {
        let slot = self.slots.get_mut(entity)?;
        if slot.queue.front().is_some_and(|item| item.lookup_done) {
            if !ctx.commits.has_capacity() {
                self.ready_entities.push_back(entity.clone());
                return None;
            }
            let item = slot.queue.pop_front()?;
            self.queued = self.queued.saturating_sub(1);
            let mut work = UnitOfWork::new(ctx);
            run_operation(&mut work, &mut self.reply_expiry, slot, &item);
            return Some(work.finish());
        }
        None
    }

    /// The unit of the entity's last operation is merged, and has written into this batch, if anything. True if there
    /// are more operations.
    pub(super) fn on_merged(&mut self, entity: &EntityId, written: Option<BatchNumber>) -> bool {
        let Some(slot) = self.slots.get_mut(entity) else { return false };
        if let Some(batch) = written {
            slot.written_batch = batch;
            if let Some((key, reply)) = slot.unmerged_reply.take() {
                slot.remember_reply(key, reply, batch);
            }
        }
        if slot.queue.is_empty() {
            slot.lookup_retried = false;
            self.idle.push_back(entity.clone());
            return false;
        }
        true
    }

    /// An entity that had no room before, if there is room now.
    pub(super) fn next_ready(&mut self, ctx: &Context) -> Option<EntityId> {
        ctx.commits.has_capacity().then(|| self.ready_entities.pop_front())?
    }

    pub(super) fn ready_count(&self) -> usize {
        self.ready_entities.len()
    }

    /// Repeats the lookups that failed.
    pub(super) fn retry_lookups(&mut self, ctx: &mut Context) {
        while self.lookup_retries.front().is_some_and(|(at, ..)| *at <= ctx.now.mono) {
            let Some((_, entity, number)) = self.lookup_retries.pop_front() else { return };
            let durable = ctx.commits.durable_batch;
            let Some(slot) = self.slots.get_mut(&entity) else { continue };
            let item = slot.queue.iter_mut().find(|item| item.number == number);
            let Some(item) = item.filter(|item| !item.lookup_done) else { continue };
            slot.lookup_retried = true;
            item.durable_at_lookup = durable;
            let idempotency_key = item
                .request
                .idempotency
                .map(|idempotency| (item.request.idempotency_scope, idempotency.key_digest));
            ctx.effects.push(Effect::LookUpEntity { entity, operation_number: number, idempotency_key });
        }
    }

    /// When a lookup that failed is to be repeated.
    pub(super) fn wake(&self) -> Option<Monotonic> {
        self.lookup_retries.front().map(|(at, ..)| *at)
    }

    /// Evicts durable entities from the front of the idle queue when it is too long. One of them may have been used
    /// since it was queued.
    pub(super) fn evict_idle(&mut self, ctx: &Context) {
        for _ in 0..self.idle.len().saturating_sub(IDLE_MAX) {
            let Some(entity) = self.idle.pop_front() else { return };
            let Some(slot) = self.slots.get(&entity) else { continue };
            if !slot.queue.is_empty() {
                continue;
            }
            if slot.written_batch <= ctx.commits.durable_batch {
                self.slots.remove(&entity);
            } else {
                self.idle.push_back(entity);
            }
        }
    }
}

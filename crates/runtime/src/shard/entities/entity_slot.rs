//! An entity in the memory of a shard: its row, its queued operations, and the replies that no lookup finds yet.
//!
//! It runs nothing: [`entities`](crate::shard::entities) keeps the order of operations,
//! [`operations`](crate::shard::entities::operations) runs them.

use std::collections::{HashMap, VecDeque};

use abide_ids::KeyDigest;
use abide_store::tables::entities::EntityRow;
use abide_store::tables::idempotency::IdempotencyRow;
use abide_workflow::json::Json;

use crate::entity::OperationRequest;
use crate::request::RequestId;
use crate::shard::commit::commit_queue::BatchNumber;

#[derive(Debug)]
pub(in crate::shard) struct EntitySlot {
    pub(in crate::shard) row_state: EntityRowState,
    /// The decoded state, read from the row when it is first needed.
    pub(in crate::shard) state: Option<Json>,
    pub(in crate::shard) queue: VecDeque<QueuedOperation>,
    pub(in crate::shard) last_number: u64,
    /// A lookup was repeated for one of the operations, so later ones in the queue may know an older state of the
    /// store.
    pub(in crate::shard) lookup_retried: bool,
    /// Replies that a lookup made before they were durable does not find, and the batches that store them.
    recent_replies: HashMap<KeyDigest, IdempotencyRow>,
    recent_order: VecDeque<(BatchNumber, KeyDigest)>,
    /// The reply that the last operation stored, until its batch is known.
    pub(in crate::shard) unmerged_reply: Option<(KeyDigest, IdempotencyRow)>,
    /// The batch with its newest rows.
    pub(in crate::shard) written_batch: BatchNumber,
}

#[derive(Debug)]
pub(in crate::shard) enum EntityRowState {
    Unknown,
    /// Its row; none for a new entity.
    Row(Option<EntityRow>),
    /// It exists but cannot be read.
    Damaged(String),
}

#[derive(Debug)]
pub(in crate::shard) struct QueuedOperation {
    pub(in crate::shard) number: u64,
    pub(in crate::shard) request_id: RequestId,
    pub(in crate::shard) request: Box<OperationRequest>,
    /// True if the lookup has returned, or none was needed.
    pub(in crate::shard) lookup_done: bool,
    pub(in crate::shard) stored_reply: Option<IdempotencyRow>,
    /// The last durable batch when the lookup was made.
    pub(in crate::shard) durable_at_lookup: BatchNumber,
}

impl EntitySlot {
    pub(in crate::shard) fn new() -> Self {
        Self {
            row_state: EntityRowState::Unknown,
            state: None,
            queue: VecDeque::new(),
            last_number: 0,
            lookup_retried: false,
            recent_replies: HashMap::new(),
            recent_order: VecDeque::new(),
            unmerged_reply: None,
            written_batch: BatchNumber::NONE,
        }
    }

    /// The reply to an earlier operation with the same idempotency key. Called in queue order: it forgets remembered
    /// replies that this and every later lookup finds in the store.
    pub(in crate::shard) fn take_stored_reply(&mut self, item: &QueuedOperation) -> Option<IdempotencyRow> {
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

    /// Remembers a reply until every lookup would find it.
    pub(in crate::shard) fn remember_reply(
        &mut self,
        key: KeyDigest,
        reply: IdempotencyRow,
        batch: BatchNumber,
    ) {
        self.recent_replies.insert(key, reply);
        self.recent_order.push_back((batch, key));
    }
}

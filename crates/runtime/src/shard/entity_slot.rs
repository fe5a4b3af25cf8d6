//! An entity in the memory of a shard: its row, its queued operations, and the replies that no lookup finds yet.
//!
//! It runs nothing: [`entities`](super::entities) keeps the order of operations, [`operations`](super::operations) runs
//! them.

use std::collections::{HashMap, VecDeque};

use abide_ids::KeyDigest;
use abide_store::tables::entities::EntityRow;
use abide_store::tables::idempotency::IdempotencyRow;
use abide_workflow::json::Json;

use super::commit_queue::BatchNumber;
use crate::entity::OperationRequest;
use crate::request::RequestId;

#[derive(Debug)]
pub(super) struct EntitySlot {
    pub(super) row_state: EntityRowState,
    /// The decoded state, read from the row when it is first needed.
    pub(super) state: Option<Json>,
    pub(super) queue: VecDeque<QueuedOperation>,
    pub(super) last_number: u64,
    /// A lookup was repeated for one of the operations, so later ones in the queue may know an older state of the
    /// store.
    pub(super) lookup_retried: bool,
    /// Replies that a lookup made before they were durable does not find, and the batches that store them.
    recent_replies: HashMap<KeyDigest, IdempotencyRow>,
    recent_order: VecDeque<(BatchNumber, KeyDigest)>,
    /// The reply that the last operation stored, until its batch is known.
    pub(super) unmerged_reply: Option<(KeyDigest, IdempotencyRow)>,
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
    pub(super) number: u64,
    pub(super) request_id: RequestId,
    pub(super) request: Box<OperationRequest>,
    /// True if the lookup has returned, or none was needed.
    pub(super) lookup_done: bool,
    pub(super) stored_reply: Option<IdempotencyRow>,
    /// The last durable batch when the lookup was made.
    pub(super) durable_at_lookup: BatchNumber,
}

impl EntitySlot {
    pub(super) fn new() -> Self {
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

    /// Remembers a reply until every lookup would find it.
    pub(super) fn remember_reply(&mut self, key: KeyDigest, reply: IdempotencyRow, batch: BatchNumber) {
        self.recent_replies.insert(key, reply);
        self.recent_order.push_back((batch, key));
    }
}

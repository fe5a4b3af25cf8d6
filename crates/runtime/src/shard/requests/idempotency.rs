//! Idempotent requests: the reply is stored under the client's key in the commit that does the work, and replayed when
//! the request is repeated.
//!
//! Replies that are not durable yet are kept in memory, because a lookup in the store does not find them. The key of a
//! request, and the work of a new request, are decided elsewhere.

use std::collections::{HashMap, VecDeque};

use abide_ids::KeyDigest;
use abide_store::tables::encode;
use abide_store::tables::expiries::{self, ExpiryRow, ExpiryTarget};
use abide_store::tables::idempotency::{self, IdempotencyRow};
use serde::Serialize;

use crate::request::{IdempotentReply, RequestError, RequestId, RequestIdempotency, ShardReply, StartedRun};
use crate::run_message;
use crate::shard::commit::commit_queue::BatchNumber;
use crate::shard::context::Context;
use crate::shard::instances::instance_slot::InstanceSlot;
use crate::shard::unit_of_work::{Step, UnitOfWork};

/// Replies that may not be in the store yet, by key, each with the batch that stores it.
#[derive(Debug, Default)]
pub(in crate::shard) struct UncommittedReplies {
    replies: HashMap<KeyDigest, (BatchNumber, IdempotencyRow)>,
    order: VecDeque<(BatchNumber, KeyDigest)>,
}

impl UncommittedReplies {
    /// Remembers a reply until its batch is durable.
    pub(in crate::shard) fn add(
        &mut self,
        key: KeyDigest,
        batch: BatchNumber,
        record: IdempotencyRow,
        durable: BatchNumber,
    ) {
        while let Some((batch, key)) = self.order.front().filter(|(batch, _)| *batch <= durable) {
            // There may be a newer reply under the same key; its entry in the order is further back.
            if self.replies.get(key).is_some_and(|(newest, _)| newest <= batch) {
                self.replies.remove(key);
            }
            self.order.pop_front();
        }
        self.replies.insert(key, (batch, record));
        self.order.push_back((batch, key));
    }

    /// The reply under a key, if it is not durable yet.
    pub(in crate::shard) fn get(&self, key: &KeyDigest, durable: BatchNumber) -> Option<&IdempotencyRow> {
        let (batch, record) = self.replies.get(key)?;
        (*batch > durable).then_some(record)
    }

    /// The stored reply, if the request is a repeat. The looked-up reply is used up; the next request looks its key up
    /// again.
    pub(in crate::shard) fn find(
        &self,
        ctx: &Context,
        slot: &mut InstanceSlot,
        idempotency: RequestIdempotency,
        starts_run: bool,
    ) -> Option<ShardReply> {
        let looked_up = slot.looked_up_key.take() == Some(idempotency.key_digest);
        let stored = slot.stored_reply.take().filter(|_| looked_up);
        let record = self.get(&idempotency.key_digest, ctx.commits.durable_batch).cloned().or(stored)?;
        if record.expires_at <= ctx.now.wall {
            return None;
        }
        let until = record.expires_at;
        let reply = if starts_run {
            let started = run_message::decode::<StartedRun>(&record.reply);
            started
                .map(|started| ShardReply::Started(StartedRun { idempotent_until: Some(until), ..started }))
        } else {
            run_message::decode::<IdempotentReply>(&record.reply)
                .map(|done| ShardReply::Idempotent(done, until))
        };
        match reply {
            Ok(reply) if record.request_digest == idempotency.payload_digest => Some(reply),
            _ => Some(ShardReply::Refused(RequestError::KeyReused)),
        }
    }
}

/// The reply to a request whose work is in this unit. It is stored in the same unit if the request has a key; the
/// caller sends it once that is durable.
pub(in crate::shard) fn complete_request(
    work: &mut UnitOfWork<'_>,
    done: IdempotentReply,
    idempotency: Option<RequestIdempotency>,
) -> ShardReply {
    match (idempotency, done) {
        (Some(idempotency), done) => {
            let record = idempotency_record(work, &idempotency, &done);
            let until = record.expires_at;
            store_reply(work, idempotency.key_digest, record);
            ShardReply::Idempotent(done, until)
        }
        (None, IdempotentReply::Accepted) => ShardReply::Accepted,
        (None, IdempotentReply::Purged) => ShardReply::Purged,
        (None, IdempotentReply::Rewound(steps)) => ShardReply::Rewound(steps),
    }
}

/// The row that stores a reply.
pub(in crate::shard) fn idempotency_record(
    work: &UnitOfWork<'_>,
    idempotency: &RequestIdempotency,
    reply: &impl Serialize,
) -> IdempotencyRow {
    IdempotencyRow {
        request_digest: idempotency.payload_digest,
        replied_at: work.ctx.now.wall,
        expires_at: work.ctx.now.wall.plus(work.ctx.config.idempotency_window),
        reply: run_message::encode(reply),
    }
}

/// Stores a reply in this unit, with its expiry.
pub(in crate::shard) fn store_reply(work: &mut UnitOfWork<'_>, key: KeyDigest, record: IdempotencyRow) {
    work.put(idempotency::key(idempotency::SCOPE_IDEMPOTENCY_KEY, &key), encode(&record));
    let target =
        ExpiryTarget::IdempotencyRecord { scope: idempotency::SCOPE_IDEMPOTENCY_KEY.to_owned(), digest: key };
    let sequence = work.ctx.next_sequence();
    work.create(expiries::key(record.expires_at, sequence), encode(&ExpiryRow { target }));
    work.add(Step::RememberReply(key, record));
}

/// Replies that a message was accepted, once its work is durable. For control operations that no turn consumes, because
/// the run was parked.
pub(in crate::shard) fn reply_accepted(
    work: &mut UnitOfWork<'_>,
    request_id: RequestId,
    idempotency: Option<RequestIdempotency>,
) {
    let reply = complete_request(work, IdempotentReply::Accepted, idempotency);
    work.reply_on_commit(request_id, reply);
}

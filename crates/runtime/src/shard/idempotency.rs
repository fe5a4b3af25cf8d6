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

use super::Shard;
use super::commit_queue::BatchNumber;
use super::instance_slot::InstanceSlot;
use crate::request::{IdempotentReply, RequestError, RequestIdempotency, ShardReply, StartedRun};
use crate::run_message;

/// Replies that may not be in the store yet, by key, each with the batch that stores it.
#[derive(Debug, Default)]
pub(super) struct UncommittedReplies {
    replies: HashMap<KeyDigest, (BatchNumber, IdempotencyRow)>,
    order: VecDeque<(BatchNumber, KeyDigest)>,
}

impl UncommittedReplies {
    fn add(&mut self, key: KeyDigest, batch: BatchNumber, record: IdempotencyRow, durable: BatchNumber) {
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
}

impl Shard {
    /// The reply under a key, if it is not durable yet.
    pub(super) fn uncommitted_reply(&self, key: &KeyDigest) -> Option<&IdempotencyRow> {
        let (batch, record) = self.uncommitted_replies.replies.get(key)?;
        (*batch > self.commits.durable_batch).then_some(record)
    }

    /// The stored reply, if the request is a repeat. The looked-up reply is used up; the next request looks its key up
    /// again.
    pub(super) fn find_stored_reply(
        &self,
        slot: &mut InstanceSlot,
        idempotency: RequestIdempotency,
        starts_run: bool,
    ) -> Option<ShardReply> {
        let looked_up = slot.looked_up_key.take() == Some(idempotency.key_digest);
        let stored = slot.stored_reply.take().filter(|_| looked_up);
        let record = self.uncommitted_reply(&idempotency.key_digest).cloned().or(stored)?;
        if record.expires_at <= self.now.wall {
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

    /// The reply to a request whose work is in the open batch. It is stored in the same batch if the request has a key.
    pub(super) fn complete_request(
        &mut self,
        done: IdempotentReply,
        idempotency: Option<RequestIdempotency>,
    ) -> ShardReply {
        match (idempotency, done) {
            (Some(idempotency), done) => {
                let record = self.idempotency_record(&idempotency, &done);
                let until = record.expires_at;
                self.store_reply(idempotency.key_digest, record);
                ShardReply::Idempotent(done, until)
            }
            (None, IdempotentReply::Accepted) => ShardReply::Accepted,
            (None, IdempotentReply::Purged) => ShardReply::Purged,
        }
    }

    /// The row that stores a reply.
    pub(super) fn idempotency_record(
        &self,
        idempotency: &RequestIdempotency,
        reply: &impl Serialize,
    ) -> IdempotencyRow {
        IdempotencyRow {
            request_digest: idempotency.payload_digest,
            replied_at: self.now.wall,
            expires_at: self.now.wall.plus(self.config.idempotency_window),
            reply: run_message::encode(reply),
        }
    }

    /// Stores a reply in the open batch, with its expiry.
    pub(super) fn store_reply(&mut self, key: KeyDigest, record: IdempotencyRow) {
        self.commits.put(idempotency::key(idempotency::SCOPE_IDEMPOTENCY_KEY, &key), encode(&record));
        let target = ExpiryTarget::IdempotencyRecord {
            scope: idempotency::SCOPE_IDEMPOTENCY_KEY.to_owned(),
            digest: key,
        };
        let sequence = self.next_sequence();
        self.commits.create(expiries::key(record.expires_at, sequence), encode(&ExpiryRow { target }));
        self.uncommitted_replies.add(key, self.commits.batch_number(), record, self.commits.durable_batch);
    }
}

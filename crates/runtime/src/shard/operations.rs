//! Runs one operation on an entity and writes its rows: all in one batch, with the stored reply and the message for a
//! run.
//!
//! The cost of an operation does not depend on the number of events: one row each for the entity, the event and the
//! reply. The order of operations is kept in [`super::entities`].

use abide_ids::{Duration, KeyDigest, Sequence, Timestamp};
use abide_store::tables::encode;
use abide_store::tables::entities::{self, EntityRow};
use abide_store::tables::entity_events::{self, EntityEventRow};
use abide_store::tables::expiries::{self, ExpiryRow, ExpiryTarget};
use abide_store::tables::idempotency::{self, IdempotencyRow};
use abide_workflow::json::Json;
use serde_json::json;

use super::Shard;
use super::commit_queue::{BatchNumber, OnCommit};
use super::entities::{EntityRowState, EntitySlot, QueuedOperation};
use crate::entity::{
    EntityId, EntityOperation, OperationContext, OperationError, OperationReply, OperationRequest,
};
use crate::event::{Effect, OperatorEvent};
use crate::request::{RequestError, ShardReply};
use crate::run_message::{self, RunMessage};

/// Stored replies that share one expiry row.
const REPLIES_PER_EXPIRY_MAX: usize = 64;
/// The time of such a row is rounded up to a multiple of this.
const EXPIRY_ROUNDING: Duration = Duration::seconds(60);
/// Rows and bytes of an operation without its payloads.
const OPERATION_ROWS: usize = 12;
const OPERATION_BYTES: usize = 16 * 1024;

/// The newest expiry row of stored replies that expire together.
#[derive(Debug)]
pub(super) struct ReplyExpiry {
    batch: BatchNumber,
    at: Timestamp,
    sequence: Sequence,
    replies: Vec<(String, KeyDigest)>,
}

/// The result of an operation, before it is written.
struct OperationChange {
    output: serde_json::Value,
    event: Option<Vec<u8>>,
    state: Option<Json>,
    writes: bool,
}

impl Shard {
    /// Runs the next operation of an entity whose row is loaded, and replies once all it wrote or saw is durable. A
    /// repeated operation gets its stored reply.
    pub(super) fn run_operation(&mut self, slot: &mut EntitySlot, item: &QueuedOperation) {
        let request = &item.request;
        if let Some(reply) = self.stored_operation_reply(slot, item) {
            let reply = OnCommit::Effect(Effect::Reply(item.request_id, reply));
            if let Some(action) = self.commits.defer_until_durable(slot.written_batch, reply) {
                self.run_on_commit(action);
            }
            return;
        }
        let mut row = match &slot.row_state {
            EntityRowState::Row(Some(row)) => row.clone(),
            EntityRowState::Damaged(reason) => {
                let refusal = RequestError::EntityDamaged {
                    entity: request.entity.to_string(),
                    reason: reason.clone(),
                };
                return self.refuse_operation(slot, item.request_id, refusal);
            }
            _ => self.new_entity(),
        };
        let change = match self.compute_change(slot, &mut row, request) {
            Ok(change) => change,
            Err(refusal) => return self.refuse_operation(slot, item.request_id, refusal),
        };
        let output = change.output.to_string();
        let done_at = self.now.wall;
        let idempotent_until = request.idempotency.map(|_| done_at.plus(self.config.idempotency_window));
        let operated = OperationReply { output, done_at, idempotent_until, is_replay: false };
        if !change.writes && request.idempotency.is_none() {
            let reply = Effect::Reply(item.request_id, ShardReply::Operated(Box::new(operated)));
            if let Some(action) =
                self.commits.defer_until_durable(slot.written_batch, OnCommit::Effect(reply))
            {
                self.run_on_commit(action);
            }
            return;
        }
        let carried = request.session_event.as_ref().map_or(0, |route| route.event.len());
        let bytes = change.event.as_ref().map_or(0, Vec::len) + row.state.len() + carried;
        self.commits.reserve(OPERATION_ROWS, OPERATION_BYTES + bytes);
        self.write_operation(&mut row, request, change.event);
        if let Some(idempotency) = request.idempotency {
            let record = IdempotencyRow {
                request_digest: idempotency.payload_digest,
                replied_at: done_at,
                expires_at: idempotent_until.unwrap_or(done_at),
                reply: run_message::encode(&operated),
            };
            self.commits
                .put(idempotency::key(request.idempotency_scope, &idempotency.key_digest), encode(&record));
            self.write_reply_expiry(request.idempotency_scope, idempotency.key_digest, record.expires_at);
            slot.remember_reply(idempotency.key_digest, record, self.commits.batch_number());
        }
        if change.state.is_some() {
            slot.state = change.state;
        }
        slot.row_state = EntityRowState::Row(Some(row));
        slot.written_batch = self.commits.batch_number();
        self.commits.on_commit(OnCommit::Effect(Effect::Reply(
            item.request_id,
            ShardReply::Operated(Box::new(operated)),
        )));
        if let Some(route) = &request.session_event {
            self.put_in_inbox(route.instance_id.clone(), RunMessage::SessionEvent(route.clone()));
        }
    }

    /// The stored reply, if the operation is a repeat.
    fn stored_operation_reply(&self, slot: &mut EntitySlot, item: &QueuedOperation) -> Option<ShardReply> {
        let idempotency = item.request.idempotency.as_ref()?;
        let record = slot.take_stored_reply(item).filter(|record| record.expires_at > self.now.wall)?;
        match run_message::decode::<OperationReply>(&record.reply) {
            Ok(operated) if record.request_digest == idempotency.payload_digest => {
                Some(ShardReply::Operated(Box::new(OperationReply { is_replay: true, ..operated })))
            }
            _ => Some(ShardReply::Refused(RequestError::KeyReused)),
        }
    }

    fn new_entity(&mut self) -> EntityRow {
        EntityRow {
            generation: self.next_sequence().0,
            first_position: 0,
            next_position: 0,
            operation_count: 0,
            state: Vec::new(),
            updated_at: self.now.wall,
            last_operation_digest: None,
        }
    }

    /// Computes the change. The row already has its new content, but nothing is written yet.
    fn compute_change(
        &mut self,
        slot: &mut EntitySlot,
        row: &mut EntityRow,
        request: &OperationRequest,
    ) -> Result<OperationChange, RequestError> {
        let too_large = |what: &'static str, bytes: usize| RequestError::TooLarge { what, bytes };
        let bytes_max = usize::try_from(self.config.run_limits.payload_bytes_max).unwrap_or(usize::MAX);
        match &request.operation {
            EntityOperation::RecordEvent { event } => {
                let bytes = serde_json::to_vec(event).unwrap_or_default();
                if bytes.len() > bytes_max {
                    return Err(too_large("the event", bytes.len()));
                }
                let count = row.next_position.saturating_sub(row.first_position);
                if count >= self.config.entity_events_max {
                    return Err(RequestError::EntityFull {
                        entity: request.entity.to_string(),
                        events: count,
                    });
                }
                let mut output = json!({"position": row.next_position});
                if request.idempotency_scope == idempotency::SCOPE_CLOUD_EVENT
                    && let Some(output) = output.as_object_mut()
                {
                    // When the event is repeated, its type may be routed to another entity type.
                    output.insert("entityType".to_owned(), request.entity.entity_type().into());
                }
                Ok(OperationChange { output, event: Some(bytes), state: None, writes: true })
            }
            EntityOperation::Clear { up_to } => {
                let first = row.first_position;
                let next = row.next_position;
                let until = up_to.map_or(next, |up_to| up_to.saturating_add(1)).clamp(first, next);
                let output = json!({"cleared": until - first, "firstPosition": until});
                row.first_position = until;
                Ok(OperationChange { output, event: None, state: None, writes: until > first })
            }
            EntityOperation::Custom { name, input } => {
                let state = match &slot.state {
                    Some(state) => Some(Json::clone(state)),
                    None => decode_state(&request.entity, row)?,
                };
                let call = OperationContext {
                    entity: &request.entity,
                    operation: name,
                    input,
                    state: state.as_ref(),
                    now: self.now.wall,
                };
                let outcome = self.config.entity_kinds.operate(&call).map_err(operation_refused)?;
                if let Some(state) = &outcome.state {
                    row.state = serde_json::to_vec(state).unwrap_or_default();
                    if row.state.len() > bytes_max {
                        return Err(too_large("the entity's state", row.state.len()));
                    }
                }
                let writes = outcome.state.is_some();
                let output = std::sync::Arc::unwrap_or_clone(outcome.output);
                Ok(OperationChange { output, event: None, state: outcome.state, writes })
            }
        }
    }

    /// Writes the rows of the entity and of its event.
    fn write_operation(&mut self, row: &mut EntityRow, request: &OperationRequest, event: Option<Vec<u8>>) {
        let operation = request.idempotency.map(|idempotency| idempotency.key_digest);
        if let Some(event) = event {
            let stored = EntityEventRow { recorded_at: self.now.wall, operation_digest: operation, event };
            self.commits.create(entity_events::key(row.generation, row.next_position), encode(&stored));
            row.next_position += 1;
        }
        if let EntityOperation::Clear { .. } = request.operation {
            let what = ExpiryTarget::EntityEvents { generation: row.generation, until: row.first_position };
            let sequence = self.next_sequence();
            self.commits.create(expiries::key(self.now.wall, sequence), encode(&ExpiryRow { target: what }));
            // A new generation makes the old events unreachable at once; the garbage collector deletes them later.
            if row.first_position == row.next_position {
                row.generation = self.next_sequence().0;
            }
        }
        row.operation_count += 1;
        self.commits.on_commit(OnCommit::Effect(Effect::Notify(OperatorEvent::EntityChanged)));
        row.updated_at = self.now.wall;
        row.last_operation_digest = operation;
        let entity = &request.entity;
        self.commits.put(entities::key(entity.entity_type(), entity.key()), encode(row));
    }

    /// Adds a reply to an expiry row that many replies of one batch share.
    fn write_reply_expiry(&mut self, scope: &str, digest: KeyDigest, at: Timestamp) {
        let batch = self.commits.batch_number();
        let key = (scope.to_owned(), digest);
        // To the next whole minute, so that the replies of one batch mostly share a row. None is deleted before it has
        // expired.
        let at = at.next_multiple_of(EXPIRY_ROUNDING);
        let mut expiring = match self.entities.reply_expiry.take() {
            Some(open)
                if open.batch == batch && open.at == at && open.replies.len() < REPLIES_PER_EXPIRY_MAX =>
            {
                open
            }
            _ => ReplyExpiry { batch, at, sequence: self.next_sequence(), replies: Vec::new() },
        };
        expiring.replies.push(key);
        let what = ExpiryTarget::IdempotencyRecords(expiring.replies.clone());
        self.commits
            .create(expiries::key(expiring.at, expiring.sequence), encode(&ExpiryRow { target: what }));
        self.entities.reply_expiry = Some(expiring);
    }
}

fn decode_state(entity: &EntityId, row: &EntityRow) -> Result<Option<Json>, RequestError> {
    if row.state.is_empty() {
        return Ok(None);
    }
    serde_json::from_slice(&row.state).map(Some).map_err(|error| RequestError::EntityDamaged {
        entity: entity.to_string(),
        reason: error.to_string(),
    })
}

fn operation_refused(error: OperationError) -> RequestError {
    RequestError::Operation(error)
}

//! Runs one operation on an entity and writes its rows: all in one batch, with the stored reply and the message for a
//! run.
//!
//! The cost of an operation does not depend on the number of events: one row each for the entity, the event and the
//! reply. The order of operations is kept in [`crate::shard::entities`].

use abide_ids::{Duration, KeyDigest, Sequence, Timestamp};
use abide_store::tables::encode;
use abide_store::tables::entities::{self, EntityRow};
use abide_store::tables::entity_events::{self, EntityEventRow};
use abide_store::tables::expiries::{self, ExpiryRow, ExpiryTarget};
use abide_store::tables::idempotency::{self, IdempotencyRow};
use abide_workflow::json::Json;
use serde_json::json;

use crate::entity::{EntityId, EntityOperation, OperationContext, OperationReply, OperationRequest};
use crate::event::{Effect, OperatorEvent};
use crate::request::{RequestError, RequestId, ShardReply};
use crate::run_message::{self, RunMessage};
use crate::shard::commit::commit_queue::BatchNumber;
use crate::shard::context::Context;
use crate::shard::entities::entity_slot::{EntityRowState, EntitySlot, QueuedOperation};
use crate::shard::messages::put_in_inbox;
use crate::shard::unit_of_work::UnitOfWork;

/// Stored replies that share one expiry row.
const REPLIES_PER_EXPIRY_MAX: usize = 64;
/// The time of such a row is rounded up to a multiple of this.
const EXPIRY_ROUNDING: Duration = Duration::seconds(60);
/// The newest expiry row of stored replies that expire together.
#[derive(Debug)]
pub(in crate::shard) struct ReplyExpiry {
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

/// Runs the next operation of an entity whose row is loaded, and replies once all it wrote or saw is durable. A
/// repeated operation gets its stored reply.
pub(in crate::shard) fn run_operation(
    work: &mut UnitOfWork<'_>,
    reply_expiry: &mut Option<ReplyExpiry>,
    slot: &mut EntitySlot,
    item: &QueuedOperation,
) {
    let request = &item.request;
    if let Some(reply) = stored_operation_reply(work.ctx, slot, item) {
        return work.ctx.send_when_durable(slot.written_batch, Effect::Reply(item.request_id, reply));
    }
    let mut row = match &slot.row_state {
        EntityRowState::Row(Some(row)) => row.clone(),
        EntityRowState::Damaged(reason) => {
            let refusal =
                RequestError::EntityDamaged { entity: request.entity.to_string(), reason: reason.clone() };
            return refuse_when_durable(work.ctx, slot, item.request_id, refusal);
        }
        _ => new_entity(work.ctx),
    };
    let change = match compute_change(work.ctx, slot, &mut row, request) {
        Ok(change) => change,
        Err(refusal) => return refuse_when_durable(work.ctx, slot, item.request_id, refusal),
    };
    let output = change.output.to_string();
    let done_at = work.ctx.now.wall;
    let idempotent_until = request.idempotency.map(|_| done_at.plus(work.ctx.config.idempotency_window));
    let operated = OperationReply { output, done_at, idempotent_until, is_replay: false };
    if !change.writes && request.idempotency.is_none() {
        let reply = Effect::Reply(item.request_id, ShardReply::Operated(Box::new(operated)));
        return work.ctx.send_when_durable(slot.written_batch, reply);
    }
    write_operation(work, &mut row, request, change.event);
    if let Some(idempotency) = request.idempotency {
        let record = IdempotencyRow {
            request_digest: idempotency.payload_digest,
            replied_at: done_at,
            expires_at: idempotent_until.unwrap_or(done_at),
            reply: run_message::encode(&operated),
        };
        work.put(idempotency::key(request.idempotency_scope, &idempotency.key_digest), encode(&record));
        write_reply_expiry(
            work,
            reply_expiry,
            request.idempotency_scope,
            idempotency.key_digest,
            record.expires_at,
        );
        slot.unmerged_reply = Some((idempotency.key_digest, record));
    }
    if change.state.is_some() {
        slot.state = change.state;
    }
    slot.row_state = EntityRowState::Row(Some(row));
    work.note_newest_rows();
    work.reply_on_commit(item.request_id, ShardReply::Operated(Box::new(operated)));
    if let Some(event) = &request.session_event {
        put_in_inbox(work, event.instance_id.clone(), RunMessage::SessionEvent(event.clone()));
    }
}

/// The stored reply, if the operation is a repeat.
fn stored_operation_reply(
    ctx: &Context,
    slot: &mut EntitySlot,
    item: &QueuedOperation,
) -> Option<ShardReply> {
    let idempotency = item.request.idempotency.as_ref()?;
    let record = slot.take_stored_reply(item).filter(|record| record.expires_at > ctx.now.wall)?;
    match run_message::decode::<OperationReply>(&record.reply) {
        Ok(operated) if record.request_digest == idempotency.payload_digest => {
            Some(ShardReply::Operated(Box::new(OperationReply { is_replay: true, ..operated })))
        }
        _ => Some(ShardReply::Refused(RequestError::KeyReused)),
    }
}

/// The row of an entity that does not exist yet, with a generation that no other entity has had.
fn new_entity(ctx: &mut Context) -> EntityRow {
    EntityRow {
        generation: ctx.next_sequence().0,
        first_position: 0,
        next_position: 0,
        operation_count: 0,
        state: Vec::new(),
        updated_at: ctx.now.wall,
        last_operation_digest: None,
    }
}

/// Computes the change, and puts a new state or first position into this copy of the row. Nothing is written yet, and
/// an operation that is refused changes nothing.
fn compute_change(
    ctx: &mut Context,
    slot: &mut EntitySlot,
    row: &mut EntityRow,
    request: &OperationRequest,
) -> Result<OperationChange, RequestError> {
    let too_large = |what: &'static str, bytes: usize| RequestError::TooLarge { what, bytes };
    let bytes_max = usize::try_from(ctx.config.run_limits.payload_bytes_max).unwrap_or(usize::MAX);
    match &request.operation {
        EntityOperation::RecordEvent { event } => {
            let bytes = serde_json::to_vec(event).unwrap_or_default();
            if bytes.len() > bytes_max {
                return Err(too_large("the event", bytes.len()));
            }
            let count = row.next_position.saturating_sub(row.first_position);
            if count >= ctx.config.entity_events_max {
                return Err(RequestError::EntityFull { entity: request.entity.to_string(), events: count });
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
                now: ctx.now.wall,
            };
            let outcome = ctx.config.entity_kinds.operate(&call).map_err(RequestError::Operation)?;
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

/// Writes the rows of the entity and of its event, and what a Clear leaves to the garbage collector. An operation with
/// an idempotency key comes here even if it changes nothing.
fn write_operation(
    work: &mut UnitOfWork<'_>,
    row: &mut EntityRow,
    request: &OperationRequest,
    event: Option<Vec<u8>>,
) {
    let operation = request.idempotency.map(|idempotency| idempotency.key_digest);
    if let Some(event) = event {
        let stored = EntityEventRow { recorded_at: work.ctx.now.wall, operation_digest: operation, event };
        work.create(entity_events::key(row.generation, row.next_position), encode(&stored));
        row.next_position += 1;
    }
    if let EntityOperation::Clear { .. } = request.operation {
        let what = ExpiryTarget::EntityEvents { generation: row.generation, until: row.first_position };
        let sequence = work.ctx.next_sequence();
        work.create(expiries::key(work.ctx.now.wall, sequence), encode(&ExpiryRow { target: what }));
        // A new generation makes the old events unreachable at once; the garbage collector deletes them later.
        if row.first_position == row.next_position {
            row.generation = work.ctx.next_sequence().0;
        }
    }
    row.operation_count += 1;
    work.notify_on_commit(OperatorEvent::EntityChanged);
    row.updated_at = work.ctx.now.wall;
    row.last_operation_digest = operation;
    let entity = &request.entity;
    work.put(entities::key(entity.entity_type(), entity.key()), encode(row));
}

/// Adds a reply to an expiry row that many replies of one batch share.
fn write_reply_expiry(
    work: &mut UnitOfWork<'_>,
    reply_expiry: &mut Option<ReplyExpiry>,
    scope: &str,
    digest: KeyDigest,
    at: Timestamp,
) {
    let batch = work.ctx.commits.batch_number();
    let key = (scope.to_owned(), digest);
    // To the next whole minute, so that the replies of one batch mostly share a row. None is deleted before it has
    // expired.
    let at = at.next_multiple_of(EXPIRY_ROUNDING);
    let mut expiring = match reply_expiry.take() {
        Some(open) if open.batch == batch && open.at == at && open.replies.len() < REPLIES_PER_EXPIRY_MAX => {
            open
        }
        _ => ReplyExpiry { batch, at, sequence: work.ctx.next_sequence(), replies: Vec::new() },
    };
    expiring.replies.push(key);
    let what = ExpiryTarget::IdempotencyRecords(expiring.replies.clone());
    work.create(expiries::key(expiring.at, expiring.sequence), encode(&ExpiryRow { target: what }));
    *reply_expiry = Some(expiring);
}

/// Refuses an operation because of a state that may be ahead of the store: once the entity's newest rows are durable,
/// or at once if they are, so that a crash cannot contradict the refusal. It is not stored; a repetition is computed
/// again.
fn refuse_when_durable(ctx: &mut Context, slot: &EntitySlot, request_id: RequestId, refusal: RequestError) {
    ctx.send_when_durable(slot.written_batch, Effect::Reply(request_id, ShardReply::Refused(refusal)));
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

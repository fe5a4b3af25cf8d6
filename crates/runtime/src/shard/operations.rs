//! What one operation does to the rows of its entity: all of it in one gathering, with the answer kept for a repeat and the message for a run.
//!
//! The cost of an operation does not depend on how many events there are: one row each for the entity, the event and the answer.

use abide_store::tables::dedupe::{self, Answer as KeptAnswer};
use abide_store::tables::encode;
use abide_store::tables::entities::{self, Entity as EntityRow};
use abide_store::tables::entity_events::{self, EntityEvent};
use abide_store::tables::expiries::{self, Expired, Expiry};
use abide_workflow::json::Json;
use serde_json::json;

use super::Shard;
use super::commits::After;
use super::entities::{EntitySlot, KnownEntity, WaitingOperation};
use crate::entity::{EntityId, Operate, Operated, Operation, OperationCall, OperationError};
use crate::event::{Effect, Notice};
use crate::post::{self, Post};
use crate::request::{Refused, Reply};

/// Kept answers whose expiry shares a row.
const EXPIRING_MAX: usize = 64;
/// Milliseconds to which such a row's moment is rounded.
const EXPIRING_MS: i64 = 60_000;
/// Rows and bytes of an operation besides what it carries.
const OPERATION_ROWS: usize = 12;
const OPERATION_BYTES: usize = 16 * 1024;

/// The newest row of kept answers that expire together.
#[derive(Debug)]
pub(super) struct Expiring {
    gathering: u64,
    at: i64,
    sequence: u64,
    answers: Vec<(String, [u8; 32])>,
}

/// What an operation changes.
struct Change {
    output: serde_json::Value,
    event: Option<Vec<u8>>,
    state: Option<Json>,
    writes: bool,
}

impl Shard {
    pub(super) fn operate(&mut self, slot: &mut EntitySlot, item: &WaitingOperation) {
        let operate = &item.operate;
        if let Some(reply) = self.repeated_operation(slot, item) {
            let reply = After::Effect(Effect::Reply(item.ticket, reply));
            if let Some(after) = self.commits.when_durable(slot.written, reply) {
                self.follow(after);
            }
            return;
        }
        let mut row = match &slot.known {
            KnownEntity::Row(Some(row)) => row.clone(),
            KnownEntity::Damaged(reason) => {
                let why =
                    Refused::EntityDamaged { entity: operate.entity.to_string(), reason: reason.clone() };
                return self.refuse_operation(slot, item.ticket, why);
            }
            _ => self.new_entity(),
        };
        let change = match self.change_of(slot, &mut row, operate) {
            Ok(change) => change,
            Err(why) => return self.refuse_operation(slot, item.ticket, why),
        };
        let output = change.output.to_string();
        let done_at = self.now.wall;
        let repeats_until = operate.repeat.map(|_| done_at.plus(self.config.repeat_window));
        let operated = Operated { output, done_at, repeats_until, repeated: false };
        if !change.writes && operate.repeat.is_none() {
            let reply = Effect::Reply(item.ticket, Reply::Operated(Box::new(operated)));
            if let Some(after) = self.commits.when_durable(slot.written, After::Effect(reply)) {
                self.follow(after);
            }
            return;
        }
        let carried = operate.route.as_ref().map_or(0, |route| route.event.len());
        let bytes = change.event.as_ref().map_or(0, Vec::len) + row.state.len() + carried;
        self.commits.make_room(OPERATION_ROWS, OPERATION_BYTES + bytes);
        self.write_operation(&mut row, operate, change.event);
        if let Some(repeat) = operate.repeat {
            let answer = KeptAnswer {
                payload_digest: repeat.payload,
                answered_at: done_at.0,
                expires_at: repeats_until.map_or(done_at.0, |until| until.0),
                answer: post::encode(&operated),
            };
            self.commits.put(dedupe::key(operate.scope, &repeat.key), encode(&answer));
            self.expire_answer(operate.scope, repeat.key, answer.expires_at);
            slot.keep(repeat.key, answer, self.commits.number());
        }
        if change.state.is_some() {
            slot.state = change.state;
        }
        slot.known = KnownEntity::Row(Some(row));
        slot.written = self.commits.number();
        self.commits.then(After::Effect(Effect::Reply(item.ticket, Reply::Operated(Box::new(operated)))));
        if let Some(route) = &operate.route {
            self.take_in(route.instance_id.clone(), Post::Routed(route.clone()));
        }
    }

    /// The answer to an operation that came before.
    fn repeated_operation(&self, slot: &mut EntitySlot, item: &WaitingOperation) -> Option<Reply> {
        let repeat = item.operate.repeat.as_ref()?;
        let kept = slot.kept(item).filter(|kept| kept.expires_at > self.now.wall.0)?;
        match post::decode::<Operated>(&kept.answer) {
            Ok(operated) if kept.payload_digest == repeat.payload => {
                Some(Reply::Operated(Box::new(Operated { repeated: true, ..operated })))
            }
            _ => Some(Reply::Refused(Refused::KeyReused)),
        }
    }

    fn new_entity(&mut self) -> EntityRow {
        EntityRow {
            generation: self.next_sequence(),
            first_position: 0,
            next_position: 0,
            operations: 0,
            state: Vec::new(),
            updated_at: self.now.wall.0,
            last_operation: None,
        }
    }

    /// Decides what changes; the row is as it will be, its generation included, but nothing is written yet.
    fn change_of(
        &mut self,
        slot: &mut EntitySlot,
        row: &mut EntityRow,
        operate: &Operate,
    ) -> Result<Change, Refused> {
        let too_large = |what: &'static str, bytes: usize| Refused::TooLarge { what, bytes };
        let bytes_max = usize::try_from(self.config.run.payload_bytes_max).unwrap_or(usize::MAX);
        match &operate.operation {
            Operation::RecordEvent { event } => {
                let bytes = serde_json::to_vec(event).unwrap_or_default();
                if bytes.len() > bytes_max {
                    return Err(too_large("the event", bytes.len()));
                }
                let count = row.next_position.saturating_sub(row.first_position);
                if count >= self.config.entity_events_max {
                    return Err(Refused::EntityFull { entity: operate.entity.to_string(), events: count });
                }
                let mut output = json!({"position": row.next_position});
                if operate.scope == dedupe::CLOUD_EVENT
                    && let Some(output) = output.as_object_mut()
                {
                    // Where its type leads may be another place when it comes again.
                    output.insert("entityType".to_owned(), operate.entity.kind().into());
                }
                Ok(Change { output, event: Some(bytes), state: None, writes: true })
            }
            Operation::Clear { up_to } => {
                let (first, next) = (row.first_position, row.next_position);
                let until = up_to.map_or(next, |up_to| up_to.saturating_add(1)).clamp(first, next);
                let output = json!({"cleared": until - first, "firstPosition": until});
                row.first_position = until;
                Ok(Change { output, event: None, state: None, writes: until > first })
            }
            Operation::Custom { name, input } => {
                let state = match &slot.state {
                    Some(state) => Some(Json::clone(state)),
                    None => read_state(&operate.entity, row)?,
                };
                let call = OperationCall {
                    entity: &operate.entity,
                    operation: name,
                    input,
                    state: state.as_ref(),
                    now: self.now.wall,
                };
                let outcome = self.config.kinds.operate(&call).map_err(refused)?;
                if let Some(state) = &outcome.state {
                    row.state = serde_json::to_vec(state).unwrap_or_default();
                    if row.state.len() > bytes_max {
                        return Err(too_large("the entity's state", row.state.len()));
                    }
                }
                let writes = outcome.state.is_some();
                let output = std::sync::Arc::unwrap_or_clone(outcome.output);
                Ok(Change { output, event: None, state: outcome.state, writes })
            }
        }
    }

    /// The rows of the entity and of its event.
    fn write_operation(&mut self, row: &mut EntityRow, operate: &Operate, event: Option<Vec<u8>>) {
        let operation = operate.repeat.map(|repeat| repeat.key);
        if let Some(event) = event {
            let stored =
                EntityEvent { recorded_at: self.now.wall.0, operation: operation.unwrap_or_default(), event };
            self.commits.create(entity_events::key(row.generation, row.next_position), encode(&stored));
            row.next_position += 1;
        }
        if let Operation::Clear { .. } = operate.operation {
            let what = Expired::EntityEvents { generation: row.generation, until: row.first_position };
            let sequence = self.next_sequence();
            self.commits.create(expiries::key(self.now.wall.0, sequence), encode(&Expiry { what }));
            // A generation of its own makes what is left to the sweeper unreachable at once.
            if row.first_position == row.next_position {
                row.generation = self.next_sequence();
            }
        }
        row.operations += 1;
        self.commits.then(After::Effect(Effect::Tell(Notice::Operated)));
        row.updated_at = self.now.wall.0;
        row.last_operation = operation;
        let entity = &operate.entity;
        self.commits.put(entities::key(entity.kind(), entity.key()), encode(row));
    }

    /// One row for the expiry of many answers, as long as they are gathered together.
    fn expire_answer(&mut self, scope: &str, digest: [u8; 32], at: i64) {
        let gathering = self.commits.number();
        let answer = (scope.to_owned(), digest);
        // To the next whole minute, so that answers of one gathering mostly share a row; none is looked at before it has expired.
        let at = at.div_euclid(EXPIRING_MS).saturating_add(1).saturating_mul(EXPIRING_MS);
        let mut expiring = match self.entities.expiring.take() {
            Some(open)
                if open.gathering == gathering && open.at == at && open.answers.len() < EXPIRING_MAX =>
            {
                open
            }
            _ => Expiring { gathering, at, sequence: self.next_sequence(), answers: Vec::new() },
        };
        expiring.answers.push(answer);
        let what = Expired::Answers(expiring.answers.clone());
        self.commits.create(expiries::key(expiring.at, expiring.sequence), encode(&Expiry { what }));
        self.entities.expiring = Some(expiring);
    }
}

fn read_state(entity: &EntityId, row: &EntityRow) -> Result<Option<Json>, Refused> {
    if row.state.is_empty() {
        return Ok(None);
    }
    serde_json::from_slice(&row.state)
        .map(Some)
        .map_err(|error| Refused::EntityDamaged { entity: entity.to_string(), reason: error.to_string() })
}

fn refused(error: OperationError) -> Refused {
    Refused::Operation(error)
}

//! The activities with which workflows use entities: they read and clear events, read the state, and call operations.
//!
//! They are ordinary activities, dispatched and retried like any other. The idempotency key of the call is that of the
//! operation, so an operation takes effect once, however many attempts the call needs. They know the node only as a
//! client.

mod inputs;
mod lookup;
mod reading;

use std::sync::{Arc, OnceLock, Weak};

use abide_dispatch::CallFailure;
use abide_dispatch::local::{
    ActivityCategory, ActivityDeclaration, LocalActivities, LocalInvocation, LocalRegisterError,
};
use abide_ids::KeyDigest;
use abide_store::tables::idempotency::SCOPE_ENTITY_OPERATION;
use abide_workflow::json::Json;
use serde_json::{Value, json};

use self::inputs::{
    EventBound, clear_up_to_schema, entity_schema, from_schema, limit_schema, operation_schema,
    read_up_to_schema, with_properties,
};
use self::lookup::{parse_entity_id, unreadable};
use super::Node;
use crate::entity::events_read::{CALL, GET_EVENTS};
use crate::entity::{EntityId, EntityOperation, OperationReply, OperationRequest, ParsedOperation};
use crate::request::{RequestError, RequestIdempotency, ShardReply, ShardRequest};
use abide_store::Store;

/// The entity activities. A node is started with its activities, so the node is attached to them afterwards.
#[derive(Debug)]
pub struct EntityActivities<S> {
    node: Arc<OnceLock<Weak<Node<S>>>>,
}

impl<S> Default for EntityActivities<S> {
    fn default() -> Self {
        Self { node: Arc::default() }
    }
}

impl<S> Clone for EntityActivities<S> {
    fn clone(&self) -> Self {
        Self { node: Arc::clone(&self.node) }
    }
}

impl<S: Store> EntityActivities<S> {
    /// Makes the activities use this node. Calls that come earlier fail and are retried.
    pub fn attach(&self, node: &Arc<Node<S>>) {
        // The first node stays: activities serve one node.
        let _ = self.node.set(Arc::downgrade(node));
    }

    /// Adds the activities to those in process, before the node is started with them.
    pub fn register(&self, activities: &mut LocalActivities) -> Result<(), LocalRegisterError> {
        let entity = entity_schema();
        let events = with_properties(
            &entity,
            &[("upTo", read_up_to_schema()), ("from", from_schema()), ("limit", limit_schema())],
        );
        let cleared = with_properties(&entity, &[("upTo", clear_up_to_schema())]);
        let operation = operation_schema();
        let declare = |name: &str, input: &Value| {
            ActivityDeclaration::new(name, ActivityCategory::Entity).input(input.clone()).output(json!({}))
        };
        let handler = self.clone();
        activities.register(declare(GET_EVENTS, &events), move |call| handler.clone().get_events(call))?;
        let handler = self.clone();
        activities
            .register(declare("ClearEntityEvents", &cleared), move |call| handler.clone().clear(call))?;
        let handler = self.clone();
        activities.register(declare("entity.get", &entity), move |call| handler.clone().get(call))?;
        let handler = self.clone();
        activities.register(declare(CALL, &operation), move |call| handler.clone().call(call))?;
        let handler = self.clone();
        activities.register(declare("entity.signal", &operation), move |call| handler.clone().signal(call))
    }

    /// `GetEntityEvents`: the events of an entity, or a page of them, read without the shard.
    async fn get_events(self, call: LocalInvocation) -> Result<Json, CallFailure> {
        let node = self.node()?;
        let entity = node.find_entity(&call).await?;
        node.read_events(entity.as_ref(), &call.input).await
    }

    /// `ClearEntityEvents`: deletes events of an entity up to a position, so that those recorded since stay: by default
    /// those that the run has read.
    async fn clear(self, call: LocalInvocation) -> Result<Json, CallFailure> {
        let node = self.node()?;
        let Some(entity) = node.find_entity(&call).await? else { return Ok(Arc::new(json!({"cleared": 0}))) };
        let up_to = match EventBound::parse(&call.input) {
            EventBound::Nothing => None,
            EventBound::Everything => node.position_read(&entity, &call).await?,
            EventBound::Position(position) => Some(position),
        };
        let Some(up_to) = up_to else { return Ok(Arc::new(json!({"cleared": 0}))) };
        node.operate(entity, EntityOperation::Clear { up_to: Some(up_to) }, &call).await
    }

    /// `entity.get`: the state of an entity and the positions of its events, read without the shard.
    async fn get(self, call: LocalInvocation) -> Result<Json, CallFailure> {
        let node = self.node()?;
        let Some(entity) = node.find_entity(&call).await? else { return Ok(Arc::new(Value::Null)) };
        let Some(reader) = node.entity_reader_for(&entity) else { return Ok(Arc::new(Value::Null)) };
        let view = reader.view(&entity).await;
        let view = view.map_err(|error| unreadable(&error))?;
        let Some(view) = view else { return Ok(Arc::new(Value::Null)) };
        let state: Value =
            view.state.as_deref().and_then(|state| serde_json::from_str(state).ok()).unwrap_or_default();
        let last = view.next_position.checked_sub(1).filter(|_| view.event_count > 0);
        Ok(Arc::new(json!({
            "state": state, "eventCount": view.event_count, "firstPosition": view.first_position,
            "lastPosition": last, "nextPosition": view.next_position, "operations": view.operations,
        })))
    }

    /// `entity.call`: one operation by name. Changes go through the shard, reads do not.
    async fn call(self, call: LocalInvocation) -> Result<Json, CallFailure> {
        let node = self.node()?;
        let entity = parse_entity_id(
            &call.input,
            call.input.get("entityType").and_then(Value::as_str).unwrap_or_default(),
        )?;
        let name = call.input.get("operation").and_then(Value::as_str).unwrap_or_default().to_owned();
        let input = Arc::new(call.input.get("input").cloned().unwrap_or_default());
        let parsed = ParsedOperation::parse(&name, input)
            .map_err(|error| CallFailure::permanent(error.code(), error.to_string()))?;
        match parsed {
            ParsedOperation::Change(operation) => node.operate(entity, operation, &call).await,
            ParsedOperation::GetEvents { from, limit } => node.events_page(&entity, from, limit).await,
            ParsedOperation::GetState => self.get(call).await,
        }
    }

    /// `entity.signal`: like `entity.call`, waits for the operation, but leaves out its output.
    async fn signal(self, call: LocalInvocation) -> Result<Json, CallFailure> {
        self.call(call).await.map(|_| Arc::new(Value::Null))
    }

    fn node(&self) -> Result<Arc<Node<S>>, CallFailure> {
        let node = self.node.get().and_then(Weak::upgrade);
        node.ok_or_else(|| CallFailure::retryable("NotReady", "the node is not ready"))
    }
}

impl<S: Store> Node<S> {
    /// Sends an operation to its shard, as a client would, and waits until it is durable or refused.
    async fn operate(
        &self,
        entity: EntityId,
        operation: EntityOperation,
        call: &LocalInvocation,
    ) -> Result<Json, CallFailure> {
        // The key is the same in every attempt of the call, and unique to this call.
        let key = KeyDigest::of_parts(&[b"call", call.metadata.idempotency_key.as_bytes()]);
        let idempotency = Some(RequestIdempotency::new(key, key.0));
        let operate = OperationRequest {
            entity,
            operation,
            idempotency,
            idempotency_scope: SCOPE_ENTITY_OPERATION,
            session_event: None,
        };
        let reply = self.request(ShardRequest::Operate(Box::new(operate))).await;
        let reply = reply.map_err(|error| {
            CallFailure::retryable("Unanswered", error.to_string()).with_outcome_unknown()
        })?;
        match reply {
            ShardReply::Operated(operated) => {
                let OperationReply { output, .. } = *operated;
                Ok(Arc::new(serde_json::from_str(&output).unwrap_or_default()))
            }
            ShardReply::Refused(refused) => Err(failure_from(&refused)),
            other => Err(CallFailure::retryable(
                "Unexpected",
                format!("unexpected reply to an entity operation: {other:?}"),
            )),
        }
    }
}

fn failure_from(refused: &RequestError) -> CallFailure {
    let message = refused.to_string();
    match refused {
        refused if refused.is_transient() => CallFailure::retryable("Unavailable", message),
        RequestError::Operation(error) => CallFailure::permanent(error.code(), message),
        RequestError::EntityFull { .. } => CallFailure::permanent("EntityFull", message),
        RequestError::EntityDamaged { .. } => CallFailure::permanent("EntityDamaged", message),
        RequestError::TooLarge { .. } => CallFailure::permanent("PayloadTooLarge", message),
        _ => CallFailure::permanent("OperationRefused", message),
    }
}

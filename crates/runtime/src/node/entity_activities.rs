//! Activities with which workflows use entities: record, ask, clear, read.
//!
//! They are ordinary activities, dispatched and retried as any other; the call's idempotency key is the operation's id, so an operation has
//! its effect once however often the call is delivered.

use std::sync::{Arc, OnceLock, Weak};

use abide_dispatch::Failure;
use abide_dispatch::local::{Activities, Category, Declaration, Invocation, RegisterError};
use abide_store::tables::dedupe::ENTITY_OPERATION;
use abide_workflow::json::Json;
use serde_json::{Value, json};

use super::Node;
use crate::entity::{Asked, EntityId, EntityReadError, Operate, Operated, Operation};
use crate::hands::Store;
use crate::request::{Refused, Repeat, Reply, Request};

/// The way from activities, which a node is started with, back to the node.
#[derive(Debug)]
pub struct EntityDesk<S> {
    node: Arc<OnceLock<Weak<Node<S>>>>,
}

impl<S> Default for EntityDesk<S> {
    fn default() -> Self {
        Self { node: Arc::default() }
    }
}

impl<S> Clone for EntityDesk<S> {
    fn clone(&self) -> Self {
        Self { node: Arc::clone(&self.node) }
    }
}

/// Events that one activity answers at most; more are read page by page over the interface.
const EVENTS_MAX: usize = 100_000;
const PAGE: usize = 1_000;

impl<S: Store> EntityDesk<S> {
    /// From now on the activities reach this node.
    pub fn open(&self, node: &Arc<Node<S>>) {
        // The first node stays; a desk serves one.
        let _ = self.node.set(Arc::downgrade(node));
    }

    /// Registers the activities.
    pub fn register(&self, activities: &mut Activities) -> Result<(), RegisterError> {
        let named = json!({
            "type": "object", "required": ["entityId"],
            "properties": {
                "entityId": {"type": "string"}, "entityType": {"type": "string"},
                "upTo": {"type": "integer", "minimum": 0},
            },
        });
        let asked = json!({
            "type": "object", "required": ["entityType", "entityId", "operation"],
            "properties": {
                "entityType": {"type": "string"}, "entityId": {"type": "string"},
                "operation": {"type": "string", "minLength": 1, "maxLength": 128},
            },
        });
        let declare = |name: &str, input: &Value| {
            Declaration::new(name, Category::Entity).input(input.clone()).output(json!({}))
        };
        let desk = self.clone();
        activities.register(declare("GetEntityEvents", &named), move |call| desk.clone().get_events(call))?;
        let desk = self.clone();
        activities.register(declare("ClearEntityEvents", &named), move |call| desk.clone().clear(call))?;
        let desk = self.clone();
        activities.register(declare("entity.get", &named), move |call| desk.clone().get(call))?;
        let desk = self.clone();
        activities.register(declare("entity.call", &asked), move |call| desk.clone().call(call))?;
        let desk = self.clone();
        activities.register(declare("entity.signal", &asked), move |call| desk.clone().signal(call))
    }

    async fn get_events(self, call: Invocation) -> Result<Json, Failure> {
        let node = self.node()?;
        let Some(entity) = node.find_entity(&call.input).await? else { return Ok(Arc::new(json!([]))) };
        let unreadable = |error: EntityReadError| Failure::retryable("EntityUnreadable", error.to_string());
        let Some(reader) = node.entities_with(&entity) else { return Ok(Arc::new(json!([]))) };
        let Some(view) = reader.view(&entity).await.map_err(unreadable)? else {
            return Ok(Arc::new(json!([])));
        };
        let bytes_max = usize::try_from(node.options.shard.run.payload_bytes_max).unwrap_or(usize::MAX);
        let too_large = |what: String| {
            Failure::for_good(
                "EntityEventsTooLarge",
                format!("{entity} has {what}: read them page by page, or clear what is done with"),
            )
        };
        if view.event_count > EVENTS_MAX as u64 {
            return Err(too_large(format!("{} events", view.event_count)));
        }
        let (mut events, mut bytes) = (Vec::new(), 2);
        let mut from = Some(view.first_position);
        while let Some(position) = from {
            let page = reader.events(&view, position, PAGE).await.map_err(unreadable)?;
            for event in page.events {
                bytes += event.event.get().len() + 1;
                if bytes > bytes_max {
                    return Err(too_large(format!("more than {bytes_max} bytes of events")));
                }
                events.push(serde_json::from_str(event.event.get()).unwrap_or_default());
            }
            from = page.next;
        }
        Ok(Arc::new(Value::Array(events)))
    }

    async fn clear(self, call: Invocation) -> Result<Json, Failure> {
        let node = self.node()?;
        let Some(entity) = node.find_entity(&call.input).await? else {
            return Ok(Arc::new(json!({"cleared": 0})));
        };
        let up_to = call.input.get("upTo").and_then(Value::as_u64);
        node.operate(entity, Operation::Clear { up_to }, &call).await
    }

    async fn get(self, call: Invocation) -> Result<Json, Failure> {
        let node = self.node()?;
        let Some(entity) = node.find_entity(&call.input).await? else { return Ok(Arc::new(Value::Null)) };
        let Some(reader) = node.entities_with(&entity) else { return Ok(Arc::new(Value::Null)) };
        let view = reader.view(&entity).await;
        let view = view.map_err(|error| Failure::retryable("EntityUnreadable", error.to_string()))?;
        let Some(view) = view else { return Ok(Arc::new(Value::Null)) };
        let state: Value =
            view.state.as_deref().and_then(|state| serde_json::from_str(state).ok()).unwrap_or_default();
        Ok(Arc::new(json!({
            "state": state, "eventCount": view.event_count, "firstPosition": view.first_position,
            "nextPosition": view.next_position, "operations": view.operations,
        })))
    }

    async fn call(self, call: Invocation) -> Result<Json, Failure> {
        let node = self.node()?;
        let entity =
            entity_of(&call.input, call.input.get("entityType").and_then(Value::as_str).unwrap_or_default())?;
        let name = call.input.get("operation").and_then(Value::as_str).unwrap_or_default().to_owned();
        let input = Arc::new(call.input.get("input").cloned().unwrap_or_default());
        let asked =
            Asked::of(&name, input).map_err(|error| Failure::for_good(error.code(), error.to_string()))?;
        match asked {
            Asked::Operation(operation) => node.operate(entity, operation, &call).await,
            Asked::GetEvents { .. } => self.get_events(call).await,
            Asked::GetState => self.get(call).await,
        }
    }

    async fn signal(self, call: Invocation) -> Result<Json, Failure> {
        self.call(call).await.map(|_| Arc::new(Value::Null))
    }

    fn node(&self) -> Result<Arc<Node<S>>, Failure> {
        let node = self.node.get().and_then(Weak::upgrade);
        node.ok_or_else(|| Failure::retryable("NotReady", "the node is not at work"))
    }
}

impl<S: Store> Node<S> {
    /// The entity an input names. Without a type it is the one entity that has the key; none if there is none.
    async fn find_entity(&self, input: &Value) -> Result<Option<EntityId>, Failure> {
        if let Some(kind) = input.get("entityType").and_then(Value::as_str) {
            return entity_of(input, kind).map(Some);
        }
        let unavailable =
            |error: crate::routes::RouteError| Failure::retryable("Unavailable", error.to_string());
        let routed = self.routes().all().await.map_err(unavailable)?;
        let mut kinds: Vec<String> =
            routed.into_iter().map(|(_, route)| route.entity_type.to_ascii_lowercase()).collect();
        kinds.extend(self.options.shard.kinds.types().map(str::to_owned));
        kinds.sort();
        kinds.dedup();
        let mut found = None;
        for kind in kinds {
            let entity = entity_of(input, &kind)?;
            let Some(reader) = self.entities_with(&entity) else { continue };
            let view = reader.view(&entity).await;
            let view = view.map_err(|error| Failure::retryable("EntityUnreadable", error.to_string()))?;
            match (view, &found) {
                (None, _) => {}
                (Some(_), None) => found = Some(entity),
                (Some(_), Some(first)) => {
                    let message =
                        format!("{first} and {entity} both have this key: say which entityType is meant");
                    return Err(Failure::for_good("AmbiguousEntity", message));
                }
            }
        }
        Ok(found)
    }

    async fn operate(
        &self,
        entity: EntityId,
        operation: Operation,
        call: &Invocation,
    ) -> Result<Json, Failure> {
        // The key is the same in every delivery of the call, and names nothing but this call.
        let key = Repeat::digest(&[b"call", call.metadata.idempotency_key.as_bytes()]);
        let repeat = Some(Repeat::new(key, key));
        let operate = Operate { entity, operation, repeat, scope: ENTITY_OPERATION, route: None };
        let reply = self.ask(Request::Operate(Box::new(operate))).await;
        let reply = reply
            .map_err(|error| Failure::retryable("Unanswered", error.to_string()).with_outcome_unknown())?;
        match reply {
            Reply::Operated(operated) => {
                let Operated { output, .. } = *operated;
                Ok(Arc::new(serde_json::from_str(&output).unwrap_or_default()))
            }
            Reply::Refused(refused) => Err(refused_as(&refused)),
            other => Err(Failure::retryable("Unexpected", format!("an operation was answered by {other:?}"))),
        }
    }
}

fn refused_as(refused: &Refused) -> Failure {
    let message = refused.to_string();
    match refused {
        refused if refused.is_transient() => Failure::retryable("Unavailable", message),
        Refused::Operation(error) => Failure::for_good(error.code(), message),
        Refused::EntityFull { .. } => Failure::for_good("EntityFull", message),
        Refused::EntityDamaged { .. } => Failure::for_good("EntityDamaged", message),
        Refused::TooLarge { .. } => Failure::for_good("PayloadTooLarge", message),
        _ => Failure::for_good("OperationRefused", message),
    }
}

fn entity_of(input: &Value, kind: &str) -> Result<EntityId, Failure> {
    let key = input.get("entityId").and_then(Value::as_str).unwrap_or_default();
    EntityId::new(kind, key).map_err(|error| Failure::for_good("EntityIdInvalid", error.to_string()))
}

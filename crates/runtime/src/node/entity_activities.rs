//! Activities with which workflows use entities: record, ask, clear, read.
//!
//! They are ordinary activities, dispatched and retried as any other; the call's idempotency key is the operation's id, so an operation has
//! its effect once however often the call is delivered.

mod inputs;

use std::sync::{Arc, OnceLock, Weak};

use abide_dispatch::Failure;
use abide_dispatch::local::{Activities, Category, Declaration, Invocation, RegisterError};
use abide_store::tables::dedupe::ENTITY_OPERATION;
use abide_workflow::json::Json;
use serde_json::{Value, json};

use self::inputs::{UpTo, asked_schema, named_schema, up_to_schema};
use super::Node;
use crate::entity::{Asked, EntityId, EntityReadError, Operate, Operated, Operation, RecordedEvent};
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
/// Events of a page that does not say how many it is to have.
const PAGE_DEFAULT: usize = 100;
/// Bytes of an event in a page besides the event itself: its position, its time and their names.
const EVENT_BYTES: usize = 128;

impl<S: Store> EntityDesk<S> {
    /// From now on the activities reach this node.
    pub fn open(&self, node: &Arc<Node<S>>) {
        // The first node stays; a desk serves one.
        let _ = self.node.set(Arc::downgrade(node));
    }

    /// Registers the activities.
    pub fn register(&self, activities: &mut Activities) -> Result<(), RegisterError> {
        let named = named_schema();
        let mut bounded = named.clone();
        if let Some(properties) = bounded.get_mut("properties").and_then(Value::as_object_mut) {
            properties.insert("upTo".to_owned(), up_to_schema());
        }
        let asked = asked_schema();
        let declare = |name: &str, input: &Value| {
            Declaration::new(name, Category::Entity).input(input.clone()).output(json!({}))
        };
        let desk = self.clone();
        activities
            .register(declare("GetEntityEvents", &bounded), move |call| desk.clone().get_events(call))?;
        let desk = self.clone();
        activities.register(declare("ClearEntityEvents", &bounded), move |call| desk.clone().clear(call))?;
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
        let Some(mut view) = reader.view(&entity).await.map_err(unreadable)? else {
            return Ok(Arc::new(json!([])));
        };
        let until = UpTo::of(&call.input).until(view.first_position, view.next_position);
        (view.next_position, view.event_count) = (until, until.saturating_sub(view.first_position));
        let bytes_max = node.payload_bytes_max();
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
        let up_to = match UpTo::of(&call.input) {
            UpTo::Nothing => return Ok(Arc::new(json!({"cleared": 0}))),
            UpTo::Everything => None,
            UpTo::Position(position) => Some(position),
        };
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
        let last = view.next_position.checked_sub(1).filter(|_| view.event_count > 0);
        Ok(Arc::new(json!({
            "state": state, "eventCount": view.event_count, "firstPosition": view.first_position,
            "lastPosition": last, "nextPosition": view.next_position, "operations": view.operations,
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
            Asked::GetEvents { from, limit } => node.events_page(&entity, from, limit).await,
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

    /// A page of events with their positions, no larger than a payload may be.
    async fn events_page(&self, entity: &EntityId, from: u64, limit: Option<usize>) -> Result<Json, Failure> {
        let limit = limit.unwrap_or(PAGE_DEFAULT);
        if !(1..=PAGE).contains(&limit) {
            let message = format!("limit must be 1 to {PAGE}");
            return Err(Failure::for_good("OperationInputInvalid", message));
        }
        let unreadable = |error: EntityReadError| Failure::retryable("EntityUnreadable", error.to_string());
        let (mut events, mut bytes, mut next) = (Vec::new(), 0, None);
        let reader = self.entities_with(entity);
        let view = match &reader {
            Some(reader) => reader.view(entity).await.map_err(unreadable)?,
            None => None,
        };
        if let Some((reader, view)) = reader.zip(view) {
            let page = reader.events(&view, from, limit).await.map_err(unreadable)?;
            next = page.next;
            for RecordedEvent { position, recorded_at, event } in page.events {
                bytes += event.get().len() + EVENT_BYTES;
                if bytes > self.payload_bytes_max() && !events.is_empty() {
                    next = Some(position);
                    break;
                }
                let event: Value = serde_json::from_str(event.get()).unwrap_or_default();
                events.push(json!({
                    "position": position, "recordedAtUtc": recorded_at.to_string(), "event": event,
                }));
            }
        }
        Ok(Arc::new(json!({"events": events, "nextPosition": next})))
    }

    fn payload_bytes_max(&self) -> usize {
        usize::try_from(self.options.shard.run.payload_bytes_max).unwrap_or(usize::MAX)
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

//! Reads the events of an entity for an activity: all of them, or page by page, within the limit of one result.
//!
//! Each event comes with its position and the time it was recorded. How far a run has read is noted by its shard, from
//! the result; here the note is only looked up.

use std::sync::Arc;

use abide_dispatch::CallFailure;
use abide_dispatch::local::LocalInvocation;
use abide_store::Store;
use abide_workflow::json::{self, Json};
use serde_json::{Value, json};

use super::inputs::{EventBound, PAGE_EVENTS_MAX};
use super::lookup::{parse_execution_id, unreadable};
use crate::entity::events_read::read_entity;
use crate::entity::{EntityId, EntityReader, EntityView, RecordedEvent};
use crate::node::Node;
use crate::run::RunBookkeeping;

/// The most events of one result.
const EVENTS_MAX: usize = 100_000;
/// Events of a page if the input has no limit.
const PAGE_EVENTS_DEFAULT: usize = 100;
/// Bytes of a page beside its events.
const PAGE_BYTES: u64 = 128;

/// Events that fit into one result.
struct ReadEvents {
    events: Vec<Value>,
    /// The position of the first event that is left out.
    next: Option<u64>,
}

impl<S: Store> Node<S> {
    /// The result of `GetEntityEvents`: a list of all events up to `upTo`, or with `from` or `limit` a page.
    pub(super) async fn read_events(
        &self,
        entity: Option<&EntityId>,
        input: &Value,
    ) -> Result<Json, CallFailure> {
        let number = |name: &str| input.get(name).and_then(Value::as_u64);
        let (from, limit) = (number("from"), number("limit"));
        let is_page = from.is_some() || limit.is_some();
        let limit =
            limit.map_or(PAGE_EVENTS_DEFAULT, |limit| usize::try_from(limit).unwrap_or(PAGE_EVENTS_MAX));
        let most = if is_page { limit } else { EVENTS_MAX };
        let mut read = ReadEvents { events: Vec::new(), next: None };
        if let Some((entity, reader, mut view)) = self.readable(entity).await? {
            let until = EventBound::parse(input).end_position(view.first_position, view.next_position);
            (view.next_position, view.event_count) = (until, until.saturating_sub(view.first_position));
            read = self.events_within(&reader, &view, from.unwrap_or(0), most, with_position).await?;
            if !is_page && read.next.is_some() {
                let message = format!(
                    "{entity} has {} events, more than the {} bytes that one result can hold: read them page by page with \
                     from and limit, or clear the events already processed",
                    view.event_count,
                    self.result_bytes_max(),
                );
                return Err(CallFailure::permanent("EntityEventsTooLarge", message));
            }
        }
        let ReadEvents { events, next } = read;
        let result = if is_page {
            json!({"events": events, "nextFrom": next, "more": next.is_some()})
        } else {
            Value::Array(events)
        };
        Ok(Arc::new(result))
    }

    /// The result of the operation `GetEvents`: a page of events, each in an object of its own.
    pub(super) async fn events_page(
        &self,
        entity: &EntityId,
        from: u64,
        limit: Option<usize>,
    ) -> Result<Json, CallFailure> {
        let limit = limit.unwrap_or(PAGE_EVENTS_DEFAULT);
        if !(1..=PAGE_EVENTS_MAX).contains(&limit) {
            let message = format!("limit must be 1 to {PAGE_EVENTS_MAX}");
            return Err(CallFailure::permanent("OperationInputInvalid", message));
        }
        let mut read = ReadEvents { events: Vec::new(), next: None };
        if let Some((_, reader, view)) = self.readable(Some(entity)).await? {
            read = self.events_within(&reader, &view, from, limit, in_object).await?;
        }
        Ok(Arc::new(json!({"events": read.events, "nextPosition": read.next})))
    }

    /// The last position that the call's run has read of this entity; none if it has read nothing.
    pub(super) async fn position_read(
        &self,
        entity: &EntityId,
        call: &LocalInvocation,
    ) -> Result<Option<u64>, CallFailure> {
        let Some((id, run_number)) = parse_execution_id(&call.metadata.execution_id) else { return Ok(None) };
        let Some(partition) = self.store_effects.partition(self.shard_of_instance(&id)) else {
            return Ok(None);
        };
        let run = self.store_effects.run_reader().load_run(partition, &id).await;
        let run = run.map_err(|error| unreadable(&error.into()))?;
        let run = run.map_err(|run| CallFailure::retryable("RunUnreadable", run.reason))?;
        let Some(run) = run.filter(|run| run.row.run_number == run_number) else { return Ok(None) };
        let read = &run.bookkeeping.events_read;
        let typed = read.get(&read_entity(Some(entity.entity_type()), entity.key())).copied();
        let mut untyped = read.get(&read_entity(None, entity.key())).copied();
        // The run may have read another entity with this key when it named no type.
        if untyped.is_some() && call.input.get("entityType").is_some() {
            let mut input = (*call.input).clone();
            input.as_object_mut().map(|fields| fields.remove("entityType"));
            let call = LocalInvocation { input: Arc::new(input), metadata: call.metadata.clone() };
            if self.find_entity(&call).await?.as_ref() != Some(entity) {
                untyped = None;
            }
        }
        let position = typed.max(untyped);
        if position.is_none() && read.len() >= RunBookkeeping::EVENTS_READ_MAX {
            let message = format!(
                "the run has read {} entities, too many to know how far it has read {entity}: set upTo",
                read.len()
            );
            return Err(CallFailure::permanent("PositionReadUnknown", message));
        }
        Ok(position)
    }

    async fn readable<'e>(
        &self,
        entity: Option<&'e EntityId>,
    ) -> Result<Option<(&'e EntityId, EntityReader<'_, S>, EntityView)>, CallFailure> {
        let Some(entity) = entity else { return Ok(None) };
        let Some(reader) = self.entity_reader_for(entity) else { return Ok(None) };
        let view = reader.view(entity).await.map_err(|error| unreadable(&error))?;
        Ok(view.map(|view| (entity, reader, view)))
    }

    /// Events from a position on, as many as fit into one result, at least one.
    async fn events_within(
        &self,
        reader: &EntityReader<'_, S>,
        view: &EntityView,
        from: u64,
        most: usize,
        shown: fn(RecordedEvent) -> Value,
    ) -> Result<ReadEvents, CallFailure> {
        let bytes_max = self.result_bytes_max();
        let mut bytes = PAGE_BYTES;
        let mut events = Vec::new();
        let mut next = Some(from);
        while let Some(from) = next.filter(|_| events.len() < most) {
            let page_events = PAGE_EVENTS_MAX.min(most - events.len());
            let page = reader.events(view, from, page_events).await.map_err(|error| unreadable(&error))?;
            for event in page.events {
                let position = event.position;
                let event = shown(event);
                bytes += json::size(&event) + 1;
                if bytes > bytes_max && !events.is_empty() {
                    return Ok(ReadEvents { events, next: Some(position) });
                }
                events.push(event);
            }
            next = page.next;
        }
        Ok(ReadEvents { events, next })
    }

    fn result_bytes_max(&self) -> u64 {
        self.options.shard_config.run_limits.call_bytes_max
    }
}

/// The event with its position and time as further members, over members of its own with these names. An event that is
/// no object becomes the member `event`.
fn with_position(recorded: RecordedEvent) -> Value {
    let RecordedEvent { position, recorded_at, event } = recorded;
    let mut fields = match serde_json::from_str(event.get()).unwrap_or_default() {
        Value::Object(fields) => fields,
        event => serde_json::Map::from_iter([("event".to_owned(), event)]),
    };
    fields.insert("position".to_owned(), position.into());
    fields.insert("recordedAtUtc".to_owned(), recorded_at.to_string().into());
    Value::Object(fields)
}

fn in_object(recorded: RecordedEvent) -> Value {
    let RecordedEvent { position, recorded_at, event } = recorded;
    let event: Value = serde_json::from_str(event.get()).unwrap_or_default();
    json!({"position": position, "recordedAtUtc": recorded_at.to_string(), "event": event})
}

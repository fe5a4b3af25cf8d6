//! The inputs of the entity activities: their schemas, and the range of events they mean.
//!
//! Nothing is executed here.

use serde_json::{Value, json};

/// The most events of one page.
pub(super) const PAGE_EVENTS_MAX: usize = 1_000;

/// The last event an activity means. A position that is null means no event: `entity.get` returns null when there are
/// none, and events recorded after that must not be mistaken for events the workflow has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EventBound {
    Everything,
    Position(u64),
    Nothing,
}

impl EventBound {
    pub(super) fn parse(input: &Value) -> Self {
        match input.get("upTo") {
            None => Self::Everything,
            Some(position) => position.as_u64().map_or(Self::Nothing, Self::Position),
        }
    }

    /// The position after the last event, within the events that exist.
    pub(super) fn end_position(self, first: u64, next: u64) -> u64 {
        match self {
            Self::Everything => next,
            Self::Position(position) => position.saturating_add(1).min(next).max(first),
            Self::Nothing => first,
        }
    }
}

pub(super) fn entity_schema() -> Value {
    json!({
        "type": "object", "required": ["entityId"],
        "properties": {
            "entityId": {"type": "string", "description": "The entity's key."},
            "entityType": {
                "type": "string",
                "description": "The entity's type. If it is absent, the entity is meant for which the run was started, if it has this key, else the only entity with this key.",
            },
        },
    })
}

/// An object schema with further properties.
pub(super) fn with_properties(schema: &Value, further: &[(&str, Value)]) -> Value {
    let mut schema = schema.clone();
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.extend(further.iter().map(|(name, property)| ((*name).to_owned(), property.clone())));
    }
    schema
}

pub(super) fn read_up_to_schema() -> Value {
    json!({
        "type": ["integer", "null"], "minimum": 0,
        "description": "Only events up to and including this position, as in lastPosition of entity.get. Null means no event. If it is absent, all events are meant.",
    })
}

pub(super) fn clear_up_to_schema() -> Value {
    json!({
        "type": ["integer", "null"], "minimum": 0,
        "description": "The last position that is cleared. Null means no event. If it is absent, the events that the run has read are cleared, and none that came later.",
    })
}

pub(super) fn from_schema() -> Value {
    json!({
        "type": "integer", "minimum": 0,
        "description": "The first position of a page: nextFrom of the page before. With from or limit the result is a page, {events, nextFrom, more}.",
    })
}

pub(super) fn limit_schema() -> Value {
    json!({
        "type": "integer", "minimum": 1, "maximum": PAGE_EVENTS_MAX,
        "description": "The most events of a page, 100 by default. A page may have fewer: it ends before its bytes exceed the limit of a result.",
    })
}

pub(super) fn operation_schema() -> Value {
    json!({
        "type": "object", "required": ["entityType", "entityId", "operation"],
        "properties": {
            "entityType": {"type": "string", "description": "The entity's type."},
            "entityId": {"type": "string", "description": "The entity's key."},
            "operation": {
                "type": "string", "minLength": 1, "maxLength": 128,
                "description": "RecordEvent, GetEvents, Clear, GetState, or an operation of the entity's kind.",
            },
            "input": {
                "description": "The operation's input. For GetEvents {from, limit}: the first position, and 1 to 1000 events (default 100); the result is {events: [{position, recordedAtUtc, event}], nextPosition}. For Clear {upTo}: the last position that is cleared.",
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_means_the_events_up_to_it_and_null_means_none() {
        let end = |input: Value| EventBound::parse(&input).end_position(3, 7);
        assert_eq!(end(json!({})), 7);
        assert_eq!(end(json!({"upTo": 4})), 5);
        assert_eq!((end(json!({"upTo": 0})), end(json!({"upTo": u64::MAX}))), (3, 7));
        assert_eq!(end(json!({"upTo": null})), 3);
    }
}

//! What the activities of entities are given: its schemas, and up to which event is meant.

use serde_json::{Value, json};

/// Which events are meant. A position that is null means none: so says `entity.get` when there are none, and what is recorded after that
/// look must not be taken for what was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum UpTo {
    Everything,
    Position(u64),
    Nothing,
}

impl UpTo {
    pub(super) fn of(input: &Value) -> Self {
        match input.get("upTo") {
            None => Self::Everything,
            Some(position) => position.as_u64().map_or(Self::Nothing, Self::Position),
        }
    }

    /// The position after the last event that is meant.
    pub(super) fn until(self, first: u64, next: u64) -> u64 {
        match self {
            Self::Everything => next,
            Self::Position(position) => position.saturating_add(1).min(next).max(first),
            Self::Nothing => first,
        }
    }
}

pub(super) fn named_schema() -> Value {
    json!({
        "type": "object", "required": ["entityId"],
        "properties": {
            "entityId": {"type": "string", "description": "The entity's key."},
            "entityType": {
                "type": "string",
                "description": "The entity's type; without it, the one entity that has the key.",
            },
        },
    })
}

pub(super) fn up_to_schema() -> Value {
    json!({
        "type": ["integer", "null"], "minimum": 0,
        "description": "Only events up to this position, itself included, as lastPosition of entity.get has it; null means no event, and without it all are meant.",
    })
}

pub(super) fn asked_schema() -> Value {
    json!({
        "type": "object", "required": ["entityType", "entityId", "operation"],
        "properties": {
            "entityType": {"type": "string", "description": "The entity's type."},
            "entityId": {"type": "string", "description": "The entity's key."},
            "operation": {
                "type": "string", "minLength": 1, "maxLength": 128,
                "description": "RecordEvent, GetEvents, Clear, GetState, or one of the entity's kind.",
            },
            "input": {
                "description": "The operation's input. For GetEvents {from, limit}: the first position, and 1 to 1000 events, 100 without it; the answer is {events: [{position, recordedAtUtc, event}], nextPosition}. For Clear {upTo}: the last position that is cleared.",
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_means_the_events_up_to_it_and_null_means_none() {
        let until = |input: Value| UpTo::of(&input).until(3, 7);
        assert_eq!(until(json!({})), 7);
        assert_eq!(until(json!({"upTo": 4})), 5);
        assert_eq!((until(json!({"upTo": 0})), until(json!({"upTo": u64::MAX}))), (3, 7));
        assert_eq!(until(json!({"upTo": null})), 3);
    }
}

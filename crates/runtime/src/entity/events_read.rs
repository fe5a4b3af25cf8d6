//! What the result of a completed call says about the events that its run has read, so that the run can clear these and
//! no later ones.
//!
//! The result is that of an entity activity. It is not known here where the position is kept.

use serde_json::Value;

/// The activity that reads the events of an entity.
pub(crate) const GET_EVENTS: &str = "GetEntityEvents";
/// The activity that executes an operation by name; `GetEvents` is one.
pub(crate) const CALL: &str = "entity.call";

/// Up to where a run has read the events of an entity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct EventsRead {
    /// Names the entity within the run: see [`read_entity`].
    pub(crate) entity: String,
    /// Of the last event read.
    pub(crate) position: u64,
}

/// The entity as the input of a call names it: the type in lower case, or nothing, then NUL and the key.
pub(crate) fn read_entity(entity_type: Option<&str>, key: &str) -> String {
    format!("{}\0{key}", entity_type.unwrap_or_default().to_ascii_lowercase())
}

/// What the run has read with this call. None if it is no reading call, or read no event.
pub(crate) fn events_read(activity: &str, input: &Value, result: &Value) -> Option<EventsRead> {
    let text = |name: &str| input.get(name).and_then(Value::as_str);
    let reads = match activity {
        GET_EVENTS => true,
        CALL => text("operation").is_some_and(|name| name.eq_ignore_ascii_case("GetEvents")),
        _ => false,
    };
    if !reads {
        return None;
    }
    let events = result.get("events").unwrap_or(result).as_array()?;
    let position = events.last()?.get("position")?.as_u64()?;
    Some(EventsRead { entity: read_entity(text("entityType"), text("entityId")?), position })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_position_is_that_of_the_last_event_of_a_list_or_a_page() {
        let input = json!({"entityId": "k", "entityType": "Device", "operation": "getevents"});
        let events = json!([{"position": 3}, {"position": 7}]);
        let read = Some(EventsRead { entity: "device\0k".to_owned(), position: 7 });
        assert_eq!(events_read(GET_EVENTS, &input, &events), read);
        assert_eq!(events_read(CALL, &input, &json!({"events": events, "nextPosition": 8})), read);
        let untyped = events_read(GET_EVENTS, &json!({"entityId": "k"}), &events);
        assert_eq!(untyped.map(|read| read.entity), Some("\0k".to_owned()));
    }

    #[test]
    fn other_calls_and_empty_results_read_nothing() {
        let input = json!({"entityId": "k", "operation": "RecordEvent"});
        for (activity, result) in [
            (CALL, json!({"position": 3})),
            ("work", json!([{"position": 3}])),
            (GET_EVENTS, json!([])),
            (GET_EVENTS, json!({"events": [], "nextFrom": null})),
            (GET_EVENTS, json!(null)),
        ] {
            assert_eq!(events_read(activity, &input, &result), None, "{activity}");
        }
    }
}

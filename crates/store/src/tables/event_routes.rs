//! Event routes: how an external event of a type is handled.
//!
//! One row per event type. A route names the type of the entity that records the event, and the action on the workflow.
//! The table does not know where the entity key is in an event, nor if the workflow exists.

use abide_ids::Timestamp;
use serde::{Deserialize, Serialize};

use super::{KeyReader, KeyWriter, TableError, TableId, TableRow};
use crate::rows::{Key, Scan};

/// The action on the workflow when an event arrives. Stored by position: append only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum EventRouteAction {
    /// Start a run, or raise the event in the active run.
    StartOrRaise,
    /// Start a run; never raise the event.
    Start,
    /// Raise the event in the active run; never start one.
    Raise,
    /// Only record the event in the entity.
    Record,
}

/// The route of one event type.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EventRouteRow {
    /// The type of the entity that records the event.
    pub entity_type: String,
    /// The definition whose run is started or gets the event; absent if the event is only recorded.
    pub workflow: Option<String>,
    /// The version or version range to start; if absent, the default version.
    pub version: Option<String>,
    pub action: EventRouteAction,
    /// The name under which the event is raised; if absent, its type.
    pub event_name: Option<String>,
    /// When the route was last changed.
    pub updated_at: Timestamp,
}

impl TableRow for EventRouteRow {
    const TABLE: TableId = TableId::EventRoute;
    const FORMAT: u8 = 1;
}

/// The key of an event type's route.
pub fn key(event_type: &str) -> Key {
    KeyWriter::new(TableId::EventRoute).text(event_type).key()
}

/// The event type in a key.
pub fn read_key(key: &Key) -> Result<String, TableError> {
    let mut reader = KeyReader::new(TableId::EventRoute, key)?;
    let event_type = reader.text()?;
    reader.finish(event_type)
}

/// All event routes, in the order of their event types.
pub fn all() -> Scan {
    TableId::EventRoute.scan()
}

#[cfg(test)]
mod tests {
    use super::super::codec::laws::{keys_round_trip_in_order, value_round_trips};
    use super::EventRouteAction::*;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_route_round_trips(
            entity_type in ".{0,20}",
            names: [Option<String>; 3],
            action in prop::sample::select(vec![StartOrRaise, Start, Raise, Record]),
            updated_at: Timestamp,
        ) {
            let [workflow, version, event_name] = names;
            value_round_trips(&EventRouteRow { entity_type, workflow, version, action, event_name, updated_at });
        }

        #[test]
        fn routes_sort_by_event_type(types in prop::collection::vec(".{0,20}", 1..8)) {
            keys_round_trip_in_order(types, |event_type| key(event_type), read_key);
        }
    }
}

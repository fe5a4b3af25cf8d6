//! Routes: what happens when an event of a type comes in from outside.
//!
//! One row per event type. A route says which entity the event belongs to and what is done with the workflow
//! beside it; how the entity's key is found in an event, and whether the workflow exists, is not known here.

use serde::{Deserialize, Serialize};

use super::{KeyReader, KeyWriter, Stored, Table, TableError};
use crate::rows::{Key, Scan};

/// What an event does to the workflow. Stored by place: append only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RouteAction {
    /// Start a run, or raise the event in the one that lives.
    StartOrRaise,
    /// Start a run, and nothing else.
    Start,
    /// Raise the event in the run that lives, and start none.
    Raise,
    /// Record the event in the entity, and nothing more.
    Record,
}

/// Where events of a type go.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Route {
    /// The type of the entity that records the event.
    pub entity_type: String,
    /// The definition that is started or told, unless the event is only recorded.
    pub workflow: Option<String>,
    /// The version or range of versions to start; the default version if there is none.
    pub version: Option<String>,
    /// What is done.
    pub action: RouteAction,
    /// The name the event is raised under; its type if there is none.
    pub event_name: Option<String>,
    /// When the route was last changed, in milliseconds of UTC since 1970.
    pub updated_at: i64,
}

impl Stored for Route {
    const TABLE: Table = Table::Route;
    const FORMAT: u8 = 1;
}

/// The row of an event type.
pub fn key(event_type: &str) -> Key {
    KeyWriter::new(Table::Route).text(event_type).key()
}

/// The event type of a key.
pub fn read_key(key: &Key) -> Result<String, TableError> {
    let mut reader = KeyReader::new(Table::Route, key)?;
    let event_type = reader.text()?;
    reader.end(event_type)
}

/// All routes, in the order of event types.
pub fn all() -> Scan {
    Table::Route.scan()
}

#[cfg(test)]
mod tests {
    use super::super::codec::laws::{keys_round_trip_in_order, value_round_trips};
    use super::RouteAction::*;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_route_survives_its_bytes(
            entity_type in ".{0,20}",
            names: [Option<String>; 3],
            action in prop::sample::select(vec![StartOrRaise, Start, Raise, Record]),
            updated_at: i64,
        ) {
            let [workflow, version, event_name] = names;
            value_round_trips(&Route { entity_type, workflow, version, action, event_name, updated_at });
        }

        #[test]
        fn routes_sort_by_event_type(types in prop::collection::vec(".{0,20}", 1..8)) {
            keys_round_trip_in_order(types, |event_type| key(event_type), read_key);
        }
    }
}

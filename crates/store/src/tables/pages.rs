//! Pages of a run's history: one row per turn, with what the turn told and what it changed.
//!
//! The changed parts ride in the page, so a turn is one row. They are folded into the rows of [`super::parts`] when the instance
//! rests; until then a run is its folded parts with the changes of every later page laid over them.

use serde::{Deserialize, Serialize};

use super::{KeyReader, KeyWriter, Stored, Table, TableError};
use crate::rows::{Key, Scan};

/// One turn.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Page {
    /// The number of its first event within the run.
    pub first_event: u64,
    /// How many events it has.
    pub events_count: u32,
    /// When the turn was, in milliseconds of UTC since 1970.
    pub at: i64,
    /// The events, in the encoding of whoever advances the run.
    pub events: Vec<u8>,
    /// Part key → its new bytes, or `None` if the part is gone.
    pub changes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Stored for Page {
    const TABLE: Table = Table::Page;
    const FORMAT: u8 = 1;
}

impl Page {
    /// The number of its last event, or 0 if it has none.
    pub fn last_event(&self) -> u64 {
        match u64::from(self.events_count) {
            0 => 0,
            count => self.first_event.saturating_add(count - 1),
        }
    }
}

/// The page of a run's turn.
pub fn key(run: u64, turn: u64) -> Key {
    KeyWriter::new(Table::Page).u64(run).u64(turn).key()
}

/// Run and turn of a page's key.
pub fn read_key(key: &Key) -> Result<(u64, u64), TableError> {
    let mut reader = KeyReader::new(Table::Page, key)?;
    let fields = (reader.u64()?, reader.u64()?);
    reader.end(fields)
}

/// The pages of a run after this one, in order.
pub fn after(run: u64, turn: u64) -> Scan {
    let until = KeyWriter::new(Table::Page).u64(run).scan().until;
    Scan::between(std::ops::Bound::Excluded(key(run, turn)), until)
}

/// All pages of a run, in order.
pub fn of_run(run: u64) -> Scan {
    KeyWriter::new(Table::Page).u64(run).scan()
}

#[cfg(test)]
mod tests {
    use super::super::codec::laws::{keys_round_trip_in_order, value_round_trips};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_page_survives_its_bytes(
            first_event: u64,
            events_count: u32,
            at: i64,
            events: Vec<u8>,
            changes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
        ) {
            value_round_trips(&Page { first_event, events_count, at, events, changes });
        }

        #[test]
        fn pages_sort_by_run_and_turn(keys: Vec<(u64, u64)>) {
            keys_round_trip_in_order(keys, |(run, turn)| key(*run, *turn), read_key);
        }
    }
}

//! The tables, one file each: what a row means, how its key and its value are encoded.
//!
//! Private tables share the rows of a partition; the first byte of a key is the table's tag, so a table is a key prefix. Values
//! begin with the format version of their table. What the runtime's own codecs produce (parts of an instance, messages, history
//! events) is bytes here. The formats are described in docs/formats/store.md.
//!
//! Nothing here reads or writes a store.

mod codec;
mod json_text;
mod key;
mod public_cells;

pub mod activities;
pub mod arrivals;
pub mod dedupe;
pub mod default_versions;
pub mod definitions;
pub mod dispatches;
pub mod earlier_runs;
pub mod engine_dlq;
pub mod engine_history;
pub mod entities;
pub mod entity_events;
pub mod expiries;
pub mod heads;
pub mod inbox;
pub mod instances;
pub mod outbox;
pub mod pages;
pub mod parts;
pub mod payloads;
pub mod public_instances;
pub mod registry;
pub mod routes;
pub mod sources;
pub mod state_documents;
pub mod timers;

pub use codec::{Stored, TableError, decode, encode};
pub use json_text::JsonText;
pub use key::{KeyReader, KeyWriter, Table};
pub use public_cells::ColumnError;

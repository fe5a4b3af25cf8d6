//! The tables, one file each: the meaning of a row, and the encoding of its key and its value.
//!
//! Private tables share the rows of a partition. The first byte of a key is the table's tag, so a table is a key
//! prefix. Values begin with the format version of their table. Parts of an instance, messages and history events are
//! bytes here: the runtime's own codecs make them. The formats are described in docs/formats/store.md.
//!
//! Nothing here reads or writes a store.

mod codec;
mod json_text;
mod key;
mod public_cells;

pub mod activity_declarations;
pub mod calls;
pub mod dead_letters;
pub mod default_versions;
pub mod definitions;
pub mod earlier_runs;
pub mod engine_history;
pub mod entities;
pub mod entity_events;
pub mod event_routes;
pub mod expiries;
pub mod heads;
pub mod history_pages;
pub mod idempotency;
pub mod inbound;
pub mod inbound_watermarks;
pub mod inbox;
pub mod instances;
pub mod outbox;
pub mod parts;
pub mod payloads;
pub mod public_instances;
pub mod registry;
pub mod state_documents;
pub mod timers;

pub use codec::{TableError, TableRow, decode, encode};
pub use json_text::JsonDocument;
pub use key::{KeyReader, KeyWriter, TableId};
pub use public_cells::ColumnError;

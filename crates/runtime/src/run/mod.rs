//! A run as it is stored: its row, its parts, the pages laid over them, its calls.
//!
//! Reading it is all here, for whoever loads a run, shows one or checks one. Writing is the shard's.

mod book;
mod history;
mod journal;
mod journaled;
mod numbered;
mod stored;
mod task_events;

pub use book::{Book, Change};
pub use history::{HistoryPage, HistoryPlace, ShowError};
pub use journal::{CallReader, OpenCalls, OpenPlace, SettledCalls, SettledPlace};
pub use journaled::{CallState, JournaledCall};
pub use numbered::NumberedRun;
pub use stored::{RunReader, StoredCall, StoredRun, UnreadableRun};
pub use task_events::{TaskEvent, TaskEventType};

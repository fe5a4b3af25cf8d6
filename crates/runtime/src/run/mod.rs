//! Reads stored runs: the row, the parts, the pages that overlay them, and the calls.
//!
//! Everything that loads, shows or checks a run reads it here. Runs are written by the shard only; it shares the
//! entries, statuses and views defined here.

mod bookkeeping;
mod by_number;
mod call_reader;
mod call_record;
pub(crate) mod held_back;
mod history;
mod load;
pub(crate) mod run_status;
mod task_events;
pub(crate) mod view;

pub use bookkeeping::{EntryChange, RunBookkeeping, StuckWatch};
pub use by_number::RunRef;
pub use call_reader::{CallReader, OpenCallCursor, OpenCallsPage, SettledCallCursor, SettledCallsPage};
pub(crate) use call_record::transport_and_target;
pub use call_record::{CallRecord, CallState};
pub use held_back::HeldBack;
pub use history::{HistoryCursor, HistoryPage, RunReadError};
pub use load::{RunReader, StoredRun, UnreadableRun};
pub use task_events::{TaskEvent, TaskEventType};

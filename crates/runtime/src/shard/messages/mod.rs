//! Messages between shards: those that leave, and those that arrive.
//!
//! What a message does to its run is not known here.

pub(super) mod inbound;
pub(super) mod outbox;
mod send;

pub(super) use send::{put_in_inbox, send_run_message};

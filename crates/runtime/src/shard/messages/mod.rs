//! Messages between shards: those that leave, and those that arrive.
//!
//! What a message does to its run is not known here.

pub(super) mod inbound;
pub(super) mod outbox;

//! The canonical dispatch metadata: seven keys, the same in HTTP headers, gRPC metadata and the LOCAL call.
//!
//! This file names the keys and their meaning; encoding and decoding them is one function each, shared by all transports.

/// Set at ingress, never changed afterwards.
pub const CORRELATION_ID: &str = "x-tpf-correlation-id";
/// Instance id and run number.
pub const EXECUTION_ID: &str = "x-tpf-execution-id";
/// Deterministic from the work's identity; the receiver's dedupe key.
pub const IDEMPOTENCY_KEY: &str = "x-tpf-idempotency-key";
/// Possible deliveries before this one, from 0.
pub const RETRY_ATTEMPT: &str = "x-tpf-retry-attempt";
/// Absolute, in epoch milliseconds; absent = no guard at the receiver.
pub const DEADLINE: &str = "x-tpf-deadline-epoch-ms";
/// When this attempt left, in epoch milliseconds.
pub const DISPATCHED_AT: &str = "x-tpf-dispatch-ts-epoch-ms";
/// The key of the item that fanned out into this one; absent outside maps, branches and children.
pub const PARENT_ITEM_ID: &str = "x-tpf-parent-item-id";

/// What travels with every call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metadata {
    /// [`CORRELATION_ID`]
    pub correlation_id: String,
    /// [`EXECUTION_ID`]
    pub execution_id: String,
    /// [`IDEMPOTENCY_KEY`]
    pub idempotency_key: String,
    /// [`RETRY_ATTEMPT`]
    pub retry_attempt: u32,
    /// [`DEADLINE`]
    pub deadline_epoch_ms: Option<i64>,
    /// [`DISPATCHED_AT`]
    pub dispatched_at_epoch_ms: i64,
    /// [`PARENT_ITEM_ID`]
    pub parent_item_id: Option<String>,
}

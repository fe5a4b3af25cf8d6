//! The options of a receiver: limits of time, size and concurrency, and their defaults. It enforces none of them.

use std::time::Duration;

use abide_dispatch::wire::{OUTPUT_BYTES_MAX, REQUEST_BYTES_MAX};

/// Options of a receiver. A value above a limit of the contract is reduced to that limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReceiverOptions {
    /// The partition of the store for all rows of the receiver; no other program writes to it.
    pub partition: String,
    /// Time limit of a handler and its claim if the call has no deadline.
    pub handler_timeout: Duration,
    /// How long a result is kept after the call finished: longer than any sender keeps retrying.
    pub retention: Duration,
    /// Handlers that run concurrently; further calls are rejected until one ends.
    pub concurrent_handlers_max: usize,
    pub body_bytes_max: usize,
    /// Time limit for reading a request's body.
    pub body_timeout: Duration,
    /// The store's limit on values, less the overhead of a record, applies as well.
    pub output_bytes_max: usize,
}

impl Default for ReceiverOptions {
    fn default() -> Self {
        Self {
            partition: "receiver".to_owned(),
            handler_timeout: Duration::from_secs(10 * 60),
            retention: Duration::from_secs(7 * 24 * 3_600),
            concurrent_handlers_max: 4_096,
            body_bytes_max: REQUEST_BYTES_MAX,
            body_timeout: Duration::from_secs(30),
            output_bytes_max: OUTPUT_BYTES_MAX,
        }
    }
}

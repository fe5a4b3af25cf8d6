//! How a receiver is run: how long things are kept and may take, and how much there may be of them.

use std::time::Duration;

use abide_dispatch::wire::{BODY_BYTES_MAX, PAYLOAD_BYTES_MAX};

/// Settings of a receiver. What is over a limit of the contract is cut down to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The partition of the store that everything is kept in; nobody else writes there.
    pub partition: String,
    /// How long a handler may take, and its claim holds, where the call has no deadline.
    pub handler_timeout: Duration,
    /// How long an answer is kept after it was given: longer than any sender goes on trying.
    pub retention: Duration,
    /// Handlers that run at once; more are refused until there is room.
    pub running_max: usize,
    /// Bytes of a request's body.
    pub body_bytes_max: usize,
    /// How long a request's body may take to come in.
    pub body_timeout: Duration,
    /// Bytes of an answer. The store's own limit, less what is around it, holds as well.
    pub answer_bytes_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            partition: "receiver".to_owned(),
            handler_timeout: Duration::from_secs(10 * 60),
            retention: Duration::from_secs(7 * 24 * 3_600),
            running_max: 4_096,
            body_bytes_max: BODY_BYTES_MAX,
            body_timeout: Duration::from_secs(30),
            answer_bytes_max: PAYLOAD_BYTES_MAX,
        }
    }
}

/// A duration in the unit of all moments.
pub(crate) fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

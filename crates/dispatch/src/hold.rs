//! Why an attempt is held back: something other than the activity keeps it from being sent.
//!
//! What is held back was not sent, so it uses up neither an attempt nor a failure. It is tried again until it can be
//! sent or the deadline of its call has passed. Who waits how long is not decided here.

use std::time::Duration;

/// Why an attempt is held back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum HoldReason {
    /// No connection to the target could be made: refused, unreachable, no address, or TLS not finished.
    NotConnected,
    /// The circuit breaker of the target is open, or waits for the outcome of its trial.
    CircuitOpen,
    /// A rate limit of the activity or of the target.
    RateLimit,
    /// A concurrency limit of the activity, of the target or of the node.
    ConcurrencyLimit,
}

impl HoldReason {
    /// All reasons, in the order in which metrics show them.
    pub const ALL: [Self; 4] =
        [Self::NotConnected, Self::CircuitOpen, Self::RateLimit, Self::ConcurrencyLimit];

    /// The error code that a step sees, and that retry policies may name.
    pub fn code(self) -> &'static str {
        match self {
            Self::NotConnected => "ConnectFailed",
            Self::CircuitOpen => "CircuitOpen",
            Self::RateLimit | Self::ConcurrencyLimit => "TargetBusy",
        }
    }

    /// The stable word that users and other programs read.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotConnected => "not_connected",
            Self::CircuitOpen => "circuit_open",
            Self::RateLimit => "rate_limit",
            Self::ConcurrencyLimit => "concurrency_limit",
        }
    }
}

/// The report of an attempt that is held back and waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HoldNotice {
    pub reason: HoldReason,
    /// What happened, for operators.
    pub message: String,
    /// When it is tried again at the latest, from now.
    pub retry_in: Duration,
}

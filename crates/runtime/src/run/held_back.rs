//! What holds a call back, as clients are shown it, and the stored form of the reasons.

use abide_dispatch::HoldReason;
use abide_store::tables::calls::{CallHold, CallHoldReason};
use abide_workflow::Timestamp;

/// What holds a call back: nothing of its next attempt has been sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldBack {
    pub reason: HoldReason,
    /// Since when nothing could be sent.
    pub since: Timestamp,
    /// When it was to be tried again, as of the time when the reason was recorded.
    pub until: Timestamp,
}

impl HeldBack {
    pub(crate) fn of(hold: CallHold) -> Self {
        let CallHold { reason, since, until } = hold;
        Self { reason: hold_reason(reason), since, until }
    }
}

/// The reason in a row.
pub(crate) fn hold_reason(reason: CallHoldReason) -> HoldReason {
    match reason {
        CallHoldReason::NotConnected => HoldReason::NotConnected,
        CallHoldReason::CircuitOpen => HoldReason::CircuitOpen,
        CallHoldReason::RateLimit => HoldReason::RateLimit,
        CallHoldReason::ConcurrencyLimit => HoldReason::ConcurrencyLimit,
    }
}

/// The reason as it is stored.
pub(crate) fn stored_hold_reason(reason: HoldReason) -> CallHoldReason {
    match reason {
        HoldReason::NotConnected => CallHoldReason::NotConnected,
        HoldReason::CircuitOpen => CallHoldReason::CircuitOpen,
        HoldReason::RateLimit => CallHoldReason::RateLimit,
        HoldReason::ConcurrencyLimit => CallHoldReason::ConcurrencyLimit,
    }
}

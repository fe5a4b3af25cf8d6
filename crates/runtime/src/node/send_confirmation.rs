//! Whether an attempt that was held back may be sent: only once the shard has recorded it. Sends nothing itself.

use std::sync::{Mutex, MutexGuard, PoisonError};

use abide_dispatch::HoldReason;
use tokio::sync::Notify;

use crate::event::SendTicket;

/// Whether an attempt that was held back may be sent: only once the shard has recorded it.
#[derive(Debug)]
pub(super) struct Confirmation {
    pub(super) ticket: SendTicket,
    state: Mutex<ConfirmationState>,
    allowed: Notify,
}

#[derive(Debug, Default)]
struct ConfirmationState {
    /// The row of the call says that it was not sent, or will.
    is_needed: bool,
    /// The reason that the shard was told last.
    reported: Option<HoldReason>,
}

impl Confirmation {
    pub(super) fn new(ticket: SendTicket, is_needed: bool) -> Self {
        let state = ConfirmationState { is_needed, reported: None };
        Self { ticket, state: Mutex::new(state), allowed: Notify::new() }
    }

    /// The attempt is held back. True if the shard does not know that.
    pub(super) fn begin_hold(&self, reason: HoldReason) -> bool {
        let mut state = self.state();
        state.is_needed = true;
        state.reported.replace(reason) != Some(reason)
    }

    pub(super) fn must_request(&self) -> bool {
        self.state().is_needed
    }

    /// The shard has recorded that the attempt may have been sent.
    pub(super) fn allow(&self) {
        *self.state() = ConfirmationState::default();
        self.allowed.notify_one();
    }

    /// A request is dropped only together with its attempt, so whatever allows it answers this one.
    pub(super) async fn allowed(&self) {
        while self.must_request() {
            self.allowed.notified().await;
        }
    }

    fn state(&self) -> MutexGuard<'_, ConfirmationState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! The view of a run in memory, for clients that wait for its end and for operators.
//!
//! It reads only. A run in memory looks as a stored one does: [`view`](crate::run::view) builds both.

use crate::request::RunView;
use crate::run::held_back::HeldBack;
use crate::run::view::{CallSummary, view, waits_until};
use crate::shard::run::run_state::ResidentRun;

impl ResidentRun {
    /// The run as it is in memory, which may be ahead of the store: a reply that shows it must wait for its batch.
    pub(in crate::shard) fn view(&self) -> RunView {
        view(&self.row, &self.plan, &self.instance, &self.bookkeeping, |command| {
            let call = self.calls.get(&command)?;
            let record = call.journal.record();
            let until = waits_until(call.not_before, record.deadline_at);
            let held = call.hold.map(HeldBack::of);
            Some(CallSummary { activity: call.activity.clone(), attempt: record.attempt, until, held })
        })
    }
}

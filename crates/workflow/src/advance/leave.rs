//! A branch leaves its state: with a result, to a handler, or not at all because it has failed.

use std::sync::Arc;

use serde_json::Value;

use crate::failure::{Failure, code};
use crate::history::{BranchOutcome, Fact};
use crate::ids::BranchId;
use crate::instance::{Corrupt, FailedAt, Phase, SlotName, Then};
use crate::json::{self, Json};
use crate::limits::definition::JSON_DEPTH_MAX;
use crate::path::{Reference, Root, Roots};

use super::pass::Pass;

impl Pass<'_> {
    /// The state is done: its result goes to `output`, the branch to `next`.
    pub(super) fn complete(&mut self, branch: BranchId, result: Option<Json>) -> Result<(), Corrupt> {
        let (_, state) = self.place(branch)?;
        if let (Some(output), Some(result)) = (&state.output, result)
            && let Err(failure) = self.assign(branch, output, result)
        {
            return self.raise(branch, failure);
        }
        match &state.next {
            Some(next) => self.go(branch, next),
            None => Err(Corrupt::new(format!("state {} has nowhere to go", state.path))),
        }
    }

    /// Moves a branch to another state of its block.
    pub(super) fn go(&mut self, branch: BranchId, next: &str) -> Result<(), Corrupt> {
        let target = self.plan.target(self.instance.branch(branch)?.block, next)?;
        let path = self.plan.state(target)?.path.clone();
        self.record_left(branch, Some(path), None)?;
        self.move_to(branch, target)
    }

    pub(super) fn move_to(&mut self, branch: BranchId, target: crate::ids::StateId) -> Result<(), Corrupt> {
        self.instance.change_branch(branch, |at| {
            at.state = target;
            at.visit = 0;
            at.phase = Phase::Ready;
        })?;
        self.wake(branch);
        Ok(())
    }

    pub(super) fn record_left(
        &mut self,
        branch: BranchId,
        next: Option<String>,
        error: Option<Failure>,
    ) -> Result<(), Corrupt> {
        let state = self.place(branch)?.1.path.clone();
        self.record(Fact::StateLeft { branch, state, next, error });
        Ok(())
    }

    /// Writes a value into the branch's own copy of `$.state`.
    pub(super) fn assign(
        &mut self,
        branch: BranchId,
        output: &Reference,
        value: Json,
    ) -> Result<(), Failure> {
        let value = if output.is_whole_slot() {
            value
        } else {
            let scope = self.scope(branch);
            let slot = scope.field(Root::State, output.slot());
            let written = output.assign(slot.as_deref(), Arc::unwrap_or_clone(value));
            Arc::new(written.map_err(|error| Failure::last(code::TYPE_MISMATCH, error.to_string()))?)
        };
        if !json::depth_within(&value, JSON_DEPTH_MAX) {
            let message = format!("{} would be nested more than {JSON_DEPTH_MAX} levels deep", output.text());
            return Err(Failure::last(code::DEPTH_EXCEEDED, message));
        }
        self.put(branch, SlotName::State(output.slot().to_owned()), value)
    }

    /// Puts a piece of data, within the run's limit.
    pub(super) fn put(&mut self, branch: BranchId, name: SlotName, value: Json) -> Result<(), Failure> {
        let max = self.limits.data_bytes_max;
        self.instance.put_slot(branch, name, value, max).map_err(|bytes| {
            let message = format!("the run's data would have {bytes} bytes; the limit is {max}");
            Failure::last(code::DATA_LIMIT_EXCEEDED, message)
        })
    }

    /// An error in a branch's state: to the first handler that takes it, or the branch fails.
    pub(super) fn raise(&mut self, branch: BranchId, failure: Failure) -> Result<(), Corrupt> {
        let (at, state) = self.place(branch)?;
        let failed_at = FailedAt { branch, state: at.state, visit: at.visit };
        let origin = failure.state.clone().unwrap_or_else(|| state.name.clone());
        let failure = Failure { state: Some(origin), ..failure };
        self.instance.header_mut().failed_at = Some(failed_at);
        let Some(handler) = state.on_error.iter().find(|handler| handler.takes(&failure.code)) else {
            self.record_left(branch, None, Some(failure.clone()))?;
            return self.fail_branch(branch, failure);
        };
        let error: Json = Arc::new(failure.to_json());
        // The error is small and must be seen even by a run whose data is at its limit.
        let fits = self.instance.put_slot(branch, SlotName::Error, error.clone(), u64::MAX);
        debug_assert!(fits.is_ok(), "an unlimited slot is never refused");
        if let Some(output) = &handler.output
            && let Err(second) = self.assign(branch, output, error)
        {
            let second = Failure { state: Some(state.name.clone()), ..second };
            self.record_left(branch, None, Some(second.clone()))?;
            return self.fail_branch(branch, second);
        }
        let target = self.plan.target(state.block, &handler.next)?;
        let path = self.plan.state(target)?.path.clone();
        self.record_left(branch, Some(path), Some(failure))?;
        self.move_to(branch, target)
    }

    /// The error `$.error` shows to a branch.
    pub(super) fn caught_error(&self, branch: BranchId) -> Option<Failure> {
        let scope = self.scope(branch);
        let error = scope.whole(Root::Error)?;
        let text = |name: &str| error.get(name).and_then(Value::as_str).map(str::to_owned);
        Some(Failure {
            code: text("code")?,
            message: text("message")?,
            state: text("state"),
            retryable: error.get("retryable").and_then(Value::as_bool).unwrap_or(false),
        })
    }

    /// Nobody in the branch took the error: the first fan-out above that tolerates or catches it does, or the run fails.
    pub(super) fn fail_branch(&mut self, branch: BranchId, failure: Failure) -> Result<(), Corrupt> {
        let mut failed = branch;
        while let Some(parent) = self.instance.branch(failed)?.parent {
            let (_, owner) = self.place(parent.branch)?;
            let tolerated = self.tolerates_failure(parent.branch)?;
            let caught = owner.on_error.iter().any(|handler| handler.takes(&failure.code));
            if (tolerated && failed != branch) || (caught && !tolerated) {
                self.record(Fact::BranchEnded { branch, outcome: BranchOutcome::Failed });
                self.set_phase(branch, Phase::Failed(failure.clone()))?;
                self.rest(branch);
            }
            if tolerated {
                return self.collapse(failed, Then::FailBranch(failure));
            }
            if caught {
                return self.collapse(parent.branch, Then::Raise(failure));
            }
            failed = parent.branch;
        }
        self.set_phase(branch, Phase::Failed(failure.clone()))?;
        self.rest(branch);
        self.fail_run(failure)
    }

    /// A wait or a step took too long.
    pub(super) fn timed_out(&mut self, branch: BranchId) -> Result<(), Corrupt> {
        let (_, state) = self.place(branch)?;
        match &state.timeout_next {
            Some(next) => self.go(branch, next),
            None => {
                let limit = state.timeout.map_or_else(String::new, |timeout| format!(" {timeout}"));
                self.raise(branch, Failure::last(code::TIMEOUT, format!("not done within{limit}")))
            }
        }
    }
}

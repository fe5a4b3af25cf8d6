//! Leaves a state: with a result, to an error handler, or by failing the branch. It does not start the next state;
//! `enter` does.

use std::sync::Arc;

use serde_json::Value;

use crate::definition::StateKind;
use crate::evaluation::BudgetExhausted;
use crate::failure::{Failure, code};
use crate::history::{BranchOutcome, Fact};
use crate::ids::BranchId;
use crate::instance::{AfterCollapse, CorruptInstance, Phase, RewindPoint, SlotName};
use crate::json::{self, Json};
use crate::limits::definition::JSON_DEPTH_MAX;
use crate::path::{Reference, Root, Roots};

use super::interpreter::Interpreter;

impl Interpreter<'_> {
    /// Completes the state: the result is written to `output`, and the branch moves to `next`.
    pub(super) fn complete_state(
        &mut self,
        branch: BranchId,
        result: Option<Json>,
    ) -> Result<(), CorruptInstance> {
        let (_, state) = self.branch_and_state(branch)?;
        if let (Some(output), Some(result)) = (&state.output, result)
            && let Err(failure) = self.assign(branch, output, result)
        {
            return self.raise(branch, failure);
        }
        match &state.next {
            Some(next) => self.transition_to(branch, next),
            None => Err(CorruptInstance::new(format!("state {} has no next state", state.path))),
        }
    }

    /// Moves a branch to another state of its block.
    pub(super) fn transition_to(&mut self, branch: BranchId, next: &str) -> Result<(), CorruptInstance> {
        let target = self.plan.target(self.instance.branch(branch)?.block, next)?;
        let path = self.plan.state(target)?.path.clone();
        self.record_state_left(branch, Some(path), None)?;
        self.move_to(branch, target)
    }

    pub(super) fn move_to(
        &mut self,
        branch: BranchId,
        target: crate::ids::StateId,
    ) -> Result<(), CorruptInstance> {
        self.instance.change_branch(branch, |at| {
            at.state = target;
            at.visit = 0;
            at.phase = Phase::Ready;
        })?;
        self.mark_ready(branch);
        Ok(())
    }

    pub(super) fn record_state_left(
        &mut self,
        branch: BranchId,
        next: Option<String>,
        error: Option<Failure>,
    ) -> Result<(), CorruptInstance> {
        let state = self.branch_and_state(branch)?.1.path.clone();
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
            let exceeded = |exhausted: BudgetExhausted| exhausted.at(output.text());
            let slot = scope.root_field(Root::State, output.slot()).map_err(exceeded)?;
            // The slot is copied, and the value may be shared.
            slot.iter().try_for_each(|slot| self.budget.charge_copy(slot)).map_err(exceeded)?;
            self.budget.charge_copy(&value).map_err(exceeded)?;
            let assigned = output.assign(slot.as_deref(), Arc::unwrap_or_clone(value));
            Arc::new(assigned.map_err(|error| Failure::permanent(code::TYPE_MISMATCH, error.to_string()))?)
        };
        if !json::depth_within(&value, JSON_DEPTH_MAX) {
            let message = format!("{} would be nested more than {JSON_DEPTH_MAX} levels deep", output.text());
            return Err(Failure::permanent(code::DEPTH_EXCEEDED, message));
        }
        self.put_data(branch, SlotName::State(output.slot().to_owned()), value)
    }

    /// Writes a data slot, within the run's data limit.
    pub(super) fn put_data(&mut self, branch: BranchId, name: SlotName, value: Json) -> Result<(), Failure> {
        let max = self.limits.data_bytes_max;
        self.instance.put_slot(branch, name, value, max).map_err(|bytes| {
            let message = format!("the run's data would have {bytes} bytes; the limit is {max}");
            Failure::permanent(code::DATA_LIMIT_EXCEEDED, message)
        })
    }

    /// Raises an error in a branch's state: the first matching handler catches it, or the branch fails.
    pub(super) fn raise(&mut self, branch: BranchId, failure: Failure) -> Result<(), CorruptInstance> {
        let (at, state) = self.branch_and_state(branch)?;
        let rewind_point = RewindPoint { branch, state: at.state, visit: at.visit };
        let origin = failure.state.clone().unwrap_or_else(|| state.name.clone());
        let failure = Failure { state: Some(origin), ..failure };
        self.instance.header_mut().rewind_point = Some(rewind_point);
        self.forget_unanswered_calls_outside(rewind_point)?;
        let Some(handler) = state.on_error.iter().find(|handler| handler.handles(&failure.code)) else {
            self.record_state_left(branch, None, Some(failure.clone()))?;
            return self.fail_branch(branch, failure);
        };
        let error: Json = Arc::new(failure.to_json());
        // The error is small, and must be visible even to a run whose data is at its limit.
        let fits = self.instance.put_slot(branch, SlotName::Error, error.clone(), u64::MAX);
        debug_assert!(fits.is_ok(), "an unlimited slot is never refused");
        if let Some(output) = &handler.output
            && let Err(second) = self.assign(branch, output, error)
        {
            let second = Failure { state: Some(state.name.clone()), ..second };
            self.record_state_left(branch, None, Some(second.clone()))?;
            return self.fail_branch(branch, second);
        }
        let target = self.plan.target(state.block, &handler.next)?;
        let path = self.plan.state(target)?.path.clone();
        self.record_state_left(branch, Some(path), Some(failure))?;
        self.move_to(branch, target)
    }

    /// The error that a branch sees as `$.error`.
    pub(super) fn caught_error(&self, branch: BranchId) -> Option<Failure> {
        let scope = self.scope(branch);
        let error = scope.root_value(Root::Error).ok()??;
        let text = |name: &str| error.get(name).and_then(Value::as_str).map(str::to_owned);
        Some(Failure {
            code: text("code")?,
            message: text("message")?,
            state: text("state"),
            retryable: error.get("retryable").and_then(Value::as_bool).unwrap_or(false),
        })
    }

    /// Fails a branch that did not catch the error. The innermost enclosing fan-out that tolerates or catches the
    /// failure ends it there; without one the run fails.
    pub(super) fn fail_branch(&mut self, branch: BranchId, failure: Failure) -> Result<(), CorruptInstance> {
        let mut failed = branch;
        while let Some(parent) = self.instance.branch(failed)?.parent {
            let (_, owner) = self.branch_and_state(parent.branch)?;
            let tolerated = self.tolerates_failure(parent.branch)?;
            let caught = owner.on_error.iter().any(|handler| handler.handles(&failure.code));
            if (tolerated && failed != branch) || (caught && !tolerated) {
                self.record(Fact::BranchEnded { branch, outcome: BranchOutcome::Failed });
                self.set_phase(branch, Phase::Failed(failure.clone()))?;
                self.mark_idle(branch);
            }
            if tolerated {
                return self.collapse(failed, AfterCollapse::FailBranch(failure));
            }
            if caught {
                return self.collapse(parent.branch, AfterCollapse::Raise(failure));
            }
            failed = parent.branch;
        }
        self.set_phase(branch, Phase::Failed(failure.clone()))?;
        self.mark_idle(branch);
        self.fail_run(failure)
    }

    /// Called when a wait or a step took longer than its timeout.
    pub(super) fn on_state_timeout(&mut self, branch: BranchId) -> Result<(), CorruptInstance> {
        let (at, state) = self.branch_and_state(branch)?;
        let limit = state.timeout.map_or_else(String::new, |timeout| format!(" after {timeout}"));
        let failure = Failure {
            state: Some(state.name.clone()),
            ..Failure::permanent(code::TIMEOUT, format!("{} timed out{limit}", state.path))
        };
        let Some(next) = &state.timeout_next else { return self.raise(branch, failure) };
        let target = self.plan.target(at.block, next)?;
        let next_state = self.plan.state(target)?;
        // Only such a state shows the last caught error of its own accord. For any other the way is a normal
        // transition.
        if let StateKind::Fail { error, message } = &next_state.kind
            && (error.is_none() || message.is_none())
        {
            let fits = self.instance.put_slot(branch, SlotName::Error, Arc::new(failure.to_json()), u64::MAX);
            debug_assert!(fits.is_ok(), "an unlimited slot is never refused");
        }
        self.record_state_left(branch, Some(next_state.path.clone()), Some(failure))?;
        self.move_to(branch, target)
    }
}

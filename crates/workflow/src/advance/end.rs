//! Ends a run. It does not decide when a state is left, `leave` does; nor how a failed run continues, `redrive` does.
//!
//! Work in flight is cancelled a bounded number at a time; only then has the run ended.

use crate::command::CommandKind;
use crate::failure::{Failure, code};
use crate::history::{Fact, Note};
use crate::ids::BranchId;
use crate::instance::{
    AfterCollapse, Branch, ClosingProgress, CorruptInstance, Ending, EscalationStage, Outcome, Phase, Status,
};
use crate::json::Json;

use super::interpreter::Interpreter;

impl Interpreter<'_> {
    /// Called when the top-level `succeed` is reached; no branch is left.
    pub(super) fn complete_run(&mut self, output: Json) -> Result<(), CorruptInstance> {
        self.set_ended(Status::Completed);
        self.set_phase(BranchId::ROOT, Phase::Succeeded)?;
        self.emit(CommandKind::Complete { output: output.clone() });
        self.record(Fact::ExecutionCompleted { result: output.clone() });
        self.instance.set_outcome(Some(Outcome::Completed(output)));
        Ok(())
    }

    pub(super) fn continue_as_new(&mut self, branch: BranchId, input: Json) -> Result<(), CorruptInstance> {
        match self.plan.mismatch_of_next_input(&input, &self.budget) {
            Ok(None) => {}
            Ok(Some(mismatch)) => {
                let failure = Failure::permanent(code::INPUT_INVALID, mismatch.to_string());
                return self.raise(branch, failure.truncated());
            }
            Err(exceeded) => return self.raise(branch, exceeded.into()),
        }
        self.record_state_left(branch, None, None)?;
        self.set_ended(Status::ContinuedAsNew);
        self.set_phase(branch, Phase::Succeeded)?;
        self.emit(CommandKind::ContinueAsNew);
        self.record(Fact::ContinueAsNew { input: input.clone() });
        self.next_run = Some(Box::new(self.instance.next_run(input.clone(), self.now)));
        self.instance.set_outcome(Some(Outcome::ContinuedAsNew(input)));
        Ok(())
    }

    /// Called when no handler caught the error. During recovery the run compensates first.
    pub(super) fn fail_run(&mut self, failure: Failure) -> Result<(), CorruptInstance> {
        if self.instance.header().escalation == Some(EscalationStage::Recovering) {
            self.record_note(Note::RecoveryFailed { error: failure.clone() });
            if let Some(timer) = self.instance.header_mut().workflow_timer.take() {
                self.emit(CommandKind::CancelTimer { timer });
            }
            self.instance.header_mut().escalation = Some(EscalationStage::Compensating);
            let timeout = self.workflow_timeout_failure();
            return self.collapse(BranchId::ROOT, AfterCollapse::Compensate(timeout));
        }
        // Branches that are compensating finish first. Such a run cannot be rewound, so no branch need be kept.
        let is_compensating =
            |(_, branch): (BranchId, &Branch)| matches!(branch.phase, Phase::Compensating(_));
        if self.instance.branches().any(is_compensating) {
            return self.collapse(BranchId::ROOT, AfterCollapse::FailRun(failure));
        }
        self.begin_closing(Ending::Fail(failure));
        Ok(())
    }

    /// From now on the run only cancels its work, then ends.
    pub(super) fn begin_closing(&mut self, ending: Ending) {
        let header = self.instance.header_mut();
        header.closing = Some(ClosingProgress { ending, cancel_below: header.branch_count });
    }

    /// Cancels one branch's work, or ends the run.
    pub(super) fn closing_step(&mut self) -> Result<(), CorruptInstance> {
        let Some(closing) = self.instance.header().closing.clone() else {
            return Ok(());
        };
        if let Some(branch) = self.instance.branch_below(closing.cancel_below) {
            self.cancel_work(branch)?;
            self.instance.header_mut().closing = Some(ClosingProgress { cancel_below: branch.0, ..closing });
            return Ok(());
        }
        match closing.ending {
            Ending::Fail(failure) => {
                self.set_ended(Status::Failed);
                self.emit(CommandKind::Fail { failure: failure.clone() });
                self.record(Fact::ExecutionFailed { error: failure.clone() });
                self.instance.set_outcome(Some(Outcome::Failed(failure)));
            }
            Ending::Terminate(reason) => {
                self.set_ended(Status::Terminated);
                self.emit(CommandKind::Terminate { reason: reason.clone() });
                self.record(Fact::ExecutionTerminated { reason: reason.clone() });
                self.instance.set_outcome(Some(Outcome::Terminated(reason)));
            }
        }
        Ok(())
    }

    fn set_ended(&mut self, status: Status) {
        if let Some(timer) = self.instance.header().workflow_timer {
            self.emit(CommandKind::CancelTimer { timer });
        }
        let header = self.instance.header_mut();
        header.workflow_timer = None;
        header.closing = None;
        header.suspended = false;
        header.ready_branches.clear();
        header.status = status;
    }
}

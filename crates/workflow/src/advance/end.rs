//! How a run ends, and how a failed one goes on. Work in flight is cancelled a bounded number at a time; only then is the run
//! over.

use crate::command::CommandKind;
use crate::failure::{Failure, code};
use crate::history::{Fact, Note};
use crate::ids::BranchId;
use crate::instance::{Branch, Closing, Corrupt, Ending, Escalation, Outcome, Phase, Status, Then};
use crate::json::Json;

use super::pass::Pass;

impl Pass<'_> {
    /// The top-level `succeed` was reached; no branch is left.
    pub(super) fn complete_run(&mut self, output: Json) -> Result<(), Corrupt> {
        self.end(Status::Completed);
        self.set_phase(BranchId::ROOT, Phase::Succeeded)?;
        self.emit(CommandKind::Complete { output: output.clone() });
        self.record(Fact::ExecutionCompleted { result: output.clone() });
        self.instance.set_outcome(Some(Outcome::Completed(output)));
        Ok(())
    }

    pub(super) fn continue_as_new(&mut self, branch: BranchId, input: Json) -> Result<(), Corrupt> {
        if let Err(mismatches) = self.plan.check_input(&input) {
            let first = mismatches.first().map(ToString::to_string).unwrap_or_default();
            return self.raise(branch, Failure::last(code::INPUT_INVALID, first).bounded());
        }
        self.record_left(branch, None, None)?;
        self.end(Status::ContinuedAsNew);
        self.set_phase(branch, Phase::Succeeded)?;
        self.emit(CommandKind::ContinueAsNew);
        self.record(Fact::ContinueAsNew { input: input.clone() });
        self.next_run = Some(Box::new(self.instance.next_run(input.clone(), self.now)));
        self.instance.set_outcome(Some(Outcome::ContinuedAsNew(input)));
        Ok(())
    }

    /// Nobody took the error. During recovery that means undoing first.
    pub(super) fn fail_run(&mut self, failure: Failure) -> Result<(), Corrupt> {
        if self.instance.header().escalation == Some(Escalation::Recovering) {
            self.note(Note::RecoveryFailed { error: failure.clone() });
            if let Some(timer) = self.instance.header_mut().timer.take() {
                self.emit(CommandKind::CancelTimer { timer });
            }
            self.instance.header_mut().escalation = Some(Escalation::Compensating);
            let timeout = self.workflow_timeout();
            return self.collapse(BranchId::ROOT, Then::Compensate(timeout));
        }
        // Branches that are undoing their work end that first. Such a run cannot be rewound, so no branch need be kept.
        let undoing = |(_, branch): (BranchId, &Branch)| matches!(branch.phase, Phase::Undoing(_));
        if self.instance.branches().any(undoing) {
            return self.collapse(BranchId::ROOT, Then::FailRun(failure));
        }
        self.close(Ending::Fail(failure));
        Ok(())
    }

    /// From now on the run only winds up.
    pub(super) fn close(&mut self, ending: Ending) {
        let header = self.instance.header_mut();
        header.closing = Some(Closing { ending, cancel_below: header.branches });
    }

    /// Cancels one branch's work, or ends the run.
    pub(super) fn close_step(&mut self) -> Result<(), Corrupt> {
        let Some(closing) = self.instance.header().closing.clone() else {
            return Ok(());
        };
        if let Some(branch) = self.instance.branch_below(closing.cancel_below) {
            self.cancel_work(branch)?;
            self.instance.header_mut().closing = Some(Closing { cancel_below: branch.0, ..closing });
            return Ok(());
        }
        match closing.ending {
            Ending::Fail(failure) => {
                self.end(Status::Failed);
                self.emit(CommandKind::Fail { failure: failure.clone() });
                self.record(Fact::ExecutionFailed { error: failure.clone() });
                self.instance.set_outcome(Some(Outcome::Failed(failure)));
            }
            Ending::Terminate(reason) => {
                self.end(Status::Terminated);
                self.emit(CommandKind::Terminate { reason: reason.clone() });
                self.record(Fact::ExecutionTerminated { reason: reason.clone() });
                self.instance.set_outcome(Some(Outcome::Terminated(reason)));
            }
        }
        Ok(())
    }

    fn end(&mut self, status: Status) {
        if let Some(timer) = self.instance.header().timer {
            self.emit(CommandKind::CancelTimer { timer });
        }
        let header = self.instance.header_mut();
        header.timer = None;
        header.closing = None;
        header.suspended = false;
        header.ready.clear();
        header.status = status;
    }

    /// Goes on at the failed state. Branches that were cut short begin their state again; answered steps keep their answers.
    pub(super) fn rewind(&mut self, reason: &str) -> Result<(), Corrupt> {
        let Some(failed) = self.instance.header().failed_at else {
            return Ok(());
        };
        let header = self.instance.header_mut();
        header.redrives = header.redrives.saturating_add(1);
        header.status = Status::Running;
        header.failed_at = None;
        header.escalation = None;
        header.entered_since_message = 0;
        let redrive = header.redrives;
        self.record(Fact::ExecutionRewound { reason: reason.to_owned(), redrive });
        self.instance.set_outcome(None);
        self.instance.change_branch(failed.branch, |at| {
            (at.state, at.visit) = (failed.state, failed.visit);
            at.phase = Phase::Ready;
        })?;
        self.instance.header_mut().rewind_from = Some(0);
        self.start_workflow_timer();
        Ok(())
    }

    /// Sets one branch moving again, the oldest first. It goes as far as it does before the next is looked at.
    pub(super) fn rewind_step(&mut self) -> Result<(), Corrupt> {
        let from = self.instance.header().rewind_from.unwrap_or(0);
        let Some(branch) = self.instance.branch_from(from) else {
            self.instance.header_mut().rewind_from = None;
            return Ok(());
        };
        self.instance.header_mut().rewind_from = Some(branch.0.saturating_add(1));
        match &self.instance.branch(branch)?.phase {
            Phase::Task(_) | Phase::Timer { .. } | Phase::Event { .. } | Phase::Child { .. } => {
                self.set_phase(branch, Phase::Ready)?;
            }
            Phase::Succeeded | Phase::Failed(_) => return Ok(()),
            _ => {}
        }
        self.wake(branch);
        Ok(())
    }
}

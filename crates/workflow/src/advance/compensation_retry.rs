//! Runs the failed compensation steps of an ended run again, one after the other, then restores the end of the run. It
//! does not decide about the retries of a call; `retry` does.
//!
//! Only steps that failed run again. A step whose outcome is unknown is called under the same identity
//! (docs/adr/0021).

use crate::command::CommandKind;
use crate::definition::{CompensationStep, RetryPolicy, StateKind};
use crate::failure::Failure;
use crate::history::{Fact, Note};
use crate::ids::BranchId;
use crate::instance::{
    CompensationProgress, CompensationRetry, CorruptInstance, FailedCompensation, Outcome, Phase, Status,
};

use super::interpreter::Interpreter;
use super::task::NewCall;

impl Interpreter<'_> {
    /// An operator asks to run what failed again. While that is done, a repetition changes nothing.
    pub(super) fn retry_compensation(&mut self, reason: &str) -> Result<(), CorruptInstance> {
        if self.instance.compensation_retry().is_some() {
            return Ok(());
        }
        let root_phase = self.instance.branch(BranchId::ROOT)?.phase.clone();
        let (status, outcome) = (self.instance.status(), self.instance.outcome().cloned());
        self.instance.set_compensation_retry(Some(CompensationRetry {
            status,
            outcome,
            root_phase,
            last: 0,
        }));
        self.instance.set_outcome(None);
        self.instance.header_mut().status = Status::Running;
        let steps = u32::try_from(self.instance.failed_compensations_len()).unwrap_or(u32::MAX);
        self.record_note(Note::CompensationRetried { reason: reason.to_owned(), steps });
        let progress = CompensationProgress {
            position: 0,
            record: None,
            call: None,
            succeeded: 0,
            failed: 0,
            then_fail: None,
        };
        self.set_phase(BranchId::ROOT, Phase::Compensating(progress))?;
        self.mark_ready(BranchId::ROOT);
        Ok(())
    }

    /// Starts the next failed step, or restores the end of the run.
    pub(super) fn compensation_retry_step(
        &mut self,
        branch: BranchId,
        mut progress: CompensationProgress,
        retry: CompensationRetry,
    ) -> Result<(), CorruptInstance> {
        let Some(arrival) = self.instance.failed_compensation_after(retry.last) else {
            let CompensationProgress { succeeded, failed, .. } = progress;
            self.record_note(Note::CompensationCompleted { branch, succeeded, failed });
            return self.finish_compensation_retry(retry);
        };
        let failed = self.retried_step(arrival)?.clone();
        let timeout = self.explicit_step(&failed)?.and_then(|step| step.timeout);
        let attempt_timeout = self.explicit_step(&failed)?.and_then(|step| step.attempt_timeout);
        let identity = failed.next_identity();
        self.instance.set_compensation_retry(Some(CompensationRetry { last: arrival, ..retry }));
        let redrive = identity.redrive;
        self.instance
            .put_failed_compensation(arrival, Some(FailedCompensation { redrive, ..failed.clone() }));
        self.count_bytes(crate::json::size(&failed.input));
        let call = NewCall {
            activity: &failed.activity,
            input: failed.input.clone(),
            secret_pointers: failed.secret_pointers.clone(),
            path_suffix: String::new(),
            timeout: timeout.or(self.plan.definition().configuration.default_timeout),
            attempt_timeout: self.plan.attempt_timeout(attempt_timeout, &failed.activity),
        };
        progress.record = Some(arrival);
        progress.call = Some(self.start_call_as(branch, identity, call, failed.outcome_unknown));
        self.mark_idle(branch);
        self.set_phase(branch, Phase::Compensating(progress))
    }

    /// A step that was run again has ended.
    pub(super) fn finish_retried_step(
        &mut self,
        branch: BranchId,
        mut progress: CompensationProgress,
        result: Result<(), (Failure, bool)>,
    ) -> Result<(), CorruptInstance> {
        let call = progress.call.take();
        let arrival = progress.record.take().unwrap_or_default();
        match result {
            Ok(()) => {
                progress.succeeded = progress.succeeded.saturating_add(1);
                self.instance.put_failed_compensation(arrival, None);
                self.instance.change_compensation_tally(|tally| {
                    tally.done = tally.done.saturating_add(1);
                    tally.failed = tally.failed.saturating_sub(1);
                });
            }
            Err((error, outcome_unknown)) => {
                progress.failed = progress.failed.saturating_add(1);
                let failed = self.retried_step(arrival)?.clone();
                let command = call.map_or(crate::ids::CommandId(0), |call| call.call);
                let activity = failed.activity.clone();
                self.record_note(Note::CompensationStepFailed { command, activity, error });
                let failed = FailedCompensation { outcome_unknown, ..failed };
                self.instance.put_failed_compensation(arrival, Some(failed));
            }
        }
        self.set_phase(branch, Phase::Compensating(progress))?;
        self.mark_ready(branch);
        Ok(())
    }

    /// An operator stops the retry: the run has its former end again, and the step in progress counts as failed, with
    /// an unknown outcome.
    pub(super) fn stop_compensation_retry(
        &mut self,
        retry: CompensationRetry,
    ) -> Result<(), CorruptInstance> {
        if let Phase::Compensating(CompensationProgress { call: Some(call), record, .. }) =
            self.instance.branch(BranchId::ROOT)?.phase.clone()
        {
            self.emit(CommandKind::CancelActivity { call: call.call });
            let arrival = record.unwrap_or_default();
            let failed = self.retried_step(arrival)?.clone();
            let failed = FailedCompensation { outcome_unknown: true, ..failed };
            self.instance.put_failed_compensation(arrival, Some(failed));
        }
        self.finish_compensation_retry(retry)
    }

    fn finish_compensation_retry(&mut self, retry: CompensationRetry) -> Result<(), CorruptInstance> {
        let CompensationRetry { status, outcome, root_phase, .. } = retry;
        self.set_phase(BranchId::ROOT, root_phase)?;
        self.instance.set_compensation_retry(None);
        let header = self.instance.header_mut();
        header.ready_branches.clear();
        header.suspended = false;
        header.status = status;
        match &outcome {
            Some(Outcome::Completed(output)) => {
                self.emit(CommandKind::Complete { output: output.clone() });
                self.record(Fact::ExecutionCompleted { result: output.clone() });
            }
            Some(Outcome::Failed(failure)) => {
                self.emit(CommandKind::Fail { failure: failure.clone() });
                self.record(Fact::ExecutionFailed { error: failure.clone() });
            }
            Some(Outcome::Terminated(reason)) => {
                self.emit(CommandKind::Terminate { reason: reason.clone() });
                self.record(Fact::ExecutionTerminated { reason: reason.clone() });
            }
            Some(Outcome::ContinuedAsNew(_)) | None => {}
        }
        self.instance.set_outcome(outcome);
        Ok(())
    }

    fn retried_step(&self, arrival: u64) -> Result<&FailedCompensation, CorruptInstance> {
        let missing = || CorruptInstance::new(format!("the failed compensation {arrival} is missing"));
        self.instance.failed_compensation(arrival).ok_or_else(missing)
    }
}

impl<'a> Interpreter<'a> {
    /// The retry policy and the activity of the step that is run again.
    pub(super) fn retried_policy(
        &self,
        arrival: u64,
    ) -> Result<(Option<&'a RetryPolicy>, String), CorruptInstance> {
        let failed = self.retried_step(arrival)?;
        let policy = self.explicit_step(failed)?.and_then(|step| step.retry_policy.as_ref());
        Ok((policy, failed.activity.clone()))
    }

    /// The explicit step that failed, if it was one.
    fn explicit_step(
        &self,
        failed: &FailedCompensation,
    ) -> Result<Option<&'a CompensationStep>, CorruptInstance> {
        let Some((state, position)) = failed.explicit else { return Ok(None) };
        Ok(match &self.plan.state(state)?.kind {
            StateKind::Compensation { steps: Some(steps) } => steps.get(position as usize),
            _ => None,
        })
    }
}

//! Compensation: runs its steps one after the other, those of the state or those recorded by completed tasks. `task`
//! makes the records.
//!
//! A step that fails permanently is recorded, and the others still run.

use std::sync::Arc;

use crate::command::StepIdentity;
use crate::definition::{CompensationStep, RetryPolicy, StateKind};
use crate::failure::Failure;
use crate::history::{BranchOutcome, Fact, Note};
use crate::ids::{BranchId, CommandId};
use crate::instance::{CompensationProgress, CompensationRecord, CorruptInstance, FailedCompensation, Phase};
use crate::json;

use super::interpreter::{Interpreter, render_failure};
use super::task::{NewCall, secret_pointers};

impl Interpreter<'_> {
    pub(super) fn start_compensation(
        &mut self,
        branch: BranchId,
        steps: Option<&[CompensationStep]>,
    ) -> Result<(), CorruptInstance> {
        let count = steps
            .map_or_else(|| self.instance.compensation_records(branch).count(), <[CompensationStep]>::len);
        self.begin_compensation(branch, count, None)
    }

    /// Runs the recorded compensations, then fails the run: the end of an escalation.
    pub(super) fn compensate_then_fail(
        &mut self,
        branch: BranchId,
        failure: Failure,
    ) -> Result<(), CorruptInstance> {
        let count = self.instance.compensation_records(branch).count();
        self.begin_compensation(branch, count, Some(failure))
    }

    fn begin_compensation(
        &mut self,
        branch: BranchId,
        count: usize,
        then_fail: Option<Failure>,
    ) -> Result<(), CorruptInstance> {
        let steps = u32::try_from(count).unwrap_or(u32::MAX);
        if steps > 0 {
            self.instance.header_mut().compensated = true;
            self.instance
                .change_compensation_tally(|tally| tally.planned = tally.planned.saturating_add(steps));
        }
        self.record_note(Note::CompensationStarted { branch, steps });
        let progress = CompensationProgress {
            position: 0,
            record: None,
            call: None,
            succeeded: 0,
            failed: 0,
            then_fail,
        };
        self.set_phase(branch, Phase::Compensating(progress))?;
        self.mark_ready(branch);
        Ok(())
    }

    /// Starts the next step, or ends the compensation.
    pub(super) fn compensation_step(&mut self, branch: BranchId) -> Result<(), CorruptInstance> {
        let (at, state) = self.branch_and_state(branch)?;
        let Phase::Compensating(progress) = at.phase.clone() else {
            return Err(CorruptInstance::new(format!("branch {} is not compensating", branch.0)));
        };
        if let Some(retry) = self.instance.compensation_retry().cloned() {
            return self.compensation_retry_step(branch, progress, retry);
        }
        match explicit_steps(&state.kind, &progress) {
            Some(steps) => match steps.get(progress.position as usize) {
                Some(step) => self.start_explicit_step(branch, progress, step),
                None => {
                    let replaced: Vec<u64> =
                        self.instance.compensation_records(branch).map(|(arrival, _)| arrival).collect();
                    // The author's explicit steps replace the recorded ones.
                    replaced.into_iter().for_each(|arrival| self.instance.remove_compensation(arrival));
                    self.finish_compensation(branch, progress)
                }
            },
            None => {
                let newest = self.instance.compensation_records(branch).next().map(|(arrival, _)| arrival);
                match newest {
                    Some(arrival) => self.start_recorded_step(branch, progress, arrival),
                    None => self.finish_compensation(branch, progress),
                }
            }
        }
    }

    fn start_explicit_step(
        &mut self,
        branch: BranchId,
        progress: CompensationProgress,
        step: &CompensationStep,
    ) -> Result<(), CorruptInstance> {
        let below = format!("/steps/{}", progress.position);
        // A retry of the step has the same input, so its time is the one at which the state was entered.
        let entered_at = self.instance.branch(branch)?.entered_at;
        let (input, missing) = match &step.call.input {
            Some(template) => {
                template.render_lenient(&self.scope_at(branch, entered_at), self.limits.payload_bytes_max)
            }
            None => (serde_json::Value::Null, None),
        };
        if let Some(missing) = missing {
            let error = render_failure(&missing);
            let step = format!("{}{below}", self.branch_and_state(branch)?.1.path);
            self.record_note(Note::CompensationInputIncomplete { step, error });
        }
        let activity = &step.call.activity;
        let attempt_timeout = self.plan.attempt_timeout(step.attempt_timeout, activity);
        if let Err(failure) = self.admit_payload(&input) {
            return self.finish_compensation_step(
                branch,
                progress,
                CommandId(0),
                activity.clone(),
                Err(failure),
            );
        }
        let timeout = step.timeout.or(self.plan.definition().configuration.default_timeout);
        let secrets = secret_pointers(step.call.input.as_ref());
        let identity = self.step_identity(branch, &below)?;
        let call = NewCall {
            activity,
            input: Arc::new(input),
            secret_pointers: secrets,
            path_suffix: below,
            timeout,
            attempt_timeout,
        };
        self.start_compensation_call(branch, progress, identity, call)
    }

    fn start_recorded_step(
        &mut self,
        branch: BranchId,
        mut progress: CompensationProgress,
        arrival: u64,
    ) -> Result<(), CorruptInstance> {
        let Some(record) = self.instance.compensation_record(arrival).cloned() else {
            return Err(CorruptInstance::new(format!("compensation {arrival} is missing")));
        };
        progress.record = Some(arrival);
        let attempt_timeout = self.plan.attempt_timeout(None, &record.activity);
        // An input and a result that are each within the limit may exceed it together; the compensation still runs.
        self.count_bytes(json::size(&record.input));
        let identity = self.recorded_identity(&record, arrival)?;
        let call = NewCall {
            activity: &record.activity,
            input: record.input,
            secret_pointers: record.secret_pointers,
            path_suffix: String::new(),
            timeout: self.plan.definition().configuration.default_timeout,
            attempt_timeout,
        };
        self.start_compensation_call(branch, progress, identity, call)
    }

    fn start_compensation_call(
        &mut self,
        branch: BranchId,
        progress: CompensationProgress,
        identity: StepIdentity,
        call: NewCall<'_>,
    ) -> Result<(), CorruptInstance> {
        let call_progress = self.start_call_as(branch, identity, call, false);
        self.mark_idle(branch);
        self.set_phase(
            branch,
            Phase::Compensating(CompensationProgress { call: Some(call_progress), ..progress }),
        )
    }

    /// A step has succeeded or failed permanently.
    pub(super) fn on_compensation_result(
        &mut self,
        branch: BranchId,
        command: CommandId,
        result: Result<(), (Failure, bool)>,
    ) -> Result<(), CorruptInstance> {
        let (at, state) = self.branch_and_state(branch)?;
        let Phase::Compensating(progress) = at.phase.clone() else {
            return Err(CorruptInstance::new(format!("branch {} is not compensating", branch.0)));
        };
        if self.instance.compensation_retry().is_some() {
            return self.finish_retried_step(branch, progress, result);
        }
        let (_, activity) = self.compensation_policy(&progress, &state.kind)?;
        if let Err((_, outcome_unknown)) = result {
            self.keep_failed_step(branch, &progress, outcome_unknown)?;
        }
        self.finish_compensation_step(branch, progress, command, activity, result.map_err(|(error, _)| error))
    }

    /// Keeps what is needed to run a failed step again.
    fn keep_failed_step(
        &mut self,
        branch: BranchId,
        progress: &CompensationProgress,
        outcome_unknown: bool,
    ) -> Result<(), CorruptInstance> {
        let (at, state) = self.branch_and_state(branch)?;
        let state_id = at.state;
        let (activity, input, secret_pointers, explicit, identity) =
            if let Some(steps) = explicit_steps(&state.kind, progress) {
                let Some(step) = steps.get(progress.position as usize) else { return Ok(()) };
                // Nothing in the scope of the step has changed since it began, its time included.
                let scope = self.scope_at(branch, at.entered_at);
                let input = match &step.call.input {
                    Some(input) => input.render_lenient(&scope, self.limits.payload_bytes_max).0,
                    None => serde_json::Value::Null,
                };
                self.count_bytes(json::size(&input));
                let identity = self.step_identity(branch, &format!("/steps/{}", progress.position))?;
                let secrets = secret_pointers(step.call.input.as_ref());
                let explicit = Some((state_id, progress.position));
                (step.call.activity.clone(), Arc::new(input), secrets, explicit, identity)
            } else {
                let arrival = progress.record.unwrap_or_default();
                let Some(record) = self.instance.compensation_record(arrival).cloned() else { return Ok(()) };
                let identity = self.recorded_identity(&record, arrival)?;
                (record.activity, record.input, record.secret_pointers, None, identity)
            };
        let fan_outs = identity.fan_outs.iter().map(|at| (at.visit, at.redrive, at.index)).collect();
        let StepIdentity { path, visit, redrive, fan_out_path, .. } = identity;
        self.instance.add_failed_compensation(FailedCompensation {
            activity,
            input,
            secret_pointers,
            explicit,
            path,
            visit,
            redrive,
            fan_outs,
            fan_out_path,
            outcome_unknown,
        });
        Ok(())
    }

    /// Compensating a record is one piece of work, whichever compensation does it; the arrival is the record's number.
    /// So it belongs to no fan-out either: the one the task ran in may have joined.
    fn recorded_identity(
        &self,
        record: &CompensationRecord,
        arrival: u64,
    ) -> Result<StepIdentity, CorruptInstance> {
        Ok(StepIdentity {
            path: format!("{}/undo/{arrival}", self.plan.state(record.state)?.path),
            visit: record.visit,
            redrive: 0,
            fan_outs: Vec::new(),
            fan_out_path: None,
        })
    }

    fn finish_compensation_step(
        &mut self,
        branch: BranchId,
        mut progress: CompensationProgress,
        command: CommandId,
        activity: String,
        result: Result<(), Failure>,
    ) -> Result<(), CorruptInstance> {
        match result {
            Ok(()) => {
                progress.succeeded = progress.succeeded.saturating_add(1);
                self.instance.change_compensation_tally(|tally| tally.done = tally.done.saturating_add(1));
            }
            Err(error) => {
                self.instance
                    .change_compensation_tally(|tally| tally.failed = tally.failed.saturating_add(1));
                progress.failed = progress.failed.saturating_add(1);
                self.record_note(Note::CompensationStepFailed { command, activity, error });
            }
        }
        if let Some(arrival) = progress.record.take() {
            self.instance.remove_compensation(arrival);
        }
        progress.position = progress.position.saturating_add(1);
        progress.call = None;
        self.set_phase(branch, Phase::Compensating(progress))?;
        self.mark_ready(branch);
        Ok(())
    }

    fn finish_compensation(
        &mut self,
        branch: BranchId,
        progress: CompensationProgress,
    ) -> Result<(), CorruptInstance> {
        self.record_note(Note::CompensationCompleted {
            branch,
            succeeded: progress.succeeded,
            failed: progress.failed,
        });
        match progress.then_fail {
            Some(failure) => {
                self.set_phase(branch, Phase::Failed(failure.clone()))?;
                self.mark_idle(branch);
                self.begin_closing(crate::instance::Ending::Fail(failure));
                Ok(())
            }
            None => match self.outermost_collapsing_ancestor(branch)? {
                // The branch is to be cancelled; that was delayed until its compensation was complete.
                Some(above) => {
                    self.record(Fact::BranchEnded { branch, outcome: BranchOutcome::Cancelled });
                    self.set_phase(branch, Phase::Succeeded)?;
                    self.mark_idle(branch);
                    self.mark_ready(above);
                    Ok(())
                }
                None => self.complete_state(branch, None),
            },
        }
    }

    /// The retry policy and the activity of the running step.
    pub(super) fn compensation_policy<'p>(
        &self,
        progress: &CompensationProgress,
        kind: &'p StateKind,
    ) -> Result<(Option<&'p RetryPolicy>, String), CorruptInstance> {
        let missing = || CorruptInstance::new("the running compensation step is missing");
        match explicit_steps(kind, progress) {
            Some(steps) => {
                let step = steps.get(progress.position as usize).ok_or_else(missing)?;
                Ok((step.retry_policy.as_ref(), step.call.activity.clone()))
            }
            None => {
                let record = progress.record.and_then(|arrival| self.instance.compensation_record(arrival));
                Ok((None, record.ok_or_else(missing)?.activity.clone()))
            }
        }
    }
}

/// The explicit steps, if the state has any. An escalation runs the recorded compensations, whatever state the run is
/// in.
fn explicit_steps<'p>(
    kind: &'p StateKind,
    progress: &CompensationProgress,
) -> Option<&'p [CompensationStep]> {
    match kind {
        StateKind::Compensation { steps: Some(steps) } if progress.then_fail.is_none() => Some(steps),
        _ => None,
    }
}

//! `compensation`: steps one after the other. One that finally fails is recorded, and the rest still run.

use std::sync::Arc;

use crate::command::StepIdentity;
use crate::definition::{RetryPolicy, StateKind, UndoStep};
use crate::failure::Failure;
use crate::history::{BranchOutcome, Fact, Note};
use crate::ids::{BranchId, CommandId};
use crate::instance::{Corrupt, Phase, Undoing};
use crate::json;

use super::pass::{Pass, unfilled};
use super::task::{Dispatch, secrets_of};

impl Pass<'_> {
    pub(super) fn start_compensation(
        &mut self,
        branch: BranchId,
        steps: Option<&[UndoStep]>,
    ) -> Result<(), Corrupt> {
        let count = steps.map_or_else(|| self.instance.undo_records(branch).count(), <[UndoStep]>::len);
        self.begin_undoing(branch, count, None)
    }

    /// Undoes what is recorded, then fails the run: the end of an escalation.
    pub(super) fn compensate_then_fail(&mut self, branch: BranchId, failure: Failure) -> Result<(), Corrupt> {
        let count = self.instance.undo_records(branch).count();
        self.begin_undoing(branch, count, Some(failure))
    }

    fn begin_undoing(
        &mut self,
        branch: BranchId,
        count: usize,
        then_fail: Option<Failure>,
    ) -> Result<(), Corrupt> {
        let steps = u32::try_from(count).unwrap_or(u32::MAX);
        if steps > 0 {
            self.instance.header_mut().compensated = true;
        }
        self.note(Note::CompensationStarted { branch, steps });
        let undoing =
            Undoing { position: 0, record: None, delivery: None, succeeded: 0, failed: 0, then_fail };
        self.set_phase(branch, Phase::Undoing(undoing))?;
        self.wake(branch);
        Ok(())
    }

    /// Starts the next step, or ends the compensation.
    pub(super) fn undo_next(&mut self, branch: BranchId) -> Result<(), Corrupt> {
        let (at, state) = self.place(branch)?;
        let Phase::Undoing(undoing) = at.phase.clone() else {
            return Err(Corrupt::new(format!("branch {} is not compensating", branch.0)));
        };
        match explicit_steps(&state.kind, &undoing) {
            Some(steps) => match steps.get(undoing.position as usize) {
                Some(step) => self.undo_step(branch, undoing, step),
                None => {
                    let done: Vec<u64> =
                        self.instance.undo_records(branch).map(|(arrival, _)| arrival).collect();
                    // The author's own steps stand for the recorded ones.
                    done.into_iter().for_each(|arrival| self.instance.remove_undo(arrival));
                    self.undone(branch, undoing)
                }
            },
            None => {
                let newest = self.instance.undo_records(branch).next().map(|(arrival, _)| arrival);
                match newest {
                    Some(arrival) => self.undo_recorded(branch, undoing, arrival),
                    None => self.undone(branch, undoing),
                }
            }
        }
    }

    fn undo_step(&mut self, branch: BranchId, undoing: Undoing, step: &UndoStep) -> Result<(), Corrupt> {
        let below = format!("/steps/{}", undoing.position);
        let (input, missing) = match &step.call.input {
            Some(template) => template.render_lenient(&self.scope(branch), self.limits.payload_bytes_max),
            None => (serde_json::Value::Null, None),
        };
        if let Some(missing) = missing {
            let error = unfilled(&missing);
            let step = format!("{}{below}", self.place(branch)?.1.path);
            self.note(Note::CompensationInputIncomplete { step, error });
        }
        let activity = &step.call.activity;
        let attempt_timeout = self.plan.attempt_timeout(step.attempt_timeout, activity);
        if let Err(failure) = self.admit(&input) {
            return self.undo_ended(branch, undoing, CommandId(0), activity.clone(), Err(failure));
        }
        let timeout = step.timeout.or(self.plan.definition().configuration.default_timeout);
        let secrets = secrets_of(step.call.input.as_ref());
        let identity = self.identity(branch, &below)?;
        let call = Dispatch { activity, input: Arc::new(input), secrets, below, timeout, attempt_timeout };
        self.dispatch_undo(branch, undoing, identity, call)
    }

    fn undo_recorded(&mut self, branch: BranchId, mut undoing: Undoing, arrival: u64) -> Result<(), Corrupt> {
        let Some(record) = self.instance.undo_record(arrival).cloned() else {
            return Err(Corrupt::new(format!("compensation {arrival} is missing")));
        };
        let undone = self.plan.state(record.state)?;
        undoing.record = Some(arrival);
        let attempt_timeout = self.plan.attempt_timeout(None, &record.activity);
        // An input and a result that were each within the limit may be beyond it together; undoing is not refused for that.
        self.count_bytes(json::size(&record.input));
        // Undoing this record is one piece of work, whichever compensation does it; the arrival is the record's number. So it is no
        // fan-out's either: the one it was done in may have joined.
        let identity = StepIdentity {
            path: format!("{}/undo/{arrival}", undone.path),
            visit: record.visit,
            redrive: 0,
            lineage: Vec::new(),
            fanned_out_by: None,
        };
        let call = Dispatch {
            activity: &record.activity,
            input: record.input,
            secrets: record.secrets,
            below: String::new(),
            timeout: self.plan.definition().configuration.default_timeout,
            attempt_timeout,
        };
        self.dispatch_undo(branch, undoing, identity, call)
    }

    fn dispatch_undo(
        &mut self,
        branch: BranchId,
        undoing: Undoing,
        identity: StepIdentity,
        call: Dispatch<'_>,
    ) -> Result<(), Corrupt> {
        let delivery = self.dispatch_as(branch, identity, call);
        self.rest(branch);
        self.set_phase(branch, Phase::Undoing(Undoing { delivery: Some(delivery), ..undoing }))
    }

    /// A step has answered or finally failed.
    pub(super) fn undo_answered(
        &mut self,
        branch: BranchId,
        command: CommandId,
        answer: Result<(), Failure>,
    ) -> Result<(), Corrupt> {
        let (at, state) = self.place(branch)?;
        let Phase::Undoing(undoing) = at.phase.clone() else {
            return Err(Corrupt::new(format!("branch {} is not compensating", branch.0)));
        };
        let (_, activity) = self.undo_policy(&undoing, &state.kind)?;
        self.undo_ended(branch, undoing, command, activity, answer)
    }

    fn undo_ended(
        &mut self,
        branch: BranchId,
        mut undoing: Undoing,
        command: CommandId,
        activity: String,
        answer: Result<(), Failure>,
    ) -> Result<(), Corrupt> {
        match answer {
            Ok(()) => undoing.succeeded = undoing.succeeded.saturating_add(1),
            Err(error) => {
                undoing.failed = undoing.failed.saturating_add(1);
                self.note(Note::CompensationStepFailed { command, activity, error });
            }
        }
        if let Some(arrival) = undoing.record.take() {
            self.instance.remove_undo(arrival);
        }
        undoing.position = undoing.position.saturating_add(1);
        undoing.delivery = None;
        self.set_phase(branch, Phase::Undoing(undoing))?;
        self.wake(branch);
        Ok(())
    }

    fn undone(&mut self, branch: BranchId, undoing: Undoing) -> Result<(), Corrupt> {
        self.note(Note::CompensationCompleted {
            branch,
            succeeded: undoing.succeeded,
            failed: undoing.failed,
        });
        match undoing.then_fail {
            Some(failure) => {
                self.set_phase(branch, Phase::Failed(failure.clone()))?;
                self.rest(branch);
                self.close(crate::instance::Ending::Fail(failure));
                Ok(())
            }
            None => match self.collapsing_above(branch)? {
                // The branch was to be cancelled and was left alone until it had undone its work.
                Some(above) => {
                    self.record(Fact::BranchEnded { branch, outcome: BranchOutcome::Cancelled });
                    self.set_phase(branch, Phase::Succeeded)?;
                    self.rest(branch);
                    self.wake(above);
                    Ok(())
                }
                None => self.complete(branch, None),
            },
        }
    }

    /// The policy and the name of the step that is out.
    pub(super) fn undo_policy<'p>(
        &self,
        undoing: &Undoing,
        kind: &'p StateKind,
    ) -> Result<(Option<&'p RetryPolicy>, String), Corrupt> {
        let missing = || Corrupt::new("the compensation that is out is not there");
        match explicit_steps(kind, undoing) {
            Some(steps) => {
                let step = steps.get(undoing.position as usize).ok_or_else(missing)?;
                Ok((step.retry_policy.as_ref(), step.call.activity.clone()))
            }
            None => {
                let record = undoing.record.and_then(|arrival| self.instance.undo_record(arrival));
                Ok((None, record.ok_or_else(missing)?.activity.clone()))
            }
        }
    }
}

/// An escalation undoes what is recorded, whatever state the run is in.
fn explicit_steps<'p>(kind: &'p StateKind, undoing: &Undoing) -> Option<&'p [UndoStep]> {
    match kind {
        StateKind::Compensation { steps: Some(steps) } if undoing.then_fail.is_none() => Some(steps),
        _ => None,
    }
}

//! The `task` state: calls an activity and processes its result. `retry` decides about failed attempts.
//!
//! The compensation of a task is recorded in the turn that processes its result.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::command::{CommandKind, StartActivity, StepIdentity};
use crate::definition::{State, StateKind, Task};
use crate::failure::{Failure, code};
use crate::history::{Fact, Note};
use crate::ids::BranchId;
use crate::instance::{CallProgress, CompensationRecord, CorruptInstance, Phase};
use crate::json::{self, Json};
use crate::path::Template;
use crate::scope::Scope;
use crate::time::Duration;

use super::interpreter::{Interpreter, render_failure};

/// The places where a call's input refers to secrets.
pub(super) fn secret_pointers(input: Option<&Template>) -> Vec<String> {
    input.map(Template::secret_pointers).unwrap_or_default()
}

/// A call that is about to be made.
pub(super) struct NewCall<'a> {
    pub(super) activity: &'a str,
    pub(super) input: Json,
    /// The places where the input refers to secrets.
    pub(super) secret_pointers: Vec<String>,
    /// Distinguishes several calls of one state.
    pub(super) path_suffix: String,
    pub(super) timeout: Option<Duration>,
    pub(super) attempt_timeout: Option<Duration>,
}

impl Interpreter<'_> {
    pub(super) fn start_task(
        &mut self,
        branch: BranchId,
        state: &State,
        task: &Task,
    ) -> Result<(), CorruptInstance> {
        // Recording a compensation is never refused, so a task that would record one is not started at the data limit.
        let full = self.instance.header().data_bytes >= self.limits.data_bytes_max;
        if full && task.compensate_with.is_some() {
            let message = "the run's data is at its limit, so no further compensation can be recorded";
            return self.raise(branch, Failure::permanent(code::DATA_LIMIT_EXCEEDED, message));
        }
        // A call that is made again under its key has the time of then in its input.
        let entered_at = self.instance.branch(branch)?.entered_at;
        let input = match self.render_call_at(branch, task.call.input.as_ref(), entered_at) {
            Ok(input) => input,
            Err(failure) => return self.raise(branch, failure),
        };
        let call = self.start_call(
            branch,
            NewCall {
                activity: &task.call.activity,
                input,
                secret_pointers: secret_pointers(task.call.input.as_ref()),
                path_suffix: String::new(),
                timeout: state.timeout,
                attempt_timeout: task.attempt_timeout,
            },
        )?;
        self.mark_idle(branch);
        self.set_phase(branch, Phase::Task(call))
    }

    /// Emits and records one activity call.
    pub(super) fn start_call(
        &mut self,
        branch: BranchId,
        call: NewCall<'_>,
    ) -> Result<CallProgress, CorruptInstance> {
        let step = self.step_identity(branch, &call.path_suffix)?;
        let unanswered = self.instance.unanswered_call(&step).map(|unanswered| unanswered.identity(&step));
        let may_have_run = unanswered.is_some();
        Ok(self.start_call_as(branch, unanswered.unwrap_or(step), call, may_have_run))
    }

    /// Like `start_call`, with the given identity, under which an earlier call may have run.
    pub(super) fn start_call_as(
        &mut self,
        branch: BranchId,
        step: StepIdentity,
        call: NewCall<'_>,
        may_have_run: bool,
    ) -> CallProgress {
        let deadline = call.timeout.map(|timeout| self.now.plus(timeout));
        let path = step.path.clone();
        let command = self.emit(CommandKind::StartActivity(StartActivity {
            activity: call.activity.to_owned(),
            input: call.input.clone(),
            secret_pointers: call.secret_pointers,
            step,
            deadline,
            attempt_timeout: call.attempt_timeout,
            may_have_run,
        }));
        self.record(Fact::TaskScheduled {
            command,
            branch,
            activity: call.activity.to_owned(),
            input: call.input,
            step: path,
        });
        CallProgress { call: command, failures: 0, deadline, attempt: 0 }
    }

    /// The activity has run, so its compensation is recorded even if its result cannot be stored.
    pub(super) fn on_task_result(
        &mut self,
        branch: BranchId,
        result: Result<Json, Failure>,
    ) -> Result<(), CorruptInstance> {
        let (_, state) = self.branch_and_state(branch)?;
        let StateKind::Task(task) = &state.kind else {
            return Err(CorruptInstance::new(format!("state {} is not a task", state.path)));
        };
        self.note_task_outcome(branch, false)?;
        // Read before the result is written: the task may read the place it writes to.
        let input = self.original_input(branch, task)?;
        let output = result.as_ref().ok().cloned();
        let stored = result.and_then(|result| match &state.output {
            Some(output) => self.assign(branch, output, result),
            None => Ok(()),
        });
        self.record_compensation(branch, task, &input, output.as_ref())?;
        match stored {
            Ok(()) => self.complete_state(branch, None),
            Err(failure) => self.raise(branch, failure),
        }
    }

    pub(super) fn on_task_failed(
        &mut self,
        branch: BranchId,
        failure: Failure,
    ) -> Result<(), CorruptInstance> {
        let (_, state) = self.branch_and_state(branch)?;
        if failure.code == code::TIMEOUT && state.timeout_next.is_some() {
            return self.on_state_timeout(branch);
        }
        self.raise(branch, failure)
    }

    /// The task's input, rendered again as of the time it was entered: nothing in its scope has changed since. Only
    /// rendered if the compensation has no input of its own, else null.
    fn original_input(&self, branch: BranchId, task: &Task) -> Result<Value, CorruptInstance> {
        let needed = task.compensate_with.as_ref().is_some_and(|compensation| compensation.input.is_none());
        let Some(template) = task.call.input.as_ref().filter(|_| needed) else {
            return Ok(Value::Null);
        };
        // It fitted into a whole budget then.
        self.budget.renew();
        let scope = Scope { now: self.instance.branch(branch)?.entered_at, ..self.scope(branch) };
        Ok(template.render_lenient(&scope, self.limits.payload_bytes_max).0)
    }

    fn record_compensation(
        &mut self,
        branch: BranchId,
        task: &Task,
        task_input: &Value,
        task_result: Option<&Json>,
    ) -> Result<(), CorruptInstance> {
        let Some(compensation) = &task.compensate_with else {
            return Ok(());
        };
        let (at, state) = self.branch_and_state(branch)?;
        let visit = at.visit;
        let state_id = at.state;
        let (input, missing) = match &compensation.input {
            Some(template) => template.render_lenient(&self.scope(branch), self.limits.payload_bytes_max),
            None => (json!({"input": task_input, "output": task_result}), None),
        };
        let secrets = match (&compensation.input, &task.call.input) {
            (Some(own), _) => own.secret_pointers(),
            (None, Some(input)) => input.secret_pointers().iter().map(|at| format!("/input{at}")).collect(),
            (None, None) => Vec::new(),
        };
        if let Some(missing) = missing {
            let error = render_failure(&missing);
            self.record_note(Note::CompensationInputIncomplete { step: state.path.clone(), error });
        }
        let mut branches = vec![branch];
        while let Some(parent) = branches.last().and_then(|last| self.instance.branch(*last).ok()?.parent) {
            branches.push(parent.branch);
        }
        let activity = compensation.activity.clone();
        self.count_bytes(json::size(&input));
        self.instance.record_compensation(CompensationRecord {
            branches,
            state: state_id,
            visit,
            activity,
            input: Arc::new(input),
            secret_pointers: secrets,
        });
        Ok(())
    }
}

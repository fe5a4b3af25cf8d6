//! `task`: an activity is called, and answers or finally fails. What undoes it is recorded the moment it has answered.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::command::{CommandKind, StartActivity, StepIdentity};
use crate::definition::{State, StateKind, Task};
use crate::failure::{Failure, code};
use crate::history::{Fact, Note};
use crate::ids::BranchId;
use crate::instance::{Corrupt, Delivery, Phase, UndoRecord};
use crate::json::{self, Json};
use crate::path::Template;
use crate::scope::Scope;
use crate::time::Duration;

use super::pass::{Pass, unfilled};

/// Where a call's input refers to secrets.
pub(super) fn secrets_of(input: Option<&Template>) -> Vec<String> {
    input.map(Template::secrets).unwrap_or_default()
}

/// A call about to be dispatched.
pub(super) struct Dispatch<'a> {
    pub(super) activity: &'a str,
    pub(super) input: Json,
    /// Where the input refers to secrets.
    pub(super) secrets: Vec<String>,
    /// Tells apart several calls of one state.
    pub(super) below: String,
    pub(super) timeout: Option<Duration>,
    pub(super) attempt_timeout: Option<Duration>,
}

impl Pass<'_> {
    pub(super) fn start_task(&mut self, branch: BranchId, state: &State, task: &Task) -> Result<(), Corrupt> {
        // What is recorded to undo a task is never refused, so a task that would record is not begun where there is no room.
        let full = self.instance.header().data_bytes >= self.limits.data_bytes_max;
        if full && task.compensate_with.is_some() {
            let message = "the run's data is at its limit, so nothing more can be recorded for undoing";
            return self.raise(branch, Failure::last(code::DATA_LIMIT_EXCEEDED, message));
        }
        let input = match self.render(branch, task.call.input.as_ref()) {
            Ok(input) => input,
            Err(failure) => return self.raise(branch, failure),
        };
        let delivery = self.dispatch(
            branch,
            Dispatch {
                activity: &task.call.activity,
                input,
                secrets: secrets_of(task.call.input.as_ref()),
                below: String::new(),
                timeout: state.timeout,
                attempt_timeout: task.attempt_timeout,
            },
        )?;
        self.rest(branch);
        self.set_phase(branch, Phase::Task(delivery))
    }

    /// Emits and records one activity call.
    pub(super) fn dispatch(&mut self, branch: BranchId, call: Dispatch<'_>) -> Result<Delivery, Corrupt> {
        let step = self.identity(branch, &call.below)?;
        Ok(self.dispatch_as(branch, step, call))
    }

    /// The same, under an identity of its own.
    pub(super) fn dispatch_as(
        &mut self,
        branch: BranchId,
        step: StepIdentity,
        call: Dispatch<'_>,
    ) -> Delivery {
        let deadline = call.timeout.map(|timeout| self.now.plus(timeout));
        let path = step.path.clone();
        let command = self.emit(CommandKind::StartActivity(StartActivity {
            activity: call.activity.to_owned(),
            input: call.input.clone(),
            secrets: call.secrets,
            step,
            deadline,
            attempt_timeout: call.attempt_timeout,
        }));
        self.record(Fact::TaskScheduled {
            command,
            branch,
            activity: call.activity.to_owned(),
            input: call.input,
            step: path,
        });
        Delivery { dispatch: command, failures: 0, deadline, attempt: 0 }
    }

    /// The activity has run, so it is recorded for undoing even where its result cannot be kept.
    pub(super) fn task_answered(
        &mut self,
        branch: BranchId,
        result: Result<Json, Failure>,
    ) -> Result<(), Corrupt> {
        let (_, state) = self.place(branch)?;
        let StateKind::Task(task) = &state.kind else {
            return Err(Corrupt::new(format!("state {} is no task", state.path)));
        };
        // Before the result is written: the task may read what it writes.
        let given = self.input_given(branch, task)?;
        let answer = result.as_ref().ok().cloned();
        let kept = result.and_then(|result| match &state.output {
            Some(output) => self.assign(branch, output, result),
            None => Ok(()),
        });
        self.record_undo(branch, task, &given, answer.as_ref())?;
        match kept {
            Ok(()) => self.complete(branch, None),
            Err(failure) => self.raise(branch, failure),
        }
    }

    pub(super) fn task_failed(&mut self, branch: BranchId, failure: Failure) -> Result<(), Corrupt> {
        let (_, state) = self.place(branch)?;
        if failure.code == code::TIMEOUT && state.timeout_next.is_some() {
            return self.timed_out(branch);
        }
        self.raise(branch, failure)
    }

    /// What the task was given: rendered again as of then, because nothing its scope holds has changed since. Only asked for
    /// where the compensation has no input of its own.
    fn input_given(&self, branch: BranchId, task: &Task) -> Result<Value, Corrupt> {
        let needed = task.compensate_with.as_ref().is_some_and(|compensation| compensation.input.is_none());
        let Some(template) = task.call.input.as_ref().filter(|_| needed) else {
            return Ok(Value::Null);
        };
        let then = Scope { now: self.instance.branch(branch)?.entered_at, ..self.scope(branch) };
        Ok(template.render_lenient(&then, self.limits.payload_bytes_max).0)
    }

    fn record_undo(
        &mut self,
        branch: BranchId,
        task: &Task,
        given: &Value,
        result: Option<&Json>,
    ) -> Result<(), Corrupt> {
        let Some(compensation) = &task.compensate_with else {
            return Ok(());
        };
        let (at, state) = self.place(branch)?;
        let (visit, state_id) = (at.visit, at.state);
        let (input, missing) = match &compensation.input {
            Some(template) => template.render_lenient(&self.scope(branch), self.limits.payload_bytes_max),
            None => (json!({"input": given, "output": result}), None),
        };
        let secrets = match (&compensation.input, &task.call.input) {
            (Some(own), _) => own.secrets(),
            (None, Some(given)) => given.secrets().iter().map(|at| format!("/input{at}")).collect(),
            (None, None) => Vec::new(),
        };
        if let Some(missing) = missing {
            let error = unfilled(&missing);
            self.note(Note::CompensationInputIncomplete { step: state.path.clone(), error });
        }
        let mut branches = vec![branch];
        while let Some(parent) = branches.last().and_then(|last| self.instance.branch(*last).ok()?.parent) {
            branches.push(parent.branch);
        }
        let activity = compensation.activity.clone();
        self.count_bytes(json::size(&input));
        self.instance.record_undo(UndoRecord {
            branches,
            state: state_id,
            visit,
            activity,
            input: Arc::new(input),
            secrets,
        });
        Ok(())
    }
}

//! `task`: an activity is called, and answers or finally fails. What undoes it is recorded the moment it has answered.

use std::sync::Arc;

use serde_json::json;

use crate::command::{CommandKind, StartActivity};
use crate::definition::{State, StateKind, Task};
use crate::failure::{Failure, code};
use crate::history::{Fact, Note};
use crate::ids::BranchId;
use crate::instance::{Corrupt, Delivery, Phase, UndoRecord};
use crate::json::Json;
use crate::scope::Scope;
use crate::time::Duration;

use super::pass::Pass;

/// A call about to be dispatched.
pub(super) struct Dispatch<'a> {
    pub(super) activity: &'a str,
    pub(super) input: Json,
    /// Tells apart several calls of one state.
    pub(super) below: String,
    pub(super) timeout: Option<Duration>,
    pub(super) attempt_timeout: Option<Duration>,
}

impl Pass<'_> {
    pub(super) fn start_task(&mut self, branch: BranchId, state: &State, task: &Task) -> Result<(), Corrupt> {
        let input = match self.render(branch, task.call.input.as_ref()) {
            Ok(input) => input,
            Err(failure) => return self.raise(branch, failure),
        };
        let delivery = self.dispatch(
            branch,
            Dispatch {
                activity: &task.call.activity,
                input,
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
        let deadline = call.timeout.map(|timeout| self.now.plus(timeout));
        let path = step.path.clone();
        let command = self.emit(CommandKind::StartActivity(StartActivity {
            activity: call.activity.to_owned(),
            input: call.input.clone(),
            step,
            deadline,
            attempt_timeout: call.attempt_timeout,
        }));
        self.record(Fact::TaskScheduled {
            command,
            activity: call.activity.to_owned(),
            input: call.input,
            step: path,
        });
        Ok(Delivery { dispatch: command, failures: 0, deadline })
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
        let kept = result.clone().and_then(|result| match &state.output {
            Some(output) => self.assign(branch, output, result),
            None => Ok(()),
        });
        self.record_undo(branch, task, result.ok())?;
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

    fn record_undo(&mut self, branch: BranchId, task: &Task, result: Option<Json>) -> Result<(), Corrupt> {
        let Some(compensation) = &task.compensate_with else {
            return Ok(());
        };
        let (at, state) = self.place(branch)?;
        let (visit, state_id, entered_at) = (at.visit, at.state, at.entered_at);
        let scope = self.scope(branch);
        let (input, missing) = match &compensation.input {
            Some(template) => template.render_lenient(&scope),
            None => {
                // What the task was given: rendered again as of then, because nothing its scope holds has changed since.
                let then = Scope { now: entered_at, ..scope };
                let given = task.call.input.as_ref().map(|template| template.render_lenient(&then).0);
                (json!({"input": given, "output": result}), None)
            }
        };
        if let Some(missing) = missing {
            let error = Failure::last(code::PATH_MISSING, missing.to_string());
            self.note(Note::CompensationInputIncomplete { step: state.path.clone(), error });
        }
        let mut branches = vec![branch];
        while let Some(parent) = branches.last().and_then(|last| self.instance.branch(*last).ok()?.parent) {
            branches.push(parent.branch);
        }
        let activity = compensation.activity.clone();
        self.instance.record_undo(UndoRecord {
            branches,
            state: state_id,
            visit,
            activity,
            input: Arc::new(input),
        });
        Ok(())
    }
}

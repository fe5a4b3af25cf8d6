//! Enters a state: counts the transition, records it, and starts the state by its type. It does not leave states;
//! `leave` does.

use serde_json::Value;

use crate::condition::Condition;
use crate::definition::StateKind;
use crate::evaluation::EvaluationLimitExceeded;
use crate::failure::{Failure, code};
use crate::history::{Fact, Note};
use crate::ids::BranchId;
use crate::instance::CorruptInstance;
use crate::path::Template;

use super::interpreter::Interpreter;

impl Interpreter<'_> {
    pub(super) fn enter_state(&mut self, branch: BranchId) -> Result<(), CorruptInstance> {
        if !self.count_transition() {
            return Ok(());
        }
        self.clear_passed_rewind_point(branch)?;
        let now = self.now;
        let redrive = self.instance.header().redrives;
        let repeats = self.plan.can_repeat(self.instance.branch(branch)?.state);
        let visit = self.instance.change_branch(branch, |at| {
            at.entered_at = now;
            // A state entered after a rewind is new work, even if it was entered before.
            at.redrive = redrive;
            // A visit that rewind runs again keeps its number.
            if at.visit == 0 {
                at.visit = 1;
                if repeats {
                    let visits = at.visits.entry(at.state).or_insert(0);
                    *visits = visits.saturating_add(1);
                    at.visit = *visits;
                }
            }
            at.visit
        })?;
        self.resume_unanswered_task(branch)?;
        let (_, state) = self.branch_and_state(branch)?;
        self.record(Fact::StateEntered { branch, state: state.path.clone(), visit });
        match &state.kind {
            StateKind::Task(task) => self.start_task(branch, state, task),
            StateKind::WaitUntil(time) => self.start_wait(branch, time),
            StateKind::WaitEvent(wait) => self.start_event_wait(branch, state, wait),
            StateKind::Choice { choices, default } => {
                let chosen = match self.choose(branch, choices) {
                    Ok(chosen) => chosen,
                    Err(exceeded) => return self.raise(branch, exceeded.into()),
                };
                match chosen.or(default.as_deref()) {
                    Some(next) => self.transition_to(branch, next),
                    None => {
                        let message = "no choice matched and there is no default";
                        self.raise(branch, Failure::permanent(code::NO_CHOICE_MATCHED, message))
                    }
                }
            }
            StateKind::Parallel { branches, join } => self.start_fan_out(branch, branches.len(), *join),
            StateKind::Map { items, join, .. } => self.start_map(branch, items, *join),
            StateKind::Workflow(call) => self.start_child(branch, state, call),
            StateKind::ContinueAsNew { input } => match self.render(branch, input.as_ref()) {
                Ok(input) => self.continue_as_new(branch, input),
                Err(failure) => self.raise(branch, failure),
            },
            StateKind::Compensation { steps } => self.start_compensation(branch, steps.as_deref()),
            StateKind::Succeed { output } => match self.render(branch, output.as_ref()) {
                Ok(output) => self.on_branch_succeeded(branch, output),
                Err(failure) => self.raise(branch, failure),
            },
            StateKind::Fail { error, message } => {
                let failure = self.fail_state_failure(branch, error.as_ref(), message.as_ref());
                // An error of another branch did not lead here: rewinding to it would not change this outcome.
                if self.instance.header().rewind_point.is_some_and(|point| point.branch != branch) {
                    self.instance.header_mut().rewind_point = None;
                }
                self.record_state_left(branch, None, Some(failure.clone()))?;
                self.fail_branch(branch, failure)
            }
        }
    }

    /// The state that the first condition to hold leads to.
    fn choose<'c>(
        &self,
        branch: BranchId,
        choices: &'c [(Condition, String)],
    ) -> Result<Option<&'c str>, EvaluationLimitExceeded> {
        let scope = self.scope(branch);
        for (condition, next) in choices {
            if condition.holds(&scope)? {
                return Ok(Some(next));
            }
        }
        Ok(None)
    }

    /// Clears the rewind point once the branch has reached a state that it would also have reached without the error:
    /// rewinding would repeat steps that have completed since.
    fn clear_passed_rewind_point(&mut self, branch: BranchId) -> Result<(), CorruptInstance> {
        let Some(point) = self.instance.header().rewind_point.filter(|point| point.branch == branch) else {
            return Ok(());
        };
        let state = self.instance.branch(branch)?.state;
        if state != point.state && self.plan.success_leads_to(point.state, state)? {
            self.instance.header_mut().rewind_point = None;
        }
        Ok(())
    }

    /// How many states this run may enter before it is parked.
    pub(super) fn transitions_limit(&self) -> u64 {
        self.plan.definition().configuration.max_transitions.unwrap_or(self.limits.transitions_max)
    }

    /// Counts a transition. At the limit the run is parked instead, until an operator has inspected and resumes it.
    fn count_transition(&mut self) -> bool {
        let limit = self.transitions_limit();
        let header = self.instance.header_mut();
        if header.transitions_allowed == 0 {
            header.transitions_allowed = limit;
        }
        let transitions = header.transitions;
        let allowed = header.transitions_allowed;
        if transitions >= allowed {
            self.park(format!("transition limit of {transitions} reached; resume to allow {limit} more"));
            return false;
        }
        header.transitions = header.transitions.saturating_add(1);
        header.entered_since_message = header.entered_since_message.saturating_add(1);
        let spins = header.entered_since_message > self.limits.transitions_max;
        let near = allowed.saturating_sub(limit / 5);
        if header.transitions >= near && !header.transitions_warned {
            header.transitions_warned = true;
            self.record_note(Note::TransitionsNearLimit { transitions: transitions + 1, limit: allowed });
        }
        if spins {
            // Ready branches come before messages, so a run that never waits would never process a control operation.
            self.instance.header_mut().entered_since_message = 0;
            self.park(
                "runaway loop: too many transitions without waiting; inspect the run before resuming it"
                    .to_owned(),
            );
            return false;
        }
        true
    }

    /// The error of a `fail` state: its own code and message, or else those of the last caught error.
    fn fail_state_failure(
        &self,
        branch: BranchId,
        error: Option<&Template>,
        message: Option<&Template>,
    ) -> Failure {
        let scope = self.scope(branch);
        let text = |template: &Template| match template.render(&scope, self.limits.payload_bytes_max) {
            Ok(Value::String(text)) => Some(text),
            Ok(other) => Some(other.to_string()),
            Err(_) => None,
        };
        let caught = self.caught_error(branch);
        let own = self.branch_and_state(branch).ok().map(|(_, state)| state.name.clone());
        let state =
            caught.as_ref().and_then(|caught| caught.state.clone()).filter(|_| error.is_none()).or(own);
        let (caught_code, caught_message) = caught.map(|caught| (caught.code, caught.message)).unzip();
        let code = error.and_then(text).or(caught_code).unwrap_or_else(|| code::FAILED.to_owned());
        let message = message
            .and_then(text)
            .or(caught_message)
            .unwrap_or_else(|| "the workflow ended in a fail state".to_owned());
        Failure { code, message, state, retryable: false }.truncated()
    }
}

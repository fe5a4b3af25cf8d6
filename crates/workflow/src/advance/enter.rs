//! A branch enters its state: counted, recorded, and handed to what that type of state does.

use serde_json::Value;

use crate::definition::StateKind;
use crate::failure::{Failure, code};
use crate::history::{Fact, Note};
use crate::ids::BranchId;
use crate::instance::Corrupt;
use crate::path::Template;

use super::pass::Pass;

impl Pass<'_> {
    pub(super) fn enter(&mut self, branch: BranchId) -> Result<(), Corrupt> {
        if !self.count_transition() {
            return Ok(());
        }
        self.forget_failure_left_behind(branch)?;
        let (now, redrive) = (self.now, self.instance.header().redrives);
        let repeats = self.plan.repeats(self.instance.branch(branch)?.state);
        let visit = self.instance.change_branch(branch, |at| {
            at.entered_at = now;
            // Whatever is entered after a rewind is new work, even where it was entered before.
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
        let (_, state) = self.place(branch)?;
        self.record(Fact::StateEntered { branch, state: state.path.clone(), visit });
        match &state.kind {
            StateKind::Task(task) => self.start_task(branch, state, task),
            StateKind::WaitUntil(moment) => self.start_wait(branch, moment),
            StateKind::WaitEvent(wait) => self.start_event_wait(branch, state, wait),
            StateKind::Choice { choices, default } => {
                let scope = self.scope(branch);
                let chosen =
                    choices.iter().find(|(condition, _)| condition.holds(&scope)).map(|(_, next)| next);
                match chosen.or(default.as_ref()) {
                    Some(next) => self.go(branch, next),
                    None => {
                        let message = "no choice matched and there is no default";
                        self.raise(branch, Failure::last(code::NO_CHOICE_MATCHED, message))
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
                Ok(output) => self.branch_succeeded(branch, output),
                Err(failure) => self.raise(branch, failure),
            },
            StateKind::Fail { error, message } => {
                let failure = self.failure_of(branch, error.as_ref(), message.as_ref());
                // An error of another branch did not lead here: going back to it would not undo this choice.
                if self.instance.header().failed_at.is_some_and(|failed| failed.branch != branch) {
                    self.instance.header_mut().failed_at = None;
                }
                self.record_left(branch, None, Some(failure.clone()))?;
                self.fail_branch(branch, failure)
            }
        }
    }

    /// An error is behind a branch that has come to where it would have come without it: going back would repeat what was
    /// answered since.
    fn forget_failure_left_behind(&mut self, branch: BranchId) -> Result<(), Corrupt> {
        let Some(failed) = self.instance.header().failed_at.filter(|failed| failed.branch == branch) else {
            return Ok(());
        };
        let state = self.instance.branch(branch)?.state;
        if state != failed.state && self.plan.leads_on_to(failed.state, state)? {
            self.instance.header_mut().failed_at = None;
        }
        Ok(())
    }

    /// How many states this run may enter before it is parked.
    pub(super) fn transitions_limit(&self) -> u64 {
        self.plan.definition().configuration.max_transitions.unwrap_or(self.limits.transitions_max)
    }

    /// Counts a transition. At the limit the run is parked instead, to be resumed by somebody who has looked at it.
    fn count_transition(&mut self) -> bool {
        let limit = self.transitions_limit();
        let header = self.instance.header_mut();
        if header.transitions_allowed == 0 {
            header.transitions_allowed = limit;
        }
        let (transitions, allowed) = (header.transitions, header.transitions_allowed);
        if transitions >= allowed {
            self.park(format!(
                "{transitions} states have been entered, which is the limit; resume to allow {limit} more"
            ));
            return false;
        }
        header.transitions = header.transitions.saturating_add(1);
        header.entered_since_message = header.entered_since_message.saturating_add(1);
        let spins = header.entered_since_message > self.limits.transitions_max;
        let near = allowed.saturating_sub(limit / 5);
        if header.transitions >= near && !header.transitions_warned {
            header.transitions_warned = true;
            self.note(Note::TransitionsNearLimit { transitions: transitions + 1, limit: allowed });
        }
        if spins {
            // Work in hand comes before messages, so a run that never rests would never hear an order.
            self.instance.header_mut().entered_since_message = 0;
            self.park(
                "it enters state after state without resting; look at it before it is resumed".to_owned(),
            );
            return false;
        }
        true
    }

    /// What a `fail` state fails with: its own words, or else the last caught error's.
    fn failure_of(&self, branch: BranchId, error: Option<&Template>, message: Option<&Template>) -> Failure {
        let scope = self.scope(branch);
        let text = |template: &Template| match template.render(&scope, self.limits.payload_bytes_max) {
            Ok(Value::String(text)) => Some(text),
            Ok(other) => Some(other.to_string()),
            Err(_) => None,
        };
        let caught = self.caught_error(branch);
        let own = self.place(branch).ok().map(|(_, state)| state.name.clone());
        let state =
            caught.as_ref().and_then(|caught| caught.state.clone()).filter(|_| error.is_none()).or(own);
        let (caught_code, caught_message) = caught.map(|caught| (caught.code, caught.message)).unzip();
        let code = error.and_then(text).or(caught_code).unwrap_or_else(|| code::FAILED.to_owned());
        let message = message
            .and_then(text)
            .or(caught_message)
            .unwrap_or_else(|| "the workflow chose to fail".to_owned());
        Failure { code, message, state, retryable: false }.bounded()
    }
}

//! The `wait` state: waits for a point in time, or for an event that may already be buffered. It does not set timers
//! itself; the runtime does.

use crate::command::CommandKind;
use crate::definition::{EventWait, State, StateKind, WaitTime};
use crate::evaluation::EvaluationLimitExceeded;
use crate::failure::{Failure, code};
use crate::history::Fact;
use crate::ids::{BranchId, CommandId};
use crate::instance::{CorruptInstance, Phase, SlotName};
use crate::json::Json;
use crate::path::Path;
use crate::scope::Scope;
use crate::time::{Duration, TimeError, Timestamp};

use super::interpreter::{Interpreter, read_failure};

/// Who takes an event.
pub(super) enum EventTaker {
    /// The branch that has waited longest for it and matches its payload.
    Waiter(BranchId),
    /// This branch waits for the event's name, but the budget did not suffice to find out whether it matches.
    Undecided(BranchId, EvaluationLimitExceeded),
    /// No branch waits for it.
    Nobody,
}

impl Interpreter<'_> {
    pub(super) fn start_wait(&mut self, branch: BranchId, time: &WaitTime) -> Result<(), CorruptInstance> {
        let fire_at = match time {
            WaitTime::After(duration) => Ok(self.now.plus(*duration)),
            WaitTime::At(timestamp) => Ok(*timestamp),
            WaitTime::AfterPath(path) => {
                self.resolve_time(branch, path, Duration::parse).map(|duration| self.now.plus(duration))
            }
            WaitTime::AtPath(path) => self.resolve_time(branch, path, Timestamp::parse),
        };
        match fire_at {
            Ok(fire_at) => {
                let timer = self.start_timer(Some(branch), fire_at);
                self.mark_idle(branch);
                self.set_phase(branch, Phase::Timer { timer })
            }
            Err(failure) => self.raise(branch, failure),
        }
    }

    fn resolve_time<T>(
        &self,
        branch: BranchId,
        path: &Path,
        parse: impl Fn(&str) -> Result<T, TimeError>,
    ) -> Result<T, Failure> {
        let scope = self.scope(branch);
        let value = path.get(&scope).map_err(|error| read_failure(&error))?;
        let mismatch =
            |reason: String| Failure::permanent(code::TYPE_MISMATCH, format!("{}: {reason}", path.text()));
        let text = value.as_str().ok_or_else(|| mismatch("expected a string".to_owned()))?;
        parse(text).map_err(|error| mismatch(error.to_string()))
    }

    pub(super) fn start_timer(&mut self, branch: Option<BranchId>, fire_at: Timestamp) -> CommandId {
        let command = self.emit(CommandKind::StartTimer { fire_at });
        self.record(Fact::TimerCreated { command, branch, fire_at });
        command
    }

    pub(super) fn start_event_wait(
        &mut self,
        branch: BranchId,
        state: &State,
        wait: &EventWait,
    ) -> Result<(), CorruptInstance> {
        let early = match self.find_buffered_event(branch, wait) {
            Ok(early) => early,
            Err(exceeded) => return self.raise(branch, exceeded.into()),
        };
        if let Some(payload) =
            early.and_then(|arrival| self.instance.take_buffered_event(&wait.name, arrival))
        {
            return self.deliver_event(branch, payload);
        }
        let timer = state.timeout.map(|timeout| self.start_timer(Some(branch), self.now.plus(timeout)));
        let since = self.instance.next_arrival();
        self.mark_idle(branch);
        self.set_phase(branch, Phase::Event { name: wait.name.clone(), since, timer })
    }

    fn find_buffered_event(
        &self,
        branch: BranchId,
        wait: &EventWait,
    ) -> Result<Option<u64>, EvaluationLimitExceeded> {
        for (arrival, payload) in self.instance.buffered_events(&wait.name) {
            if self.event_matches(branch, wait, payload)? {
                return Ok(Some(arrival));
            }
        }
        Ok(None)
    }

    pub(super) fn find_event_taker(&self, name: &str, payload: &Json) -> Result<EventTaker, CorruptInstance> {
        for branch in self.instance.index().event_waiters(name) {
            let (_, state) = self.branch_and_state(branch)?;
            let StateKind::WaitEvent(wait) = &state.kind else { continue };
            match self.event_matches(branch, wait, payload) {
                Ok(true) => return Ok(EventTaker::Waiter(branch)),
                Ok(false) => {}
                Err(exceeded) => return Ok(EventTaker::Undecided(branch, exceeded)),
            }
        }
        Ok(EventTaker::Nobody)
    }

    fn event_matches(
        &self,
        branch: BranchId,
        wait: &EventWait,
        payload: &Json,
    ) -> Result<bool, EvaluationLimitExceeded> {
        let scope = Scope { event: Some(payload), ..self.scope(branch) };
        wait.matching.as_ref().map_or(Ok(true), |condition| condition.holds(&scope))
    }

    /// Delivers an event to the branch that has waited longest and matches it, or buffers it for a later wait. A branch
    /// that cannot tell whether it matches fails, and the event stays for another.
    pub(super) fn on_event_raised(&mut self, name: &str, payload: Json) -> Result<(), CorruptInstance> {
        let (branch, delivery) = match self.find_event_taker(name, &payload)? {
            EventTaker::Waiter(branch) => (branch, Ok(payload)),
            EventTaker::Undecided(branch, exceeded) => {
                self.instance.buffer_event(name, payload);
                (branch, Err(exceeded.into()))
            }
            EventTaker::Nobody => {
                self.instance.buffer_event(name, payload);
                return Ok(());
            }
        };
        if let Phase::Event { timer: Some(timer), .. } = self.instance.branch(branch)?.phase {
            self.emit(CommandKind::CancelTimer { timer });
        }
        match delivery {
            Ok(payload) => self.deliver_event(branch, payload),
            Err(failure) => self.raise(branch, failure),
        }
    }

    fn deliver_event(&mut self, branch: BranchId, payload: Json) -> Result<(), CorruptInstance> {
        match self.put_data(branch, SlotName::Event, payload.clone()) {
            Ok(()) => self.complete_state(branch, Some(payload)),
            Err(failure) => self.raise(branch, failure),
        }
    }
}

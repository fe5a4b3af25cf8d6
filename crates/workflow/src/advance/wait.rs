//! `wait`: for a moment, or for an event that may have come already.

use crate::command::CommandKind;
use crate::definition::{EventWait, Moment, State, StateKind};
use crate::failure::{Failure, code};
use crate::history::Fact;
use crate::ids::{BranchId, CommandId};
use crate::instance::{Corrupt, Phase, SlotName};
use crate::json::Json;
use crate::path::Path;
use crate::scope::Scope;
use crate::time::{Duration, TimeError, Timestamp};

use super::pass::Pass;

impl Pass<'_> {
    pub(super) fn start_wait(&mut self, branch: BranchId, moment: &Moment) -> Result<(), Corrupt> {
        let fire_at = match moment {
            Moment::After(duration) => Ok(self.now.plus(*duration)),
            Moment::At(moment) => Ok(*moment),
            Moment::AfterPath(path) => {
                self.time_at(branch, path, Duration::parse).map(|duration| self.now.plus(duration))
            }
            Moment::AtPath(path) => self.time_at(branch, path, Timestamp::parse),
        };
        match fire_at {
            Ok(fire_at) => {
                let timer = self.start_timer(Some(branch), fire_at);
                self.rest(branch);
                self.set_phase(branch, Phase::Timer { timer })
            }
            Err(failure) => self.raise(branch, failure),
        }
    }

    fn time_at<T>(
        &self,
        branch: BranchId,
        path: &Path,
        parse: impl Fn(&str) -> Result<T, TimeError>,
    ) -> Result<T, Failure> {
        let scope = self.scope(branch);
        let value =
            path.get(&scope).map_err(|missing| Failure::last(code::PATH_MISSING, missing.to_string()))?;
        let mismatch =
            |reason: String| Failure::last(code::TYPE_MISMATCH, format!("{}: {reason}", path.text()));
        let text = value.as_str().ok_or_else(|| mismatch("a string is expected".to_owned()))?;
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
    ) -> Result<(), Corrupt> {
        let early = self
            .instance
            .buffered_events(&wait.name)
            .find(|(_, payload)| self.event_matches(branch, wait, payload))
            .map(|(arrival, _)| arrival);
        if let Some(payload) = early.and_then(|arrival| self.instance.take_buffered(&wait.name, arrival)) {
            return self.deliver_event(branch, payload);
        }
        let timer = state.timeout.map(|timeout| self.start_timer(Some(branch), self.now.plus(timeout)));
        let since = self.instance.next_arrival();
        self.rest(branch);
        self.set_phase(branch, Phase::Event { name: wait.name.clone(), since, timer })
    }

    /// The branch that has waited longest for this event and will have it.
    pub(super) fn taker(&self, name: &str, payload: &Json) -> Result<Option<BranchId>, Corrupt> {
        for branch in self.instance.index().waiting_for(name) {
            let (_, state) = self.place(branch)?;
            if let StateKind::WaitEvent(wait) = &state.kind
                && self.event_matches(branch, wait, payload)
            {
                return Ok(Some(branch));
            }
        }
        Ok(None)
    }

    fn event_matches(&self, branch: BranchId, wait: &EventWait, payload: &Json) -> bool {
        let scope = Scope { event: Some(payload), ..self.scope(branch) };
        wait.matching.as_ref().is_none_or(|condition| condition.holds(&scope))
    }

    /// Goes to whoever has waited longest and will have it, or is kept for whoever will.
    pub(super) fn on_event_raised(&mut self, name: &str, payload: Json) -> Result<(), Corrupt> {
        let Some(branch) = self.taker(name, &payload)? else {
            self.instance.buffer_event(name, payload);
            return Ok(());
        };
        if let Phase::Event { timer: Some(timer), .. } = self.instance.branch(branch)?.phase {
            self.emit(CommandKind::CancelTimer { timer });
        }
        self.deliver_event(branch, payload)
    }

    fn deliver_event(&mut self, branch: BranchId, payload: Json) -> Result<(), Corrupt> {
        match self.put(branch, SlotName::Event, payload.clone()) {
            Ok(()) => self.complete(branch, Some(payload)),
            Err(failure) => self.raise(branch, failure),
        }
    }
}

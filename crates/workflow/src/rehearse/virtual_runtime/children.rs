//! Child runs of a rehearsal: played with their own definition if the rehearsal has it, otherwise mocked. Knows nothing
//! of activities.

use std::sync::Arc;

use super::{ScheduledEvent, VirtualRuntime};
use crate::command::StartChild;
use crate::failure::{Failure, code};
use crate::ids::{CommandId, RunNumber};
use crate::instance::{CorruptInstance, ParentLink, RunOrigin};
use crate::message::Message;
use crate::rehearse::MockOutcome;

impl VirtualRuntime<'_> {
    pub(super) fn notify_parent(&mut self, number: usize, message: impl FnOnce(CommandId) -> Message) {
        if let Some((parent, command)) = self.instances.get(number).and_then(|rehearsed| rehearsed.parent) {
            self.schedule(self.now, ScheduledEvent::Message { instance: parent, message: message(command) });
        }
    }

    pub(super) fn start_child(
        &mut self,
        number: usize,
        command: CommandId,
        child: StartChild,
    ) -> Result<(), CorruptInstance> {
        let Some(parent) = self.instances.get(number) else { return Ok(()) };
        let link = ParentLink {
            instance_id: parent.instance.origin().instance_id.clone(),
            run: parent.instance.origin().run,
            command,
        };
        let plan = self.rehearsal.children.get(&child.workflow).copied();
        let plan =
            plan.filter(|plan| child.version.as_ref().is_none_or(|range| range.matches(plan.version())));
        let Some(plan) = plan else {
            self.mock_child(number, command, child);
            return Ok(());
        };
        if let Err(mismatches) = plan.check_input(&child.input) {
            let reason = mismatches.first().map(ToString::to_string).unwrap_or_default();
            let failure = Failure::permanent(code::INPUT_INVALID, reason);
            let message = Message::ChildFailed { command, failure };
            self.schedule(self.now, ScheduledEvent::Message { instance: number, message });
            return Ok(());
        }
        let depth_max = self.rehearsal.limits.depth_max;
        if self.depth_of_child(number) > depth_max {
            let reason = format!("the limit is {depth_max} runs above a child");
            let failure = Failure::permanent(code::CHILD_TOO_DEEP, reason);
            let message = Message::ChildFailed { command, failure };
            self.schedule(self.now, ScheduledEvent::Message { instance: number, message });
            return Ok(());
        }
        let mut origin = RunOrigin::new(child.instance_id, RunNumber(1), plan);
        origin.input = child.input;
        origin.parent = Some(link);
        let child = self.add_instance(plan, origin, Some((number, command)));
        if let Some(parent) = self.instances.get_mut(number) {
            parent.children.insert(command, child);
        }
        self.run_turns(child)
    }

    /// How many runs a child of this run has above it.
    fn depth_of_child(&self, number: usize) -> u32 {
        let mut depth = 0;
        let mut above = Some(number);
        while let Some(rehearsed) = above.and_then(|number| self.instances.get(number)) {
            depth += 1;
            above = rehearsed.parent.map(|(parent, _)| parent);
        }
        depth
    }

    /// Schedules the mocked outcome of a child whose definition the rehearsal does not have.
    fn mock_child(&mut self, number: usize, command: CommandId, child: StartChild) {
        let outcome = self.next_mock_outcome(&format!("workflow {}", child.workflow), |mocks| {
            mocks.workflows.get(&child.workflow)
        });
        let message = match outcome {
            None => {
                self.unmocked.insert(format!("workflow {}", child.workflow));
                let failure = Failure::permanent(code::WORKFLOW_NOT_FOUND, self.not_found_reason(&child));
                Some((self.now, Message::ChildFailed { command, failure }))
            }
            Some(MockOutcome::Result(after, output)) => {
                Some((self.now.plus(after), Message::ChildCompleted { command, output: Arc::new(output) }))
            }
            Some(MockOutcome::Echo(after)) => {
                Some((self.now.plus(after), Message::ChildCompleted { command, output: child.input }))
            }
            Some(MockOutcome::Error(after, failure)) => {
                Some((self.now.plus(after), Message::ChildFailed { command, failure }))
            }
            Some(MockOutcome::Never) => None,
        };
        if let Some((at, message)) = message {
            self.schedule(at, ScheduledEvent::Message { instance: number, message });
        }
    }

    fn not_found_reason(&self, child: &StartChild) -> String {
        let existing = self.rehearsal.children.get(&child.workflow).map(|plan| plan.version());
        match (existing, &child.version) {
            (Some(existing), Some(requested)) => {
                format!(
                    "workflow {:?} exists in version {existing}, but {requested} was requested",
                    child.workflow
                )
            }
            _ => format!("there is no workflow {:?}", child.workflow),
        }
    }
}

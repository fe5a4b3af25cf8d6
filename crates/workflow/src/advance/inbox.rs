//! What a message does: found by its command or its name, checked against what the instance waits for now, applied or recorded
//! as late.

use crate::failure::Failure;
use crate::history::Fact;
use crate::ids::CommandId;
use crate::instance::{Corrupt, Ending, Phase, Status};
use crate::json::Json;
use crate::message::Message;

use super::pass::Pass;

impl Pass<'_> {
    /// Takes a message from the inbox: orders at once, the rest unless the run is suspended.
    pub(super) fn take(&mut self, position: usize, message: &Message) -> Result<(), Corrupt> {
        if let Err(refusal) = self.instance.accepts(message, self.limits) {
            self.refused.push((position, refusal));
            return Ok(());
        }
        match message {
            Message::Suspend { reason } => {
                self.suspend(reason);
                Ok(())
            }
            Message::Resume { reason } => {
                self.resume(reason);
                Ok(())
            }
            Message::Terminate { reason } => {
                self.close(Ending::Terminate(reason.clone()));
                Ok(())
            }
            Message::Rewind { reason } => self.rewind(reason),
            message => {
                if let Message::EventRaised { name, payload } = message {
                    // Somebody waits for the name but will not have this one, and there is no room to keep it.
                    if let Some(refusal) = self.instance.buffer_full(message, self.limits)
                        && (self.instance.header().suspended || self.taker(name, payload)?.is_none())
                    {
                        self.refused.push((position, refusal));
                        return Ok(());
                    }
                    self.count_bytes(message.payload_bytes());
                    self.record(Fact::EventRaised { name: name.clone(), input: payload.clone() });
                }
                if self.instance.header().suspended {
                    self.instance.hold(message.clone());
                    return Ok(());
                }
                self.apply(message.clone())
            }
        }
    }

    /// Lets a message take effect.
    pub(super) fn apply(&mut self, message: Message) -> Result<(), Corrupt> {
        match message {
            Message::ActivityCompleted { command, result } => self.on_activity_completed(command, result),
            Message::ActivityFailed { command, attempt, failure } => {
                self.on_activity_failed(command, attempt, failure.bounded())
            }
            Message::TimerFired { timer } => self.on_timer_fired(timer),
            Message::EventRaised { name, payload } => self.on_event_raised(&name, payload),
            Message::ChildCompleted { command, output } => self.on_child_completed(command, output),
            Message::ChildFailed { command, failure } => self.on_child_failed(command, failure.bounded()),
            // Orders are never held.
            Message::Suspend { .. }
            | Message::Resume { .. }
            | Message::Terminate { .. }
            | Message::Rewind { .. } => Ok(()),
        }
    }

    fn suspend(&mut self, reason: &str) {
        if !self.instance.header().suspended {
            self.park(reason.to_owned());
        }
    }

    /// Stops moving until resumed.
    pub(super) fn park(&mut self, reason: String) {
        let header = self.instance.header_mut();
        header.suspended = true;
        header.status = Status::Suspended;
        self.record(Fact::ExecutionSuspended { reason });
    }

    fn resume(&mut self, reason: &str) {
        let limit = self.transitions_limit();
        let header = self.instance.header_mut();
        header.suspended = false;
        header.status = Status::Running;
        // Whoever resumes a run that was parked at its limit has looked at it: it may go as far again.
        if header.transitions >= header.transitions_allowed {
            header.transitions_allowed = header.transitions.saturating_add(limit);
            header.transitions_warned = false;
        }
        self.record(Fact::ExecutionResumed { reason: reason.to_owned() });
    }

    fn on_activity_completed(&mut self, command: CommandId, result: Json) -> Result<(), Corrupt> {
        let Some(branch) = self.instance.index().branch_of(command) else {
            self.record(Fact::TaskCompleted { command, result, late: true });
            return Ok(());
        };
        let admitted = self.admit(&result);
        match &admitted {
            Ok(()) => self.record(Fact::TaskCompleted { command, result: result.clone(), late: false }),
            Err(failure) => self.record(Fact::TaskFailed {
                command,
                attempt: 0,
                error: failure.clone(),
                retry_at: None,
                late: false,
            }),
        }
        match &self.instance.branch(branch)?.phase {
            Phase::Task(_) => self.task_answered(branch, admitted.map(|()| result)),
            Phase::Undoing(_) => self.undo_answered(branch, command, Ok(())),
            Phase::Notifying(_) => self.notified(branch),
            _ => Ok(()),
        }
    }

    fn on_activity_failed(
        &mut self,
        command: CommandId,
        attempt: u32,
        failure: Failure,
    ) -> Result<(), Corrupt> {
        let Some(branch) = self.instance.index().branch_of(command) else {
            self.record(Fact::TaskFailed { command, attempt, error: failure, retry_at: None, late: true });
            return Ok(());
        };
        match &self.instance.branch(branch)?.phase {
            Phase::Task(_) | Phase::Undoing(_) | Phase::Notifying(_) => {
                self.delivery_failed(branch, command, attempt, failure)
            }
            _ => Ok(()),
        }
    }

    fn on_timer_fired(&mut self, timer: CommandId) -> Result<(), Corrupt> {
        if self.instance.header().timer == Some(timer) {
            self.record(Fact::TimerFired { command: timer });
            return self.on_workflow_timer();
        }
        let Some(branch) = self.instance.index().branch_of(timer) else {
            return Ok(());
        };
        match &self.instance.branch(branch)?.phase {
            Phase::Timer { .. } => {
                self.record(Fact::TimerFired { command: timer });
                self.complete(branch, None)
            }
            Phase::Event { .. } => {
                self.record(Fact::TimerFired { command: timer });
                self.timed_out(branch)
            }
            Phase::Child { child, timer: Some(own) } if *own == timer => {
                let child = *child;
                self.record(Fact::TimerFired { command: timer });
                self.child_timed_out(branch, child)
            }
            _ => Ok(()),
        }
    }
}

//! What a message does: found by its command or its name, checked against what the instance waits for now, applied or recorded
//! as late.

use crate::failure::Failure;
use crate::history::Fact;
use crate::ids::{BranchId, CommandId};
use crate::instance::{Corrupt, Ending, Phase, Status};
use crate::json::{self, Json};
use crate::message::Message;

use super::pass::{Pass, keepable};
use super::retry::FailedDelivery;

impl Pass<'_> {
    /// Takes a message from the inbox: orders at once, the rest unless the run is suspended.
    pub(super) fn take(&mut self, position: usize, message: &Message) -> Result<(), Corrupt> {
        if let Err(refusal) = self.instance.accepts(message, self.limits) {
            self.refused.push((position, refusal));
            return Ok(());
        }
        self.instance.header_mut().entered_since_message = 0;
        match message {
            Message::Suspend { reason } => {
                self.suspend(&cut(reason));
                Ok(())
            }
            Message::Resume { reason } => {
                self.resume(&cut(reason));
                Ok(())
            }
            Message::Terminate { reason } => {
                self.close(Ending::Terminate(cut(reason)));
                Ok(())
            }
            Message::Rewind { reason } => self.rewind(&cut(reason)),
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
                let message = self.normalised(message);
                if self.instance.header().suspended {
                    // An event is counted already; an answer is when it takes effect, which is another turn.
                    if !matches!(message, Message::EventRaised { .. }) {
                        self.count_bytes(message.payload_bytes());
                    }
                    self.instance.hold(message);
                    return Ok(());
                }
                self.apply(message)
            }
        }
    }

    /// Lets a message take effect.
    pub(super) fn apply(&mut self, message: Message) -> Result<(), Corrupt> {
        match message {
            Message::ActivityCompleted { command, result } => self.on_activity_completed(command, result),
            Message::ActivityFailed { command, attempt, failure } => self.on_activity_failed(
                command,
                FailedDelivery { attempt, failure, not_before: None, sent: true },
            ),
            Message::ActivityDeferred { command, attempt, failure, not_before, sent } => {
                let not_before = Some(not_before);
                self.on_activity_failed(command, FailedDelivery { attempt, failure, not_before, sent })
            }
            Message::TimerFired { timer } => self.on_timer_fired(timer),
            Message::EventRaised { name, payload } => self.on_event_raised(&name, payload),
            Message::ChildCompleted { command, output } => self.on_child_completed(command, output),
            Message::ChildFailed { command, failure } => self.on_child_failed(command, failure),
            Message::ActivityUnkeepable { command, failure } => self.on_activity_unkeepable(command, failure),
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

    /// A message as it may be kept: what is too large or too deep becomes an error that says so, before it is held or recorded.
    fn normalised(&self, message: &Message) -> Message {
        match message {
            Message::ActivityCompleted { command, result } => match keepable(result, self.limits) {
                Ok(()) => message.clone(),
                Err(failure) => Message::ActivityUnkeepable { command: *command, failure },
            },
            Message::ChildCompleted { command, output } => match keepable(output, self.limits) {
                Ok(()) => message.clone(),
                Err(failure) => Message::ChildFailed { command: *command, failure },
            },
            Message::ActivityFailed { command, attempt, failure } => Message::ActivityFailed {
                command: *command,
                attempt: *attempt,
                failure: failure.clone().bounded(),
            },
            Message::ActivityDeferred { command, attempt, failure, not_before, sent } => {
                Message::ActivityDeferred {
                    command: *command,
                    attempt: *attempt,
                    failure: failure.clone().bounded(),
                    not_before: *not_before,
                    sent: *sent,
                }
            }
            Message::ChildFailed { command, failure } => {
                Message::ChildFailed { command: *command, failure: failure.clone().bounded() }
            }
            other => other.clone(),
        }
    }

    /// A result nobody waits for is recorded, a large one by its size only: repeats of it must not fill history.
    pub(super) fn late_result(&mut self, result: Json) -> Json {
        const LATE_BYTES_MAX: u64 = 4 * 1024;
        let bytes = json::size(&result);
        self.count_bytes(bytes.min(LATE_BYTES_MAX));
        if bytes <= LATE_BYTES_MAX { result } else { Json::new(serde_json::json!({"omittedBytes": bytes})) }
    }

    /// The branch that waits for this dispatch. A number that names something else is not for it.
    fn branch_of_dispatch(&self, command: CommandId) -> Result<Option<BranchId>, Corrupt> {
        let Some(branch) = self.instance.index().branch_of(command) else { return Ok(None) };
        let waits = matches!(
            self.instance.branch(branch)?.phase,
            Phase::Task(_) | Phase::Undoing(_) | Phase::Notifying(_)
        );
        Ok(waits.then_some(branch))
    }

    fn on_activity_completed(&mut self, command: CommandId, result: Json) -> Result<(), Corrupt> {
        let Some(branch) = self.branch_of_dispatch(command)? else {
            let result = self.late_result(result);
            self.record(Fact::TaskCompleted { command, result, late: true });
            return Ok(());
        };
        self.count_bytes(json::size(&result));
        self.record(Fact::TaskCompleted { command, result: result.clone(), late: false });
        self.dispatch_answered(branch, command, Ok(result))
    }

    /// The activity has run, but what it answered cannot be kept.
    fn on_activity_unkeepable(&mut self, command: CommandId, failure: Failure) -> Result<(), Corrupt> {
        let branch = self.branch_of_dispatch(command)?;
        let (error, late) = (failure.clone(), branch.is_none());
        self.record(Fact::TaskFailed { command, attempt: 0, error, retry_at: None, late });
        match branch {
            Some(branch) => self.dispatch_answered(branch, command, Err(failure)),
            None => Ok(()),
        }
    }

    fn dispatch_answered(
        &mut self,
        branch: BranchId,
        command: CommandId,
        answer: Result<Json, Failure>,
    ) -> Result<(), Corrupt> {
        match &self.instance.branch(branch)?.phase {
            Phase::Task(_) => self.task_answered(branch, answer),
            Phase::Undoing(_) => self.undo_answered(branch, command, Ok(())),
            _ => self.notified(branch),
        }
    }

    fn on_activity_failed(&mut self, command: CommandId, failed: FailedDelivery) -> Result<(), Corrupt> {
        let Some(branch) = self.branch_of_dispatch(command)? else {
            let FailedDelivery { attempt, failure, .. } = failed;
            self.record(Fact::TaskFailed { command, attempt, error: failure, retry_at: None, late: true });
            return Ok(());
        };
        self.delivery_failed(branch, command, failed)
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

/// Enough of a reason for history.
fn cut(reason: &str) -> String {
    const REASON_CHARS_MAX: usize = 1_024;
    reason.chars().take(REASON_CHARS_MAX).collect()
}

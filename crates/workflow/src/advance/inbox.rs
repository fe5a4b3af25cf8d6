//! Processes a message: finds the branch that waits for it, then applies it or records it as late. It does not know
//! where messages come from.

use crate::failure::Failure;
use crate::history::{Fact, KeyChoice};
use crate::ids::{BranchId, CommandId};
use crate::instance::{CorruptInstance, Ending, Phase, Status};
use crate::json::{self, Json};
use crate::message::Message;

use super::interpreter::{Interpreter, check_storable};
use super::retry::FailedAttempt;
use super::wait::EventTaker;

impl Interpreter<'_> {
    /// Processes a message of the inbox: control operations at once, the others unless the run is suspended.
    pub(super) fn on_message(&mut self, position: usize, message: &Message) -> Result<(), CorruptInstance> {
        if let Err(refusal) = self.instance.check_message(message, self.limits) {
            self.refusals.push((position, refusal));
            return Ok(());
        }
        self.instance.header_mut().entered_since_message = 0;
        match message {
            Message::Suspend { reason } => {
                self.suspend(&truncate_reason(reason));
                Ok(())
            }
            Message::Resume { reason } => {
                self.resume(&truncate_reason(reason));
                Ok(())
            }
            Message::RetryCompensation { reason } => self.retry_compensation(&truncate_reason(reason)),
            Message::Terminate { .. } | Message::TerminateTree { .. }
                if let Some(retry) = self.instance.compensation_retry().cloned() =>
            {
                self.stop_compensation_retry(retry)
            }
            Message::Terminate { reason } | Message::TerminateTree { reason } => {
                self.begin_closing(Ending::Terminate(truncate_reason(reason)));
                Ok(())
            }
            Message::Rewind { reason } => self.rewind(&truncate_reason(reason), KeyChoice::Same),
            Message::RewindWithNewKeys { reason } => self.rewind(&truncate_reason(reason), KeyChoice::New),
            message => {
                if let Message::EventRaised { name, payload } = message {
                    // A branch may wait for the name but not match this payload, and the buffer is full. Nor is there
                    // room for an event about which no branch could decide.
                    if let Some(refusal) = self.instance.buffer_refusal(message, self.limits)
                        && (self.instance.header().suspended
                            || !matches!(self.find_event_taker(name, payload)?, EventTaker::Waiter(_)))
                    {
                        self.refusals.push((position, refusal));
                        return Ok(());
                    }
                    self.count_bytes(message.payload_bytes());
                    self.record(Fact::EventRaised { name: name.clone(), input: payload.clone() });
                }
                let message = self.normalise(message);
                if self.instance.header().suspended {
                    // An event is counted above. A result is counted here, and again in the turn that applies it.
                    if !matches!(message, Message::EventRaised { .. }) {
                        self.count_bytes(message.payload_bytes());
                    }
                    self.instance.hold_message(message);
                    return Ok(());
                }
                self.apply_message(message)
            }
        }
    }

    /// Applies a message to the branch that waits for it.
    pub(super) fn apply_message(&mut self, message: Message) -> Result<(), CorruptInstance> {
        match message {
            Message::ActivityCompleted { command, result } => self.on_activity_completed(command, result),
            Message::ActivityFailed { command, attempt, failure } => {
                self.on_activity_failed(command, FailedAttempt::answered(attempt, failure))
            }
            Message::ActivityDeferred { command, attempt, failure, not_before, possibly_sent } => {
                let not_before = Some(not_before);
                let answered = FailedAttempt::answered(attempt, failure);
                self.on_activity_failed(command, FailedAttempt { not_before, possibly_sent, ..answered })
            }
            Message::ActivityUnanswered { command, attempt, failure, not_before, possibly_sent } => {
                let outcome_unknown = true;
                let failed = FailedAttempt { attempt, failure, not_before, possibly_sent, outcome_unknown };
                self.on_activity_failed(command, failed)
            }
            Message::TimerFired { timer } => self.on_timer_fired(timer),
            Message::EventRaised { name, payload } => self.on_event_raised(&name, payload),
            Message::ChildCompleted { command, output } => self.on_child_completed(command, output),
            Message::ChildFailed { command, failure } => self.on_child_failed(command, failure),
            Message::ActivityResultRejected { command, failure } => {
                self.on_activity_result_rejected(command, failure)
            }
            // Control operations are never held.
            Message::Suspend { .. }
            | Message::Resume { .. }
            | Message::Terminate { .. }
            | Message::TerminateTree { .. }
            | Message::Rewind { .. }
            | Message::RewindWithNewKeys { .. }
            | Message::RetryCompensation { .. } => Ok(()),
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
        // Resuming a run that was parked at its limit implies that it was inspected: it gets the full limit again.
        if header.transitions >= header.transitions_allowed {
            header.transitions_allowed = header.transitions.saturating_add(limit);
            header.transitions_warned = false;
        }
        self.record(Fact::ExecutionResumed { reason: reason.to_owned() });
    }

    /// The message in a form that can be stored: a result that is too large or too deep becomes an error that says so,
    /// before the message is held or recorded.
    fn normalise(&self, message: &Message) -> Message {
        let payload_max = self.limits.payload_bytes_max;
        let call_max = self.limits.call_bytes_max.max(payload_max);
        match message {
            Message::ActivityCompleted { command, result } => match check_storable(result, call_max) {
                Ok(()) => message.clone(),
                Err(failure) => Message::ActivityResultRejected { command: *command, failure },
            },
            Message::ChildCompleted { command, output } => match check_storable(output, payload_max) {
                Ok(()) => message.clone(),
                Err(failure) => Message::ChildFailed { command: *command, failure },
            },
            Message::ActivityFailed { command, attempt, failure } => Message::ActivityFailed {
                command: *command,
                attempt: *attempt,
                failure: failure.clone().truncated(),
            },
            Message::ActivityDeferred { command, attempt, failure, not_before, possibly_sent } => {
                Message::ActivityDeferred {
                    command: *command,
                    attempt: *attempt,
                    failure: failure.clone().truncated(),
                    not_before: *not_before,
                    possibly_sent: *possibly_sent,
                }
            }
            Message::ActivityUnanswered { command, attempt, failure, not_before, possibly_sent } => {
                Message::ActivityUnanswered {
                    command: *command,
                    attempt: *attempt,
                    failure: failure.clone().truncated(),
                    not_before: *not_before,
                    possibly_sent: *possibly_sent,
                }
            }
            Message::ChildFailed { command, failure } => {
                Message::ChildFailed { command: *command, failure: failure.clone().truncated() }
            }
            other => other.clone(),
        }
    }

    /// A late result is recorded in full, a large one by its size only: repeats of it must not fill history.
    pub(super) fn late_result(&mut self, result: Json) -> Json {
        const LATE_BYTES_MAX: u64 = 4 * 1024;
        let bytes = json::size(&result);
        self.count_bytes(bytes.min(LATE_BYTES_MAX));
        if bytes <= LATE_BYTES_MAX { result } else { Json::new(serde_json::json!({"omittedBytes": bytes})) }
    }

    /// The branch that waits for this call; `None` if the number belongs to something else.
    fn branch_of_call(&self, command: CommandId) -> Result<Option<BranchId>, CorruptInstance> {
        let Some(branch) = self.instance.index().branch_of(command) else { return Ok(None) };
        let waits = matches!(
            self.instance.branch(branch)?.phase,
            Phase::Task(_) | Phase::Compensating(_) | Phase::Notifying(_)
        );
        Ok(waits.then_some(branch))
    }

    fn on_activity_completed(&mut self, command: CommandId, result: Json) -> Result<(), CorruptInstance> {
        let Some(branch) = self.branch_of_call(command)? else {
            let result = self.late_result(result);
            self.record(Fact::TaskCompleted { command, result, late: true });
            return Ok(());
        };
        self.count_bytes(json::size(&result));
        self.record(Fact::TaskCompleted { command, result: result.clone(), late: false });
        self.on_call_result(branch, command, Ok(result))
    }

    /// The activity has run, but its result cannot be stored.
    fn on_activity_result_rejected(
        &mut self,
        command: CommandId,
        failure: Failure,
    ) -> Result<(), CorruptInstance> {
        let branch = self.branch_of_call(command)?;
        let error = failure.clone();
        let late = branch.is_none();
        self.record(Fact::TaskFailed { command, attempt: 0, error, retry_at: None, late });
        match branch {
            Some(branch) => self.on_call_result(branch, command, Err(failure)),
            None => Ok(()),
        }
    }

    fn on_call_result(
        &mut self,
        branch: BranchId,
        command: CommandId,
        result: Result<Json, Failure>,
    ) -> Result<(), CorruptInstance> {
        match &self.instance.branch(branch)?.phase {
            Phase::Task(_) => self.on_task_result(branch, result),
            Phase::Compensating(_) => self.on_compensation_result(branch, command, Ok(())),
            _ => self.recover_or_compensate(branch),
        }
    }

    fn on_activity_failed(
        &mut self,
        command: CommandId,
        failed: FailedAttempt,
    ) -> Result<(), CorruptInstance> {
        let Some(branch) = self.branch_of_call(command)? else {
            let FailedAttempt { attempt, failure, .. } = failed;
            self.record(Fact::TaskFailed { command, attempt, error: failure, retry_at: None, late: true });
            return Ok(());
        };
        self.on_attempt_failed(branch, command, failed)
    }

    fn on_timer_fired(&mut self, timer: CommandId) -> Result<(), CorruptInstance> {
        if self.instance.header().workflow_timer == Some(timer) {
            self.record(Fact::TimerFired { command: timer });
            return self.on_workflow_timer();
        }
        let Some(branch) = self.instance.index().branch_of(timer) else {
            return Ok(());
        };
        match &self.instance.branch(branch)?.phase {
            Phase::Timer { .. } => {
                self.record(Fact::TimerFired { command: timer });
                self.complete_state(branch, None)
            }
            Phase::Event { .. } => {
                self.record(Fact::TimerFired { command: timer });
                self.on_state_timeout(branch)
            }
            Phase::Child { child, timer: Some(own) } if *own == timer => {
                let child = *child;
                self.record(Fact::TimerFired { command: timer });
                self.on_child_timeout(branch, child)
            }
            _ => Ok(()),
        }
    }
}

/// Truncates a reason to a length that fits into history.
fn truncate_reason(reason: &str) -> String {
    const REASON_CHARS_MAX: usize = 1_024;
    reason.chars().take(REASON_CHARS_MAX).collect()
}

//! Queries about a run: its current states, what its branches wait for, and which messages it accepts now. It only
//! reads.

use std::collections::BTreeSet;

use super::{Instance, Phase, Status};
use crate::failure::Failure;
use crate::ids::CommandId;
use crate::json;
use crate::limits::{
    Limits,
    definition::{JSON_DEPTH_MAX, NAME_CHARS_MAX},
};
use crate::message::{Message, MessageRefusal};
use crate::plan::Plan;
use crate::time::Timestamp;

/// The current state of one branch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CurrentState {
    /// The state's path in the definition.
    pub state: String,
    /// The time the branch entered the state.
    pub since: Timestamp,
    pub waiting_for: WaitingFor,
}

/// The thing a branch waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WaitingFor {
    /// Nothing: the branch continues in the next turn.
    Nothing,
    /// The result of an activity.
    Activity {
        call: CommandId,
        /// Number of failed attempts that count against the policy.
        failures: u32,
        /// When the step times out.
        deadline: Option<Timestamp>,
    },
    /// A point in time.
    Timer { timer: CommandId },
    /// An external event.
    Event { name: String },
    /// The end of a child run.
    Child {
        /// The command that started the child.
        child: CommandId,
    },
    /// The branches of its map or parallel.
    Branches {
        total: u32,
        /// Number of branches that have ended.
        ended: u32,
    },
}

impl Instance {
    /// The current states of all branches that have not ended, outermost first.
    pub fn current_states(&self, plan: &Plan) -> Vec<CurrentState> {
        let retries = self.compensation_retry.is_some();
        let live = |phase: &Phase| match phase {
            Phase::Succeeded => false,
            Phase::Compensating(_) => true,
            // While an ended run compensates again, nothing else of it is live.
            _ => !retries,
        };
        let live = self.branches.values().filter(|branch| live(&branch.phase));
        live.filter_map(|branch| {
            let state = plan.state(branch.state).ok()?.path.clone();
            Some(CurrentState { state, since: branch.entered_at, waiting_for: waiting_for(&branch.phase) })
        })
        .collect()
    }

    /// True if a branch waits for the result of this command.
    pub fn awaits_command(&self, command: CommandId) -> bool {
        self.index.branch_of(command).is_some()
    }

    /// True if a branch waits for the result of an activity.
    pub fn has_open_calls(&self) -> bool {
        self.branches.values().any(|branch| match &branch.phase {
            Phase::Task(_) | Phase::Notifying(_) => true,
            Phase::Compensating(compensation) => compensation.call.is_some(),
            _ => false,
        })
    }

    /// Timers that the run or one of its branches waits for, except those that fired while the run was suspended.
    pub fn open_timers(&self) -> BTreeSet<CommandId> {
        let of_branches = self.branches.values().filter_map(|branch| match branch.phase {
            Phase::Timer { timer } => Some(timer),
            Phase::Event { timer, .. } | Phase::Child { timer, .. } => timer,
            _ => None,
        });
        let mut timers: BTreeSet<CommandId> = of_branches.chain(self.header.workflow_timer).collect();
        for message in self.held_messages.values() {
            if let Message::TimerFired { timer } = message {
                timers.remove(timer);
            }
        }
        timers
    }

    /// The failure of a call that arrived while the run was suspended; the retry is decided when the run is resumed.
    pub fn held_call_failure(&self, call: CommandId) -> Option<&Failure> {
        let mut failures = self.held_messages.values().filter_map(Message::call_failure);
        failures.find(|(command, _)| *command == call).map(|(_, failure)| failure)
    }

    /// Checks if a message would be accepted now, so that its sender gets a reply before it enters the inbox.
    pub fn check_message(&self, message: &Message, limits: &Limits) -> Result<(), MessageRefusal> {
        let status = self.status();
        match message {
            Message::Rewind { .. } | Message::RewindWithNewKeys { .. } => self.check_rewind(),
            Message::RetryCompensation { .. } => match &self.compensation_retry {
                Some(_) => Ok(()),
                None if !status.is_terminal() => Err(MessageRefusal::NotEnded { status }),
                None if self.failed_compensations.is_empty() => Err(MessageRefusal::NoFailedCompensation),
                None => Ok(()),
            },
            // Branches that the end of the run cut short must not move.
            Message::EventRaised { .. }
            | Message::TimerFired { .. }
            | Message::ChildCompleted { .. }
            | Message::ChildFailed { .. }
                if self.compensation_retry.is_some() =>
            {
                Err(MessageRefusal::RetryingCompensation)
            }
            _ if status.is_terminal() || self.header.closing.is_some() => {
                Err(MessageRefusal::RunEnded { status })
            }
            Message::Resume { .. } if !self.header.suspended => Err(MessageRefusal::NotSuspended { status }),
            Message::EventRaised { name, payload } => {
                let chars = name.chars().count();
                if chars == 0 || chars > NAME_CHARS_MAX || name.chars().any(char::is_control) {
                    return Err(MessageRefusal::InvalidEventName { chars });
                }
                let bytes = message.payload_bytes();
                if bytes > limits.payload_bytes_max {
                    return Err(MessageRefusal::PayloadTooLarge { bytes, limit: limits.payload_bytes_max });
                }
                if !json::depth_within(payload, JSON_DEPTH_MAX) {
                    return Err(MessageRefusal::PayloadTooDeep { limit: JSON_DEPTH_MAX });
                }
                // A waiting branch may consume it: unwanted events in the buffer must not block an awaited one.
                let awaited = !self.header.suspended && self.index.event_waiters(name).next().is_some();
                self.buffer_refusal(message, limits).filter(|_| !awaited).map_or(Ok(()), Err)
            }
            _ => Ok(()),
        }
    }

    /// The reason why an event cannot be buffered, if there is one.
    pub(crate) fn buffer_refusal(&self, message: &Message, limits: &Limits) -> Option<MessageRefusal> {
        let buffered = u32::try_from(self.buffered_count()).unwrap_or(u32::MAX);
        let bytes = self.header.buffered_bytes.saturating_add(message.payload_bytes());
        let full = buffered >= limits.buffered_max || bytes > limits.buffered_bytes_max;
        full.then_some(MessageRefusal::BufferFull { buffered, limit: limits.buffered_max })
    }

    fn check_rewind(&self) -> Result<(), MessageRefusal> {
        match self.status() {
            Status::Failed if self.header.compensated => Err(MessageRefusal::AlreadyCompensated),
            Status::Failed if !self.can_rewind() => Err(MessageRefusal::NothingToRewind),
            Status::Failed => Ok(()),
            status => Err(MessageRefusal::NotFailed { status }),
        }
    }

    fn can_rewind(&self) -> bool {
        self.header.rewind_point.is_some_and(|point| self.branches.contains_key(&point.branch))
    }
}

impl Message {
    /// Bytes of the message's payload.
    pub fn payload_bytes(&self) -> u64 {
        match self {
            Self::ActivityCompleted { result: payload, .. }
            | Self::EventRaised { payload, .. }
            | Self::ChildCompleted { output: payload, .. } => json::size(payload),
            Self::ActivityFailed { failure, .. }
            | Self::ActivityDeferred { failure, .. }
            | Self::ActivityUnanswered { failure, .. }
            | Self::ChildFailed { failure, .. }
            | Self::ActivityResultRejected { failure, .. } => {
                (failure.message.len() + failure.code.len()) as u64
            }
            Self::Suspend { reason }
            | Self::Resume { reason }
            | Self::Terminate { reason }
            | Self::TerminateTree { reason }
            | Self::Rewind { reason }
            | Self::RewindWithNewKeys { reason }
            | Self::RetryCompensation { reason } => reason.len() as u64,
            Self::TimerFired { .. } => 0,
        }
    }
}

fn waiting_for(phase: &Phase) -> WaitingFor {
    match phase {
        Phase::Task(progress) | Phase::Notifying(progress) => waiting_for_activity(progress),
        Phase::Compensating(compensation) => {
            compensation.call.as_ref().map_or(WaitingFor::Nothing, waiting_for_activity)
        }
        Phase::Timer { timer } => WaitingFor::Timer { timer: *timer },
        Phase::Event { name, .. } => WaitingFor::Event { name: name.clone() },
        Phase::Child { child, .. } => WaitingFor::Child { child: *child },
        Phase::FanOut(fan_out) => WaitingFor::Branches {
            total: fan_out.total,
            ended: fan_out.succeeded.saturating_add(fan_out.failed),
        },
        Phase::Ready | Phase::Collapsing(_) | Phase::Succeeded | Phase::Failed(_) => WaitingFor::Nothing,
    }
}

fn waiting_for_activity(progress: &super::CallProgress) -> WaitingFor {
    WaitingFor::Activity { call: progress.call, failures: progress.failures, deadline: progress.deadline }
}

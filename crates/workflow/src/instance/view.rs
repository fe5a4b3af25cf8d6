//! A run as people ask about it: where it is, what it waits for, and what it would take now. Reads only.

use std::collections::BTreeSet;

use super::{Instance, Phase, Status};
use crate::failure::Failure;
use crate::ids::CommandId;
use crate::json;
use crate::limits::{
    Limits,
    definition::{JSON_DEPTH_MAX, NAME_CHARS_MAX},
};
use crate::message::{Message, Refusal};
use crate::plan::Plan;
use crate::time::Timestamp;

/// Where one branch is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CurrentState {
    /// The state's path in the definition.
    pub state: String,
    /// Since when.
    pub since: Timestamp,
    /// Why it does not move.
    pub waiting_for: WaitingFor,
}

/// Why a branch does not move.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WaitingFor {
    /// Nothing: it goes on with the next turn.
    Nothing,
    /// An activity's answer.
    Activity {
        /// The dispatch.
        dispatch: CommandId,
        /// Deliveries that failed.
        failures: u32,
        /// When the step times out.
        deadline: Option<Timestamp>,
    },
    /// A moment.
    Timer {
        /// The timer.
        timer: CommandId,
    },
    /// An external event.
    Event {
        /// Its name.
        name: String,
    },
    /// A child run's end.
    Child {
        /// The command that started it.
        child: CommandId,
    },
    /// Its own branches.
    Branches {
        /// How many there are.
        total: u32,
        /// How many have ended.
        ended: u32,
    },
}

impl Instance {
    /// Where every branch is that has not ended, outermost first.
    pub fn current_states(&self, plan: &Plan) -> Vec<CurrentState> {
        let ended = |phase: &Phase| matches!(phase, Phase::Succeeded);
        let live = self.branches.values().filter(|branch| !ended(&branch.phase));
        live.filter_map(|branch| {
            let state = plan.state(branch.state).ok()?.path.clone();
            Some(CurrentState { state, since: branch.entered_at, waiting_for: waiting_for(&branch.phase) })
        })
        .collect()
    }

    /// Whether a branch waits for the answer to this command.
    pub fn expects(&self, command: CommandId) -> bool {
        self.index.branch_of(command).is_some()
    }

    /// Whether an activity is out for it.
    pub fn has_calls(&self) -> bool {
        self.branches.values().any(|branch| match &branch.phase {
            Phase::Task(_) | Phase::Notifying(_) => true,
            Phase::Undoing(undoing) => undoing.delivery.is_some(),
            _ => false,
        })
    }

    /// Timers that the run or a branch of it waits for, but for those whose firing it holds.
    pub fn timers(&self) -> BTreeSet<CommandId> {
        let of_branches = self.branches.values().filter_map(|branch| match branch.phase {
            Phase::Timer { timer } => Some(timer),
            Phase::Event { timer, .. } | Phase::Child { timer, .. } => timer,
            _ => None,
        });
        let mut timers: BTreeSet<CommandId> = of_branches.chain(self.header.timer).collect();
        for message in self.held.values() {
            if let Message::TimerFired { timer } = message {
                timers.remove(timer);
            }
        }
        timers
    }

    /// The failure of a call that it holds, to decide upon when it is resumed.
    pub fn held_failure(&self, dispatch: CommandId) -> Option<&Failure> {
        self.held.values().find_map(|message| match message {
            Message::ActivityFailed { command, failure, .. }
            | Message::ActivityDeferred { command, failure, .. }
                if *command == dispatch =>
            {
                Some(failure)
            }
            _ => None,
        })
    }

    /// Whether a message would be taken now: the answer for whoever sends it, before it enters the inbox.
    pub fn accepts(&self, message: &Message, limits: &Limits) -> Result<(), Refusal> {
        let status = self.status();
        match message {
            Message::Rewind { .. } if status != Status::Failed => Err(Refusal::NotFailed { status }),
            Message::Rewind { .. } if self.header.compensated => Err(Refusal::AlreadyCompensated),
            Message::Rewind { .. } if !self.can_go_back() => Err(Refusal::NothingToRewind),
            Message::Rewind { .. } => Ok(()),
            _ if status.is_terminal() || self.header.closing.is_some() => Err(Refusal::RunEnded { status }),
            Message::Resume { .. } if !self.header.suspended => Err(Refusal::NotSuspended { status }),
            Message::EventRaised { name, payload } => {
                let chars = name.chars().count();
                if chars == 0 || chars > NAME_CHARS_MAX || name.chars().any(char::is_control) {
                    return Err(Refusal::EventName { chars });
                }
                let bytes = message.payload_bytes();
                if bytes > limits.payload_bytes_max {
                    return Err(Refusal::PayloadTooLarge { bytes, limit: limits.payload_bytes_max });
                }
                if !json::depth_within(payload, JSON_DEPTH_MAX) {
                    return Err(Refusal::PayloadTooDeep { limit: JSON_DEPTH_MAX });
                }
                // Somebody who waits may take it: noise must not keep out what is waited for.
                let awaited = !self.header.suspended && self.index.waiting_for(name).next().is_some();
                self.buffer_full(message, limits).filter(|_| !awaited).map_or(Ok(()), Err)
            }
            _ => Ok(()),
        }
    }

    /// Why an event could not be kept.
    pub(crate) fn buffer_full(&self, message: &Message, limits: &Limits) -> Option<Refusal> {
        let buffered = u32::try_from(self.buffered_count()).unwrap_or(u32::MAX);
        let bytes = self.header.buffered_bytes.saturating_add(message.payload_bytes());
        let full = buffered >= limits.buffered_max || bytes > limits.buffered_bytes_max;
        full.then_some(Refusal::BufferFull { buffered, limit: limits.buffered_max })
    }

    fn can_go_back(&self) -> bool {
        self.header.failed_at.is_some_and(|failed| self.branches.contains_key(&failed.branch))
    }
}

impl Message {
    /// Bytes of what the message carries.
    pub fn payload_bytes(&self) -> u64 {
        match self {
            Self::ActivityCompleted { result: payload, .. }
            | Self::EventRaised { payload, .. }
            | Self::ChildCompleted { output: payload, .. } => json::size(payload),
            Self::ActivityFailed { failure, .. }
            | Self::ActivityDeferred { failure, .. }
            | Self::ChildFailed { failure, .. }
            | Self::ActivityUnkeepable { failure, .. } => (failure.message.len() + failure.code.len()) as u64,
            Self::Suspend { reason }
            | Self::Resume { reason }
            | Self::Terminate { reason }
            | Self::Rewind { reason } => reason.len() as u64,
            Self::TimerFired { .. } => 0,
        }
    }
}

fn waiting_for(phase: &Phase) -> WaitingFor {
    match phase {
        Phase::Task(delivery) | Phase::Notifying(delivery) => activity(delivery),
        Phase::Undoing(undoing) => undoing.delivery.as_ref().map_or(WaitingFor::Nothing, activity),
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

fn activity(delivery: &super::Delivery) -> WaitingFor {
    WaitingFor::Activity {
        dispatch: delivery.dispatch,
        failures: delivery.failures,
        deadline: delivery.deadline,
    }
}

//! The output of one turn, as data. This module does not commit it: the caller of `advance` does.
//!
//! Everything here becomes durable in one commit; no command is executed and no reply sent before it.
//! If history were durable without the parts, status and history would drift apart. If commands were durable without
//! the parts, work would be done twice. If the inbox were consumed without either, a message would be lost.

use crate::command::Command;
use crate::history::HistoryEvent;
use crate::ids::CommandId;
use crate::instance::{Instance, PartKey, Status};
use crate::message::MessageRefusal;

/// The effects of one pass over an instance.
#[derive(Debug)]
pub struct Turn {
    /// How many messages of the inbox were consumed; they are deleted in the same commit.
    pub consumed: usize,
    /// The consumed messages that were refused and had no effect: position and reason.
    pub refusals: Vec<(usize, MessageRefusal)>,
    /// True if there is more to do without any further message: call `advance` again.
    pub has_more_work: bool,
    /// The changed parts of the instance, in key order.
    pub changes: Vec<PartChange>,
    /// New history, in order.
    pub history: Vec<HistoryEvent>,
    /// New commands, in order.
    pub commands: Vec<Command>,
    /// Calls that failed permanently, and why no retry follows.
    pub failed_calls: Vec<(CommandId, NoRetryReason)>,
    /// The status after the turn.
    pub status: Status,
    /// After `ContinueAsNew`: the next run, with the events that were still buffered. Its parts belong in the same
    /// commit; its first turn may follow. Of the remaining inbox, events and control operations are for the next run;
    /// results name commands of the old run and must not reach it.
    pub next_run: Option<Box<Instance>>,
}

/// Why no other attempt follows a failed one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoRetryReason {
    /// The policy allows no further attempt.
    AttemptsExhausted,
    /// The failure was reported as permanent, or the policy names its code.
    NotRetryable,
    /// The next attempt would come after the deadline.
    DeadlineReached,
}

/// One part's new bytes, or its deletion.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartChange {
    pub key: PartKey,
    /// The encoded part, or `None` to delete it.
    pub value: Option<Vec<u8>>,
}

//! What comes out of one turn: everything here becomes durable in one commit, and only then is anything sent or answered.
//!
//! If history were durable without the parts, status and history would drift apart; if commands were durable without the
//! parts, work would be done twice; if the inbox were consumed without either, a message would be lost.

use crate::command::Command;
use crate::history::HistoryEvent;
use crate::ids::CommandId;
use crate::instance::{Instance, PartKey, Status};
use crate::message::Refusal;

/// The effects of one pass over an instance.
#[derive(Debug)]
pub struct Turn {
    /// How many messages of the inbox were taken; they are deleted in the same commit.
    pub consumed: usize,
    /// Messages among those that had no effect, by position, with the reason.
    pub refused: Vec<(usize, Refusal)>,
    /// There is more to do without any further message: call again.
    pub unfinished: bool,
    /// The changed parts of the instance, in key order.
    pub changes: Vec<PartChange>,
    /// New history, in order.
    pub history: Vec<HistoryEvent>,
    /// New commands, in order.
    pub commands: Vec<Command>,
    /// Dispatches whose failure was final for the run, and why.
    pub given_up: Vec<(CommandId, GivenUp)>,
    /// The status after the turn.
    pub status: Status,
    /// After `ContinueAsNew`: the next run, with the events that were still buffered. Its parts belong in the same commit; its
    /// first turn may follow. Of the inbox that is left, events and orders are for it; answers name commands of the old run and must not reach it.
    pub next_run: Option<Box<Instance>>,
}

/// Why no other delivery follows a failed one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GivenUp {
    /// The policy allows no more.
    Exhausted,
    /// It cannot help: by what was answered, or because the policy names the code.
    Final,
    /// It would come after the deadline.
    NoTime,
}

/// One part's new bytes, or its deletion.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartChange {
    /// Which part.
    pub key: PartKey,
    /// Its encoding, or `None` to delete it.
    pub value: Option<Vec<u8>>,
}

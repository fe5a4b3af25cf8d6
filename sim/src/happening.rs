//! What is going to happen in a simulation, and a digest of each for the trace.

use abide_dispatch::Call;
use abide_runtime::event::CallId;
use abide_runtime::{Effect, Event};
use abide_store::rows::CommitOutcome;

/// Something that is going to happen.
#[derive(Debug)]
pub(crate) enum Happening {
    Wake(At, u64),
    Execute(At, Effect),
    Deliver(At, Event),
    /// A call that waited on its node is to leave.
    Leave(At, CallId, Box<Call>),
    Receive(At, CallId, Box<Call>),
    Claim(At),
    Act(usize),
    GiveUp(usize, u64, At),
    Crash(usize),
    Boot(usize),
    Pause(usize),
    Drain(usize),
    /// A node that is going down in order takes too long.
    Kill(usize, u64),
}

impl Happening {
    /// What it is, where, and something of its content.
    pub(crate) fn digest(&self) -> (u64, At, u64) {
        let nowhere = |node| At { node, incarnation: 0, shard: 0, claim: 0 };
        match self {
            Self::Wake(at, stamp) => (1, *at, *stamp),
            Self::Execute(at, effect) => match effect {
                Effect::Commit(id, batch) => {
                    (2, *at, batch.bytes() as u64 ^ u64::try_from(id.0 & 0xffff_ffff).unwrap_or(0))
                }
                Effect::Scan(purpose, _) => (3, *at, *purpose as u64),
                Effect::LookUp(id, _) => (4, *at, id.as_str().len() as u64),
                _ => (5, *at, 0),
            },
            Self::Deliver(at, event) => match event {
                Event::Asked(ticket, _) => (6, *at, ticket.0),
                Event::Answered(id, _) => (7, *at, id.run << 32 | id.command.0 << 8 | u64::from(id.attempt)),
                Event::CommitAnswered(_, outcome) => {
                    (8, *at, u64::from(matches!(outcome, CommitOutcome::Committed(_))))
                }
                _ => (9, *at, 0),
            },
            Self::Receive(at, id, _) => (10, *at, id.run << 32 | id.command.0 << 8 | u64::from(id.attempt)),
            Self::Leave(at, id, _) => (19, *at, id.run << 32 | id.command.0 << 8 | u64::from(id.attempt)),
            Self::Claim(at) => (11, *at, 0),
            Self::Act(client) => (12, nowhere(*client), 0),
            Self::GiveUp(client, ticket, _) => (13, nowhere(*client), *ticket),
            Self::Crash(node) => (14, nowhere(*node), 0),
            Self::Boot(node) => (15, nowhere(*node), 0),
            Self::Pause(node) => (16, nowhere(*node), 0),
            Self::Drain(node) => (17, nowhere(*node), 0),
            Self::Kill(node, incarnation) => (18, nowhere(*node), *incarnation),
        }
    }
}

/// A shard on one life of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) node: usize,
    pub(crate) incarnation: u64,
    pub(crate) shard: usize,
    /// What was asked for under one claim is not for the next.
    pub(crate) claim: u64,
}

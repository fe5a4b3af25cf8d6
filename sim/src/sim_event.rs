//! The events of a simulation, and a digest of each for the trace. They are handled in [`crate::cluster`].

use abide_dispatch::CallAttempt;
use abide_runtime::event::AttemptId;
use abide_runtime::{Effect, Event};
use abide_store::rows::CommitOutcome;

/// A scheduled event.
#[derive(Debug)]
pub(crate) enum SimEvent {
    Wake(ShardAddress, u64),
    Execute(ShardAddress, Effect),
    Deliver(ShardAddress, Event),
    /// A call has waited on its node and is sent now.
    SendCall(ShardAddress, AttemptId, Box<CallAttempt>),
    DeliverCall(ShardAddress, AttemptId, Box<CallAttempt>),
    /// A held call is tried.
    TryHeldCall(ShardAddress, AttemptId),
    TakeOwnership(ShardAddress),
    ClientStep(usize),
    ClientTimeout(usize, u64, ShardAddress),
    Crash(usize),
    Boot(usize),
    Pause(usize),
    Drain(usize),
    /// A node has not drained in time.
    KillDraining(usize, u64),
}

impl SimEvent {
    /// The kind of event as a number, its address, and a number taken from its content.
    pub(crate) fn digest(&self) -> (u64, ShardAddress, u64) {
        let node_only = |node| ShardAddress { node, incarnation: 0, shard: 0, ownership: 0 };
        match self {
            Self::Wake(at, stamp) => (1, *at, *stamp),
            Self::Execute(at, effect) => match effect {
                Effect::Commit(id, batch) => {
                    (2, *at, batch.size_bytes() as u64 ^ u64::try_from(id.0 & 0xffff_ffff).unwrap_or(0))
                }
                Effect::Scan(purpose, _) => (3, *at, *purpose as u64),
                Effect::LookUpInstance(id, _) => (4, *at, id.as_str().len() as u64),
                _ => (5, *at, 0),
            },
            Self::Deliver(at, event) => match event {
                Event::RequestReceived(request_id, _) => (6, *at, request_id.0),
                Event::AttemptFinished(id, _) => (7, *at, attempt_number(id)),
                Event::CommitFinished(_, outcome) => {
                    (8, *at, u64::from(matches!(outcome, CommitOutcome::Committed(_))))
                }
                _ => (9, *at, 0),
            },
            Self::DeliverCall(at, id, _) => (10, *at, attempt_number(id)),
            Self::TryHeldCall(at, id) => (20, *at, attempt_number(id)),
            Self::SendCall(at, id, _) => (19, *at, attempt_number(id)),
            Self::TakeOwnership(at) => (11, *at, 0),
            Self::ClientStep(client) => (12, node_only(*client), 0),
            Self::ClientTimeout(client, request_id, _) => (13, node_only(*client), *request_id),
            Self::Crash(node) => (14, node_only(*node), 0),
            Self::Boot(node) => (15, node_only(*node), 0),
            Self::Pause(node) => (16, node_only(*node), 0),
            Self::Drain(node) => (17, node_only(*node), 0),
            Self::KillDraining(node, incarnation) => (18, node_only(*node), *incarnation),
        }
    }
}

/// A shard on one incarnation of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShardAddress {
    pub(crate) node: usize,
    pub(crate) incarnation: u64,
    pub(crate) shard: usize,
    /// Counts ownerships: an event addressed to one ownership is dropped by the next.
    pub(crate) ownership: u64,
}

fn attempt_number(id: &AttemptId) -> u64 {
    id.run_id.0 << 32 | id.command.0 << 8 | u64::from(id.attempt)
}

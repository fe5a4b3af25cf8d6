//! Checks parents and children over all shards: a parent that waits for a child waits for a live one, or for a message
//! that is in flight.
//!
//! Rows are not read here; the checks of rows and runs fill in the links.

use std::collections::{BTreeMap, BTreeSet};

use abide_ids::{CommandId, RunNumber};

use super::{FsckFinding, FsckReport};
use crate::placement::ShardId;
use crate::run_message::RunMessage;

/// Awaited children, live instances and messages in flight, over all shards.
#[derive(Default)]
pub(super) struct ChildLinks {
    /// Awaited children, and the shard of the parent of each.
    pub(super) awaited: BTreeMap<AwaitedChild, ShardId>,
    /// Live and parked instances.
    pub(super) live_instances: BTreeSet<String>,
    /// Children that messages in flight will start.
    starting: BTreeSet<String>,
    /// End messages in flight.
    ending: BTreeSet<EndMessageKey>,
}

/// A child that a parent waits for.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AwaitedChild {
    pub(super) instance_id: String,
    pub(super) end_message: EndMessageKey,
}

/// Identifies the message that reports the end of a child: the run that waits for it, and by which command.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EndMessageKey {
    pub(super) parent_id: String,
    pub(super) parent_run: RunNumber,
    pub(super) command: CommandId,
}

impl ChildLinks {
    /// Records what a message in an inbox, an outbox or an inbound partition is about to do for a parent or a child.
    pub(super) fn record_message(&mut self, to: &str, message: &RunMessage) {
        match message {
            RunMessage::LegacyStartChild(_)
            | RunMessage::StartChildOf { .. }
            | RunMessage::StartDescendant { .. } => {
                self.starting.insert(to.to_owned());
            }
            RunMessage::ChildEnded { parent, .. } => {
                self.ending.insert(EndMessageKey {
                    parent_id: parent.instance_id.as_str().to_owned(),
                    parent_run: parent.run,
                    command: parent.command,
                });
            }
            RunMessage::TerminateChild { .. }
            | RunMessage::TerminateTree { .. }
            | RunMessage::OrderChildren { .. }
            | RunMessage::Continue { .. }
            | RunMessage::SessionEvent(_) => {}
        }
    }

    /// Called once, when all shards are read.
    pub(super) fn check(&self, report: &mut FsckReport) {
        for (AwaitedChild { instance_id: child_id, end_message }, shard) in &self.awaited {
            if !self.live_instances.contains(child_id)
                && !self.starting.contains(child_id)
                && !self.ending.contains(end_message)
            {
                let problem =
                    format!("waits for child {child_id}, which is not live, and no message is in flight");
                report.findings.push(FsckFinding {
                    shard: *shard,
                    instance_id: Some(end_message.parent_id.clone()),
                    problem,
                });
            }
        }
    }
}

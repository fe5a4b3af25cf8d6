//! Messages to runs: start or terminate a child, report a child's end to its parent, continue a run, deliver an event.
//!
//! They are stored in the inbox of the shard that processes them, and on the way there in outboxes and inbound rows,
//! always in the same bytes. This file knows their format, not how they are sent or processed.

use abide_ids::{IdempotencyKey, RunId};
use abide_store::tables::instances::Lineage;
use abide_workflow::instance::ParentLink;
use abide_workflow::{CommandId, InstanceId, Message, RunNumber};
use serde::{Deserialize, Serialize};

use crate::entity::SessionEvent;

/// A message to a run. Stored by variant position: append only.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum RunMessage {
    /// Start a run for this parent, in the form used before the calls of children had a parent item. Read, never
    /// written.
    LegacyStartChild(ChildStart),
    /// End the run that this parent started, if it is still live.
    TerminateChild {
        /// The run that started the child, and by which command.
        parent: ParentLink,
        /// Written to the child's history.
        reason: String,
    },
    /// The result of a child, or the reason why it could not be started, for the run that waits for it.
    ChildEnded {
        /// The run that started the child, and by which command.
        parent: ParentLink,
        /// `ChildCompleted` or `ChildFailed`.
        message: Message,
    },
    /// The run has more to do without another message, because its first turn is still to come, its last one was cut
    /// short by its limits, or it is resumed after it was parked: continue it.
    Continue { run_id: RunId },
    /// An external event, for the run of its session.
    SessionEvent(Box<SessionEvent>),
    /// Start a run for this parent, in the form used before runs knew their place in the tree. Read, never written.
    StartChildOf {
        /// The key of the `workflow` state's visit that starts it: the parent item of its calls.
        item: IdempotencyKey,
        start: ChildStart,
    },
    /// Start a run for this parent.
    StartDescendant {
        /// As in [`Self::StartChildOf`].
        item: IdempotencyKey,
        /// The new run's place in the tree of runs.
        lineage: Lineage,
        start: ChildStart,
    },
    /// End the run that this parent started, and all its descendants. An ended run passes the order on.
    TerminateTree {
        /// The run that started the child, and by which command.
        parent: ParentLink,
        /// Written to the histories of all runs that it ends.
        reason: String,
    },
    /// Pass the order to end a tree on to these children. The run sends it to its own instance when it has ended: the
    /// message needs nothing of the run, which may be replaced or purged meanwhile.
    OrderChildren {
        /// The instance and the number of the run that started them.
        parent_id: InstanceId,
        parent_run: RunNumber,
        children: Vec<(CommandId, InstanceId)>,
        reason: String,
    },
}

impl RunMessage {
    /// True if the message starts a child run. It then waits for the turns of a run that the instance has already, and
    /// needs only the row of the instance.
    pub(crate) fn starts_child(&self) -> bool {
        matches!(self, Self::LegacyStartChild(_) | Self::StartChildOf { .. } | Self::StartDescendant { .. })
    }
}

/// A child to be started.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ChildStart {
    /// The run that starts it, and by which command.
    pub parent: ParentLink,
    pub workflow: String,
    /// The accepted version range, as text; none for the default version.
    pub version: Option<String>,
    /// JSON text.
    pub input: String,
    pub correlation_id: String,
    /// The entity it acts for.
    pub entity_id: Option<String>,
}

/// A message on its way to another shard, with the instance it is for.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AddressedMessage {
    pub instance_id: InstanceId,
    pub message: RunMessage,
}

/// The format this code writes. Readers reject every other one.
const FORMAT: u8 = 1;

/// Stored bytes that cannot be decoded as a message.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unreadable run message: {reason}")]
pub struct UnreadableMessage {
    pub reason: String,
}

/// Encodes a message, or another value stored in the same format.
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    // Writing to memory fails only for types that postcard cannot express at all; the round-trip test would.
    postcard::to_extend(message, vec![FORMAT]).unwrap_or_default()
}

/// Decodes what [`encode`] wrote.
pub fn decode<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<T, UnreadableMessage> {
    let unreadable = |reason: &str| UnreadableMessage { reason: reason.to_owned() };
    match bytes.split_first() {
        Some((&FORMAT, rest)) => match postcard::take_from_bytes(rest) {
            Ok((message, [])) => Ok(message),
            Ok(_) => Err(unreadable("trailing bytes")),
            Err(error) => Err(unreadable(&error.to_string())),
        },
        Some((format, _)) => Err(unreadable(&format!("unsupported format {format}"))),
        None => Err(unreadable("no bytes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abide_workflow::Failure;

    fn parent() -> ParentLink {
        ParentLink {
            instance_id: InstanceId::new("parent").unwrap(),
            run: RunNumber(2),
            command: CommandId(3),
        }
    }

    fn lineage() -> Lineage {
        Lineage { root_id: "root".to_owned(), root_run: RunNumber(4), depth: 5 }
    }

    fn start() -> ChildStart {
        ChildStart {
            parent: parent(),
            workflow: "w".to_owned(),
            version: Some("^1".to_owned()),
            input: "{\"a\":1}".to_owned(),
            correlation_id: "c".to_owned(),
            entity_id: None,
        }
    }

    /// These bytes are stored in inboxes and outboxes: they must never change.
    #[test]
    fn child_starts_of_older_forms_are_still_readable() {
        let before = b"\x01\x00\x06parent\x02\x03\x01w\x01\x02^1\x07{\"a\":1}\x01c\x00";
        assert_eq!(decode::<RunMessage>(before), Ok(RunMessage::LegacyStartChild(start())));
        let item = IdempotencyKey([7; 32]);
        let without_lineage = [&b"\x01\x05"[..], &[7; 32], &before[2..]].concat();
        let expected = RunMessage::StartChildOf { item, start: start() };
        assert_eq!(decode::<RunMessage>(&without_lineage), Ok(expected));
        let now = [&b"\x01\x06"[..], &[7; 32], b"\x04root\x04\x05", &before[2..]].concat();
        assert_eq!(encode(&RunMessage::StartDescendant { item, lineage: lineage(), start: start() }), now);
    }

    #[test]
    fn every_message_round_trips() {
        let parent = parent();
        let failure = Failure::permanent("Gone", "it is gone");
        let message = Message::ChildFailed { command: CommandId(3), failure };
        for run_message in [
            RunMessage::LegacyStartChild(start()),
            RunMessage::StartChildOf { item: IdempotencyKey([7; 32]), start: start() },
            RunMessage::StartDescendant { item: IdempotencyKey([7; 32]), lineage: lineage(), start: start() },
            RunMessage::TerminateChild { parent: parent.clone(), reason: "r".to_owned() },
            RunMessage::TerminateTree { parent: parent.clone(), reason: "r".to_owned() },
            RunMessage::OrderChildren {
                parent_id: parent.instance_id.clone(),
                parent_run: parent.run,
                children: vec![(CommandId(3), InstanceId::new("child").unwrap())],
                reason: "r".to_owned(),
            },
            RunMessage::ChildEnded { parent, message },
            RunMessage::Continue { run_id: RunId(9) },
        ] {
            let addressed =
                AddressedMessage { instance_id: InstanceId::new("child").unwrap(), message: run_message };
            assert_eq!(decode::<AddressedMessage>(&encode(&addressed)), Ok(addressed));
        }
        assert!(decode::<AddressedMessage>(&[]).is_err() && decode::<AddressedMessage>(&[2, 0]).is_err());
    }
}

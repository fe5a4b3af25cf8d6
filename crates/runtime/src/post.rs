//! Messages between runs: a child to be started, ended, or reporting to its parent; and a run's note to itself to go on.
//!
//! They lie in the inbox of the shard that will take them, and on their way there in outboxes and arrivals, always as these bytes.

use abide_workflow::instance::ParentLink;
use abide_workflow::{InstanceId, Message};
use serde::{Deserialize, Serialize};

use crate::entity::Routed;

/// A message from one run to another. Stored by place: append only.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Post {
    /// Begin a run for this parent: as it was asked for before the calls of children had a parent item. Only read.
    StartChild(ChildStart),
    /// End the run that this parent started, if it still lives.
    TerminateChild {
        /// Who started it, and by which command.
        parent: ParentLink,
        /// For history.
        reason: String,
    },
    /// How a child ended, for the run that waits for it.
    ToParent {
        /// Who started it, and by which command.
        parent: ParentLink,
        /// `ChildCompleted` or `ChildFailed`.
        message: Message,
    },
    /// A turn was cut short by its limits: go on.
    Continue {
        /// The run's number in its shard.
        run: u64,
    },
    /// An event from outside, for the run of its session.
    Routed(Box<Routed>),
    /// Begin a run for this parent.
    StartChildOf {
        /// The key of the `workflow` state's visit that starts it: the parent item of its calls.
        item: [u8; 32],
        /// What to begin.
        start: ChildStart,
    },
}

impl Post {
    /// Whether a run is to begin for its parent.
    pub(crate) fn starts_child(&self) -> bool {
        matches!(self, Self::StartChild(_) | Self::StartChildOf { .. })
    }
}

/// A child to be started.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ChildStart {
    /// Who starts it, and by which command.
    pub parent: ParentLink,
    /// Its definition.
    pub workflow: String,
    /// The versions that will do, as text; none for the default version.
    pub version: Option<String>,
    /// Its input, as JSON text.
    pub input: String,
    /// The trace it belongs to.
    pub correlation_id: String,
    /// The entity it acts for.
    pub entity_id: Option<String>,
}

/// A message on its way to another shard: for whom, and what.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Letter {
    /// For whom.
    pub instance_id: InstanceId,
    /// What.
    pub post: Post,
}

/// The format this code writes. Readers refuse a higher one.
const FORMAT: u8 = 1;

/// Stored bytes that are no message.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a message between runs cannot be read: {reason}")]
pub struct Unreadable {
    /// What is wrong.
    pub reason: String,
}

/// The bytes of a message.
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    // Writing to memory fails only for types that postcard cannot express at all; the round-trip test would.
    postcard::to_extend(message, vec![FORMAT]).unwrap_or_default()
}

/// The message of these bytes.
pub fn decode<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<T, Unreadable> {
    let unreadable = |reason: &str| Unreadable { reason: reason.to_owned() };
    match bytes.split_first() {
        Some((&FORMAT, rest)) => match postcard::take_from_bytes(rest) {
            Ok((message, [])) => Ok(message),
            Ok(_) => Err(unreadable("bytes are left over")),
            Err(error) => Err(unreadable(&error.to_string())),
        },
        Some((format, _)) => Err(unreadable(&format!("its format is {format}"))),
        None => Err(unreadable("it is empty")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abide_workflow::{CommandId, Failure, RunNumber};

    fn parent() -> ParentLink {
        ParentLink {
            instance_id: InstanceId::new("parent").unwrap(),
            run: RunNumber(2),
            command: CommandId(3),
        }
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

    /// They lie in inboxes and outboxes: these may never change.
    #[test]
    fn a_child_that_was_asked_for_without_an_item_is_still_read() {
        let before = b"\x01\x00\x06parent\x02\x03\x01w\x01\x02^1\x07{\"a\":1}\x01c\x00";
        assert_eq!(decode::<Post>(before), Ok(Post::StartChild(start())));
        let now = [&b"\x01\x05"[..], &[7; 32], &before[2..]].concat();
        assert_eq!(encode(&Post::StartChildOf { item: [7; 32], start: start() }), now);
    }

    #[test]
    fn every_message_survives_its_bytes() {
        let parent = parent();
        let failure = Failure::last("Gone", "it is gone");
        let message = Message::ChildFailed { command: CommandId(3), failure };
        for post in [
            Post::StartChild(start()),
            Post::StartChildOf { item: [7; 32], start: start() },
            Post::TerminateChild { parent: parent.clone(), reason: "r".to_owned() },
            Post::ToParent { parent, message },
            Post::Continue { run: 9 },
        ] {
            let letter = Letter { instance_id: InstanceId::new("child").unwrap(), post };
            assert_eq!(decode::<Letter>(&encode(&letter)), Ok(letter));
        }
        assert!(decode::<Letter>(&[]).is_err() && decode::<Letter>(&[2, 0]).is_err());
    }
}

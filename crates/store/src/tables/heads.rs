//! The head of a shard: who owns it and what the last commit was. One row per partition, written in every commit of its owner.
//!
//! Its version is the fence of all other rows. Its commit id answers what came of a commit whose outcome was unknown.

use serde::{Deserialize, Serialize};

use super::{KeyWriter, Stored, Table};
use crate::rows::Key;

/// Names one commit; made by its writer, new each time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct CommitId(pub u128);

/// Owner, lease and last commit of a shard.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Head {
    /// The node that owns the shard; a node id is new in every incarnation.
    pub owner: String,
    /// Raised by every change of owner.
    pub fencing_token: u64,
    /// Raised by the owner to show that it lives; challengers watch it, nobody compares it with a clock.
    pub heartbeat: u64,
    /// The commit that wrote this head.
    pub last_commit: CommitId,
    /// The last number given to a run, a message or an outbox row of this shard.
    pub last_sequence: u64,
}

impl Stored for Head {
    const TABLE: Table = Table::Head;
    const FORMAT: u8 = 1;
}

/// The head's key, the same in every partition.
pub fn key() -> Key {
    KeyWriter::new(Table::Head).key()
}

#[cfg(test)]
mod tests {
    use super::super::codec::laws::value_round_trips;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_head_survives_its_bytes(owner in ".{0,40}", numbers: [u64; 3], commit: u128) {
            let [fencing_token, heartbeat, last_sequence] = numbers;
            value_round_trips(&Head { owner, fencing_token, heartbeat, last_commit: CommitId(commit), last_sequence });
        }
    }
}

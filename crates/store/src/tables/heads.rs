//! The head of a shard: its ownership, lease and fencing token, its last commit, and how the owners before it ended.
//! One row per partition, written in every commit of the owner.
//!
//! The rules of ownership are not known here. The version of the head fences all other rows of the partition. Its
//! commit id tells whether a commit of unknown outcome was applied.

use abide_ids::Sequence;
use serde::{Deserialize, Serialize};

use super::{KeyWriter, TableId, TableRow};
use crate::rows::Key;

/// Identifies one commit. The writer makes a new one for each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct CommitId(pub u128);

/// Owner, lease and last commit of a shard.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HeadRow {
    /// The node that owns the shard, or `None` if the last owner has released it. A node id is new in every
    /// incarnation.
    #[serde(with = "name")]
    pub owner: Option<String>,
    /// Incremented by every change of owner.
    pub fencing_token: u64,
    /// Incremented by the owner to show that it is alive. Challengers watch it for changes; it is never compared with a
    /// clock.
    pub heartbeat: u64,
    /// The commit that wrote this head.
    pub last_commit: CommitId,
    /// The last number given to a run, a message or an outbox row of this shard.
    pub last_sequence: Sequence,
    /// The retention, in milliseconds, that all expiries of ended runs agree with; 0 if a release that did not state it
    /// wrote the head.
    pub retention_ms: u64,
    /// Owners in a row, up to this one, that took the shard over from an owner that had not released it. A release
    /// clears it, and so does an owner that has worked for a while.
    pub unclean_claims: u32,
    /// The instance whose stored work this owner does alone, because the process may end of it. Still there when the
    /// shard is taken over: the process ended meanwhile.
    #[serde(with = "name")]
    pub marked_instance: Option<String>,
}

/// No name is stored as an empty one, which no node and no instance has.
mod name {
    use super::Deserialize;
    use serde::{Deserializer, Serializer};

    const NONE: &str = "";

    pub(super) fn serialize<S: Serializer>(name: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(name.as_deref().unwrap_or(NONE))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<String>, D::Error> {
        String::deserialize(deserializer).map(|name| Some(name).filter(|name| name != NONE))
    }
}

impl HeadRow {
    /// True if the last owner has released the shard.
    pub fn is_released(&self) -> bool {
        self.owner.is_none()
    }
}

impl TableRow for HeadRow {
    const TABLE: TableId = TableId::Head;
    const FORMAT: u8 = 3;

    fn default_suffix(format: u8) -> &'static [u8] {
        match format {
            // Format 1 did not state the retention,
            1 => &[0, 0, 0],
            // and format 2 neither counted unclean claims nor named an instance.
            2 => &[0, 0],
            _ => &[],
        }
    }
}

/// The head's key, the same in every partition.
pub fn key() -> Key {
    KeyWriter::new(TableId::Head).key()
}

#[cfg(test)]
mod tests {
    use super::super::codec::laws::value_round_trips;
    use super::*;
    use proptest::prelude::*;

    /// These bytes are stored: they must never change.
    #[test]
    fn a_released_head_is_stored_with_an_empty_owner() {
        let rest = (3u64, 4u64, CommitId(5), 6u64, 7u64, 8u32);
        let head = HeadRow {
            owner: None,
            fencing_token: 3,
            heartbeat: 4,
            last_commit: CommitId(5),
            last_sequence: Sequence(6),
            retention_ms: 7,
            unclean_claims: 8,
            marked_instance: None,
        };
        assert_eq!(postcard::to_stdvec(&head), postcard::to_stdvec(&("", rest, "")));
        let head = HeadRow { owner: Some("n".to_owned()), marked_instance: Some("i".to_owned()), ..head };
        assert_eq!(postcard::to_stdvec(&head), postcard::to_stdvec(&("n", rest, "i")));
    }

    #[test]
    fn a_head_without_a_retention_is_read() {
        let stored =
            [&[1][..], &postcard::to_stdvec(&("n", 3u64, 4u64, CommitId(5), 6u64)).unwrap()].concat();
        let head: HeadRow = super::super::decode(&stored).unwrap();
        assert_eq!((head.last_sequence, head.retention_ms), (Sequence(6), 0));
        assert_eq!((head.unclean_claims, head.marked_instance), (0, None));
    }

    #[test]
    fn a_head_that_counts_no_unclean_claims_is_read() {
        let fields = ("n", 3u64, 4u64, CommitId(5), 6u64, 7u64);
        let stored = [&[2][..], &postcard::to_stdvec(&fields).unwrap()].concat();
        let head: HeadRow = super::super::decode(&stored).unwrap();
        assert_eq!((head.retention_ms, head.unclean_claims, head.marked_instance), (7, 0, None));
    }

    proptest! {
        #[test]
        fn a_head_round_trips(
            owner in prop::option::of(".{1,40}"), marked_instance in prop::option::of(".{1,40}"),
            numbers: [u64; 4], unclean_claims: u32, commit: u128,
        ) {
            let [fencing_token, heartbeat, last_sequence, retention_ms] = numbers;
            let last_sequence = Sequence(last_sequence);
            value_round_trips(&HeadRow {
                owner, fencing_token, heartbeat, last_commit: CommitId(commit), last_sequence, retention_ms,
                unclean_claims, marked_instance,
            });
        }
    }
}

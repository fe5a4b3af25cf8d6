//! Maps placement keys to shards: a pure function, the same on every node and for all time.
//!
//! Rows with the same placement key share a shard, and so a commit: a message, the instance it starts and the row that
//! records it. Ownership of shards is not known here.

use abide_store::rows::{Partition, PartitionError};
use abide_workflow::InstanceId;
use sha2::{Digest, Sha256};

/// The number of shards of a store. Fixed when the store is created: another number would move every key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShardCount(u32);

/// One shard of a store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ShardId(u32);

impl ShardCount {
    /// The most shards a store can have.
    pub const MAX: u32 = 4_096;

    /// Accepts 1 to [`Self::MAX`] shards.
    pub fn new(count: u32) -> Option<Self> {
        (1..=Self::MAX).contains(&count).then_some(Self(count))
    }

    pub fn shards(self) -> impl Iterator<Item = ShardId> {
        (0..self.0).map(ShardId)
    }

    /// The shard of a placement key. The hash is a strong one, so that keys spread evenly, whatever pattern they
    /// follow.
    pub fn shard_of(self, placement_key: &str) -> ShardId {
        let digest = Sha256::digest(placement_key.as_bytes());
        let number = digest.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        ShardId(u32::try_from(number % u64::from(self.0)).unwrap_or(0))
    }

    /// The shard of an instance, by its id up to the first `~`. Instances of one session, and children placed with
    /// their parent, share that prefix.
    pub fn shard_of_instance(self, id: &InstanceId) -> ShardId {
        self.shard_of(id.placement_key())
    }
}

impl std::fmt::Display for ShardId {
    /// The name of the shard's own partition. It also names the shard in the keys of messages between shards: stored.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "shard/{:04}", self.0)
    }
}

impl ShardId {
    /// Parses the name of a shard's own partition, when recovery reads the target of an outbox row.
    pub fn of_partition(name: &str) -> Option<Self> {
        name.strip_prefix("shard/")?.parse().ok().map(Self)
    }

    /// Numbered from 0.
    pub fn number(self) -> u32 {
        self.0
    }

    /// The partition of the shard's own rows, which only its owner writes.
    pub fn partition(self) -> Result<Partition, PartitionError> {
        Partition::new(&self.to_string())
    }

    /// The partition where other shards put messages for this one. Its stored name begins with `inbox`, but the inbox
    /// table is in the shard's own partition.
    pub fn inbound_partition(self) -> Result<Partition, PartitionError> {
        Partition::new(&format!("inbox/{:04}", self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ids_that_share_the_part_before_the_tilde_share_a_shard() {
        let shards = ShardCount::new(64).unwrap();
        let of = |id: &str| shards.shard_of_instance(&InstanceId::new(id).unwrap());
        assert_eq!(of("device-7"), of("device-7~child~2"));
        assert_eq!(of("device-7"), shards.shard_of("device-7"));
        assert_ne!(of("device-7"), of("device-8"));
    }

    /// Stored rows can be found only if this never changes.
    #[test]
    fn the_shard_of_a_key_never_changes() {
        let shards = ShardCount::new(16).unwrap();
        let numbers: Vec<u32> = ["", "a", "device-7", "ü"].iter().map(|key| shards.shard_of(key).0).collect();
        assert_eq!(numbers, [4, 10, 3, 4]);
        assert_eq!(ShardId(7).partition().unwrap().name(), "shard/0007");
        assert_eq!(ShardId(7).inbound_partition().unwrap().name(), "inbox/0007");
    }

    #[test]
    fn no_shard_has_much_more_than_its_share() {
        let shards = ShardCount::new(16).unwrap();
        let mut counts = [0u32; 16];
        for number in 0..160_000 {
            counts[shards.shard_of(&format!("tenant-1-device-{number:08}")).0 as usize] += 1;
        }
        assert!(counts.iter().all(|count| (9_000..11_000).contains(count)), "{counts:?}");
    }

    proptest! {
        #[test]
        fn every_key_has_a_shard(key: String, count in 1..=ShardCount::MAX) {
            let shards = ShardCount::new(count).unwrap();
            prop_assert!(shards.shard_of(&key).0 < count);
        }
    }

    #[test]
    fn a_store_has_at_least_one_shard_and_not_too_many() {
        assert_eq!(ShardCount::new(0), None);
        assert_eq!(ShardCount::new(ShardCount::MAX + 1), None);
    }
}

//! Injects damage into the reference store: ranges of keys that cannot be read, as with a broken block of a file.
//!
//! It does not know the rows: it only decides which reads and scans fail.

use std::ops::{Bound, RangeInclusive};

use crate::rows::{Direction, Key, Partition, Scan, ScanPage, StoreError};

/// The ranges of keys that cannot be read, by partition.
#[derive(Debug, Default)]
pub(super) struct DamagedRanges(Vec<(Partition, RangeInclusive<Key>)>);

impl DamagedRanges {
    pub(super) fn add(&mut self, partition: &Partition, keys: RangeInclusive<Key>) {
        self.0.push((partition.clone(), keys));
    }

    pub(super) fn check_read(&self, partition: &Partition, key: &Key) -> Result<(), StoreError> {
        let damaged = self.in_partition(partition).any(|keys| keys.contains(key));
        if damaged { Err(corrupt(partition, key.clone())) } else { Ok(()) }
    }

    /// Fails if the scan that returned this page met damage. Like an engine, the scan reads ahead, so the last row
    /// before the damage is lost too.
    pub(super) fn check_scan(
        &self,
        partition: &Partition,
        scan: Scan,
        page: &ScanPage,
    ) -> Result<(), StoreError> {
        if scan.is_empty() {
            return Ok(());
        }
        let mut from = scan.from;
        let mut until = scan.until;
        if let Some(last) = page.rows.last().filter(|_| page.next.is_some()) {
            match scan.direction {
                Direction::Forwards => until = Bound::Included(last.key.clone()),
                Direction::Backwards => from = Bound::Included(last.key.clone()),
            }
        }
        // A scan also reads a key that only bounds it.
        let begins_by = |key: &Key| match &from {
            Bound::Included(from) | Bound::Excluded(from) => from <= key,
            Bound::Unbounded => true,
        };
        let lasts_to = |key: &Key| match &until {
            Bound::Included(until) | Bound::Excluded(until) => until >= key,
            Bound::Unbounded => true,
        };
        let hit = self.in_partition(partition).find(|keys| begins_by(keys.end()) && lasts_to(keys.start()));
        let Some(hit) = hit else { return Ok(()) };
        let before = page.rows.iter().take_while(|row| match scan.direction {
            Direction::Forwards => row.key < *hit.start(),
            Direction::Backwards => row.key > *hit.end(),
        });
        let before: Vec<&Key> = before.map(|row| &row.key).collect();
        let last = before.iter().rev().nth(1).map_or_else(|| Key::new([]), |key| (*key).clone());
        Err(corrupt(partition, last))
    }

    fn in_partition(&self, partition: &Partition) -> impl Iterator<Item = &RangeInclusive<Key>> {
        self.0.iter().filter(move |(damaged, _)| damaged == partition).map(|(_, keys)| keys)
    }
}

fn corrupt(partition: &Partition, key: Key) -> StoreError {
    StoreError::Corrupt { partition: partition.clone(), key, reason: "injected damage".to_owned() }
}

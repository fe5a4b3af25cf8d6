//! The reference semantics of private rows: reads, scans and atomic commits on ordered maps.
//!
//! Faults and damage are not known here: the store injects them around these calls.

use std::collections::BTreeMap;

use crate::rows::{
    Batch, CommitOutcome, CommitReceipt, Direction, Key, Partition, Precondition, Row, Scan, ScanPage,
    StoreLimits,
};
use crate::rows::{RowVersion, RowWrite};

/// All rows of all partitions.
#[derive(Debug, Default)]
pub(super) struct MemoryRows {
    partitions: BTreeMap<Partition, BTreeMap<Key, VersionedValue>>,
    /// Incremented by every commit and never reused, so a row that is deleted and written again has a new version.
    last_commit: u64,
}

#[derive(Debug)]
struct VersionedValue {
    value: Vec<u8>,
    commit: u64,
}

impl MemoryRows {
    pub(super) fn read(&self, partition: &Partition, key: &Key, etags: bool) -> Option<Row> {
        let cell = self.partitions.get(partition)?.get(key)?;
        Some(Row { key: key.clone(), value: cell.value.clone(), version: version(cell.commit, etags) })
    }

    pub(super) fn scan(&self, partition: &Partition, scan: Scan, etags: bool) -> ScanPage {
        let empty = ScanPage { rows: Vec::new(), next: None };
        if scan.is_empty() {
            return empty;
        }
        let Some(rows) = self.partitions.get(partition) else { return empty };
        let range = rows.range((scan.from.as_ref(), scan.until.as_ref()));
        let mut range: Box<dyn Iterator<Item = _>> = match scan.direction {
            Direction::Forwards => Box::new(range),
            Direction::Backwards => Box::new(range.rev()),
        };
        let mut page = Vec::new();
        let mut bytes = 0;
        while page.len() < scan.page_rows_max() && bytes < StoreLimits::SCAN_BYTES_MAX {
            let Some((key, cell)) = range.next() else { return ScanPage { rows: page, next: None } };
            bytes += key.as_bytes().len() + cell.value.len();
            page.push(Row {
                key: key.clone(),
                value: cell.value.clone(),
                version: version(cell.commit, etags),
            });
        }
        let more = range.next().is_some();
        let last = page.last().map(|row| row.key.clone());
        ScanPage { rows: page, next: last.filter(|_| more).map(|last| scan.resume_after(last)) }
    }

    /// Checks all preconditions, then applies all writes.
    pub(super) fn commit(&mut self, partition: &Partition, batch: &Batch, etags: bool) -> CommitOutcome {
        let rows = self.partitions.entry(partition.clone()).or_default();
        let stored = |key: &Key| rows.get(key).map(|cell| version(cell.commit, etags));
        if let Some(fence) = &batch.fence
            && stored(&fence.key) != fence.expected_version
        {
            return CommitOutcome::Fenced;
        }
        let is_conflict = |write: &&RowWrite| match &write.precondition {
            Precondition::Unchecked => false,
            Precondition::Absent => stored(&write.key).is_some(),
            Precondition::VersionIs(version) => stored(&write.key).as_ref() != Some(version),
        };
        let conflicts: Vec<Key> =
            batch.writes.iter().filter(is_conflict).map(|write| write.key.clone()).collect();
        if !conflicts.is_empty() {
            return CommitOutcome::Conflict(conflicts);
        }

        self.last_commit += 1;
        let commit = self.last_commit;
        let head = batch.fence.as_ref().map(|fence| {
            rows.insert(fence.key.clone(), VersionedValue { value: fence.value.clone(), commit });
            version(commit, etags)
        });
        let written = batch.writes.iter().map(|write| {
            let Some(value) = write.value.clone() else {
                rows.remove(&write.key);
                return None;
            };
            rows.insert(write.key.clone(), VersionedValue { value, commit });
            Some(version(commit, etags))
        });
        CommitOutcome::Committed(CommitReceipt { head_version: head, row_versions: written.collect() })
    }
}

/// A counter, or an ETag whose bytes say nothing about order.
fn version(commit: u64, etags: bool) -> RowVersion {
    if !etags {
        return RowVersion::from_bytes(&commit.to_be_bytes());
    }
    let mixed = commit.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) ^ 0x5851_f42d_4c95_7f2d;
    RowVersion::from_bytes(format!("W/\"datetime'{mixed:016x}'\"").as_bytes())
}

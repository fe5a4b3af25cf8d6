//! The reference semantics of private rows.

use std::collections::BTreeMap;

use crate::rows::{
    Batch, CommitOutcome, Direction, Expect, Key, Limits, Partition, Receipt, Row, Scan, ScanPage,
};
use crate::rows::{Version, Write};

/// All rows of all partitions.
#[derive(Debug, Default)]
pub(super) struct Rows {
    partitions: BTreeMap<Partition, BTreeMap<Key, Cell>>,
    /// Raised by every commit; never given twice, so a row deleted and written again has a version of its own.
    last_commit: u64,
}

#[derive(Debug)]
struct Cell {
    value: Vec<u8>,
    commit: u64,
}

impl Rows {
    pub(super) fn read(&self, partition: &Partition, key: &Key, etags: bool) -> Option<Row> {
        let cell = self.partitions.get(partition)?.get(key)?;
        Some(Row { key: key.clone(), value: cell.value.clone(), version: version(cell.commit, etags) })
    }

    pub(super) fn scan(&self, partition: &Partition, scan: Scan, etags: bool) -> ScanPage {
        let nothing = ScanPage { rows: Vec::new(), next: None };
        if scan.is_empty() {
            return nothing;
        }
        let Some(rows) = self.partitions.get(partition) else { return nothing };
        let range = rows.range((scan.from.as_ref(), scan.until.as_ref()));
        let mut range: Box<dyn Iterator<Item = _>> = match scan.direction {
            Direction::Forwards => Box::new(range),
            Direction::Backwards => Box::new(range.rev()),
        };
        let mut page = Vec::new();
        let mut bytes = 0;
        while page.len() < scan.page_rows() && bytes < Limits::SCAN_BYTES_MAX {
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
        ScanPage { rows: page, next: last.filter(|_| more).map(|last| scan.after(last)) }
    }

    /// Checks everything, then applies everything.
    pub(super) fn commit(&mut self, partition: &Partition, batch: &Batch, etags: bool) -> CommitOutcome {
        let rows = self.partitions.entry(partition.clone()).or_default();
        let at = |key: &Key| rows.get(key).map(|cell| version(cell.commit, etags));
        if let Some(fence) = &batch.fence
            && at(&fence.key) != fence.expect
        {
            return CommitOutcome::Fenced;
        }
        let unexpected = |write: &&Write| match &write.expect {
            Expect::Anything => false,
            Expect::Absent => at(&write.key).is_some(),
            Expect::At(version) => at(&write.key).as_ref() != Some(version),
        };
        let conflicts: Vec<Key> =
            batch.writes.iter().filter(unexpected).map(|write| write.key.clone()).collect();
        if !conflicts.is_empty() {
            return CommitOutcome::Conflict(conflicts);
        }

        self.last_commit += 1;
        let commit = self.last_commit;
        let head = batch.fence.as_ref().map(|fence| {
            rows.insert(fence.key.clone(), Cell { value: fence.value.clone(), commit });
            version(commit, etags)
        });
        let written = batch.writes.iter().map(|write| {
            let Some(value) = write.value.clone() else {
                rows.remove(&write.key);
                return None;
            };
            rows.insert(write.key.clone(), Cell { value, commit });
            Some(version(commit, etags))
        });
        CommitOutcome::Committed(Receipt { head, rows: written.collect() })
    }
}

/// A counter, or an ETag whose bytes tell nothing about order.
fn version(commit: u64, etags: bool) -> Version {
    if !etags {
        return Version::of_bytes(&commit.to_be_bytes());
    }
    let mixed = commit.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) ^ 0x5851_f42d_4c95_7f2d;
    Version::of_bytes(format!("W/\"datetime'{mixed:016x}'\"").as_bytes())
}

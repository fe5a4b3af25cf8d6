//! Checks a store that is not in use: something will wake every live run, a run waits for every timer and every call,
//! every status agrees with its history, and no row of a run is orphaned.
//!
//! Nothing is written or repaired. One shard is checked at a time, in memory. A finding names the row and the problem.
//! Damage is a finding, too, and hides nothing else. `abide fsck`, the backup and the simulator call it.

mod children;
mod rows;
mod runs;

use std::collections::{BTreeMap, BTreeSet};

use abide_ids::RunId;
use abide_store::rows::{
    Partition, PartitionError, PrivateRows, Row, Scan, StoreError, TolerantPage, scan_past_damage,
};
use abide_store::tables::TableId;
use abide_store::tables::timers::TimerKey;

use crate::definitions::Definitions;
use crate::placement::{ShardCount, ShardId};
use crate::run::{RunReader, StoredRun};
use children::ChildLinks;

/// A problem in a store.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FsckFinding {
    pub shard: ShardId,
    /// The instance concerned, if there is one.
    pub instance_id: Option<String>,
    pub problem: String,
}

/// The result of a check: what was checked, and the findings.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FsckReport {
    /// Without those that were purged.
    pub instances: u64,
    pub live: u64,
    /// Parked instances; their rows have the reason.
    pub parked: u64,
    pub rows: u64,
    pub findings: Vec<FsckFinding>,
}

/// The reason why a store could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum FsckError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The name of a partition is not valid.
    #[error(transparent)]
    Partition(#[from] PartitionError),
}

/// Checks every shard of a store.
pub async fn check<S: PrivateRows>(
    store: &S,
    definitions: &Definitions<S>,
    shards: ShardCount,
) -> Result<FsckReport, FsckError> {
    let mut report = FsckReport::default();
    let mut children = ChildLinks::default();
    for shard in shards.shards() {
        let mut check = ShardCheck {
            reader: RunReader { store, definitions },
            shard,
            partition: shard.partition()?,
            report: &mut report,
            children: &mut children,
            runs: BTreeMap::new(),
            expiring: BTreeSet::new(),
            deleting: BTreeSet::new(),
            index_pending: BTreeSet::new(),
        };
        check.check_shard().await?;
        for row in check.read_rows(&shard.inbound_partition()?).await? {
            check.check_inbound(&row);
        }
    }
    children.check(&mut report);
    report.findings.sort();
    Ok(report)
}

struct ShardCheck<'c, S> {
    reader: RunReader<'c, S>,
    shard: ShardId,
    partition: Partition,
    report: &'c mut FsckReport,
    children: &'c mut ChildLinks,
    /// Current runs, by run id.
    runs: BTreeMap<RunId, CheckedRun>,
    /// Ended runs, current or earlier, that are kept for a time: until their retention ends, or as a tombstone.
    expiring: BTreeSet<RunId>,
    /// Runs whose rows are being deleted. An instance row may remain as a tombstone.
    deleting: BTreeSet<RunId>,
    /// Runs whose public row is not yet written.
    index_pending: BTreeSet<RunId>,
}

/// The current run of an instance.
struct CheckedRun {
    id: String,
    /// None if it cannot be read or was purged.
    stored: Option<StoredRun>,
    /// The timer rows found for it.
    timers: BTreeSet<TimerKey>,
    /// The number of messages that continue it.
    continue_messages: usize,
}

impl<S: PrivateRows> ShardCheck<'_, S> {
    /// Checks the shard's own partition in three passes: the first collects the known runs, the second checks each row
    /// against them and notes what wakes each run, the third checks the runs.
    async fn check_shard(&mut self) -> Result<(), FsckError> {
        let rows = self.read_rows(&self.partition.clone()).await?;
        for row in &rows {
            match TableId::of_key(&row.key) {
                Some(TableId::Instance) => self.check_instance(row).await?,
                Some(TableId::Expiry) => self.collect_expiry(row),
                Some(TableId::Outbox) => self.collect_index_marker(row),
                _ => {}
            }
        }
        for row in &rows {
            self.check_row(row);
        }
        for (run_id, run) in std::mem::take(&mut self.runs) {
            self.check_run(run_id, &run).await?;
        }
        Ok(())
    }

    /// The readable rows. Damage is a finding, and the other rows are checked all the same.
    async fn read_rows(&mut self, partition: &Partition) -> Result<Vec<Row>, StoreError> {
        let mut rows = Vec::new();
        let mut next = Some(Scan::all());
        while let Some(scan) = next {
            let TolerantPage { page, damage } = scan_past_damage(self.reader.store, partition, scan).await?;
            if let Some(damage) = damage {
                self.add_finding(None, damage.to_string());
            }
            rows.extend(page.rows);
            next = page.next;
        }
        self.report.rows += rows.len() as u64;
        Ok(rows)
    }

    fn add_finding(&mut self, instance_id: Option<&str>, problem: impl Into<String>) {
        let finding = FsckFinding {
            shard: self.shard,
            instance_id: instance_id.map(str::to_owned),
            problem: problem.into(),
        };
        self.report.findings.push(finding);
    }
}

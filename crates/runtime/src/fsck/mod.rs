//! Proves a store that nobody is working on: every live run has something that will move it, every timer and call somebody who waits for it,
//! every status its history, and no row belongs to nobody.
//!
//! Reads only. Checks one shard at a time, in memory; a finding names the row and what is wrong with it. What is damaged is a finding and
//! hides nothing else.

mod children;
mod rows;
mod runs;

use std::collections::{BTreeMap, BTreeSet};

use abide_store::rows::{
    Partition, PartitionError, Passed, PrivateRows, Row, Scan, StoreError, scan_past_damage,
};
use abide_store::tables::Table;
use abide_store::tables::timers::TimerKey;

use crate::definitions::Definitions;
use crate::placement::{ShardCount, ShardId};
use crate::run::{RunReader, StoredRun};
use children::Children;

/// Something that is not as it must be.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Finding {
    /// Where.
    pub shard: ShardId,
    /// The instance it is about, if there is one.
    pub instance_id: Option<String>,
    /// What is wrong.
    pub what: String,
}

/// What was looked at, and what was found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Instances.
    pub instances: u64,
    /// Of those, live ones.
    pub live: u64,
    /// Of those, parked ones: they say why themselves.
    pub parked: u64,
    /// Rows.
    pub rows: u64,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

/// Why a store could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum FsckError {
    /// The store could not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A partition has no name.
    #[error(transparent)]
    Partition(#[from] PartitionError),
}

/// Checks every shard of a store.
pub async fn check<S: PrivateRows>(
    store: &S,
    definitions: &Definitions<S>,
    shards: ShardCount,
) -> Result<Report, FsckError> {
    let mut report = Report::default();
    let mut children = Children::default();
    for shard in shards.shards() {
        let mut check = Check {
            reader: RunReader { store, definitions },
            shard,
            partition: shard.partition()?,
            report: &mut report,
            children: &mut children,
            runs: BTreeMap::new(),
            expiring: BTreeSet::new(),
            deleting: BTreeSet::new(),
            marked: BTreeSet::new(),
        };
        check.shard().await?;
        for arrival in check.rows(&shard.inbox()?).await? {
            check.arrival(&arrival);
        }
    }
    children.check(&mut report);
    report.findings.sort();
    Ok(report)
}

struct Check<'c, S> {
    reader: RunReader<'c, S>,
    shard: ShardId,
    partition: Partition,
    report: &'c mut Report,
    children: &'c mut Children,
    /// Runs that an id leads to.
    runs: BTreeMap<u64, Known>,
    /// Runs that are kept for a while.
    expiring: BTreeSet<u64>,
    /// Runs that are being deleted.
    deleting: BTreeSet<u64>,
    /// Runs whose public row is on its way.
    marked: BTreeSet<u64>,
}

/// A run that an id leads to.
struct Known {
    id: String,
    /// As far as it can be read.
    stored: Option<StoredRun>,
    /// The rows of its timers.
    timers: BTreeSet<TimerKey>,
    /// Notes of it to itself, to go on.
    notes: usize,
}

impl<S: PrivateRows> Check<'_, S> {
    async fn shard(&mut self) -> Result<(), FsckError> {
        let rows = self.rows(&self.partition.clone()).await?;
        for row in &rows {
            match Table::of(&row.key) {
                Some(Table::Instance) => self.instance(row).await?,
                Some(Table::Expiry) => self.expiry(row),
                Some(Table::Outbox) => self.marker(row),
                _ => {}
            }
        }
        for row in &rows {
            self.row(row);
        }
        for (run, known) in std::mem::take(&mut self.runs) {
            self.run(run, &known).await?;
        }
        Ok(())
    }

    /// The rows that can be read. What cannot is a finding, and the rest is checked all the same.
    async fn rows(&mut self, partition: &Partition) -> Result<Vec<Row>, StoreError> {
        let mut rows = Vec::new();
        let mut next = Some(Scan::all());
        while let Some(scan) = next {
            let Passed { page, damage } = scan_past_damage(self.reader.store, partition, scan).await?;
            if let Some(damage) = damage {
                self.find(None, damage.to_string());
            }
            rows.extend(page.rows);
            next = page.next;
        }
        self.report.rows += rows.len() as u64;
        Ok(rows)
    }

    fn find(&mut self, instance_id: Option<&str>, what: impl Into<String>) {
        let finding =
            Finding { shard: self.shard, instance_id: instance_id.map(str::to_owned), what: what.into() };
        self.report.findings.push(finding);
    }
}

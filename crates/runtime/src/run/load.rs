//! Loads a run from the store: row, parts, pages after the last fold, calls, plan. Drivers load runs for their shards
//! to continue them, readers to show them, and fsck to check them, with the same code.
//!
//! Nothing is written or guessed. An unreadable run is returned with everything that could be read, so that it can be
//! parked, shown and ended.

use std::collections::BTreeMap;
use std::sync::Arc;

use abide_ids::{IdempotencyKey, PageNumber, RunId};
use abide_store::rows::{Partition, PrivateRows, Row, Scan, StoreError};
use abide_store::tables::calls::{self, CallRow};
use abide_store::tables::history_pages::{self, HistoryPageRow};
use abide_store::tables::instances::{self, InstanceRow, RunStatus};
use abide_store::tables::parts::{self, PartRow};
use abide_store::tables::{TableError, decode};
use abide_workflow::{Instance, InstanceId, PartKey, Plan};
use semver::Version;

use super::RunBookkeeping;
use crate::definitions::{DefinitionError, Definitions};

/// A run as it is stored.
#[derive(Debug)]
pub struct StoredRun {
    /// The row of its id.
    pub row: InstanceRow,
    pub plan: Arc<Plan>,
    pub instance: Instance,
    /// The runtime's own entries.
    pub bookkeeping: RunBookkeeping,
    /// The calls that are not settled, each with the key by which its receiver recognises a repeated attempt.
    pub calls: Vec<(IdempotencyKey, CallRow<'static>)>,
    /// The number of the last page.
    pub last_page: PageNumber,
    /// Parts changed since the last fold: name → bytes, or `None` if the part was deleted.
    pub unfolded: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

/// A run that exists but cannot be read.
#[derive(Debug)]
pub struct UnreadableRun {
    /// The row of its id, if it can be read.
    pub row: Option<InstanceRow>,
    /// The number of the last page, as far as pages can be read.
    pub last_page: PageNumber,
    /// The number of its last event, if it can be read.
    pub last_event: Option<u64>,
    pub reason: String,
}

/// Reads runs of one store.
#[derive(Debug)]
pub struct RunReader<'r, S> {
    pub store: &'r S,
    pub definitions: &'r Definitions<S>,
}

impl<S> Clone for RunReader<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for RunReader<'_, S> {}

/// The reason why a run could not be loaded.
enum LoadError {
    Store(StoreError),
    Unreadable(String),
}

impl From<StoreError> for LoadError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Corrupt { .. } => Self::Unreadable(error.to_string()),
            unavailable @ StoreError::Unavailable { .. } => Self::Store(unavailable),
        }
    }
}

impl From<TableError> for LoadError {
    fn from(error: TableError) -> Self {
        Self::Unreadable(error.to_string())
    }
}

impl<S: PrivateRows> RunReader<'_, S> {
    /// The row of an id, or the reason why it cannot be read. The outer error is the store's: the caller should retry.
    pub async fn instance_row(
        &self,
        partition: &Partition,
        id: &InstanceId,
    ) -> Result<Result<Option<InstanceRow>, UnreadableRun>, StoreError> {
        let unreadable = |reason| {
            Ok(Err(UnreadableRun { row: None, last_page: PageNumber::ZERO, last_event: None, reason }))
        };
        let row = match self.store.read(partition, &instances::key(id.as_str())).await {
            Ok(row) => row,
            Err(error @ StoreError::Corrupt { .. }) => return unreadable(error.to_string()),
            Err(error) => return Err(error),
        };
        match row.map(|row| decode(&row.value)).transpose() {
            Ok(row) => Ok(Ok(row)),
            Err(error) => unreadable(error.to_string()),
        }
    }

    /// The current run of an instance, also if it is parked or has ended. Of a purged one only the row is left, so it
    /// may come out as unreadable: callers look at the status in the row. The outer error is the store's: the caller
    /// should retry.
    pub async fn load_run(
        &self,
        partition: &Partition,
        id: &InstanceId,
    ) -> Result<Result<Option<StoredRun>, UnreadableRun>, StoreError> {
        match self.instance_row(partition, id).await? {
            Ok(Some(row)) => self.load_run_of(partition, row).await,
            Ok(None) => Ok(Ok(None)),
            Err(unreadable) => Ok(Err(unreadable)),
        }
    }

    /// As [`Self::load_run`], but nothing is loaded of a parked run, which may be more than the process survives: it
    /// comes out as unreadable, for the reason for which it is parked.
    pub async fn load_run_unless_parked(
        &self,
        partition: &Partition,
        id: &InstanceId,
    ) -> Result<Result<Option<StoredRun>, UnreadableRun>, StoreError> {
        match self.instance_row(partition, id).await? {
            Ok(Some(row)) if row.status == RunStatus::Parked => {
                let reason = row.park_reason.clone().unwrap_or_default();
                self.unreadable_run(partition, row, reason).await.map(Err)
            }
            Ok(Some(row)) => self.load_run_of(partition, row).await,
            Ok(None) => Ok(Ok(None)),
            Err(unreadable) => Ok(Err(unreadable)),
        }
    }

    /// The run of a row, or what can be read of it.
    async fn load_run_of(
        &self,
        partition: &Partition,
        row: InstanceRow,
    ) -> Result<Result<Option<StoredRun>, UnreadableRun>, StoreError> {
        let mut last_page = row.folded_page;
        match self.load_from_row(partition, &row, &mut last_page).await {
            Ok(run) => Ok(Ok(Some(run))),
            Err(LoadError::Store(error)) => Err(error),
            Err(LoadError::Unreadable(reason)) => {
                let mut unreadable = self.unreadable_run(partition, row, reason).await?;
                unreadable.last_page = unreadable.last_page.max(last_page);
                Ok(Err(unreadable))
            }
        }
    }

    /// The run of a row that is not read, with the numbers of its last page and its last event.
    async fn unreadable_run(
        &self,
        partition: &Partition,
        row: InstanceRow,
        reason: String,
    ) -> Result<UnreadableRun, StoreError> {
        let found = self.find_last_page(partition, row.run_id).await?;
        let (last_page, last_event) = found.unwrap_or((row.folded_page, None));
        Ok(UnreadableRun { row: Some(row), last_page, last_event, reason })
    }

    /// Loads the run of a row. Moves `last_page` on with every page that is read, also if the run is unreadable.
    async fn load_from_row(
        &self,
        partition: &Partition,
        row: &InstanceRow,
        last_page: &mut PageNumber,
    ) -> Result<StoredRun, LoadError> {
        let mut all: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        if row.folded_page != PageNumber::ZERO {
            for stored in self.scan_all(partition, parts::of_run(row.run_id)).await? {
                let part: PartRow = decode(&stored.value)?;
                let (_, name) = parts::read_key(&stored.key, &part)?;
                all.insert(name, part.bytes);
            }
        }
        let mut unfolded = BTreeMap::new();
        for stored in self.unfolded_pages(partition, row).await? {
            let (_, number) = history_pages::read_key(&stored.key)?;
            let page: HistoryPageRow = decode(&stored.value)?;
            *last_page = number;
            for (name, bytes) in page.part_changes {
                match &bytes {
                    Some(bytes) => all.insert(name.clone(), bytes.clone()),
                    None => all.remove(&name),
                };
                unfolded.insert(name, bytes);
            }
        }
        let (instance, bookkeeping) = assemble(&all)?;
        let mut calls = Vec::new();
        if instance.has_open_calls() {
            for stored in self.scan_all(partition, calls::of_run(row.run_id)).await? {
                let (_, idempotency_key) = calls::read_key(&stored.key)?;
                calls.push((idempotency_key, decode(&stored.value)?));
            }
        }
        let plan = self.plan(row).await?;
        Ok(StoredRun {
            row: row.clone(),
            plan,
            instance,
            bookkeeping,
            calls,
            last_page: *last_page,
            unfolded,
        })
    }

    /// The pages after the last fold, which have no gaps. Most runs that are loaded again have one or two: reading them
    /// by key is far cheaper than a scan.
    async fn unfolded_pages(&self, partition: &Partition, row: &InstanceRow) -> Result<Vec<Row>, StoreError> {
        const READ_BY_KEY: u64 = 2;
        let mut pages = Vec::new();
        let mut last = row.folded_page;
        while last.since(row.folded_page) < READ_BY_KEY {
            last = last.next();
            match self.store.read(partition, &history_pages::key(row.run_id, last)).await? {
                Some(page) => pages.push(page),
                None => return Ok(pages),
            }
        }
        pages.extend(self.scan_all(partition, history_pages::after_page(row.run_id, last)).await?);
        Ok(pages)
    }

    /// The plan that the run was started with. If the stored definition has another hash, the run is unreadable.
    async fn plan(&self, row: &InstanceRow) -> Result<Arc<Plan>, LoadError> {
        let version = Version::parse(&row.version)
            .map_err(|_| LoadError::Unreadable(format!("invalid version {:?}", row.version)))?;
        let plan =
            self.definitions.load_plan(&row.definition_id, &version).await.map_err(|error| match error {
                DefinitionError::Store(error) => LoadError::from(error),
                other => LoadError::Unreadable(other.to_string()),
            })?;
        if plan.hash().0 != row.definition_hash {
            let reason = format!("definition hash mismatch for {} {version}", row.definition_id);
            return Err(LoadError::Unreadable(reason));
        }
        Ok(plan)
    }

    async fn scan_all(&self, partition: &Partition, scan: Scan) -> Result<Vec<Row>, StoreError> {
        let mut rows = Vec::new();
        let mut next = Some(scan);
        while let Some(scan) = next {
            let page = self.store.scan(partition, scan).await?;
            rows.extend(page.rows);
            next = page.next;
        }
        Ok(rows)
    }

    /// The numbers of an unreadable run's last page and last event, as far as pages can be read from the end: if the
    /// run is terminated, a page with that event follows.
    async fn find_last_page(
        &self,
        partition: &Partition,
        run: RunId,
    ) -> Result<Option<(PageNumber, Option<u64>)>, StoreError> {
        // Pages without events are rare, and never many in a row.
        const LOOK_BACK: usize = 8;
        let scan = |rows| history_pages::of_run(run).backwards().limit(rows);
        let mut page = self.store.scan(partition, scan(LOOK_BACK)).await;
        if matches!(page, Err(StoreError::Corrupt { .. })) {
            page = self.store.scan(partition, scan(1)).await;
        }
        let rows = match page {
            Ok(page) => page.rows,
            Err(StoreError::Corrupt { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some((_, last_page)) = rows.first().and_then(|row| history_pages::read_key(&row.key).ok()) else {
            return Ok(None);
        };
        // An unreadable page may have had events: earlier pages cannot tell the last one.
        let readable = rows.iter().map_while(|row| decode::<HistoryPageRow>(&row.value).ok());
        let last_event = readable.into_iter().find_map(|page| page.last_event());
        Ok(Some((last_page, last_event)))
    }
}

/// Separates the parts of a run into the workflow's, which make the instance, and the runtime's own entries.
fn assemble(all: &BTreeMap<Vec<u8>, Vec<u8>>) -> Result<(Instance, RunBookkeeping), LoadError> {
    let mut bookkeeping = RunBookkeeping::default();
    let mut workflow_parts = Vec::with_capacity(all.len());
    for (name, bytes) in all {
        if RunBookkeeping::owns_key(name) {
            if !bookkeeping.read_entry(name, bytes) {
                return Err(LoadError::Unreadable(format!("part {name:02x?} cannot be read")));
            }
        } else {
            let key = PartKey::from_bytes(name).map_err(|error| LoadError::Unreadable(error.reason))?;
            workflow_parts.push((key, bytes.as_slice()));
        }
    }
    let instance = Instance::load(workflow_parts).map_err(|error| LoadError::Unreadable(error.reason))?;
    Ok((instance, bookkeeping))
}

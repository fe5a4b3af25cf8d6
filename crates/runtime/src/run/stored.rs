//! Reading a run: row, parts, pages after the last fold, calls, plan. The same code loads a run to go on with it and shows it to people.
//!
//! What cannot be read is told with everything that could be, so that the run can be set aside, shown and ended. Nothing is guessed.

use std::collections::BTreeMap;
use std::sync::Arc;

use abide_store::rows::{Partition, PrivateRows, Row, Scan, StoreError};
use abide_store::tables::dispatches::{self, Dispatch};
use abide_store::tables::instances::{self, Instance as InstanceRow};
use abide_store::tables::pages::{self, Page};
use abide_store::tables::parts::{self, Part};
use abide_store::tables::{TableError, decode};
use abide_workflow::{Instance, InstanceId, PartKey, Plan};
use semver::Version;

use super::Book;
use crate::definitions::{DefinitionError, Definitions};

/// A run as it lies in the store.
#[derive(Debug)]
pub struct StoredRun {
    /// The row of its id.
    pub row: InstanceRow,
    /// What it runs.
    pub plan: Arc<Plan>,
    /// Its state.
    pub instance: Instance,
    /// What the runtime remembers of it.
    pub book: Book,
    /// Its calls that are not settled.
    pub calls: Vec<StoredCall>,
    /// The number of its last page.
    pub last_page: u64,
    /// Parts changed since the last fold: name → bytes, or `None` if it is gone.
    pub unfolded: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

/// A call that is not settled.
#[derive(Clone, Debug)]
pub struct StoredCall {
    /// The receiver's dedupe key.
    pub idempotency_key: [u8; 32],
    /// Its record.
    pub dispatch: Dispatch,
}

/// A run that is there and cannot be read.
#[derive(Debug)]
pub struct UnreadableRun {
    /// The row of its id, if that can be read.
    pub row: Option<InstanceRow>,
    /// The number of its last page, as far as pages can be read.
    pub last_page: u64,
    /// The number of its last event, or 0 if that cannot be read.
    pub last_event: u64,
    /// What is wrong.
    pub reason: String,
}

/// Reads runs of one store.
#[derive(Debug)]
pub struct RunReader<'r, S> {
    /// Where they lie.
    pub store: &'r S,
    /// What they run.
    pub definitions: &'r Definitions<S>,
}

impl<S> Clone for RunReader<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for RunReader<'_, S> {}

/// Why a run could not be read.
enum Failed {
    Store(StoreError),
    Unreadable(String),
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Corrupt { .. } => Self::Unreadable(error.to_string()),
            unavailable @ StoreError::Unavailable { .. } => Self::Store(unavailable),
        }
    }
}

impl From<TableError> for Failed {
    fn from(error: TableError) -> Self {
        Self::Unreadable(error.to_string())
    }
}

impl<S: PrivateRows> RunReader<'_, S> {
    /// The row of an id, or why it cannot be read. The outer error is the store's: ask again.
    pub async fn row(
        &self,
        partition: &Partition,
        id: &InstanceId,
    ) -> Result<Result<Option<InstanceRow>, UnreadableRun>, StoreError> {
        let unreadable = |reason| Ok(Err(UnreadableRun { row: None, last_page: 0, last_event: 0, reason }));
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

    /// The current run of an instance. The outer error is the store's: ask again.
    pub async fn run(
        &self,
        partition: &Partition,
        id: &InstanceId,
    ) -> Result<Result<Option<StoredRun>, UnreadableRun>, StoreError> {
        let row = match self.row(partition, id).await? {
            Ok(Some(row)) => row,
            Ok(None) => return Ok(Ok(None)),
            Err(unreadable) => return Ok(Err(unreadable)),
        };
        let mut last_page = row.folded_turn;
        match self.rest(partition, &row, &mut last_page).await {
            Ok(run) => Ok(Ok(Some(run))),
            Err(Failed::Store(error)) => Err(error),
            Err(Failed::Unreadable(reason)) => {
                let (last_page, last_event) =
                    self.last_page(partition, row.run).await?.unwrap_or((last_page, 0));
                Ok(Err(UnreadableRun { row: Some(row), last_page, last_event, reason }))
            }
        }
    }

    async fn rest(
        &self,
        partition: &Partition,
        row: &InstanceRow,
        last_page: &mut u64,
    ) -> Result<StoredRun, Failed> {
        let mut all: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        if row.folded_turn > 0 {
            for stored in self.all(partition, parts::of_run(row.run)).await? {
                let part: Part = decode(&stored.value)?;
                let (_, name) = parts::read_key(&stored.key, &part)?;
                all.insert(name, part.bytes);
            }
        }
        let mut unfolded = BTreeMap::new();
        for stored in self.pages(partition, row).await? {
            let (_, number) = pages::read_key(&stored.key)?;
            let page: Page = decode(&stored.value)?;
            *last_page = number;
            for (name, bytes) in page.changes {
                match &bytes {
                    Some(bytes) => all.insert(name.clone(), bytes.clone()),
                    None => all.remove(&name),
                };
                unfolded.insert(name, bytes);
            }
        }
        let (instance, book) = assemble(&all)?;
        let mut calls = Vec::new();
        if instance.has_calls() {
            for stored in self.all(partition, dispatches::of_run(row.run)).await? {
                let (_, idempotency_key) = dispatches::read_key(&stored.key)?;
                calls.push(StoredCall { idempotency_key, dispatch: decode(&stored.value)? });
            }
        }
        let plan = self.plan(row).await?;
        Ok(StoredRun { row: row.clone(), plan, instance, book, calls, last_page: *last_page, unfolded })
    }

    /// The pages after the last fold, which have no holes. Most runs that come back have one or two: asked for by name they cost far
    /// less than a walk.
    async fn pages(&self, partition: &Partition, row: &InstanceRow) -> Result<Vec<Row>, StoreError> {
        const BY_NAME: u64 = 2;
        let mut found = Vec::new();
        let mut last = row.folded_turn;
        while last < row.folded_turn + BY_NAME {
            last += 1;
            match self.store.read(partition, &pages::key(row.run, last)).await? {
                Some(page) => found.push(page),
                None => return Ok(found),
            }
        }
        found.extend(self.all(partition, pages::after(row.run, last)).await?);
        Ok(found)
    }

    async fn plan(&self, row: &InstanceRow) -> Result<Arc<Plan>, Failed> {
        let version = Version::parse(&row.version)
            .map_err(|_| Failed::Unreadable(format!("version {:?} is none", row.version)))?;
        let plan = self.definitions.plan(&row.definition, &version).await.map_err(|error| match error {
            DefinitionError::Store(error) => Failed::from(error),
            other => Failed::Unreadable(other.to_string()),
        })?;
        if plan.hash().0 != row.definition_hash {
            let reason = format!("it is pinned to another content of {} {version}", row.definition);
            return Err(Failed::Unreadable(reason));
        }
        Ok(plan)
    }

    async fn all(&self, partition: &Partition, scan: Scan) -> Result<Vec<Row>, StoreError> {
        let mut rows = Vec::new();
        let mut next = Some(scan);
        while let Some(scan) = next {
            let page = self.store.scan(partition, scan).await?;
            rows.extend(page.rows);
            next = page.next;
        }
        Ok(rows)
    }

    /// The numbers of a run's last page and last event, as far as pages can be read from the end.
    async fn last_page(&self, partition: &Partition, run: u64) -> Result<Option<(u64, u64)>, StoreError> {
        // Pages without events are seldom, and never many in a row.
        const LOOK_BACK: usize = 8;
        let scan = |rows| pages::of_run(run).backwards().at_most(rows);
        let mut page = self.store.scan(partition, scan(LOOK_BACK)).await;
        if matches!(page, Err(StoreError::Corrupt { .. })) {
            page = self.store.scan(partition, scan(1)).await;
        }
        let rows = match page {
            Ok(page) => page.rows,
            Err(StoreError::Corrupt { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some((_, last_page)) = rows.first().and_then(|row| pages::read_key(&row.key).ok()) else {
            return Ok(None);
        };
        // A page that cannot be read may have had events: nothing is known before it.
        let readable = rows.iter().map_while(|row| decode::<Page>(&row.value).ok());
        let last_event = readable.map(|page| page.last_event()).find(|last| *last > 0);
        Ok(Some((last_page, last_event.unwrap_or(0))))
    }
}

fn assemble(all: &BTreeMap<Vec<u8>, Vec<u8>>) -> Result<(Instance, Book), Failed> {
    let mut book = Book::default();
    let mut own = Vec::with_capacity(all.len());
    for (name, bytes) in all {
        if Book::owns(name) {
            if !book.read(name, bytes) {
                return Err(Failed::Unreadable(format!("part {name:02x?} cannot be read")));
            }
        } else {
            let key = PartKey::from_bytes(name).map_err(|error| Failed::Unreadable(error.reason))?;
            own.push((key, bytes.as_slice()));
        }
    }
    let instance = Instance::load(own).map_err(|error| Failed::Unreadable(error.reason))?;
    Ok((instance, book))
}

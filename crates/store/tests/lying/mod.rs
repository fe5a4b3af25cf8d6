//! A store with one planted fault: the reference store behind a wrapper that breaks one promise.

#![expect(clippy::unwrap_used, reason = "part of a test")]

use std::sync::{Arc, Mutex};

use abide_store::ChangeTick;
use abide_store::conformance::BackendUnderTest;
use abide_store::memory::MemoryStore;
use abide_store::public::{
    PublicKey, PublicPage, PublicPutError, PublicQuery, PublicQueryError, PublicRow, PublicTables,
    PublicWrite, TableSchema,
};
use abide_store::rows::{
    Batch, Capabilities, CommitOutcome, Key, Partition, Precondition, PrivateRows, StoreHealth, StoreLimits,
};
use abide_store::rows::{Row, Scan, ScanPage, StoreError};

/// One planted fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lie {
    None,
    /// The second half of a batch is not written.
    TornBatch,
    /// A read returns the row before its last change.
    StaleRead,
    /// Preconditions of rows are not checked.
    LostVersionCheck,
    /// The head's version is not checked.
    NoFence,
    /// Two rows of a page are swapped.
    ReorderedScan,
    /// The next page begins with the last row of this one.
    RepeatedRow,
    /// A commit of unknown outcome is applied again later.
    DoubleApplyOnUnknown,
    /// The rows of a rejected batch are written nevertheless.
    WritesWhatItRefuses,
    /// Limits are declared and not enforced.
    NoLimits,
    /// Waiters are not notified of changes.
    Silent,
    /// Old revisions replace new ones.
    LastWriterWins,
    /// Pages of a query continue by counting rows instead of by position.
    OffsetPages,
    /// Any token is accepted.
    TrustsTokens,
    /// Deletions also delete rows of a higher revision.
    DeletesAny,
    /// Deleted rows stay in the results of queries.
    GhostRows,
    /// The first row of a prefix comes from any partition.
    StrayPrefix,
    /// The first scan after a commit returns the last row of its batch as it was before.
    HalfVisible,
    /// Committed rows are gone when the store is reopened.
    Forgetful,
}

impl Lie {
    /// Every fault, and the promise whose checks must detect it.
    pub(crate) const ALL: [(Self, &'static str); 18] = [
        (Self::TornBatch, "atomicity"),
        (Self::StaleRead, "atomicity"),
        (Self::LostVersionCheck, "fencing"),
        (Self::NoFence, "fencing"),
        (Self::ReorderedScan, "scans and order"),
        (Self::RepeatedRow, "scans and order"),
        (Self::DoubleApplyOnUnknown, "unknown outcomes"),
        (Self::WritesWhatItRefuses, "atomicity"),
        (Self::NoLimits, "limits"),
        (Self::Silent, "notify"),
        (Self::LastWriterWins, "queries"),
        (Self::OffsetPages, "pages"),
        (Self::TrustsTokens, "pages"),
        (Self::DeletesAny, "queries"),
        (Self::GhostRows, "queries"),
        (Self::StrayPrefix, "queries"),
        (Self::HalfVisible, "atomicity"),
        (Self::Forgetful, "recovery"),
    ];
}

#[derive(Debug)]
pub(crate) struct Lying {
    lie: Lie,
    honest: MemoryStore,
    before: Mutex<Vec<(Partition, Row)>>,
    late: Mutex<Option<(Partition, Batch, u32)>>,
}

pub(crate) struct LyingSubject(Lie);

impl Lying {
    pub(crate) fn subject(lie: Lie) -> LyingSubject {
        LyingSubject(lie)
    }

    /// Commits with preconditions that always hold: those of the rows, of the head, or of both are replaced.
    fn force(&self, partition: &Partition, mut batch: Batch, rows: bool, head: bool) -> CommitOutcome {
        for write in batch.writes.iter_mut().filter(|_| rows) {
            write.precondition = match self.honest.read_now(partition, &write.key).unwrap() {
                Some(row) => Precondition::VersionIs(row.version),
                None => Precondition::Absent,
            };
        }
        if let Some(fence) = batch.fence.as_mut().filter(|_| head) {
            fence.expected_version =
                self.honest.read_now(partition, &fence.key).unwrap().map(|row| row.version);
        }
        self.honest.commit_now(partition, &batch)
    }

    fn remember(&self, partition: &Partition, batch: &Batch) {
        let mut before = self.before.lock().unwrap();
        for key in batch.writes.iter().map(|write| &write.key) {
            if let Ok(Some(row)) = self.honest.read_now(partition, key) {
                before.retain(|(of, old)| (of, &old.key) != (partition, key));
                before.push((partition.clone(), row));
            }
        }
    }
}

impl BackendUnderTest for LyingSubject {
    type Store = Lying;

    async fn fresh(&self) -> Lying {
        Lying {
            lie: self.0,
            honest: MemoryStore::default(),
            before: Mutex::default(),
            late: Mutex::default(),
        }
    }

    async fn reopen(&self, store: Lying) -> Option<Lying> {
        Some(if store.lie == Lie::Forgetful { self.fresh().await } else { store })
    }

    fn make_unknown(&self, store: &Lying, applied: bool) -> bool {
        store.honest.make_next_commit_unknown(applied);
        true
    }
}

impl PrivateRows for Lying {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.honest.capabilities();
        if self.lie == Lie::NoLimits {
            capabilities.limits = StoreLimits::AZURE;
        }
        capabilities
    }

    fn health(&self) -> StoreHealth {
        self.honest.health()
    }

    async fn read(&self, partition: &Partition, key: &Key) -> Result<Option<Row>, StoreError> {
        let row = self.honest.read_now(partition, key)?;
        if self.lie == Lie::StaleRead {
            let before = self.before.lock().unwrap();
            if let Some((_, old)) = before.iter().find(|(of, old)| (of, &old.key) == (partition, key)) {
                return Ok(Some(old.clone()));
            }
        }
        Ok(row)
    }

    async fn scan(&self, partition: &Partition, scan: Scan) -> Result<ScanPage, StoreError> {
        let mut page = self.honest.scan_now(partition, scan.clone())?;
        if self.lie == Lie::HalfVisible
            && let Some((of, old)) = self.before.lock().unwrap().pop()
            && of == *partition
            && let Some(row) = page.rows.iter_mut().find(|row| row.key == old.key)
        {
            *row = old;
        }
        if self.lie == Lie::ReorderedScan && page.rows.len() > 2 {
            page.rows.swap(1, 2);
        }
        if self.lie == Lie::RepeatedRow
            && let (Some(next), [.., before, _]) = (&mut page.next, page.rows.as_slice())
        {
            *next = scan.resume_after(before.key.clone());
        }
        Ok(page)
    }

    async fn commit(&self, partition: &Partition, batch: impl Into<Arc<Batch>> + Send) -> CommitOutcome {
        let mut batch = Arc::unwrap_or_clone(batch.into());
        let late = self.late.lock().unwrap().take();
        if let Some((of, batch, wait)) = late {
            if wait == 0 {
                self.force(&of, batch, true, true);
            } else {
                *self.late.lock().unwrap() = Some((of, batch, wait - 1));
            }
        }
        self.remember(partition, &batch);
        match self.lie {
            Lie::TornBatch if batch.writes.len() > 1 => {
                let whole = batch.writes.len();
                batch.writes.truncate(whole / 2);
                match self.honest.commit_now(partition, &batch) {
                    CommitOutcome::Committed(mut receipt) => {
                        let version = receipt.row_versions.first().cloned().flatten();
                        receipt.row_versions.resize(whole, version);
                        CommitOutcome::Committed(receipt)
                    }
                    other => other,
                }
            }
            Lie::LostVersionCheck => self.force(partition, batch, true, false),
            Lie::NoFence => self.force(partition, batch, false, true),
            Lie::WritesWhatItRefuses => match self.honest.commit_now(partition, &batch) {
                rejected @ (CommitOutcome::Conflict(_) | CommitOutcome::Fenced) => {
                    self.force(partition, batch, true, true);
                    rejected
                }
                other => other,
            },
            Lie::DoubleApplyOnUnknown => match self.honest.commit_now(partition, &batch) {
                unknown @ CommitOutcome::Unknown { .. } => {
                    *self.late.lock().unwrap() = Some((partition.clone(), batch, 1));
                    unknown
                }
                other => other,
            },
            _ => self.honest.commit_now(partition, &batch),
        }
    }

    async fn wait_for_change(&self, partition: &Partition, seen: ChangeTick) -> ChangeTick {
        if self.lie == Lie::Silent && seen != ChangeTick::START {
            // Like a backend that only guesses at intervals and sees no change: it wakes with the tick it was given.
            return seen;
        }
        self.honest.wait_for_change(partition, seen).await
    }
}

impl PublicTables for Lying {
    async fn put(
        &self,
        table: &'static TableSchema,
        mut writes: Vec<PublicWrite>,
    ) -> Result<(), PublicPutError> {
        if self.lie == Lie::LastWriterWins {
            for write in &mut writes {
                if let PublicWrite::Put(row) = write {
                    row.revision = 1;
                }
            }
        }
        if self.lie == Lie::DeletesAny {
            for write in &mut writes {
                if let PublicWrite::Delete { revision, .. } = write {
                    *revision = u64::MAX;
                }
            }
        }
        if self.lie == Lie::GhostRows {
            writes.retain(|write| matches!(write, PublicWrite::Put(_)));
        }
        self.honest.put(table, writes).await
    }

    async fn get(
        &self,
        table: &'static TableSchema,
        key: &PublicKey,
    ) -> Result<Option<PublicRow>, StoreError> {
        self.honest.get(table, key).await
    }

    async fn get_first(
        &self,
        table: &'static TableSchema,
        prefix: &PublicKey,
    ) -> Result<Option<PublicRow>, StoreError> {
        let first = self.honest.get_first(table, prefix).await?;
        if self.lie == Lie::StrayPrefix && first.is_none() {
            let all = self.honest.query(table, &PublicQuery::default()).await;
            let rows = all.map(|page| page.rows).unwrap_or_default();
            return Ok(rows.into_iter().find(|row| row.key.row.starts_with(&prefix.row)));
        }
        Ok(first)
    }

    async fn query(
        &self,
        table: &'static TableSchema,
        query: &PublicQuery,
    ) -> Result<PublicPage, PublicQueryError> {
        match self.lie {
            Lie::OffsetPages => {
                let skip: usize = query
                    .continuation
                    .as_deref()
                    .map_or(Ok(0), str::parse)
                    .map_err(|_| PublicQueryError::InvalidContinuation)?;
                let all = self
                    .honest
                    .query(table, &PublicQuery { limit: 1_000, continuation: None, ..query.clone() })
                    .await?;
                let rows: Vec<PublicRow> = all.rows.iter().skip(skip).take(query.limit).cloned().collect();
                let end = skip + rows.len();
                Ok(PublicPage { rows, continuation: (end < all.rows.len()).then(|| end.to_string()) })
            }
            Lie::TrustsTokens => match self.honest.query(table, query).await {
                Err(PublicQueryError::InvalidContinuation) => {
                    self.honest.query(table, &query.clone().continue_from(None)).await
                }
                answer => answer,
            },
            _ => self.honest.query(table, query).await,
        }
    }
}

//! The reference store: everything in one ordered map, simple enough to be verified by reading.
//!
//! Every backend is compared with it. It can imitate Azure Tables ([`BackendProfile::AZURE`]) and inject the outcomes
//! Conflict, Unavailable and Unknown from a seed ([`FaultRates`]). The simulator runs on it. All calls return at once;
//! the store has no clock, no thread and no randomness of its own.

mod damage;
mod fault_injection;
mod public;
mod rows;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use fault_injection::{FaultRates, SeededRng};

use crate::change_notify::{ChangeNotifier, ChangeTick};
use crate::public::{
    PublicKey, PublicPage, PublicPutError, PublicQuery, PublicQueryError, PublicRow, PublicTables,
    PublicWrite,
};
use crate::public::{TableSchema, TokenKey};
use crate::rows::{
    Batch, Capabilities, CommitOutcome, Durability, Key, Partition, PrivateRows, StoreHealth, StoreLimits,
};
use crate::rows::{Row, Scan, ScanPage, StoreError};

/// The behaviour of the store where backends differ.
#[derive(Clone, Copy, Debug)]
pub struct BackendProfile {
    pub limits: StoreLimits,
    /// Versions look like an Azure ETag, without order, instead of a counter.
    pub etags: bool,
    /// The faults to inject, if any.
    pub faults: Option<FaultRates>,
}

impl BackendProfile {
    /// No limits beyond those that bound memory, no faults.
    pub const PLAIN: Self = Self { limits: StoreLimits::LOCAL, etags: false, faults: None };
    /// Like Azure Tables: 100 rows and 4 MiB in a commit, opaque versions.
    pub const AZURE: Self = Self { limits: StoreLimits::AZURE, etags: true, faults: None };
}

#[derive(Debug)]
pub struct MemoryStore {
    profile: BackendProfile,
    token_key: TokenKey,
    state: Mutex<MemoryState>,
    change_notifier: ChangeNotifier,
}

#[derive(Debug)]
struct MemoryState {
    rows: rows::MemoryRows,
    damaged_ranges: damage::DamagedRanges,
    tables: public::MemoryPublicTables,
    rng: SeededRng,
    next_fault: Option<fault_injection::CommitFault>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new(BackendProfile::PLAIN)
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new(profile: BackendProfile) -> Self {
        let rng = SeededRng::new(profile.faults.map_or(0, |faults| faults.seed));
        let mut secret = [0; 64];
        secret.iter_mut().zip(0..).for_each(|(byte, index)| *byte = index);
        Self {
            profile,
            token_key: TokenKey::new(secret),
            state: Mutex::new(MemoryState {
                rows: rows::MemoryRows::default(),
                damaged_ranges: damage::DamagedRanges::default(),
                tables: public::MemoryPublicTables::default(),
                rng,
                next_fault: None,
            }),
            change_notifier: ChangeNotifier::default(),
        }
    }

    /// Makes the next commit return `Unknown`, with the batch applied or not.
    pub fn make_next_commit_unknown(&self, applied: bool) {
        let fault = if applied {
            fault_injection::CommitFault::UnknownApplied
        } else {
            fault_injection::CommitFault::UnknownDropped
        };
        self.lock().next_fault = Some(fault);
    }

    /// Damages all keys from `from` to `until`, both included, as a broken block of a file does: they cannot be read,
    /// even if they are written later.
    pub fn inject_damage(&self, partition: &Partition, from: Key, until: Key) {
        self.lock().damaged_ranges.add(partition, from..=until);
    }

    /// Like [`PrivateRows::read`], without a future.
    pub fn read_now(&self, partition: &Partition, key: &Key) -> Result<Option<Row>, StoreError> {
        let mut state = self.lock();
        self.inject_read_fault(&mut state)?;
        state.damaged_ranges.check_read(partition, key)?;
        Ok(state.rows.read(partition, key, self.profile.etags))
    }

    /// Like [`PrivateRows::scan`], without a future.
    pub fn scan_now(&self, partition: &Partition, scan: Scan) -> Result<ScanPage, StoreError> {
        let mut state = self.lock();
        self.inject_read_fault(&mut state)?;
        let page = state.rows.scan(partition, scan.clone(), self.profile.etags);
        state.damaged_ranges.check_scan(partition, scan, &page)?;
        Ok(page)
    }

    /// Like [`PrivateRows::commit`], without a future.
    pub fn commit_now(&self, partition: &Partition, batch: &Batch) -> CommitOutcome {
        if let Err(error) = batch.check(&self.profile.limits) {
            return CommitOutcome::InvalidBatch(error);
        }
        let mut state = self.lock();
        let seeded_fault = |state: &mut MemoryState| self.profile.faults?.draw_commit_fault(&mut state.rng);
        let fault = state.next_fault.take().or_else(|| seeded_fault(&mut state));
        let outcome = match fault {
            None => state.rows.commit(partition, batch, self.profile.etags),
            Some(fault) => fault.inject(batch, |batch| {
                state.rows.commit(partition, batch, self.profile.etags);
            }),
        };
        drop(state);
        if matches!(outcome, CommitOutcome::Committed(_) | CommitOutcome::Unknown { .. }) {
            self.change_notifier.notify(partition);
        }
        outcome
    }

    fn inject_read_fault(&self, state: &mut MemoryState) -> Result<(), StoreError> {
        match self.profile.faults {
            Some(faults) if faults.draw_read_fault(&mut state.rng) => {
                Err(StoreError::Unavailable { reason: "injected fault".to_owned() })
            }
            _ => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, MemoryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PrivateRows for MemoryStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities { limits: self.profile.limits, durability: Durability::Memory, shared: false }
    }

    fn health(&self) -> StoreHealth {
        StoreHealth::Usable
    }

    async fn read(&self, partition: &Partition, key: &Key) -> Result<Option<Row>, StoreError> {
        self.read_now(partition, key)
    }

    async fn scan(&self, partition: &Partition, scan: Scan) -> Result<ScanPage, StoreError> {
        self.scan_now(partition, scan)
    }

    async fn commit(&self, partition: &Partition, batch: impl Into<Arc<Batch>> + Send) -> CommitOutcome {
        self.commit_now(partition, &batch.into())
    }

    async fn wait_for_change(&self, partition: &Partition, seen: ChangeTick) -> ChangeTick {
        self.change_notifier.wait_for_change(partition, seen).await
    }
}

impl PublicTables for MemoryStore {
    async fn put(&self, table: &'static TableSchema, writes: Vec<PublicWrite>) -> Result<(), PublicPutError> {
        PublicWrite::check_all(&writes, table)?;
        let mut state = self.lock();
        self.inject_read_fault(&mut state)?;
        state.tables.put(table, writes);
        Ok(())
    }

    async fn get(
        &self,
        table: &'static TableSchema,
        key: &PublicKey,
    ) -> Result<Option<PublicRow>, StoreError> {
        let mut state = self.lock();
        self.inject_read_fault(&mut state)?;
        Ok(state.tables.get(table, key))
    }

    async fn get_first(
        &self,
        table: &'static TableSchema,
        prefix: &PublicKey,
    ) -> Result<Option<PublicRow>, StoreError> {
        let mut state = self.lock();
        self.inject_read_fault(&mut state)?;
        Ok(state.tables.get_first(table, prefix))
    }

    async fn query(
        &self,
        table: &'static TableSchema,
        query: &PublicQuery,
    ) -> Result<PublicPage, PublicQueryError> {
        query.check(table)?;
        let after = self.token_key.verify(table, query)?;
        let mut state = self.lock();
        self.inject_read_fault(&mut state)?;
        Ok(state.tables.query(table, query, after.as_ref(), &self.token_key))
    }
}

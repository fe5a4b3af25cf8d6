//! The reference store: everything in one ordered map, so plain that it is right by reading.
//!
//! Every backend is compared with it. It can be told to behave like Azure Tables ([`Personality::AZURE`]) and to answer
//! Conflict, Unavailable and Unknown by seed ([`Faults`]), which is what the simulator runs on. All calls answer at once; it
//! has no clock, no thread and no randomness of its own.

mod damage;
mod faults;
mod public;
mod rows;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use faults::{Dice, Faults};

use crate::notice::{Notices, Tick};
use crate::public::{Page, PublicKey, PublicRow, PublicTables, PublicWrite, PutError, Query, QueryError};
use crate::public::{TableSchema, TokenKey};
use crate::rows::{
    Batch, Capabilities, CommitOutcome, Durability, Health, Key, Limits, Partition, PrivateRows,
};
use crate::rows::{Row, Scan, ScanPage, StoreError};

/// How the store behaves where backends differ.
#[derive(Clone, Copy, Debug)]
pub struct Personality {
    /// What fits.
    pub limits: Limits,
    /// Versions that look like an Azure ETag, without order, instead of a counter.
    pub etags: bool,
    /// What it answers out of the ordinary.
    pub faults: Option<Faults>,
}

impl Personality {
    /// No limits beyond those that bound memory, no faults.
    pub const PLAIN: Self = Self { limits: Limits::LOCAL, etags: false, faults: None };
    /// As Azure Tables: 100 rows and 4 MiB in a commit, opaque versions.
    pub const AZURE: Self = Self { limits: Limits::AZURE, etags: true, faults: None };
}

/// The reference store.
#[derive(Debug)]
pub struct MemoryStore {
    personality: Personality,
    token_key: TokenKey,
    state: Mutex<State>,
    notices: Notices,
}

#[derive(Debug)]
struct State {
    rows: rows::Rows,
    damaged: damage::Damaged,
    tables: public::Tables,
    dice: Dice,
    ordered: Option<faults::Fault>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new(Personality::PLAIN)
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new(personality: Personality) -> Self {
        let dice = Dice::new(personality.faults.map_or(0, |faults| faults.seed));
        let mut secret = [0; 64];
        secret.iter_mut().zip(0..).for_each(|(byte, place)| *byte = place);
        Self {
            personality,
            token_key: TokenKey::new(secret),
            state: Mutex::new(State {
                rows: rows::Rows::default(),
                damaged: damage::Damaged::default(),
                tables: public::Tables::default(),
                dice,
                ordered: None,
            }),
            notices: Notices::default(),
        }
    }

    /// Makes the next commit answer `Unknown`, having applied it or not.
    pub fn make_next_commit_unknown(&self, applied: bool) {
        let fault = if applied { faults::Fault::UnknownApplied } else { faults::Fault::UnknownDropped };
        self.lock().ordered = Some(fault);
    }

    /// Damages all keys from the one to the other, as a broken block of a file does: they cannot be read, whatever is written there later.
    pub fn damage(&self, partition: &Partition, from: Key, until: Key) {
        self.lock().damaged.add(partition, from..=until);
    }

    /// As [`PrivateRows::read`], without a future.
    pub fn read_now(&self, partition: &Partition, key: &Key) -> Result<Option<Row>, StoreError> {
        let mut state = self.lock();
        self.refuse_by_dice(&mut state)?;
        state.damaged.check_read(partition, key)?;
        Ok(state.rows.read(partition, key, self.personality.etags))
    }

    /// As [`PrivateRows::scan`], without a future.
    pub fn scan_now(&self, partition: &Partition, scan: Scan) -> Result<ScanPage, StoreError> {
        let mut state = self.lock();
        self.refuse_by_dice(&mut state)?;
        let page = state.rows.scan(partition, scan.clone(), self.personality.etags);
        state.damaged.check_scan(partition, scan, &page)?;
        Ok(page)
    }

    /// As [`PrivateRows::commit`], without a future.
    pub fn commit_now(&self, partition: &Partition, batch: &Batch) -> CommitOutcome {
        if let Err(error) = batch.check(&self.personality.limits) {
            return CommitOutcome::Refused(error);
        }
        let mut state = self.lock();
        let by_seed = |state: &mut State| self.personality.faults?.of_commit(&mut state.dice);
        let fault = state.ordered.take().or_else(|| by_seed(&mut state));
        let outcome = match fault {
            None => state.rows.commit(partition, batch, self.personality.etags),
            Some(fault) => fault.play(batch, |batch| {
                state.rows.commit(partition, batch, self.personality.etags);
            }),
        };
        drop(state);
        if matches!(outcome, CommitOutcome::Committed(_) | CommitOutcome::Unknown { .. }) {
            self.notices.announce(partition);
        }
        outcome
    }

    fn refuse_by_dice(&self, state: &mut State) -> Result<(), StoreError> {
        match self.personality.faults {
            Some(faults) if faults.hits_read(&mut state.dice) => {
                Err(StoreError::Unavailable { reason: "by seed".to_owned() })
            }
            _ => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PrivateRows for MemoryStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities { limits: self.personality.limits, durability: Durability::Memory, shared: false }
    }

    fn health(&self) -> Health {
        Health::Usable
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

    async fn changed(&self, partition: &Partition, seen: Tick) -> Tick {
        self.notices.changed(partition, seen).await
    }
}

impl PublicTables for MemoryStore {
    async fn put(&self, table: &'static TableSchema, writes: Vec<PublicWrite>) -> Result<(), PutError> {
        PublicWrite::check_all(&writes, table)?;
        let mut state = self.lock();
        self.refuse_by_dice(&mut state)?;
        state.tables.put(table, writes);
        Ok(())
    }

    async fn get(
        &self,
        table: &'static TableSchema,
        key: &PublicKey,
    ) -> Result<Option<PublicRow>, StoreError> {
        let mut state = self.lock();
        self.refuse_by_dice(&mut state)?;
        Ok(state.tables.get(table, key))
    }

    async fn query(&self, table: &'static TableSchema, query: &Query) -> Result<Page, QueryError> {
        query.check(table)?;
        let after = self.token_key.open(table, query)?;
        let mut state = self.lock();
        self.refuse_by_dice(&mut state)?;
        Ok(state.tables.query(table, query, after.as_ref(), &self.token_key))
    }
}

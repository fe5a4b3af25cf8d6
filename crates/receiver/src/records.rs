//! The durable memory of a receiver: who is at which piece of work, and what was answered.
//!
//! ```text
//!            claim                finish
//!  nothing ────────► claimed ───────────────► finished ──► swept
//!     ▲                 │ ▲ │ void: claimed anew
//!     └─────────────────┘ └─┘
//!           release
//! ```
//! Every change names the version it was decided on, so whatever happens at the same time, one wins and the others look again. One process
//! owns the rows: a claim of another incarnation is void, and so is one that has ended or that nobody here is at. Knows nothing of handlers
//! and wires.

use std::sync::Arc;
use std::time::Duration;

use abide_dispatch::Status;
use abide_store::rows::{Batch, BatchError, CommitOutcome, Key, Partition, PrivateRows, StoreError, Version};
use bytes::Bytes;

use crate::effects::Effect;
use crate::rows::{self, Answer, Claim, Record, Work};
use crate::running::{Running, Slot};

/// How often a commit is tried that surely was not applied, and the first wait between.
const TRIES_MAX: u32 = 5;
const WAIT_MS: u64 = 20;

/// The records of one receiver.
#[derive(Debug)]
pub(crate) struct Records<S> {
    pub(crate) store: Arc<S>,
    pub(crate) partition: Partition,
    incarnation: u64,
    running: Running,
}

/// What is known of a piece of work.
#[derive(Debug)]
pub(crate) enum Found {
    /// It may be done.
    Free(Option<Void>),
    /// Somebody is at it.
    InProgress,
    /// It has its answer.
    Finished(Result<Bytes, Status>),
}

/// A claim that holds no more.
#[derive(Debug)]
pub(crate) struct Void {
    version: Version,
    expiry_at: i64,
}

/// A claim of this process.
#[derive(Debug)]
pub(crate) struct Claimed {
    work: Work,
    version: Version,
    expiry: Key,
    expiry_version: Option<Version>,
    /// As long as this is there, somebody is at it.
    slot: Slot,
}

/// When what happens to a claim.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// It ends.
    pub(crate) expires_at: i64,
    /// Its row may go, unless it is still needed.
    pub(crate) expiry_at: i64,
}

/// The store cannot say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Trouble {
    /// Not now.
    Unavailable(String),
    /// Never: the record is damaged.
    Damaged(String),
}

/// What came of writing down an end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Settled {
    /// Durable, with all effects.
    Recorded,
    /// Nothing was written: somebody else has the work.
    ClaimLost,
    /// Nothing was written: rows of the handler were not as it expected.
    EffectConflict,
    /// Nothing was written, and never will be.
    Refused(BatchError),
    /// Nobody knows; what the store has decides the next time.
    Unsure(String),
}

impl<S: PrivateRows> Records<S> {
    /// Begins an incarnation: its number is durable before anything is claimed.
    pub(crate) async fn open(store: Arc<S>, partition: Partition) -> Result<Self, Trouble> {
        let key = rows::incarnation();
        let before = store.read(&partition, &key).await?;
        let batch = Batch::checked();
        let (incarnation, batch) = match before {
            None => (1, batch.create(key, rows::encode(&1_u64))),
            Some(row) => {
                let damaged = || Trouble::Damaged("the incarnation cannot be read".to_owned());
                let next = rows::decode::<u64>(&row.value).ok_or_else(damaged)?.saturating_add(1);
                (next, batch.replace(key, row.version, rows::encode(&next)))
            }
        };
        match store.commit(&partition, batch).await {
            CommitOutcome::Committed(_) => {
                Ok(Self { store, partition, incarnation, running: Running::default() })
            }
            other => Err(Trouble::Unavailable(format!("the incarnation could not be raised: {other:?}"))),
        }
    }

    /// What is known of a piece of work now.
    pub(crate) async fn look(&self, work: Work, now: i64) -> Result<Found, Trouble> {
        let Some(row) = self.store.read(&self.partition, &rows::record(work)).await? else {
            return Ok(Found::Free(None));
        };
        let damaged = || Trouble::Damaged("the record is of another format".to_owned());
        Ok(match rows::decode(&row.value).ok_or_else(damaged)? {
            Record::Finished { answer, .. } => Found::Finished(answer.given()),
            Record::Claimed(claim) if self.holds(&claim, now) => Found::InProgress,
            Record::Claimed(claim) => {
                Found::Free(Some(Void { version: row.version, expiry_at: claim.expiry_at }))
            }
        })
    }

    /// Whether somebody is at it: the claim is of this incarnation, has not ended, and has not been left behind.
    pub(crate) fn holds(&self, claim: &Claim, now: i64) -> bool {
        claim.incarnation == self.incarnation && now < claim.expires_at && self.running.has(claim.serial)
    }

    /// Claims a piece of work that was found free. None if it is not any more: look again.
    pub(crate) async fn claim(
        &self,
        work: Work,
        void: Option<Void>,
        terms: Terms,
    ) -> Result<Option<Claimed>, Trouble> {
        let slot = self.running.begin();
        let expiry_at = void.as_ref().map_or(terms.expiry_at, |void| void.expiry_at);
        let expiry = rows::expiry(expiry_at, work);
        let claim = Claim {
            incarnation: self.incarnation,
            serial: slot.serial,
            expires_at: terms.expires_at,
            expiry_at,
        };
        let (key, value) = (rows::record(work), rows::encode(&Record::Claimed(claim)));
        let (mut batch, mut expiry_version) = match void {
            None => (Batch::checked().create(key, value), None),
            Some(void) => {
                let row = self.store.read(&self.partition, &expiry).await?;
                (Batch::checked().replace(key, void.version, value), row.map(|row| row.version))
            }
        };
        if expiry_version.is_none() {
            batch = batch.create(expiry.clone(), rows::encode(&()));
        }
        match self.store.commit(&self.partition, batch).await {
            CommitOutcome::Committed(receipt) => {
                let mut versions = receipt.rows.into_iter();
                let Some(version) = versions.next().flatten() else {
                    return Err(Trouble::Unavailable("the store gave no version".to_owned()));
                };
                expiry_version = versions.next().flatten().or(expiry_version);
                Ok(Some(Claimed { work, version, expiry, expiry_version, slot }))
            }
            CommitOutcome::Conflict(_) => Ok(None),
            other => Err(Trouble::Unavailable(format!("{other:?}"))),
        }
    }

    /// Writes down the answer and what it goes with, in one commit.
    pub(crate) async fn finish(
        &self,
        claimed: &Claimed,
        answer: &Result<Bytes, Status>,
        effects: Vec<Effect>,
        now: i64,
    ) -> Settled {
        let record = Record::Finished { at: now, answer: Answer::of(answer) };
        let key = rows::record(claimed.work);
        let batch = Batch::checked().replace(key, claimed.version.clone(), rows::encode(&record));
        self.settle(claimed, batch, effects).await
    }

    /// Gives up a claim, so that the next attempt runs.
    pub(crate) async fn release(&self, claimed: &Claimed, effects: Vec<Effect>) -> Settled {
        let mut batch = Batch::checked().delete_at(rows::record(claimed.work), claimed.version.clone());
        if let Some(version) = &claimed.expiry_version {
            batch = batch.delete_at(claimed.expiry.clone(), version.clone());
        }
        self.settle(claimed, batch, effects).await
    }

    async fn settle(&self, claimed: &Claimed, batch: Batch, effects: Vec<Effect>) -> Settled {
        debug_assert!(self.running.has(claimed.slot.serial), "a claim is settled while it is held");
        let batch = Arc::new(effects.into_iter().fold(batch, |batch, effect| effect.add_to(batch)));
        let mut tries = 0;
        loop {
            match self.store.commit(&self.partition, Arc::clone(&batch)).await {
                CommitOutcome::Committed(_) => return Settled::Recorded,
                CommitOutcome::Conflict(keys) if keys.contains(&rows::record(claimed.work)) => {
                    return Settled::ClaimLost;
                }
                CommitOutcome::Conflict(_) | CommitOutcome::Fenced => return Settled::EffectConflict,
                CommitOutcome::Refused(error) => return Settled::Refused(error),
                CommitOutcome::Unknown { reason } => return Settled::Unsure(reason),
                CommitOutcome::Unavailable { reason } if tries + 1 == TRIES_MAX => {
                    return Settled::Unsure(reason);
                }
                CommitOutcome::Unavailable { .. } => {}
            }
            tokio::time::sleep(Duration::from_millis(WAIT_MS << tries)).await;
            tries += 1;
        }
    }
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable { reason } => Self::Unavailable(reason),
            StoreError::Corrupt { .. } => Self::Damaged(error.to_string()),
        }
    }
}

//! The durable idempotency records of a receiver: which calls are claimed, and the results of finished calls.
//!
//! ```text
//!            claim                finish
//!  nothing ────────► claimed ───────────────► finished ──► swept
//!     ▲                 │ ▲ │ stale: claimed again
//!     └─────────────────┘ └─┘
//!           release
//! ```
//! Every change names the row version it was decided on. Of concurrent changes one wins, and the others read again. One
//! process owns the rows. A claim is stale if it is of another incarnation, has expired, or has no running handler in
//! this process. This file knows nothing of handlers and wires.

use std::sync::Arc;
use std::time::Duration;

use abide_dispatch::RpcStatus;
use abide_ids::Timestamp;
use abide_store::rows::{
    Batch, BatchError, CommitOutcome, Key, Partition, PrivateRows, RowVersion, StoreError,
};
use bytes::Bytes;

use crate::active_claims::{ActiveClaim, ActiveClaims};
use crate::handler_rows::HandlerWrite;
use crate::rows::{self, Claim, IdempotencyRecord, StoredResult, WorkKey};

/// How often a commit is tried that was certainly not applied.
const COMMIT_TRIES_MAX: u32 = 5;
/// The first delay between tries; it doubles each time.
const COMMIT_RETRY_DELAY_MS: u64 = 20;

/// The idempotency records of one receiver.
#[derive(Debug)]
pub(crate) struct IdempotencyRecords<S> {
    pub(crate) store: Arc<S>,
    pub(crate) partition: Partition,
    incarnation: u64,
    active_claims: ActiveClaims,
}

/// The state of a call.
#[derive(Debug)]
pub(crate) enum WorkState {
    /// It may be claimed, in place of a stale claim if there is one.
    Free(Option<StaleClaim>),
    /// An attempt holds its claim.
    InProgress,
    /// Its result is recorded.
    Finished(Result<Bytes, RpcStatus>),
}

/// A stored claim that is no longer held.
#[derive(Debug)]
pub(crate) struct StaleClaim {
    version: RowVersion,
    expiry_row_at: Timestamp,
}

/// A claim that this process holds.
#[derive(Debug)]
pub(crate) struct HeldClaim {
    work_key: WorkKey,
    version: RowVersion,
    expiry_row_key: Key,
    expiry_version: Option<RowVersion>,
    /// The claim counts as held until this is dropped.
    active_claim: ActiveClaim,
}

/// The times of a claim.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClaimTerms {
    pub(crate) claim_expires_at: Timestamp,
    /// When the sweep first checks whether the record may be deleted.
    pub(crate) expiry_row_at: Timestamp,
}

/// Why the state of a call cannot be read or changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum RecordError {
    /// Temporary: the store is unavailable.
    Unavailable(String),
    /// Permanent: the record is damaged.
    Damaged(String),
}

/// The outcome of finishing or releasing a claim.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SettleOutcome {
    /// Durable, with all writes of the handler.
    Recorded,
    /// Nothing was written: another attempt has claimed the call.
    ClaimLost,
    /// Nothing was written: the handler's rows did not have the versions it expected.
    WriteConflict,
    /// Nothing was written, and the store will never accept this batch.
    Refused(BatchError),
    /// Possibly written; the next attempt finds out from the store.
    Unknown(String),
}

impl<S: PrivateRows> IdempotencyRecords<S> {
    /// Begins a new incarnation. Its number is durable before anything is claimed.
    pub(crate) async fn open(store: Arc<S>, partition: Partition) -> Result<Self, RecordError> {
        let key = rows::incarnation_key();
        let before = store.read(&partition, &key).await?;
        let batch = Batch::checked();
        let (incarnation, batch) = match before {
            None => (1, batch.create(key, rows::encode(&1_u64))),
            Some(row) => {
                let damaged = || RecordError::Damaged("the incarnation row cannot be decoded".to_owned());
                let next = rows::decode::<u64>(&row.value).ok_or_else(damaged)?.saturating_add(1);
                (next, batch.replace(key, row.version, rows::encode(&next)))
            }
        };
        match store.commit(&partition, batch).await {
            CommitOutcome::Committed(_) => {
                Ok(Self { store, partition, incarnation, active_claims: ActiveClaims::default() })
            }
            other => {
                Err(RecordError::Unavailable(format!("the incarnation could not be incremented: {other:?}")))
            }
        }
    }

    /// Reads the state of a call.
    pub(crate) async fn lookup(&self, work: WorkKey, now: Timestamp) -> Result<WorkState, RecordError> {
        let Some(row) = self.store.read(&self.partition, &rows::record_key(work)).await? else {
            return Ok(WorkState::Free(None));
        };
        let damaged = || RecordError::Damaged("the record cannot be decoded".to_owned());
        Ok(match rows::decode(&row.value).ok_or_else(damaged)? {
            IdempotencyRecord::Finished { result, .. } => WorkState::Finished(result.into_result()),
            IdempotencyRecord::Claimed(claim) if self.is_held(&claim, now) => WorkState::InProgress,
            IdempotencyRecord::Claimed(claim) => {
                WorkState::Free(Some(StaleClaim { version: row.version, expiry_row_at: claim.expiry_row_at }))
            }
        })
    }

    /// True if the claim is of this incarnation, has not expired, and its handler is running.
    pub(crate) fn is_held(&self, claim: &Claim, now: Timestamp) -> bool {
        claim.incarnation == self.incarnation
            && now < claim.expires_at
            && self.active_claims.contains(claim.serial)
    }

    /// Claims a call that was found free. `None` if another attempt was faster: look it up again.
    pub(crate) async fn claim(
        &self,
        work: WorkKey,
        stale: Option<StaleClaim>,
        terms: ClaimTerms,
    ) -> Result<Option<HeldClaim>, RecordError> {
        let active_claim = self.active_claims.register();
        let expiry_row_at = stale.as_ref().map_or(terms.expiry_row_at, |stale| stale.expiry_row_at);
        let expiry_row_key = rows::expiry_key(expiry_row_at, work);
        let claim = Claim {
            incarnation: self.incarnation,
            serial: active_claim.serial,
            expires_at: terms.claim_expires_at,
            expiry_row_at,
        };
        let key = rows::record_key(work);
        let value = rows::encode(&IdempotencyRecord::Claimed(claim));
        let (mut batch, mut expiry_version) = match stale {
            None => (Batch::checked().create(key, value), None),
            Some(stale) => {
                let row = self.store.read(&self.partition, &expiry_row_key).await?;
                (Batch::checked().replace(key, stale.version, value), row.map(|row| row.version))
            }
        };
        if expiry_version.is_none() {
            batch = batch.create(expiry_row_key.clone(), rows::encode(&()));
        }
        match self.store.commit(&self.partition, batch).await {
            CommitOutcome::Committed(receipt) => {
                let mut versions = receipt.row_versions.into_iter();
                let Some(version) = versions.next().flatten() else {
                    return Err(RecordError::Unavailable("the store returned no row version".to_owned()));
                };
                expiry_version = versions.next().flatten().or(expiry_version);
                Ok(Some(HeldClaim { work_key: work, version, expiry_row_key, expiry_version, active_claim }))
            }
            CommitOutcome::Conflict(_) => Ok(None),
            other => Err(RecordError::Unavailable(format!("{other:?}"))),
        }
    }

    /// Records the result with the handler's writes, in one commit.
    pub(crate) async fn finish(
        &self,
        claim: &HeldClaim,
        result: &Result<Bytes, RpcStatus>,
        writes: Vec<HandlerWrite>,
        now: Timestamp,
    ) -> SettleOutcome {
        let record =
            IdempotencyRecord::Finished { finished_at: now, result: StoredResult::from_result(result) };
        let key = rows::record_key(claim.work_key);
        let batch = Batch::checked().replace(key, claim.version.clone(), rows::encode(&record));
        self.settle(claim, batch, writes).await
    }

    /// Releases a claim, so that the next attempt runs.
    pub(crate) async fn release(&self, claim: &HeldClaim, writes: Vec<HandlerWrite>) -> SettleOutcome {
        let mut batch =
            Batch::checked().delete_if_at(rows::record_key(claim.work_key), claim.version.clone());
        if let Some(version) = &claim.expiry_version {
            batch = batch.delete_if_at(claim.expiry_row_key.clone(), version.clone());
        }
        self.settle(claim, batch, writes).await
    }

    async fn settle(&self, claim: &HeldClaim, batch: Batch, writes: Vec<HandlerWrite>) -> SettleOutcome {
        debug_assert!(
            self.active_claims.contains(claim.active_claim.serial),
            "a claim may be settled only while it is held"
        );
        let batch = Arc::new(writes.into_iter().fold(batch, |batch, write| write.add_to(batch)));
        let mut tries = 0;
        loop {
            match self.store.commit(&self.partition, Arc::clone(&batch)).await {
                CommitOutcome::Committed(_) => return SettleOutcome::Recorded,
                CommitOutcome::Conflict(keys) if keys.contains(&rows::record_key(claim.work_key)) => {
                    return SettleOutcome::ClaimLost;
                }
                CommitOutcome::Conflict(_) | CommitOutcome::Fenced => return SettleOutcome::WriteConflict,
                CommitOutcome::InvalidBatch(error) => return SettleOutcome::Refused(error),
                CommitOutcome::Unknown { reason } => return SettleOutcome::Unknown(reason),
                CommitOutcome::Unavailable { reason } if tries + 1 == COMMIT_TRIES_MAX => {
                    return SettleOutcome::Unknown(reason);
                }
                CommitOutcome::Unavailable { .. } => {}
            }
            tokio::time::sleep(Duration::from_millis(COMMIT_RETRY_DELAY_MS << tries)).await;
            tries += 1;
        }
    }
}

impl From<StoreError> for RecordError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable { reason } => Self::Unavailable(reason),
            StoreError::Corrupt { .. } => Self::Damaged(error.to_string()),
        }
    }
}

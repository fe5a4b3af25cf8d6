//! Retention: deletes records that have been kept long enough, a bounded number at a time.
//!
//! The expiry row of a record says when to check it; the record itself decides. A result younger than the retention
//! gets a later expiry row, and a claim that is held stays. This file never deletes handlers' own rows.

use std::time::Duration;

use abide_ids::Timestamp;
use abide_store::rows::{Batch, CommitOutcome, PrivateRows, Row, Scan, TolerantPage, scan_past_damage};

use crate::idempotency::RecordError;
use crate::receiver::Receiver;
use crate::rows::{self, IdempotencyRecord, WorkKey};

/// Expiry rows per page of a sweep.
const SWEEP_RECORDS_MAX: usize = 256;
/// Pause when there is nothing left to sweep.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// The result of one sweep.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SweepSummary {
    /// Number of deleted records.
    pub deleted: usize,
    /// True if the next sweep may have more to do immediately.
    pub more: bool,
}

/// How a sweep treats a record and its expiry row.
enum ExpiryAction {
    /// Delete both; `None` if there is no record to delete.
    Delete(Option<Row>),
    /// Move the expiry row to this time.
    Postpone(Timestamp),
    Keep,
}

impl<S: PrivateRows + 'static> Receiver<S> {
    /// Sweeps forever, with pauses. The future may be dropped at any time.
    pub async fn drive_retention(&self) {
        loop {
            match self.sweep().await {
                Ok(SweepSummary { more: true, .. }) => tokio::task::yield_now().await,
                Ok(_) => tokio::time::sleep(SWEEP_INTERVAL).await,
                Err(error) => {
                    tracing::warn!(%error, "retention sweep failed");
                    tokio::time::sleep(SWEEP_INTERVAL).await;
                }
            }
        }
    }

    /// Deletes a bounded number of results that have been kept long enough, and of claims that are no longer held.
    pub async fn sweep(&self) -> Result<SweepSummary, SweepError> {
        let now = self.0.clock.now();
        let records = &self.0.records;
        // Each record takes at most two rows of a commit.
        let rows_max = SWEEP_RECORDS_MAX.min(records.store.capabilities().limits.commit_rows_max / 2);
        let mut scan = Scan::range(rows::expiries_start(), rows::expiries_end(now)).limit(rows_max);
        let mut summary = SweepSummary::default();
        loop {
            let scanned = scan_past_damage(&*records.store, &records.partition, scan).await;
            let TolerantPage { page, damage } = scanned.map_err(RecordError::from)?;
            if let Some(damage) = damage {
                tracing::error!(%damage, "retention sweep skipped damaged expiry rows; their records stay");
            }
            let mut batch = Batch::checked();
            for expiry in page.rows {
                let Some(work) = rows::work_of_expiry(&expiry.key) else { continue };
                match self.expiry_action(work, now).await? {
                    ExpiryAction::Keep => {}
                    ExpiryAction::Postpone(at) => {
                        batch = batch.delete_if_at(expiry.key, expiry.version);
                        batch = batch.create(rows::expiry_key(at, work), rows::encode(&()));
                    }
                    ExpiryAction::Delete(record) => {
                        summary.deleted += usize::from(record.is_some());
                        batch = batch.delete_if_at(expiry.key, expiry.version);
                        if let Some(record) = record {
                            batch = batch.delete_if_at(record.key, record.version);
                        }
                    }
                }
            }
            if batch.row_count() > 0 {
                return match records.store.commit(&records.partition, batch).await {
                    CommitOutcome::Committed(_) => Ok(SweepSummary { more: true, ..summary }),
                    // One of the records changed meanwhile; the next sweep sees that.
                    CommitOutcome::Conflict(_) => Ok(SweepSummary { deleted: 0, more: true }),
                    other => Err(RecordError::Unavailable(format!("{other:?}")).into()),
                };
            }
            // Nothing to change on this page: its claims are held. There are never more of them than running handlers.
            match page.next {
                Some(next) => scan = next,
                None => return Ok(summary),
            }
        }
    }

    async fn expiry_action(&self, work: WorkKey, now: Timestamp) -> Result<ExpiryAction, SweepError> {
        let records = &self.0.records;
        let row = match records
            .store
            .read(&records.partition, &rows::record_key(work))
            .await
            .map_err(RecordError::from)
        {
            Ok(Some(row)) => row,
            // If there is no record, or a damaged one that cannot be deleted, only the expiry row is deleted.
            Ok(None) | Err(RecordError::Damaged(_)) => return Ok(ExpiryAction::Delete(None)),
            Err(error) => return Err(error.into()),
        };
        Ok(match rows::decode(&row.value) {
            Some(IdempotencyRecord::Finished { finished_at, .. }) => {
                let until = finished_at.plus(self.0.options.retention.into());
                if until <= now { ExpiryAction::Delete(Some(row)) } else { ExpiryAction::Postpone(until) }
            }
            Some(IdempotencyRecord::Claimed(claim)) if records.is_held(&claim, now) => ExpiryAction::Keep,
            Some(IdempotencyRecord::Claimed(_)) => ExpiryAction::Delete(Some(row)),
            // The record cannot be decoded, and it has been kept long enough.
            None => ExpiryAction::Delete(Some(row)),
        })
    }
}

/// Why a sweep failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("cannot read or write the receiver's records: {reason}")]
pub struct SweepError {
    reason: String,
}

impl From<RecordError> for SweepError {
    fn from(error: RecordError) -> Self {
        let (RecordError::Unavailable(reason) | RecordError::Damaged(reason)) = error;
        Self { reason }
    }
}

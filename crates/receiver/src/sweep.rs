//! Retention: records go when they have been kept long enough, a bounded number at a time.
//!
//! The expiry row of a record says when to look at it; what is found there decides. An answer younger than the retention gets a later
//! look, a claim that somebody is at is left alone.

use std::time::Duration;

use abide_store::rows::{Batch, CommitOutcome, Passed, PrivateRows, Row, Scan, scan_past_damage};

use crate::options::ms;
use crate::receiver::Receiver;
use crate::records::Trouble;
use crate::rows::{self, Record, Work};

/// Records that one sweep looks at.
const LOOKED_AT_MAX: usize = 256;
/// How long to rest when there was nothing left to sweep.
const REST: Duration = Duration::from_secs(60);

/// What a sweep did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Swept {
    /// Records that are gone.
    pub deleted: usize,
    /// Whether there may be more to do at once.
    pub more: bool,
}

/// What is to become of a record and its expiry.
enum Fate {
    /// Both go; the record's row, if there is one.
    Delete(Option<Row>),
    /// The expiry moves.
    Later(i64),
    /// Nothing.
    Leave,
}

impl<S: PrivateRows + 'static> Receiver<S> {
    /// Sweeps for ever, resting in between. Dropping it does no harm.
    pub async fn keep_swept(&self) {
        loop {
            match self.sweep().await {
                Ok(Swept { more: true, .. }) => tokio::task::yield_now().await,
                Ok(_) => tokio::time::sleep(REST).await,
                Err(error) => {
                    tracing::warn!(%error, "old answers could not be swept");
                    tokio::time::sleep(REST).await;
                }
            }
        }
    }

    /// Deletes answers that have been kept long enough, and claims that nobody came back for: a bounded number of them.
    pub async fn sweep(&self) -> Result<Swept, SweepError> {
        let now = self.0.clock.now();
        let records = &self.0.records;
        // Each takes two rows of a commit at most.
        let rows_max = LOOKED_AT_MAX.min(records.store.capabilities().limits.commit_rows_max / 2);
        let mut scan = Scan::range(rows::expiries(), rows::expiries_after(now)).at_most(rows_max);
        let mut swept = Swept::default();
        loop {
            let passed = scan_past_damage(&*records.store, &records.partition, scan).await;
            let Passed { page, damage } = passed.map_err(Trouble::from)?;
            if let Some(damage) = damage {
                tracing::error!(%damage, "some old answers are not found, and stay");
            }
            let mut batch = Batch::checked();
            for expiry in page.rows {
                let Some(work) = rows::expired_work(&expiry.key) else { continue };
                match self.fate(work, now).await? {
                    Fate::Leave => {}
                    Fate::Later(at) => {
                        batch = batch.delete_at(expiry.key, expiry.version);
                        batch = batch.create(rows::expiry(at, work), rows::encode(&()));
                    }
                    Fate::Delete(record) => {
                        swept.deleted += usize::from(record.is_some());
                        batch = batch.delete_at(expiry.key, expiry.version);
                        if let Some(record) = record {
                            batch = batch.delete_at(record.key, record.version);
                        }
                    }
                }
            }
            if batch.rows() > 0 {
                return match records.store.commit(&records.partition, batch).await {
                    CommitOutcome::Committed(_) => Ok(Swept { more: true, ..swept }),
                    // Somebody was at one of them meanwhile; the next look sees it.
                    CommitOutcome::Conflict(_) => Ok(Swept { deleted: 0, more: true }),
                    other => Err(Trouble::Unavailable(format!("{other:?}")).into()),
                };
            }
            // A page of claims that are held is passed over; there are never more of them than run.
            match page.next {
                Some(next) => scan = next,
                None => return Ok(swept),
            }
        }
    }

    async fn fate(&self, work: Work, now: i64) -> Result<Fate, SweepError> {
        let records = &self.0.records;
        let row =
            match records.store.read(&records.partition, &rows::record(work)).await.map_err(Trouble::from) {
                Ok(Some(row)) => row,
                // Where there is no record, or none that can be read or deleted, the expiry alone goes.
                Ok(None) | Err(Trouble::Damaged(_)) => return Ok(Fate::Delete(None)),
                Err(trouble) => return Err(trouble.into()),
            };
        Ok(match rows::decode(&row.value) {
            Some(Record::Finished { at, .. }) => {
                let until = at.saturating_add(ms(self.0.options.retention));
                if until <= now { Fate::Delete(Some(row)) } else { Fate::Later(until) }
            }
            Some(Record::Claimed(claim)) if records.holds(&claim, now) => Fate::Leave,
            Some(Record::Claimed(_)) => Fate::Delete(Some(row)),
            // Nobody can read it now, and it has been kept long enough.
            None => Fate::Delete(Some(row)),
        })
    }
}

/// Why nothing could be swept.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the store could not be used: {reason}")]
pub struct SweepError {
    reason: String,
}

impl From<Trouble> for SweepError {
    fn from(trouble: Trouble) -> Self {
        let (Trouble::Unavailable(reason) | Trouble::Damaged(reason)) = trouble;
        Self { reason }
    }
}

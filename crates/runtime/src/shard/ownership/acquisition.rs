//! Acquires a shard and renews its lease: the steps from watching to working, and back.
//!
//! It does not send commits ([`commit_pipeline`](crate::shard::commit::commit_pipeline)) and does not decide when a
//! lease has expired ([`crate::lease`]).

use abide_ids::Sequence;
use abide_store::rows::{Row, RowVersion, StoreError};
use abide_store::tables::decode;
use abide_store::tables::heads::HeadRow;
use abide_workflow::Duration;

use crate::event::{Effect, OperatorEvent, StopReason};
use crate::lease::{Lease, LeaseStatus, Monotonic, OwnerWatch, TakeoverDecision};
use crate::shard::backoff::later;
use crate::shard::commit::commit_queue::CommitQueue;
use crate::shard::context::Context;
use crate::shard::ownership::{HEAD_RETRY_DELAY, OwnedHead, OwnershipPhase};

impl Context {
    /// Reads the head of a shard that is not owned, when it is time to.
    pub(in crate::shard) fn read_head_if_due(&mut self) {
        let OwnershipPhase::Watching(watch, at) = &self.phase else { return };
        if at.is_none_or(|at| at <= self.now.mono) {
            self.phase = OwnershipPhase::ReadingHead(watch.clone());
            self.effects.push(Effect::ReadHead);
        }
    }

    /// Tries to acquire the shard with the head that was read. The commit that acquires it is then to be sent.
    pub(in crate::shard) fn try_acquire(
        &mut self,
        mut watch: OwnerWatch,
        result: Result<Option<Row>, StoreError>,
    ) -> Result<(), StopReason> {
        let retry = Some(later(self.now.mono, HEAD_RETRY_DELAY));
        let row = match result {
            Ok(row) => row,
            Err(StoreError::Unavailable { .. }) => {
                self.phase = OwnershipPhase::Watching(watch, retry);
                return Ok(());
            }
            Err(error @ StoreError::Corrupt { .. }) => return Err(StopReason::Broken(error.to_string())),
        };
        let head: Option<HeadRow> = row
            .as_ref()
            .map(|row| decode(&row.value))
            .transpose()
            .map_err(|error| StopReason::Broken(error.to_string()))?;
        let released = head.as_ref().is_some_and(HeadRow::is_released);
        match watch.observe(head.as_ref(), self.config.exclusive || released, self.now.mono) {
            TakeoverDecision::Wait(at) => self.phase = OwnershipPhase::Watching(watch, Some(at)),
            TakeoverDecision::TakeOver { fencing_token } => {
                self.sequence = head.as_ref().map_or(Sequence::ZERO, |head| head.last_sequence);
                let applied = Duration(head.as_ref().map_or(0, |head| head.retention_ms));
                self.applied_retention = applied.max(self.config.retention);
                if let Err(reason) = self.careful.begin_claim(head.as_ref(), self.config.careful_from) {
                    self.notify(OperatorEvent::Unreadable { reason });
                }
                let owned = OwnedHead {
                    fencing_token,
                    heartbeat: 0,
                    head_version: row.map(|row| row.version),
                    lease: Lease::new(self.config.lease_times, self.now.mono),
                };
                self.phase = OwnershipPhase::Acquiring(watch, owned);
                self.commits.mark_urgent();
            }
        }
        Ok(())
    }

    /// The commit in flight is durable, and with it this version of the head. True if it acquired the shard.
    pub(in crate::shard) fn on_head_committed(
        &mut self,
        head_version: Option<RowVersion>,
        sent_at: Monotonic,
    ) -> bool {
        if let Some(owned) = self.phase.owned_head_mut() {
            owned.head_version = head_version;
            owned.lease.confirm(sent_at);
        }
        let OwnershipPhase::Acquiring(_, owned) = &self.phase else { return false };
        let owned = owned.clone();
        let fencing_token = owned.fencing_token;
        self.phase = OwnershipPhase::Recovering(owned);
        let (unclean_claims, carefully) = (self.careful.unclean_claims(), self.careful.is_on());
        self.notify(OperatorEvent::Owned { fencing_token, unclean_claims, carefully });
        true
    }

    /// Another node has written the head. A challenger drops its commit and watches on; an owner must stop.
    pub(in crate::shard) fn on_head_lost(&mut self) -> Result<(), StopReason> {
        let OwnershipPhase::Acquiring(watch, _) = &self.phase else { return Err(StopReason::Lost) };
        let watch = watch.clone();
        self.commits = CommitQueue::new(self.config.store_limits);
        let at = later(self.now.mono, HEAD_RETRY_DELAY);
        self.phase = OwnershipPhase::Watching(watch, Some(at));
        Ok(())
    }

    /// Renews the lease if it is time to, by a commit that may have no row but the head. An owner whose lease has
    /// expired must stop.
    pub(in crate::shard) fn drive_lease(&mut self) -> Result<(), StopReason> {
        if self.config.exclusive {
            return Ok(());
        }
        if let OwnershipPhase::Recovering(owned)
        | OwnershipPhase::Working(owned)
        | OwnershipPhase::Draining(owned) = &self.phase
        {
            match owned.lease.status(self.now.mono) {
                LeaseStatus::Expired => return Err(StopReason::Lost),
                LeaseStatus::RenewalDue => self.commits.mark_urgent(),
                LeaseStatus::Valid => {}
            }
        }
        Ok(())
    }

    /// Recovery is complete: the shard accepts requests.
    pub(in crate::shard) fn finish_recovery(&mut self) {
        if let OwnershipPhase::Recovering(owned) = &self.phase {
            self.phase = OwnershipPhase::Working(owned.clone());
            self.careful.begin_work(self.now.mono);
        }
    }
}

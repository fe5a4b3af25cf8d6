//! Acquires a shard and tracks the phase of its ownership, from watching another owner to stopped.
//!
//! ```text
//!  Watching <──> ReadingHead ──> Acquiring ──> Recovering ──> Working ──> Draining ──> Stopped
//!     ▲                              │
//!     └──── another node was first ──┘      (an owner whose lease expires is Stopped at once)
//! ```
//!
//! It does not send commits ([`commit_pipeline`](super::commit_pipeline)) and does not decide when a lease has expired
//! ([`crate::lease`]). A node acts as the owner only after the commit that acquires the shard is durable.

use abide_ids::Sequence;
use abide_store::rows::{Row, RowVersion, StoreError};
use abide_store::tables::decode;
use abide_store::tables::heads::HeadRow;

use super::commit_queue::CommitWait;
use super::{Shard, fault_injected, later};
use crate::event::{Effect, StopReason};
use crate::lease::{LeaseTimes, Monotonic, OwnerWatch, Ownership, TakeoverDecision};

/// The phase of ownership; see the picture above.
#[derive(Debug)]
pub(super) enum OwnershipPhase {
    /// Another node may own the shard. The head is to be read at this time, or at once.
    Watching(OwnerWatch, Option<Monotonic>),
    ReadingHead(OwnerWatch),
    /// The commit that acquires the shard is in flight.
    Acquiring(OwnerWatch, OwnedHead),
    /// Owned; the scans of recovery look for unfinished work.
    Recovering(OwnedHead),
    /// Owned, and accepting requests.
    Working(OwnedHead),
    /// Owned; nothing new is accepted.
    Draining(OwnedHead),
    /// Not owned any more. Final: the driver makes a new `Shard` to try again.
    Stopped,
}

/// The head row as its owner knows it.
#[derive(Clone, Debug)]
pub(super) struct OwnedHead {
    pub(super) fencing_token: u64,
    pub(super) heartbeat: u64,
    pub(super) head_version: Option<RowVersion>,
    pub(super) lease: Ownership,
}

impl OwnershipPhase {
    pub(super) fn new(times: LeaseTimes) -> Self {
        Self::Watching(OwnerWatch::new(times), None)
    }

    pub(super) fn wake(&self, exclusive: bool) -> Option<Monotonic> {
        match self {
            Self::Watching(_, at) => *at,
            Self::Recovering(owned) | Self::Working(owned) | Self::Draining(owned) if !exclusive => {
                Some(owned.lease.next_check_at())
            }
            _ => None,
        }
    }

    pub(super) fn owned_head(&self) -> Option<&OwnedHead> {
        match self {
            Self::Acquiring(_, owned)
            | Self::Recovering(owned)
            | Self::Working(owned)
            | Self::Draining(owned) => Some(owned),
            Self::Watching(..) | Self::ReadingHead(_) | Self::Stopped => None,
        }
    }

    pub(super) fn owned_head_mut(&mut self) -> Option<&mut OwnedHead> {
        match self {
            Self::Acquiring(_, owned)
            | Self::Recovering(owned)
            | Self::Working(owned)
            | Self::Draining(owned) => Some(owned),
            Self::Watching(..) | Self::ReadingHead(_) | Self::Stopped => None,
        }
    }
}

/// The delay before a head that could not be read is read again.
pub(super) const HEAD_RETRY_DELAY: std::time::Duration = std::time::Duration::from_millis(500);

impl Shard {
    /// The token of this ownership; none if the shard is not owned.
    pub(super) fn fencing_token(&self) -> Option<u64> {
        self.phase.owned_head().map(|owned| owned.fencing_token)
    }

    /// Reads the head when it is time to.
    pub(super) fn drive_ownership(&mut self) {
        let OwnershipPhase::Watching(watch, at) = &self.phase else { return };
        if at.is_none_or(|at| at <= self.now.mono) {
            self.phase = OwnershipPhase::ReadingHead(watch.clone());
            self.effects.push(Effect::ReadHead);
        }
    }

    pub(super) fn on_head_read(&mut self, result: Result<Option<Row>, StoreError>) {
        if let OwnershipPhase::ReadingHead(watch) = &self.phase {
            let watch = watch.clone();
            return self.try_acquire(watch, result);
        }
        if self.commits.in_flight.as_ref().is_some_and(|commit| commit.wait == CommitWait::Head) {
            self.resolve_commit_outcome(result);
        }
    }

    fn try_acquire(&mut self, mut watch: OwnerWatch, result: Result<Option<Row>, StoreError>) {
        let retry = Some(later(self.now.mono, HEAD_RETRY_DELAY));
        let row = match result {
            Ok(row) => row,
            Err(StoreError::Unavailable { .. }) => {
                self.phase = OwnershipPhase::Watching(watch, retry);
                return;
            }
            Err(error @ StoreError::Corrupt { .. }) => {
                return self.stop(StopReason::Broken(error.to_string()));
            }
        };
        let head: Option<HeadRow> = match row.as_ref().map(|row| decode(&row.value)).transpose() {
            Ok(head) => head,
            Err(error) => return self.stop(StopReason::Broken(error.to_string())),
        };
        let released = head.as_ref().is_some_and(HeadRow::is_released);
        match watch.observe(head.as_ref(), self.config.exclusive || released, self.now.mono) {
            TakeoverDecision::Wait(at) => self.phase = OwnershipPhase::Watching(watch, Some(at)),
            TakeoverDecision::TakeOver { fencing_token } => {
                self.sequence = head.as_ref().map_or(Sequence::ZERO, |head| head.last_sequence);
                let owned = OwnedHead {
                    fencing_token,
                    heartbeat: 0,
                    head_version: row.map(|row| row.version),
                    lease: Ownership::new(self.config.lease_times, self.now.mono),
                };
                self.phase = OwnershipPhase::Acquiring(watch, owned);
                if fault_injected!(self, StaleRecovery) {
                    let calls = abide_store::tables::calls::all();
                    self.effects.push(Effect::Scan(crate::event::ScanPurpose::Calls, calls));
                }
                self.commits.mark_urgent();
                self.send_next_commit();
            }
        }
    }

    /// Recovery is complete: the shard accepts requests.
    pub(super) fn finish_recovery(&mut self) {
        if let OwnershipPhase::Recovering(owned) = &self.phase {
            self.phase = OwnershipPhase::Working(owned.clone());
        }
    }
}

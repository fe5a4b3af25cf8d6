//! The phase of a shard's ownership, from watching another owner to stopped.
//!
//! ```text
//!  Watching <──> ReadingHead ──> Acquiring ──> Recovering ──> Working ──> Draining ──> Stopped
//!     ▲                              │
//!     └──── another node was first ──┘      (an owner whose lease expires is Stopped at once)
//! ```
//!
//! Only the state: [`acquisition`] and
//! [`drain`] move it. A node acts as the owner only after
//! the commit that acquires the shard is durable.

pub(super) mod acquisition;
pub(super) mod careful;
pub(super) mod drain;

use abide_store::rows::RowVersion;

use crate::lease::{Lease, LeaseTimes, Monotonic, OwnerWatch};

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
    pub(super) lease: Lease,
}

impl OwnershipPhase {
    pub(super) fn new(times: LeaseTimes) -> Self {
        Self::Watching(OwnerWatch::new(times), None)
    }

    /// When the head is to be read, or the lease is to be checked. No lease expires if the store is `exclusive` to this
    /// process.
    pub(super) fn wake(&self, exclusive: bool) -> Option<Monotonic> {
        match self {
            Self::Watching(_, at) => *at,
            Self::Recovering(owned) | Self::Working(owned) | Self::Draining(owned) if !exclusive => {
                Some(owned.lease.next_check_at())
            }
            _ => None,
        }
    }

    /// Returns whether this node owns the shard, as far as it knows.
    pub(super) fn is_owned(&self) -> bool {
        matches!(self, Self::Recovering(_) | Self::Working(_) | Self::Draining(_))
    }

    /// The head as its owner knows it; also while the commit that acquires the shard is in flight.
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

/// The delay before a head that could not be read, or that another node has just written, is read again.
pub(super) const HEAD_RETRY_DELAY: std::time::Duration = std::time::Duration::from_millis(500);

//! Answers: given when a group is durable, or when it is known that it is not.

use abide_store::public::PutError;
use abide_store::rows::{CommitOutcome, Partition, StoreError};
use tokio::sync::oneshot;

use crate::state::Shared;

/// An answer that is given when the group is durable.
pub(crate) enum Pending {
    Commit(Partition, CommitOutcome, oneshot::Sender<CommitOutcome>),
    Put(Result<(), PutError>, oneshot::Sender<Result<(), PutError>>),
}

impl Pending {
    /// The group is durable: the answer holds. Who stopped waiting is not told.
    pub(crate) fn durable(self, shared: &Shared) {
        match self {
            Self::Commit(partition, outcome, reply) => {
                if matches!(outcome, CommitOutcome::Committed(_)) {
                    shared.notices.announce(&partition);
                }
                drop(reply.send(outcome));
            }
            Self::Put(result, reply) => drop(reply.send(result)),
        }
    }

    /// The group failed. What would have been written may have been (`unknown`) or not; what would not is surely not.
    pub(crate) fn failed(self, reason: &str, unknown: bool) {
        let reason = reason.to_owned();
        match self {
            Self::Commit(_, outcome, reply) => {
                let committed = matches!(outcome, CommitOutcome::Committed(_));
                drop(reply.send(if committed && unknown {
                    CommitOutcome::Unknown { reason }
                } else {
                    CommitOutcome::Unavailable { reason }
                }));
            }
            Self::Put(_, reply) => drop(reply.send(Err(StoreError::Unavailable { reason }.into()))),
        }
    }
}

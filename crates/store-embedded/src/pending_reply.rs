//! Pending replies: sent when their group is durable, or when it has failed.
//!
//! They do not know the rows of the group.

use abide_store::public::PublicPutError;
use abide_store::rows::{CommitOutcome, Partition, StoreError};
use tokio::sync::oneshot;

use crate::state::StoreShared;

/// A reply that is sent when the group is durable.
pub(crate) enum PendingReply {
    Commit(Partition, CommitOutcome, oneshot::Sender<CommitOutcome>),
    Put(Result<(), PublicPutError>, oneshot::Sender<Result<(), PublicPutError>>),
}

impl PendingReply {
    /// The group is durable: sends the reply. A caller that stopped waiting gets none.
    pub(crate) fn on_durable(self, shared: &StoreShared) {
        match self {
            Self::Commit(partition, outcome, reply) => {
                if matches!(outcome, CommitOutcome::Committed(_)) {
                    shared.change_notifier.notify(&partition);
                }
                drop(reply.send(outcome));
            }
            Self::Put(result, reply) => drop(reply.send(result)),
        }
    }

    /// The group failed: its commits may have been written (`unknown`) or not. A batch that would not have been
    /// committed anyway was certainly not written.
    pub(crate) fn on_failed(self, reason: &str, unknown: bool) {
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

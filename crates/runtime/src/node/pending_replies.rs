//! The clients that wait for a reply of one shard during one ownership of it.
//!
//! Dropping this drops the senders: the clients then learn that the shard was lost.

use std::collections::HashMap;

use tokio::sync::oneshot;

use crate::request::{RequestId, ShardReply};
use crate::shard::{Shard, UnindexedRuns};

/// Senders of the replies that are still due.
#[derive(Debug, Default)]
pub(super) struct PendingReplies {
    last_id: u64,
    pub(super) senders: HashMap<RequestId, oneshot::Sender<ShardReply>>,
    /// Clients that wait for the public table, each with the runs it waits for. Those are not known before the shard
    /// works.
    pub(super) index_waiters: Vec<(Option<UnindexedRuns>, oneshot::Sender<()>)>,
}

impl PendingReplies {
    pub(super) fn add(&mut self, reply: oneshot::Sender<ShardReply>) -> RequestId {
        self.last_id += 1;
        self.senders.insert(RequestId(self.last_id), reply);
        RequestId(self.last_id)
    }

    /// Replies to the clients for which the public table is now up to date.
    pub(super) fn reply_index_waiters(&mut self, shard: &Shard) {
        let waiters =
            std::mem::take(&mut self.index_waiters).into_iter().filter(|(_, reply)| !reply.is_closed());
        for (unindexed, reply) in waiters {
            let mut unindexed = unindexed.or_else(|| shard.unindexed_runs());
            if unindexed.as_mut().is_some_and(|unindexed| shard.has_indexed(unindexed)) {
                // A client that has disconnected needs no reply.
                let _ = reply.send(());
            } else {
                self.index_waiters.push((unindexed, reply));
            }
        }
    }

    /// Removes and returns the requests whose clients have disconnected.
    pub(super) fn take_abandoned(&mut self) -> Vec<RequestId> {
        self.senders.extract_if(|_, reply| reply.is_closed()).map(|(id, _)| id).collect()
    }
}

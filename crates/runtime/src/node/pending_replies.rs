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
    /// Clients that want a list with everything that was durable when they asked, each with the runs whose public rows
    /// it waits for: `None` until the shard has recovered and knows them.
    pub(super) index_waiters: Vec<(Option<UnindexedRuns>, oneshot::Sender<()>)>,
}

impl PendingReplies {
    /// Keeps the sender of a reply under a new id. The shard task calls it for each request it receives, and a second
    /// time for a start whose end the client also awaits. It removes the sender when the shard replies to the id.
    pub(super) fn add(&mut self, reply: oneshot::Sender<ShardReply>) -> RequestId {
        self.last_id += 1;
        self.senders.insert(RequestId(self.last_id), reply);
        RequestId(self.last_id)
    }

    /// Replies to the clients whose runs have all reached the public table. Runs that came later do not delay them.
    /// Called in every round of the shard task.
    pub(super) fn reply_index_waiters(&mut self, shard: &Shard) {
        let waiters =
            std::mem::take(&mut self.index_waiters).into_iter().filter(|(_, sender)| !sender.is_closed());
        for (unindexed, sender) in waiters {
            let mut unindexed = unindexed.or_else(|| shard.unindexed_runs());
            if unindexed.as_mut().is_some_and(|unindexed| shard.has_indexed(unindexed)) {
                // A client that has disconnected needs no reply.
                let _ = sender.send(());
            } else {
                self.index_waiters.push((unindexed, sender));
            }
        }
    }

    /// Removes and returns the requests whose clients have disconnected, so that the shard forgets them, too.
    pub(super) fn take_abandoned(&mut self) -> Vec<RequestId> {
        self.senders.extract_if(|_, reply| reply.is_closed()).map(|(id, _)| id).collect()
    }
}

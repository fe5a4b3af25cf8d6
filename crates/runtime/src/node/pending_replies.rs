//! The clients that wait for a reply of one shard during one ownership of it.
//!
//! Dropping this drops the senders: the clients then learn that the shard was lost.

use std::collections::HashMap;

use tokio::sync::oneshot;

use super::lanes::LanePlace;
use crate::request::{RequestId, ShardReply};
use crate::shard::{Shard, UnindexedRuns};

/// The replies that are still due.
#[derive(Debug, Default)]
pub(super) struct PendingReplies {
    last_id: u64,
    pending: HashMap<RequestId, PendingReply>,
    /// Clients that want a list with everything that was durable when they asked, each with the runs whose public rows
    /// it waits for: `None` until the shard has recovered and knows them.
    pub(super) index_waiters: Vec<(Option<UnindexedRuns>, oneshot::Sender<()>)>,
}

#[derive(Debug)]
struct PendingReply {
    /// None if the client has disconnected: the shard has its request all the same.
    sender: Option<oneshot::Sender<ShardReply>>,
    place: Option<LanePlace>,
}

impl PendingReplies {
    /// Keeps the sender of a reply, and the place of its request, under a new id. The shard task calls it for each
    /// request it receives, and a second time for a start whose end the client also awaits.
    pub(super) fn add(&mut self, reply: oneshot::Sender<ShardReply>, place: Option<LanePlace>) -> RequestId {
        self.last_id += 1;
        self.pending.insert(RequestId(self.last_id), PendingReply { sender: Some(reply), place });
        RequestId(self.last_id)
    }

    /// The shard replies to a request, which leaves its lane.
    pub(super) fn reply(&mut self, id: RequestId, reply: ShardReply) {
        if let Some(PendingReply { sender: Some(sender), .. }) = self.pending.remove(&id) {
            // A client that has disconnected needs no reply.
            drop(sender.send(reply));
        }
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

    /// Forgets the clients that have disconnected, and returns their requests, so that the shard forgets that they
    /// wait. A request that the shard still owes a reply keeps its place.
    pub(super) fn take_abandoned(&mut self) -> Vec<RequestId> {
        let mut abandoned = Vec::new();
        self.pending.retain(|id, pending| {
            if pending.sender.as_ref().is_some_and(oneshot::Sender::is_closed) {
                abandoned.push(*id);
                pending.sender = None;
            }
            pending.sender.is_some() || pending.place.is_some()
        });
        abandoned
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use abide_workflow::InstanceId;

    use super::*;
    use crate::node::lanes::ShardLanes;
    use crate::placement::ShardCount;
    use crate::request::ShardRequest;

    #[test]
    fn a_request_whose_client_has_gone_keeps_its_place_until_the_shard_replies() {
        let shard = ShardCount::new(1).unwrap().shards().next().unwrap();
        let lanes = Arc::new(ShardLanes::new(shard, 10, 10_000));
        let restart = ShardRequest::Restart { instance_id: InstanceId::new("i").unwrap() };
        let mut replies = PendingReplies::default();
        let (sender, client) = oneshot::channel();
        let id = replies.add(sender, lanes.enter(&restart).unwrap());
        let (sender, waits_for_end) = oneshot::channel();
        let end = replies.add(sender, None);
        assert_eq!(replies.take_abandoned(), []);
        drop((client, waits_for_end));
        let mut abandoned = replies.take_abandoned();
        abandoned.sort();
        assert_eq!(abandoned, [id, end]);
        assert_eq!(replies.take_abandoned(), [], "each is reported once");
        assert_eq!((replies.pending.len(), lanes.client_requests()), (1, 1));
        replies.reply(id, ShardReply::Accepted);
        assert_eq!((replies.pending.len(), lanes.client_requests()), (0, 0));
    }
}

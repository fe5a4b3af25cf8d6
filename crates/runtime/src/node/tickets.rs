//! Who waits for an answer of one shard, as long as one claim of it lasts. What is dropped with it is not answered.

use std::collections::HashMap;

use tokio::sync::oneshot;

use crate::request::{Reply, Ticket};
use crate::shard::{Shard, Unshown};

/// Whom to answer.
#[derive(Debug, Default)]
pub(super) struct Tickets {
    last: u64,
    pub(super) waiting: HashMap<Ticket, oneshot::Sender<Reply>>,
    /// Who waits for the public table, and for what of it; for what is not known before the shard is at work.
    pub(super) showing: Vec<(Option<Unshown>, oneshot::Sender<()>)>,
}

impl Tickets {
    pub(super) fn add(&mut self, reply: oneshot::Sender<Reply>) -> Ticket {
        self.last += 1;
        self.waiting.insert(Ticket(self.last), reply);
        Ticket(self.last)
    }

    /// Answers who waited for the public table and need not any more.
    pub(super) fn answer_shown(&mut self, shard: &Shard) {
        let waits = std::mem::take(&mut self.showing).into_iter().filter(|(_, reply)| !reply.is_closed());
        for (unshown, reply) in waits {
            let mut unshown = unshown.or_else(|| shard.unshown());
            if unshown.as_mut().is_some_and(|unshown| shard.has_shown(unshown)) {
                // Whoever has gone does not wait.
                let _ = reply.send(());
            } else {
                self.showing.push((unshown, reply));
            }
        }
    }

    /// Clients that have gone without waiting for their answer.
    pub(super) fn gone(&mut self) -> Vec<Ticket> {
        self.waiting.extract_if(|_, reply| reply.is_closed()).map(|(ticket, _)| ticket).collect()
    }
}

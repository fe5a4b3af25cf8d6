//! Delivers messages to other shards. [`send`](crate::shard::messages::send_run_message) wrote the outbox row.
//!
//! A message is delivered once its row is durable, in order, one batch per target at a time. The row is deleted when
//! the target's inbound partition has the message. Sending twice is harmless: the target keeps a watermark per source.
//! The receiving side is [`inbound`](crate::shard::messages::inbound).

use std::collections::{BTreeMap, VecDeque};

use abide_ids::Sequence;
use abide_store::rows::{Batch, CommitOutcome, Key};
use abide_store::tables::inbound::{self, InboundRow};
use abide_store::tables::{encode, outbox};

use crate::event::Effect;
use crate::lease::Monotonic;
use crate::placement::ShardId;
use crate::run_message::{self, AddressedMessage};
use crate::shard::backoff::{backoff, later};
use crate::shard::commit::commit_queue::BatchNumber;
use crate::shard::context::Context;
use crate::shard::unit_of_work::UnitOfWork;

/// Messages to other shards, by target.
#[derive(Debug, Default)]
pub(in crate::shard) struct Outbox {
    queues: BTreeMap<ShardId, TargetQueue>,
}

#[derive(Debug, Default)]
struct TargetQueue {
    messages: VecDeque<OutboxMessage>,
    /// How many messages at the front are in flight.
    in_flight: usize,
    tries: u32,
    retry_at: Option<Monotonic>,
}

#[derive(Debug)]
struct OutboxMessage {
    number: Sequence,
    bytes: Vec<u8>,
    /// The batch with its outbox row.
    written_batch: BatchNumber,
}

/// The most messages sent at once.
const BATCH_MESSAGES_MAX: usize = 32;

impl Outbox {
    /// Queues a message that a previous owner left. Recovery finds them in the order of their numbers.
    pub(in crate::shard) fn recover(
        &mut self,
        target: &str,
        number: Sequence,
        bytes: Vec<u8>,
    ) -> Result<(), String> {
        let shard = ShardId::of_partition(target).ok_or_else(|| format!("{target:?} is not a shard"))?;
        let queue = self.queues.entry(shard).or_default();
        queue.messages.push_back(OutboxMessage { number, bytes, written_batch: BatchNumber::NONE });
        Ok(())
    }

    /// When messages that did not arrive are to be sent again.
    pub(in crate::shard) fn wake(&self) -> Option<Monotonic> {
        self.queues.values().filter_map(|queue| queue.retry_at).min()
    }

    /// Queues a message whose outbox row is in this batch.
    pub(in crate::shard) fn queue(
        &mut self,
        target: ShardId,
        number: Sequence,
        bytes: Vec<u8>,
        written_batch: BatchNumber,
    ) {
        let message = OutboxMessage { number, bytes, written_batch };
        self.queues.entry(target).or_default().messages.push_back(message);
    }

    /// Sends the durable messages of every target that has no batch in flight. Called at every flush of an owner.
    pub(in crate::shard) fn send(&mut self, ctx: &mut Context) {
        let now = ctx.now.mono;
        let durable = ctx.commits.durable_batch;
        let wall = ctx.now.wall;
        let source = ctx.id.to_string();
        for (target, queue) in &mut self.queues {
            if queue.in_flight > 0 || queue.retry_at.is_some_and(|at| at > now) {
                continue;
            }
            queue.retry_at = None;
            let mut batch = Batch::checked();
            let bytes_max = ctx.config.store_limits.commit_bytes_max / 2;
            for message in queue
                .messages
                .iter()
                .take(BATCH_MESSAGES_MAX)
                .take_while(|message| message.written_batch <= durable)
            {
                if queue.in_flight > 0 && batch.size_bytes() + message.bytes.len() > bytes_max {
                    break;
                }
                let Ok(AddressedMessage { instance_id, .. }) =
                    run_message::decode::<AddressedMessage>(&message.bytes)
                else {
                    break;
                };
                let row = InboundRow {
                    instance_id: instance_id.as_str().to_owned(),
                    message: message.bytes.clone(),
                    sent_at: wall,
                };
                batch = batch.create(inbound::key(&source, message.number), encode(&row));
                queue.in_flight += 1;
            }
            if queue.in_flight > 0 {
                ctx.effects.push(Effect::SendMessages(*target, batch));
            }
        }
        self.queues.retain(|_, queue| !queue.messages.is_empty());
    }

    /// A batch of messages has reached its target, or not: deletes the outbox rows of those that arrived. If none did,
    /// the target's messages are sent again after a delay.
    pub(in crate::shard) fn on_sent(
        &mut self,
        work: &mut UnitOfWork<'_>,
        target: ShardId,
        outcome: &CommitOutcome,
    ) {
        let source = work.ctx.id.to_string();
        let now = work.ctx.now.mono;
        let Some(queue) = self.queues.get_mut(&target) else { return };
        let out = std::mem::take(&mut queue.in_flight);
        let mut arrived: Vec<Sequence> = Vec::new();
        match outcome {
            CommitOutcome::Committed(_) => {
                arrived.extend(queue.messages.iter().take(out).map(|message| message.number));
            }
            // The rows already exist: an earlier copy arrived after all.
            CommitOutcome::Conflict(keys) => {
                let there = |number: Sequence| keys.contains(&inbound::key(&source, number));
                let out = queue.messages.iter().take(out);
                arrived.extend(out.map(|message| message.number).filter(|number| there(*number)));
            }
            _ => {}
        }
        if arrived.is_empty() {
            queue.tries += 1;
            queue.retry_at = Some(later(now, backoff(queue.tries)));
            return;
        }
        queue.tries = 0;
        queue.messages.retain(|message| !arrived.contains(&message.number));
        let keys: Vec<Key> =
            arrived.into_iter().map(|number| outbox::key(&target.to_string(), number)).collect();
        for key in keys {
            work.delete(key);
        }
    }
}

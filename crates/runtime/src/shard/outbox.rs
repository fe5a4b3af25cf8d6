//! Messages for instances: into the inbox of this shard, or over the outbox into that of another.
//!
//! A message for elsewhere is sent when its row is durable, in order, one batch per target at a time, and its row goes when the target's inbox
//! partition has it. Sending again is harmless: the target knows the last number it took from here.

use std::collections::{BTreeMap, VecDeque};

use abide_store::rows::{Batch, CommitOutcome, Key};
use abide_store::tables::arrivals::{self, Arrival};
use abide_store::tables::encode;
use abide_store::tables::inbox::{self, Waiting};
use abide_store::tables::outbox::{self, Outgoing};
use abide_workflow::InstanceId;

use super::slot::Item;
use super::{Shard, back_off, later};
use crate::event::Effect;
use crate::lease::Monotonic;
use crate::placement::ShardId;
use crate::post::{self, Letter, Post};

/// Messages for other shards.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    queues: BTreeMap<ShardId, Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    letters: VecDeque<Numbered>,
    /// How many of the first are out.
    out: usize,
    tries: u32,
    retry_at: Option<Monotonic>,
}

#[derive(Debug)]
struct Numbered {
    number: u64,
    letter: Vec<u8>,
    /// The gathering that has its row.
    written: u64,
}

/// Messages in one batch.
const POST_MAX: usize = 32;

impl Outbox {
    /// A message that a former owner left.
    pub(super) fn found(&mut self, target: &str, number: u64, letter: Vec<u8>) -> Result<(), String> {
        let shard = ShardId::of_partition(target).ok_or_else(|| format!("{target:?} is no shard"))?;
        let queue = self.queues.entry(shard).or_default();
        queue.letters.push_back(Numbered { number, letter, written: 0 });
        Ok(())
    }

    pub(super) fn wake(&self) -> Option<Monotonic> {
        self.queues.values().filter_map(|queue| queue.retry_at).min()
    }
}

impl Shard {
    /// Sends a message to an instance, wherever it lives. It is promised with what is gathered now.
    pub(super) fn post(&mut self, id: InstanceId, post: Post) {
        let target = self.config.shards.shard_of_instance(&id);
        if target == self.id {
            return self.take_in(id, post);
        }
        let number = self.next_sequence();
        let letter = post::encode(&Letter { instance_id: id, post });
        let outgoing = Outgoing { created_at: self.now.wall.0, message: letter.clone() };
        self.commits.create(outbox::key(&target.to_string(), number), encode(&outgoing));
        self.commits.hurry();
        let written = self.commits.number();
        self.outbox.queues.entry(target).or_default().letters.push_back(Numbered { number, letter, written });
    }

    /// A message for an instance of this shard. Its row goes with the turn that takes it; if that is the same commit, it never was.
    pub(super) fn take_in(&mut self, id: InstanceId, post: Post) {
        let sequence = self.next_sequence();
        let waiting = Waiting {
            instance_id: id.as_str().to_owned(),
            received_at: self.now.wall.0,
            message: post::encode(&post),
        };
        self.commits.create(inbox::key(sequence), encode(&waiting));
        self.commits.hurry();
        if super::planted!(self, EarlyDeletion) {
            self.commits.delete(inbox::key(sequence));
        }
        self.posted.push_back((id, Item::Post { sequence, post }));
    }

    /// Sends what is durable to targets that are not being sent to.
    pub(super) fn send_outbox(&mut self) {
        let (now, durable, wall) = (self.now.mono, self.commits.durable, self.now.wall.0);
        let source = self.id.to_string();
        for (target, queue) in &mut self.outbox.queues {
            if queue.out > 0 || queue.retry_at.is_some_and(|at| at > now) {
                continue;
            }
            queue.retry_at = None;
            let mut batch = Batch::checked();
            let bytes_max = self.config.store.commit_bytes_max / 2;
            for letter in queue.letters.iter().take(POST_MAX).take_while(|letter| letter.written <= durable) {
                if queue.out > 0 && batch.bytes() + letter.letter.len() > bytes_max {
                    break;
                }
                let Ok(Letter { instance_id, .. }) = post::decode::<Letter>(&letter.letter) else { break };
                let arrival = Arrival {
                    instance_id: instance_id.as_str().to_owned(),
                    message: letter.letter.clone(),
                    sent_at: wall,
                };
                batch = batch.create(arrivals::key(&source, letter.number), encode(&arrival));
                queue.out += 1;
            }
            if queue.out > 0 {
                self.effects.push(Effect::Post(*target, batch));
            }
        }
        self.outbox.queues.retain(|_, queue| !queue.letters.is_empty());
    }

    pub(super) fn on_posted(&mut self, target: ShardId, outcome: &CommitOutcome) {
        let source = self.id.to_string();
        let now = self.now.mono;
        let Some(queue) = self.outbox.queues.get_mut(&target) else { return };
        let out = std::mem::take(&mut queue.out);
        let mut arrived: Vec<u64> = Vec::new();
        match outcome {
            CommitOutcome::Committed(_) => {
                arrived.extend(queue.letters.iter().take(out).map(|letter| letter.number));
            }
            // There already: an earlier copy arrived after all.
            CommitOutcome::Conflict(keys) => {
                let there = |number: u64| keys.contains(&arrivals::key(&source, number));
                let out = queue.letters.iter().take(out);
                arrived.extend(out.map(|letter| letter.number).filter(|number| there(*number)));
            }
            _ => {}
        }
        if arrived.is_empty() {
            queue.tries += 1;
            queue.retry_at = Some(later(now, back_off(queue.tries)));
            return;
        }
        queue.tries = 0;
        queue.letters.retain(|letter| !arrived.contains(&letter.number));
        self.commits.make_room(arrived.len() + 1, arrived.len() * 64);
        let gone: Vec<Key> =
            arrived.into_iter().map(|number| outbox::key(&target.to_string(), number)).collect();
        for key in gone {
            self.commits.delete(key);
        }
    }
}

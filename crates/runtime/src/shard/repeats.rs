//! Requests that come again: what was answered under a client's key is kept in the commit that did the work, and answered again.
//!
//! An answer that is not durable yet is known here, whatever else was looked for meanwhile: the store does not have it. Which key a request
//! has, and what is done when it is new, is decided elsewhere.

use std::collections::{HashMap, VecDeque};

use abide_store::tables::dedupe::{self, Answer};
use abide_store::tables::encode;
use abide_store::tables::expiries::{self, Expired, Expiry};
use abide_workflow::Timestamp;
use serde::Serialize;

use super::Shard;
use super::slot::Slot;
use crate::post;
use crate::request::{Done, Refused, Repeat, Reply, Started};

/// Answers that may not be in the store yet: by key, with the gathering that brings each there.
#[derive(Debug, Default)]
pub(super) struct Fresh {
    answers: HashMap<[u8; 32], (u64, Answer)>,
    order: VecDeque<(u64, [u8; 32])>,
}

impl Fresh {
    fn add(&mut self, key: [u8; 32], gathering: u64, answer: Answer, durable: u64) {
        while let Some((gathering, key)) = self.order.front().filter(|(gathering, _)| *gathering <= durable) {
            // Under the same key there may be a newer one: its place in the order is further back.
            if self.answers.get(key).is_some_and(|(newest, _)| newest <= gathering) {
                self.answers.remove(key);
            }
            self.order.pop_front();
        }
        self.answers.insert(key, (gathering, answer));
        self.order.push_back((gathering, key));
    }
}

impl Shard {
    /// The answer kept under a key that the store does not have yet.
    pub(super) fn fresh_answer(&self, key: &[u8; 32]) -> Option<&Answer> {
        let (gathering, answer) = self.fresh.answers.get(key)?;
        (*gathering > self.commits.durable).then_some(answer)
    }

    /// The answer to a request that came before, if it did. What was looked for is used up: the next one looks again.
    pub(super) fn repeated(&self, slot: &mut Slot, repeat: Repeat, begins: bool) -> Option<Reply> {
        let looked_for = slot.looked_for.take() == Some(repeat.key);
        let found = slot.answer.take().filter(|_| looked_for);
        let answer = self.fresh_answer(&repeat.key).cloned().or(found)?;
        if answer.expires_at <= self.now.wall.0 {
            return None;
        }
        let until = Timestamp(answer.expires_at);
        let reply = if begins {
            let started = post::decode::<Started>(&answer.answer);
            started.map(|started| Reply::Started(Started { repeat_until: Some(until), ..started }))
        } else {
            post::decode::<Done>(&answer.answer).map(|done| Reply::Once(done, until))
        };
        match reply {
            Ok(reply) if answer.payload_digest == repeat.payload => Some(reply),
            _ => Some(Reply::Refused(Refused::KeyReused)),
        }
    }

    /// Something is done, in the open gathering; kept there as well if it had a key.
    pub(super) fn done(&mut self, done: Done, repeat: Option<Repeat>) -> Reply {
        match (repeat, done) {
            (Some(repeat), done) => {
                let answer = self.answer_to(&repeat, &done);
                let until = Timestamp(answer.expires_at);
                self.keep(repeat.key, answer);
                Reply::Once(done, until)
            }
            (None, Done::Accepted) => Reply::Accepted,
            (None, Done::Purged) => Reply::Purged,
        }
    }

    /// What is kept for a client that may ask again.
    pub(super) fn answer_to(&self, repeat: &Repeat, what: &impl Serialize) -> Answer {
        Answer {
            payload_digest: repeat.payload,
            answered_at: self.now.wall.0,
            expires_at: self.now.wall.plus(self.config.repeat_window).0,
            answer: post::encode(what),
        }
    }

    /// Keeps an answer, with what it answers.
    pub(super) fn keep(&mut self, key: [u8; 32], answer: Answer) {
        self.commits.put(dedupe::key(dedupe::IDEMPOTENCY_KEY, &key), encode(&answer));
        let what = Expired::Dedupe { scope: dedupe::IDEMPOTENCY_KEY.to_owned(), digest: key };
        let sequence = self.next_sequence();
        self.commits.create(expiries::key(answer.expires_at, sequence), encode(&Expiry { what }));
        self.fresh.add(key, self.commits.number(), answer, self.commits.durable);
    }
}

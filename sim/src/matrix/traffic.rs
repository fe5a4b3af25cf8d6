//! What a process has to do with the outside: the activities it calls and the client that asks it.

use std::sync::Arc;

use abide_dispatch::Call;
use abide_runtime::event::CallId;
use abide_runtime::{Event, Repeat, Reply, Request, Start, Ticket};

use super::client::{Heard, Want, tells_of};
use super::process::{Happening, INSTANCE, Process, START_US, STORE_US};

/// How long a client waits before it asks again, in microseconds.
const ASK_AGAIN_US: u64 = 5;

impl Process<'_> {
    /// A delivery reaches an activity; its answer is on its way.
    pub(super) fn deliver(&mut self, shard: usize, id: CallId, call: &Call) {
        // The first delivery of all needs no look into the store.
        let taken = match id.attempt {
            0 => 0,
            _ => self.stage.answers_taken(self.stage.shard(shard), id.run, id.command.0),
        };
        if id.attempt > 0 && self.out_at_crash.is_empty() {
            let unanswered = self.stage.unanswered(&call.metadata.idempotency_key);
            if unanswered > 0 {
                self.wrong
                    .push(format!("{} was not answered {unanswered} times without a crash", call.activity));
            }
        }
        match self.world.receive(call, self.now_us, taken) {
            Ok(given) => {
                let key = call.metadata.idempotency_key.clone();
                let at_us = given.at_us.max(self.now_us + STORE_US);
                self.at(at_us, Happening::Answered(shard, id, key, given.answer));
            }
            Err(reason) => self.wrong.push(reason),
        }
    }

    /// How often history tells of what the client wants.
    pub(super) fn told_of_wanted(&self) -> usize {
        match self.client.wants() {
            Some((_, Want::Message(message))) => self.stage.told(|event| tells_of(event, &message)),
            _ => 0,
        }
    }

    pub(super) fn ask_when_wanted(&mut self) {
        if let Some((after, _)) = self.client.wants() {
            self.at(START_US + after.0 * 1_000, Happening::Ask);
        }
    }

    /// The client asks for what it wants next.
    pub(super) fn ask(&mut self) {
        let Some((_, want)) = self.client.wants() else { return };
        let told = self.told_of_wanted();
        let ticket = self.client.ask(told);
        let instance_id = self.id.clone();
        let request = match want {
            Want::Start => Request::Start(Box::new(Start {
                instance_id,
                plan: Arc::clone(&self.stage.plan),
                input: Arc::new(self.case.input.clone()),
                event: None,
                correlation_id: INSTANCE.to_owned(),
                entity_id: None,
                repeat: Some(Repeat::new([7; 32], [1; 32])),
                await_end: None,
            })),
            Want::Message(message) => Request::Deliver { instance_id, message },
        };
        let shard = self.stage.shards.shard_of_instance(&self.id).number() as usize;
        self.step(shard, Event::Asked(ticket, request));
    }

    pub(super) fn reply(&mut self, ticket: Ticket, reply: &Reply) {
        match self.client.answered(ticket, reply) {
            Heard::Done => self.ask_when_wanted(),
            Heard::AskAgain => self.later(ASK_AGAIN_US, Happening::Ask),
            Heard::NotAsked => self.wrong.push(format!("the client was answered unasked: {reply:?}")),
        }
    }
}

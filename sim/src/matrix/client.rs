//! The one client of a case: starts the run, sends the case's events at their times, one after the other, and asks again if a crash took its
//! answer away.

use std::sync::Arc;

use abide_runtime::{Reply, Ticket};
use abide_workflow::rehearse::Stimulus;
use abide_workflow::{Duration, Message};
use serde_json::Value;

/// A client at work.
#[derive(Debug)]
pub(super) struct Client {
    /// What it sends after the start, and how long after it.
    messages: Vec<(Duration, Message)>,
    /// How much of it is done: 0 before the start is answered.
    done: usize,
    /// The request that is out.
    asked: Option<Asked>,
    last_ticket: u64,
    /// What it was answered.
    pub(super) replies: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    ticket: Ticket,
    /// How often history told of the same thing before.
    told_before: usize,
}

/// What a client wants.
#[derive(Clone, Debug)]
pub(super) enum Want {
    /// The run, begun.
    Start,
    /// A message, taken.
    Message(Message),
}

/// What an answer means to a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Heard {
    /// What it asked for is settled.
    Done,
    /// Nothing was done, and it may ask again.
    AskAgain,
    /// It did not ask.
    NotAsked,
}

impl Client {
    /// A client that will send these.
    pub(super) fn new(stimuli: &[(Duration, Stimulus)]) -> Self {
        let messages = stimuli.iter().map(|(at, stimulus)| (*at, message(stimulus))).collect();
        Self { messages, done: 0, asked: None, last_ticket: 0, replies: Vec::new() }
    }

    /// What it wants next, and how long after the start.
    pub(super) fn wants(&self) -> Option<(Duration, Want)> {
        match self.done.checked_sub(1) {
            None => Some((Duration::ZERO, Want::Start)),
            Some(place) => {
                self.messages.get(place).map(|(at, message)| (*at, Want::Message(message.clone())))
            }
        }
    }

    /// Whether it waits for an answer.
    pub(super) fn waits(&self) -> bool {
        self.asked.is_some()
    }

    /// It asks for what it wants. History has told of the same thing so often.
    pub(super) fn ask(&mut self, told_before: usize) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.asked = Some(Asked { ticket, told_before });
        ticket
    }

    /// It is answered.
    pub(super) fn answered(&mut self, ticket: Ticket, reply: &Reply) -> Heard {
        if self.asked.is_none_or(|asked| asked.ticket != ticket) {
            return Heard::NotAsked;
        }
        self.asked = None;
        let told = match reply {
            Reply::Refused(why) if why.is_transient() => return Heard::AskAgain,
            Reply::Refused(why) => format!("refused: {why}"),
            Reply::Started(started) => format!("started run {}", started.run.0),
            Reply::Accepted => "accepted".to_owned(),
            other => format!("{other:?}"),
        };
        self.replies.push(told);
        self.done += 1;
        Heard::Done
    }

    /// The answer will not come. What history tells of now was done; a client that could not look would send it a second time.
    pub(super) fn lost_answer(&mut self, told_now: usize) {
        if let Some(asked) = self.asked.take()
            && self.done > 0
            && told_now > asked.told_before
        {
            self.replies.push("accepted".to_owned());
            self.done += 1;
        }
    }
}

/// Whether an event of a history tells that this message was taken.
pub(super) fn tells_of(event: &Value, message: &Message) -> bool {
    let kind = event.get("eventType").and_then(Value::as_str).unwrap_or_default();
    match message {
        Message::EventRaised { name, payload } => {
            kind == "EventRaised"
                && event.get("name").and_then(Value::as_str) == Some(name)
                && event.get("input") == Some(&**payload)
        }
        Message::Suspend { .. } => kind == "ExecutionSuspended",
        Message::Resume { .. } => kind == "ExecutionResumed",
        Message::Terminate { .. } => kind == "ExecutionTerminated",
        Message::Rewind { .. } => kind == "ExecutionRewound",
        _ => false,
    }
}

fn message(stimulus: &Stimulus) -> Message {
    let reason = "the case's events".to_owned();
    match stimulus {
        Stimulus::Event { name, data } => {
            Message::EventRaised { name: name.clone(), payload: Arc::new(data.clone()) }
        }
        Stimulus::Suspend => Message::Suspend { reason },
        Stimulus::Resume => Message::Resume { reason },
        Stimulus::Terminate => Message::Terminate { reason },
        Stimulus::Rewind => Message::Rewind { reason },
    }
}

//! The one client of a case: starts the run, sends the case's events at their times, one after the other, and retries
//! if a crash lost the reply.

use std::sync::Arc;

use abide_runtime::{RequestId, ShardReply};
use abide_workflow::rehearse::Stimulus;
use abide_workflow::{Duration, Message};
use serde_json::Value;

/// The client of a running case.
#[derive(Debug)]
pub(super) struct CaseClient {
    /// The messages after the start, each with its time after the start.
    messages: Vec<(Duration, Message)>,
    /// How many requests are completed: 0 before the reply to the start.
    completed: usize,
    /// The request that waits for a reply.
    open_request: Option<OpenRequest>,
    last_request_id: u64,
    /// The replies as text.
    pub(super) replies: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
struct OpenRequest {
    ticket: RequestId,
    /// How often the histories had the same event before the request.
    seen_before: usize,
}

/// The next request of a client.
#[derive(Clone, Debug)]
pub(super) enum NextRequest {
    Start,
    Message(Message),
}

/// The meaning of a reply for the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReplyOutcome {
    /// The request is completed.
    Done,
    /// Nothing was done; the client retries.
    Retry,
    /// The client did not send this request.
    Unexpected,
}

impl CaseClient {
    /// A client that will send these stimuli.
    pub(super) fn new(stimuli: &[(Duration, Stimulus)]) -> Self {
        let messages = stimuli.iter().map(|(at, stimulus)| (*at, message(stimulus))).collect();
        Self { messages, completed: 0, open_request: None, last_request_id: 0, replies: Vec::new() }
    }

    /// The next request, and its time after the start.
    pub(super) fn next_request(&self) -> Option<(Duration, NextRequest)> {
        match self.completed.checked_sub(1) {
            None => Some((Duration::ZERO, NextRequest::Start)),
            Some(place) => {
                self.messages.get(place).map(|(at, message)| (*at, NextRequest::Message(message.clone())))
            }
        }
    }

    /// True if it waits for a reply.
    pub(super) fn is_waiting(&self) -> bool {
        self.open_request.is_some()
    }

    /// Begins the next request. The histories already have the same event `seen_before` times.
    pub(super) fn begin_request(&mut self, seen_before: usize) -> RequestId {
        self.last_request_id += 1;
        let request_id = RequestId(self.last_request_id);
        self.open_request = Some(OpenRequest { ticket: request_id, seen_before });
        request_id
    }

    /// Takes a reply.
    pub(super) fn on_reply(&mut self, request_id: RequestId, reply: &ShardReply) -> ReplyOutcome {
        if self.open_request.is_none_or(|open| open.ticket != request_id) {
            return ReplyOutcome::Unexpected;
        }
        self.open_request = None;
        let reply_text = match reply {
            ShardReply::Refused(why) if why.is_transient() => return ReplyOutcome::Retry,
            ShardReply::Refused(why) => format!("refused: {why}"),
            ShardReply::Started(started) => format!("started run {}", started.run_number.0),
            ShardReply::Accepted | ShardReply::Rewound(_) => "accepted".to_owned(),
            other => format!("{other:?}"),
        };
        self.replies.push(reply_text);
        self.completed += 1;
        ReplyOutcome::Done
    }

    /// The reply is lost. A message that is in the history now is not sent again; a client that could not read the
    /// history would send it a second time.
    pub(super) fn on_reply_lost(&mut self, seen_now: usize) {
        if let Some(open) = self.open_request.take()
            && self.completed > 0
            && seen_now > open.seen_before
        {
            self.replies.push("accepted".to_owned());
            self.completed += 1;
        }
    }
}

/// True if an event of a history records this message.
pub(super) fn records_message(event: &Value, message: &Message) -> bool {
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

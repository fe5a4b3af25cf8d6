//! Clients: each starts one run and raises its events, asks again until it knows, and writes down what it was told.

use abide_runtime::request::{Refused, Reply};
use abide_store::memory::Dice;
use serde_json::Value;

use crate::workload::Kind;

/// One client and its ledger.
#[derive(Debug)]
pub struct Client {
    /// The instance it started.
    pub id: String,
    /// What it runs.
    pub kind: Kind,
    /// Whether its start carries an Idempotency-Key.
    pub keyed: bool,
    /// Whether its start was acknowledged, and with which run.
    pub started: Option<u32>,
    /// Whether a start may have been made without an answer.
    pub start_unsure: bool,
    /// Runs it was told of, by repeats of the same start.
    pub told_runs: Vec<u32>,
    /// Its events, in the order they are raised.
    pub events: Vec<RaisedEvent>,
    /// What it does next.
    pub next: Step,
    /// The request that is out, if one is.
    pub asked: Option<u64>,
    /// Whether it orders the end of its run.
    pub terminates: bool,
    /// Whether that was acknowledged.
    pub terminated: bool,
}

/// An event a client raised.
#[derive(Clone, Debug)]
pub struct RaisedEvent {
    /// Its payload, unlike any other.
    pub payload: Value,
    /// Whether it was acknowledged.
    pub acknowledged: bool,
    /// Whether some attempt was not answered: it may have arrived, even more than once.
    pub unsure: bool,
    /// Whether it was refused.
    pub refused: bool,
}

/// What a client does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Start the run.
    Start,
    /// Raise this event.
    Raise(usize),
    /// Suspend the run.
    Suspend,
    /// Let it go on.
    Resume,
    /// End it.
    Terminate,
    /// Nothing more.
    Done,
}

impl Client {
    /// A client before its first step.
    pub fn new(id: String, kind: Kind, events: Vec<RaisedEvent>, dice: &mut Dice) -> Self {
        Self {
            id,
            kind,
            keyed: dice.below(2) == 0,
            started: None,
            start_unsure: false,
            told_runs: Vec::new(),
            events,
            next: Step::Start,
            asked: None,
            terminates: kind == Kind::Patience && dice.below(4) == 0,
            terminated: false,
        }
    }

    /// The request was not answered: nobody knows what came of it.
    pub fn not_answered(&mut self) {
        self.asked = None;
        match self.next {
            Step::Start => self.start_unsure = true,
            Step::Raise(at) => {
                if let Some(event) = self.events.get_mut(at) {
                    event.unsure = true;
                }
            }
            _ => {}
        }
    }

    /// An answer. True if the client goes on to its next step, false if it asks again.
    pub fn answered(&mut self, reply: &Reply) -> bool {
        self.asked = None;
        let goes_on = match (self.next, reply) {
            (_, Reply::Refused(refused)) if refused.is_transient() => false,
            (Step::Start, Reply::Started(started)) => {
                self.started = Some(started.run.0);
                self.told_runs.push(started.run.0);
                true
            }
            // An earlier attempt must have been ours; nobody else starts this id.
            (Step::Start, Reply::Refused(Refused::Live { run, .. })) => {
                self.started = Some(run.0);
                true
            }
            (Step::Raise(at), reply) => {
                if let Some(event) = self.events.get_mut(at) {
                    event.acknowledged = matches!(reply, Reply::Accepted);
                    event.refused = !event.acknowledged;
                }
                true
            }
            (Step::Terminate, Reply::Accepted) => {
                self.terminated = true;
                true
            }
            _ => true,
        };
        if goes_on {
            self.next = self.after();
        }
        goes_on
    }

    fn after(&self) -> Step {
        let raise = |at: usize| if at < self.events.len() { Step::Raise(at) } else { self.last() };
        match self.next {
            Step::Start => raise(0),
            Step::Raise(0) if self.id.len().is_multiple_of(3) => Step::Suspend,
            Step::Raise(at) => raise(at + 1),
            Step::Suspend => Step::Resume,
            Step::Resume => raise(1),
            Step::Terminate | Step::Done => Step::Done,
        }
    }

    fn last(&self) -> Step {
        if self.terminates { Step::Terminate } else { Step::Done }
    }
}

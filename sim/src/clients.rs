//! Clients: each goes through a script of requests to one instance, asks again until it is answered, and writes down what it was told.
//!
//! A request that was not answered may still arrive, even after later ones: what a client knows for sure it was told.

use abide_runtime::request::{Refused, Reply, Started};
use abide_store::memory::Dice;
use abide_workflow::Refusal;
use serde_json::{Value, json};

use crate::workload::Kind;

/// One client and its ledger.
#[derive(Debug)]
pub struct Client {
    /// The instance it is about. Several clients may be about the same.
    pub id: String,
    /// What it runs.
    pub kind: Kind,
    /// The Idempotency-Key of its first start, if it has one.
    pub key: Option<[u8; 32]>,
    /// What it does, in order.
    pub script: Vec<Step>,
    /// Where it is in its script.
    pub at: usize,
    /// The request that is out, if one is.
    pub asked: Option<u64>,
    /// What it was told by its first start and every repeat of it with the same key.
    pub told: Vec<Started>,
    /// Runs it was told it began, by whichever request.
    pub begun: Vec<u32>,
    /// Requests that may have begun a run without an answer.
    pub begins_unsure: u32,
    /// Its events, in the order they are raised.
    pub events: Vec<RaisedEvent>,
    /// Orders that were acknowledged.
    pub accepted: Vec<Step>,
    /// Orders that were not answered at least once.
    pub unsure: Vec<Step>,
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

/// What a client does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Start the run; again, with the same key.
    Start,
    /// Raise this event.
    Raise(usize),
    /// Suspend the run.
    Suspend,
    /// Let it go on.
    Resume,
    /// End it.
    Terminate,
    /// Wait until it has ended.
    AwaitEnd,
    /// Let a failed run go on.
    Rewind,
    /// Begin another run like the one that has ended.
    Restart,
    /// Forget the instance.
    Purge,
    /// Start it without a key.
    StartAnew,
}

impl Client {
    /// A client before its first step.
    pub fn new(id: String, kind: Kind, number: usize, dice: &mut Dice) -> Self {
        let mut key = [7; 32];
        let name = format!("{number}/{id}");
        key.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
        let key = (dice.below(2) == 0).then_some(key);
        let script = script(kind, key.is_some(), dice);
        let event = |event: usize| RaisedEvent {
            payload: json!(format!("{id}-event-{event}")),
            acknowledged: false,
            unsure: false,
            refused: false,
        };
        let events = (0..kind.events()).map(event).collect();
        Self::with(id, kind, key, script, events)
    }

    /// A client that only wants to start what another one starts, too.
    pub fn rival(id: String, kind: Kind, number: usize, dice: &mut Dice) -> Self {
        let mut rival = Self::new(id, kind, number, dice);
        rival.script = vec![Step::Start];
        rival.events.clear();
        rival
    }

    /// Somebody who clears up after requests that came late.
    pub fn janitor(id: String, kind: Kind, order: Step) -> Self {
        Self::with(id, kind, None, vec![order], Vec::new())
    }

    fn with(
        id: String,
        kind: Kind,
        key: Option<[u8; 32]>,
        script: Vec<Step>,
        events: Vec<RaisedEvent>,
    ) -> Self {
        let (accepted, unsure) = (Vec::new(), Vec::new());
        let (told, begun) = (Vec::new(), Vec::new());
        Self {
            id,
            kind,
            key,
            script,
            at: 0,
            asked: None,
            told,
            begun,
            begins_unsure: 0,
            events,
            accepted,
            unsure,
        }
    }

    /// What it does next.
    pub fn next(&self) -> Option<Step> {
        self.script.get(self.at).copied()
    }

    /// Whether it did this or may have, at any time.
    pub fn may_have(&self, step: Step) -> bool {
        self.accepted.contains(&step) || self.unsure.contains(&step)
    }

    /// The request was not answered: nobody knows what came of it.
    pub fn not_answered(&mut self) {
        self.asked = None;
        let Some(step) = self.next() else { return };
        match step {
            Step::Start | Step::StartAnew | Step::Restart => self.begins_unsure += 1,
            Step::Raise(at) => {
                if let Some(event) = self.events.get_mut(at) {
                    event.unsure = true;
                }
            }
            _ => {}
        }
        self.unsure.push(step);
    }

    /// An answer. The client goes on to its next step, unless it must ask again.
    pub fn answered(&mut self, reply: &Reply) {
        self.asked = None;
        let Some(step) = self.next() else { return };
        if matches!(reply, Reply::Refused(refused) if refused.is_transient()) {
            return;
        }
        self.at += 1;
        match (step, reply) {
            (Step::Start | Step::StartAnew | Step::Restart, Reply::Started(started)) => {
                if step == Step::Start {
                    self.told.push(started.clone());
                }
                if !self.begun.contains(&started.run.0) {
                    self.begun.push(started.run.0);
                }
            }
            (Step::Raise(at), reply) => {
                if let Some(event) = self.events.get_mut(at) {
                    event.acknowledged = matches!(reply, Reply::Accepted);
                    event.refused = !event.acknowledged;
                }
            }
            (step, Reply::Accepted | Reply::Purged | Reply::Ended(_)) => self.accepted.push(step),
            _ => {}
        }
    }
}

/// Whether an answer says that the run has ended.
pub fn says_ended(reply: &Reply) -> bool {
    matches!(reply, Reply::Refused(Refused::Message(Refusal::RunEnded { .. })))
}

/// What a client does with a run of this kind, by dice.
fn script(kind: Kind, keyed: bool, dice: &mut Dice) -> Vec<Step> {
    use Step::{AwaitEnd, Purge, Raise, Restart, Resume, Rewind, Start, StartAnew, Suspend, Terminate};
    let mut script = vec![Start];
    let mut one_in = |bound: u64| dice.below(bound) == 0;
    if keyed && one_in(2) {
        script.push(Start);
    }
    let suspends = one_in(4);
    if suspends && kind.events() == 0 {
        script.extend([Suspend, Resume]);
    }
    for event in 0..kind.events() {
        script.push(Raise(event));
        if suspends && event == 0 {
            script.extend([Suspend, Resume]);
        }
    }
    if keyed && one_in(3) {
        script.push(Start);
    }
    if one_in(6) {
        script.push(Terminate);
    }
    match kind {
        Kind::Mended if !one_in(5) => script.extend([AwaitEnd, Rewind]),
        _ if one_in(8) => script.push(Rewind),
        _ => {}
    }
    // Events are raised once: another run would wait for them for ever.
    match dice.below(8) {
        0 | 1 if kind.ends_alone() => script.extend([AwaitEnd, Restart]),
        2 => script.extend([AwaitEnd, Purge]),
        3 if kind.ends_alone() => script.extend([AwaitEnd, Purge, StartAnew]),
        4 => script.push(AwaitEnd),
        _ => {}
    }
    script
}

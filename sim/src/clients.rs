//! Simulated clients: each plays a script of requests to one instance, retries until it gets a reply, and keeps a
//! ledger of the replies.
//!
//! A request without a reply may still arrive, even after later ones: only replies are certain.

use abide_ids::{Digest, KeyDigest};
use abide_runtime::request::{RequestError, ShardReply, StartedRun};
use abide_store::memory::SeededRng;
use abide_workflow::MessageRefusal;
use serde_json::{Value, json};

use crate::workload::WorkloadKind;

/// One client and its ledger.
#[derive(Debug)]
pub struct SimClient {
    /// The id of the instance. Several clients may use the same.
    pub id: String,
    /// The kind of run it starts.
    pub kind: WorkloadKind,
    /// The Idempotency-Key of its first start, if it has one.
    pub key: Option<KeyDigest>,
    /// Its steps, in order.
    pub script: Vec<ClientStep>,
    /// Its position in the script.
    pub step_index: usize,
    /// The request that waits for a reply, if any.
    pub pending_request: Option<u64>,
    /// The replies to its first start and to every repeat of it with the same key.
    pub start_replies: Vec<StartedRun>,
    /// The numbers of the runs that it started, according to any reply.
    pub started_runs: Vec<u32>,
    /// Requests without a reply that may have started a run.
    pub unconfirmed_starts: u32,
    /// Its events, in the order in which they are raised.
    pub events: Vec<RaisedEvent>,
    /// Control operations that were acknowledged.
    pub acknowledged_controls: Vec<ClientStep>,
    /// Control operations that got no reply at least once.
    pub unconfirmed_controls: Vec<ClientStep>,
    /// True if it only resumes or terminates a parked run, which may be a child that no client has started.
    pub is_operator: bool,
}

/// An event that a client raises.
#[derive(Clone, Debug)]
pub struct RaisedEvent {
    /// Unique among all events.
    pub payload: Value,
    pub acknowledged: bool,
    /// True if some request got no reply: the event may have arrived, even more than once.
    pub unconfirmed: bool,
    pub refused: bool,
}

/// One step of a client's script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientStep {
    /// Start the run; a repeat uses the same key.
    Start,
    Raise(usize),
    Suspend,
    Resume,
    Terminate,
    /// Terminate the run and all its descendants.
    TerminateTree,
    AwaitEnd,
    /// Rewind a failed run.
    Rewind,
    /// Start another run like the one that has ended.
    Restart,
    Purge,
    /// Start without an Idempotency-Key.
    StartUnkeyed,
}

impl SimClient {
    /// A client before its first step.
    pub fn new(id: String, kind: WorkloadKind, number: usize, dice: &mut SeededRng) -> Self {
        let mut key = [7; 32];
        let name = format!("{number}/{id}");
        key.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
        let key = (dice.below(2) == 0).then_some(KeyDigest(Digest(key)));
        let script = script(kind, key.is_some(), dice);
        let event = |event: usize| RaisedEvent {
            payload: json!(format!("{id}-event-{event}")),
            acknowledged: false,
            unconfirmed: false,
            refused: false,
        };
        let events = (0..kind.events()).map(event).collect();
        Self::with(id, kind, key, script, events)
    }

    /// A client that only starts the same instance as another client.
    pub fn rival(id: String, kind: WorkloadKind, number: usize, dice: &mut SeededRng) -> Self {
        let mut rival = Self::new(id, kind, number, dice);
        rival.script = vec![ClientStep::Start];
        rival.events.clear();
        rival
    }

    /// A client that sends one control operation to clean up after late requests.
    pub fn janitor(id: String, kind: WorkloadKind, control: ClientStep) -> Self {
        Self::with(id, kind, None, vec![control], Vec::new())
    }

    /// A client that sends one control operation to a parked run.
    pub fn operator(id: String, control: ClientStep) -> Self {
        let script = vec![control];
        Self { is_operator: true, ..Self::with(id, WorkloadKind::Steps, None, script, Vec::new()) }
    }

    fn with(
        id: String,
        kind: WorkloadKind,
        key: Option<KeyDigest>,
        script: Vec<ClientStep>,
        events: Vec<RaisedEvent>,
    ) -> Self {
        let acknowledged_controls = Vec::new();
        let unconfirmed_controls = Vec::new();
        let start_replies = Vec::new();
        let started_runs = Vec::new();
        Self {
            id,
            kind,
            key,
            script,
            step_index: 0,
            pending_request: None,
            start_replies,
            started_runs,
            unconfirmed_starts: 0,
            events,
            acknowledged_controls,
            unconfirmed_controls,
            is_operator: false,
        }
    }

    pub fn next_step(&self) -> Option<ClientStep> {
        self.script.get(self.step_index).copied()
    }

    /// True if it did this step or may have done it.
    pub fn may_have_done(&self, step: ClientStep) -> bool {
        self.acknowledged_controls.contains(&step) || self.unconfirmed_controls.contains(&step)
    }

    /// The request got no reply: its outcome is unknown.
    pub fn on_timeout(&mut self) {
        self.pending_request = None;
        let Some(step) = self.next_step() else { return };
        match step {
            ClientStep::Start | ClientStep::StartUnkeyed | ClientStep::Restart => {
                self.unconfirmed_starts += 1
            }
            ClientStep::Raise(at) => {
                if let Some(event) = self.events.get_mut(at) {
                    event.unconfirmed = true;
                }
            }
            _ => {}
        }
        self.unconfirmed_controls.push(step);
    }

    /// Takes a reply. The client continues with its next step, unless it must retry.
    pub fn on_reply(&mut self, reply: &ShardReply) {
        self.pending_request = None;
        let Some(step) = self.next_step() else { return };
        let waits =
            |refused: &RequestError| refused.is_transient() || matches!(refused, RequestError::Parked { .. });
        if matches!(reply, ShardReply::Refused(refused) if waits(refused)) {
            return;
        }
        self.step_index += 1;
        match (step, reply) {
            (
                ClientStep::Start | ClientStep::StartUnkeyed | ClientStep::Restart,
                ShardReply::Started(started),
            ) => {
                if step == ClientStep::Start {
                    self.start_replies.push(started.clone());
                }
                if !self.started_runs.contains(&started.run_number.0) {
                    self.started_runs.push(started.run_number.0);
                }
            }
            (ClientStep::Raise(at), reply) => {
                if let Some(event) = self.events.get_mut(at) {
                    event.acknowledged = matches!(reply, ShardReply::Accepted);
                    event.refused = !event.acknowledged;
                }
            }
            (
                step,
                ShardReply::Accepted | ShardReply::Rewound(_) | ShardReply::Purged | ShardReply::Ended(_),
            ) => self.acknowledged_controls.push(step),
            _ => {}
        }
    }
}

/// True if a reply says that the run has ended.
pub fn is_ended_error(reply: &ShardReply) -> bool {
    matches!(reply, ShardReply::Refused(RequestError::Message(MessageRefusal::RunEnded { .. })))
}

/// A random script for a run of this kind.
fn script(kind: WorkloadKind, keyed: bool, dice: &mut SeededRng) -> Vec<ClientStep> {
    use ClientStep::{
        AwaitEnd, Purge, Raise, Restart, Resume, Rewind, Start, StartUnkeyed, Suspend, Terminate,
        TerminateTree,
    };
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
    if kind == WorkloadKind::Tree {
        script.push(TerminateTree);
    } else if one_in(6) {
        script.push(Terminate);
    }
    match kind {
        WorkloadKind::Rewound if !one_in(5) => script.extend([AwaitEnd, Rewind]),
        _ if one_in(8) => script.push(Rewind),
        _ => {}
    }
    // Events are raised once: another run would wait for them forever.
    match dice.below(8) {
        0 | 1 if kind.ends_unaided() => script.extend([AwaitEnd, Restart]),
        2 => script.extend([AwaitEnd, Purge]),
        3 if kind.ends_unaided() => script.extend([AwaitEnd, Purge, StartUnkeyed]),
        4 => script.push(AwaitEnd),
        _ => {}
    }
    script
}

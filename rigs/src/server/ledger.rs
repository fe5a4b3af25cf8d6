//! What clients were told: acknowledgements, and requests of which nobody knows what came.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::definitions::Kind;

/// One run as its client knows it.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub id: String,
    pub kind: Kind,
    /// Its start has an `Idempotency-Key`.
    pub keyed: bool,
    /// How often its start was sent.
    pub sends: u32,
    /// Its start was acknowledged, or the run was seen.
    pub acknowledged: bool,
    /// The executions that starts were told.
    pub executions: BTreeSet<String>,
    /// The end, for a client that waited for it.
    pub told_end: Option<Value>,
    pub events: Vec<Event>,
    /// Its end was ordered, and acknowledged or refused because it had ended.
    pub terminated: bool,
    /// The client has done all it wanted.
    pub done: bool,
    /// It was looked at after its end, and is as it should be or not.
    pub checked: bool,
    /// It was waited for in vain.
    pub given_up: bool,
}

/// One event that was raised.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub payload: Value,
    pub sends: u32,
    pub acknowledged: bool,
}

impl Run {
    pub(crate) fn new(id: String, kind: Kind, keyed: bool) -> Self {
        Self {
            id,
            kind,
            keyed,
            sends: 0,
            acknowledged: false,
            executions: BTreeSet::new(),
            told_end: None,
            events: Vec::new(),
            terminated: false,
            done: false,
            checked: false,
            given_up: false,
        }
    }
}

/// What kind of promise was broken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Broken {
    /// What was acknowledged is gone.
    Lost,
    /// Anything else.
    Wrong,
}

/// All that the rig remembers.
#[derive(Default, Debug)]
pub(crate) struct Ledger {
    pub runs: BTreeMap<String, Run>,
    pub starts: u64,
    /// Starts whose answer was lost, and whose run was found.
    pub starts_seen: u64,
    pub events: u64,
    pub terminations: u64,
    pub findings: BTreeSet<(Broken, String)>,
}

impl Ledger {
    pub(crate) fn find(&mut self, broken: Broken, what: String) {
        self.findings.insert((broken, what));
    }

    pub(crate) fn lost(&self) -> usize {
        self.findings.iter().filter(|(broken, _)| *broken == Broken::Lost).count()
    }

    /// A start was acknowledged as this execution, or its run was found without one.
    pub(crate) fn started(&mut self, id: &str, execution: Option<&str>) {
        let Some(run) = self.runs.get_mut(id) else { return };
        let count = if execution.is_some() { &mut self.starts } else { &mut self.starts_seen };
        *count += u64::from(!run.acknowledged);
        run.acknowledged = true;
        run.executions.extend(execution.map(str::to_owned));
    }

    /// An event was acknowledged.
    pub(crate) fn raised(&mut self, id: &str, event: usize) {
        let Some(event) = self.runs.get_mut(id).and_then(|run| run.events.get_mut(event)) else { return };
        self.events += u64::from(!event.acknowledged);
        event.acknowledged = true;
    }
}

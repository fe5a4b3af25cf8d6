//! The ledger of the clients: acknowledgements, requests with an unknown outcome, and findings.

use std::collections::{BTreeMap, BTreeSet};

use abide_testkit::verdict::Findings;
use serde_json::Value;

use super::definitions::RunKind;

/// One run from the point of view of its client.
#[derive(Clone, Debug)]
pub(crate) struct RunEntry {
    pub id: String,
    pub kind: RunKind,
    /// True if its start has an `Idempotency-Key`.
    pub keyed: bool,
    /// How often its start was sent.
    pub sends: u32,
    /// True if its start was acknowledged, or the run was found later.
    pub acknowledged: bool,
    /// The execution ids in the responses to its starts.
    pub executions: BTreeSet<String>,
    /// The final state, if the start waited for the end.
    pub reported_end: Option<Value>,
    pub events: Vec<EventEntry>,
    /// True if a terminate was acknowledged, or refused because the run had ended.
    pub terminated: bool,
    /// True if the client has finished its script for this run.
    pub done: bool,
    /// True if it was checked after its end.
    pub checked: bool,
    /// True if it did not end in time.
    pub timed_out: bool,
}

/// One raised event.
#[derive(Clone, Debug)]
pub(crate) struct EventEntry {
    pub payload: Value,
    pub sends: u32,
    pub acknowledged: bool,
}

impl RunEntry {
    pub(crate) fn new(id: String, kind: RunKind, keyed: bool) -> Self {
        Self {
            id,
            kind,
            keyed,
            sends: 0,
            acknowledged: false,
            executions: BTreeSet::new(),
            reported_end: None,
            events: Vec::new(),
            terminated: false,
            done: false,
            checked: false,
            timed_out: false,
        }
    }
}

/// The kind of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum BrokenPromise {
    /// Something acknowledged is missing.
    Lost,
    Wrong,
}

/// Everything that the rig records.
#[derive(Default, Debug)]
pub(crate) struct ServerLedger {
    pub runs: BTreeMap<String, RunEntry>,
    pub starts: u64,
    /// Starts whose response was lost and whose run was found later.
    pub recovered_starts: u64,
    pub events: u64,
    pub terminations: u64,
    pub findings: Findings<BrokenPromise>,
}

impl ServerLedger {
    /// A start was acknowledged with this execution id, or its run was found without an acknowledgement.
    pub(crate) fn on_started(&mut self, id: &str, execution: Option<&str>) {
        let Some(run) = self.runs.get_mut(id) else { return };
        let count = if execution.is_some() { &mut self.starts } else { &mut self.recovered_starts };
        *count += u64::from(!run.acknowledged);
        run.acknowledged = true;
        run.executions.extend(execution.map(str::to_owned));
    }

    pub(crate) fn on_raised(&mut self, id: &str, event: usize) {
        let Some(event) = self.runs.get_mut(id).and_then(|run| run.events.get_mut(event)) else { return };
        self.events += u64::from(!event.acknowledged);
        event.acknowledged = true;
    }
}

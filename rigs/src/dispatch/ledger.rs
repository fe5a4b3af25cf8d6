//! The ledger of the rig: flows that were acknowledged, and findings. It also holds the address of the server, which
//! clients, checks and kill cycles share.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use abide_testkit::verdict::Findings;
use tokio::sync::watch;

use super::flows::{FlowKind, PlannedCall};
use crate::server::client::RigClient;

/// One flow from the point of view of its client.
#[derive(Clone, Debug)]
pub(crate) struct FlowEntry {
    pub id: String,
    pub kind: FlowKind,
    pub failures_first: u64,
    pub acknowledged: bool,
    /// True if its client saw its end.
    pub ended: bool,
}

impl FlowEntry {
    pub(crate) fn calls(&self) -> Vec<PlannedCall> {
        self.kind.calls(&self.id, self.failures_first)
    }
}

/// The kind of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum DispatchViolation {
    /// An acknowledged flow is missing or did not complete.
    Lost,
    /// An effect happened more than once.
    Doubled,
    /// A call has a result, but its effect is missing.
    Missing,
    /// An attempt or effect that no call record explains.
    Unexplained,
    /// A call that stays open although no attempt is in flight.
    Orphan,
    Wrong,
}

#[derive(Default, Debug)]
pub(crate) struct DispatchLedger {
    pub flows: BTreeMap<String, FlowEntry>,
    pub findings: Findings<DispatchViolation>,
    /// How often the open calls were scanned for orphans.
    pub orphan_scans: u64,
    /// How many stores of killed receivers were read.
    pub snapshots: u64,
}

impl DispatchLedger {
    pub(crate) fn acknowledged(&self) -> impl Iterator<Item = &FlowEntry> {
        self.flows.values().filter(|flow| flow.acknowledged)
    }
}

/// The state that clients, checks and kill cycles share.
#[derive(Clone, Debug, Default)]
pub(crate) struct DispatchRig {
    up: Arc<watch::Sender<Option<SocketAddr>>>,
    since: Arc<Mutex<Option<Instant>>>,
    ledger: Arc<Mutex<DispatchLedger>>,
}

impl DispatchRig {
    /// Sets the address of the server; `None` while there is no server.
    pub(crate) fn set_up(&self, address: Option<SocketAddr>) {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = address.map(|_| now());
        self.up.send_replace(address);
    }

    /// The time since which the server is up.
    pub(crate) fn up_since(&self) -> Option<Instant> {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn client(&self) -> RigClient {
        RigClient::new(self.up.subscribe())
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, DispatchLedger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[expect(clippy::disallowed_methods, reason = "a rig measures real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

//! What the rig remembers: flows that were acknowledged, and what was found; and where the server is, for all who ask it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::watch;

use super::flows::{Kind, Planned};
use crate::server::client::Client;

/// One flow as its client knows it.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub id: String,
    pub kind: Kind,
    pub times: u64,
    pub acknowledged: bool,
    /// Its client saw its end.
    pub ended: bool,
}

impl Flow {
    pub(crate) fn calls(&self) -> Vec<Planned> {
        self.kind.calls(&self.id, self.times)
    }
}

/// What kind of promise was broken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Broken {
    /// An acknowledged flow that is gone or did not complete.
    Lost,
    /// An effect that was had more than once.
    Doubled,
    /// An effect that was answered for and is not there.
    Missing,
    /// A delivery that the journal does not count.
    Unexplained,
    /// A record of a delivery that nobody knows of any more.
    Orphan,
    /// Anything else.
    Wrong,
}

#[derive(Default, Debug)]
pub(crate) struct Ledger {
    pub flows: BTreeMap<String, Flow>,
    pub findings: BTreeSet<(Broken, String)>,
    /// How often the open calls were looked through for orphans.
    pub looks: u64,
    /// Stores of killed receivers that were read.
    pub snapshots: u64,
}

impl Ledger {
    pub(crate) fn find(&mut self, broken: Broken, what: impl Into<String>) {
        self.findings.insert((broken, what.into()));
    }

    pub(crate) fn acknowledged(&self) -> impl Iterator<Item = &Flow> {
        self.flows.values().filter(|flow| flow.acknowledged)
    }

    pub(crate) fn count(&self, broken: Broken) -> usize {
        self.findings.iter().filter(|(other, _)| *other == broken).count()
    }
}

/// What clients, checks and cycles share.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    up: Arc<watch::Sender<Option<SocketAddr>>>,
    since: Arc<Mutex<Option<Instant>>>,
    ledger: Arc<Mutex<Ledger>>,
}

impl World {
    /// There is a server here, or none any more.
    pub(crate) fn set_up(&self, address: Option<SocketAddr>) {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = address.map(|_| now());
        self.up.send_replace(address);
    }

    /// Since when there is a server.
    pub(crate) fn up_since(&self) -> Option<Instant> {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.up.subscribe())
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[expect(clippy::disallowed_methods, reason = "a rig measures real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

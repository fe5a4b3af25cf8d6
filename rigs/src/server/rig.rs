//! The state that clients, checks and kill cycles share: the address of the server, the ledger and the receiver.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use abide_testkit::verdict::print_figure;
use tokio::sync::watch;

use super::client::RigClient;
use super::ledger::{BrokenPromise, ServerLedger};
use super::receiver::RigReceiver;

#[derive(Clone, Debug)]
pub(crate) struct ServerRig {
    pub(crate) receiver: RigReceiver,
    up: watch::Sender<Option<SocketAddr>>,
    ledger: Arc<Mutex<ServerLedger>>,
    /// A fault is planted, so there is no point in waiting long for runs that may be lost.
    pub(crate) control: bool,
}

impl ServerRig {
    pub(crate) async fn new(control: bool) -> Result<Self, String> {
        let receiver = RigReceiver::start().await?;
        Ok(Self { receiver, up: watch::Sender::new(None), ledger: Arc::default(), control })
    }

    /// Sets the address of the server; `None` while there is no server.
    pub(crate) fn set_up(&self, address: Option<SocketAddr>) {
        self.up.send_replace(address);
    }

    pub(crate) fn client(&self) -> RigClient {
        RigClient::new(self.up.subscribe())
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, ServerLedger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The progress of the rig in one line.
    pub(crate) fn progress(&self) -> String {
        let ledger = self.ledger();
        let log = self.receiver.log();
        format!(
            "{} starts, {} events, {} terminations acknowledged; {} attempts, {} effects; {} findings",
            ledger.starts,
            ledger.events,
            ledger.terminations,
            log.attempts,
            log.work.len(),
            ledger.findings.len()
        )
    }

    /// Prints the report with at most `findings_max` findings.
    pub(crate) fn report(&self, findings_max: usize) {
        let ledger = self.ledger();
        let log = self.receiver.log();
        print_figure("starts acknowledged", ledger.starts);
        print_figure("starts recovered", ledger.recovered_starts);
        print_figure("events acknowledged", ledger.events);
        print_figure("terminations acknowledged", ledger.terminations);
        print_figure("attempts", log.attempts);
        print_figure("of which number > 0", log.repeated_attempts);
        print_figure("effects", log.work.len());
        print_figure("acknowledged and lost", ledger.findings.count(&BrokenPromise::Lost));
        ledger.findings.print(findings_max);
    }

    pub(crate) fn verdict(&self) -> Result<(), String> {
        let ledger = self.ledger();
        ledger.findings.verdict((ledger.starts == 0).then_some("nothing was acknowledged"))
    }
}

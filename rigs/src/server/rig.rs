//! The state that clients, checks and kill cycles share: the address of the server, the ledger and the receiver.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::client::RigClient;
use super::ledger::ServerLedger;
use super::receiver::RigReceiver;
use crate::findings;

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
        println!("  starts acknowledged         {}", ledger.starts);
        println!("  starts recovered            {}", ledger.recovered_starts);
        println!("  events acknowledged         {}", ledger.events);
        println!("  terminations acknowledged   {}", ledger.terminations);
        println!("  attempts                    {}", log.attempts);
        println!("  of which number > 0         {}", log.repeated_attempts);
        println!("  effects                     {}", log.work.len());
        println!("  acknowledged and lost       {}", ledger.lost());
        findings::print_findings(&ledger.findings, findings_max);
    }

    pub(crate) fn verdict(&self) -> Result<(), String> {
        let ledger = self.ledger();
        match ledger.findings.len() {
            0 if ledger.starts == 0 => Err("nothing was acknowledged, so nothing was tried".to_owned()),
            0 => Ok(()),
            findings => Err(format!("{findings} findings")),
        }
    }
}

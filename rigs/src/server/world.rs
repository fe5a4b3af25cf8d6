//! What clients, checks and cycles share: where the server is, what was acknowledged, what was delivered.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::client::Client;
use super::ledger::Ledger;
use super::receiver::Receiver;
use crate::findings;

#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) receiver: Receiver,
    up: watch::Sender<Option<SocketAddr>>,
    ledger: Arc<Mutex<Ledger>>,
}

impl World {
    pub(crate) async fn new() -> Result<Self, String> {
        let receiver = Receiver::start().await?;
        Ok(Self { receiver, up: watch::Sender::new(None), ledger: Arc::default() })
    }

    /// There is a server here, or none any more.
    pub(crate) fn set_up(&self, address: Option<SocketAddr>) {
        self.up.send_replace(address);
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.up.subscribe())
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the rig stands, in a line.
    pub(crate) fn progress(&self) -> String {
        let (ledger, book) = (self.ledger(), self.receiver.book());
        format!(
            "{} starts, {} events, {} terminations acknowledged; {} deliveries, {} effects; {} findings",
            ledger.starts,
            ledger.events,
            ledger.terminations,
            book.deliveries,
            book.work.len(),
            ledger.findings.len()
        )
    }

    /// All of it, with so many findings at most.
    pub(crate) fn report(&self, findings_max: usize) {
        let (ledger, book) = (self.ledger(), self.receiver.book());
        println!("  starts acknowledged         {}", ledger.starts);
        println!("  starts unanswered and there {}", ledger.starts_seen);
        println!("  events acknowledged         {}", ledger.events);
        println!("  terminations acknowledged   {}", ledger.terminations);
        println!("  deliveries                  {}", book.deliveries);
        println!("  of which attempt > 0        {}", book.redeliveries);
        println!("  effects                     {}", book.work.len());
        println!("  acknowledged and lost       {}", ledger.lost());
        findings::tell(&ledger.findings, findings_max);
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

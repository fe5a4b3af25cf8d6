//! What clients, checks and cycles share: where the server is, what was acknowledged, what was delivered.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::client::Client;
use super::ledger::Ledger;
use super::receiver::Receiver;

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
}

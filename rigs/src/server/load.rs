//! The load of a rig: many clients at once, each playing one run after the other until the load is closed.

use std::time::Duration;

use abide_store::memory::SeededRng;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::rig::ServerRig;
use super::script::ClientScript;

/// The number of clients.
const CLIENTS: u64 = 64;
/// The longest pause of a client between two runs.
const REST_MILLIS: u64 = 600;

pub(crate) struct ServerLoad {
    closing: watch::Sender<bool>,
    clients: JoinSet<()>,
}

impl ServerLoad {
    /// Starts a load. Its number is part of the ids of its runs and seeds its clients.
    pub(crate) fn start(rig: &ServerRig, number: u64) -> Self {
        let closing = watch::Sender::new(false);
        let mut clients = JoinSet::new();
        for client in 0..CLIENTS {
            let mut script = ClientScript::new(rig.clone(), SeededRng::new(number << 16 | client));
            let closed = closing.subscribe();
            clients.spawn(async move {
                let mut serial = 0_u64;
                while !*closed.borrow() {
                    serial += 1;
                    script.run(&format!("r{number}-{client}-{serial}")).await;
                    script.pause(REST_MILLIS).await;
                }
            });
        }
        Self { closing, clients }
    }

    /// Lets every client finish its current run. False if some did not finish in time.
    pub(crate) async fn finish(mut self, within: Duration) -> bool {
        self.closing.send_replace(true);
        let all = async { while self.clients.join_next().await.is_some() {} };
        tokio::time::timeout(within, all).await.is_ok()
    }
}

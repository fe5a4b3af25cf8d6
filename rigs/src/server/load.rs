//! Clients at work, all at once, until they are told to begin nothing new.

use std::time::Duration;

use abide_store::memory::Dice;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::script::Script;
use super::world::World;

/// How many clients there are.
const CLIENTS: u64 = 64;
/// The longest a client rests between two runs.
const REST_MILLIS: u64 = 600;

pub(crate) struct Load {
    closing: watch::Sender<bool>,
    clients: JoinSet<()>,
}

impl Load {
    /// Begins a load. Its number makes the names of its runs and what its clients do.
    pub(crate) fn begin(world: &World, number: u64) -> Self {
        let closing = watch::Sender::new(false);
        let mut clients = JoinSet::new();
        for client in 0..CLIENTS {
            let mut script = Script::new(world.clone(), Dice::new(number << 16 | client));
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

    /// Lets every client finish what it has begun. False if some could not in time.
    pub(crate) async fn end(mut self, within: Duration) -> bool {
        self.closing.send_replace(true);
        let all = async { while self.clients.join_next().await.is_some() {} };
        tokio::time::timeout(within, all).await.is_ok()
    }
}

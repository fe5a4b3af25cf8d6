//! Hints that a partition changed, for backends that see every change themselves.
//!
//! A waiter names the last tick it saw, so no change between two waits is missed and nobody has to be listening when it
//! happens. Only partitions that somebody has waited for cost memory.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

use crate::rows::Partition;

/// How often a partition had changed when it was looked at. Says nothing across restarts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tick(u64);

impl Tick {
    /// Before anything was looked at: waiting from here answers at once.
    pub const START: Self = Self(0);
}

/// The partitions somebody waits for.
#[derive(Debug, Default)]
pub struct Notices {
    ticks: Mutex<HashMap<Partition, watch::Sender<u64>>>,
}

impl Notices {
    /// Tells whoever waits that the partition changed.
    pub fn announce(&self, partition: &Partition) {
        let ticks = self.ticks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = ticks.get(partition) {
            sender.send_modify(|tick| *tick = tick.wrapping_add(1).max(1));
        }
    }

    /// Resolves when the partition changed after `seen`.
    pub async fn changed(&self, partition: &Partition, seen: Tick) -> Tick {
        let mut receiver = {
            let mut ticks = self.ticks.lock().unwrap_or_else(PoisonError::into_inner);
            ticks.entry(partition.clone()).or_insert_with(|| watch::channel(1).0).subscribe()
        };
        // The sender lives as long as this map, which the caller borrows: waiting cannot end without a change.
        let now = receiver.wait_for(|tick| *tick != seen.0).await;
        now.map_or(Tick::START, |tick| Tick(*tick))
    }
}

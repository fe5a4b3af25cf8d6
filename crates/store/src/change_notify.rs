//! Notifies waiters that a partition changed, for backends that see every change themselves.
//!
//! A notification is a hint: it does not say what changed. A waiter passes the last tick it saw, so it misses no change
//! between two waits, even if it was not waiting at the time. Only partitions that have had a waiter cost memory.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

use crate::rows::Partition;

/// The number of changes of a partition when a waiter last looked. Means nothing after a restart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChangeTick(u64);

impl ChangeTick {
    /// The tick of a waiter that has seen nothing yet: waiting from here returns at once.
    pub const START: Self = Self(0);
}

/// Change counters of the partitions that have had a waiter.
#[derive(Debug, Default)]
pub struct ChangeNotifier {
    ticks: Mutex<HashMap<Partition, watch::Sender<u64>>>,
}

impl ChangeNotifier {
    /// Wakes every waiter of the partition.
    pub fn notify(&self, partition: &Partition) {
        let ticks = self.ticks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = ticks.get(partition) {
            sender.send_modify(|tick| *tick = tick.wrapping_add(1).max(1));
        }
    }

    /// Resolves when the partition has changed since `seen`.
    pub async fn wait_for_change(&self, partition: &Partition, seen: ChangeTick) -> ChangeTick {
        let mut receiver = {
            let mut ticks = self.ticks.lock().unwrap_or_else(PoisonError::into_inner);
            ticks.entry(partition.clone()).or_insert_with(|| watch::channel(1).0).subscribe()
        };
        // The sender lives as long as this map, which the caller borrows: waiting cannot end without a change.
        let current = receiver.wait_for(|tick| *tick != seen.0).await;
        current.map_or(ChangeTick::START, |tick| ChangeTick(*tick))
    }
}

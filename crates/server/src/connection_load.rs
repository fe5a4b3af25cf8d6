//! Counts the connections, and what the HTTP side refuses and cuts off. Decides nothing.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

#[derive(Debug, Default)]
pub(crate) struct ConnectionLoad {
    connections: AtomicUsize,
    stalled: AtomicU64,
    over_rate: AtomicU64,
}

impl ConnectionLoad {
    pub(crate) fn set_connections(&self, connections: usize) {
        self.connections.store(connections, Ordering::Relaxed);
    }

    /// The open connections.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// A connection is closed because its client takes nothing of a response.
    pub(crate) fn count_stalled(&self) {
        self.stalled.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn stalled(&self) -> u64 {
        self.stalled.load(Ordering::Relaxed)
    }

    /// A request is refused by the rate limit.
    pub(crate) fn count_over_rate(&self) {
        self.over_rate.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn over_rate(&self) -> u64 {
        self.over_rate.load(Ordering::Relaxed)
    }
}

//! Bounds the bytes of request bodies that the server holds at once, over all connections, so that thousands of slow
//! senders cannot exhaust its memory.
//!
//! A body counts from its first bytes to the end of its request, because the values parsed from it take as much memory
//! and more. The first bytes of every body are free, so a budget full of large bodies only keeps out large bodies.
//! Reads no body itself: `api_request.rs` does, and applies the limit of one body (`server.bodyBytesMax`).

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The first bytes of every body that do not count.
const FREE_BYTES: usize = 16 * 1024;

/// The bytes that all bodies together may occupy.
#[derive(Clone, Debug)]
pub(crate) struct BodyBudget {
    permits: Arc<Semaphore>,
}

/// One body's part of the budget, returned when it is dropped.
#[derive(Debug)]
pub(crate) struct BodyReservation {
    permits: Arc<Semaphore>,
    held_permit: Option<OwnedSemaphorePermit>,
    bytes: usize,
}

impl BodyBudget {
    pub(crate) fn new(bytes: usize) -> Self {
        Self { permits: Arc::new(Semaphore::new(bytes.min(Semaphore::MAX_PERMITS))) }
    }

    /// An empty reservation.
    pub(crate) fn reserve(&self) -> BodyReservation {
        BodyReservation { permits: Arc::clone(&self.permits), held_permit: None, bytes: 0 }
    }
}

impl BodyReservation {
    /// Reserves this many bytes more, without waiting; false if the budget has not enough left. The caller must then
    /// give the body up, because the reservation counts bytes that it does not hold.
    pub(crate) fn try_grow(&mut self, by: usize) -> bool {
        let counted = |bytes: usize| bytes.saturating_sub(FREE_BYTES);
        let before = counted(self.bytes);
        self.bytes = self.bytes.saturating_add(by);
        let Ok(more) = u32::try_from(counted(self.bytes) - before) else { return false };
        let Ok(more) = Arc::clone(&self.permits).try_acquire_many_owned(more) else { return false };
        match &mut self.held_permit {
            Some(held) => held.merge(more),
            None => self.held_permit = Some(more),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_bodies_share_the_budget_and_small_ones_need_none() {
        let budget = BodyBudget::new(100_000);
        let mut large = budget.reserve();
        let mut other = budget.reserve();
        let mut small = budget.reserve();
        assert!(large.try_grow(FREE_BYTES) && large.try_grow(90_000));
        assert!(!other.try_grow(FREE_BYTES + 20_000));
        assert!(small.try_grow(FREE_BYTES));
        drop((large, other));
        assert!(small.try_grow(100_000) && !small.try_grow(1));
    }
}

//! Bounds the bytes that the server holds at once for its clients, over all connections: a budget for the bodies of
//! requests that arrive slowly, and one for the responses that are taken slowly.
//!
//! The first bytes of every body and response are free, so a budget full of large ones only keeps out large ones. Knows
//! no connection and reads no body: `api_request.rs` and `response_share.rs` do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Semaphore;

/// The first bytes of every body and response that do not count.
pub(crate) const FREE_BYTES: usize = 16 * 1024;

/// The bytes that all bodies, or all responses, may occupy together.
#[derive(Clone, Debug)]
pub(crate) struct ByteBudget(Arc<Budget>);

#[derive(Debug)]
struct Budget {
    /// One permit per byte.
    permits: Semaphore,
    bytes_max: usize,
    refused: AtomicU64,
}

/// The part of the budget of one body or response, returned when it is dropped.
#[derive(Debug)]
pub(crate) struct ByteReservation {
    budget: Arc<Budget>,
    held: usize,
}

impl ByteBudget {
    /// A budget of this many bytes, at least one.
    pub(crate) fn new(bytes: usize) -> Self {
        let bytes_max = bytes.clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        Self(Arc::new(Budget { permits: Semaphore::new(bytes_max), bytes_max, refused: AtomicU64::new(0) }))
    }

    /// An empty reservation.
    pub(crate) fn reserve(&self) -> ByteReservation {
        ByteReservation { budget: Arc::clone(&self.0), held: 0 }
    }

    /// The bytes that are reserved now, without the free ones.
    pub(crate) fn reserved(&self) -> usize {
        self.0.bytes_max.saturating_sub(self.0.permits.available_permits())
    }

    /// How often there was not enough left.
    pub(crate) fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed)
    }
}

impl ByteReservation {
    /// Makes it a reservation of this many bytes, if it is smaller, without waiting. False if the budget has not enough
    /// left: then it is as before.
    pub(crate) fn try_grow_to(&mut self, bytes: usize) -> bool {
        let Some(more) = self.missing_permits(bytes) else { return true };
        let Ok(permits) = self.budget.permits.try_acquire_many(more) else { return false };
        permits.forget();
        self.held += more as usize;
        true
    }

    /// As [`Self::try_grow_to`], but waits until the budget has enough left. Those who wait are served in order.
    pub(crate) async fn grow_to(&mut self, bytes: usize) {
        let Some(more) = self.missing_permits(bytes) else { return };
        // The semaphore is never closed.
        let Ok(permits) = self.budget.permits.acquire_many(more).await else { return };
        permits.forget();
        self.held += more as usize;
    }

    /// The body or response is given up, because the budget has not enough left.
    pub(crate) fn count_refusal(&self) {
        self.budget.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// The permits that it lacks for this many bytes. Something larger than the whole budget takes all of it.
    fn missing_permits(&self, bytes: usize) -> Option<u32> {
        let needed = bytes.saturating_sub(FREE_BYTES).min(self.budget.bytes_max);
        let more = needed.checked_sub(self.held).filter(|more| *more > 0)?;
        // The whole budget is no larger than that.
        Some(u32::try_from(more).unwrap_or(u32::MAX))
    }
}

impl Drop for ByteReservation {
    fn drop(&mut self) {
        self.budget.permits.add_permits(self.held);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn large_bodies_share_the_budget_and_small_ones_need_none() {
        let budget = ByteBudget::new(100_000);
        let mut large = budget.reserve();
        let mut other = budget.reserve();
        let mut small = budget.reserve();
        assert!(large.try_grow_to(FREE_BYTES) && large.try_grow_to(FREE_BYTES + 90_000));
        assert!(!other.try_grow_to(FREE_BYTES + 20_000));
        assert!(small.try_grow_to(FREE_BYTES));
        assert_eq!(budget.reserved(), 90_000);
        drop((large, other));
        assert!(small.try_grow_to(FREE_BYTES + 100_000));
        assert_eq!(budget.reserved(), 100_000);
        drop(small);
        assert_eq!(budget.reserved(), 0);
    }

    #[test]
    fn what_is_larger_than_the_budget_takes_all_of_it() {
        let budget = ByteBudget::new(100_000);
        let mut huge = budget.reserve();
        assert!(huge.try_grow_to(10_000_000) && huge.try_grow_to(20_000_000));
        assert!(!budget.reserve().try_grow_to(FREE_BYTES + 1));
        drop(huge);
        assert!(budget.reserve().try_grow_to(FREE_BYTES + 1));
    }

    #[tokio::test]
    async fn those_who_wait_are_served_when_bytes_are_returned() {
        let budget = ByteBudget::new(100_000);
        let mut first = budget.reserve();
        assert!(first.try_grow_to(FREE_BYTES + 60_000));
        let mut second = budget.reserve();
        let mut context = Context::from_waker(Waker::noop());
        {
            let mut waiting = pin!(second.grow_to(FREE_BYTES + 60_000));
            assert!(waiting.as_mut().poll(&mut context).is_pending());
            drop(first);
            waiting.await;
        }
        assert_eq!(budget.reserved(), 60_000);
        // A wait that is given up takes nothing.
        let mut third = budget.reserve();
        assert!(pin!(third.grow_to(FREE_BYTES + 60_000)).as_mut().poll(&mut context).is_pending());
        drop((second, third));
        assert_eq!(budget.reserved(), 0);
    }
}

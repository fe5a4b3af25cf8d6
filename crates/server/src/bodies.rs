//! Bytes of bodies that the server holds at once, over all its connections: what thousands of slow senders could pile up is bounded.
//!
//! A body counts from its first bytes to the end of its request, because what is made of it takes as much and more. The beginning of every
//! body is free, so that whoever fills the room with large bodies keeps out nothing but large bodies.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of every body that do not count.
const FREE_BYTES: usize = 16 * 1024;

/// The room for bodies.
#[derive(Clone, Debug)]
pub(crate) struct Bodies {
    room: Arc<Semaphore>,
}

/// One body's share of the room, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    room: Arc<Semaphore>,
    taken: Option<OwnedSemaphorePermit>,
    bytes: usize,
}

impl Bodies {
    pub(crate) fn new(bytes: usize) -> Self {
        Self { room: Arc::new(Semaphore::new(bytes.min(Semaphore::MAX_PERMITS))) }
    }

    /// Room for nothing yet.
    pub(crate) fn share(&self) -> Share {
        Share { room: Arc::clone(&self.room), taken: None, bytes: 0 }
    }
}

impl Share {
    /// Takes room for so many bytes more. False if there is none.
    pub(crate) fn grow(&mut self, by: usize) -> bool {
        let counted = |bytes: usize| bytes.saturating_sub(FREE_BYTES);
        let before = counted(self.bytes);
        self.bytes = self.bytes.saturating_add(by);
        let Ok(more) = u32::try_from(counted(self.bytes) - before) else { return false };
        let Ok(more) = Arc::clone(&self.room).try_acquire_many_owned(more) else { return false };
        match &mut self.taken {
            Some(taken) => taken.merge(more),
            None => self.taken = Some(more),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_bodies_share_the_room_and_small_ones_need_none() {
        let bodies = Bodies::new(100_000);
        let (mut large, mut other, mut small) = (bodies.share(), bodies.share(), bodies.share());
        assert!(large.grow(FREE_BYTES) && large.grow(90_000));
        assert!(!other.grow(FREE_BYTES + 20_000));
        assert!(small.grow(FREE_BYTES));
        drop((large, other));
        assert!(small.grow(100_000) && !small.grow(1));
    }
}

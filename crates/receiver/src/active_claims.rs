//! The claims whose handlers run in this process, and the wrapper that turns a handler's panic into an error.
//!
//! It knows nothing of the store: a stored claim that is not registered here was left behind.

use std::any::Any;
use std::collections::HashSet;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

/// The serial numbers of the claims of this incarnation whose handlers are running.
#[derive(Clone, Debug, Default)]
pub(crate) struct ActiveClaims {
    serials: Arc<Mutex<HashSet<u64>>>,
    next_serial: Arc<AtomicU64>,
}

/// Keeps a claim registered until it is dropped.
#[derive(Debug)]
pub(crate) struct ActiveClaim {
    active: ActiveClaims,
    pub(crate) serial: u64,
}

impl ActiveClaims {
    /// Registers a claim under a serial number that is unique in this incarnation.
    pub(crate) fn register(&self) -> ActiveClaim {
        let serial = self.next_serial.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(serial);
        ActiveClaim { active: self.clone(), serial }
    }

    pub(crate) fn contains(&self, serial: u64) -> bool {
        self.lock().contains(&serial)
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.serials.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ActiveClaim {
    fn drop(&mut self) {
        self.active.lock().remove(&self.serial);
    }
}

/// Polls a future and returns its panic as an error. A future that panicked is not polled again.
pub(crate) async fn catch_panic<F: Future>(future: F) -> Result<F::Output, Box<dyn Any + Send>> {
    let mut future = pin!(future);
    // Unwind safe: state that a panic leaves inconsistent is dropped with the future.
    poll_fn(move |context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(poll) => poll.map(Ok),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}

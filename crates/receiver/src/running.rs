//! What runs in this process: which claims somebody is really at, and futures whose panics are survived.

use std::any::Any;
use std::collections::HashSet;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

/// The claims of this incarnation that are being worked on. A claim in the store that is not among them was left behind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Running {
    serials: Arc<Mutex<HashSet<u64>>>,
    last: Arc<AtomicU64>,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    running: Running,
    pub(crate) serial: u64,
}

impl Running {
    /// A number that no other claim of this incarnation has.
    pub(crate) fn begin(&self) -> Slot {
        let serial = self.last.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(serial);
        Slot { running: self.clone(), serial }
    }

    /// Whether somebody is at it.
    pub(crate) fn has(&self, serial: u64) -> bool {
        self.lock().contains(&serial)
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.serials.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.running.lock().remove(&self.serial);
    }
}

/// Polls a future and gives back its panic. A future that panicked is not polled again.
pub(crate) async fn caught<F: Future>(future: F) -> Result<F::Output, Box<dyn Any + Send>> {
    let mut future = pin!(future);
    // What a panic leaves half done inside the future is dropped with it.
    poll_fn(move |context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(poll) => poll.map(Ok),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}

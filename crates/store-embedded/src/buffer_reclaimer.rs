//! Frees the engine's flushed buffers on a thread of its own.
//!
//! The engine drops a flushed buffer while it holds the lock that all readers and writers need. With the last
//! reference, the buffer would be freed right there, row by row: with a buffer of 32 MiB everything stopped for up to
//! 70 ms. So this thread holds a reference to each buffer too, and frees it. The content of a buffer is not known here.

use std::any::Any;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// A buffer of the engine, of any type.
pub(crate) type WriteBuffer = Arc<dyn Any + Send + Sync>;

/// The buffers that are being filled, and the queue to the thread that frees them.
pub(crate) struct BufferReclaimer {
    active: Vec<WriteBuffer>,
    /// `None` if the thread could not be started: the engine then frees its buffers itself, only slower.
    reclaim_queue: Option<Sender<WriteBuffer>>,
}

impl BufferReclaimer {
    pub(crate) fn new() -> Self {
        let (full, buffers) = channel();
        let thread = std::thread::Builder::new().name("abide-reclaimer".to_owned());
        let spawned = thread.spawn(move || run_reclaimer(&buffers));
        Self { active: Vec::new(), reclaim_queue: spawned.is_ok().then_some(full) }
    }

    /// Records the buffers that are being filled now. The previous ones are freed when the engine has flushed them.
    pub(crate) fn track_active(&mut self, buffers: impl IntoIterator<Item = WriteBuffer>) {
        let Some(reclaim_queue) = &self.reclaim_queue else { return };
        for (position, buffer) in buffers.into_iter().enumerate() {
            match self.active.get_mut(position) {
                None => self.active.push(buffer),
                Some(tracked) if Arc::ptr_eq(tracked, &buffer) => {}
                // The send cannot fail: the thread ends only after this sender is dropped.
                Some(tracked) => drop(reclaim_queue.send(std::mem::replace(tracked, buffer))),
            }
        }
    }
}

/// Holds full buffers until it has the last reference to them.
fn run_reclaimer(full: &Receiver<WriteBuffer>) {
    const POLL_INTERVAL: Duration = Duration::from_millis(100);
    let mut held: Vec<WriteBuffer> = Vec::new();
    loop {
        let next = if held.is_empty() {
            full.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            full.recv_timeout(POLL_INTERVAL)
        };
        match next {
            Ok(buffer) => held.push(buffer),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        held.retain(|buffer| Arc::strong_count(buffer) > 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::{self, ThreadId};

    /// Reports the thread that dropped it.
    struct DropReporter(Sender<ThreadId>);

    impl Drop for DropReporter {
        fn drop(&mut self) {
            let _ = self.0.send(thread::current().id());
        }
    }

    #[test]
    fn a_buffer_that_the_engine_drops_is_freed_on_another_thread() {
        let (report, dropped_on) = channel();
        let mut reclaimer = BufferReclaimer::new();
        let first = Arc::new(DropReporter(report));
        let as_buffer =
            |reporter: &Arc<DropReporter>| -> WriteBuffer { Arc::<DropReporter>::clone(reporter) };
        reclaimer.track_active([as_buffer(&first)]);
        reclaimer.track_active([as_buffer(&first)]);
        reclaimer.track_active([Arc::new(()) as WriteBuffer]);
        drop(first);
        assert_ne!(dropped_on.recv(), Ok(thread::current().id()));
    }
}

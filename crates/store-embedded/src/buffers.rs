//! Frees the engine's full buffers on a thread of its own.
//!
//! The engine lets go of a buffer that was written out while it holds the lock that all readers and writers need. If nobody else held
//! the buffer it would be freed right there, row by row: with a buffer of 32 MiB everything stood still for up to 70 ms. So each buffer
//! is held here too, and freed here.

use std::any::Any;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// A buffer of the engine. What is in it does not matter.
pub(crate) type Buffer = Arc<dyn Any + Send + Sync>;

/// The buffers that are being filled, one for each part of the engine.
pub(crate) struct Buffers {
    filled: Vec<Buffer>,
    /// None if the thread could not be had: then the engine frees its buffers itself, only slower.
    full: Option<Sender<Buffer>>,
}

impl Buffers {
    pub(crate) fn new() -> Self {
        let (full, buffers) = channel();
        let thread = std::thread::Builder::new().name("abide-buffers".to_owned());
        let spawned = thread.spawn(move || free(&buffers));
        Self { filled: Vec::new(), full: spawned.is_ok().then_some(full) }
    }

    /// Notes which buffers are being filled now. Those that no longer are will be freed when the engine has written them out.
    pub(crate) fn note(&mut self, filled: impl IntoIterator<Item = Buffer>) {
        let Some(full) = &self.full else { return };
        for (place, buffer) in filled.into_iter().enumerate() {
            match self.filled.get_mut(place) {
                None => self.filled.push(buffer),
                Some(noted) if Arc::ptr_eq(noted, &buffer) => {}
                // The thread ends after this end of the channel.
                Some(noted) => drop(full.send(std::mem::replace(noted, buffer))),
            }
        }
    }
}

/// Holds full buffers until nobody else does.
fn free(full: &Receiver<Buffer>) {
    const LOOK_AGAIN: Duration = Duration::from_millis(100);
    let mut held: Vec<Buffer> = Vec::new();
    loop {
        let next = if held.is_empty() {
            full.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            full.recv_timeout(LOOK_AGAIN)
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

    /// Tells which thread freed it.
    struct Told(Sender<ThreadId>);

    impl Drop for Told {
        fn drop(&mut self) {
            let _ = self.0.send(thread::current().id());
        }
    }

    #[test]
    fn a_buffer_that_the_engine_lets_go_of_is_freed_on_another_thread() {
        let (tell, freed) = channel();
        let mut buffers = Buffers::new();
        let first = Arc::new(Told(tell));
        let as_buffer = |told: &Arc<Told>| -> Buffer { Arc::<Told>::clone(told) };
        buffers.note([as_buffer(&first)]);
        buffers.note([as_buffer(&first)]);
        buffers.note([Arc::new(()) as Buffer]);
        drop(first);
        assert_ne!(freed.recv(), Ok(thread::current().id()));
    }
}

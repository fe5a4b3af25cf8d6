//! A turnstile for the shards of one process: while several of them recover carefully, one at a time names an instance.
//! If the process then ends, at most one instance of it is named, and no other is blamed.
//!
//! It knows neither shards nor instances. A shard that waits looks again after [`Turnstile::LOOK_AGAIN`].

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The turnstile of a process; its shards share it.
#[derive(Clone, Debug, Default)]
pub struct Turnstile(Arc<Mutex<Line>>);

#[derive(Debug, Default)]
struct Line {
    last_number: u64,
    /// The first of them may pass.
    waiting: VecDeque<u64>,
}

/// A place in the line. It is left when this is dropped, also by a shard that stops or panics.
#[derive(Debug)]
pub(crate) struct Ticket {
    line: Arc<Mutex<Line>>,
    number: u64,
}

impl Turnstile {
    pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(2);

    /// Takes the last place in the line.
    pub(crate) fn line_up(&self) -> Ticket {
        let mut line = lock(&self.0);
        line.last_number += 1;
        let number = line.last_number;
        line.waiting.push_back(number);
        Ticket { line: Arc::clone(&self.0), number }
    }
}

impl Ticket {
    /// Returns whether it is this one's turn, which lasts until it is dropped.
    pub(crate) fn may_pass(&self) -> bool {
        lock(&self.line).waiting.front() == Some(&self.number)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let number = self.number;
        lock(&self.line).waiting.retain(|waiting| *waiting != number);
    }
}

/// The line is whole whenever it is not locked, so a panic of its user leaves it usable.
fn lock(line: &Mutex<Line>) -> MutexGuard<'_, Line> {
    line.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_passes_in_order_and_those_who_leave_let_the_next_pass() {
        let turnstile = Turnstile::default();
        let [first, second, third] = [(); 3].map(|()| turnstile.clone().line_up());
        let passing =
            |tickets: &[&Ticket]| tickets.iter().map(|ticket| ticket.may_pass()).collect::<Vec<_>>();
        assert_eq!(passing(&[&first, &second, &third]), [true, false, false]);
        drop(second);
        assert_eq!(passing(&[&first, &third]), [true, false]);
        drop(first);
        let fourth = turnstile.line_up();
        assert_eq!(passing(&[&third, &fourth]), [true, false]);
    }
}

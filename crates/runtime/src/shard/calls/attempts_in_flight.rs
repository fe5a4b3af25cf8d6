//! The attempts that this owner has recorded for sending and not heard of yet, and the search for slow ones among them.
//!
//! Only memory: an attempt that is lost with the owner is found again by its call's row. What an attempt does, and what
//! its result means, is not known here.

use std::collections::HashMap;

use abide_ids::{RunId, Timestamp};

use crate::event::AttemptId;
use crate::lease::Monotonic;
use crate::now::Now;
use crate::shard::backoff::later;

/// An attempt whose timeout is at most this, in milliseconds, is short. An attempt that is older is slow.
pub(in crate::shard) const SLOW_AFTER_MS: u64 = 60_000;
/// How often slow attempts are searched for, and how many of them are handled at once.
const SLOW_CHECK_INTERVAL: std::time::Duration = std::time::Duration::from_secs(5);
const SLOW_PER_CHECK: usize = 256;

/// The attempts in flight; see above.
#[derive(Debug, Default)]
pub(in crate::shard) struct AttemptsInFlight {
    attempts: HashMap<AttemptId, InFlightAttempt>,
    /// When they were last searched for slow ones.
    checked_at: Option<Monotonic>,
}

/// An attempt in flight, for the search for slow ones.
#[derive(Debug)]
pub(in crate::shard) struct InFlightAttempt {
    sent_at: Timestamp,
    stuck_watched: bool,
}

impl InFlightAttempt {
    /// The run of a call that may take long got its stuck timer with the turn that made the call.
    pub(in crate::shard) fn new(sent_at: Timestamp, attempt_timeout_ms: u64) -> Self {
        Self { sent_at, stuck_watched: attempt_timeout_ms > SLOW_AFTER_MS }
    }
}

impl AttemptsInFlight {
    pub(in crate::shard) fn is_empty(&self) -> bool {
        self.attempts.is_empty()
    }

    pub(in crate::shard) fn contains(&self, attempt: &AttemptId) -> bool {
        self.attempts.contains_key(attempt)
    }

    /// Notes an attempt when its unit is merged; it is started only once that is durable.
    pub(in crate::shard) fn insert(&mut self, attempt: AttemptId, in_flight: InFlightAttempt) {
        self.attempts.insert(attempt, in_flight);
    }

    /// Forgets an attempt. False if it was not in flight.
    pub(in crate::shard) fn remove(&mut self, attempt: &AttemptId) -> bool {
        self.attempts.remove(attempt).is_some()
    }

    /// The attempts of a run, in an order that does not depend on the hash map.
    pub(in crate::shard) fn of_run(&self, run_id: RunId) -> Vec<AttemptId> {
        let mut attempts: Vec<AttemptId> =
            self.attempts.keys().filter(|attempt| attempt.run_id == run_id).cloned().collect();
        attempts.sort_unstable();
        attempts
    }

    /// The attempts that have become slow since the last search, each returned once: their runs need a stuck timer. A
    /// slow attempt may be waiting for a permit.
    pub(in crate::shard) fn take_slow(&mut self, now: Now) -> Vec<AttemptId> {
        if self.checked_at.is_some_and(|at| later(at, SLOW_CHECK_INTERVAL) > now.mono) {
            return Vec::new();
        }
        self.checked_at = Some(now.mono);
        let is_slow = |attempt: &InFlightAttempt| {
            !attempt.stuck_watched && now.wall.since(attempt.sent_at).0 > SLOW_AFTER_MS
        };
        let mut slow: Vec<AttemptId> = self
            .attempts
            .iter()
            .filter(|(_, attempt)| is_slow(attempt))
            .map(|(attempt_id, _)| attempt_id.clone())
            .collect();
        // In an order that does not depend on the hash map.
        slow.sort_unstable();
        slow.truncate(SLOW_PER_CHECK);
        for attempt_id in &slow {
            if let Some(attempt) = self.attempts.get_mut(attempt_id) {
                attempt.stuck_watched = true;
            }
        }
        slow
    }
}

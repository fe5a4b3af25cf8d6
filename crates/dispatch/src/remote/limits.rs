//! The line before an activity or a target: how many deliveries are under way at once, and how many are begun in a second.
//!
//! A place comes first and the turn of the pace second, so that a pace stays exact however long a place is waited for. Knows nothing of
//! circuits, nor of what is delivered.

use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::transport::Failure;

pub(super) const CONCURRENCY_MAX: u32 = 10_000;
pub(super) const RATE_MIN: f64 = 0.001;
pub(super) const RATE_MAX: f64 = 1_000_000.0;

/// What all activities at one target may do together. Nothing is limited unless it is said.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct TargetLimits {
    concurrency: Option<NonZeroU32>,
    rate_per_second: Option<f64>,
}

/// A limit that nothing could be delivered under, or that is none.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
pub enum LimitError {
    /// Of deliveries under way.
    #[error("{0} is no number of deliveries under way; it must be from 1 to {CONCURRENCY_MAX}")]
    Concurrency(u32),
    /// Of deliveries begun in a second.
    #[error("{0} is no number of deliveries in a second; it must be from {RATE_MIN} to {RATE_MAX}")]
    Rate(f64),
}

impl TargetLimits {
    /// Deliveries under way at once, and deliveries begun in a second.
    pub fn new(concurrency: Option<u32>, rate_per_second: Option<f64>) -> Result<Self, LimitError> {
        let places = |wanted| {
            let places = NonZeroU32::new(wanted).filter(|places| places.get() <= CONCURRENCY_MAX);
            places.ok_or(LimitError::Concurrency(wanted))
        };
        let rate = |wanted| {
            let usable = (RATE_MIN..=RATE_MAX).contains(&wanted);
            if usable { Ok(wanted) } else { Err(LimitError::Rate(wanted)) }
        };
        Ok(Self {
            concurrency: concurrency.map(places).transpose()?,
            rate_per_second: rate_per_second.map(rate).transpose()?,
        })
    }
}

/// The line of one activity or of one target.
#[derive(Debug)]
pub(super) struct Line {
    /// Whose, for messages.
    whose: &'static str,
    places: Option<Semaphore>,
    pace: Option<Mutex<Pace>>,
}

/// Room for one delivery.
#[derive(Debug)]
pub(super) struct Place<'l> {
    _permit: Option<SemaphorePermit<'l>>,
}

/// Deliveries at equal distances.
#[derive(Debug)]
struct Pace {
    distance: Duration,
    next: Option<Instant>,
}

impl Line {
    pub(super) fn of_activity(concurrency: NonZeroU32, rate_per_second: Option<f64>) -> Self {
        Self::new("the activity", Some(concurrency), rate_per_second)
    }

    pub(super) fn of_target(limits: TargetLimits) -> Self {
        Self::new("the target", limits.concurrency, limits.rate_per_second)
    }

    fn new(whose: &'static str, concurrency: Option<NonZeroU32>, rate_per_second: Option<f64>) -> Self {
        let places = concurrency.map(|places| Semaphore::new(places.get() as usize));
        Self { whose, places, pace: rate_per_second.map(|rate| Mutex::new(Pace::new(rate))) }
    }

    /// Waits for a place, and then for the turn, at most until then.
    pub(super) async fn turn(&self, until: Instant) -> Result<Place<'_>, Failure> {
        let permit = match &self.places {
            None => None,
            Some(places) => match timeout_at(until, places.acquire()).await {
                Ok(Ok(permit)) => Some(permit),
                _ => return Err(self.busy("are under way", None)),
            },
        };
        if let Some(pace) = &self.pace {
            let turn = {
                let mut pace = pace.lock().unwrap_or_else(PoisonError::into_inner);
                pace.turn(Instant::now(), until)
            };
            sleep_until(turn.map_err(|wait| self.busy("are begun in this time", Some(wait)))?).await;
        }
        Ok(Place { _permit: permit })
    }

    /// Deliveries under way, of a line that has so many places.
    pub(super) fn under_way(&self, concurrency: NonZeroU32) -> usize {
        let free = self.places.as_ref().map(Semaphore::available_permits);
        free.map_or(0, |free| (concurrency.get() as usize).saturating_sub(free))
    }

    fn busy(&self, what: &str, wait: Option<Duration>) -> Failure {
        let message = format!("as many deliveries as {} takes {what}; this one was not sent", self.whose);
        Failure { retry_after_ms: wait.map(millis), ..Failure::retryable("TargetBusy", message) }
    }
}

impl Pace {
    fn new(rate_per_second: f64) -> Self {
        Self { distance: Duration::from_secs_f64(1.0 / rate_per_second), next: None }
    }

    /// When the next delivery may begin; an error with the wait if that is too late for whoever asks.
    fn turn(&mut self, now: Instant, until: Instant) -> Result<Instant, Duration> {
        let turn = self.next.map_or(now, |next| next.max(now));
        if turn > until {
            return Err(turn - now);
        }
        self.next = Some(turn + self.distance);
        Ok(turn)
    }
}

/// A wait as it is told, within what may be.
pub(super) fn millis(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).min(crate::status::RETRY_AFTER_MS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_none_or_lets_nobody_through_is_refused() {
        for wrong in [0, CONCURRENCY_MAX + 1, u32::MAX] {
            assert_eq!(TargetLimits::new(Some(wrong), None), Err(LimitError::Concurrency(wrong)));
        }
        for wrong in [0.0, -1.0, 1e-9, 1e9, f64::NAN, f64::INFINITY] {
            let refused = TargetLimits::new(None, Some(wrong)).unwrap_err().to_string();
            assert!(refused.starts_with(&wrong.to_string()), "{refused}");
        }
        assert_eq!(TargetLimits::new(None, None), Ok(TargetLimits::default()));
        assert!(TargetLimits::new(Some(CONCURRENCY_MAX), Some(RATE_MIN)).is_ok());
    }
}

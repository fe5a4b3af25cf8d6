//! The concurrency limit and the rate limit of one activity or one target.
//!
//! The concurrency permit comes first and the rate limit second, so that the rate stays exact however long an attempt
//! waits for its permit. Knows nothing about circuit breakers, nor about what is sent.

use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::hold::{HoldNotice, HoldReason};
use crate::transport::{CallFailure, PermitSource};

/// An attempt that waits longer for a limit is reported as held back.
const REPORTED_AFTER: Duration = Duration::from_secs(1);
pub(super) const CONCURRENCY_MAX: u32 = 10_000;
pub(super) const RATE_MIN: f64 = 0.001;
pub(super) const RATE_MAX: f64 = 1_000_000.0;

/// The limits that all activities at one target share. By default nothing is limited.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct TargetLimits {
    concurrency: Option<NonZeroU32>,
    rate_per_second: Option<f64>,
}

/// A limit outside its allowed range.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
pub enum LimitError {
    /// The limit of attempts in progress.
    #[error("invalid concurrency limit {0}: must be from 1 to {CONCURRENCY_MAX}")]
    Concurrency(u32),
    /// The limit of attempts started per second.
    #[error("invalid rate limit {0}: must be from {RATE_MIN} to {RATE_MAX}")]
    Rate(f64),
}

impl TargetLimits {
    /// Limits of attempts in progress at once, and of attempts started per second.
    pub fn new(concurrency: Option<u32>, rate_per_second: Option<f64>) -> Result<Self, LimitError> {
        let permits = |wanted| {
            let permits = NonZeroU32::new(wanted).filter(|permits| permits.get() <= CONCURRENCY_MAX);
            permits.ok_or(LimitError::Concurrency(wanted))
        };
        let rate = |wanted| {
            let usable = (RATE_MIN..=RATE_MAX).contains(&wanted);
            if usable { Ok(wanted) } else { Err(LimitError::Rate(wanted)) }
        };
        Ok(Self {
            concurrency: concurrency.map(permits).transpose()?,
            rate_per_second: rate_per_second.map(rate).transpose()?,
        })
    }
}

/// The limiter of one activity or of one target.
#[derive(Debug)]
pub(super) struct Limiter {
    /// The limited thing, for messages.
    owner: &'static str,
    permits: Option<Semaphore>,
    rate_limit: Option<Mutex<AttemptRateLimit>>,
}

/// The permit of one attempt.
#[derive(Debug)]
pub(super) struct LimiterPermit<'l> {
    _permit: Option<SemaphorePermit<'l>>,
}

/// Starts attempts at equal intervals.
#[derive(Debug)]
struct AttemptRateLimit {
    interval: Duration,
    next_at: Option<Instant>,
}

impl Limiter {
    pub(super) fn for_activity(concurrency: NonZeroU32, rate_per_second: Option<f64>) -> Self {
        Self::new("the activity", Some(concurrency), rate_per_second)
    }

    pub(super) fn for_target(limits: TargetLimits) -> Self {
        Self::new("the target", limits.concurrency, limits.rate_per_second)
    }

    fn new(owner: &'static str, concurrency: Option<NonZeroU32>, rate_per_second: Option<f64>) -> Self {
        let permits = concurrency.map(|permits| Semaphore::new(permits.get() as usize));
        Self {
            owner,
            permits,
            rate_limit: rate_per_second.map(|rate| Mutex::new(AttemptRateLimit::new(rate))),
        }
    }

    /// Waits for a permit, and then for the rate limit, at most until then. Reports a long wait.
    pub(super) async fn acquire(
        &self,
        until: Instant,
        caller: &impl PermitSource,
    ) -> Result<LimiterPermit<'_>, CallFailure> {
        let permit = match &self.permits {
            None => None,
            Some(permits) => Some(self.acquire_permit(permits, until, caller).await?),
        };
        if let Some(rate_limit) = &self.rate_limit {
            let now = Instant::now();
            let start = {
                let mut rate_limit = rate_limit.lock().unwrap_or_else(PoisonError::into_inner);
                rate_limit.reserve(now, until)
            };
            let busy = |wait| self.busy(HoldReason::RateLimit, "rate", Some(wait));
            let start = start.map_err(busy)?;
            if start.saturating_duration_since(now) > REPORTED_AFTER {
                self.report(HoldReason::RateLimit, "rate", start - now, caller);
            }
            sleep_until(start).await;
        }
        Ok(LimiterPermit { _permit: permit })
    }

    async fn acquire_permit<'l>(
        &self,
        permits: &'l Semaphore,
        until: Instant,
        caller: &impl PermitSource,
    ) -> Result<SemaphorePermit<'l>, CallFailure> {
        let busy = || self.busy(HoldReason::ConcurrencyLimit, "concurrency", None);
        if let Ok(permit) = permits.try_acquire() {
            return Ok(permit);
        }
        // One future for both waits: a new one would lose its place in the queue.
        let mut acquiring = pin!(permits.acquire());
        let reported_at = (Instant::now() + REPORTED_AFTER).min(until);
        let acquired = match timeout_at(reported_at, acquiring.as_mut()).await {
            Ok(acquired) => acquired,
            Err(_) => {
                self.report(HoldReason::ConcurrencyLimit, "concurrency", REPORTED_AFTER, caller);
                timeout_at(until, acquiring).await.map_err(|_| busy())?
            }
        };
        acquired.map_err(|_| busy())
    }

    fn report(&self, reason: HoldReason, limit: &str, retry_in: Duration, caller: &impl PermitSource) {
        let message = format!("waits for the {limit} limit of {}", self.owner);
        caller.hold_back(HoldNotice { reason, message, retry_in });
    }

    /// The number of attempts in progress, under a limiter with this capacity.
    pub(super) fn in_flight(&self, concurrency: NonZeroU32) -> usize {
        let free = self.permits.as_ref().map(Semaphore::available_permits);
        free.map_or(0, |free| (concurrency.get() as usize).saturating_sub(free))
    }

    fn busy(&self, reason: HoldReason, limit: &str, wait: Option<Duration>) -> CallFailure {
        let message = format!("{limit} limit of {} reached; attempt not sent", self.owner);
        CallFailure {
            retry_after_ms: wait.map(retry_after_millis),
            ..CallFailure::held(reason, "TargetBusy", message)
        }
    }
}

impl AttemptRateLimit {
    fn new(rate_per_second: f64) -> Self {
        Self { interval: Duration::from_secs_f64(1.0 / rate_per_second), next_at: None }
    }

    /// Reserves the time at which the next attempt may start; an error with the wait if that is after `until`.
    fn reserve(&mut self, now: Instant, until: Instant) -> Result<Instant, Duration> {
        let start = self.next_at.map_or(now, |next| next.max(now));
        if start > until {
            return Err(start - now);
        }
        self.next_at = Some(start + self.interval);
        Ok(start)
    }
}

/// A wait in milliseconds, at most the longest retry delay.
pub(super) fn retry_after_millis(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).min(crate::status::RETRY_AFTER_MS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_outside_its_range_is_rejected() {
        for wrong in [0, CONCURRENCY_MAX + 1, u32::MAX] {
            assert_eq!(TargetLimits::new(Some(wrong), None), Err(LimitError::Concurrency(wrong)));
        }
        for wrong in [0.0, -1.0, 1e-9, 1e9, f64::NAN, f64::INFINITY] {
            let error = TargetLimits::new(None, Some(wrong)).unwrap_err().to_string();
            assert!(error.starts_with(&format!("invalid rate limit {wrong}:")), "{error}");
        }
        assert_eq!(TargetLimits::new(None, None), Ok(TargetLimits::default()));
        assert!(TargetLimits::new(Some(CONCURRENCY_MAX), Some(RATE_MIN)).is_ok());
    }
}

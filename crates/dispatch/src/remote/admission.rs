//! Admits attempts to one activity: by the limits of the activity and of its target, and by the target's circuit
//! breaker.
//!
//! - Waiting is not part of an attempt: a burst that the target works off in time uses up no retries.
//! - An attempt that is not admitted has sent nothing, so a slow or dead target holds no more than its own permits.
//! - The limiter of the activity comes first: an activity that waits for its own rate limit holds no permit of a target
//!   that it shares with others.
//! - The circuit breaker is asked last. Whatever else an attempt needs is acquired in between, so only attempts that
//!   are about to leave hold it.
//! - While a trial attempt finds out whether the target has recovered, the others wait for its outcome. That uses up no
//!   retries.
//!
//! Knows nothing about connections.

use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::circuit_breaker::{AdmissionToken, BreakerRejection, BreakerSignal, CircuitBreaker, CircuitState};
use super::limiter::{Limiter, LimiterPermit, retry_after_millis};
use crate::hold::{HoldNotice, HoldReason};
use crate::transport::{CallFailure, PermitSource};

/// The admission control of one activity.
#[derive(Debug)]
pub(super) struct Admission {
    activity_limiter: Limiter,
    target_limiter: Arc<Limiter>,
    breaker: Arc<CircuitBreaker>,
}

/// The permits of one attempt, from the activity and from the target.
#[derive(Debug)]
pub(super) struct AdmissionPermits<'g> {
    _permits: [LimiterPermit<'g>; 2],
}

/// An admitted attempt. Dropping it frees its permits and reports its signal to the circuit breaker.
#[derive(Debug)]
pub(super) struct AttemptPermit<'g> {
    breaker: &'g CircuitBreaker,
    token: AdmissionToken,
    signal: BreakerSignal,
    _permits: AdmissionPermits<'g>,
}

impl Admission {
    pub(super) fn new(
        activity_limiter: Limiter,
        target_limiter: Arc<Limiter>,
        breaker: Arc<CircuitBreaker>,
    ) -> Self {
        Self { activity_limiter, target_limiter, breaker }
    }

    /// Waits for the permits of both limiters, at most until then. While the circuit is open, only a caller that lets
    /// its attempt be held back waits.
    pub(super) async fn acquire(
        &self,
        until: Instant,
        caller: &impl PermitSource,
    ) -> Result<AdmissionPermits<'_>, CallFailure> {
        // While the circuit is open, waiting for permits would be in vain.
        while let Some(rejection) = self.breaker.rejection(Instant::now()) {
            self.wait_for_circuit(rejection, until, caller).await?;
        }
        let activity = self.activity_limiter.acquire(until, caller).await?;
        let target = self.target_limiter.acquire(until, caller).await?;
        Ok(AdmissionPermits { _permits: [activity, target] })
    }

    /// Waits until a trial may begin, or for the end of one; an error if no time is left, or the caller does not want
    /// to wait for an open circuit.
    async fn wait_for_circuit(
        &self,
        rejection: BreakerRejection,
        until: Instant,
        caller: &impl PermitSource,
    ) -> Result<(), CallFailure> {
        let now = Instant::now();
        let (BreakerRejection::Open(left) | BreakerRejection::HalfOpen(left)) = rejection;
        let message = CIRCUIT_OPEN.to_owned();
        let held = caller.hold_back(HoldNotice { reason: HoldReason::CircuitOpen, message, retry_in: left });
        if let BreakerRejection::Open(left) = rejection {
            if !held || until <= now {
                return Err(circuit_open(left));
            }
            tokio::time::sleep_until(until.min(now + left)).await;
            return Ok(());
        }
        if until <= now {
            return Err(circuit_open(left));
        }
        let mut trial_ended = pin!(self.breaker.trial_ended());
        trial_ended.as_mut().enable();
        // The trial may have ended before the notification was enabled.
        if let Some(BreakerRejection::HalfOpen(_)) = self.breaker.rejection(now) {
            let waited = tokio::time::timeout_at(until.min(now + left), trial_ended).await;
            // After a timeout the caller checks the circuit again.
            drop(waited);
        }
        Ok(())
    }

    /// Admits an attempt that has its permits, unless the circuit is open. None while a trial is in progress: the
    /// caller waits for its end and acquires new permits. Does not wait: an admitted attempt leaves at once.
    pub(super) fn admit<'g>(
        &'g self,
        permits: AdmissionPermits<'g>,
        caller: &impl PermitSource,
    ) -> Result<Option<AttemptPermit<'g>>, CallFailure> {
        // The circuit may have changed while the attempt waited.
        match self.breaker.admit(Instant::now()) {
            Ok(token) => {
                let signal = BreakerSignal::Ignored;
                Ok(Some(AttemptPermit { breaker: &self.breaker, token, signal, _permits: permits }))
            }
            Err(BreakerRejection::HalfOpen(_)) => Ok(None),
            Err(BreakerRejection::Open(left)) => {
                let message = CIRCUIT_OPEN.to_owned();
                let notice = HoldNotice { reason: HoldReason::CircuitOpen, message, retry_in: left };
                if caller.hold_back(notice) { Ok(None) } else { Err(circuit_open(left)) }
            }
        }
    }

    /// The reason of a failure, as far as the circuit is known: after a failed connection that has opened it, or kept
    /// it open, the circuit decides when the target is tried again.
    pub(super) fn hold_reason(&self, reason: HoldReason) -> HoldReason {
        let decides = reason == HoldReason::NotConnected && self.breaker.rejection(Instant::now()).is_some();
        if decides { HoldReason::CircuitOpen } else { reason }
    }

    /// The number of attempts in progress.
    pub(super) fn in_flight(&self, concurrency: NonZeroU32) -> usize {
        self.activity_limiter.in_flight(concurrency)
    }

    /// The state of the target's circuit breaker.
    pub(super) fn circuit(&self) -> CircuitState {
        self.breaker.circuit()
    }
}

impl AttemptPermit<'_> {
    /// Sets the signal that is reported on drop. An attempt that is dropped without one is ignored.
    pub(super) fn record(&mut self, signal: BreakerSignal) {
        self.signal = signal;
    }
}

impl Drop for AttemptPermit<'_> {
    fn drop(&mut self) {
        self.breaker.report(self.token, self.signal, Instant::now());
    }
}

/// The message about an attempt that an open circuit holds back.
const CIRCUIT_OPEN: &str =
    "circuit breaker open: recent attempts to the target failed; this attempt was not sent";

fn circuit_open(left: Duration) -> CallFailure {
    CallFailure {
        retry_after_ms: Some(retry_after_millis(left)),
        ..CallFailure::held(HoldReason::CircuitOpen, "CircuitOpen", CIRCUIT_OPEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::circuit_breaker::BreakerConfig;
    use crate::remote::limiter::TargetLimits;
    use crate::transport::UnlimitedPermits;

    const SECOND: Duration = Duration::from_secs(1);

    fn admission(concurrency: u32, rate: Option<f64>) -> Admission {
        let open_duration_max = 30 * SECOND;
        let config = BreakerConfig { failure_threshold: 2, open_duration_max, ..BreakerConfig::default() };
        let activity = Limiter::for_activity(NonZeroU32::new(concurrency).unwrap(), rate);
        let target = Arc::new(Limiter::for_target(TargetLimits::default()));
        Admission::new(activity, target, Arc::new(CircuitBreaker::new(config)))
    }

    impl Admission {
        async fn acquire_and_admit(&self, until: Instant) -> Result<AttemptPermit<'_>, CallFailure> {
            loop {
                let permits = self.acquire(until, &UnlimitedPermits).await?;
                if let Some(attempt) = self.admit(permits, &UnlimitedPermits)? {
                    return Ok(attempt);
                }
            }
        }
    }

    fn failure_summary(result: Result<AttemptPermit<'_>, CallFailure>) -> (String, bool, bool, Option<u64>) {
        let failure = result.unwrap_err();
        (failure.code, failure.retryable, failure.outcome_unknown, failure.retry_after_ms)
    }

    #[tokio::test(start_paused = true)]
    async fn the_concurrency_limit_holds() {
        let admission = admission(2, None);
        let limit = Instant::now() + SECOND;
        let one = admission.acquire_and_admit(limit).await.unwrap();
        let _two = admission.acquire_and_admit(limit).await.unwrap();
        assert_eq!(admission.in_flight(NonZeroU32::new(2).unwrap()), 2);
        assert_eq!(
            failure_summary(admission.acquire_and_admit(limit).await),
            ("TargetBusy".to_owned(), true, false, None)
        );
        assert_eq!(Instant::now(), limit, "it waited as long as it could");
        let waiting = admission.acquire_and_admit(limit + SECOND);
        let leaving = async {
            tokio::task::yield_now().await;
            drop(one);
        };
        assert!(tokio::join!(waiting, leaving).0.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn the_rate_limit_holds() {
        let admission = admission(100, Some(10.0));
        let begun = Instant::now();
        for number in 0..25_u32 {
            drop(admission.acquire_and_admit(begun + 60 * SECOND).await.unwrap());
            assert_eq!(begun.elapsed().as_millis() / 100, u128::from(number), "one each tenth of a second");
        }
        tokio::time::advance(10 * SECOND).await;
        let idle = Instant::now();
        for _ in 0..3 {
            drop(admission.acquire_and_admit(idle + SECOND).await.unwrap());
        }
        assert!(idle.elapsed() >= SECOND / 5, "unused rate is not saved up");
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_that_would_be_too_late_is_rejected_at_once_and_not_reserved() {
        let admission = admission(100, Some(0.1));
        let begun = Instant::now();
        drop(admission.acquire_and_admit(begun + SECOND).await.unwrap());
        for _ in 0..3 {
            assert_eq!(
                failure_summary(admission.acquire_and_admit(begun + SECOND).await),
                ("TargetBusy".to_owned(), true, false, Some(10_000))
            );
        }
        assert_eq!(Instant::now(), begun, "no attempt waited in vain");
        drop(admission.acquire_and_admit(begun + 10 * SECOND).await.unwrap());
        assert_eq!(begun.elapsed().as_secs(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn an_open_circuit_rejects_attempts_at_once() {
        let admission = admission(1, None);
        let begun = Instant::now();
        for _ in 0..2 {
            admission.acquire_and_admit(begun + SECOND).await.unwrap().record(BreakerSignal::Failure);
        }
        assert_eq!(admission.circuit(), CircuitState::Open);
        assert_eq!(
            failure_summary(admission.acquire_and_admit(begun + 60 * SECOND).await),
            ("CircuitOpen".to_owned(), true, false, Some(1_000))
        );
        assert_eq!(Instant::now(), begun);
        tokio::time::advance(SECOND).await;
        admission.acquire_and_admit(begun + 60 * SECOND).await.unwrap().record(BreakerSignal::Success);
        assert_eq!(admission.circuit(), CircuitState::Closed);
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_waited_while_the_circuit_opened_is_rejected() {
        let admission = admission(1, None);
        let limit = Instant::now() + 60 * SECOND;
        admission.acquire_and_admit(limit).await.unwrap().record(BreakerSignal::Failure);
        let mut last = admission.acquire_and_admit(limit).await.unwrap();
        let failing = async {
            tokio::task::yield_now().await;
            last.record(BreakerSignal::Failure);
            drop(last);
        };
        let (waited, ()) = tokio::join!(admission.acquire_and_admit(limit), failing);
        assert_eq!(failure_summary(waited).0, "CircuitOpen");
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_during_a_trial_wait_for_its_outcome_and_no_longer() {
        for signal in [BreakerSignal::Success, BreakerSignal::Failure] {
            let admission = admission(8, None);
            let begun = Instant::now();
            let limit = begun + 60 * SECOND;
            for _ in 0..2 {
                admission.acquire_and_admit(limit).await.unwrap().record(BreakerSignal::Failure);
            }
            tokio::time::advance(SECOND).await;
            let mut trial = admission.acquire_and_admit(limit).await.unwrap();
            let ending = async {
                tokio::time::sleep(SECOND / 2).await;
                trial.record(signal);
                drop(trial);
            };
            let (one, two, ()) =
                tokio::join!(admission.acquire_and_admit(limit), admission.acquire_and_admit(limit), ending);
            assert_eq!(begun.elapsed(), SECOND + SECOND / 2, "{signal:?}");
            if signal == BreakerSignal::Success {
                assert!(one.is_ok() && two.is_ok());
            } else {
                let open = ("CircuitOpen".to_owned(), true, false, Some(2_000));
                assert_eq!((failure_summary(one), failure_summary(two)), (open.clone(), open));
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_without_time_left_stops_waiting_for_a_trial() {
        let admission = admission(8, None);
        let begun = Instant::now();
        for _ in 0..2 {
            admission.acquire_and_admit(begun + SECOND).await.unwrap().record(BreakerSignal::Failure);
        }
        tokio::time::advance(SECOND).await;
        let _trial = admission.acquire_and_admit(begun + 9 * SECOND).await.unwrap();
        assert_eq!(failure_summary(admission.acquire_and_admit(begun + 3 * SECOND).await).0, "CircuitOpen");
        assert_eq!(begun.elapsed(), 3 * SECOND, "it waited as long as it could");
    }

    #[tokio::test(start_paused = true)]
    async fn an_abandoned_attempt_frees_its_permits_and_gives_no_signal() {
        let admission = admission(1, None);
        let limit = Instant::now() + SECOND;
        for _ in 0..10 {
            drop(admission.acquire_and_admit(limit).await.unwrap());
        }
        assert_eq!((admission.circuit(), admission.in_flight(NonZeroU32::MIN)), (CircuitState::Closed, 0));
    }
}

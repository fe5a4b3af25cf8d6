//! The circuit breaker of one target: a target that keeps failing is not called, except by one trial attempt now and
//! then.
//!
//! ```text
//!  closed ──N failures in a row──► open ──open duration is over──► half open: one attempt is the trial
//!    ▲                              ▲ open duration doubles, up to a limit       │
//!    └───────── it succeeds ────────┼──────── it fails ◄─────────────────────────┘
//! ```
//! Reads no clock and waits for nothing: times are passed in, and attempts that wait for a trial are woken when it
//! ends. Knows nothing about what is sent.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

/// When a circuit opens, and how long it stays open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BreakerConfig {
    /// Failures in a row that open the circuit.
    pub failure_threshold: u32,
    /// How long it stays open the first time.
    pub open_duration: Duration,
    /// The longest open duration. Calls are held back for as long, so this bounds how long after the return of a target
    /// the first call is sent.
    pub open_duration_max: Duration,
}

impl BreakerConfig {
    /// The longest open duration that can be configured; longer ones are cut to it.
    pub const OPEN_DURATION_LIMIT: Duration = Duration::from_secs(24 * 3_600);
    /// How long one trial keeps other attempts waiting, unless the open duration is longer: it may be slow to answer.
    const TRIAL_DURATION_MAX: Duration = Duration::from_secs(30);
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            failure_threshold: 10,
            open_duration: Duration::from_secs(1),
            open_duration_max: Duration::from_millis(1_500),
        }
    }
}

/// The state of the circuit to a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CircuitState {
    /// All attempts are admitted.
    Closed,
    /// No attempt is admitted.
    Open,
    /// One attempt is admitted as a trial.
    HalfOpen,
}

/// The breaker of one target.
#[derive(Debug)]
pub(super) struct CircuitBreaker {
    config: BreakerConfig,
    state: Mutex<BreakerState>,
    trial_ended: Notify,
}

/// Why an attempt is not admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BreakerRejection {
    /// The circuit stays open for this long, whatever happens.
    Open(Duration),
    /// A trial is in progress: wait for its end, but no longer than this.
    HalfOpen(Duration),
}

#[derive(Debug)]
struct BreakerState {
    phase: BreakerPhase,
    /// Incremented whenever the phase changes: signals of attempts that were admitted before are ignored.
    generation: u64,
}

#[derive(Debug)]
enum BreakerPhase {
    Closed { failures: u32 },
    Open { until: Instant, open_duration: Duration },
    HalfOpen { since: Instant, open_duration: Duration },
}

/// Identifies the generation in which an attempt was admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct AdmissionToken(u64);

/// The condition of the target, as one attempt saw it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BreakerSignal {
    /// The target answers.
    Success,
    /// The target does not answer, or is failing.
    Failure,
    /// The attempt says nothing: it did not call the target, or was abandoned.
    Ignored,
}

impl CircuitBreaker {
    pub(super) fn new(mut config: BreakerConfig) -> Self {
        // Adding a duration that is too long to the current time would panic.
        config.open_duration = config.open_duration.min(BreakerConfig::OPEN_DURATION_LIMIT);
        config.open_duration_max = config.open_duration_max.min(BreakerConfig::OPEN_DURATION_LIMIT);
        let state = BreakerState { phase: BreakerPhase::Closed { failures: 0 }, generation: 0 };
        Self { config, state: Mutex::new(state), trial_ended: Notify::new() }
    }

    /// Admits an attempt, or says why not.
    pub(super) fn admit(&self, now: Instant) -> Result<AdmissionToken, BreakerRejection> {
        let mut state = self.state();
        if let Some(rejection) = self.rejection_in(&state, now) {
            return Err(rejection);
        }
        if let BreakerPhase::Open { open_duration, .. } | BreakerPhase::HalfOpen { open_duration, .. } =
            state.phase
        {
            state.transition(BreakerPhase::HalfOpen { since: now, open_duration });
        }
        Ok(AdmissionToken(state.generation))
    }

    /// Why an attempt would be rejected; none if it would be admitted. Changes nothing.
    pub(super) fn rejection(&self, now: Instant) -> Option<BreakerRejection> {
        self.rejection_in(&self.state(), now)
    }

    fn rejection_in(&self, state: &BreakerState, now: Instant) -> Option<BreakerRejection> {
        let (until, rejection): (Instant, fn(Duration) -> BreakerRejection) = match state.phase {
            BreakerPhase::Closed { .. } => return None,
            BreakerPhase::Open { until, .. } => (until, BreakerRejection::Open),
            BreakerPhase::HalfOpen { since, .. } => {
                let patience = self.config.open_duration_max.max(BreakerConfig::TRIAL_DURATION_MAX);
                (since + patience, BreakerRejection::HalfOpen)
            }
        };
        until.checked_duration_since(now).filter(|left| !left.is_zero()).map(rejection)
    }

    /// Completes when a trial ends, counted from when the future is first polled or enabled.
    pub(super) fn trial_ended(&self) -> Notified<'_> {
        self.trial_ended.notified()
    }

    /// Reports the signal of an admitted attempt.
    pub(super) fn report(&self, token: AdmissionToken, signal: BreakerSignal, now: Instant) {
        let mut state = self.state();
        if state.generation != token.0 {
            return;
        }
        let BreakerConfig { failure_threshold, open_duration: first, open_duration_max } = self.config;
        let next = match (&mut state.phase, signal) {
            (BreakerPhase::Closed { failures }, BreakerSignal::Success) => {
                *failures = 0;
                return;
            }
            (BreakerPhase::Closed { failures }, BreakerSignal::Failure) => {
                *failures = failures.saturating_add(1);
                if *failures < failure_threshold {
                    return;
                }
                BreakerPhase::Open { until: now + first, open_duration: first }
            }
            (BreakerPhase::HalfOpen { .. }, BreakerSignal::Success) => BreakerPhase::Closed { failures: 0 },
            (BreakerPhase::HalfOpen { open_duration, .. }, BreakerSignal::Failure) => {
                let open_duration = open_duration.saturating_mul(2).min(open_duration_max);
                BreakerPhase::Open { until: now + open_duration, open_duration }
            }
            // The trial gave no signal, so the next attempt is a trial.
            (BreakerPhase::HalfOpen { open_duration, .. }, BreakerSignal::Ignored) => {
                BreakerPhase::Open { until: now, open_duration: *open_duration }
            }
            (BreakerPhase::Closed { .. }, BreakerSignal::Ignored) | (BreakerPhase::Open { .. }, _) => return,
        };
        let was_trial = matches!(state.phase, BreakerPhase::HalfOpen { .. });
        state.transition(next);
        drop(state);
        if was_trial {
            self.trial_ended.notify_waiters();
        }
    }

    /// The current state of the circuit.
    pub(super) fn circuit(&self) -> CircuitState {
        match self.state().phase {
            BreakerPhase::Closed { .. } => CircuitState::Closed,
            BreakerPhase::Open { .. } => CircuitState::Open,
            BreakerPhase::HalfOpen { .. } => CircuitState::HalfOpen,
        }
    }

    fn state(&self) -> MutexGuard<'_, BreakerState> {
        // Nothing that is done under the lock can panic half way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BreakerState {
    fn transition(&mut self, phase: BreakerPhase) {
        self.phase = phase;
        self.generation += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn breaker() -> (CircuitBreaker, Instant) {
        (
            CircuitBreaker::new(BreakerConfig {
                failure_threshold: 3,
                open_duration_max: 30 * SECOND,
                ..BreakerConfig::default()
            }),
            Instant::now(),
        )
    }

    fn report_attempt(breaker: &CircuitBreaker, signal: BreakerSignal, now: Instant) {
        breaker.report(breaker.admit(now).unwrap(), signal, now);
    }

    #[test]
    fn failures_in_a_row_open_the_circuit_and_a_success_resets_the_count() {
        let (breaker, now) = breaker();
        for signal in [
            BreakerSignal::Failure,
            BreakerSignal::Failure,
            BreakerSignal::Success,
            BreakerSignal::Failure,
            BreakerSignal::Ignored,
            BreakerSignal::Failure,
        ] {
            report_attempt(&breaker, signal, now);
            assert_eq!(breaker.circuit(), CircuitState::Closed);
        }
        report_attempt(&breaker, BreakerSignal::Failure, now);
        let rejection = BreakerRejection::Open(SECOND);
        assert_eq!((breaker.admit(now), breaker.rejection(now)), (Err(rejection), Some(rejection)));
    }

    #[test]
    fn after_the_open_duration_one_trial_is_admitted_and_no_other_attempt() {
        let (breaker, now) = breaker();
        (0..3).for_each(|_| report_attempt(&breaker, BreakerSignal::Failure, now));
        let later = now + SECOND;
        assert_eq!(breaker.rejection(later), None);
        let trial = breaker.admit(later).unwrap();
        let rejected = Err(BreakerRejection::HalfOpen(30 * SECOND));
        assert_eq!((breaker.circuit(), breaker.admit(later)), (CircuitState::HalfOpen, rejected));
        breaker.report(trial, BreakerSignal::Success, later);
        assert_eq!(breaker.circuit(), CircuitState::Closed);
        (0..2).for_each(|_| report_attempt(&breaker, BreakerSignal::Failure, later));
        assert_eq!(breaker.circuit(), CircuitState::Closed, "the count starts at zero");
    }

    #[test]
    fn the_open_duration_doubles_up_to_its_limit_and_a_success_resets_it() {
        let (breaker, mut now) = breaker();
        (0..3).for_each(|_| report_attempt(&breaker, BreakerSignal::Failure, now));
        let mut seconds = Vec::new();
        for _ in 0..7 {
            let Some(BreakerRejection::Open(open_duration)) = breaker.rejection(now) else { panic!() };
            seconds.push(open_duration.as_secs());
            assert!(breaker.admit(now + open_duration - Duration::from_millis(1)).is_err());
            now += open_duration;
            report_attempt(&breaker, BreakerSignal::Failure, now);
        }
        assert_eq!(seconds, [1, 2, 4, 8, 16, 30, 30]);
        now += 30 * SECOND;
        report_attempt(&breaker, BreakerSignal::Success, now);
        (0..3).for_each(|_| report_attempt(&breaker, BreakerSignal::Failure, now));
        assert_eq!(breaker.rejection(now), Some(BreakerRejection::Open(SECOND)));
    }

    #[test]
    fn an_endless_open_duration_is_cut_to_a_day() {
        let forever = BreakerConfig {
            failure_threshold: 1,
            open_duration: Duration::MAX,
            open_duration_max: Duration::MAX,
        };
        let breaker = CircuitBreaker::new(forever);
        let now = Instant::now();
        report_attempt(&breaker, BreakerSignal::Failure, now);
        assert_eq!(breaker.rejection(now), Some(BreakerRejection::Open(BreakerConfig::OPEN_DURATION_LIMIT)));
        let now = now + BreakerConfig::OPEN_DURATION_LIMIT;
        breaker.admit(now).unwrap();
        assert_eq!(breaker.admit(now), Err(BreakerRejection::HalfOpen(BreakerConfig::OPEN_DURATION_LIMIT)));
    }

    #[test]
    fn a_trial_that_gives_no_signal_or_takes_too_long_makes_way_for_the_next() {
        let (breaker, now) = breaker();
        (0..3).for_each(|_| report_attempt(&breaker, BreakerSignal::Failure, now));
        let now = now + SECOND;
        report_attempt(&breaker, BreakerSignal::Ignored, now);
        let slow = breaker.admit(now).unwrap();
        assert!(breaker.admit(now + 29 * SECOND).is_err());
        let next = breaker.admit(now + 30 * SECOND).unwrap();
        breaker.report(slow, BreakerSignal::Success, now + 30 * SECOND);
        assert_eq!(
            breaker.circuit(),
            CircuitState::HalfOpen,
            "the slow one belongs to an earlier generation"
        );
        breaker.report(next, BreakerSignal::Success, now + 30 * SECOND);
        assert_eq!(breaker.circuit(), CircuitState::Closed);
    }

    #[test]
    fn attempts_admitted_before_the_circuit_opened_do_not_change_it() {
        let (breaker, now) = breaker();
        let early: Vec<AdmissionToken> = (0..10).map(|_| breaker.admit(now).unwrap()).collect();
        for token in &early[..3] {
            breaker.report(*token, BreakerSignal::Failure, now);
        }
        breaker.report(early[3], BreakerSignal::Success, now);
        breaker.report(early[4], BreakerSignal::Failure, now);
        assert_eq!(breaker.admit(now), Err(BreakerRejection::Open(SECOND)));
        let trial = breaker.admit(now + SECOND).unwrap();
        for token in &early[5..] {
            breaker.report(*token, BreakerSignal::Failure, now + SECOND);
        }
        breaker.report(trial, BreakerSignal::Success, now + SECOND);
        assert_eq!(breaker.circuit(), CircuitState::Closed);
    }
}

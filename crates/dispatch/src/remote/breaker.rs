//! The circuit breaker of one target: who has not answered for a while is not asked by everybody, but by one delivery now and then.
//!
//! ```text
//!  closed ──N troubles in a row──► open ──pause is over──► half open: one delivery is the trial
//!    ▲                              ▲ pause doubles, up to a limit       │
//!    └───────── it went well ───────┼──────── it did not ◄───────────────┘
//! ```
//! Reads no clock and waits for nothing: moments come in, and who waits for a trial is woken when it is over. Knows nothing of what is delivered.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

/// When a circuit opens, and for how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BreakerConfig {
    /// Troubles in a row that open it.
    pub troubles: u32,
    /// The first pause.
    pub pause: Duration,
    /// The longest pause; also how long one trial may keep others waiting.
    pub pause_max: Duration,
}

impl BreakerConfig {
    /// The longest pause that can be configured; longer ones are this long.
    pub const PAUSE_LIMIT: Duration = Duration::from_secs(24 * 3_600);
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self { troubles: 10, pause: Duration::from_secs(1), pause_max: Duration::from_secs(30) }
    }
}

/// Whether a target is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Circuit {
    /// By everybody.
    Closed,
    /// By nobody.
    Open,
    /// By one delivery, to see.
    HalfOpen,
}

/// The breaker of one target.
#[derive(Debug)]
pub(super) struct Breaker {
    config: BreakerConfig,
    state: Mutex<State>,
    turned: Notify,
}

/// Why a delivery is not let through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shut {
    /// For so long, whatever happens.
    For(Duration),
    /// Until the trial that is under way is over, and no longer than this.
    Trial(Duration),
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// Raised whenever the phase changes: what was let through before says nothing about now.
    era: u64,
}

#[derive(Debug)]
enum Phase {
    Closed { troubles: u32 },
    Open { until: Instant, pause: Duration },
    HalfOpen { since: Instant, pause: Duration },
}

/// What a delivery that was let through is known by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ticket(u64);

/// What a delivery showed of its target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// It is there and answers.
    Well,
    /// It is not, or is in trouble.
    Trouble,
    /// Nothing: it was not asked, or nobody waited for the answer.
    Nothing,
}

impl Breaker {
    pub(super) fn new(mut config: BreakerConfig) -> Self {
        // A moment that is too far away is none: adding to now would panic.
        config.pause = config.pause.min(BreakerConfig::PAUSE_LIMIT);
        config.pause_max = config.pause_max.min(BreakerConfig::PAUSE_LIMIT);
        let state = State { phase: Phase::Closed { troubles: 0 }, era: 0 };
        Self { config, state: Mutex::new(state), turned: Notify::new() }
    }

    /// Lets a delivery through, or says why not.
    pub(super) fn admit(&self, now: Instant) -> Result<Ticket, Shut> {
        let mut state = self.state();
        if let Some(shut) = self.shut_in(&state, now) {
            return Err(shut);
        }
        if let Phase::Open { pause, .. } | Phase::HalfOpen { pause, .. } = state.phase {
            state.turn(Phase::HalfOpen { since: now, pause });
        }
        Ok(Ticket(state.era))
    }

    /// Why nobody is let through; none if somebody would be. Takes no place.
    pub(super) fn shut(&self, now: Instant) -> Option<Shut> {
        self.shut_in(&self.state(), now)
    }

    fn shut_in(&self, state: &State, now: Instant) -> Option<Shut> {
        let (until, shut): (Instant, fn(Duration) -> Shut) = match state.phase {
            Phase::Closed { .. } => return None,
            Phase::Open { until, .. } => (until, Shut::For),
            Phase::HalfOpen { since, .. } => (since + self.config.pause_max, Shut::Trial),
        };
        until.checked_duration_since(now).filter(|left| !left.is_zero()).map(shut)
    }

    /// Ends when a trial is over, from when it is polled or enabled for the first time.
    pub(super) fn trial_over(&self) -> Notified<'_> {
        self.turned.notified()
    }

    /// What became of a delivery that was let through.
    pub(super) fn report(&self, ticket: Ticket, verdict: Verdict, now: Instant) {
        let mut state = self.state();
        if state.era != ticket.0 {
            return;
        }
        let BreakerConfig { troubles: troubles_max, pause: first, pause_max } = self.config;
        let next = match (&mut state.phase, verdict) {
            (Phase::Closed { troubles }, Verdict::Well) => {
                *troubles = 0;
                return;
            }
            (Phase::Closed { troubles }, Verdict::Trouble) => {
                *troubles = troubles.saturating_add(1);
                if *troubles < troubles_max {
                    return;
                }
                Phase::Open { until: now + first, pause: first }
            }
            (Phase::HalfOpen { .. }, Verdict::Well) => Phase::Closed { troubles: 0 },
            (Phase::HalfOpen { pause, .. }, Verdict::Trouble) => {
                let pause = pause.saturating_mul(2).min(pause_max);
                Phase::Open { until: now + pause, pause }
            }
            // The trial showed nothing, so the next delivery is one.
            (Phase::HalfOpen { pause, .. }, Verdict::Nothing) => Phase::Open { until: now, pause: *pause },
            (Phase::Closed { .. }, Verdict::Nothing) | (Phase::Open { .. }, _) => return,
        };
        let was_trial = matches!(state.phase, Phase::HalfOpen { .. });
        state.turn(next);
        drop(state);
        if was_trial {
            self.turned.notify_waiters();
        }
    }

    /// Whether the target is asked now.
    pub(super) fn circuit(&self) -> Circuit {
        match self.state().phase {
            Phase::Closed { .. } => Circuit::Closed,
            Phase::Open { .. } => Circuit::Open,
            Phase::HalfOpen { .. } => Circuit::HalfOpen,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here can panic half way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn turn(&mut self, phase: Phase) {
        self.phase = phase;
        self.era += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn breaker() -> (Breaker, Instant) {
        (Breaker::new(BreakerConfig { troubles: 3, ..BreakerConfig::default() }), Instant::now())
    }

    fn deliver(breaker: &Breaker, verdict: Verdict, now: Instant) {
        breaker.report(breaker.admit(now).unwrap(), verdict, now);
    }

    #[test]
    fn troubles_in_a_row_open_it_and_one_that_went_well_begins_the_row_anew() {
        let (breaker, now) = breaker();
        for verdict in [
            Verdict::Trouble,
            Verdict::Trouble,
            Verdict::Well,
            Verdict::Trouble,
            Verdict::Nothing,
            Verdict::Trouble,
        ] {
            deliver(&breaker, verdict, now);
            assert_eq!(breaker.circuit(), Circuit::Closed);
        }
        deliver(&breaker, Verdict::Trouble, now);
        let shut = Shut::For(SECOND);
        assert_eq!((breaker.admit(now), breaker.shut(now)), (Err(shut), Some(shut)));
    }

    #[test]
    fn after_the_pause_one_delivery_is_let_through_and_no_other() {
        let (breaker, now) = breaker();
        (0..3).for_each(|_| deliver(&breaker, Verdict::Trouble, now));
        let later = now + SECOND;
        assert_eq!(breaker.shut(later), None);
        let trial = breaker.admit(later).unwrap();
        let shut = Err(Shut::Trial(30 * SECOND));
        assert_eq!((breaker.circuit(), breaker.admit(later)), (Circuit::HalfOpen, shut));
        breaker.report(trial, Verdict::Well, later);
        assert_eq!(breaker.circuit(), Circuit::Closed);
        (0..2).for_each(|_| deliver(&breaker, Verdict::Trouble, later));
        assert_eq!(breaker.circuit(), Circuit::Closed, "the row begins anew");
    }

    #[test]
    fn the_pause_doubles_up_to_its_limit_and_begins_anew_once_it_went_well() {
        let (breaker, mut now) = breaker();
        (0..3).for_each(|_| deliver(&breaker, Verdict::Trouble, now));
        let mut pauses = Vec::new();
        for _ in 0..7 {
            let Some(Shut::For(pause)) = breaker.shut(now) else { panic!() };
            pauses.push(pause.as_secs());
            assert!(breaker.admit(now + pause - Duration::from_millis(1)).is_err());
            now += pause;
            deliver(&breaker, Verdict::Trouble, now);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
        now += 30 * SECOND;
        deliver(&breaker, Verdict::Well, now);
        (0..3).for_each(|_| deliver(&breaker, Verdict::Trouble, now));
        assert_eq!(breaker.shut(now), Some(Shut::For(SECOND)));
    }

    #[test]
    fn a_pause_without_end_is_one_of_a_day() {
        let forever = BreakerConfig { troubles: 1, pause: Duration::MAX, pause_max: Duration::MAX };
        let (breaker, now) = (Breaker::new(forever), Instant::now());
        deliver(&breaker, Verdict::Trouble, now);
        assert_eq!(breaker.shut(now), Some(Shut::For(BreakerConfig::PAUSE_LIMIT)));
        let now = now + BreakerConfig::PAUSE_LIMIT;
        breaker.admit(now).unwrap();
        assert_eq!(breaker.admit(now), Err(Shut::Trial(BreakerConfig::PAUSE_LIMIT)));
    }

    #[test]
    fn a_trial_that_shows_nothing_or_takes_too_long_makes_way_for_the_next() {
        let (breaker, now) = breaker();
        (0..3).for_each(|_| deliver(&breaker, Verdict::Trouble, now));
        let now = now + SECOND;
        deliver(&breaker, Verdict::Nothing, now);
        let slow = breaker.admit(now).unwrap();
        assert!(breaker.admit(now + 29 * SECOND).is_err());
        let next = breaker.admit(now + 30 * SECOND).unwrap();
        breaker.report(slow, Verdict::Well, now + 30 * SECOND);
        assert_eq!(breaker.circuit(), Circuit::HalfOpen, "the slow one speaks of another time");
        breaker.report(next, Verdict::Well, now + 30 * SECOND);
        assert_eq!(breaker.circuit(), Circuit::Closed);
    }

    #[test]
    fn what_was_let_through_before_it_opened_neither_closes_it_nor_lengthens_the_pause() {
        let (breaker, now) = breaker();
        let early: Vec<Ticket> = (0..10).map(|_| breaker.admit(now).unwrap()).collect();
        for ticket in &early[..3] {
            breaker.report(*ticket, Verdict::Trouble, now);
        }
        breaker.report(early[3], Verdict::Well, now);
        breaker.report(early[4], Verdict::Trouble, now);
        assert_eq!(breaker.admit(now), Err(Shut::For(SECOND)));
        let trial = breaker.admit(now + SECOND).unwrap();
        for ticket in &early[5..] {
            breaker.report(*ticket, Verdict::Trouble, now + SECOND);
        }
        breaker.report(trial, Verdict::Well, now + SECOND);
        assert_eq!(breaker.circuit(), Circuit::Closed);
    }
}

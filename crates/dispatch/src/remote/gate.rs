//! The gate before an activity: its own line and its target's, and nobody gets through while its target's circuit is open.
//!
//! Waiting is no part of an attempt: a burst that the target works off in time uses up nobody's retries. Whoever does not get through has
//! sent nothing, so a slow or dead target holds no more than its own places. The activity's line comes first: one that is slow by its own pace
//! holds nothing of a target that it shares with others. The circuit is asked last, so that what else a delivery needs is taken in between by
//! those who are about to leave. While one delivery is out to see whether the target is well again, the others wait for what it finds: nobody's
//! patience is used up by that. Knows nothing of connections.

use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::breaker::{Breaker, Circuit, Shut, Ticket, Verdict};
use super::limits::{Line, Place, millis};
use crate::transport::Failure;

/// The gate of one activity.
#[derive(Debug)]
pub(super) struct Gate {
    own: Line,
    target: Arc<Line>,
    breaker: Arc<Breaker>,
}

/// The turn of one delivery, with its places before the activity and before the target.
#[derive(Debug)]
pub(super) struct Turn<'g> {
    _places: [Place<'g>; 2],
}

/// A delivery that is under way. Its places are free again when this is dropped.
#[derive(Debug)]
pub(super) struct Passage<'g> {
    breaker: &'g Breaker,
    ticket: Ticket,
    verdict: Verdict,
    _turn: Turn<'g>,
}

impl Gate {
    pub(super) fn new(own: Line, target: Arc<Line>, breaker: Arc<Breaker>) -> Self {
        Self { own, target, breaker }
    }

    /// Waits for a turn, at most until then.
    pub(super) async fn turn(&self, until: Instant) -> Result<Turn<'_>, Failure> {
        // Nobody waits in a line that leads nowhere.
        while let Some(shut) = self.breaker.shut(Instant::now()) {
            self.trial_over(shut, until).await?;
        }
        let own = self.own.turn(until).await?;
        let target = self.target.turn(until).await?;
        Ok(Turn { _places: [own, target] })
    }

    /// Waits for the end of a trial; an error if there is none, or no time for it.
    async fn trial_over(&self, shut: Shut, until: Instant) -> Result<(), Failure> {
        let left = match shut {
            Shut::For(left) => return Err(circuit_open(left)),
            Shut::Trial(left) => left,
        };
        let now = Instant::now();
        if until <= now {
            return Err(circuit_open(left));
        }
        let mut over = pin!(self.breaker.trial_over());
        over.as_mut().enable();
        // It may have ended before anybody listened.
        if let Some(Shut::Trial(_)) = self.breaker.shut(now) {
            let waited = tokio::time::timeout_at(until.min(now + left), over).await;
            // Whoever waited in vain looks again.
            drop(waited);
        }
        Ok(())
    }

    /// Lets through whoever has its turn, unless the circuit is open; nobody while a trial is under way, which is to be waited for with another
    /// turn. Waits for nothing: what is let through leaves.
    pub(super) fn pass<'g>(&'g self, turn: Turn<'g>) -> Result<Option<Passage<'g>>, Failure> {
        // Much may have happened since it began to wait.
        match self.breaker.admit(Instant::now()) {
            Ok(ticket) => {
                let verdict = Verdict::Nothing;
                Ok(Some(Passage { breaker: &self.breaker, ticket, verdict, _turn: turn }))
            }
            Err(Shut::Trial(_)) => Ok(None),
            Err(Shut::For(left)) => Err(circuit_open(left)),
        }
    }

    /// Deliveries under way.
    pub(super) fn under_way(&self, concurrency: NonZeroU32) -> usize {
        self.own.under_way(concurrency)
    }

    /// Whether the target is asked now.
    pub(super) fn circuit(&self) -> Circuit {
        self.breaker.circuit()
    }
}

impl Passage<'_> {
    /// What the delivery showed of its target. A delivery that is dropped before shows nothing.
    pub(super) fn found(&mut self, verdict: Verdict) {
        self.verdict = verdict;
    }
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        self.breaker.report(self.ticket, self.verdict, Instant::now());
    }
}

fn circuit_open(left: Duration) -> Failure {
    let message = "the target did not answer the deliveries before this one, which was not sent";
    Failure { retry_after_ms: Some(millis(left)), ..Failure::retryable("CircuitOpen", message) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::breaker::BreakerConfig;
    use crate::remote::limits::TargetLimits;

    const SECOND: Duration = Duration::from_secs(1);

    fn gate(concurrency: u32, rate: Option<f64>) -> Gate {
        let config = BreakerConfig { troubles: 2, ..BreakerConfig::default() };
        let own = Line::of_activity(NonZeroU32::new(concurrency).unwrap(), rate);
        let target = Arc::new(Line::of_target(TargetLimits::default()));
        Gate::new(own, target, Arc::new(Breaker::new(config)))
    }

    impl Gate {
        async fn enter(&self, until: Instant) -> Result<Passage<'_>, Failure> {
            loop {
                let turn = self.turn(until).await?;
                if let Some(passage) = self.pass(turn)? {
                    return Ok(passage);
                }
            }
        }
    }

    fn told(entered: Result<Passage<'_>, Failure>) -> (String, bool, bool, Option<u64>) {
        let failure = entered.unwrap_err();
        (failure.code, failure.retryable, failure.outcome_unknown, failure.retry_after_ms)
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_deliveries_are_under_way_than_may_be() {
        let (gate, limit) = (gate(2, None), Instant::now() + SECOND);
        let (one, _two) = (gate.enter(limit).await.unwrap(), gate.enter(limit).await.unwrap());
        assert_eq!(gate.under_way(NonZeroU32::new(2).unwrap()), 2);
        assert_eq!(told(gate.enter(limit).await), ("TargetBusy".to_owned(), true, false, None));
        assert_eq!(Instant::now(), limit, "it waited all its time");
        let waiting = gate.enter(limit + SECOND);
        let leaving = async {
            tokio::task::yield_now().await;
            drop(one);
        };
        assert!(tokio::join!(waiting, leaving).0.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_deliveries_are_begun_in_a_second_than_may_be() {
        let (gate, begun) = (gate(100, Some(10.0)), Instant::now());
        for number in 0..25_u32 {
            drop(gate.enter(begun + 60 * SECOND).await.unwrap());
            assert_eq!(begun.elapsed().as_millis() / 100, u128::from(number), "one each tenth of a second");
        }
        tokio::time::advance(10 * SECOND).await;
        let idle = Instant::now();
        for _ in 0..3 {
            drop(gate.enter(idle + SECOND).await.unwrap());
        }
        assert!(idle.elapsed() >= SECOND / 5, "what was not used is not made up for");
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_comes_too_late_is_refused_at_once_and_not_taken() {
        let (gate, begun) = (gate(100, Some(0.1)), Instant::now());
        drop(gate.enter(begun + SECOND).await.unwrap());
        for _ in 0..3 {
            assert_eq!(
                told(gate.enter(begun + SECOND).await),
                ("TargetBusy".to_owned(), true, false, Some(10_000))
            );
        }
        assert_eq!(Instant::now(), begun, "nobody waited for nothing");
        drop(gate.enter(begun + 10 * SECOND).await.unwrap());
        assert_eq!(begun.elapsed().as_secs(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn while_the_circuit_is_open_nobody_gets_through_or_waits() {
        let (gate, begun) = (gate(1, None), Instant::now());
        for _ in 0..2 {
            gate.enter(begun + SECOND).await.unwrap().found(Verdict::Trouble);
        }
        assert_eq!(gate.circuit(), Circuit::Open);
        assert_eq!(
            told(gate.enter(begun + 60 * SECOND).await),
            ("CircuitOpen".to_owned(), true, false, Some(1_000))
        );
        assert_eq!(Instant::now(), begun);
        tokio::time::advance(SECOND).await;
        gate.enter(begun + 60 * SECOND).await.unwrap().found(Verdict::Well);
        assert_eq!(gate.circuit(), Circuit::Closed);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waited_while_the_circuit_opened_does_not_get_through() {
        let (gate, limit) = (gate(1, None), Instant::now() + 60 * SECOND);
        gate.enter(limit).await.unwrap().found(Verdict::Trouble);
        let mut last = gate.enter(limit).await.unwrap();
        let failing = async {
            tokio::task::yield_now().await;
            last.found(Verdict::Trouble);
            drop(last);
        };
        let (waited, ()) = tokio::join!(gate.enter(limit), failing);
        assert_eq!(told(waited).0, "CircuitOpen");
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_comes_during_a_trial_waits_for_what_it_finds_and_no_longer() {
        for verdict in [Verdict::Well, Verdict::Trouble] {
            let (gate, begun) = (gate(8, None), Instant::now());
            let limit = begun + 60 * SECOND;
            for _ in 0..2 {
                gate.enter(limit).await.unwrap().found(Verdict::Trouble);
            }
            tokio::time::advance(SECOND).await;
            let mut trial = gate.enter(limit).await.unwrap();
            let ending = async {
                tokio::time::sleep(SECOND / 2).await;
                trial.found(verdict);
                drop(trial);
            };
            let (one, two, ()) = tokio::join!(gate.enter(limit), gate.enter(limit), ending);
            assert_eq!(begun.elapsed(), SECOND + SECOND / 2, "{verdict:?}");
            if verdict == Verdict::Well {
                assert!(one.is_ok() && two.is_ok());
            } else {
                let open = ("CircuitOpen".to_owned(), true, false, Some(2_000));
                assert_eq!((told(one), told(two)), (open.clone(), open));
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_no_time_left_does_not_wait_for_a_trial() {
        let (gate, begun) = (gate(8, None), Instant::now());
        for _ in 0..2 {
            gate.enter(begun + SECOND).await.unwrap().found(Verdict::Trouble);
        }
        tokio::time::advance(SECOND).await;
        let _trial = gate.enter(begun + 9 * SECOND).await.unwrap();
        assert_eq!(told(gate.enter(begun + 3 * SECOND).await).0, "CircuitOpen");
        assert_eq!(begun.elapsed(), 3 * SECOND, "it waited all its time");
    }

    #[tokio::test(start_paused = true)]
    async fn a_delivery_that_is_given_up_frees_its_place_and_says_nothing() {
        let (gate, limit) = (gate(1, None), Instant::now() + SECOND);
        for _ in 0..10 {
            drop(gate.enter(limit).await.unwrap());
        }
        assert_eq!((gate.circuit(), gate.under_way(NonZeroU32::MIN)), (Circuit::Closed, 0));
    }
}

//! Whether a failed delivery is tried again, and when. Decided here and nowhere else.

use crate::command::CommandKind;
use crate::definition::{RetryPolicy, StateKind};
use crate::failure::{Failure, code};
use crate::history::Fact;
use crate::ids::{BranchId, CommandId, digest_number};
use crate::instance::{Corrupt, Delivery, Phase};
use crate::time::{Duration, Timestamp};
use crate::turn::GivenUp;

use super::pass::Pass;

/// What comes of a failed delivery.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Verdict {
    /// Again, not earlier than this.
    Again(Timestamp),
    /// Never, for this reason; the step has failed with this.
    Never(GivenUp, Failure),
}

/// A delivery that failed, as it was told.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct FailedDelivery {
    /// Possible deliveries before it.
    pub(super) attempt: u32,
    pub(super) failure: Failure,
    /// When it makes sense to come back, at the earliest, if whoever was called said so.
    pub(super) not_before: Option<Timestamp>,
    /// Whether it may have reached anybody. One that did not leaves its number to the next.
    pub(super) sent: bool,
}

/// Decides on a failure, the `failures`-th of its step. Whoever was called may ask for more patience than the policy has, not for less.
pub(super) fn judge(
    policy: &RetryPolicy,
    failures: u32,
    failed: FailedDelivery,
    deadline: Option<Timestamp>,
    now: Timestamp,
    jitter: u64,
) -> Verdict {
    let FailedDelivery { failure, not_before: asked_for, .. } = failed;
    let final_code = policy.non_retryable.contains(&failure.code);
    if !failure.retryable || final_code {
        return Verdict::Never(GivenUp::Final, failure);
    }
    if failures >= policy.max_attempts {
        return Verdict::Never(GivenUp::Exhausted, failure);
    }
    let own = now.plus(delay(policy, failures, jitter));
    let not_before = asked_for.map_or(own, |asked_for| asked_for.max(own));
    match deadline {
        Some(deadline) if not_before >= deadline => {
            let message = format!(
                "no time is left to try again; the last error was {}: {}",
                failure.code, failure.message
            );
            Verdict::Never(GivenUp::NoTime, Failure::last(code::TIMEOUT, message).bounded())
        }
        _ => Verdict::Again(not_before),
    }
}

/// The wait after the n-th failure, and none of it longer than the cap.
pub(crate) fn nominal_delay(policy: &RetryPolicy, failures: u32) -> Duration {
    let exponent = i32::try_from(failures.saturating_sub(1)).unwrap_or(i32::MAX);
    #[expect(clippy::cast_precision_loss, reason = "a hundred years of milliseconds are exact in f64")]
    let ms = policy.initial_interval.0 as f64 * policy.backoff_coefficient.powi(exponent);
    let cap = policy.max_interval.unwrap_or(Duration::MAX).min(Duration::MAX);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates, and is capped below"
    )]
    let ms = ms as u64;
    Duration(ms).min(cap)
}

/// Between half of the nominal wait and all of it, so that what failed together does not come back together.
fn delay(policy: &RetryPolicy, failures: u32, jitter: u64) -> Duration {
    let nominal = nominal_delay(policy, failures).0;
    let half = nominal / 2;
    Duration(nominal - jitter % half.saturating_add(1))
}

impl Pass<'_> {
    /// A delivery failed: try it again, or let the step fail.
    pub(super) fn delivery_failed(
        &mut self,
        branch: BranchId,
        command: CommandId,
        failed: FailedDelivery,
    ) -> Result<(), Corrupt> {
        let FailedDelivery { attempt, ref failure, sent, .. } = failed;
        let (at, state) = self.place(branch)?;
        let (own_policy, activity, mut delivery) = match (&at.phase, &state.kind) {
            (Phase::Task(delivery), StateKind::Task(task)) => {
                (task.retry_policy.as_ref(), task.call.activity.clone(), *delivery)
            }
            (Phase::Undoing(undoing), kind) => {
                let Some(delivery) = undoing.delivery else { return Ok(()) };
                let (policy, activity) = self.undo_policy(undoing, kind)?;
                (policy, activity, delivery)
            }
            (Phase::Notifying(delivery), _) => (None, self.notify_activity().to_owned(), *delivery),
            _ => return Ok(()),
        };
        if attempt < delivery.attempt {
            // Its failure has been counted, and another delivery is out.
            let error = failed.failure;
            self.record(Fact::TaskFailed { command, attempt, error, retry_at: None, late: true });
            return Ok(());
        }
        delivery.failures = delivery.failures.saturating_add(1);
        self.count_failure(failure);
        let seed = self.instance.origin().seed;
        let jitter =
            digest_number(&[&seed.to_be_bytes(), &command.0.to_be_bytes(), &delivery.failures.to_be_bytes()]);
        let policy = self.plan.policy(own_policy, &activity);
        let error = failure.clone();
        match judge(policy, delivery.failures, failed, delivery.deadline, self.now, jitter) {
            Verdict::Again(not_before) => {
                let retry_at = Some(not_before);
                self.record(Fact::TaskFailed { command, attempt, error, retry_at, late: false });
                let attempt = attempt.saturating_add(u32::from(sent));
                delivery.attempt = attempt;
                self.emit(CommandKind::Redeliver { dispatch: command, attempt, not_before });
                self.set_delivery(branch, delivery)
            }
            Verdict::Never(why, last) => {
                self.given_up.push((command, why));
                self.record(Fact::TaskFailed { command, attempt, error, retry_at: None, late: false });
                self.delivery_gave_up(branch, command, last)
            }
        }
    }

    fn set_delivery(&mut self, branch: BranchId, delivery: Delivery) -> Result<(), Corrupt> {
        self.instance.change_branch(branch, |at| match &mut at.phase {
            Phase::Task(own) | Phase::Notifying(own) => *own = delivery,
            Phase::Undoing(undoing) => undoing.delivery = Some(delivery),
            _ => {}
        })
    }

    fn delivery_gave_up(
        &mut self,
        branch: BranchId,
        command: CommandId,
        failure: Failure,
    ) -> Result<(), Corrupt> {
        match &self.instance.branch(branch)?.phase {
            Phase::Task(_) => self.task_failed(branch, failure),
            Phase::Undoing(_) => self.undo_answered(branch, command, Err(failure)),
            _ => self.notify_failed(branch, failure),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> RetryPolicy {
        RetryPolicy { max_attempts: 4, ..RetryPolicy::default() }
    }

    fn failing(failures: u32, failure: Failure, deadline: Option<i64>, jitter: u64) -> Verdict {
        judge(&policy(), failures, failed(failure, None), deadline.map(Timestamp), Timestamp(0), jitter)
    }

    fn failed(failure: Failure, not_before: Option<i64>) -> FailedDelivery {
        FailedDelivery { attempt: 0, failure, not_before: not_before.map(Timestamp), sent: true }
    }

    #[test]
    fn waits_double_and_jitter_takes_at_most_half() {
        for (failures, nominal) in [(1, 5_000_u32), (2, 10_000), (3, 20_000)] {
            let longest = failing(failures, Failure::retryable("X", ""), None, 0);
            assert_eq!(longest, Verdict::Again(Timestamp(nominal.into())));
            let shortest = failing(failures, Failure::retryable("X", ""), None, u64::from(nominal) / 2);
            assert_eq!(shortest, Verdict::Again(Timestamp(i64::from(nominal) / 2)));
        }
    }

    #[test]
    fn the_last_attempt_final_errors_and_named_codes_end_the_step() {
        let why = |verdict| if let Verdict::Never(why, _) = verdict { Some(why) } else { None };
        assert_eq!(why(failing(4, Failure::retryable("X", ""), None, 0)), Some(GivenUp::Exhausted));
        assert_eq!(why(failing(1, Failure::last("X", ""), None, 0)), Some(GivenUp::Final));
        assert_eq!(why(failing(4, Failure::last("X", ""), None, 0)), Some(GivenUp::Final));
        let policy = RetryPolicy { non_retryable: vec!["X".to_owned()], ..policy() };
        let failing = |code| failed(Failure::retryable(code, ""), None);
        assert_eq!(why(judge(&policy, 1, failing("X"), None, Timestamp(0), 0)), Some(GivenUp::Final));
        assert_eq!(why(judge(&policy, 1, failing("Y"), None, Timestamp(0), 0)), None);
    }

    #[test]
    fn a_retry_that_would_come_after_the_deadline_is_a_timeout() {
        assert_eq!(failing(1, Failure::retryable("X", ""), Some(5_001), 0), Verdict::Again(Timestamp(5_000)));
        let Verdict::Never(GivenUp::NoTime, failure) =
            failing(1, Failure::retryable("X", "boom"), Some(5_000), 0)
        else {
            panic!("it must not be tried at its deadline");
        };
        assert_eq!(failure.code, code::TIMEOUT);
        assert!(failure.message.contains("X: boom"), "{}", failure.message);
    }

    #[test]
    fn whoever_was_called_may_ask_for_more_patience_and_not_for_less() {
        let capped = RetryPolicy { max_interval: Some(Duration::seconds(5)), ..policy() };
        let asked = |not_before, deadline: Option<i64>| {
            let failed = failed(Failure::retryable("X", "boom"), Some(not_before));
            judge(&capped, 1, failed, deadline.map(Timestamp), Timestamp(1_000), 0)
        };
        assert_eq!(
            asked(0, None),
            Verdict::Again(Timestamp(6_000)),
            "its time has come: the policy's wait is left"
        );
        assert_eq!(asked(5_999, None), Verdict::Again(Timestamp(6_000)));
        assert_eq!(
            asked(60_000, None),
            Verdict::Again(Timestamp(60_000)),
            "also beyond the policy's longest wait"
        );
        assert_eq!(asked(60_000, Some(60_001)), Verdict::Again(Timestamp(60_000)));
        let Verdict::Never(GivenUp::NoTime, failure) = asked(60_000, Some(60_000)) else {
            panic!("it must not be tried at its deadline");
        };
        assert_eq!((failure.code.as_str(), failure.retryable), (code::TIMEOUT, false));
        assert!(failure.message.contains("X: boom"), "{}", failure.message);
    }

    #[test]
    fn waits_never_exceed_the_cap_or_overflow() {
        let policy =
            RetryPolicy { backoff_coefficient: 100.0, max_interval: Some(Duration::seconds(30)), ..policy() };
        assert_eq!(nominal_delay(&policy, 2), Duration::seconds(30));
        let policy = RetryPolicy { max_interval: None, ..policy };
        assert_eq!(nominal_delay(&policy, u32::MAX), Duration::MAX);
    }
}

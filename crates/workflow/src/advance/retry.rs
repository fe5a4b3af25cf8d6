//! Decides if and when a failed attempt is retried; no other code does. It sends nothing.

use crate::command::CommandKind;
use crate::definition::{RetryPolicy, StateKind};
use crate::failure::{Failure, code};
use crate::history::Fact;
use crate::ids::{BranchId, CommandId, digest_number};
use crate::instance::{CallProgress, CorruptInstance, Instance, Phase};
use crate::plan::Plan;
use crate::time::{Duration, Timestamp};
use crate::turn::NoRetryReason;

use super::interpreter::Interpreter;

/// The decision about a failed attempt.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum RetryDecision {
    /// Try again, not earlier than this.
    Retry(Timestamp),
    /// Do not try again, for this reason; the step fails with this error.
    Fail(NoRetryReason, Failure),
}

/// A failed attempt, as reported by dispatch.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct FailedAttempt {
    /// Number of earlier attempts that may have been sent.
    pub(super) attempt: u32,
    pub(super) failure: Failure,
    /// The earliest time of a retry, if the receiver named one.
    pub(super) not_before: Option<Timestamp>,
    /// True if the attempt may have reached the receiver. Otherwise the next attempt has the same number.
    pub(super) possibly_sent: bool,
    /// True if an attempt of the call may have run whose result is unknown.
    pub(super) outcome_unknown: bool,
}

impl FailedAttempt {
    /// An attempt that was answered, without a word about the next one.
    pub(super) fn answered(attempt: u32, failure: Failure) -> Self {
        Self { attempt, failure, not_before: None, possibly_sent: true, outcome_unknown: false }
    }
}

/// Decides about a failure, the `failures`-th of its step. The receiver may ask for a longer wait than the policy's,
/// not for a shorter one.
pub(super) fn decide_retry(
    policy: &RetryPolicy,
    failures: u32,
    failed: FailedAttempt,
    deadline: Option<Timestamp>,
    now: Timestamp,
    jitter: u64,
) -> RetryDecision {
    let FailedAttempt { failure, not_before: requested, .. } = failed;
    let is_permanent_code = policy.non_retryable.contains(&failure.code);
    if !failure.retryable || is_permanent_code {
        return RetryDecision::Fail(NoRetryReason::NotRetryable, failure);
    }
    if failures >= policy.max_attempts {
        return RetryDecision::Fail(NoRetryReason::AttemptsExhausted, failure);
    }
    let by_policy = now.plus(jittered_delay(policy, failures, jitter));
    let not_before = requested.map_or(by_policy, |requested| requested.max(by_policy));
    match deadline {
        Some(deadline) if not_before >= deadline => {
            let message = format!(
                "no time is left to try again; the last error was {}: {}",
                failure.code, failure.message
            );
            RetryDecision::Fail(
                NoRetryReason::DeadlineReached,
                Failure::permanent(code::TIMEOUT, message).truncated(),
            )
        }
        _ => RetryDecision::Retry(not_before),
    }
}

/// True if the retry policy of the step that waits for this call names the code: such an error fails the step at once,
/// even if the call was not sent.
pub fn is_named_non_retryable(plan: &Plan, instance: &Instance, command: CommandId, code: &str) -> bool {
    let branch = instance.index().branch_of(command);
    let Some(Ok(branch)) = branch.map(|branch| instance.branch(branch)) else { return false };
    match plan.state(branch.state).map(|state| &state.kind) {
        Ok(StateKind::Task(task)) if matches!(branch.phase, Phase::Task(_)) => {
            let policy = plan.retry_policy(task.retry_policy.as_ref(), &task.call.activity);
            policy.non_retryable.iter().any(|named| named == code)
        }
        _ => false,
    }
}

/// The wait after the n-th failure without jitter, at most the policy's cap.
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

/// Between half of the nominal wait and all of it, so that calls that failed together are not retried together.
fn jittered_delay(policy: &RetryPolicy, failures: u32, jitter: u64) -> Duration {
    let nominal = nominal_delay(policy, failures).0;
    let half = nominal / 2;
    Duration(nominal - jitter % half.saturating_add(1))
}

impl Interpreter<'_> {
    /// Handles a failed attempt: retries it, or lets the step fail.
    pub(super) fn on_attempt_failed(
        &mut self,
        branch: BranchId,
        command: CommandId,
        failed: FailedAttempt,
    ) -> Result<(), CorruptInstance> {
        let FailedAttempt { attempt, ref failure, possibly_sent, outcome_unknown, .. } = failed;
        let (at, state) = self.branch_and_state(branch)?;
        let (own_policy, activity, mut progress) = match (&at.phase, &state.kind) {
            (Phase::Task(progress), StateKind::Task(task)) => {
                (task.retry_policy.as_ref(), task.call.activity.clone(), *progress)
            }
            (Phase::Compensating(compensation), kind) => {
                let Some(progress) = compensation.call else { return Ok(()) };
                let (policy, activity) = match self.instance.compensation_retry() {
                    Some(retry) => self.retried_policy(retry.last)?,
                    None => self.compensation_policy(compensation, kind)?,
                };
                (policy, activity, progress)
            }
            (Phase::Notifying(progress), _) => (None, self.notify_activity().to_owned(), *progress),
            _ => return Ok(()),
        };
        if attempt < progress.attempt {
            // The failure of this attempt has been counted, and another attempt is in flight.
            let error = failed.failure;
            self.record(Fact::TaskFailed { command, attempt, error, retry_at: None, late: true });
            return Ok(());
        }
        progress.failures = progress.failures.saturating_add(1);
        self.count_failure(failure);
        let seed = self.instance.origin().seed;
        let jitter =
            digest_number(&[&seed.to_be_bytes(), &command.0.to_be_bytes(), &progress.failures.to_be_bytes()]);
        let policy = self.plan.retry_policy(own_policy, &activity);
        let error = failure.clone();
        match decide_retry(policy, progress.failures, failed, progress.deadline, self.now, jitter) {
            RetryDecision::Retry(not_before) => {
                let retry_at = Some(not_before);
                self.record(Fact::TaskFailed { command, attempt, error, retry_at, late: false });
                let attempt = attempt.saturating_add(u32::from(possibly_sent));
                progress.attempt = attempt;
                self.emit(CommandKind::RetryActivity { call: command, attempt, not_before });
                self.set_call_progress(branch, progress)
            }
            RetryDecision::Fail(reason, failure) => {
                self.failed_calls.push((command, reason));
                self.record(Fact::TaskFailed { command, attempt, error, retry_at: None, late: false });
                self.on_call_failed(branch, command, failure, outcome_unknown)
            }
        }
    }

    fn set_call_progress(&mut self, branch: BranchId, progress: CallProgress) -> Result<(), CorruptInstance> {
        self.instance.change_branch(branch, |at| match &mut at.phase {
            Phase::Task(own) | Phase::Notifying(own) => *own = progress,
            Phase::Compensating(compensation) => compensation.call = Some(progress),
            _ => {}
        })
    }

    fn on_call_failed(
        &mut self,
        branch: BranchId,
        command: CommandId,
        failure: Failure,
        outcome_unknown: bool,
    ) -> Result<(), CorruptInstance> {
        match &self.instance.branch(branch)?.phase {
            Phase::Task(_) => {
                self.note_task_outcome(branch, outcome_unknown)?;
                self.on_task_failed(branch, failure)
            }
            Phase::Compensating(_) => {
                self.on_compensation_result(branch, command, Err((failure, outcome_unknown)))
            }
            _ => self.on_notify_failed(branch, failure),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> RetryPolicy {
        RetryPolicy { max_attempts: 4, ..RetryPolicy::default() }
    }

    fn failing(failures: u32, failure: Failure, deadline: Option<i64>, jitter: u64) -> RetryDecision {
        decide_retry(
            &policy(),
            failures,
            failed(failure, None),
            deadline.map(Timestamp),
            Timestamp(0),
            jitter,
        )
    }

    fn failed(failure: Failure, not_before: Option<i64>) -> FailedAttempt {
        FailedAttempt { not_before: not_before.map(Timestamp), ..FailedAttempt::answered(0, failure) }
    }

    #[test]
    fn waits_double_and_jitter_takes_at_most_half() {
        for (failures, nominal) in [(1, 5_000_u32), (2, 10_000), (3, 20_000)] {
            let longest = failing(failures, Failure::retryable("X", ""), None, 0);
            assert_eq!(longest, RetryDecision::Retry(Timestamp(nominal.into())));
            let shortest = failing(failures, Failure::retryable("X", ""), None, u64::from(nominal) / 2);
            assert_eq!(shortest, RetryDecision::Retry(Timestamp(i64::from(nominal) / 2)));
        }
    }

    #[test]
    fn the_last_attempt_a_permanent_error_and_a_named_code_end_the_step() {
        let why = |decision| if let RetryDecision::Fail(why, _) = decision { Some(why) } else { None };
        assert_eq!(
            why(failing(4, Failure::retryable("X", ""), None, 0)),
            Some(NoRetryReason::AttemptsExhausted)
        );
        assert_eq!(why(failing(1, Failure::permanent("X", ""), None, 0)), Some(NoRetryReason::NotRetryable));
        assert_eq!(why(failing(4, Failure::permanent("X", ""), None, 0)), Some(NoRetryReason::NotRetryable));
        let policy = RetryPolicy { non_retryable: vec!["X".to_owned()], ..policy() };
        let failing = |code| failed(Failure::retryable(code, ""), None);
        assert_eq!(
            why(decide_retry(&policy, 1, failing("X"), None, Timestamp(0), 0)),
            Some(NoRetryReason::NotRetryable)
        );
        assert_eq!(why(decide_retry(&policy, 1, failing("Y"), None, Timestamp(0), 0)), None);
    }

    #[test]
    fn a_retry_that_would_come_after_the_deadline_is_a_timeout() {
        assert_eq!(
            failing(1, Failure::retryable("X", ""), Some(5_001), 0),
            RetryDecision::Retry(Timestamp(5_000))
        );
        let RetryDecision::Fail(NoRetryReason::DeadlineReached, failure) =
            failing(1, Failure::retryable("X", "boom"), Some(5_000), 0)
        else {
            panic!("a call must not be retried at its deadline");
        };
        assert_eq!(failure.code, code::TIMEOUT);
        assert!(failure.message.contains("X: boom"), "{}", failure.message);
    }

    #[test]
    fn the_receiver_may_ask_for_a_longer_wait_and_not_for_a_shorter_one() {
        let capped = RetryPolicy { max_interval: Some(Duration::seconds(5)), ..policy() };
        let decide = |not_before, deadline: Option<i64>| {
            let failed = failed(Failure::retryable("X", "boom"), Some(not_before));
            decide_retry(&capped, 1, failed, deadline.map(Timestamp), Timestamp(1_000), 0)
        };
        assert_eq!(
            decide(0, None),
            RetryDecision::Retry(Timestamp(6_000)),
            "the requested time is in the past: the policy's wait applies"
        );
        assert_eq!(decide(5_999, None), RetryDecision::Retry(Timestamp(6_000)));
        assert_eq!(
            decide(60_000, None),
            RetryDecision::Retry(Timestamp(60_000)),
            "also beyond the policy's longest wait"
        );
        assert_eq!(decide(60_000, Some(60_001)), RetryDecision::Retry(Timestamp(60_000)));
        let RetryDecision::Fail(NoRetryReason::DeadlineReached, failure) = decide(60_000, Some(60_000))
        else {
            panic!("a call must not be retried at its deadline");
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

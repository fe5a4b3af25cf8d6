//! Every transition of the journal, and which facts of the record it keeps.

use super::AttemptOutcome::{NotSent, Rejected, Responded, Unknown};
use super::*;

fn at(ms: i64) -> Timestamp {
    Timestamp(ms)
}

const TOKEN: u64 = 7;

/// A call requested at 0 whose attempts may take ten seconds.
fn pending(deadline_at: Option<Timestamp>) -> PendingCall {
    PendingCall::new(JournalRecord::new(at(0), deadline_at, 10_000, TOKEN))
}

fn sent() -> SentCall {
    pending(None).send(TOKEN, at(0)).unwrap()
}

/// The call after its attempt ended with this outcome.
fn ended(sent: SentCall, outcome: AttemptOutcome) -> FailedRetryable {
    let mut call = UnsettledCall::Sent(sent);
    call.note_outcome(outcome);
    match call {
        UnsettledCall::Sent(sent) => sent.fail_retryable(),
        other => panic!("{other:?}"),
    }
}

fn attempts_made(failed: &FailedRetryable) -> u32 {
    UnsettledCall::FailedRetryable(failed.clone()).attempts_made()
}

#[test]
fn the_first_attempt_is_number_zero_and_each_retry_adds_one() {
    let sent = pending(None).send(TOKEN, at(1)).unwrap();
    assert_eq!((sent.record.attempt, sent.attempt_deadline_at()), (0, at(10_001)));
    let again = ended(sent, Responded).send(TOKEN, at(5)).unwrap();
    assert_eq!((again.record.attempt, again.record.sent_at), (1, at(5)));
    assert_eq!(again.mark_orphaned().send(TOKEN, at(9)).unwrap().record.attempt, 2);
}

#[test]
fn a_call_that_expires_before_it_is_sent_fails_and_counts_no_attempt() {
    let expired = pending(Some(at(100))).send(TOKEN, at(100)).unwrap_err();
    assert_eq!((expired.reason, expired.record.attempt), (FinalReason::DeadlineExpired, 0));
    let sent = pending(Some(at(100))).send(TOKEN, at(99)).unwrap();
    assert_eq!(sent.attempt_deadline_at(), at(100), "an attempt never outlives the call");
    let late = ended(sent, Responded).send(TOKEN, at(100)).unwrap_err();
    assert_eq!((late.reason, late.record.attempt), (FinalReason::DeadlineExpired, 0));
}

#[test]
fn an_orphan_is_recognised_by_its_token_or_its_deadline() {
    let sent = sent();
    assert!(!sent.is_orphan(Some(TOKEN), at(9_999)));
    assert!(sent.is_orphan(Some(8), at(1)), "another owner, however recent");
    assert!(sent.is_orphan(None, at(1)), "no owner, however recent");
    assert!(sent.is_orphan(Some(TOKEN), at(10_000)), "timed out at its own sender");
}

#[test]
fn unanswered_attempts_end_as_poison_and_an_answer_resets_the_count() {
    let mut sent = sent();
    for _ in 1..CONSECUTIVE_UNANSWERED_MAX {
        sent = sent.mark_orphaned().send(TOKEN, at(0)).unwrap();
    }
    let poison = sent.clone().mark_orphaned().send(TOKEN, at(0)).unwrap_err();
    assert_eq!((poison.reason, poison.record.attempt), (FinalReason::Poison, CONSECUTIVE_UNANSWERED_MAX - 1));
    let answered = ended(sent, Responded).send(TOKEN, at(0)).unwrap();
    assert_eq!(answered.record.consecutive_unanswered, 0);
    assert!(answered.mark_orphaned().send(TOKEN, at(0)).is_ok());
}

#[test]
fn an_attempt_that_never_left_is_not_counted() {
    let unsent = ended(sent(), NotSent);
    assert_eq!(attempts_made(&unsent), 0);
    let again = unsent.send(TOKEN, at(1)).unwrap();
    assert_eq!((again.record.attempt, UnsettledCall::Sent(again.clone()).attempts_made()), (0, 1));
    assert_eq!(ended(again, Responded).send(TOKEN, at(2)).unwrap().record.attempt, 1);
}

#[test]
fn a_withdrawn_attempt_is_not_counted_and_earlier_ones_stay_counted() {
    let sent = sent().mark_orphaned().send(TOKEN, at(1)).unwrap();
    let again = sent.withdraw().send(TOKEN, at(2)).unwrap().record;
    assert_eq!((again.attempt, again.consecutive_unanswered, again.may_have_run), (1, 1, true));
}

#[test]
fn may_have_run_is_kept_until_the_activity_answers() {
    assert!(!sent().record.may_have_run);
    for unknown in [sent().mark_orphaned(), ended(sent(), Unknown)] {
        let again = unknown.send(TOKEN, at(1)).unwrap();
        assert!(again.record.may_have_run);
        for outcome in [NotSent, Unknown, Rejected] {
            assert!(ended(again.clone(), outcome).record.may_have_run, "{outcome:?}");
        }
        assert!(!ended(again, Responded).record.may_have_run);
    }
}

#[test]
fn an_attempt_of_unknown_outcome_is_not_rejected_whatever_its_status() {
    for status in ["401", "403", "429 RESOURCE_EXHAUSTED", "503", "503 UNAVAILABLE"] {
        let failure = CallFailure::retryable(status, "").with_status(status);
        assert_eq!(AttemptOutcome::of_failure(&failure), Rejected, "{status}");
        let unknown = failure.with_outcome_unknown();
        assert_eq!(AttemptOutcome::of_failure(&unknown), Unknown, "{status}");
        assert_eq!(AttemptOutcome::of_failure(&unknown.with_not_sent()), NotSent, "{status}");
    }
    let aborted = CallFailure::retryable("ABORTED", "").with_status("409 ABORTED");
    assert_eq!(AttemptOutcome::of_failure(&aborted), Responded);
}

#[test]
fn every_final_state_keeps_its_reason_and_its_time() {
    assert_eq!(sent().ack(at(3)).settled_at, at(3));
    let failed = ended(sent(), Responded);
    for open in [UnsettledCall::Sent(sent()), UnsettledCall::FailedRetryable(failed.clone())] {
        for (kind, reason) in [
            (FinalFailureKind::NonRetryable, FinalReason::NonRetryable),
            (FinalFailureKind::RetryExhausted, FinalReason::RetryExhausted),
        ] {
            let ended = open.clone().fail_final(kind, at(3));
            assert_eq!((ended.reason, ended.settled_at), (reason, at(3)));
        }
        assert_eq!(open.expire(at(3)).reason, FinalReason::DeadlineExpired);
    }
    let never_sent =
        UnsettledCall::Pending(pending(None)).fail_final(FinalFailureKind::RetryExhausted, at(3));
    assert_eq!(never_sent.reason, FinalReason::NonRetryable, "no attempt was used up");
    assert_eq!(failed.cancel(at(4)).reason, FinalReason::Cancelled);
    assert_eq!(pending(None).cancel(at(4)).reason, FinalReason::Cancelled);
}

//! Every transition of the journal, and which facts of the record it keeps.

use super::*;

fn at(ms: i64) -> Timestamp {
    Timestamp(ms)
}

fn sending(ms: i64) -> AttemptStart {
    AttemptStart { fencing_token: 7, sent_at: at(ms), attempt_timeout_ms: 10_000 }
}

#[test]
fn the_first_attempt_is_number_zero_and_each_retry_adds_one() {
    let sent = PendingCall::new(at(0), None).send(sending(1)).unwrap();
    assert_eq!((sent.record.attempt, sent.attempt_deadline_at), (0, at(10_001)));
    let again = sent.fail_retryable("503".to_owned()).send(sending(5)).unwrap();
    assert_eq!(again.record.attempt, 1);
    assert_eq!(again.mark_orphaned().send(sending(9)).unwrap().record.attempt, 2);
}

#[test]
fn a_call_that_expires_before_it_is_sent_fails_and_counts_no_attempt() {
    let expired = PendingCall::new(at(0), Some(at(100))).send(sending(100)).unwrap_err();
    assert_eq!((expired.reason, expired.record.attempt), (FinalReason::DeadlineExpired, 0));
    let sent = PendingCall::new(at(0), Some(at(100))).send(sending(99)).unwrap();
    assert_eq!(sent.attempt_deadline_at, at(100), "an attempt never outlives the call");
    let late = sent.fail_retryable("503".to_owned()).send(sending(100)).unwrap_err();
    assert_eq!((late.reason, late.record.attempt), (FinalReason::DeadlineExpired, 0));
}

#[test]
fn an_orphan_is_recognised_by_its_token_or_its_deadline() {
    let sent = PendingCall::new(at(0), None).send(sending(0)).unwrap();
    assert!(!sent.is_orphan(Some(7), at(9_999)));
    assert!(sent.is_orphan(Some(8), at(1)), "another owner, however recent");
    assert!(sent.is_orphan(None, at(1)), "no owner, however recent");
    assert!(sent.is_orphan(Some(7), at(10_000)), "timed out at its own sender");
}

#[test]
fn unanswered_attempts_end_as_poison_and_an_answer_resets_the_count() {
    let mut sent = PendingCall::new(at(0), None).send(sending(0)).unwrap();
    for _ in 1..CONSECUTIVE_UNANSWERED_MAX {
        sent = sent.mark_orphaned().send(sending(0)).unwrap();
    }
    let poison = sent.clone().mark_orphaned().send(sending(0)).unwrap_err();
    assert_eq!((poison.reason, poison.record.attempt), (FinalReason::Poison, CONSECUTIVE_UNANSWERED_MAX - 1));
    let answered = sent.fail_retryable("503".to_owned()).send(sending(0)).unwrap();
    assert_eq!(answered.record.consecutive_unanswered, 0);
    assert!(answered.mark_orphaned().send(sending(0)).is_ok());
}

#[test]
fn an_attempt_that_never_left_is_not_counted() {
    let sent = PendingCall::new(at(0), None).send(sending(0)).unwrap();
    let again = sent.fail_unsent("refused".to_owned());
    assert_eq!(again.record.attempts_made(false), 0);
    let again = again.send(sending(1)).unwrap();
    assert_eq!((again.record.attempt, again.record.attempts_made(false)), (0, 1));
    assert_eq!(again.fail_retryable("503".to_owned()).send(sending(2)).unwrap().record.attempt, 1);
}

#[test]
fn a_withdrawn_attempt_is_not_counted_and_earlier_ones_stay_counted() {
    let sent =
        PendingCall::new(at(0), None).send(sending(0)).unwrap().mark_orphaned().send(sending(1)).unwrap();
    let again = sent.withdraw().send(sending(2)).unwrap().record;
    assert_eq!((again.attempt, again.consecutive_unanswered, again.may_have_run), (1, 1, true));
}

#[test]
fn may_have_run_is_kept_until_the_activity_answers() {
    let sent = || PendingCall::new(at(0), None).send(sending(0)).unwrap();
    assert!(!sent().record.may_have_run);
    for unknown in [sent().mark_orphaned(), sent().fail_unknown("lost".to_owned())] {
        let again = unknown.send(sending(1)).unwrap();
        assert!(again.record.may_have_run);
        assert!(again.clone().fail_unsent("refused".to_owned()).record.may_have_run);
        assert!(again.clone().fail_unknown("probe unanswered".to_owned()).record.may_have_run);
        assert!(!again.fail_retryable("503".to_owned()).record.may_have_run);
    }
}

#[test]
fn every_final_state_keeps_its_reason_and_its_time() {
    let sent = PendingCall::new(at(0), None).send(sending(0)).unwrap();
    assert_eq!(sent.clone().ack(at(3)).settled_at, at(3));
    let failed = sent.clone().fail_retryable("503".to_owned());
    for open in [UnsettledCall::Sent(sent), UnsettledCall::FailedRetryable(failed.clone())] {
        for (kind, reason) in [
            (FinalFailureKind::NonRetryable, FinalReason::NonRetryable),
            (FinalFailureKind::RetryExhausted, FinalReason::RetryExhausted),
        ] {
            let ended = open.clone().fail_final(kind, at(3));
            assert_eq!((ended.reason, ended.settled_at), (reason, at(3)));
        }
        assert_eq!(open.expire(at(3)).reason, FinalReason::DeadlineExpired);
    }
    let never_sent = UnsettledCall::Pending(PendingCall::new(at(0), None))
        .fail_final(FinalFailureKind::RetryExhausted, at(3));
    assert_eq!(never_sent.reason, FinalReason::NonRetryable, "no attempt was used up");
    assert_eq!(failed.cancel(at(4)).reason, FinalReason::Cancelled);
    assert_eq!(PendingCall::new(at(0), None).cancel(at(4)).reason, FinalReason::Cancelled);
}

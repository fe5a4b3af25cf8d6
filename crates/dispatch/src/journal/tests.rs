//! Every transition of the journal, and what it keeps.

use super::*;

fn sending(at: i64) -> Sending {
    Sending { fencing_token: 7, at, attempt_timeout_ms: 10_000 }
}

#[test]
fn the_first_delivery_is_attempt_zero_and_each_other_one_more() {
    let sent = Pending::new(0, None).send(sending(1)).unwrap();
    assert_eq!((sent.record.attempt, sent.attempt_deadline_at), (0, 10_001));
    let again = sent.fail_retryable("503".to_owned()).send(sending(5)).unwrap();
    assert_eq!(again.record.attempt, 1);
    assert_eq!(again.orphaned().send(sending(9)).unwrap().record.attempt, 2);
}

#[test]
fn what_expires_before_it_is_sent_is_final_and_not_counted_as_a_delivery() {
    let expired = Pending::new(0, Some(100)).send(sending(100)).unwrap_err();
    assert_eq!((expired.reason, expired.record.attempt), (FinalReason::DeadlineExpired, 0));
    let sent = Pending::new(0, Some(100)).send(sending(99)).unwrap();
    assert_eq!(sent.attempt_deadline_at, 100, "one delivery never outlives the call");
    let late = sent.fail_retryable("503".to_owned()).send(sending(100)).unwrap_err();
    assert_eq!((late.reason, late.record.attempt), (FinalReason::DeadlineExpired, 0));
}

#[test]
fn an_orphan_is_told_by_its_token_or_by_its_deadline() {
    let sent = Pending::new(0, None).send(sending(0)).unwrap();
    assert!(!sent.is_orphan(7, 9_999));
    assert!(sent.is_orphan(8, 1), "another owner, however short ago");
    assert!(sent.is_orphan(7, 10_000), "given up by its own sender");
}

#[test]
fn deliveries_that_nobody_answers_end_as_poison_and_an_answer_starts_the_count_anew() {
    let mut sent = Pending::new(0, None).send(sending(0)).unwrap();
    for _ in 1..UNANSWERED_MAX {
        sent = sent.orphaned().send(sending(0)).unwrap();
    }
    let poison = sent.clone().orphaned().send(sending(0)).unwrap_err();
    assert_eq!((poison.reason, poison.record.attempt), (FinalReason::Poison, UNANSWERED_MAX - 1));
    let answered = sent.fail_retryable("503".to_owned()).send(sending(0)).unwrap();
    assert_eq!(answered.record.unanswered, 0);
    assert!(answered.orphaned().send(sending(0)).is_ok());
}

#[test]
fn a_delivery_that_never_left_is_not_counted() {
    let sent = Pending::new(0, None).send(sending(0)).unwrap();
    let again = sent.not_sent("refused".to_owned());
    assert_eq!(again.record.deliveries(false), 0);
    let again = again.send(sending(1)).unwrap();
    assert_eq!((again.record.attempt, again.record.deliveries(false)), (0, 1));
    assert_eq!(again.fail_retryable("503".to_owned()).send(sending(2)).unwrap().record.attempt, 1);
}

#[test]
fn a_delivery_that_is_taken_back_is_not_counted_and_nothing_is_forgotten_of_those_before() {
    let sent = Pending::new(0, None).send(sending(0)).unwrap().orphaned().send(sending(1)).unwrap();
    let again = sent.withdrawn().send(sending(2)).unwrap().record;
    assert_eq!((again.attempt, again.unanswered, again.may_have_run), (1, 1, true));
}

#[test]
fn what_may_have_run_is_remembered_until_somebody_answers() {
    let sent = || Pending::new(0, None).send(sending(0)).unwrap();
    assert!(!sent().record.may_have_run);
    for unknown in [sent().orphaned(), sent().fail_unknown("lost".to_owned())] {
        let again = unknown.send(sending(1)).unwrap();
        assert!(again.record.may_have_run);
        assert!(again.clone().not_sent("refused".to_owned()).record.may_have_run);
        assert!(again.clone().fail_unknown("nobody to ask".to_owned()).record.may_have_run);
        assert!(!again.fail_retryable("503".to_owned()).record.may_have_run);
    }
}

#[test]
fn ends_keep_what_was_delivered() {
    let sent = Pending::new(0, None).send(sending(0)).unwrap();
    assert_eq!(sent.clone().ack(3).settled_at, 3);
    let failed = sent.clone().fail_retryable("503".to_owned());
    for open in [Open::Sent(sent), Open::FailedRetryable(failed.clone())] {
        for (verdict, reason) in [
            (Verdict::NonRetryable, FinalReason::NonRetryable),
            (Verdict::RetryExhausted, FinalReason::RetryExhausted),
        ] {
            let ended = open.clone().fail_final(verdict, 3);
            assert_eq!((ended.reason, ended.settled_at), (reason, 3));
        }
        assert_eq!(open.expire(3).reason, FinalReason::DeadlineExpired);
    }
    let never_sent = Open::Pending(Pending::new(0, None)).fail_final(Verdict::RetryExhausted, 3);
    assert_eq!(never_sent.reason, FinalReason::NonRetryable, "nothing was used up");
    assert_eq!(failed.cancel(4).reason, FinalReason::Cancelled);
    assert_eq!(Pending::new(0, None).cancel(4).reason, FinalReason::Cancelled);
}

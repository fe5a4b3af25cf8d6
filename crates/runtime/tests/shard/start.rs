//! Starting runs: once per id, once per key, in as few rows as promised.

use abide_ids::{Digest, RunNumber};
use abide_runtime::{Event, RequestError, RequestIdempotency, ShardReply, ShardRequest};
use abide_store::rows::CommitOutcome;
use serde_json::json;

use crate::harness::{ShardHarness, instance_id, request_idempotency, task_state};

fn steps(harness: &ShardHarness) {
    let states = json!({"Start": task_state("B"), "B": task_state("C"), "C": task_state("End"), "End": {"type": "succeed", "output": "$.state.x"}});
    harness.publish("steps", &states);
}

#[test]
fn three_steps_are_17_rows_in_four_commits_and_3_rows_later_within_6_kib() {
    let mut harness = ShardHarness::new();
    steps(&harness);
    let commits = harness.commits;
    let rows = harness.rows;
    let bytes = harness.bytes;
    harness.start("steps", "0198c2a4-7d31-7a52-9c6f-2f3d8a1b4c5e");
    for _ in 0..3 {
        harness.complete_attempt();
    }
    assert_eq!(harness.status("0198c2a4-7d31-7a52-9c6f-2f3d8a1b4c5e"), "Completed");
    assert_eq!((harness.commits - commits, harness.rows - rows), (4, 17));
    // Later commits carry the rest: a deleted marker, an expiry, and their head.
    harness.advance_clock(5_000);
    let rows = harness.rows - rows;
    let bytes = harness.bytes - bytes;
    println!("{rows} rows, {bytes} bytes");
    assert!(rows == 17 + 3 && bytes <= 6 * 1024, "{rows} rows, {bytes} bytes");
    harness.check();
}

#[test]
fn of_many_starts_of_one_id_one_succeeds_and_the_others_are_refused_with_its_run_number() {
    let mut harness = ShardHarness::new();
    steps(&harness);
    let request_ids: Vec<_> = (0..64).map(|_| harness.next_request_id()).collect();
    let requests: Vec<_> = request_ids
        .iter()
        .map(|request_id| Event::RequestReceived(*request_id, harness.start_request("steps", "one", None)))
        .collect();
    harness.send_events(requests);
    let replies: Vec<ShardReply> =
        request_ids.into_iter().map(|request_id| harness.reply_to(request_id).unwrap()).collect();
    let begun = replies.iter().filter(|reply| matches!(reply, ShardReply::Started(_))).count();
    let live = |reply: &&ShardReply| matches!(reply, ShardReply::Refused(RequestError::AlreadyRunning { run_number, .. }) if run_number.0 == 1);
    assert_eq!((begun, replies.iter().filter(live).count()), (1, 63));
}

#[test]
fn a_refusal_because_of_a_run_waits_until_the_run_is_durable() {
    let mut harness = ShardHarness::new();
    steps(&harness);
    harness.outcomes.push_back(Some(CommitOutcome::Unavailable { reason: "not now".to_owned() }));
    let request = harness.start_request("steps", "one", None);
    let first = harness.request_without_waiting(request);
    let request = harness.start_request("steps", "one", None);
    let second = harness.request_without_waiting(request);
    assert!(harness.replies.is_empty(), "{:?}", harness.replies);
    harness.advance_clock(1_000);
    assert!(matches!(harness.reply_to(first), Some(ShardReply::Started(_))));
    assert!(matches!(
        harness.reply_to(second),
        Some(ShardReply::Refused(RequestError::AlreadyRunning { .. }))
    ));
}

#[test]
fn a_repeated_start_gets_the_same_reply_within_its_window() {
    let mut harness = ShardHarness::new();
    steps(&harness);
    let repeat = request_idempotency(1, 2);
    let started = |harness: &mut ShardHarness, repeat| {
        let request = harness.start_request("steps", "one", Some(repeat));
        harness.request(request)
    };
    let ShardReply::Started(first) = started(&mut harness, repeat) else { panic!("not started") };
    let again = |harness: &mut ShardHarness, when: &str| match started(harness, repeat) {
        ShardReply::Started(again) => assert_eq!(again, first, "{when}"),
        other => panic!("{when}: {other:?}"),
    };
    again(&mut harness, "in memory");
    harness.crash();
    again(&mut harness, "after a crash");
    (0..3).for_each(|_| drop(harness.complete_attempt()));
    again(&mut harness, "after the end");
    let other = RequestIdempotency { payload_digest: Digest([3; 32]), ..repeat };
    assert!(matches!(started(&mut harness, other), ShardReply::Refused(RequestError::KeyReused)));
    harness.advance_clock(8 * 24 * 3_600_000);
    let ShardReply::Started(later) = started(&mut harness, repeat) else { panic!("not started") };
    assert_eq!(later.run_number.0, 2, "the window is over and the run has ended");
    harness.check();
}

#[test]
fn a_key_is_recognised_also_if_the_run_was_loaded_for_another_request() {
    let mut harness = ShardHarness::new();
    harness.publish("wait", &json!({"Start": {"type": "wait", "waitType": "externalEvent", "eventName": "go", "next": "End"}, "End": {"type": "succeed"}}));
    let repeat = Some(request_idempotency(1, 2));
    let request = harness.start_request("wait", "one", repeat);
    harness.request(request);
    harness.crash();
    harness.raise("one", "other");
    let request = harness.start_request("wait", "one", repeat);
    assert!(matches!(harness.request(request), ShardReply::Started(_)));
}

#[test]
fn an_id_can_be_started_again_after_its_run_ended_and_the_new_run_has_new_keys() {
    let mut harness = ShardHarness::new();
    steps(&harness);
    harness.start("steps", "one");
    let first = (0..3).map(|_| harness.complete_attempt().metadata).collect::<Vec<_>>();
    harness.start("steps", "one");
    let second = (0..3).map(|_| harness.complete_attempt().metadata).collect::<Vec<_>>();
    assert_eq!(harness.run("one").unwrap().row.run_number, RunNumber(2));
    for (first, second) in first.iter().zip(&second) {
        assert_ne!(first.idempotency_key, second.idempotency_key);
        assert_eq!((first.execution_id.as_str(), second.execution_id.as_str()), ("one/1", "one/2"));
    }
    let restarted = harness.request(ShardRequest::Restart { instance_id: instance_id("one") });
    assert!(matches!(restarted, ShardReply::Started(started) if started.run_number.0 == 3));
    assert!(matches!(
        harness.request(ShardRequest::Restart { instance_id: instance_id("one") }),
        ShardReply::Refused(RequestError::AlreadyRunning { .. })
    ));
    harness.advance_clock(1_000);
    harness.check();
}

#[test]
fn a_client_that_waits_for_the_end_gets_its_reply_when_the_end_is_durable() {
    let mut harness = ShardHarness::new();
    steps(&harness);
    harness.start("steps", "one");
    let waiting = harness.request_without_waiting(ShardRequest::AwaitEnd {
        instance_id: instance_id("one"),
        run_number: None,
    });
    harness.complete_attempt();
    harness.complete_attempt();
    assert!(harness.replies.is_empty());
    harness.outcomes.push_back(Some(CommitOutcome::Unavailable { reason: "not now".to_owned() }));
    harness.complete_attempt();
    assert!(harness.replies.is_empty(), "the last commit has failed");
    harness.advance_clock(1_000);
    let Some(ShardReply::Ended(view)) = harness.reply_to(waiting) else { panic!("no reply") };
    assert_eq!(view.output, Some(json!({"ok": true}).into()));
    assert!(
        matches!(
            harness.request(ShardRequest::AwaitEnd { instance_id: instance_id("one"), run_number: None }),
            ShardReply::Ended(_)
        ),
        "from the store"
    );
    assert!(matches!(
        harness.request(ShardRequest::AwaitEnd { instance_id: instance_id("two"), run_number: None }),
        ShardReply::Refused(RequestError::NotFound { .. })
    ));
}

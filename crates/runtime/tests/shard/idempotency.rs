//! Repeated requests with an idempotency key: done once, with the same reply, within the promised window.

use abide_ids::Digest;
use abide_runtime::{
    Event, IdempotentReply, RequestError, RequestId, RequestIdempotency, ShardReply, ShardRequest,
};
use abide_store::rows::CommitOutcome;
use abide_store::tables::TableId;
use abide_workflow::{Message, RunNumber, Timestamp};
use serde_json::json;

use crate::harness::{EPOCH_MS, ShardHarness, instance_id, request_idempotency, task_state};

const WINDOW_MS: u64 = 7 * 24 * 3_600_000;

fn key(number: u8) -> RequestIdempotency {
    request_idempotency(number, 1)
}

fn once(idempotency: RequestIdempotency, request: ShardRequest) -> ShardRequest {
    ShardRequest::Idempotent(idempotency, Box::new(request))
}

fn go(id: &str) -> ShardRequest {
    let message = Message::EventRaised { name: "go".to_owned(), payload: json!({}).into() };
    ShardRequest::SendMessage { instance_id: instance_id(id), message }
}

fn terminate(id: &str) -> ShardRequest {
    ShardRequest::SendMessage {
        instance_id: instance_id(id),
        message: Message::Terminate { reason: "enough".to_owned() },
    }
}

/// Waits for the event three times.
fn three_waits(harness: &ShardHarness) {
    let wait =
        |next: &str| json!({"type": "wait", "waitType": "externalEvent", "eventName": "go", "next": next});
    let states = json!({"Start": wait("Second"), "Second": wait("Third"), "Third": wait("End"), "End": {"type": "succeed"}});
    harness.publish("waits", &states);
}

/// Makes the next commit fail at first, so that all lookups happen before it is durable.
fn hold_back(harness: &mut ShardHarness) {
    harness.outcomes.push_back(Some(CommitOutcome::Unavailable { reason: "not now".to_owned() }));
}

/// The current state of the run.
fn current_state(harness: &ShardHarness, id: &str) -> Option<String> {
    let run = harness.run(id)?;
    run.instance.current_states(&run.plan).first().map(|state| state.state.to_string())
}

/// The number of stored replies.
fn stored_replies(harness: &ShardHarness) -> usize {
    harness.keys(TableId::Idempotency).len()
}

#[test]
fn a_repeated_event_is_consumed_once_within_its_window() {
    let mut harness = ShardHarness::new();
    three_waits(&harness);
    harness.start("waits", "a");
    let until = Timestamp(EPOCH_MS + i64::try_from(WINDOW_MS).unwrap());
    for when in ["first", "again", "after a crash"] {
        if when == "after a crash" {
            harness.crash();
        }
        let reply = harness.request(once(key(1), go("a")));
        assert!(
            matches!(reply, ShardReply::Idempotent(IdempotentReply::Accepted, told) if told == until),
            "{when}: {reply:?}"
        );
        assert_eq!(current_state(&harness, "a").as_deref(), Some("Second"), "{when}");
    }
    let other = RequestIdempotency { payload_digest: Digest([2; 32]), ..key(1) };
    assert!(matches!(harness.request(once(other, go("a"))), ShardReply::Refused(RequestError::KeyReused)));
    assert!(
        matches!(harness.request(once(key(2), go("a"))), ShardReply::Idempotent(..)),
        "another key is another event"
    );
    assert_eq!(current_state(&harness, "a").as_deref(), Some("Third"));
    harness.advance_clock(WINDOW_MS + 120_000);
    assert_eq!(stored_replies(&harness), 0, "expired replies are collected");
    assert!(matches!(harness.request(once(key(1), go("a"))), ShardReply::Idempotent(..)));
    assert_eq!(harness.status("a"), "Completed", "after the window it is a new event");
    assert!(
        matches!(harness.request(once(key(1), go("a"))), ShardReply::Idempotent(..)),
        "also when its run has ended"
    );
    harness.check();
}

#[test]
fn copies_that_arrive_before_anything_is_durable_are_consumed_once() {
    let mut harness = ShardHarness::new();
    three_waits(&harness);
    harness.start("waits", "a");
    let keys = [1, 2, 1, 2, 1];
    let request_ids: Vec<RequestId> = keys.iter().map(|_| harness.next_request_id()).collect();
    let events: Vec<Event> = request_ids
        .iter()
        .zip(keys)
        .map(|(request_id, number)| Event::RequestReceived(*request_id, once(key(number), go("a"))))
        .collect();
    hold_back(&mut harness);
    harness.send_events(events);
    assert!(harness.replies.is_empty(), "{:?}", harness.replies);
    harness.advance_clock(1_000);
    for request_id in request_ids {
        let reply = harness.reply_to(request_id).unwrap();
        assert!(matches!(reply, ShardReply::Idempotent(IdempotentReply::Accepted, _)), "{reply:?}");
    }
    assert_eq!(current_state(&harness, "a").as_deref(), Some("Third"));
    harness.check();
}

#[test]
fn a_repeated_start_gets_its_own_reply_whatever_other_starts_of_the_id_there_were() {
    let mut harness = ShardHarness::new();
    three_waits(&harness);
    let request_ids: Vec<RequestId> = (0..3).map(|_| harness.next_request_id()).collect();
    let events: Vec<Event> = request_ids
        .iter()
        .zip([1, 2, 1])
        .map(|(request_id, number)| {
            Event::RequestReceived(*request_id, harness.start_request("waits", "a", Some(key(number))))
        })
        .collect();
    hold_back(&mut harness);
    harness.send_events(events);
    assert!(harness.replies.is_empty(), "{:?}", harness.replies);
    harness.advance_clock(1_000);
    let replies: Vec<ShardReply> =
        request_ids.into_iter().map(|request_id| harness.reply_to(request_id).unwrap()).collect();
    assert!(matches!(&replies[0], ShardReply::Started(started) if started.idempotent_until.is_some()));
    assert!(matches!(&replies[1], ShardReply::Refused(RequestError::AlreadyRunning { .. })));
    let (ShardReply::Started(first), ShardReply::Started(again)) = (&replies[0], &replies[2]) else {
        panic!("{replies:?}")
    };
    assert_eq!(first, again);
}

#[test]
fn a_refusal_is_not_stored_and_the_request_may_succeed_later() {
    let mut harness = ShardHarness::new();
    three_waits(&harness);
    assert!(matches!(
        harness.request(once(key(1), go("a"))),
        ShardReply::Refused(RequestError::NotFound { .. })
    ));
    harness.start("waits", "a");
    assert!(matches!(harness.request(once(key(1), go("a"))), ShardReply::Idempotent(..)));
    assert!(matches!(harness.request(once(key(2), terminate("a"))), ShardReply::Idempotent(..)));
    assert!(matches!(harness.request(once(key(3), go("a"))), ShardReply::Refused(RequestError::Message(_))));
    assert_eq!(stored_replies(&harness), 2);
    harness.advance_clock(1_000);
    harness.check();
}

#[test]
fn repeated_control_operations_are_done_once() {
    let mut harness = ShardHarness::new();
    three_waits(&harness);
    harness.start("waits", "a");
    for _ in 0..2 {
        let reply = harness.request(once(key(1), terminate("a")));
        assert!(matches!(reply, ShardReply::Idempotent(IdempotentReply::Accepted, _)), "{reply:?}");
    }
    for _ in 0..2 {
        let reply = harness.request(once(key(2), ShardRequest::Restart { instance_id: instance_id("a") }));
        assert!(matches!(&reply, ShardReply::Started(started) if started.run_number.0 == 2), "{reply:?}");
    }
    harness.request(terminate("a"));
    let again = harness.request(once(key(2), ShardRequest::Restart { instance_id: instance_id("a") }));
    assert!(matches!(again, ShardReply::Started(started) if started.run_number.0 == 2), "no third run");
    assert_eq!(harness.status("a"), "Terminated");
    for when in ["first", "again", "after a crash"] {
        if when == "after a crash" {
            harness.crash();
        }
        let reply = harness
            .request(once(key(3), ShardRequest::Purge { instance_id: instance_id("a"), run_number: None }));
        assert!(matches!(reply, ShardReply::Idempotent(IdempotentReply::Purged, _)), "{when}: {reply:?}");
    }
    harness.start("waits", "a");
    harness.request(terminate("a"));
    harness.request(once(key(3), ShardRequest::Purge { instance_id: instance_id("a"), run_number: None }));
    assert_eq!(
        harness.status("a"),
        "Terminated",
        "the stored reply of an earlier purge does not purge this run"
    );
    harness.advance_clock(1_000);
    harness.check();
}

#[test]
fn an_instance_named_by_its_key_is_not_started_again_when_the_reply_has_expired() {
    let mut harness = ShardHarness::new();
    harness.publish("one", &json!({"Start": task_state("End"), "End": {"type": "succeed"}}));
    let named = RequestIdempotency { derives_instance_id: true, ..key(1) };
    let start = |harness: &mut ShardHarness| {
        let request = harness.start_request("one", "k-1", Some(named));
        harness.request(request)
    };
    assert!(matches!(start(&mut harness), ShardReply::Started(_)));
    harness.complete_attempt();
    harness.advance_clock(WINDOW_MS - 1_000);
    assert!(
        matches!(start(&mut harness), ShardReply::Started(started) if started.run_number.0 == 1),
        "within the window"
    );
    harness.advance_clock(120_000);
    for _ in 0..2 {
        let reply = start(&mut harness);
        assert!(matches!(reply, ShardReply::Refused(RequestError::KeyExpired { .. })), "{reply:?}");
    }
    assert_eq!((harness.run("k-1").unwrap().row.run_number, harness.calls.len()), (RunNumber(1), 0));
    // After its retention and its tombstone have expired, nothing is left of it.
    harness.advance_clock(60 * 24 * 3_600_000);
    assert!(matches!(start(&mut harness), ShardReply::Started(_)));
}

#[test]
fn a_client_that_waits_for_one_run_gets_no_reply_for_another() {
    let mut harness = ShardHarness::new();
    harness.publish("one", &json!({"Start": task_state("End"), "End": {"type": "succeed"}}));
    let request = harness.start_request("one", "a", Some(key(1)));
    harness.request(request);
    harness.complete_attempt();
    harness.start("one", "a");
    let again = harness.next_request_id();
    let waits = harness.next_request_id();
    let mut request = harness.start_request("one", "a", Some(key(1)));
    if let ShardRequest::Start(start) = &mut request {
        start.await_end = Some(waits);
    }
    harness.send_event(Event::RequestReceived(again, request));
    assert!(
        matches!(harness.reply_to(again), Some(ShardReply::Started(started)) if started.run_number.0 == 1)
    );
    let reply = harness.reply_to(waits);
    assert!(matches!(reply, Some(ShardReply::Refused(RequestError::NotCurrent { .. }))), "{reply:?}");
    let other = ShardRequest::AwaitEnd { instance_id: instance_id("a"), run_number: Some(RunNumber(2)) };
    let waits = harness.request_without_waiting(other);
    harness.complete_attempt();
    assert!(matches!(harness.reply_to(waits), Some(ShardReply::Ended(view)) if view.run_number.0 == 2));
}

#[test]
fn a_stored_reply_can_be_read_without_starting_anything() {
    let mut harness = ShardHarness::new();
    three_waits(&harness);
    let recall = |repeat| ShardRequest::GetStoredReply { instance_id: instance_id("a"), idempotency: repeat };
    assert!(matches!(harness.request(recall(key(1))), ShardReply::Refused(RequestError::NotFound { .. })));
    let request = harness.start_request("waits", "a", Some(key(1)));
    let ShardReply::Started(started) = harness.request(request) else { panic!("not started") };
    for when in ["in memory", "after a crash"] {
        let ShardReply::Started(recalled) = harness.request(recall(key(1))) else {
            panic!("{when}: not recalled")
        };
        assert_eq!(recalled, started, "{when}");
        harness.crash();
    }
    let other = RequestIdempotency { payload_digest: Digest([9; 32]), ..key(1) };
    assert!(matches!(harness.request(recall(other)), ShardReply::Refused(RequestError::KeyReused)));
    assert!(matches!(harness.request(recall(key(2))), ShardReply::Refused(RequestError::NotFound { .. })));
}

//! Failures of the store: unknown outcomes, outages, unreadable instances, another owner.

use abide_runtime::{
    Event, OperatorEvent, QueueLimit, RequestError, RequestId, ShardReply, ShardRequest, StopReason,
};
use abide_store::rows::{Batch, CommitOutcome};
use abide_store::tables::heads::{self, HeadRow};
use abide_store::tables::{TableId, decode, encode};
use abide_workflow::Message;
use serde_json::json;

use crate::harness::{ShardHarness, instance_id, task_state};

fn one(harness: &ShardHarness) {
    harness.publish("one", &json!({"Start": task_state("End"), "End": {"type": "succeed"}}));
}

#[test]
fn a_commit_of_unknown_outcome_is_resolved_and_neither_lost_nor_done_twice() {
    for applied in [true, false] {
        let mut harness = ShardHarness::new();
        one(&harness);
        harness.store.make_next_commit_unknown(applied);
        let request = harness.start_request("one", "a", None);
        let request_id = harness.request_without_waiting(request);
        harness.advance_clock(1_000);
        assert!(matches!(harness.reply_to(request_id), Some(ShardReply::Started(_))));
        assert_eq!(harness.calls.len(), 1);
        harness.complete_attempt();
        assert_eq!(harness.status("a"), "Completed");
        harness.check();
    }
}

#[test]
fn an_outage_of_the_store_costs_nothing_but_time() {
    let mut harness = ShardHarness::new();
    one(&harness);
    let away = || Some(CommitOutcome::Unavailable { reason: "away".to_owned() });
    harness.outcomes.extend((0..6).map(|_| away()));
    let request = harness.start_request("one", "a", None);
    let request_id = harness.request_without_waiting(request);
    assert!(harness.replies.is_empty() && harness.calls.is_empty());
    harness.advance_clock(10_000);
    assert!(matches!(harness.reply_to(request_id), Some(ShardReply::Started(_))));
    assert_eq!(harness.calls.len(), 1);
}

#[test]
fn a_node_that_lost_the_shard_stops_without_replies() {
    let mut harness = ShardHarness::new();
    one(&harness);
    let partition = harness.partition();
    let key = heads::key();
    let row = harness.store.read_now(&partition, &key).unwrap().unwrap();
    let head = HeadRow { owner: Some("another".to_owned()), fencing_token: 9, ..decode(&row.value).unwrap() };
    harness.store.commit_now(&partition, &Batch::fenced(key, Some(row.version), encode(&head)));
    let request = harness.start_request("one", "a", None);
    let request_id = harness.request_without_waiting(request);
    assert_eq!(harness.stopped, Some(StopReason::Lost));
    assert!(harness.reply_to(request_id).is_none() && harness.calls.is_empty());
    assert!(harness.run("a").is_none());
}

#[test]
fn an_unreadable_instance_is_parked_with_a_reason_and_everything_else_goes_on() {
    let mut harness = ShardHarness::new();
    one(&harness);
    harness.start("one", "bad");
    harness.start("one", "good");
    harness.crash();
    harness.calls.clear();
    // Overwrite its first page.
    let partition = harness.partition();
    let page = harness.keys(TableId::HistoryPage).remove(0);
    let version = harness.store.read_now(&partition, &page).unwrap().unwrap().version;
    harness.store.commit_now(&partition, &Batch::checked().replace(page, version, b"garbage".to_vec()));
    harness.crash();
    let parked = |notice: &OperatorEvent| matches!(notice, OperatorEvent::Parked { instance_id, .. } if instance_id.as_str() == "bad");
    assert!(harness.operator_events.iter().any(parked), "{:?}", harness.operator_events);
    assert_eq!(harness.calls.len(), 1, "the call of the other run is repeated");
    harness.complete_attempt();
    assert_eq!(harness.status("good"), "Completed");
    assert!(matches!(harness.raise("bad", "go"), ShardReply::Refused(RequestError::Parked { .. })));
    harness.crash();
    assert!(
        matches!(harness.raise("bad", "go"), ShardReply::Refused(RequestError::Parked { .. })),
        "after a restart too"
    );
    assert!(matches!(
        harness.send_message("bad", Message::Terminate { reason: "enough".to_owned() }),
        ShardReply::Accepted
    ));
    harness.start("one", "bad");
    harness.complete_attempt();
    assert_eq!(harness.status("bad"), "Completed", "its id is free again");
}

/// Overwrites the last page.
fn damage_last_page(harness: &ShardHarness) {
    let partition = harness.partition();
    let page = harness.keys(TableId::HistoryPage).pop().unwrap();
    let version = harness.store.read_now(&partition, &page).unwrap().unwrap().version;
    harness.store.commit_now(&partition, &Batch::checked().replace(page, version, b"garbage".to_vec()));
}

#[test]
fn an_unreadable_child_can_be_terminated_with_its_calls_and_its_parent_gets_the_failure() {
    for restarted in [false, true] {
        let mut harness = ShardHarness::new();
        harness.publish("child", &json!({"Start": task_state("End"), "End": {"type": "succeed"}}));
        let child = json!({"type": "workflow", "workflow": "child", "input": {"id": 1}, "next": "End",
            "onError": [{"match": ["Terminated"], "next": "End"}]});
        harness.publish("parent", &json!({"Start": child, "End": {"type": "succeed"}}));
        harness.start("parent", "p");
        let call = harness.calls[0].0.clone();
        harness.advance_clock(20_000);
        assert_eq!(harness.shard.resident_instances(), 0);
        damage_last_page(&harness);
        if restarted {
            harness.crash();
        }
        let refused = harness.raise(call.instance_id.as_str(), "go");
        assert!(matches!(refused, ShardReply::Refused(RequestError::Parked { .. })), "{refused:?}");
        harness.check();
        let order = Message::Terminate { reason: "enough".to_owned() };
        assert!(matches!(harness.send_message(call.instance_id.as_str(), order), ShardReply::Accepted));
        assert_eq!(harness.cancelled, if restarted { vec![] } else { vec![call] });
        assert_eq!(harness.status("p"), "Completed", "it consumed the failure of its child");
        harness.advance_clock(2_000);
        harness.check();
    }
}

#[test]
fn requests_over_the_queue_limit_are_refused_and_nothing_is_lost() {
    let mut harness = ShardHarness::with(|config| config.queued_max = 8);
    one(&harness);
    let request_ids: Vec<_> = (0..40).map(|_| harness.next_request_id()).collect();
    let events: Vec<_> = request_ids
        .iter()
        .enumerate()
        .map(|(number, request_id)| {
            Event::RequestReceived(*request_id, harness.start_request("one", &format!("i-{number}"), None))
        })
        .collect();
    harness.send_events(events);
    let replies: Vec<ShardReply> =
        request_ids.into_iter().map(|request_id| harness.reply_to(request_id).unwrap()).collect();
    let begun = replies.iter().filter(|reply| matches!(reply, ShardReply::Started(_))).count();
    let busy = replies
        .iter()
        .filter(|reply| matches!(reply, ShardReply::Refused(RequestError::Busy { .. })))
        .count();
    assert_eq!((begun, busy), (8, 32));
    assert_eq!(harness.calls.len(), 8);
}

#[test]
fn control_operations_and_deletions_are_accepted_over_the_queue_limit() {
    let mut harness = ShardHarness::with(|config| config.queued_max = 8);
    one(&harness);
    harness.start("one", "live");
    harness.start("one", "ended");
    harness.send_message("ended", Message::Terminate { reason: String::new() });
    let start = |number: u64| harness.start_request("one", &format!("i-{number}"), None);
    let mut requests: Vec<_> = (0..40).map(start).collect();
    let message = |message| ShardRequest::SendMessage { instance_id: instance_id("live"), message };
    let event = Message::EventRaised { name: "go".to_owned(), payload: json!(1).into() };
    requests.push(message(event));
    requests.push(message(Message::Suspend { reason: String::new() }));
    requests.push(message(Message::Resume { reason: String::new() }));
    requests.push(message(Message::Terminate { reason: String::new() }));
    requests.push(ShardRequest::Purge { instance_id: instance_id("ended"), run_number: None });
    let first = harness.next_request_id().0;
    let ids = || (first..).map(RequestId);
    harness.send_events(ids().zip(requests.clone()).map(|(id, request)| Event::RequestReceived(id, request)));
    let replies: Vec<_> = ids().zip(&requests).filter_map(|(id, _)| harness.reply_to(id)).collect();
    assert!(matches!(
        replies[8..],
        [
            ..,
            ShardReply::Refused(RequestError::Busy { limit: QueueLimit::Items, .. }),
            ShardReply::Accepted,
            ShardReply::Accepted,
            ShardReply::Accepted,
            ShardReply::Purged,
        ]
    ));
    assert_eq!(harness.status("live"), "Terminated");
    harness.check();
}

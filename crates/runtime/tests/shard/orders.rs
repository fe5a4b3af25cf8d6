//! A terminate comes before all that waits for its run, whatever the load is.

use abide_runtime::{Event, RequestError, ShardReply, ShardRequest};
use abide_store::rows::StoreLimits;
use abide_workflow::{Message, MessageRefusal, Status};
use serde_json::json;

use crate::harness::{ShardHarness, instance_id, request_idempotency};

fn publish(harness: &ShardHarness) {
    let gate = json!({"type": "wait", "waitType": "externalEvent", "eventName": "never", "next": "End"});
    harness.publish("gate", &json!({"Start": gate, "End": {"type": "succeed"}}));
}

fn send(id: &str, message: Message) -> ShardRequest {
    ShardRequest::SendMessage { instance_id: instance_id(id), message }
}

fn terminate(id: &str) -> ShardRequest {
    send(id, Message::Terminate { reason: "enough".to_owned() })
}

fn event(id: &str) -> ShardRequest {
    send(id, Message::EventRaised { name: "go".to_owned(), payload: json!(1).into() })
}

#[test]
fn orders_are_admitted_when_the_queues_are_full() {
    let mut harness = ShardHarness::with(|config| config.queued_max = 4);
    publish(&harness);
    for id in ["a", "b", "c"] {
        harness.start("gate", id);
    }
    harness.send_message("c", Message::Terminate { reason: String::new() });
    let mut requests: Vec<ShardRequest> =
        (0..20).map(|number| harness.start_request("gate", &format!("i-{number}"), None)).collect();
    let under_a_key = ShardRequest::Idempotent(request_idempotency(1, 1), Box::new(terminate("b")));
    let purge = ShardRequest::Purge { instance_id: instance_id("c"), run_number: None };
    requests.extend([terminate("a"), under_a_key, purge]);
    let ids: Vec<_> = requests.iter().map(|_| harness.next_request_id()).collect();
    let events: Vec<_> =
        ids.iter().zip(requests).map(|(id, request)| Event::RequestReceived(*id, request)).collect();
    harness.send_events(events);
    let replies: Vec<ShardReply> = ids.into_iter().map(|id| harness.reply_to(id).unwrap()).collect();
    let busy = replies.iter().filter(|reply| matches!(reply, ShardReply::Refused(RequestError::Busy { .. })));
    assert_eq!(busy.count(), 16);
    assert!(matches!(replies[20], ShardReply::Accepted), "{:?}", replies[20]);
    assert!(matches!(replies[21], ShardReply::Idempotent(..)), "{:?}", replies[21]);
    assert!(matches!(replies[22], ShardReply::Purged), "{:?}", replies[22]);
}

#[test]
fn an_order_comes_before_the_messages_that_wait_for_the_same_run() {
    // Small commits: soon no turn may run until one of them is durable.
    let mut harness = ShardHarness::with_limits(StoreLimits::GUARANTEED, |_| {});
    publish(&harness);
    harness.start("gate", "a");
    harness.held_commits = Some(std::collections::VecDeque::new());
    let events: Vec<_> = (0..2_000).map(|_| harness.request_without_waiting(event("a"))).collect();
    let order = harness.request_without_waiting(terminate("a"));
    harness.release_commits();
    assert!(matches!(harness.reply_to(order), Some(ShardReply::Accepted)));
    let refused = |reply| {
        let ended = MessageRefusal::RunEnded { status: Status::Terminated };
        matches!(reply, Some(ShardReply::Refused(RequestError::Message(why))) if why == ended)
    };
    let last = *events.last().unwrap();
    assert!(refused(harness.reply_to(last)), "the order came first");
}

#[test]
fn a_run_that_is_ordered_to_end_before_its_first_turn_starts_nothing() {
    let mut harness = ShardHarness::with(|config| config.run_limits.depth_max = 2);
    let below = json!({"type": "workflow", "workflow": "itself", "next": "End"});
    harness.publish("itself", &json!({"Start": below, "End": {"type": "succeed"}}));
    harness.unavailable_plan_lookups = 1;
    harness.start("itself", "a");
    let reason = "enough".to_owned();
    assert!(matches!(harness.send_message("a", Message::TerminateTree { reason }), ShardReply::Accepted));
    harness.advance_clock(10_000);
    assert_eq!([harness.status("a"), harness.status("a~1.1")], ["Terminated", "Terminated"]);
    assert_eq!(harness.status("a~1.1~1.1"), "gone");
    harness.check();
}

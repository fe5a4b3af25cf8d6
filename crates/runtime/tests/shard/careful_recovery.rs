//! Unclean ends are counted, and from the second in a row on the stored work of one instance at a time is done, under
//! a mark. So an instance whose work ends the process is found and parked, and all others go on.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use abide_runtime::fault_injection::{Poison, PoisonEffect};
use abide_runtime::{Event, OperatorEvent, RequestError, ShardReply, ShardRequest, StopReason};
use abide_store::tables::heads::HeadRow;
use abide_workflow::Message;
use serde_json::json;

use crate::harness::{ShardHarness, instance_id, task_state};
use crate::session_events::{ID, publish as publish_session, start_or_raise};

const REASON: &str = "the server ended while it worked on this run";

fn lethal(id: &str) -> Option<Poison> {
    Some(Poison { instance_id: instance_id(id), effect: PoisonEffect::Die })
}

fn publish(harness: &ShardHarness) {
    harness.publish("one", &json!({"Start": task_state("End"), "End": {"type": "succeed"}}));
    let wait = json!({"type": "wait", "waitType": "externalEvent", "eventName": "go", "next": "End"});
    harness.publish("wait", &json!({"Start": wait, "End": {"type": "succeed"}}));
    let nap = json!({"type": "wait", "waitType": "duration", "duration": "PT5S", "next": "End"});
    harness.publish("nap", &json!({"Start": nap, "End": {"type": "succeed"}}));
}

/// Restarts the process until it lives through what recovery finds. Returns how often it died.
fn restart_until_alive(harness: &mut ShardHarness) -> usize {
    for deaths in 0..20 {
        let lives = catch_unwind(AssertUnwindSafe(|| {
            harness.crash();
            harness.advance_clock(20_000);
            while !harness.calls.is_empty() {
                harness.complete_attempt();
            }
        }));
        if lives.is_ok() {
            return deaths;
        }
    }
    panic!("it dies at every start");
}

/// Ends the process uncleanly, twice in a row.
fn crash_twice(harness: &mut ShardHarness) {
    harness.crash();
    harness.crash();
    assert!(harness.shard.recovers_carefully());
}

fn parked(harness: &ShardHarness) -> Vec<&str> {
    let events = harness.operator_events.iter();
    events
        .filter_map(|event| match event {
            OperatorEvent::Parked { instance_id, .. } => Some(instance_id.as_str()),
            _ => None,
        })
        .collect()
}

#[test]
fn a_run_whose_turn_ends_the_process_is_parked_at_the_third_start_and_all_others_complete() {
    for (workflow, deaths) in [("one", 2), ("nap", 2)] {
        let mut harness = ShardHarness::new();
        publish(&harness);
        for number in 0..40 {
            if number == 20 {
                harness.start(workflow, "bad");
            }
            harness.start(workflow, &format!("run-{number}"));
        }
        harness.config.poison = lethal("bad");
        assert_eq!(restart_until_alive(&mut harness), deaths, "{workflow}");
        let completed =
            (0..40).filter(|number| harness.status(&format!("run-{number}")) == "Completed").count();
        assert_eq!((completed, parked(&harness)), (40, vec!["bad"]), "{workflow}");
        assert_eq!(harness.park_reason("bad").unwrap(), REASON);
        harness.check();

        // It is seen, can be ended, and frees its id.
        let refused = harness.raise("bad", "go");
        assert!(matches!(refused, ShardReply::Refused(RequestError::Parked { .. })), "{refused:?}");
        let ended = harness.send_message("bad", Message::Terminate { reason: "enough".to_owned() });
        assert!(matches!(ended, ShardReply::Accepted), "{ended:?}");
        assert_eq!(harness.status("bad"), "Terminated");
        harness.check();
    }
}

#[test]
fn a_parked_run_goes_on_when_it_is_resumed_without_the_cause() {
    let mut harness = ShardHarness::new();
    publish(&harness);
    harness.start("one", "bad");
    harness.config.poison = lethal("bad");
    restart_until_alive(&mut harness);
    harness.config.poison = None;
    harness.crash();
    let resumed = harness.send_message("bad", Message::Resume { reason: String::new() });
    assert!(matches!(resumed, ShardReply::Accepted), "{resumed:?}");
    harness.advance_clock(20_000);
    while !harness.calls.is_empty() {
        harness.complete_attempt();
    }
    assert_eq!(harness.status("bad"), "Completed");
    harness.check();
}

#[test]
fn an_event_whose_check_ends_the_process_is_dead_lettered_and_a_child_fails_at_its_parent() {
    let mut harness = ShardHarness::new();
    publish_session(&harness);
    publish(&harness);
    harness.publish("parent", &json!({"Start": {"type": "workflow", "workflow": "one", "input": {"id": 1}, "next": "End"}, "End": {"type": "succeed"}}));
    harness.config.poison = lethal(ID);
    harness.crash();
    let accepted = catch_unwind(AssertUnwindSafe(|| harness.request(start_or_raise(1))));
    assert!(accepted.is_err(), "the event is durable, and its check ends the process");
    assert_eq!(restart_until_alive(&mut harness), 1);
    let reasons: Vec<_> = harness.dead_letters().iter().map(|letter| letter.error_message.clone()).collect();
    assert_eq!(reasons, [REASON]);
    assert!(harness.run(ID).is_none());
    harness.check();

    harness.restart_cleanly();
    harness.config.poison = lethal("p~1.1");
    harness.crash();
    let started = catch_unwind(AssertUnwindSafe(|| harness.start("parent", "p")));
    assert!(started.is_err(), "the child is asked for, and its check ends the process");
    assert_eq!(restart_until_alive(&mut harness), 1);
    assert_eq!(harness.status("p"), "Failed");
    assert!(format!("{:?}", harness.run("p").unwrap().instance.outcome()).contains(REASON));
    harness.check();
}

#[test]
fn an_instance_is_named_before_its_run_is_loaded_and_no_longer_in_the_commit_of_its_turn() {
    let mut harness = ShardHarness::new();
    publish(&harness);
    ["a", "b"].iter().for_each(|id| harness.start("wait", id));
    crash_twice(&mut harness);
    harness.marks.clear();
    let raised = ["a", "b"].map(|id| {
        let request = harness.next_request_id();
        let message = Message::EventRaised { name: "go".to_owned(), payload: json!(1).into() };
        let message = ShardRequest::SendMessage { instance_id: instance_id(id), message };
        (request, Event::RequestReceived(request, message))
    });
    let requests = raised.each_ref().map(|(request, _)| *request);
    harness.send_events(raised.map(|(_, event)| event));
    let steps: Vec<_> = harness.marks.iter().map(|(id, rows)| (id.as_deref(), *rows > 0)).collect();
    // A client that comes later does not wait for all that came before.
    assert_eq!(steps[..4], [(Some("b"), false), (None, true), (Some("a"), false), (None, true)]);
    for request in requests {
        assert!(matches!(harness.reply_to(request), Some(ShardReply::Accepted)));
    }
    harness.check();
}

#[test]
fn runs_that_clients_start_need_no_mark() {
    let mut harness = ShardHarness::new();
    publish(&harness);
    crash_twice(&mut harness);
    let before = (harness.commits, harness.rows);
    harness.start("one", "a");
    harness.complete_attempt();
    let carefully = (harness.commits - before.0, harness.rows - before.1);
    let mut harness = ShardHarness::new();
    publish(&harness);
    let before = (harness.commits, harness.rows);
    harness.start("one", "a");
    harness.complete_attempt();
    assert_eq!((harness.commits - before.0, harness.rows - before.1), carefully);
}

/// The commits and rows of a claim, and of the work that it finds.
fn cost_of_recovery(end: impl FnOnce(&mut ShardHarness)) -> (usize, usize) {
    let mut harness = ShardHarness::new();
    publish(&harness);
    (0..10).for_each(|number| harness.start("one", &format!("run-{number}")));
    let calls = harness.calls.len();
    end(&mut harness);
    let before = (harness.commits, harness.rows);
    harness.crash();
    harness.advance_clock(20_000);
    assert_eq!(harness.calls.len(), calls);
    while !harness.calls.is_empty() {
        harness.complete_attempt();
    }
    assert_eq!(harness.head().marked_instance, None);
    (harness.commits - before.0, harness.rows - before.1)
}

#[test]
fn the_claim_after_a_single_unclean_end_costs_no_more_than_the_one_after_a_release() {
    let after_release = cost_of_recovery(|harness| {
        let release = |head: &mut HeadRow| head.owner = None;
        harness.change_head(release);
    });
    let after_one = cost_of_recovery(|_| {});
    assert_eq!(after_one, after_release);
    let after_two = cost_of_recovery(|harness| harness.change_head(|head| head.unclean_claims = 1));
    assert!(after_two.0 >= after_one.0 + 10, "{after_two:?} against {after_one:?}: one is named at a time");
}

#[test]
fn unclean_ends_are_counted_until_a_release_or_a_minute_of_work() {
    let mut harness = ShardHarness::new();
    publish(&harness);
    assert_eq!(harness.head().unclean_claims, 0);
    for count in 1..4 {
        harness.crash();
        assert_eq!((harness.head().unclean_claims, harness.shard.recovers_carefully()), (count, count > 1));
    }
    harness.restart_cleanly();
    assert_eq!(harness.head().unclean_claims, 0);

    crash_twice(&mut harness);
    let commits = harness.commits;
    harness.advance_clock(59_000);
    assert!(harness.shard.recovers_carefully());
    harness.advance_clock(2_000);
    assert!(!harness.shard.recovers_carefully());
    assert_eq!((harness.commits, harness.head().unclean_claims), (commits, 2), "no commit of its own");
    harness.start("one", "a");
    assert_eq!(harness.head().unclean_claims, 0, "the next commit clears it");
    harness.crash();
    assert_eq!(harness.head().unclean_claims, 1);
}

#[test]
fn a_shard_that_drains_while_it_recovers_carefully_is_released() {
    let mut harness = ShardHarness::new();
    publish(&harness);
    harness.start("wait", "a");
    crash_twice(&mut harness);
    harness.held_commits = Some(VecDeque::new());
    let message = Message::EventRaised { name: "go".to_owned(), payload: json!(1).into() };
    let raised =
        harness.request_without_waiting(ShardRequest::SendMessage { instance_id: instance_id("a"), message });
    harness.send_event(Event::Drain);
    harness.release_commits();
    assert!(matches!(harness.reply_to(raised), Some(ShardReply::Accepted)));
    assert_eq!(harness.stopped, Some(StopReason::Drained));
    let head = harness.head();
    assert_eq!((head.is_released(), head.marked_instance), (true, None));
    harness.crash();
    assert_eq!(harness.head().unclean_claims, 0);
    harness.check();
}

//! Continue-as-new: no event is lost between runs, and a run that spins is parked.

use abide_ids::RunNumber;
use abide_runtime::{OperatorEvent, RequestError, ShardReply};
use abide_store::rows::{CommitOutcome, StoreLimits};
use abide_store::tables::TableId;
use abide_workflow::Message;
use serde_json::{Value, json};

use crate::harness::{ShardHarness, task_state};

fn suspend() -> Message {
    Message::Suspend { reason: String::new() }
}

fn resume() -> Message {
    Message::Resume { reason: String::new() }
}

fn terminate() -> Message {
    Message::Terminate { reason: "enough".to_owned() }
}

/// One event per run.
fn publish_loop(harness: &ShardHarness) {
    let gate = json!({"type": "wait", "waitType": "externalEvent", "eventName": "go", "next": "Again"});
    let again = json!({"type": "continueAsNew", "input": {"large": "$.input.large"}});
    harness.publish("loop", &json!({"Start": gate, "Again": again}));
}

fn publish_spinner(harness: &ShardHarness) {
    harness.publish("spinner", &json!({"Start": {"type": "continueAsNew", "input": {}}}));
}

fn large(bytes: usize) -> Value {
    json!({"large": "x".repeat(bytes)})
}

/// Raises events for a run that is suspended.
fn raise_all(harness: &mut ShardHarness, events: usize) {
    assert!(matches!(harness.send_message("a", suspend()), ShardReply::Accepted));
    for _ in 0..events {
        assert!(matches!(harness.raise("a", "go"), ShardReply::Accepted));
    }
}

/// Asserts that the run waits for the next event and has consumed this many.
fn assert_consumed(harness: &ShardHarness, events: u32) {
    let run = harness.run("a").unwrap();
    assert_eq!((run.row.run_number, run.instance.unconsumed_events()), (RunNumber(events + 1), Vec::new()));
    assert_eq!((harness.status("a").as_str(), &harness.stopped), ("Running", &None));
    harness.check();
}

#[test]
fn a_loop_consumes_every_event_raised_while_it_was_suspended() {
    // Small events all fit into one commit; large ones take several.
    for bytes in [10, 500_000] {
        let mut harness = ShardHarness::new();
        publish_loop(&harness);
        harness.start_with("loop", "a", large(bytes));
        raise_all(&mut harness, 20);
        assert!(matches!(harness.send_message("a", resume()), ShardReply::Accepted));
        assert_consumed(&harness, 20);
        assert!(matches!(harness.raise("a", "go"), ShardReply::Accepted));
        harness.crash();
        assert_consumed(&harness, 21);
    }
}

#[test]
fn no_event_is_lost_between_runs_whichever_commit_is_the_last_before_a_crash() {
    // Several runs fit into one commit; all of them take several commits.
    for crash_at in 0..12 {
        let mut harness = ShardHarness::with_limits(StoreLimits::GUARANTEED, |_| {});
        publish_loop(&harness);
        harness.start_with("loop", "a", large(100_000));
        raise_all(&mut harness, 20);
        harness.outcomes.extend((0..crash_at).map(|_| None));
        harness.outcomes.push_back(Some(CommitOutcome::Unavailable { reason: "dying".to_owned() }));
        let order = abide_runtime::ShardRequest::SendMessage {
            instance_id: crate::harness::instance_id("a"),
            message: resume(),
        };
        harness.request_without_waiting(order);
        harness.outcomes.clear();
        harness.crash();
        if harness.status("a") == "Suspended" {
            harness.send_message("a", resume());
        }
        assert_consumed(&harness, 20);
    }
}

#[test]
fn a_run_that_spins_is_parked_with_a_reason_and_can_be_terminated() {
    let mut harness = ShardHarness::new();
    publish_spinner(&harness);
    harness.publish("one", &json!({"Start": task_state("End"), "End": {"type": "succeed"}}));
    harness.start("spinner", "a");
    let reason = harness.park_reason("a").unwrap();
    assert!(reason.contains("continued as new"), "{reason}");
    let is_parked = |notice: &&OperatorEvent| matches!(notice, OperatorEvent::Parked { .. });
    assert_eq!(harness.operator_events.iter().filter(is_parked).count(), 1);
    for _ in 0..2 {
        assert!(matches!(harness.raise("a", "go"), ShardReply::Refused(RequestError::Parked { .. })));
        harness.check();
        harness.crash();
        assert_eq!(harness.park_reason("a").as_ref(), Some(&reason), "a restart does not resume it");
    }
    let before = harness.run("a").unwrap().row.run_number;
    assert!(matches!(harness.send_message("a", resume()), ShardReply::Accepted));
    assert!(harness.run("a").unwrap().row.run_number > before, "a resumed run gets another chance");
    assert_eq!(harness.park_reason("a").as_ref(), Some(&reason));
    harness.check();
    assert!(matches!(harness.send_message("a", terminate()), ShardReply::Accepted));
    assert_eq!((harness.status("a").as_str(), harness.park_reason("a")), ("Terminated", None));
    assert_eq!(harness.keys(TableId::Inbox), [], "no continuation row is left");
    harness.check();
    harness.start("one", "a");
    harness.complete_attempt();
    assert_eq!(harness.status("a"), "Completed", "its id can be used again");
    harness.advance_clock(2_000);
    harness.check();
}

#[test]
fn a_child_that_spins_can_be_terminated_and_its_parent_gets_the_failure() {
    let mut harness = ShardHarness::new();
    publish_spinner(&harness);
    let child = json!({"type": "workflow", "workflow": "spinner", "next": "End"});
    harness.publish("parent", &json!({"Start": child, "End": {"type": "succeed"}}));
    harness.start("parent", "p");
    let child = "p~1.1";
    assert!(harness.park_reason(child).is_some());
    harness.crash();
    assert_eq!(harness.status("p"), "Running");
    assert!(matches!(harness.send_message(child, terminate()), ShardReply::Accepted));
    assert_eq!(harness.status("p"), "Failed");
    harness.check();
}

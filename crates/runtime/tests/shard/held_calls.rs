//! Calls that are held back: what was not sent uses up neither an attempt nor a failure, however long an outage is,
//! and nothing is sent before the row of the call says so.

use abide_dispatch::{AttemptResult, CallFailure, HoldNotice, HoldReason};
use abide_runtime::event::AttemptId;
use abide_runtime::{Event, OperatorEvent, SendTicket, StopReason};
use abide_store::tables::TableId;
use abide_store::tables::calls::{CallHold, CallHoldReason, CallRow, CallRowState};
use abide_workflow::Message;
use serde_json::{Value, json};

use crate::harness::{ShardHarness, task_state};

fn not_connected() -> AttemptResult {
    AttemptResult::Failed(CallFailure::held(HoldReason::NotConnected, "ConnectFailed", "connection refused"))
}

fn notice(reason: HoldReason) -> HoldNotice {
    let retry_in = std::time::Duration::from_secs(1);
    HoldNotice { reason, message: "wait".to_owned(), retry_in }
}

/// A workflow of one task with these further fields.
fn publish_task(harness: &ShardHarness, fields: &Value) {
    let mut state = task_state("End");
    state.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let mut states = json!({"Start": state, "End": {"type": "succeed"}});
    if fields.get("onError").is_some() {
        let other = json!({"type": "succeed", "output": "$.error"});
        states.as_object_mut().unwrap().insert("Else".to_owned(), other);
    }
    harness.publish("one", &states);
}

/// A run whose first attempt could not be sent.
fn held_run(fields: &Value) -> ShardHarness {
    let mut harness = ShardHarness::new();
    publish_task(&harness, fields);
    harness.start("one", "a");
    harness.finish_attempt(not_connected());
    harness
}

fn row(harness: &ShardHarness) -> CallRow<'static> {
    harness.run("a").unwrap().calls.remove(0).1
}

fn hold(harness: &ShardHarness) -> Option<CallHold> {
    row(harness).hold
}

/// Takes the next try of a held call; it must come within two seconds.
fn next_try(harness: &mut ShardHarness) -> AttemptId {
    if harness.held_tries.is_empty() {
        harness.advance_clock(2_000);
    }
    assert_eq!((harness.held_tries.len(), harness.calls.len()), (1, 0));
    harness.held_tries.pop_front().unwrap().0
}

fn send_now(harness: &mut ShardHarness) {
    let id = next_try(harness);
    harness.send_event(Event::SendRequested(id, SendTicket(7)));
}

#[test]
fn an_outage_of_an_hour_uses_up_no_attempt_and_writes_one_row() {
    let mut harness = held_run(&json!({}));
    let held_since = hold(&harness).unwrap().since;
    harness.advance_clock(2_000);
    // Each commit has a head, and most of these only renew the lease.
    let rows_but_heads = |harness: &ShardHarness| harness.rows - harness.commits;
    let rows = rows_but_heads(&harness);
    for _ in 0..1_800 {
        let id = next_try(&mut harness);
        assert_eq!(id.attempt, 0);
        harness.send_event(Event::AttemptFinished(id, not_connected()));
        harness.advance_clock(2_000);
    }
    assert_eq!(rows_but_heads(&harness), rows);
    assert_eq!(hold(&harness).unwrap().since, held_since);
    send_now(&mut harness);
    let call = harness.complete_attempt();
    assert_eq!((call.metadata.retry_attempt, call.probe_first), (0, false));
    assert_eq!(harness.status("a"), "Completed");
    assert_eq!(harness.settled_calls("a")[0].attempt, 0);
    assert_eq!(harness.dead_letters(), []);
    harness.check();
}

#[test]
fn a_held_call_survives_crashes_with_its_reason_and_its_time() {
    let mut harness = held_run(&json!({}));
    let before = hold(&harness).unwrap();
    assert_eq!(before.reason, CallHoldReason::NotConnected);
    for _ in 0..10 {
        harness.crash();
        harness.advance_clock(100);
        let id = next_try(&mut harness);
        assert_eq!((id.attempt, hold(&harness)), (0, Some(before)));
        harness.check();
    }
    assert_eq!(harness.shard.held_calls(HoldReason::NotConnected), 1);
    harness.crash();
    harness.advance_clock(100);
    send_now(&mut harness);
    assert_eq!((hold(&harness), row(&harness).state), (None, CallRowState::Sent));
    assert_eq!(harness.shard.held_calls(HoldReason::NotConnected), 0);
    assert_eq!(harness.complete_attempt().metadata.retry_attempt, 0);
    assert_eq!(harness.status("a"), "Completed");
}

#[test]
fn a_held_call_is_sent_only_once_its_row_says_that_it_may_have_been() {
    let mut harness = held_run(&json!({}));
    let tried = next_try(&mut harness);
    harness.held_commits = Some(Default::default());
    harness.send_event(Event::SendRequested(tried, SendTicket(7)));
    assert_eq!(harness.calls.len(), 0, "the row is not durable");
    assert!(hold(&harness).is_some());
    harness.release_commits();
    assert_eq!(harness.calls.len(), 1);
    // It may have been sent: after a crash that counts as an attempt of unknown outcome.
    harness.crash();
    let again = &harness.calls[0].1;
    assert_eq!((again.metadata.retry_attempt, again.probe_first), (1, true));
    harness.check();
}

#[test]
fn an_attempt_that_waits_is_held_while_it_waits_and_is_not_started_twice() {
    let mut harness = ShardHarness::new();
    publish_task(&harness, &json!({}));
    harness.start("one", "a");
    let (id, _) = harness.calls.pop_front().unwrap();
    harness.send_event(Event::AttemptHeld(id.clone(), notice(HoldReason::RateLimit)));
    assert_eq!(hold(&harness).unwrap().reason, CallHoldReason::RateLimit);
    let commits = harness.commits;
    harness.send_event(Event::AttemptHeld(id.clone(), notice(HoldReason::RateLimit)));
    assert_eq!(harness.commits, commits, "nothing is new");
    harness.send_event(Event::AttemptHeld(id.clone(), notice(HoldReason::CircuitOpen)));
    assert_eq!(hold(&harness).unwrap().reason, CallHoldReason::CircuitOpen);
    harness.advance_clock(120_000);
    assert_eq!((harness.calls.len(), harness.held_tries.len()), (0, 0), "the driver waits with it");
    harness.send_event(Event::SendRequested(id, SendTicket(1)));
    assert_eq!(harness.complete_attempt().metadata.retry_attempt, 0);
    assert_eq!(harness.status("a"), "Completed");
    harness.check();
}

#[test]
fn a_held_call_fails_at_the_deadline_of_its_step_and_the_error_says_what_held_it() {
    for waits in [false, true] {
        let on_error = json!([{"match": ["Timeout"], "next": "Else"}]);
        let mut harness = held_run(&json!({"timeout": "PT30S", "onError": on_error}));
        let tried = next_try(&mut harness);
        if waits {
            harness.send_event(Event::AttemptHeld(tried.clone(), notice(HoldReason::NotConnected)));
            let late = "the deadline had passed before the activity was called";
            let late = CallFailure::permanent("DeadlineExceeded", late).with_not_sent();
            harness.advance_clock(29_000);
            assert_eq!(harness.shard.resident_instances(), 0, "it is loaded again");
            harness.send_event(Event::AttemptFinished(tried, AttemptResult::Failed(late)));
        } else {
            harness.send_event(Event::AttemptFinished(tried, not_connected()));
            for _ in 0..100 {
                harness.advance_clock(500);
                while let Some((id, _)) = harness.held_tries.pop_front() {
                    harness.send_event(Event::AttemptFinished(id, not_connected()));
                }
            }
        }
        let run = harness.run("a").unwrap();
        let Some(abide_workflow::Outcome::Completed(error)) = run.instance.outcome() else {
            panic!("{:?}", run.instance.outcome())
        };
        let text = error.to_string();
        assert_eq!(error["code"], "Timeout", "{text}");
        for part in ["deadline has passed", "not_connected", "connection refused", "nothing was sent since"] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(harness.shard.held_calls(HoldReason::NotConnected), 0);
        harness.advance_clock(1_000);
        harness.check();
    }
}

#[test]
fn an_error_that_the_retry_policy_names_fails_the_step_at_once() {
    let policy = json!({"nonRetryable": ["ConnectFailed", "CircuitOpen"]});
    let mut harness = held_run(&json!({"retryPolicy": policy}));
    assert_eq!(harness.status("a"), "Failed");
    harness.start("one", "b");
    let (id, _) = harness.calls.pop_front().unwrap();
    harness.send_event(Event::AttemptHeld(id.clone(), notice(HoldReason::CircuitOpen)));
    assert_eq!(harness.status("b"), "Failed");
    assert_eq!(harness.cancelled, [id], "the driver stops waiting");
    harness.check();
}

#[test]
fn a_draining_shard_leaves_its_held_calls_to_the_next_owner() {
    for in_flight in [false, true] {
        let mut harness = held_run(&json!({}));
        let before = hold(&harness);
        let mut events = vec![Event::Drain];
        if in_flight {
            events.push(Event::AttemptWithdrawn(next_try(&mut harness)));
        }
        harness.send_events(events);
        assert_eq!(harness.stopped.take(), Some(StopReason::Drained));
        harness.wall_clock_ahead_ms = -3_600_000;
        harness.crash();
        harness.advance_clock(100);
        assert_eq!((next_try(&mut harness).attempt, hold(&harness)), (0, before));
    }
}

#[test]
fn a_held_call_is_stuck_in_time_even_though_its_attempts_are_short() {
    let mut harness = ShardHarness::new();
    let states = json!({"Start": task_state("End"), "End": {"type": "succeed"}});
    harness.publish_with("one", &json!({"stuckAfter": "PT10M"}), &states);
    harness.start("one", "a");
    harness.finish_attempt(not_connected());
    for _ in 0..700 {
        harness.advance_clock(1_000);
        while let Some((id, _)) = harness.held_tries.pop_front() {
            harness.send_event(Event::AttemptFinished(id, not_connected()));
        }
    }
    let stuck = harness.operator_events.iter().find_map(|event| match event {
        OperatorEvent::Stuck { waiting_for, .. } => Some(waiting_for.clone()),
        _ => None,
    });
    let stuck = stuck.unwrap();
    assert!(
        stuck.contains("activity work, attempt 0") && stuck.contains("held back by not_connected"),
        "{stuck}"
    );
}

#[test]
fn a_call_that_is_cancelled_while_it_is_held_is_held_no_more() {
    let mut harness = held_run(&json!({}));
    let tried = next_try(&mut harness);
    harness.send_message("a", Message::Terminate { reason: "enough".to_owned() });
    assert_eq!(harness.cancelled, std::slice::from_ref(&tried));
    assert_eq!(harness.shard.held_calls(HoldReason::NotConnected), 0);
    // What the driver still reports changes nothing.
    harness.send_event(Event::SendRequested(tried.clone(), SendTicket(1)));
    harness.send_event(Event::AttemptFinished(tried, not_connected()));
    harness.advance_clock(10_000);
    assert_eq!((harness.calls.len(), harness.held_tries.len()), (0, 0));
    assert_eq!((harness.status("a").as_str(), harness.keys(TableId::Call)), ("Terminated", Vec::new()));
    harness.check();
}

#[test]
fn an_attempt_that_gives_up_just_after_it_was_allowed_is_held_again() {
    let mut harness = held_run(&json!({}));
    let tried = next_try(&mut harness);
    harness.send_events([
        Event::SendRequested(tried.clone(), SendTicket(1)),
        Event::AttemptFinished(tried, not_connected()),
    ]);
    // The driver ignores the permission, because that try has ended.
    harness.calls.clear();
    assert!(hold(&harness).is_some());
    send_now(&mut harness);
    assert_eq!(harness.complete_attempt().metadata.retry_attempt, 0);
    assert_eq!(harness.status("a"), "Completed");
    harness.check();
}

#[test]
fn a_suspended_run_keeps_a_held_call_and_goes_on_when_it_is_resumed() {
    let mut harness = held_run(&json!({}));
    harness.send_message("a", Message::Suspend { reason: String::new() });
    send_now(&mut harness);
    harness.complete_attempt();
    assert_eq!(harness.status("a"), "Suspended");
    harness.send_message("a", Message::Resume { reason: String::new() });
    assert_eq!(harness.status("a"), "Completed");
    harness.check();
}

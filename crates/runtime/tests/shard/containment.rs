//! A panic in an evaluation ends in an error of its own run: the shard keeps its claim, and all other runs go on.

use abide_runtime::fault_injection::{Poison, PoisonEffect};
use abide_runtime::{OperatorEvent, RequestError, ShardReply};
use abide_workflow::Message;
use serde_json::json;

use crate::harness::{ShardHarness, instance_id, task_state};

fn poisoned(id: &str) -> Option<Poison> {
    Some(Poison { instance_id: instance_id(id), effect: PoisonEffect::Panic })
}

fn publish(harness: &ShardHarness) {
    harness.publish("one", &json!({"Start": task_state("End"), "End": {"type": "succeed"}}));
}

fn claims(harness: &ShardHarness) -> usize {
    harness.operator_events.iter().filter(|event| matches!(event, OperatorEvent::Owned { .. })).count()
}

#[test]
fn a_turn_that_panics_beside_a_thousand_healthy_runs_parks_its_run_and_costs_no_claim() {
    let mut harness = ShardHarness::with(|config| config.poison = poisoned("bad"));
    publish(&harness);
    for number in 0..1_000 {
        if number == 500 {
            harness.start("one", "bad");
        }
        harness.start("one", &format!("run-{number}"));
    }
    while !harness.calls.is_empty() {
        harness.complete_attempt();
    }
    let completed =
        (0..1_000).filter(|number| harness.status(&format!("run-{number}")) == "Completed").count();
    assert_eq!((completed, claims(&harness), &harness.stopped), (1_000, 1, &None));
    let reason = harness.park_reason("bad").unwrap();
    assert_eq!(reason, "the turn panicked: the data of bad is poisonous");
    harness.check();
}

#[test]
fn a_run_whose_turn_panicked_goes_on_when_it_is_resumed_without_the_cause() {
    let mut harness = ShardHarness::new();
    publish(&harness);
    harness.start("one", "a");
    harness.config.poison = poisoned("a");
    harness.crash();
    harness.advance_clock(20_000);
    harness.complete_attempt();
    assert_eq!(harness.park_reason("a").unwrap(), "the turn panicked: the data of a is poisonous");
    let refused = harness.raise("a", "go");
    assert!(matches!(refused, ShardReply::Refused(RequestError::Parked { .. })), "{refused:?}");

    harness.config.poison = None;
    harness.crash();
    let resumed = harness.send_message("a", Message::Resume { reason: String::new() });
    assert!(matches!(resumed, ShardReply::Accepted), "{resumed:?}");
    harness.advance_clock(20_000);
    while !harness.calls.is_empty() {
        harness.complete_attempt();
    }
    assert_eq!(harness.status("a"), "Completed");
    harness.check();
}

#[test]
fn a_run_whose_every_turn_panics_can_be_terminated() {
    let mut harness = ShardHarness::with(|config| config.poison = poisoned("a"));
    publish(&harness);
    harness.start("one", "a");
    let terminated = harness.send_message("a", Message::Terminate { reason: "enough".to_owned() });
    assert!(matches!(terminated, ShardReply::Accepted), "{terminated:?}");
    let refused = harness.raise("a", "go");
    assert!(matches!(refused, ShardReply::Refused(RequestError::Message(_))), "{refused:?}");
    assert_eq!(claims(&harness), 1);
}

#[test]
fn a_child_whose_input_check_panics_fails_its_parent_and_not_the_shard() {
    let mut harness = ShardHarness::new();
    publish(&harness);
    let child = json!({"type": "workflow", "workflow": "one", "input": {"id": 1}, "next": "End"});
    harness.publish("parent", &json!({"Start": child, "End": {"type": "succeed"}}));
    harness.start("parent", "q");
    let (healthy, _) = &harness.calls[0];
    harness.config.poison = poisoned(&healthy.instance_id.as_str().replace('q', "p"));
    harness.crash();
    harness.start("parent", "p");
    let run = harness.run("p").unwrap();
    let outcome = format!("{:?}", run.instance.outcome());
    assert!(outcome.contains("the check of the input panicked"), "{outcome}");
    assert_eq!((harness.status("p").as_str(), claims(&harness)), ("Failed", 2), "one claim after the crash");
    harness.check();
}

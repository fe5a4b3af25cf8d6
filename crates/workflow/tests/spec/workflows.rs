//! The `workflow` state: a child run, its end, its versions, and its end with the parent.

use serde_json::{Value, json};

use crate::bench::{case, check, definition, finds, story};

fn parent() -> Value {
    json!({
        "Child": {"type": "workflow", "workflow": "kid", "input": {"n": "$.input.n"}, "output": "$.state.kid", "next": "End"},
        "End": {"type": "succeed", "output": "$.state.kid"},
    })
}

#[test]
fn a_child_runs_and_its_output_is_returned() {
    let case = case("Child", parent()).input(json!({"n": 5})).with(
        "kid",
        "Done",
        json!({"Done": {"type": "succeed", "output": ["$.input.n", "$.system.instanceId"]}}),
    );
    check(
        "child",
        &case,
        &[
            "Child",
            "child kid({\"n\":5})",
            "  Done",
            "  Completed [5,\"rehearsal~1.1\"]",
            "child = [5,\"rehearsal~1.1\"]",
            "End",
            "Completed [5,\"rehearsal~1.1\"]",
        ],
    );
}

#[test]
fn a_child_s_failure_is_raised_at_its_state() {
    let mut states = parent();
    states["Child"]["onError"] = "Caught".into();
    states["Caught"] = json!({"type": "succeed", "output": ["$.error.code", "$.error.state"]});
    let case = case("Child", states).input(json!({"n": 1})).with(
        "kid",
        "Bad",
        json!({"Bad": {"type": "fail", "error": "Naughty"}}),
    );
    check(
        "fails",
        &case,
        &[
            "Child",
            "child kid({\"n\":1})",
            "  Bad",
            "  Naughty is not caught",
            "  Failed Naughty in Bad",
            "child ! Naughty",
            "Naughty -> Caught",
            "Caught",
            "Completed [\"Naughty\",\"Child\"]",
        ],
    );
}

#[test]
fn a_child_that_takes_too_long_is_terminated() {
    let mut states = parent();
    states["Child"]["timeout"] = "PT1H".into();
    states["Child"]["timeoutNext"] = "End".into();
    states["End"]["output"] = "late".into();
    let kid = json!({"Gate": {"type": "wait", "waitType": "externalEvent", "eventName": "X", "next": "Done"}, "Done": {"type": "succeed"}});
    let case = case("Child", states).input(json!({"n": 1})).with("kid", "Gate", kid);
    check(
        "timeout",
        &case,
        &[
            "Child",
            "child kid({\"n\":1})",
            "timer PT1H",
            "  Gate",
            "fired",
            "Timeout -> End",
            "End",
            "Completed \"late\"",
            "  Terminated",
        ],
    );
}

#[test]
fn children_end_with_their_parent_unless_abandoned() {
    let kid = json!({"Gate": {"type": "wait", "waitType": "duration", "duration": "PT5H", "next": "Done"}, "Done": {"type": "succeed"}});
    let base = case("Child", parent())
        .input(json!({"n": 1}))
        .with("kid", "Gate", kid.clone())
        .control("PT1H", "terminate");
    check(
        "terminate",
        &base,
        &["Child", "child kid({\"n\":1})", "  Gate", "  timer PT5H", "Terminated", "  Terminated"],
    );
    let mut states = parent();
    states["Child"]["onParentClose"] = "abandon".into();
    let abandoned =
        case("Child", states).input(json!({"n": 1})).with("kid", "Gate", kid).control("PT1H", "terminate");
    let lines = story(&abandoned.play(abandoned.limits.turn, true));
    assert!(lines.contains(&"  Completed null".to_owned()), "{lines:?}");
}

#[test]
fn a_workflow_that_starts_itself_ends_at_the_limit_of_depth() {
    let mut states = parent();
    states["Child"]["onError"] = "Caught".into();
    states["Caught"] = json!({"type": "succeed", "output": ["$.error.code", "$.system.instanceId"]});
    let case = case("Child", states.clone())
        .input(json!({"n": 1}))
        .with("kid", "Child", states)
        .limits(|limits| limits.depth_max = 2);
    let lines = story(&case.play(case.limits.turn, true));
    assert_eq!(lines.last().unwrap(), "Completed [\"ChildTooDeep\",\"rehearsal~1.1~1.1\"]");
}

#[test]
fn a_version_outside_the_range_is_not_found() {
    let mut states = parent();
    states["Child"]["version"] = "^2".into();
    let case = case("Child", states).input(json!({"n": 1})).with(
        "kid",
        "Done",
        json!({"Done": {"type": "succeed"}}),
    );
    check(
        "range",
        &case,
        &[
            "Child",
            "child kid({\"n\":1})",
            "child ! WorkflowNotFound",
            "WorkflowNotFound is not caught",
            "Failed WorkflowNotFound in Child",
        ],
    );
}

#[test]
fn workflows_may_be_mocked_and_spread() {
    let mut states = parent();
    states["Child"]["spread"] = true.into();
    let case = case("Child", states).input(json!({"n": 1})).mock_workflow("kid", json!({"result": "mocked"}));
    check(
        "mocked",
        &case,
        &["Child", "child kid({\"n\":1})", "child = \"mocked\"", "End", "Completed \"mocked\""],
    );
    let playback = case.play(case.limits.turn, true);
    let created = playback.timeline.iter().find_map(|(_, event)| match &event.fact {
        abide_workflow::history::Fact::SubOrchestrationInstanceCreated { instance_id, .. } => {
            Some(instance_id.clone())
        }
        _ => None,
    });
    let id = created.unwrap();
    assert!(id.placement_key() == id.as_str() && id.as_str().starts_with("child-"), "{id}");
}

#[test]
fn malformed_children_are_refused() {
    for (rule, field, value, code) in [
        ("an invalid range", "version", json!("two"), "invalid-value"),
        ("an unknown policy", "onParentClose", json!("keep"), "invalid-value"),
        ("spread is a boolean", "spread", json!("yes"), "wrong-type"),
        ("a name is needed", "workflow", json!(""), "invalid-value"),
    ] {
        let mut states = parent();
        states["Child"][field] = value;
        finds(rule, &definition("Child", states), None, &[(code, &format!("/states/Child/{field}"))]);
    }
}

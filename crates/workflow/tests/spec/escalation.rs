//! Escalation after the workflow's own timeout: recorded, notified, recovered or compensated, failed.

use serde_json::{Value, json};

use crate::bench::{case, check, definition, finds};

fn states() -> Value {
    json!({
        "Make": {"type": "task", "activity": "Make", "next": "Gate", "compensateWith": {"activity": "Unmake", "input": 1}},
        "Gate": {"type": "wait", "waitType": "externalEvent", "eventName": "Go", "next": "End"},
        "End": {"type": "succeed"},
    })
}

const STARTED: [&str; 6] = ["timer PT1H", "Make", "Make(null)", "= null", "Gate", "fired"];

#[track_caller]
fn escalates(rule: &str, case: &crate::bench::Case, rest: &[&str]) {
    check(rule, case, &[&STARTED[..], &["note: timed out after PT1H in Gate"][..], rest].concat());
}

#[test]
fn without_escalation_the_run_compensates_and_fails() {
    let case = case("Make", states())
        .configuration(json!({"timeout": "PT1H"}))
        .mock("Make", json!({"result": null}));
    escalates(
        "compensate",
        &case,
        &[
            "note: compensating 1",
            "Unmake(1)",
            "= null",
            "note: compensated 1, failed 0",
            "Failed Timeout in Gate",
        ],
    );
}

#[test]
fn the_channel_is_notified_and_a_failed_notification_stops_nothing() {
    let configuration = json!({"timeout": "PT1H", "escalation": {"notify": {"activity": "Page", "input": {"error": "$.error.code", "id": "$.system.instanceId"}}}});
    let notified = case("Make", states()).configuration(configuration.clone());
    let compensation = [
        "note: compensating 1",
        "Unmake(1)",
        "= null",
        "note: compensated 1, failed 0",
        "Failed Timeout in Gate",
    ];
    let page = "Page({\"error\":\"Timeout\",\"id\":\"rehearsal\"})";
    escalates("notified", &notified, &[&[page, "= null"][..], &compensation].concat());
    let failing = notified.mock("Page", json!({"error": {"code": "NoLine"}}));
    let failed = [page, "! NoLine", "note: notify failed NoLine"];
    escalates("not notified", &failing, &[&failed[..], &compensation].concat());
}

#[test]
fn the_notification_is_retried_by_the_policy_of_its_activity() {
    let case = case("Make", states())
        .configuration(json!({"timeout": "PT1H", "escalation": {"notify": {"activity": "Page"}}}))
        .registry(json!([{"name": "Page", "category": "messaging", "retryPolicy": {"maxAttempts": 5}},
            {"name": "Make", "category": "other"}, {"name": "Unmake", "category": "other"}]))
        .mock("Page", json!({"error": {"code": "NoLine", "retryable": true}}));
    let playback = case.play(case.limits.turn, true);
    assert_eq!(playback.attempts.iter().filter(|attempt| attempt.activity == "Page").count(), 5);
}

#[test]
fn a_recovery_state_may_save_the_run() {
    let mut states = states();
    states["Save"] = json!({"type": "task", "activity": "Save", "attemptTimeout": "P1D", "next": "End"});
    let configuration =
        json!({"timeout": "PT1H", "escalation": {"recover": "Save", "recoverWithin": "PT10M"}});
    let base = case("Make", states).configuration(configuration);
    escalates(
        "saved",
        &base,
        &["timer PT10M", "note: recovery in Save", "Save(null)", "= null", "End", "Completed null"]
            .into_iter()
            .flat_map(|line| if line == "Save(null)" { vec!["Save", line] } else { vec![line] })
            .collect::<Vec<_>>(),
    );
    let compensation = ["note: compensating 1", "Unmake(1)", "= null", "note: compensated 1, failed 0"];
    let lost = base.clone().mock("Save", json!({"error": {"code": "Lost"}}));
    escalates(
        "not saved",
        &lost,
        &[
            &[
                "timer PT10M",
                "note: recovery in Save",
                "Save",
                "Save(null)",
                "! Lost",
                "Lost is not caught",
                "note: recovery failed Lost",
            ][..],
            &compensation,
            &["Failed Timeout in Save"],
        ]
        .concat(),
    );
    let slow = base.mock("Save", json!({"never": true}));
    let playback = slow.play(slow.limits.turn, true);
    let lines = crate::bench::story(&playback);
    assert!(lines.contains(&"note: recovery failed Timeout".to_owned()), "{lines:?}");
    assert_eq!(lines.last().unwrap(), "Failed Timeout in Save");
}

#[test]
fn a_run_that_ends_in_time_cancels_its_timeout() {
    let case = case("Make", states()).configuration(json!({"timeout": "PT1H"})).event("PT1M", "Go", json!(1));
    check(
        "in time",
        &case,
        &["timer PT1H", "Make", "Make(null)", "= null", "Gate", "event Go 1", "End", "Completed null"],
    );
}

#[test]
fn a_run_that_is_compensating_is_not_interrupted() {
    let states = json!({
        "Make": {"type": "task", "activity": "Make", "onError": "Undo", "next": "End"},
        "Undo": {"type": "compensation", "steps": [{"activity": "Slow", "attemptTimeout": "P1D"}], "next": "Failed"},
        "End": {"type": "succeed"}, "Failed": {"type": "fail"},
    });
    let case = case("Make", states)
        .configuration(json!({"timeout": "PT1H"}))
        .mock("Make", json!({"error": {"code": "Boom"}}))
        .mock("Slow", json!({"after": "PT2H", "result": 1}));
    check(
        "compensating",
        &case,
        &[
            "timer PT1H",
            "Make",
            "Make(null)",
            "! Boom",
            "Boom -> Undo",
            "Undo",
            "note: compensating 1",
            "Slow(null)",
            "fired",
            "timer PT1H",
            "= 1",
            "note: compensated 1, failed 0",
            "Failed",
            "Boom is not caught",
            "Failed Boom in Make",
        ],
    );
}

#[test]
fn branches_are_cancelled_before_the_channel_is_notified() {
    let branch = json!({"startAt": "Gate", "states": {
        "Gate": {"type": "wait", "waitType": "externalEvent", "eventName": "Never", "next": "Done"}, "Done": {"type": "succeed"}}});
    let states = json!({
        "Fan": {"type": "parallel", "branches": [branch.clone(), branch], "next": "End"}, "End": {"type": "succeed"}});
    let case = case("Fan", states)
        .configuration(json!({"timeout": "PT1H", "escalation": {"notify": {"activity": "Page"}}}));
    check(
        "branches",
        &case,
        &[
            "timer PT1H",
            "Fan",
            "Fan/branches/0/Gate",
            "Fan/branches/1/Gate",
            "fired",
            "note: timed out after PT1H in Fan, Fan/branches/0/Gate, Fan/branches/1/Gate",
            "branch 1 cancelled",
            "branch 0 cancelled",
            "Page(null)",
            "= null",
            "note: compensating 0",
            "note: compensated 0, failed 0",
            "Failed Timeout in Fan",
        ],
    );
}

#[test]
fn invalid_escalations_are_findings() {
    let with = |configuration: Value| {
        let mut definition = definition("Make", states());
        definition["states"]["Make"].as_object_mut().unwrap().remove("compensateWith");
        definition["configuration"] = configuration;
        definition
    };
    finds(
        "without a timeout",
        &with(json!({"escalation": {"notify": {"activity": "Page"}}})),
        None,
        &[("unused-field", "/configuration/escalation")],
    );
    let item =
        json!({"timeout": "PT1H", "escalation": {"notify": {"activity": "Page", "input": ["$.item"]}}});
    finds(
        "outside a map",
        &with(item),
        None,
        &[("item-outside-map", "/configuration/escalation/notify/input/0")],
    );
    finds(
        "dangling",
        &with(json!({"timeout": "PT1H", "escalation": {"recover": "Nope"}})),
        None,
        &[("dangling-target", "/configuration/escalation/recover")],
    );
    finds("zero", &with(json!({"timeout": "PT0S"})), None, &[("zero-timeout", "/configuration/timeout")]);
    let mut long = with(json!({"timeout": "PT1H"}));
    long["states"]["Gate"]["timeout"] = "PT2H".into();
    finds("longer than the workflow", &long, None, &[("timeout-beyond-workflow", "/states/Gate/timeout")]);
    finds(
        "a default longer than the workflow",
        &with(json!({"timeout": "PT1H", "defaultTimeout": "PT2H"})),
        None,
        &[("timeout-beyond-workflow", "/configuration/defaultTimeout")],
    );
    let mut wait = with(json!({"timeout": "PT1H"}));
    wait["states"]["Gate"] = json!({"type": "wait", "waitType": "duration", "duration": "PT2H", "output": "$.state.x", "next": "End"});
    finds(
        "a wait longer than the workflow, and an output without a result",
        &wait,
        None,
        &[("timeout-beyond-workflow", "/states/Gate/duration"), ("unused-field", "/states/Gate/output")],
    );
}

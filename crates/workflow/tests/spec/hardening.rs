//! Regression tests for defects of the past: each test is named after the promise that was broken.

use abide_workflow::command::CommandKind;
use abide_workflow::{
    CommandId, Instance, InstanceId, Limits, Message, RunNumber, RunOrigin, Status, Timestamp, advance,
};
use serde_json::{Value, json};

use crate::bench::{Case, case, check, story};

fn story_of(case: &Case) -> Vec<String> {
    story(&case.play(case.limits.turn, true))
}

fn gate(event: &str, next: &str) -> Value {
    json!({"type": "wait", "waitType": "externalEvent", "eventName": event, "next": next})
}

#[test]
fn rewind_does_not_go_back_to_an_error_of_another_branch() {
    let states = json!({
        "A": {"type": "task", "activity": "A", "onError": "Fan", "next": "Fan"},
        "Fan": {"type": "parallel", "next": "End", "branches": [
            {"startAt": "Wait", "states": {"Wait": gate("Never", "D"), "D": {"type": "succeed"}}},
            {"startAt": "Bad", "states": {"Bad": {"type": "fail", "error": "Chosen"}}}]},
        "End": {"type": "succeed"},
    });
    let case = case("A", states).mock("A", json!({"error": {"code": "X"}})).control("PT1H", "rewind");
    assert_eq!(
        story_of(&case).last().unwrap(),
        "refused: there is no failed state to rewind to: the run ended in a fail state, or timed out as a whole"
    );
}

#[test]
fn a_state_entered_after_a_rewind_is_new_work() {
    let states = json!({
        "Work": {"type": "task", "activity": "Work", "onError": "Tell", "next": "End"},
        "Tell": {"type": "task", "activity": "Tell", "next": "Failed"},
        "Failed": {"type": "fail"}, "End": {"type": "succeed"},
    });
    let plan = case("Work", states).plan();
    let mut instance =
        Instance::pending(RunOrigin::new(InstanceId::new("i").unwrap(), RunNumber(1), &plan), Timestamp(0));
    let mut steps = Vec::new();
    let limits = Limits::default();
    for _ in 0..2 {
        let rewind = [Message::Rewind { reason: String::new() }];
        let inbox = if instance.status() == Status::Failed { &rewind[..] } else { &[] };
        let mut turn = advance(&plan, &mut instance, inbox, Timestamp(0), &limits).unwrap();
        while let Some(command) = turn.commands.first() {
            let CommandKind::StartActivity(call) = &command.kind else { break };
            steps.push(call.step.clone());
            let result = if call.activity == "Work" {
                Message::ActivityFailed {
                    command: command.id,
                    attempt: 0,
                    failure: abide_workflow::Failure::permanent("X", ""),
                }
            } else {
                Message::ActivityCompleted { command: command.id, result: json!(1).into() }
            };
            turn = advance(&plan, &mut instance, &[result], Timestamp(0), &limits).unwrap();
        }
    }
    assert_eq!(steps.len(), 4, "{steps:?}");
    for (n, step) in steps.iter().enumerate() {
        assert!(!steps[..n].contains(step), "{step:?} is called twice as the same work");
    }
}

#[test]
fn events_held_while_suspended_survive_continue_as_new() {
    let states = json!({
        "Gate": gate("Go", "Check"),
        "Check": {"type": "choice", "choices": [{"when": {"path": "$.event", "op": "eq", "value": "stop"}, "next": "End"}], "default": "Again"},
        "Again": {"type": "continueAsNew"}, "End": {"type": "succeed"},
    });
    let case = case("Gate", states)
        .control("PT1S", "suspend")
        .event("PT2S", "Go", json!("first"))
        .event("PT3S", "Go", json!("stop"))
        .control("PT4S", "resume");
    assert_eq!(story_of(&case).last().unwrap(), "Completed null");
}

#[test]
fn messages_after_continue_as_new_are_left_for_the_next_run() {
    let states = json!({"Gate": gate("Go", "Again"), "Again": {"type": "continueAsNew"}});
    let plan = case("Gate", states).plan();
    let mut instance =
        Instance::pending(RunOrigin::new(InstanceId::new("i").unwrap(), RunNumber(1), &plan), Timestamp(0));
    let event = |n: i32| Message::EventRaised { name: "Go".to_owned(), payload: json!(n).into() };
    let turn =
        advance(&plan, &mut instance, &[event(1), event(2), event(3)], Timestamp(0), &Limits::default())
            .unwrap();
    assert_eq!((turn.consumed, turn.refusals.len()), (1, 0));
    let mut next = *turn.next_run.unwrap();
    let turn = advance(&plan, &mut next, &[event(2), event(3)], Timestamp(0), &Limits::default()).unwrap();
    assert_eq!((turn.consumed, next.origin().run), (1, RunNumber(2)));
}

#[test]
fn a_compensation_gets_the_task_s_original_input_not_the_data_it_wrote() {
    let states = json!({
        "Set": {"type": "task", "activity": "Zero", "output": "$.state.n", "next": "Work"},
        "Work": {"type": "task", "activity": "Work", "input": "$.state.n", "output": "$.state.n", "next": "Bad"},
        "Bad": {"type": "task", "activity": "Bad", "onError": "Undo", "next": "End"},
        "Undo": {"type": "compensation", "next": "Failed"}, "Failed": {"type": "fail"}, "End": {"type": "succeed"},
    });
    let case = case("Set", states)
        .registry(json!([{"name": "Zero", "category": "other"}, {"name": "Work", "category": "other", "compensation": "Unwork"},
            {"name": "Unwork", "category": "other"}, {"name": "Bad", "category": "other"}]))
        .mock("Zero", json!({"result": 0})).mock("Work", json!({"result": 1})).mock("Bad", json!({"error": {"code": "X"}}));
    assert!(
        story_of(&case).contains(&"Unwork({\"input\":0,\"output\":1})".to_owned()),
        "{:#?}",
        story_of(&case)
    );
}

#[test]
fn a_registered_compensation_has_its_own_policy_and_timeout() {
    let states = json!({
        "Work": {"type": "task", "activity": "Work", "next": "Bad"},
        "Bad": {"type": "task", "activity": "Bad", "onError": "Undo", "next": "End"},
        "Undo": {"type": "compensation", "next": "Failed"}, "Failed": {"type": "fail"}, "End": {"type": "succeed"},
    });
    let case = case("Work", states)
        .registry(json!([{"name": "Work", "category": "other", "compensation": "Unwork"}, {"name": "Bad", "category": "other"},
            {"name": "Unwork", "category": "other", "attemptTimeout": "PT5M", "retryPolicy": {"maxAttempts": 5}}]))
        .mock("Bad", json!({"error": {"code": "X"}}))
        .mock("Unwork", json!([{"after": "PT1M", "error": {"code": "Busy", "retryable": true}}]));
    let playback = case.play(case.limits.turn, true);
    assert_eq!(playback.attempts.iter().filter(|attempt| attempt.activity == "Unwork").count(), 5);
    assert!(!story(&playback).iter().any(|line| line.contains("AttemptTimeout")));
}

fn compensating_branch() -> Value {
    json!({"startAt": "Work", "states": {
        "Work": {"type": "task", "activity": "Bad", "onError": "Undo", "next": "D"},
        "Undo": {"type": "compensation", "steps": [{"activity": "Undo1"}, {"activity": "Undo2"}], "next": "D"},
        "D": {"type": "succeed"}}})
}

#[test]
fn a_compensating_branch_is_not_interrupted_by_its_sibling() {
    let sibling = json!({"startAt": "Slow", "states": {"Slow": {"type": "task", "activity": "Slow", "next": "D"}, "D": {"type": "succeed"}}});
    let bystander =
        json!({"startAt": "Wait", "states": {"Wait": gate("Never", "D"), "D": {"type": "succeed"}}});
    for caught in [true, false] {
        let mut fan = json!({"type": "parallel", "branches": [compensating_branch(), sibling, bystander], "next": "End"});
        let mut states = json!({"End": {"type": "succeed"}, "Caught": {"type": "succeed"}});
        if caught {
            fan["onError"] = "Caught".into();
        } else {
            states.as_object_mut().unwrap().remove("Caught");
        }
        states["Fan"] = fan;
        let case = case("Fan", states)
            .mock("Bad", json!({"error": {"code": "X"}}))
            .mock("Slow", json!({"after": "PT1S", "error": {"code": "Boom"}}))
            .mock("Undo1", json!({"after": "PT5S", "result": 1}))
            .mock("Undo2", json!({"after": "PT5S", "result": 2}));
        let lines = story_of(&case);
        assert!(lines.contains(&"note: compensated 2, failed 0".to_owned()), "{lines:#?}");
        assert_eq!(lines.last().unwrap(), if caught { "Completed null" } else { "Failed Boom in Slow" });
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        check("the same story in all modes", &case, &lines);
    }
}

#[test]
fn failures_during_a_branch_s_compensation_count_before_its_failure_is_tolerated() {
    let nested = json!({"startAt": "Fan", "states": {
        "Fan": {"type": "parallel", "next": "D", "branches": [compensating_branch(), {"startAt": "Slow", "states": {
            "Slow": {"type": "task", "activity": "Slow", "next": "D"}, "D": {"type": "succeed"}}}]},
        "D": {"type": "succeed"}}});
    let states = json!({
        "Fan": {"type": "parallel", "join": {"atLeast": 1}, "branches": [nested.clone(), nested], "next": "End"}, "End": {"type": "succeed"}});
    let case = case("Fan", states)
        .mock("Bad", json!({"error": {"code": "X"}}))
        .mock("Slow", json!([{"after": "PT1S", "error": {"code": "Boom"}}, {"after": "PT2S", "error": {"code": "Boom"}}]))
        .mock("Undo1", json!({"after": "PT5S", "result": 1}));
    let lines = story_of(&case);
    assert_eq!(lines.last().unwrap(), "Failed Boom in Slow", "{lines:#?}");
}

#[test]
fn a_schema_that_depends_on_data_is_left_to_run_time() {
    let registry = json!([{"name": "Call", "category": "other", "input": {"type": "object",
        "if": {"properties": {"kind": {"const": null}}}, "then": {"required": ["never"]}, "else": {"required": ["id"]}}}]);
    let states = json!({"Call": {"type": "task", "activity": "Call", "input": {"kind": "$.input.kind", "id": 1}, "next": "End"}, "End": {"type": "succeed"}});
    crate::bench::finds("a path decides", &crate::bench::definition("Call", states), Some(&registry), &[]);
}

#[test]
fn every_run_has_jitter_of_its_own() {
    let states = json!({"Pause": {"type": "wait", "waitType": "duration", "duration": "PT1S", "next": "Again"}, "Again": {"type": "continueAsNew"}});
    let plan = case("Pause", states).plan();
    let origin = RunOrigin::new(InstanceId::new("i").unwrap(), RunNumber(1), &plan);
    let seed = origin.seed;
    let mut instance = Instance::pending(origin, Timestamp(0));
    let timer = advance(&plan, &mut instance, &[], Timestamp(0), &Limits::default()).unwrap().commands[0].id;
    let turn =
        advance(&plan, &mut instance, &[Message::TimerFired { timer }], Timestamp(0), &Limits::default())
            .unwrap();
    assert_ne!(turn.next_run.unwrap().origin().seed, seed);
}

#[test]
fn a_failure_while_branches_are_spawned_stops_only_the_fan_outs_it_leaves() {
    let fails_at_once = json!({"startAt": "Bad", "states": {"Bad": {"type": "fail", "error": "AtOnce"}}});
    let waits = json!({"startAt": "Do", "states": {"Do": {"type": "task", "activity": "Do", "next": "D"}, "D": {"type": "succeed", "output": "done"}}});
    let inner = |on_error: Option<&str>| {
        let mut fan = json!({"type": "parallel", "branches": [waits, fails_at_once, waits], "next": "D"});
        if let Some(next) = on_error {
            fan["onError"] = next.into();
        }
        json!({"startAt": "In", "states": {"In": fan, "D": {"type": "succeed", "output": "inner"}}})
    };
    // Caught inside: the outer fan-out, which is still spawning, continues.
    let states = json!({
        "Out": {"type": "parallel", "branches": [inner(Some("D")), waits, waits], "output": "$.state.all", "next": "End"},
        "End": {"type": "succeed", "output": "$.state.all"}});
    let inside = case("Out", states);
    let lines = story_of(&inside);
    assert_eq!(lines.last().unwrap(), "Completed [\"inner\",\"done\",\"done\"]");
    check("caught inside, in all modes", &inside, &lines.iter().map(String::as_str).collect::<Vec<_>>());
    // Caught outside: neither fan-out spawns another branch.
    let states = json!({
        "Out": {"type": "parallel", "branches": [inner(None), waits, waits], "onError": "Caught", "next": "End"},
        "Caught": {"type": "succeed", "output": "$.error.code"}, "End": {"type": "succeed"}});
    let outside = case("Out", states);
    check(
        "caught outside",
        &outside,
        &[
            "Out",
            "Out/branches/0/In",
            "Out/branches/0/In/branches/0/Do",
            "Do(null)",
            "Out/branches/0/In/branches/1/Bad",
            "AtOnce is not caught",
            "branch 1 failed",
            "branch 0 cancelled",
            "branch 0 cancelled",
            "AtOnce -> Caught",
            "Caught",
            "Completed \"AtOnce\"",
        ],
    );
}

#[test]
fn terminate_does_not_wait_for_compensations() {
    let states = json!({"Fan": {"type": "parallel", "branches": [compensating_branch()], "next": "End"}, "End": {"type": "succeed"}});
    let case = case("Fan", states)
        .mock("Bad", json!({"error": {"code": "X"}}))
        .mock("Undo1", json!({"never": true}))
        .control("PT1S", "terminate");
    assert_eq!(story_of(&case).last().unwrap(), "Terminated");
    let plan = case.plan();
    let mut instance =
        Instance::pending(RunOrigin::new(InstanceId::new("i").unwrap(), RunNumber(1), &plan), Timestamp(0));
    let mut turn =
        |message| advance(&plan, &mut instance, &[message], Timestamp(0), &Limits::default()).unwrap();
    let failed = Message::ActivityFailed {
        command: CommandId(1),
        attempt: 0,
        failure: abide_workflow::Failure::permanent("X", ""),
    };
    turn(Message::Suspend { reason: String::new() });
    turn(Message::Resume { reason: String::new() });
    let compensation = turn(failed).commands[0].id;
    let ended = turn(Message::Terminate { reason: String::new() });
    assert_eq!(ended.commands[0].kind, CommandKind::CancelActivity { call: compensation });
}

#[test]
fn a_run_that_has_compensated_is_not_recovered() {
    let states = json!({
        "Work": {"type": "task", "activity": "Bad", "onError": "Undo", "next": "End"},
        "Undo": {"type": "compensation", "steps": [{"activity": "Back"}], "next": "Wait"},
        "Wait": gate("Never", "End"), "End": {"type": "succeed"},
    });
    let case = case("Work", states)
        .configuration(json!({"timeout": "PT1H", "escalation": {"recover": "End"}}))
        .mock("Bad", json!({"error": {"code": "X"}}));
    assert_eq!(story_of(&case).last().unwrap(), "Failed Timeout in Wait");
}

#[test]
fn a_reached_join_starts_no_more_items() {
    let states = json!({
        "Each": {"type": "map", "items": "$.input.items", "maxConcurrency": 1, "join": {"atLeast": 2}, "output": "$.state.all", "next": "End",
            "iterator": {"startAt": "Do", "states": {"Do": {"type": "task", "activity": "Do", "next": "D"}, "D": {"type": "succeed", "output": "$.index"}}}},
        "End": {"type": "succeed", "output": "$.state.all"},
    });
    let case = case("Each", states).input(json!({"items": [0, 0, 0, 0]}));
    let playback = case.play(case.limits.turn, true);
    assert_eq!(playback.attempts.len(), 2);
    assert_eq!(story(&playback).last().unwrap(), "Completed [0,1,null,null]");
}

#[test]
fn a_buffer_stays_bounded_while_a_branch_waits_for_another_payload() {
    let mut wait = gate("Go", "End");
    wait["match"] = json!({"path": "$.event", "op": "eq", "value": "right"});
    let mut case = case("Gate", json!({"Gate": wait, "End": {"type": "succeed"}}))
        .limits(|limits| limits.buffered_max = 3);
    for _ in 0..5 {
        case = case.event("PT1S", "Go", json!("wrong"));
    }
    let lines = story_of(&case.event("PT2S", "Go", json!("right")));
    assert_eq!(lines.iter().filter(|line| *line == "event Go \"wrong\"").count(), 3, "{lines:#?}");
    assert_eq!(lines.iter().filter(|line| line.starts_with("refused")).count(), 2, "{lines:#?}");
    assert!(lines.contains(&"Completed null".to_owned()));
}

#[test]
fn nested_maps_cannot_outgrow_the_limit_on_branches() {
    let inner = json!({"startAt": "Each", "states": {
        "Each": {"type": "map", "items": "$.input.items", "next": "D", "iterator": {"startAt": "D", "states": {"D": {"type": "succeed"}}}}, "D": {"type": "succeed"}}});
    let states = json!({
        "Outer": {"type": "map", "items": "$.input.items", "maxConcurrency": 1, "iterator": inner, "onError": "Caught", "next": "End"},
        "Caught": {"type": "succeed", "output": "$.error.code"}, "End": {"type": "succeed"},
    });
    let case = case("Outer", states)
        .input(json!({"items": vec![0; 10]}))
        .limits(|limits| limits.live_branches_max = 15);
    assert_eq!(story_of(&case).last().unwrap(), "Completed \"FanOutTooWide\"");
}

#[test]
fn payloads_larger_than_a_turn_do_not_stop_it() {
    let case = case("End", json!({"End": {"type": "succeed"}})).limits(|limits| {
        limits.payload_bytes_max = 64 * 1024 * 1024;
        limits.turn.bytes_max = 1;
    });
    check("it moves", &case, &["End", "Completed null"]);
}

#[test]
fn data_that_looks_like_a_secret_reference_is_not_one() {
    let states = json!({
        "Call": {"type": "task", "activity": "Call", "input": {"from": "$.input", "key": [{"secretRef": "env://KEY"}]}, "next": "End",
                 "compensateWith": {"activity": "Undo"}},
        "End": {"type": "succeed"},
    });
    let plan = case("Call", states).plan();
    let mut origin = RunOrigin::new(InstanceId::new("i").unwrap(), RunNumber(1), &plan);
    origin.input = json!({"secretRef": "env://ADMIN"}).into();
    let turn =
        advance(&plan, &mut Instance::pending(origin, Timestamp(0)), &[], Timestamp(0), &Limits::default())
            .unwrap();
    let CommandKind::StartActivity(call) = &turn.commands[0].kind else { panic!() };
    assert_eq!(call.secret_pointers, ["/key/0"]);
}

#[test]
fn a_fail_state_without_its_value_still_has_a_code() {
    let states = json!({
        "Work": {"type": "task", "activity": "Bad", "onError": "Failed", "next": "End"},
        "Failed": {"type": "fail", "error": "$.state.gone"}, "End": {"type": "succeed"}});
    let case = case("Work", states).mock("Bad", json!({"error": {"code": "X"}}));
    assert!(story_of(&case).last().unwrap().starts_with("Failed X in"), "{:?}", story_of(&case));
}

#[test]
fn thousands_of_errors_produce_bounded_output() {
    let choices: Vec<Value> = (0..5_000)
        .map(|n| json!({"when": {"path": "$.input", "op": "isNull"}, "next": format!("Nowhere{n}")}))
        .collect();
    let mut states = json!({"Pick": {"type": "choice", "choices": choices}});
    for n in 0..900 {
        states[format!("Island{n}")] = json!({"type": "succeed"});
    }
    let found = crate::bench::findings(&crate::bench::definition("Pick", states), None);
    assert_eq!(found.len(), 5_000);
    let consequences: usize = found.iter().map(|finding| finding.consequences.len()).sum();
    assert!(consequences <= 20 * 21, "{consequences}");
}

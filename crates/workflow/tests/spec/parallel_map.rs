//! The `parallel` and `map` states: results in order, copies of `$.state`, first failure or enough successes, other
//! branches cancelled.

use serde_json::{Value, json};

use crate::bench::{case, check, definition, finds, story};

fn call(activity: &str) -> Value {
    json!({"startAt": "Call", "states": {
        "Call": {"type": "task", "activity": activity, "output": "$.state.x", "next": "Done"},
        "Done": {"type": "succeed", "output": "$.state.x"},
    }})
}

fn fan(branches: Value) -> Value {
    json!({
        "Fan": {"type": "parallel", "branches": branches, "output": "$.state.all", "next": "End"},
        "End": {"type": "succeed", "output": ["$.state.all", "$.state.x?"]},
    })
}

fn each(iterator: Value) -> Value {
    json!({
        "Each": {"type": "map", "items": "$.input.items", "iterator": iterator, "output": "$.state.all", "next": "End"},
        "End": {"type": "succeed", "output": "$.state.all"},
    })
}

#[test]
fn results_are_in_branch_order_and_branch_writes_stay_inside() {
    let case = case("Fan", fan(json!([call("Slow"), call("Fast")])))
        .mock("Slow", json!({"after": "PT5S", "result": "slow"}))
        .mock("Fast", json!({"after": "PT1S", "result": "fast"}));
    check(
        "parallel",
        &case,
        &[
            "Fan",
            "Fan/branches/0/Call",
            "Slow(null)",
            "Fan/branches/1/Call",
            "Fast(null)",
            "= \"fast\"",
            "Fan/branches/1/Done",
            "branch 1 succeeded",
            "= \"slow\"",
            "Fan/branches/0/Done",
            "branch 0 succeeded",
            "End",
            "Completed [[\"slow\",\"fast\"],null]",
        ],
    );
}

#[test]
fn a_branch_sees_a_copy_of_state() {
    let branch = json!({"startAt": "Call", "states": {
        "Call": {"type": "task", "activity": "Echo", "input": "$.state.x.n", "output": "$.state.x.m", "next": "Done"},
        "Done": {"type": "succeed", "output": "$.state.x"},
    }});
    let mut states = fan(json!([branch.clone(), branch]));
    states["Set"] = json!({"type": "task", "activity": "Make", "output": "$.state.x", "next": "Fan"});
    let case =
        case("Set", states).mock("Make", json!({"result": {"n": 1}})).mock("Echo", json!({"echo": true}));
    let playback = case.play(case.limits.turn, true);
    assert_eq!(
        story(&playback).last().unwrap(),
        "Completed [[{\"m\":1,\"n\":1},{\"m\":1,\"n\":1}],{\"n\":1}]"
    );
}

#[test]
fn events_and_errors_stay_inside_their_branch() {
    let branch = json!({"startAt": "Call", "states": {
        "Call": {"type": "task", "activity": "Bad", "onError": "Gate", "next": "Done"},
        "Gate": {"type": "wait", "waitType": "externalEvent", "eventName": "Go", "next": "Done"},
        "Done": {"type": "succeed", "output": ["$.event", "$.error.code"]},
    }});
    let mut states = fan(json!([branch]));
    states["End"]["output"] = json!(["$.state.all", "$.event?", "$.error?"]);
    let case =
        case("Fan", states).mock("Bad", json!({"error": {"code": "Bad"}})).event("PT1S", "Go", json!(1));
    assert_eq!(
        story(&case.play(case.limits.turn, true)).last().unwrap(),
        "Completed [[[1,\"Bad\"]],null,null]"
    );
}

#[test]
fn the_first_failure_cancels_the_others_and_is_raised_at_the_parallel() {
    let mut states = fan(json!([call("Slow"), call("Bad")]));
    states["Fan"]["onError"] = "Caught".into();
    states["Caught"] = json!({"type": "succeed", "output": ["$.error.code", "$.error.state"]});
    let case = case("Fan", states)
        .mock("Slow", json!({"after": "PT5S", "result": "slow"}))
        .mock("Bad", json!({"error": {"code": "Boom"}}));
    check(
        "first failure",
        &case,
        &[
            "Fan",
            "Fan/branches/0/Call",
            "Slow(null)",
            "Fan/branches/1/Call",
            "Bad(null)",
            "! Boom",
            "Boom is not caught",
            "branch 1 failed",
            "branch 0 cancelled",
            "Boom -> Caught",
            "Caught",
            "Completed [\"Boom\",\"Call\"]",
        ],
    );
}

#[test]
fn an_uncaught_failure_fails_the_run() {
    let case = case("Fan", fan(json!([call("Slow"), call("Bad")])))
        .mock("Slow", json!({"after": "PT5S", "result": "slow"}))
        .mock("Bad", json!({"error": {"code": "Boom"}}));
    check(
        "not caught",
        &case,
        &[
            "Fan",
            "Fan/branches/0/Call",
            "Slow(null)",
            "Fan/branches/1/Call",
            "Bad(null)",
            "! Boom",
            "Boom is not caught",
            "Failed Boom in Call",
        ],
    );
}

#[test]
fn at_least_ends_with_enough_successes_and_cancels_the_rest() {
    let mut states = fan(json!([call("A"), call("B"), call("C")]));
    states["Fan"]["join"] = json!({"atLeast": 2});
    let case = case("Fan", states)
        .mock("A", json!({"error": {"code": "Dead"}}))
        .mock("B", json!({"after": "PT1S", "result": "b"}))
        .mock("C", json!({"after": "PT2S", "result": "c"}));
    let expected = "Completed [[null,\"b\",\"c\"],null]";
    assert_eq!(story(&case.play(case.limits.turn, true)).last().unwrap(), expected);
    let one_hangs = case.clone().mock("A", json!({"never": true}));
    let lines = story(&one_hangs.play(one_hangs.limits.turn, true));
    assert!(lines.contains(&"branch 0 cancelled".to_owned()), "{lines:?}");
    assert_eq!(lines.last().unwrap(), expected);
    let two_dead = case.mock("B", json!({"error": {"code": "Dead"}}));
    assert_eq!(story(&two_dead.play(two_dead.limits.turn, true)).last().unwrap(), "Failed Dead in Call");
}

#[test]
fn at_least_may_require_all_branches() {
    let mut states = fan(json!([call("A"), call("B")]));
    states["Fan"]["join"] = json!({"atLeast": 2});
    let case = case("Fan", states).mock("A", json!({"result": 1})).mock("B", json!({"result": 2}));
    assert_eq!(story(&case.play(case.limits.turn, true)).last().unwrap(), "Completed [[1,2],null]");
}

#[test]
fn a_map_runs_its_iterator_for_every_item_in_order() {
    let iterator = json!({"startAt": "Call", "states": {
        "Call": {"type": "task", "activity": "Echo", "input": {"item": "$.item.id", "index": "$.index"}, "output": "$.state.x", "next": "Done"},
        "Done": {"type": "succeed", "output": "$.state.x"},
    }});
    let case = case("Each", each(iterator))
        .input(json!({"items": [{"id": "a"}, {"id": "b"}]}))
        .mock("Echo", json!({"echo": true}));
    let expected = "Completed [{\"index\":0,\"item\":\"a\"},{\"index\":1,\"item\":\"b\"}]";
    assert_eq!(story(&case.play(case.limits.turn, true)).last().unwrap(), expected);
    let none = case.input(json!({"items": []}));
    check("no items", &none, &["Each", "End", "Completed []"]);
}

#[test]
fn items_may_be_a_query_and_maps_may_nest() {
    let inner = json!({"startAt": "Inner", "states": {
        "Inner": {"type": "map", "items": "$.item.parts[?@ > 1]", "output": "$.state.inner", "next": "Done", "iterator": {
            "startAt": "Done", "states": {"Done": {"type": "succeed", "output": ["$.item", "$.index"]}}}},
        "Done": {"type": "succeed", "output": ["$.index", "$.state.inner"]},
    }});
    let mut states = each(inner);
    states["Each"]["items"] = "$.input.items[?@.on == true]".into();
    let input = json!({"items": [{"on": true, "parts": [1, 2, 3]}, {"on": false, "parts": []}, {"on": true, "parts": [4]}]});
    let case = case("Each", states).input(input);
    assert_eq!(
        story(&case.play(case.limits.turn, true)).last().unwrap(),
        "Completed [[0,[[2,0],[3,1]]],[1,[[4,0]]]]"
    );
}

#[test]
fn max_concurrency_bounds_the_branches_that_run_at_once() {
    let iterator = json!({"startAt": "Call", "states": {
        "Call": {"type": "task", "activity": "Work", "input": "$.index", "next": "Done"},
        "Done": {"type": "succeed", "output": "$.index"},
    }});
    let mut states = each(iterator);
    states["Each"]["maxConcurrency"] = 2.into();
    let case = case("Each", states)
        .input(json!({"items": [0, 0, 0, 0, 0]}))
        .mock("Work", json!({"after": "PT1S", "result": null}));
    let playback = case.play(case.limits.turn, true);
    assert_eq!(story(&playback).last().unwrap(), "Completed [0,1,2,3,4]");
    let start = playback.attempts[0].at;
    let at: Vec<u64> = playback.attempts.iter().map(|attempt| attempt.at.since(start).0).collect();
    assert_eq!(at, [0, 0, 1000, 1000, 2000]);
}

#[test]
fn items_that_are_not_an_array_or_too_many_are_errors_that_can_be_caught() {
    let iterator = json!({"startAt": "Done", "states": {"Done": {"type": "succeed"}}});
    let mut states = each(iterator);
    states["Each"]["onError"] = "Caught".into();
    states["Caught"] = json!({"type": "succeed", "output": "$.error.code"});
    states["Each"]["join"] = json!({"atLeast": 1});
    let case = case("Each", states).limits(|limits| limits.fan_out_max = 3);
    for (input, code) in [
        (json!({}), "PathMissing"),
        (json!({"items": {}}), "TypeMismatch"),
        (json!({"items": [1, 2, 3, 4]}), "FanOutTooWide"),
        (json!({"items": []}), "JoinUnreachable"),
    ] {
        let lines = story(&case.clone().input(input).play(case.limits.turn, true));
        assert_eq!(lines.last().unwrap(), &format!("Completed \"{code}\""));
    }
}

#[test]
fn results_of_cancelled_branches_are_recorded_and_never_applied() {
    use abide_workflow::{Instance, InstanceId, Limits, Message, RunNumber, RunOrigin, Timestamp, advance};
    let mut states = fan(json!([call("A"), call("B")]));
    states["Fan"]["join"] = json!({"atLeast": 1});
    states["End"] = json!({"type": "wait", "waitType": "duration", "duration": "PT1H", "next": "Done"});
    states["Done"] = json!({"type": "succeed", "output": "$.state.all"});
    let plan = case("Fan", states).plan();
    let mut instance =
        Instance::pending(RunOrigin::new(InstanceId::new("i").unwrap(), RunNumber(1), &plan), Timestamp(0));
    let limits = Limits::default();
    let mut turn =
        |messages: &[Message]| advance(&plan, &mut instance, messages, Timestamp(0), &limits).unwrap();
    let started = turn(&[]);
    let ids: Vec<_> = started.commands.iter().map(|command| command.id).collect();
    let completed = |command, n: i32| Message::ActivityCompleted { command, result: json!(n).into() };
    let joined = turn(&[completed(ids[1], 2)]);
    assert!(joined.commands.iter().any(|command| matches!(
        command.kind, abide_workflow::command::CommandKind::CancelActivity { call } if call == ids[0])));
    let late = turn(&[completed(ids[0], 1), completed(ids[1], 3)]);
    assert!(late.commands.is_empty(), "{:?}", late.commands);
    let late_results = late.history.iter().filter(|event| {
        matches!(event.fact, abide_workflow::history::Fact::TaskCompleted { late: true, .. })
    });
    assert_eq!(late_results.count(), 2, "a late result and a second one of the winner");
}

#[test]
fn malformed_fan_outs_are_refused_at_their_place() {
    let mut too_many = fan(json!([call("A")]));
    too_many["Fan"]["join"] = json!({"atLeast": 2});
    finds("join", &definition("Fan", too_many), None, &[("join-too-large", "/states/Fan/join/atLeast")]);
    finds(
        "no branches",
        &definition("Fan", fan(json!([]))),
        None,
        &[("invalid-value", "/states/Fan/branches")],
    );
    let dangling = json!([{"startAt": "Nope", "states": {"Done": {"type": "succeed"}}}]);
    finds(
        "startAt of a branch",
        &definition("Fan", fan(dangling)),
        None,
        &[("dangling-target", "/states/Fan/branches/0/startAt")],
    );
    let outward =
        json!([{"startAt": "Call", "states": {"Call": {"type": "task", "activity": "A", "next": "End"}}}]);
    finds(
        "a branch cannot leave its block",
        &definition("Fan", fan(outward)),
        None,
        &[("dangling-target", "/states/Fan/branches/0/states/Call/next")],
    );
    let mut item = fan(json!([call("A")]));
    item["End"]["output"] = json!({"x": "$.item"});
    finds(
        "$.item outside a map",
        &definition("Fan", item),
        None,
        &[("item-outside-map", "/states/End/output/x")],
    );
    let mut condition = fan(json!([call("A")]));
    condition["End"] = json!({"type": "choice", "choices": [{"when": {"not": {"path": "$.state.x", "op": "eq", "valuePath": "$.index"}}, "next": "Done"}], "default": "Done"});
    condition["Done"] = json!({"type": "succeed"});
    finds(
        "$.index in a condition",
        &definition("Fan", condition),
        None,
        &[("item-outside-map", "/states/End/choices/0/when")],
    );
    let again = json!([{"startAt": "Again", "states": {"Again": {"type": "continueAsNew"}}}]);
    finds(
        "continueAsNew in a branch",
        &definition("Fan", fan(again)),
        None,
        &[("continue-in-branch", "/states/Fan/branches/0/states/Again")],
    );
    let mut query = each(json!({"startAt": "Done", "states": {"Done": {"type": "succeed"}}}));
    query["Each"]["maxConcurrency"] = 0.into();
    finds(
        "no concurrency",
        &definition("Each", query),
        None,
        &[("invalid-value", "/states/Each/maxConcurrency")],
    );
}

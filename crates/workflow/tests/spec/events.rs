//! External events: awaited, early, late, matched, buffered in order per name.

use abide_workflow::{Outcome, TurnLimits};
use serde_json::{Value, json};

use crate::bench::{case, check};

fn gate() -> Value {
    json!({
        "Gate": {"type": "wait", "waitType": "externalEvent", "eventName": "Go", "output": "$.state.got", "next": "End"},
        "End": {"type": "succeed", "output": "$.state.got"},
    })
}

#[test]
fn an_event_ends_the_wait_and_its_payload_goes_to_output() {
    check(
        "waited for",
        &case("Gate", gate()).event("PT1H", "Go", json!({"n": 1})),
        &["Gate", "event Go {\"n\":1}", "End", "Completed {\"n\":1}"],
    );
}

#[test]
fn names_are_compared_without_case() {
    check(
        "case",
        &case("Gate", gate()).event("PT1S", "gO", json!(1)),
        &["Gate", "event gO 1", "End", "Completed 1"],
    );
}

#[test]
fn other_events_do_not_end_the_wait_and_are_kept() {
    let states = json!({
        "Gate": {"type": "wait", "waitType": "externalEvent", "eventName": "Go", "next": "Second"},
        "Second": {"type": "wait", "waitType": "externalEvent", "eventName": "Other", "output": "$.state.got", "next": "End"},
        "End": {"type": "succeed", "output": "$.state.got"},
    });
    check(
        "another name",
        &case("Gate", states).event("PT1S", "Other", json!(1)).event("PT2S", "Go", json!(2)),
        &["Gate", "event Other 1", "event Go 2", "Second", "End", "Completed 1"],
    );
}

#[test]
fn early_events_are_buffered_in_order_per_name_and_never_lost() {
    let states = json!({
        "Work": {"type": "wait", "waitType": "duration", "duration": "PT1H", "next": "First"},
        "First": {"type": "wait", "waitType": "externalEvent", "eventName": "Go", "output": "$.state.a", "next": "Next"},
        "Next": {"type": "wait", "waitType": "externalEvent", "eventName": "Go", "output": "$.state.b", "next": "Third"},
        "Third": {"type": "wait", "waitType": "externalEvent", "eventName": "go", "output": "$.state.c", "next": "End"},
        "End": {"type": "succeed", "output": ["$.state.a", "$.state.b", "$.state.c", "$.event"]},
    });
    let case = case("Work", states)
        .event("PT1M", "Go", json!(1))
        .event("PT1M", "Noise", json!(9))
        .event("PT2M", "GO", json!(2))
        .event("PT2H", "Go", json!(3));
    check(
        "order",
        &case,
        &[
            "Work",
            "timer PT1H",
            "event Go 1",
            "event Noise 9",
            "event GO 2",
            "fired",
            "First",
            "Next",
            "Third",
            "event Go 3",
            "End",
            "Completed [1,2,3,3]",
        ],
    );
}

#[test]
fn match_decides_which_event_ends_the_wait() {
    let mut states = gate();
    states["Gate"]["match"] = json!({"path": "$.event.id", "op": "eq", "valuePath": "$.input.id"});
    let case = case("Gate", states).input(json!({"id": 7})).event("PT1S", "Go", json!({"id": 6})).event(
        "PT2S",
        "Go",
        json!({"id": 7}),
    );
    check(
        "match",
        &case,
        &["Gate", "event Go {\"id\":6}", "event Go {\"id\":7}", "End", "Completed {\"id\":7}"],
    );
}

#[test]
fn match_looks_through_the_buffer_too_and_leaves_the_rest() {
    let states = json!({
        "Work": {"type": "wait", "waitType": "duration", "duration": "PT1H", "next": "Gate"},
        "Gate": {"type": "wait", "waitType": "externalEvent", "eventName": "Go", "match": {"path": "$.event", "op": "eq", "value": 2}, "next": "Rest"},
        "Rest": {"type": "wait", "waitType": "externalEvent", "eventName": "Go", "output": "$.state.rest", "next": "End"},
        "End": {"type": "succeed", "output": "$.state.rest"},
    });
    let case = case("Work", states).event("PT1M", "Go", json!(1)).event("PT2M", "Go", json!(2));
    check(
        "match in the buffer",
        &case,
        &["Work", "timer PT1H", "event Go 1", "event Go 2", "fired", "Gate", "Rest", "End", "Completed 1"],
    );
}

#[test]
fn a_wait_that_takes_too_long_goes_to_timeout_next() {
    let mut states = gate();
    states["Gate"]["timeout"] = "PT1H".into();
    states["Gate"]["timeoutNext"] = "Late".into();
    states["Late"] = json!({"type": "fail", "error": "TooLate"});
    let times_out = case("Gate", states.clone());
    check(
        "timeout",
        &times_out,
        &[
            "Gate",
            "timer PT1H",
            "fired",
            "Timeout -> Late",
            "Late",
            "TooLate is not caught",
            "Failed TooLate in Late",
        ],
    );
    let in_time = case("Gate", states).event("PT59M", "Go", json!(1));
    check("in time", &in_time, &["Gate", "timer PT1H", "event Go 1", "End", "Completed 1"]);
}

#[test]
fn a_fail_state_after_a_timeout_says_where_it_timed_out_and_after_how_long() {
    let with = |fail: Value| {
        let mut states = gate();
        states["Gate"]["timeout"] = "PT1H".into();
        states["Gate"]["timeoutNext"] = "Late".into();
        states["Late"] = fail;
        let Some(Outcome::Failed(error)) = case("Gate", states).play(TurnLimits::FLOOR, true).outcome else {
            panic!("the run should fail");
        };
        (error.code, error.message, error.state)
    };
    let gate = || Some("Gate".to_owned());
    let said = || "Gate timed out after PT1H".to_owned();
    assert_eq!(with(json!({"type": "fail"})), ("Timeout".to_owned(), said(), gate()));
    let own_code = with(json!({"type": "fail", "error": "TooLate"}));
    assert_eq!(own_code, ("TooLate".to_owned(), said(), Some("Late".to_owned())));
    let own_words = with(json!({"type": "fail", "error": "TooLate", "message": "closed"}));
    assert_eq!(own_words.1, "closed");
}

#[test]
fn timeout_next_is_a_normal_transition_that_writes_no_error() {
    let mut states = gate();
    states["Gate"]["timeout"] = "PT1H".into();
    states["Gate"]["timeoutNext"] = "Late".into();
    states["Late"] = json!({"type": "succeed", "output": "$.error"});
    check(
        "no error",
        &case("Gate", states),
        &[
            "Gate",
            "timer PT1H",
            "fired",
            "Timeout -> Late",
            "Late",
            "PathMissing is not caught",
            "Failed PathMissing in Late",
        ],
    );
}

#[test]
fn a_timeout_without_timeout_next_raises_timeout() {
    let mut states = gate();
    states["Gate"]["onError"] = json!([{"match": ["Timeout"], "next": "Late"}]);
    states["Late"] = json!({"type": "succeed", "output": "$.error.code"});
    let case = case("Gate", states).configuration(json!({"defaultTimeout": "PT2H"}));
    check(
        "default timeout",
        &case,
        &["Gate", "timer PT2H", "fired", "Timeout -> Late", "Late", "Completed \"Timeout\""],
    );
}

#[test]
fn the_branch_that_has_waited_longest_gets_the_event() {
    let branch = |pause: &str| {
        json!({"startAt": "Pause", "states": {
            "Pause": {"type": "wait", "waitType": "duration", "duration": pause, "next": "Gate"},
            "Gate": {"type": "wait", "waitType": "externalEvent", "eventName": "Go", "output": "$.state.got", "next": "Done"},
            "Done": {"type": "succeed", "output": "$.state.got"},
        }})
    };
    let states = json!({
        "Fan": {"type": "parallel", "branches": [branch("PT2M"), branch("PT1M")], "output": "$.state.all", "next": "End"},
        "End": {"type": "succeed", "output": "$.state.all"},
    });
    let case = case("Fan", states).event("PT1H", "Go", json!("first")).event("PT2H", "Go", json!("second"));
    let playback = case.play(case.limits.turn, true);
    assert_eq!(crate::bench::story(&playback).last().unwrap(), "Completed [\"second\",\"first\"]");
}

#[test]
fn events_for_a_finished_run_are_refused_clearly() {
    let case = case("Gate", gate()).event("PT1S", "Go", json!(1)).event("PT2S", "Go", json!(2));
    check(
        "finished",
        &case,
        &[
            "Gate",
            "event Go 1",
            "End",
            "Completed 1",
            "refused: the run has ended (Completed) and accepts no more messages",
        ],
    );
}

#[test]
fn events_survive_continue_as_new() {
    let states = json!({
        "Gate": {"type": "wait", "waitType": "externalEvent", "eventName": "Go", "next": "Check"},
        "Check": {"type": "choice", "choices": [{"when": {"path": "$.event", "op": "eq", "value": "stop"}, "next": "End"}], "default": "Again"},
        "Again": {"type": "continueAsNew", "input": {"last": "$.event"}},
        "End": {"type": "succeed", "output": "$.input.last"},
    });
    // All three arrive before the first wait ends: the second and third are buffered across two runs.
    let mut states = states;
    states["Start"] = json!({"type": "wait", "waitType": "duration", "duration": "PT1H", "next": "Gate"});
    let case = case("Start", states).event("PT1M", "Go", json!("a")).event("PT2M", "Go", json!("b")).event(
        "PT3M",
        "Go",
        json!("stop"),
    );
    check(
        "carried over",
        &case,
        &[
            "Start",
            "timer PT1H",
            "event Go \"a\"",
            "event Go \"b\"",
            "event Go \"stop\"",
            "fired",
            "Gate",
            "Check",
            "Again",
            "ContinuedAsNew {\"last\":\"a\"}",
            "Start",
            "timer PT1H",
            "fired",
            "Gate",
            "Check",
            "Again",
            "ContinuedAsNew {\"last\":\"b\"}",
            "Start",
            "timer PT1H",
            "fired",
            "Gate",
            "Check",
            "End",
            "Completed \"b\"",
        ],
    );
}

#[test]
fn a_full_buffer_refuses_unexpected_events_but_not_awaited_ones() {
    let case = case("Gate", gate())
        .limits(|limits| limits.buffered_max = 1)
        .event("PT1S", "Noise", json!(1))
        .event("PT2S", "Noise", json!(2))
        .event("PT3S", "Go", json!(3));
    check(
        "full",
        &case,
        &[
            "Gate",
            "event Noise 1",
            "event Go 3",
            "End",
            "Completed 3",
            "refused: 1 messages are already buffered; the limit is 1",
        ],
    );
}

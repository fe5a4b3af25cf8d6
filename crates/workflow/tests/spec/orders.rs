//! The control operations: suspend, resume, terminate and rewind.

use serde_json::{Value, json};

use crate::bench::{case, check, story};

fn two_steps() -> Value {
    json!({
        "First": {"type": "task", "activity": "First", "output": "$.state.a", "next": "Gate"},
        "Gate": {"type": "wait", "waitType": "externalEvent", "eventName": "Go", "next": "Last"},
        "Last": {"type": "task", "activity": "Last", "input": "$.state.a", "next": "End"},
        "End": {"type": "succeed", "output": "$.state.a"},
    })
}

#[test]
fn a_suspended_run_accepts_messages_and_does_not_move() {
    let case = case("First", two_steps())
        .mock("First", json!({"after": "PT5S", "result": 1}))
        .control("PT1S", "suspend")
        .event("PT2S", "Go", json!(1))
        .control("PT1H", "resume");
    check(
        "suspended",
        &case,
        &[
            "First",
            "First(null)",
            "suspended",
            "event Go 1",
            "resumed",
            "= 1",
            "Gate",
            "Last",
            "Last(1)",
            "= null",
            "End",
            "Completed 1",
        ],
    );
}

#[test]
fn suspending_twice_or_resuming_a_running_run_changes_nothing() {
    let case = case("First", two_steps())
        .control("PT0S", "resume")
        .control("PT1S", "suspend")
        .control("PT2S", "suspend")
        .control("PT3S", "resume")
        .event("PT4S", "Go", json!(1));
    check(
        "idempotent",
        &case,
        &[
            "First",
            "First(null)",
            "= null",
            "Gate",
            "suspended",
            "resumed",
            "event Go 1",
            "Last",
            "Last(null)",
            "= null",
            "End",
            "Completed null",
            "refused: the run is Running, not suspended",
        ],
    );
}

#[test]
fn terminate_works_from_any_state() {
    let terminated =
        |case: &crate::bench::Case| story(&case.play(case.limits.turn, true)).last().unwrap().clone();
    let waiting = case("First", two_steps()).control("PT1H", "terminate");
    assert_eq!(terminated(&waiting), "Terminated");
    let suspended = case("First", two_steps()).control("PT1S", "suspend").control("PT1H", "terminate");
    assert_eq!(terminated(&suspended), "Terminated");
    let busy = case("First", two_steps()).mock("First", json!({"never": true})).control("PT1S", "terminate");
    assert_eq!(terminated(&busy), "Terminated");
    let parked =
        case("First", two_steps()).limits(|limits| limits.transitions_max = 1).control("PT1H", "terminate");
    assert_eq!(terminated(&parked), "Terminated");
    let compensating = case("A", json!({
        "A": {"type": "task", "activity": "A", "onError": "Undo", "next": "End"},
        "Undo": {"type": "compensation", "steps": [{"activity": "Never"}], "next": "End"}, "End": {"type": "succeed"}}))
        .mock("A", json!({"error": {"code": "X"}})).mock("Never", json!({"never": true})).control("PT1S", "terminate");
    assert_eq!(terminated(&compensating), "Terminated");
    let twice = case("First", two_steps()).control("PT1H", "terminate").control("PT2H", "terminate");
    assert_eq!(terminated(&twice), "refused: the run has ended (Terminated) and accepts no more messages");
}

#[test]
fn rewind_continues_at_the_failed_state_and_keeps_completed_results() {
    let case = case("First", two_steps())
        .mock("First", json!({"result": 1}))
        .mock("Last", json!([{"error": {"code": "Down"}}, {"result": 2}]))
        .event("PT1S", "Go", json!(1))
        .control("PT1H", "rewind");
    check(
        "rewind",
        &case,
        &[
            "First",
            "First(null)",
            "= 1",
            "Gate",
            "event Go 1",
            "Last",
            "Last(1)",
            "! Down",
            "Down is not caught",
            "Failed Down in Last",
            "rewound 1",
            "Last",
            "Last(1)",
            "= 2",
            "End",
            "Completed 1",
        ],
    );
}

#[test]
fn rewind_repeats_interrupted_branches_and_keeps_ended_ones() {
    let branch = |activity: &str| {
        json!({"startAt": "Do", "states": {
        "Do": {"type": "task", "activity": activity, "output": "$.state.x", "next": "Done"},
        "Done": {"type": "succeed", "output": "$.state.x"}}})
    };
    let states = json!({
        "Fan": {"type": "parallel", "branches": [branch("Fast"), branch("Slow"), branch("Bad")], "output": "$.state.all", "next": "End"},
        "End": {"type": "succeed", "output": "$.state.all"},
    });
    let case = case("Fan", states)
        .mock("Fast", json!({"result": "fast"}))
        .mock("Slow", json!({"after": "PT9S", "result": "slow"}))
        .mock("Bad", json!([{"after": "PT1S", "error": {"code": "Boom"}}, {"result": "good"}]))
        .control("PT1H", "rewind");
    let playback = case.play(case.limits.turn, true);
    assert_eq!(story(&playback).last().unwrap(), "Completed [\"fast\",\"slow\",\"good\"]");
    let calls = |name: &str| playback.attempts.iter().filter(|attempt| attempt.activity == name).count();
    assert_eq!((calls("Fast"), calls("Slow"), calls("Bad")), (1, 2, 2));
    check(
        "the same story in all modes",
        &case,
        &story(&playback).iter().map(String::as_str).collect::<Vec<_>>(),
    );
}

#[test]
fn rewind_of_a_run_that_ended_in_a_fail_state_goes_back_to_the_error_that_led_there() {
    let states = json!({
        "Work": {"type": "task", "activity": "Work", "onError": "Note", "next": "End"},
        "Note": {"type": "task", "activity": "Note", "next": "Failed"},
        "Failed": {"type": "fail"}, "End": {"type": "succeed"},
    });
    let case = case("Work", states)
        .mock("Work", json!([{"error": {"code": "Boom"}}, {"result": 1}]))
        .control("PT1H", "rewind");
    check(
        "fail state",
        &case,
        &[
            "Work",
            "Work(null)",
            "! Boom",
            "Boom -> Note",
            "Note",
            "Note(null)",
            "= null",
            "Failed",
            "Boom is not caught",
            "Failed Boom in Work",
            "rewound 1",
            "Work",
            "Work(null)",
            "= 1",
            "End",
            "Completed null",
        ],
    );
}

#[test]
fn rewind_is_refused_without_a_state_to_rewind_to() {
    let last = |case: &crate::bench::Case| story(&case.play(case.limits.turn, true)).last().unwrap().clone();
    let completed = case("End", json!({"End": {"type": "succeed"}})).control("PT1S", "rewind");
    assert_eq!(last(&completed), "refused: only a failed run can be rewound; this one is Completed");
    let running = case("First", two_steps()).control("PT1S", "rewind");
    assert_eq!(
        story(&running.play(running.limits.turn, true))[4],
        "refused: only a failed run can be rewound; this one is Running"
    );
    let fail_state = case("End", json!({"End": {"type": "fail"}})).control("PT1S", "rewind");
    assert_eq!(
        last(&fail_state),
        "refused: there is no failed state to rewind to: the run ended in a fail state, or timed out as a whole"
    );
    let compensated = case(
        "A",
        json!({
        "A": {"type": "task", "activity": "A", "onError": "Undo", "next": "End"},
        "Undo": {"type": "compensation", "steps": [{"activity": "Back"}], "next": "Failed"},
        "Failed": {"type": "fail"}, "End": {"type": "succeed"}}),
    )
    .mock("A", json!({"error": {"code": "X"}}))
    .control("PT1S", "rewind");
    assert_eq!(
        last(&compensated),
        "refused: the run has already been compensated and cannot be rewound: start a new run"
    );
}

#[test]
fn an_empty_compensation_does_not_prevent_rewind() {
    let states = json!({
        "A": {"type": "task", "activity": "A", "onError": "Undo", "next": "End", "compensateWith": {"activity": "Back"}},
        "Undo": {"type": "compensation", "next": "Failed"},
        "Failed": {"type": "fail"}, "End": {"type": "succeed"},
    });
    let case = case("A", states)
        .mock("A", json!([{"error": {"code": "X"}}, {"result": 1}]))
        .control("PT1S", "rewind");
    let lines = story(&case.play(case.limits.turn, true));
    assert_eq!(lines.last().unwrap(), "Completed null", "{lines:?}");
}

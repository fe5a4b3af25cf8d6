//! Bounds on what data, senders and stored bytes can do to a run: each test is named after a bound that holds.

use abide_workflow::{CommandId, Message, Status};
use serde_json::{Value, json};

use crate::bench::{case, story};
use crate::by_hand::Run;

#[test]
fn a_control_operation_reaches_a_run_that_spins() {
    // The input never has a value, so the task is never called and the run never waits.
    let mut spins = case("T", json!({"T": {"type": "task", "activity": "A", "input": "$.state.gone", "onError": "T", "next": "E"}, "E": {"type": "succeed"}}))
        .configuration(json!({"maxTransitions": 4_000_000_000_u32}));
    spins.limits.transitions_max = 1_000;
    let playback = spins.clone().control("PT1S", "terminate").play(spins.limits.turn, false);
    assert_eq!(story(&playback).last().unwrap(), "Terminated");
}

#[test]
fn a_repeated_failure_counts_once() {
    let mut run = Run::of(
        "A",
        json!({"A": {"type": "task", "activity": "A", "next": "E"}, "E": {"type": "succeed"}}),
        json!({}),
    );
    let command = run.turn(&[]).commands[0].id;
    let failed = |attempt| Message::ActivityFailed {
        command,
        attempt,
        failure: abide_workflow::Failure::retryable("Busy", ""),
    };
    let turn = run.turn(&[failed(0), failed(0), failed(0), failed(0)]);
    assert_eq!(turn.commands.len(), 1, "{:?}", turn.commands);
    assert_eq!(turn.status, Status::Running);
    assert_eq!(run.turn(&[failed(1)]).commands.len(), 1, "the current attempt counts");
}

#[test]
fn a_result_of_another_kind_does_not_reach_the_branch_with_its_number() {
    let mut task = Run::of(
        "A",
        json!({"A": {"type": "task", "activity": "A", "next": "E"}, "E": {"type": "succeed"}}),
        json!({}),
    );
    let command = task.turn(&[]).commands[0].id;
    let completed = Message::ChildCompleted { command, output: json!(1).into() };
    let failed = Message::ChildFailed { command, failure: abide_workflow::Failure::permanent("X", "") };
    assert_eq!(
        task.turn(&[completed, failed, Message::TimerFired { timer: command }]).status,
        Status::Running
    );
    let mut wait = Run::of(
        "W",
        json!({"W": {"type": "wait", "waitType": "duration", "duration": "PT1H", "next": "E"}, "E": {"type": "succeed"}}),
        json!({}),
    );
    let command = wait.turn(&[]).commands[0].id;
    let turn = wait.turn(&[
        Message::ActivityCompleted { command, result: json!(1).into() },
        Message::ChildCompleted { command, output: json!(1).into() },
    ]);
    assert!(turn.commands.is_empty() && turn.status == Status::Running);
    assert!(turn.history.iter().all(|event| !matches!(
        event.fact,
        abide_workflow::history::Fact::TaskCompleted { late: false, .. }
    )));
}

#[test]
fn rewind_does_not_repeat_steps_completed_after_a_caught_error() {
    let states = json!({
        "Opt": {"type": "task", "activity": "Opt", "onError": "Pay", "next": "Pay"},
        "Pay": {"type": "task", "activity": "Pay", "next": "Refused"},
        "Refused": {"type": "fail", "error": "ShipmentRefused"},
    });
    let case = case("Opt", states).mock("Opt", json!({"error": {"code": "X"}})).control("PT1H", "rewind");
    let playback = case.play(case.limits.turn, true);
    assert_eq!(playback.attempts.iter().filter(|attempt| attempt.activity == "Pay").count(), 1);
    assert!(story(&playback).last().unwrap().starts_with("refused: there is no failed state"));
}

#[test]
fn rewind_of_a_wide_fan_out_takes_several_turns_and_keeps_the_order_of_waiters() {
    let states = json!({
        "Fan": {"type": "parallel", "next": "E", "branches": [
            {"startAt": "Each", "states": {"D": {"type": "succeed"}, "Each": {"type": "map", "items": "$.input.items", "next": "D", "iterator": {"startAt": "G", "states": {
                "G": {"type": "wait", "waitType": "externalEvent", "eventName": "Go", "output": "$.state.x", "next": "D"}, "D": {"type": "succeed"}}}}}},
            {"startAt": "Bad", "states": {"Bad": {"type": "task", "activity": "Bad", "next": "D"}, "D": {"type": "succeed"}}}]},
        "E": {"type": "succeed"},
    });
    let mut run = Run::of("Fan", states, json!({"items": vec![0; 3_000]}));
    let mut bad = None;
    loop {
        let turn = run.turn(&[]);
        bad = bad.or(turn.commands.first().map(|command| command.id));
        if !turn.has_more_work {
            break;
        }
    }
    let mut inbox = vec![Message::ActivityFailed {
        command: bad.unwrap(),
        attempt: 0,
        failure: abide_workflow::Failure::permanent("X", ""),
    }];
    while run.instance.status() != Status::Failed {
        run.turn(&std::mem::take(&mut inbox));
    }
    inbox.push(Message::Rewind { reason: String::new() });
    let mut turns = 0;
    loop {
        let turn = run.turn(&std::mem::take(&mut inbox));
        turns += 1;
        assert!(turn.changes.len() <= 1_100, "{} parts in one turn", turn.changes.len());
        if !turn.has_more_work {
            break;
        }
    }
    assert!(turns > 3, "{turns}");
    let turn = run.turn(&[Message::EventRaised { name: "Go".to_owned(), payload: json!(1).into() }]);
    let first = turn.history.iter().find_map(|event| match event.fact {
        abide_workflow::history::Fact::StateLeft { branch, .. } => Some(branch.0),
        _ => None,
    });
    assert_eq!(first, Some(2), "the first item's branch waited longest before the rewind and still does");
}

#[test]
fn values_beyond_the_limits_are_never_held_or_recorded_in_full() {
    let mut deep = json!(1);
    for _ in 0..200 {
        deep = json!([deep]);
    }
    let large = json!("x".repeat(4 * 1024 * 1024));
    let states = json!({"A": {"type": "task", "activity": "A", "onError": "E", "next": "E"}, "E": {"type": "succeed", "output": "$.error.code"}});
    for (payload, code) in [(deep.clone(), "DepthExceeded"), (large.clone(), "PayloadTooLarge")] {
        let mut run = Run::of("A", states.clone(), json!({}));
        let command = run.turn(&[]).commands[0].id;
        let result = Message::ActivityCompleted { command, result: payload.clone().into() };
        let held = run.turn(&[Message::Suspend { reason: "r".repeat(100_000) }, result.clone()]);
        let bytes: usize = held.changes.iter().filter_map(|change| change.value.as_ref()).map(Vec::len).sum();
        assert!(bytes < 10_000, "{bytes}");
        let ended = run.turn(&[Message::Resume { reason: String::new() }]);
        assert_eq!(ended.status, Status::Completed, "{code}");
        let mut late = Run::of("A", states.clone(), json!({}));
        late.turn(&[]);
        let turn = late
            .turn(&[Message::ActivityCompleted { command: CommandId(99), result: payload.clone().into() }]);
        assert!(json!(turn.history).to_string().len() < 10_000);
        let failed = Run::of("A", states.clone(), payload).turn(&[]);
        assert_eq!(failed.status, Status::Failed);
        let bytes: usize =
            failed.changes.iter().filter_map(|change| change.value.as_ref()).map(Vec::len).sum();
        assert!(bytes < 10_000, "an input beyond the limits is not stored: {bytes}");
    }
}

#[test]
fn a_template_that_multiplies_data_is_rejected_while_rendering() {
    let output: Vec<Value> = vec![json!("$.input.b"); 4_000];
    let mut run =
        Run::of("E", json!({"E": {"type": "succeed", "output": output}}), json!({"b": "x".repeat(900_000)}));
    assert_eq!(run.turn(&[]).status, Status::Failed);
}

#[test]
fn a_run_at_its_data_limit_starts_no_task_whose_compensation_it_could_not_record() {
    let states = json!({
        "Work": {"type": "task", "activity": "Work", "input": "$.input.big", "compensateWith": {"activity": "Undo", "input": "$.input.big"}, "next": "Pause"},
        "Pause": {"type": "wait", "waitType": "duration", "duration": "PT1S", "next": "Pick"},
        "Pick": {"type": "choice", "choices": [{"when": {"path": "$.input.stop", "op": "isPresent"}, "next": "E"}], "default": "Work"},
        "E": {"type": "succeed"},
    });
    let case = case("Work", states)
        .input(json!({"big": "x".repeat(1_000)}))
        .limits(|limits| limits.data_bytes_max = 10_000);
    let playback = case.play(case.limits.turn, true);
    assert_eq!(story(&playback).last().unwrap(), "Failed DataLimitExceeded in Work");
    assert_eq!(playback.attempts.len(), 10);
}

#[test]
fn a_registered_compensation_runs_even_if_input_and_result_together_exceed_a_payload() {
    let states = json!({
        "Work": {"type": "task", "activity": "Work", "input": "$.input.big", "next": "Bad"},
        "Bad": {"type": "task", "activity": "Bad", "onError": "Undo", "next": "E"},
        "Undo": {"type": "compensation", "next": "F"}, "F": {"type": "fail"}, "E": {"type": "succeed"},
    });
    let case = case("Work", states)
        .registry(json!([{"name": "Work", "category": "other", "compensation": "Back"}, {"name": "Back", "category": "other"}, {"name": "Bad", "category": "other"}]))
        .input(json!({"big": "x".repeat(700_000)}))
        .mock("Work", json!({"result": "y".repeat(700_000)})).mock("Bad", json!({"error": {"code": "X"}}));
    let playback = case.play(case.limits.turn, true);
    assert!(playback.attempts.iter().any(|attempt| attempt.activity == "Back"), "{:?}", playback.status);
}

#[test]
fn a_late_result_is_recorded_in_full_if_small_and_by_its_size_if_large() {
    let states = json!({"A": {"type": "task", "activity": "A", "next": "E"}, "E": {"type": "succeed"}});
    let mut run = Run::of("A", states, json!({}));
    run.turn(&[]);
    for (bytes, omitted) in [(10, false), (4_000, false), (5_000, true)] {
        let result = json!("x".repeat(bytes));
        let turn =
            run.turn(&[Message::ActivityCompleted { command: CommandId(99), result: result.clone().into() }]);
        let recorded = turn.history.iter().find_map(|event| match &event.fact {
            abide_workflow::history::Fact::TaskCompleted { result, late: true, .. } => {
                Some((**result).clone())
            }
            _ => None,
        });
        let expected = if omitted { json!({"omittedBytes": bytes + 3}) } else { result };
        assert_eq!(recorded, Some(expected));
    }
}

//! Single turns: the messages consumed, the commands emitted, the parts changed, and the bounds.

use abide_workflow::command::CommandKind;
use abide_workflow::{CommandId, Limits, Message, PartKey, Status, Timestamp, Turn, TurnLimits, advance};
use serde_json::{Value, json};

use crate::bench::case;
use crate::by_hand::Run;

fn three_tasks() -> Value {
    json!({
        "A": {"type": "task", "activity": "A", "output": "$.state.a", "next": "B"},
        "B": {"type": "task", "activity": "B", "output": "$.state.b", "next": "C"},
        "C": {"type": "task", "activity": "C", "output": "$.state.c", "next": "End"},
        "End": {"type": "succeed", "output": "$.state.c"},
    })
}

fn completed(command: u64, result: Value) -> Message {
    Message::ActivityCompleted { command: CommandId(command), result: result.into() }
}

fn keys(turn: &Turn) -> Vec<String> {
    turn.changes.iter().map(|change| format!("{:?}", change.key)).collect()
}

#[test]
fn three_sequential_tasks_are_four_turns_that_change_only_what_they_touch() {
    let mut run = Run::of("A", three_tasks(), json!({}));
    let turns = [
        run.turn(&[]),
        run.turn(&[completed(1, json!(1))]),
        run.turn(&[completed(2, json!(2))]),
        run.turn(&[completed(3, json!(3))]),
    ];
    assert_eq!(turns[3].status, Status::Completed);
    assert_eq!(keys(&turns[0]), ["Origin", "Header", "Branch(BranchId(0))"]);
    assert_eq!(keys(&turns[1]), ["Header", "Branch(BranchId(0))", "Slot(BranchId(0), State(\"a\"))"]);
    assert_eq!(keys(&turns[2]), ["Header", "Branch(BranchId(0))", "Slot(BranchId(0), State(\"b\"))"]);
    assert_eq!(
        keys(&turns[3]),
        ["Header", "Branch(BranchId(0))", "Slot(BranchId(0), State(\"c\"))", "Outcome"]
    );
    let bytes: usize = turns
        .iter()
        .flat_map(|turn| &turn.changes)
        .filter_map(|change| change.value.as_ref())
        .map(Vec::len)
        .sum();
    assert!(bytes < 1024, "{bytes} bytes of state in four turns");
    let ids: Vec<u64> = turns.iter().flat_map(|turn| &turn.commands).map(|command| command.id.0).collect();
    assert_eq!(ids, [1, 2, 3, 4], "commands are numbered without gaps");
    let sequences: Vec<u64> =
        turns.iter().flat_map(|turn| &turn.history).map(|event| event.sequence).collect();
    assert_eq!(sequences, (1..=sequences.len() as u64).collect::<Vec<_>>(), "so is history");
}

#[test]
fn a_turn_without_anything_to_do_changes_nothing() {
    let mut run = Run::of("A", three_tasks(), json!({}));
    run.turn(&[]);
    let idle = run.turn(&[]);
    assert!(
        idle.changes.is_empty() && idle.history.is_empty() && idle.commands.is_empty() && !idle.has_more_work
    );
}

#[test]
fn a_repeated_result_counts_once() {
    let mut run = Run::of("A", three_tasks(), json!({}));
    run.turn(&[]);
    let turn = run.turn(&[
        completed(1, json!(1)),
        completed(1, json!("again")),
        completed(99, json!("never called")),
    ]);
    assert_eq!(turn.commands.len(), 1);
    let failed = Message::ActivityFailed {
        command: CommandId(1),
        attempt: 0,
        failure: abide_workflow::Failure::retryable("X", ""),
    };
    assert!(run.turn(&[failed]).commands.is_empty(), "a failure after the result is late too");
}

#[test]
fn a_turn_consumes_at_most_its_limit_of_messages() {
    let mut run = Run::of("A", three_tasks(), json!({}));
    run.turn(&[]);
    run.limits.turn.messages_max = 1;
    let inbox = [completed(1, json!(1)), completed(2, json!(2))];
    let turn = run.turn(&inbox);
    assert_eq!((turn.consumed, turn.has_more_work), (1, false));
    assert_eq!(run.turn(&inbox[1..]).consumed, 1);
}

#[test]
fn a_fan_out_larger_than_a_turn_continues_in_the_next() {
    let states = json!({
        "Each": {"type": "map", "items": "$.input.items", "output": "$.state.all", "next": "End", "iterator": {
            "startAt": "Do", "states": {"Do": {"type": "task", "activity": "Do", "next": "Done"}, "Done": {"type": "succeed", "output": "$.index"}}}},
        "End": {"type": "succeed", "output": "$.state.all"},
    });
    let mut run = Run::of("Each", states, json!({"items": vec![0; 200]}));
    run.limits.turn = TurnLimits { commands_max: 50, ..TurnLimits::FLOOR };
    run.limits.turn.steps_max = 1_000;
    run.limits.turn.evaluation = Limits::default().turn.evaluation;
    let mut commands = Vec::new();
    let mut turns = 0;
    loop {
        let turn = run.turn(&[]);
        assert!(turn.commands.len() <= 50);
        commands.extend(turn.commands);
        turns += 1;
        if !turn.has_more_work {
            break;
        }
    }
    assert_eq!(
        (commands.len(), turns),
        (200, 5),
        "46 fit into a turn of 50 that reserves commands for one more step"
    );
    // The results arrive one by one: the join waits for all of them.
    let mut status = Status::Running;
    for command in &commands {
        let mut turn =
            run.turn(&[Message::ActivityCompleted { command: command.id, result: json!(null).into() }]);
        while turn.has_more_work {
            turn = run.turn(&[]);
        }
        status = turn.status;
    }
    assert_eq!(status, Status::Completed);
}

#[test]
fn a_result_during_the_fan_out_does_not_end_it_early() {
    let states = json!({
        "Each": {"type": "map", "items": "$.input.items", "next": "End", "iterator": {
            "startAt": "Do", "states": {"Do": {"type": "task", "activity": "Do", "next": "Done"}, "Done": {"type": "succeed"}}}},
        "End": {"type": "succeed"},
    });
    let mut run = Run::of("Each", states, json!({"items": vec![0; 100]}));
    run.limits.turn =
        TurnLimits { steps_max: 10, evaluation: Limits::default().turn.evaluation, ..TurnLimits::FLOOR };
    let first = run.turn(&[]);
    assert!(first.has_more_work);
    let early: Vec<Message> = first
        .commands
        .iter()
        .map(|command| Message::ActivityCompleted { command: command.id, result: json!(1).into() })
        .collect();
    let second = run.turn(&early);
    assert_eq!(second.consumed, 0, "ready branches come first");
    assert_eq!(second.status, Status::Running);
}

#[test]
fn the_cost_of_a_turn_grows_neither_with_history_nor_with_finished_branches() {
    let states = json!({
        "Each": {"type": "map", "items": "$.input.items", "next": "End", "iterator": {
            "startAt": "Do", "states": {"Do": {"type": "task", "activity": "Do", "output": "$.state.x", "next": "Done"}, "Done": {"type": "succeed", "output": "$.state.x"}}}},
        "End": {"type": "succeed"},
    });
    let mut run = Run::of("Each", states, json!({"items": vec![0; 1000]}));
    run.limits.turn.commands_max = 5_000;
    run.limits.turn.steps_max = 100_000;
    let commands = run.turn(&[]).commands;
    let mut sizes = Vec::new();
    for command in commands.iter().take(999) {
        let turn = run.turn(&[Message::ActivityCompleted {
            command: command.id,
            result: json!({"some": "result"}).into(),
        }]);
        let bytes: usize = turn.changes.iter().map(|change| change.value.as_ref().map_or(0, Vec::len)).sum();
        sizes.push((turn.changes.len(), bytes));
    }
    let first = sizes[0];
    let last = sizes[998];
    assert_eq!(first.0, last.0, "as many parts for the last item as for the first");
    assert!(last.1 <= first.1 + 16, "{} bytes for the last, {} for the first", last.1, first.1);
}

#[test]
fn time_never_goes_back_within_a_run() {
    let mut run = Run::of("A", three_tasks(), json!({}));
    run.now = Timestamp(1_000);
    run.turn(&[]);
    run.now = Timestamp(500);
    let turn = run.turn(&[completed(1, json!(1))]);
    assert!(turn.history.iter().all(|event| event.timestamp == Timestamp(1_000)));
}

#[test]
fn another_plan_is_rejected() {
    let mut run = Run::of("A", three_tasks(), json!({}));
    let other = case("End", json!({"End": {"type": "succeed"}})).plan();
    let error = advance(&other, &mut run.instance, &[], Timestamp(0), &Limits::default()).unwrap_err();
    assert!(error.to_string().contains("pinned"), "{error}");
}

#[test]
fn cancelled_branches_cancel_their_calls_timers_and_children() {
    let branch = |state: Value| json!({"startAt": "S", "states": {"S": state, "Done": {"type": "succeed"}}});
    let states = json!({
        "Fan": {"type": "parallel", "join": {"atLeast": 1}, "next": "End", "branches": [
            branch(json!({"type": "task", "activity": "A", "next": "Done"})),
            branch(json!({"type": "wait", "waitType": "duration", "duration": "PT1H", "next": "Done"})),
            branch(json!({"type": "wait", "waitType": "externalEvent", "eventName": "E", "timeout": "PT1H", "next": "Done"})),
            branch(json!({"type": "workflow", "workflow": "w", "timeout": "PT1H", "next": "Done"})),
            branch(json!({"type": "workflow", "workflow": "w", "onParentClose": "abandon", "next": "Done"})),
            branch(json!({"type": "task", "activity": "B", "next": "Done"})),
        ]},
        "End": {"type": "succeed"},
    });
    let mut run = Run::of("Fan", states, json!({}));
    let started = run.turn(&[]);
    let [activity, timer, event_timer, child, child_timer, _abandoned, winner] =
        started.commands.iter().map(|command| command.id).collect::<Vec<_>>()[..]
    else {
        panic!("{:?}", started.commands)
    };
    let turn = run.turn(&[Message::ActivityCompleted { command: winner, result: json!(1).into() }]);
    let cancelled: Vec<CommandKind> = turn.commands.into_iter().map(|command| command.kind).collect();
    for expected in [
        CommandKind::CancelActivity { call: activity },
        CommandKind::CancelTimer { timer },
        CommandKind::CancelTimer { timer: event_timer },
        CommandKind::CancelTimer { timer: child_timer },
        CommandKind::TerminateChild { child },
    ] {
        assert!(cancelled.contains(&expected), "{expected:?} is missing in {cancelled:?}");
    }
    assert_eq!(cancelled.len(), 6, "and the end, and nothing for the abandoned child: {cancelled:?}");
}

#[test]
fn an_event_that_ends_a_wait_cancels_its_timer() {
    let states = json!({
        "Gate": {"type": "wait", "waitType": "externalEvent", "eventName": "Go", "timeout": "PT1H", "next": "End"}, "End": {"type": "succeed"}});
    let mut run = Run::of("Gate", states, json!({}));
    let timer = run.turn(&[]).commands[0].id;
    let turn = run.turn(&[Message::EventRaised { name: "go".to_owned(), payload: json!(1).into() }]);
    assert_eq!(turn.commands[0].kind, CommandKind::CancelTimer { timer });
}

#[test]
fn a_child_that_ends_cancels_its_timer() {
    let states = json!({
        "Kid": {"type": "workflow", "workflow": "kid", "timeout": "PT1H", "onError": "End", "next": "End"}, "End": {"type": "succeed"}});
    for fails in [false, true] {
        let mut run = Run::of("Kid", states.clone(), json!({}));
        let started = run.turn(&[]);
        let child = started.commands[0].id;
        let timer = started.commands[1].id;
        let turn = run.turn(&[if fails {
            Message::ChildFailed { command: child, failure: abide_workflow::Failure::permanent("X", "") }
        } else {
            Message::ChildCompleted { command: child, output: json!(1).into() }
        }]);
        assert_eq!(turn.commands[0].kind, CommandKind::CancelTimer { timer });
    }
}

#[test]
fn a_retry_is_not_earlier_than_the_receiver_requested() {
    let mut run = Run::of("A", three_tasks(), json!({}));
    let command = run.turn(&[]).commands[0].id;
    let failure = abide_workflow::Failure::retryable("Busy", "");
    let not_before = run.now.plus(abide_workflow::Duration::hours(1));
    let turn = run.turn(&[Message::ActivityDeferred {
        command,
        attempt: 0,
        failure,
        not_before,
        possibly_sent: true,
    }]);
    let expected = CommandKind::RetryActivity { call: command, attempt: 1, not_before };
    assert_eq!(turn.commands[0].kind, expected);
    let history = format!("{:?}", turn.history);
    assert!(history.contains(&format!("retry_at: Some({not_before:?})")), "{history}");
}

#[test]
fn retries_count_up_from_the_journal_s_attempt() {
    let mut run = Run::of("A", three_tasks(), json!({}));
    let command = run.turn(&[]).commands[0].id;
    let failure = abide_workflow::Failure::retryable("Busy", "");
    let turn = run.turn(&[Message::ActivityFailed { command, attempt: 7, failure }]);
    assert!(
        matches!(turn.commands[0].kind, CommandKind::RetryActivity { attempt: 8, call, .. } if call == command)
    );
    assert!(
        turn.changes.iter().any(|change| change.key == PartKey::Branch(abide_workflow::ids::BranchId(0)))
    );
}

//! Failed compensation steps of an ended run run again, and nothing else does; the run is stored and loaded again after
//! every turn.

use abide_workflow::instance::CompensationCounts;
use abide_workflow::{Limits, Message, MessageRefusal, Outcome, Status};
use serde_json::{Value, json};

use crate::redrive::StoredRun;

fn retry() -> Message {
    Message::RetryCompensation { reason: "mended".to_owned() }
}

fn counts(done: u32, failed: u32, pending: u32) -> Option<CompensationCounts> {
    Some(CompensationCounts { done, failed, pending })
}

/// Three tasks, the last of which fails; then the others are undone by this state.
fn undone_by(undo: Value) -> StoredRun {
    let task = |activity: &str, undo: &str, next: &str| {
        json!({"type": "task", "activity": activity, "next": next, "onError": "Undo",
               "compensateWith": {"activity": undo, "input": {"of": activity}}})
    };
    let fails = undo.get("next") == Some(&json!("Failed"));
    let mut states = json!({
        "A": task("a", "undoA", "B"), "B": task("b", "undoB", "C"),
        "C": {"type": "task", "activity": "c", "next": "Done", "onError": "Undo"},
        "Undo": undo, "Failed": {"type": "fail", "error": "Undone"}, "Done": {"type": "succeed"}});
    if !fails {
        states.as_object_mut().unwrap().remove("Failed");
    }
    let mut run = StoredRun::start("A", states, json!({}));
    run.answer("a");
    run.answer("b");
    run.refuse("c");
    run
}

fn recorded() -> StoredRun {
    undone_by(json!({"type": "compensation", "next": "Failed"}))
}

#[test]
fn only_what_failed_is_run_again_and_the_run_has_its_former_end() {
    let mut run = recorded();
    assert_eq!(run.load().compensation_counts(), counts(0, 0, 2));
    let first = run.refuse("undoB");
    assert_eq!(run.load().compensation_counts(), counts(0, 1, 1));
    run.answer("undoA");
    assert_eq!((run.status, run.load().compensation_counts()), (Status::Failed, counts(1, 1, 0)));
    let outcome = run.load().outcome().cloned();
    run.send(&[retry()]);
    assert_eq!((run.status, run.open.len()), (Status::Running, 1));
    // Asking again while it runs changes nothing.
    run.send(&[retry()]);
    assert_eq!(run.open.len(), 1);
    let second = run.answer("undoB");
    assert_eq!((&second.input, second.may_have_run), (&first.input, false));
    assert_ne!(second.step, first.step, "its receiver had answered with a failure");
    assert_eq!((run.status, run.load().compensation_counts()), (Status::Failed, counts(2, 0, 0)));
    assert_eq!(run.load().outcome().cloned(), outcome);
    let refused = run.load().check_message(&retry(), &Limits::default());
    assert_eq!(refused, Err(MessageRefusal::NoFailedCompensation));
}

#[test]
fn a_step_of_unknown_outcome_is_run_again_as_the_same_work() {
    let mut run = recorded();
    let first = run.lose("undoB");
    run.lose("undoA");
    for _ in 0..2 {
        run.send(&[retry()]);
        let again = run.lose("undoB");
        assert_eq!((&again.step, &again.input, again.may_have_run), (&first.step, &first.input, true));
        run.answer("undoA");
        if run.load().compensation_counts() == counts(1, 1, 0) {
            break;
        }
    }
    run.send(&[retry()]);
    assert_eq!(run.answer("undoB").step, first.step);
    assert_eq!(run.load().compensation_counts(), counts(2, 0, 0));
}

#[test]
fn explicit_steps_are_run_again_by_their_own_policy() {
    let step = |activity: &str| {
        json!({"activity": activity, "input": {"why": "$.error.code"},
               "retryPolicy": {"maxAttempts": 2, "initialInterval": "PT1S"}})
    };
    let mut run =
        undone_by(json!({"type": "compensation", "steps": [step("one"), step("two")], "next": "Done"}));
    let first = run.refuse("one");
    run.answer("two");
    assert_eq!((run.status, run.load().compensation_counts()), (Status::Completed, counts(1, 1, 0)));
    run.send(&[retry()]);
    let second = run.answer("one");
    assert_eq!((&second.input, &second.step.path), (&first.input, &first.step.path));
    assert_eq!((run.status, run.load().compensation_counts()), (Status::Completed, counts(2, 0, 0)));
    assert!(matches!(run.load().outcome(), Some(Outcome::Completed(_))));
}

#[test]
fn terminate_stops_a_retry_and_leaves_the_run_as_it_ended() {
    let mut run = recorded();
    let first = run.lose("undoB");
    run.answer("undoA");
    run.send(&[retry()]);
    let event = Message::EventRaised { name: "Go".to_owned(), payload: json!(1).into() };
    assert_eq!(
        run.load().check_message(&event, &Limits::default()),
        Err(MessageRefusal::RetryingCompensation)
    );
    run.send(&[Message::Suspend { reason: String::new() }]);
    run.send(&[Message::Terminate { reason: String::new() }]);
    assert_eq!((run.status, run.open.len()), (Status::Failed, 0));
    assert!(matches!(run.load().outcome(), Some(Outcome::Failed(failure)) if failure.code == "Undone"));
    run.send(&[retry()]);
    assert_eq!(run.answer("undoB").step, first.step, "it was in progress");
}

#[test]
fn a_live_run_and_one_without_failed_steps_have_nothing_to_retry() {
    let check = |run: &StoredRun| run.load().check_message(&retry(), &Limits::default());
    let mut run = recorded();
    assert_eq!(check(&run), Err(MessageRefusal::NotEnded { status: Status::Running }));
    run.answer("undoB");
    run.answer("undoA");
    assert_eq!(check(&run), Err(MessageRefusal::NoFailedCompensation));
}

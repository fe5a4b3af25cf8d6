//! Calls: recorded before they are made, settled with their answer, never counted too low.

use abide_dispatch::{Answer, Failure};
use abide_runtime::Notice;
use abide_store::tables::dispatches::{Dispatch, DispatchState};
use abide_store::tables::{Table, decode};
use abide_workflow::Message;
use serde_json::json;

use crate::world::{World, failure, task};

fn one(world: &World) {
    world.publish("one", &json!({"Start": task("End"), "End": {"type": "succeed"}}));
}

/// As [`one`], with more deliveries than any of these tests makes.
pub(crate) fn one_patient(world: &World) {
    let mut state = task("End");
    let policy = json!({"maxAttempts": 20, "initialInterval": "PT1S", "maxInterval": "PT10S"});
    state.as_object_mut().unwrap().insert("retryPolicy".to_owned(), policy);
    world.publish("one", &json!({"Start": state, "End": {"type": "succeed"}}));
}

#[test]
fn a_call_is_made_again_after_a_crash_under_the_same_key_and_the_next_attempt() {
    let mut world = World::new();
    one(&world);
    world.start("one", "a");
    let first = world.calls[0].1.metadata.clone();
    for attempt in 1..4 {
        world.crash();
        let again = &world.calls[0].1.metadata;
        assert_eq!((again.retry_attempt, &again.idempotency_key), (attempt, &first.idempotency_key));
        assert_eq!(again.correlation_id, "a");
    }
    world.complete();
    assert_eq!(world.status("a"), "Completed");
    assert_eq!(world.keys(Table::Dispatch), []);
    world.check();
}

#[test]
fn a_call_that_nobody_ever_answers_is_given_up_after_five_deliveries() {
    let mut world = World::new();
    one(&world);
    world.start("one", "a");
    for _ in 0..4 {
        assert_eq!(world.status("a"), "Running");
        world.crash();
    }
    assert_eq!(world.calls[0].1.metadata.retry_attempt, 4);
    world.crash();
    assert_eq!(world.status("a"), "Failed");
    assert_eq!(world.calls.len(), 0);
    let failed = |notice: &Notice| matches!(notice, Notice::CallFailed { attempt: 4, .. });
    assert!(world.notices.iter().any(failed), "{:?}", world.notices);
    world.check();
}

#[test]
fn a_retry_waits_its_time_also_over_a_crash_and_a_failure_counts_once() {
    let mut world = World::new();
    one(&world);
    world.start("one", "a");
    world.answer(failure(true));
    assert_eq!(world.calls.len(), 0);
    world.crash();
    let due = world.run("a").unwrap().calls[0].dispatch.not_before.unwrap();
    let wait = u64::try_from(due - world.now().wall.0).unwrap();
    assert!((1..=6_000).contains(&wait), "{wait}");
    world.pass(wait - 1);
    assert_eq!(world.calls.len(), 0);
    world.pass(1);
    assert_eq!(world.calls[0].1.metadata.retry_attempt, 1);
    world.answer(failure(true));
    world.pass(20_000);
    assert_eq!(world.calls[0].1.metadata.retry_attempt, 2);
    world.answer(failure(true));
    assert_eq!(world.status("a"), "Failed", "three attempts are the default");
    world.check();
}

#[test]
fn a_suspended_run_keeps_an_answer_and_decides_when_it_is_resumed() {
    for (answer, ends) in [(Answer::Completed(json!(1).into()), "Completed"), (failure(false), "Failed")] {
        let mut world = World::new();
        one(&world);
        world.start("one", "a");
        world.order("a", Message::Suspend { reason: String::new() });
        world.answer(answer);
        assert_eq!(world.status("a"), "Suspended");
        world.crash();
        assert_eq!(world.calls.len(), 0, "it was answered");
        world.order("a", Message::Resume { reason: String::new() });
        assert_eq!(world.status("a"), ends);
        world.check();
    }
    let mut world = World::new();
    one(&world);
    world.start("one", "a");
    world.order("a", Message::Suspend { reason: String::new() });
    world.answer(failure(true));
    world.order("a", Message::Resume { reason: String::new() });
    world.pass(10_000);
    assert_eq!(world.calls[0].1.metadata.retry_attempt, 1, "and a failure that may be retried is");
}

/// A failure that asks for this much patience.
fn later(wait_ms: u64) -> Answer {
    Answer::Failed(Failure { retry_after_ms: Some(wait_ms), ..Failure::retryable("Busy", "come back later") })
}

#[test]
fn a_service_that_asks_for_patience_is_given_it_also_over_a_crash() {
    let mut world = World::new();
    one(&world);
    world.start("one", "a");
    world.answer(later(60_000));
    for _ in 0..2 {
        world.pass(29_500);
        assert_eq!(world.calls.len(), 0, "it is not time yet");
        world.crash();
    }
    world.pass(1_001);
    assert_eq!(world.calls[0].1.metadata.retry_attempt, 1);
    world.complete();
    assert_eq!(world.status("a"), "Completed");
    world.check();
}

#[test]
fn patience_is_counted_from_the_answer_and_has_an_end() {
    let mut world = World::new();
    one(&world);
    world.start("one", "a");
    world.order("a", Message::Suspend { reason: String::new() });
    world.answer(later(u64::MAX));
    world.pass(3_590_000);
    world.order("a", Message::Resume { reason: String::new() });
    world.pass(9_999);
    assert_eq!(world.calls.len(), 0, "an hour is not over");
    world.pass(2);
    assert_eq!(world.calls.len(), 1, "it began with the answer, not when the run heard of it");
    world.complete();
    world.check();
}

#[test]
fn patience_beyond_the_deadline_of_the_step_is_the_end_of_the_step() {
    let mut world = World::new();
    let mut state = task("End");
    state["timeout"] = json!("PT30S");
    state["onError"] = json!([{"match": ["Timeout"], "next": "End"}]);
    world.publish("one", &json!({"Start": state, "End": {"type": "succeed"}}));
    world.start("one", "a");
    world.answer(later(29_000));
    assert_eq!(world.status("a"), "Running");
    world.pass(29_001);
    world.answer(later(2_000));
    assert_eq!(
        (world.status("a").as_str(), world.calls.len()),
        ("Completed", 0),
        "caught as a timeout, at once"
    );
    world.pass(1_000);
    assert!(world.dead_letters()[0].original_message.contains("\"deadline_expired\""));
    world.check();
}

#[test]
fn a_delivery_of_unknown_outcome_is_asked_about_until_somebody_answers() {
    let unknown = || Answer::Failed(Failure::retryable("AttemptTimeout", "").with_outcome_unknown());
    for suspended in [false, true] {
        let mut world = World::new();
        one_patient(&world);
        world.start("one", "a");
        assert!(!world.calls[0].1.ask_first, "nothing was sent before");
        if suspended {
            world.order("a", Message::Suspend { reason: String::new() });
        }
        world.answer(unknown());
        if suspended {
            world.crash();
            world.order("a", Message::Resume { reason: String::new() });
        }
        world.pass(60_000);
        assert!(world.calls[0].1.ask_first);
        world.answer(Answer::Failed(Failure::retryable("ConnectFailed", "").with_not_sent()));
        world.crash();
        world.pass(60_000);
        assert!(world.calls[0].1.ask_first, "who was not reached has said nothing");
        world.answer(failure(true));
        world.pass(60_000);
        assert!(!world.calls[0].1.ask_first, "who answers knows");
        world.complete();
        world.check();
    }
}

#[test]
fn who_is_turned_away_learns_nothing_of_earlier_deliveries() {
    let turned_away = |status: &str| Failure::retryable(status, "").with_status(status);
    let mut world = World::new();
    one_patient(&world);
    world.start("one", "a");
    world.answer(Answer::Failed(turned_away("503 UNAVAILABLE")));
    world.pass(60_000);
    assert!(!world.calls[0].1.ask_first, "there is nothing to ask about");
    world.answer(Answer::Failed(Failure::retryable("ConnectionLost", "").with_outcome_unknown()));
    for status in ["503", "429 RESOURCE_EXHAUSTED", "503 UNAVAILABLE"] {
        world.pass(60_000);
        assert!(world.calls[0].1.ask_first, "{status}");
        world.answer(Answer::Failed(turned_away(status)));
    }
    world.pass(60_000);
    world.answer(Answer::Failed(Failure { retryable: false, ..turned_away("403") }));
    world.pass(1_000);
    let letter = world.dead_letters().remove(0);
    assert!(letter.original_message.contains("\"outcomeUnknown\":true"), "{}", letter.original_message);
    assert_eq!(letter.dequeue_count, 6);
    world.check();
}

#[test]
fn an_answer_after_a_crash_makes_the_outcome_known() {
    let mut world = World::new();
    one_patient(&world);
    world.start("one", "a");
    world.crash();
    world.pass(1_000);
    assert!(world.calls[0].1.ask_first);
    world.answer(failure(false));
    world.pass(1_000);
    let letter = world.dead_letters().remove(0);
    assert!(letter.original_message.contains("\"outcomeUnknown\":false"), "{}", letter.original_message);
    assert_eq!(letter.dequeue_count, 2);
    world.check();
}

#[test]
fn a_call_that_ends_while_its_run_is_suspended_ends_once() {
    let mut world = World::new();
    let mut state = task("End");
    state.as_object_mut().unwrap().insert("timeout".to_owned(), json!("PT30S"));
    world.publish("one", &json!({"Start": state, "End": {"type": "succeed"}}));
    world.start("one", "a");
    world.order("a", Message::Suspend { reason: String::new() });
    world.jump(31_000);
    world.crash();
    world.pass(60_000);
    let rows = |world: &World| (world.keys(Table::Page).len(), world.keys(Table::Part).len());
    let told = rows(&world);
    for _ in 0..3 {
        world.pass(120_000);
        world.crash();
    }
    assert_eq!(rows(&world), told, "and is not told again");
    world.order("a", Message::Resume { reason: String::new() });
    assert_eq!((world.status("a").as_str(), world.keys(Table::Dispatch).len()), ("Failed", 0));
    world.pass(1_000);
    let letters = world.dead_letters();
    assert_eq!(letters.len(), 1);
    assert!(letters[0].original_message.contains("\"deadline_expired\""), "{}", letters[0].original_message);
    world.check();
}

#[test]
fn a_final_failure_that_was_held_is_still_final() {
    for reloaded in [false, true] {
        let mut world = World::new();
        one_patient(&world);
        world.start("one", "a");
        world.order("a", Message::Suspend { reason: String::new() });
        world.answer(failure(false));
        if reloaded {
            world.crash();
        }
        world.order("a", Message::Resume { reason: String::new() });
        assert_eq!(world.status("a"), "Failed");
        world.pass(1_000);
        let letter = world.dead_letters().remove(0);
        assert!(letter.original_message.contains("\"non_retryable\""), "{}", letter.original_message);
        world.check();
    }
}

#[test]
fn a_delivery_that_never_left_is_not_counted() {
    let mut world = World::new();
    one_patient(&world);
    world.start("one", "a");
    for _ in 0..2 {
        world.answer(Answer::Failed(Failure::retryable("CircuitOpen", "").with_not_sent()));
        world.crash();
        world.pass(60_000);
        assert_eq!(world.calls[0].1.metadata.retry_attempt, 0);
    }
    world.answer(failure(true));
    world.pass(60_000);
    assert_eq!(world.calls[0].1.metadata.retry_attempt, 1);
    world.crash();
    assert_eq!(world.calls[0].1.metadata.retry_attempt, 2, "this one may have been");
    world.complete();
    assert_eq!(world.status("a"), "Completed");
    world.check();
}

#[test]
fn a_call_that_never_left_says_so_when_it_is_given_up() {
    let mut world = World::new();
    one(&world);
    world.start("one", "a");
    for _ in 0..3 {
        world.answer(Answer::Failed(Failure::retryable("ConnectFailed", "refused").with_not_sent()));
        world.pass(60_000);
    }
    assert_eq!(world.status("a"), "Failed");
    let kept = world.settled("a");
    assert_eq!((kept[0].attempt, kept[0].sent_at), (0, abide_store::tables::pages::SettledCall::NEVER));
    let letters = world.dead_letters();
    assert_eq!(letters[0].dequeue_count, 0, "nobody was ever asked");
    world.check();
}

#[test]
fn a_call_that_was_sent_once_and_then_not_counts_one_delivery() {
    let mut world = World::new();
    one(&world);
    world.start("one", "a");
    world.answer(Answer::Failed(Failure::retryable("ConnectionLost", "").with_outcome_unknown()));
    for _ in 0..2 {
        world.pass(60_000);
        world.answer(Answer::Failed(Failure::retryable("ConnectFailed", "").with_not_sent()));
    }
    world.pass(1_000);
    assert_eq!(world.status("a"), "Failed");
    assert_eq!((world.settled("a")[0].attempt, world.dead_letters()[0].dequeue_count), (0, 1));
    world.check();
}

#[test]
fn a_call_that_is_given_up_before_another_delivery_keeps_those_it_had() {
    let mut poisoned = World::new();
    one(&poisoned);
    poisoned.start("one", "a");
    for _ in 0..5 {
        poisoned.crash();
    }
    let mut expired = World::new();
    let mut state = task("End");
    state.as_object_mut().unwrap().insert("timeout".to_owned(), json!("PT30S"));
    expired.publish("one", &json!({"Start": state, "End": {"type": "succeed"}}));
    expired.start("one", "a");
    expired.jump(31_000);
    expired.crash();
    for (mut world, deliveries) in [(poisoned, 5), (expired, 1)] {
        world.pass(1_000);
        assert_eq!(world.status("a"), "Failed");
        let letter = world.dead_letters().remove(0);
        assert_eq!(letter.dequeue_count, deliveries, "{}", letter.original_message);
        assert!(letter.original_message.contains("\"outcomeUnknown\":true"), "{}", letter.original_message);
        assert_eq!(world.settled("a")[0].attempt + 1, deliveries);
        world.check();
    }
}

#[test]
fn a_call_that_is_not_wanted_any_more_is_cancelled() {
    let mut world = World::new();
    one(&world);
    world.start("one", "a");
    world.order("a", Message::Terminate { reason: "enough".to_owned() });
    assert_eq!(world.cancelled.len(), 1);
    assert_eq!(world.keys(Table::Dispatch), []);
    let (id, _) = world.calls.pop_front().unwrap();
    world.tell(abide_runtime::Event::Answered(id, Answer::Completed(json!(1).into())));
    assert_eq!(world.status("a"), "Terminated", "a late answer changes nothing");
    world.check();
}

#[test]
fn a_failed_run_that_is_rewound_makes_the_call_again_as_new_work() {
    let mut world = World::new();
    one(&world);
    world.start("one", "a");
    let first = world.answer(failure(false)).metadata.idempotency_key;
    assert_eq!(world.status("a"), "Failed");
    world.order("a", Message::Rewind { reason: "mended".to_owned() });
    assert_eq!(world.status("a"), "Running");
    assert_ne!(world.complete().metadata.idempotency_key, first);
    assert_eq!(world.status("a"), "Completed");
    world.check();
}

#[test]
fn an_attempt_that_runs_into_the_deadline_of_the_step_is_the_end_of_the_step() {
    let mut world = World::new();
    let mut state = task("End");
    state["timeout"] = json!("PT30S");
    world.publish("one", &json!({"Start": state, "End": {"type": "succeed"}}));
    world.start("one", "a");
    assert_eq!(world.calls[0].1.attempt_timeout_ms, 10_000);
    world.pass(25_000);
    world.crash();
    assert_eq!(world.calls[0].1.attempt_timeout_ms, 5_000, "no delivery outlives the step");
    world.pass(5_000);
    world.crash();
    assert_eq!((world.calls.len(), world.status("a").as_str()), (0, "Failed"));
    let error = world.run("a").unwrap();
    assert!(format!("{:?}", error.instance.outcome()).contains("Timeout"));
}

/// A task that is given a secret.
fn with_secret(world: &World) {
    let input = json!({"id": "$.input.id", "auth": {"token": {"secretRef": "keyvault://devices/key"}}});
    let state = json!({"type": "task", "activity": "work", "input": input, "next": "End"});
    let gate = json!({"type": "wait", "waitType": "externalEvent", "eventName": "go", "next": "Call"});
    world.publish("secretive", &json!({"Start": gate, "Call": state, "End": {"type": "succeed"}}));
}

#[test]
fn a_call_that_needs_a_secret_fails_finally_and_is_not_sent() {
    let mut world = World::new();
    with_secret(&world);
    world.start("secretive", "a");
    world.raise("a", "go");
    assert_eq!((world.calls.len(), world.status("a").as_str()), (0, "Failed"));
    let outcome = format!("{:?}", world.run("a").unwrap().instance.outcome());
    assert!(outcome.contains("SecretUnavailable") && outcome.contains("keyvault://devices/key"), "{outcome}");
    assert_eq!(world.keys(Table::Dispatch), []);
    world.pass(1_000);
    assert_eq!(world.dead_letters()[0].dequeue_count, 0);
    assert_eq!(world.settled("a")[0].sent_at, abide_store::tables::pages::SettledCall::NEVER);
    world.check();
}

#[test]
fn a_call_that_needs_a_secret_is_not_sent_after_a_restart_either() {
    let mut world = World::new();
    with_secret(&world);
    world.start("secretive", "a");
    // Both wait until the run is loaded, so the turn that asks for the call also suspends the run: the record stays.
    world.crash();
    let raised = Message::EventRaised { name: "go".to_owned(), payload: json!(1).into() };
    let tickets = [world.next_ticket(), world.next_ticket()];
    let messages = [raised, Message::Suspend { reason: String::new() }];
    let asked = tickets.into_iter().zip(messages).map(|(ticket, message)| {
        let request = abide_runtime::Request::Deliver { instance_id: crate::world::name("a"), message };
        abide_runtime::Event::Asked(ticket, request)
    });
    world.tell_all(asked);
    assert_eq!((world.keys(Table::Dispatch).len(), world.status("a").as_str()), (1, "Suspended"));
    let key = world.keys(Table::Dispatch).remove(0);
    let row = world.store.read_now(&world.partition(), &key).unwrap().unwrap();
    let call: Dispatch = decode(&row.value).unwrap();
    assert_eq!(call.state, DispatchState::Pending, "it was never said to have left");
    world.crash();
    world.order("a", Message::Resume { reason: String::new() });
    world.pass(1_000);
    assert_eq!((world.calls.len(), world.status("a").as_str()), (0, "Failed"));
    world.check();
}

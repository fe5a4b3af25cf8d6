//! The journal of calls: what is kept of settled ones, what the dead-letter queue is told, and records that nobody has to do with.

use abide_dispatch::{Answer, Failure};
use abide_runtime::Event;
use abide_store::tables::decode;
use abide_store::tables::dispatches::DeliveryEnd;
use abide_store::tables::pages::{self, CallEnd, Page};
use abide_workflow::Message;
use serde_json::{Value, json};

use crate::world::{World, failure, task};

fn one(world: &World) {
    world.publish("one", &json!({"Start": task("End"), "End": {"type": "succeed"}}));
}

#[test]
fn a_settled_call_is_kept_with_its_attempts_and_its_end() {
    let mut world = World::new();
    one(&world);
    world.start("one", "a");
    world.answer(failure(true));
    world.pass(10_000);
    let call = world.complete();
    let settled = world.settled("a");
    let [kept] = &settled[..] else { panic!("{settled:?}") };
    assert_eq!((kept.end, kept.attempt, kept.activity.as_str()), (CallEnd::Acked, 1, "work"));
    assert_eq!(kept.step, "Start");
    assert_eq!(kept.reason.as_deref(), Some("Broken: it is"), "what went wrong before is kept");
    assert!(kept.sent_at > kept.created_at);
    let key = abide_dispatch::IdempotencyKey(kept.idempotency_key).to_string();
    assert_eq!(key, call.metadata.idempotency_key);
    assert!(world.dead_letters().is_empty());
    world.check();
}

#[test]
fn a_call_that_fails_for_good_is_a_dead_letter_with_diagnostics_and_the_run_goes_on_by_its_error_path() {
    let mut world = World::new();
    let mut state = task("End");
    state["onError"] = json!([{"match": ["Broken"], "next": "Else"}]);
    let states = json!({"Start": state, "Else": {"type": "succeed"}, "End": {"type": "succeed"}});
    world.publish("one", &states);
    world.start("one", "a");
    let call = world.answer(failure(false));
    world.pass(1_000);
    assert_eq!(world.status("a"), "Completed");
    let letters = world.dead_letters();
    let [letter] = &letters[..] else { panic!("{letters:?}") };
    assert_eq!((letter.engine.as_str(), letter.instance_id.as_str()), ("one", "a"));
    assert_eq!((letter.original_queue.as_str(), letter.dequeue_count), ("work", 1));
    assert_eq!(letter.error_message, "Broken: it is");
    let told: Value = serde_json::from_str(&letter.original_message).unwrap();
    assert_eq!(told["terminalReason"], "non_retryable");
    assert_eq!(told["transport"], "local");
    assert_eq!(told["executionId"], "a/1");
    assert_eq!(told["idempotencyKey"], call.metadata.idempotency_key.as_str());
    // SHA-256 of the bytes {"id":"a"}.
    let digest = "8489a5deb454a360345c7868bca8672de92b446caf3d3b014af6a56e3d549d30";
    assert_eq!((call.input.to_string().as_str(), &told["inputDigest"]), (r#"{"id":"a"}"#, &json!(digest)));
    assert!(letter.row_key.starts_with(&call.metadata.idempotency_key));
    world.check();
}

#[test]
fn the_reason_says_whether_retries_were_used_up_nobody_answered_or_time_ran_out() {
    let reason = |world: &World| {
        let letter = world.dead_letters().pop().unwrap();
        let told: Value = serde_json::from_str(&letter.original_message).unwrap();
        (told["terminalReason"].as_str().unwrap().to_owned(), letter.dequeue_count)
    };
    let mut world = World::new();
    one(&world);
    world.start("one", "a");
    for _ in 0..3 {
        world.answer(failure(true));
        world.pass(60_000);
    }
    assert_eq!(reason(&world), ("retry_exhausted".to_owned(), 3));

    let mut world = World::new();
    one(&world);
    world.start("one", "a");
    for _ in 0..5 {
        world.crash();
    }
    world.pass(1_000);
    assert_eq!(reason(&world), ("poison".to_owned(), 5));

    let mut world = World::new();
    let mut state = task("End");
    state["timeout"] = json!("PT30S");
    world.publish("one", &json!({"Start": state, "End": {"type": "succeed"}}));
    world.start("one", "a");
    world.pass(31_000);
    world.crash();
    world.pass(1_000);
    assert_eq!(reason(&world).0, "deadline_expired");
}

#[test]
fn a_call_that_nobody_wants_any_more_is_kept_as_cancelled_and_is_no_dead_letter() {
    let mut world = World::new();
    one(&world);
    world.start("one", "a");
    world.order("a", Message::Terminate { reason: "enough".to_owned() });
    world.pass(1_000);
    assert_eq!(world.settled("a").iter().map(|kept| kept.end).collect::<Vec<_>>(), [CallEnd::Cancelled]);
    assert!(world.dead_letters().is_empty());
    world.check();
}

/// Nobody restarts anything here: the record alone says that there should have been an answer.
#[cfg(feature = "faults")]
#[test]
fn a_delivery_that_was_recorded_and_forgotten_is_found_by_reconciliation() {
    let mut world = World::with(|config| config.bug = Some(abide_runtime::planted::Bug::DeliveryForgotten));
    one(&world);
    world.start("one", "a");
    assert_eq!((world.calls.len(), world.keys(abide_store::tables::Table::Dispatch).len()), (0, 1));
    let attempt = |world: &World| world.run("a").unwrap().calls.first().map(|call| call.dispatch.attempt);
    world.pass(14_000);
    assert_eq!(attempt(&world), Some(0), "it may still be on its way");
    world.pass(60_000);
    assert!(attempt(&world) > Some(0), "{:?}", attempt(&world));
    world.pass(600_000);
    assert_eq!(world.status("a"), "Failed", "one that is forgotten again and again ends as poison");
}

/// A run whose other branch is always busy never leaves memory.
#[cfg(feature = "faults")]
#[test]
fn a_forgotten_delivery_of_a_run_that_is_busy_is_found_too() {
    let mut world = World::with(|config| config.bug = Some(abide_runtime::planted::Bug::DeliveryForgotten));
    one(&world);
    world.start("one", "a");
    let attempt = |world: &World| world.run("a").unwrap().calls.first().map(|call| call.dispatch.attempt);
    for _ in 0..60 {
        world.pass(1_000);
        let event = Message::EventRaised { name: "Noise".to_owned(), payload: json!(null).into() };
        world.order("a", event);
    }
    assert!(attempt(&world) > Some(0), "{:?}", attempt(&world));
}

/// What came of each delivery of the call of `a`, open or settled, with its number.
fn deliveries(world: &World) -> Vec<(u32, DeliveryEnd)> {
    let run = world.run("a").unwrap();
    let open = run.calls.first().map(|call| call.dispatch.past.clone());
    let page = world.store.scan_now(&world.partition(), pages::of_run(run.row.run)).unwrap();
    let pages = page.rows.iter().map(|row| decode::<Page>(&row.value).unwrap());
    let settled = pages.flat_map(|page| page.troubled).map(|(_, trouble)| trouble.past).next_back();
    let past = open.or(settled).unwrap_or_default();
    assert!(past.iter().all(|past| past.sent_at <= past.ended_at), "{past:?}");
    past.into_iter().map(|past| (past.attempt, past.end)).collect()
}

#[test]
fn every_delivery_is_kept_with_what_came_of_it_until_the_run_is_forgotten() {
    use DeliveryEnd::{Failed, NotSent, Orphaned, Unanswered};
    let mut world = World::new();
    let mut state = task("End");
    state["retryPolicy"] = json!({"maxAttempts": 4, "initialInterval": "PT1S", "maxInterval": "PT1S"});
    world.publish("one", &json!({"Start": state, "End": {"type": "succeed"}}));
    world.start("one", "a");
    assert_eq!(deliveries(&world), []);
    world.crash();
    world.pass(1_000);
    assert_eq!(deliveries(&world), [(0, Orphaned)]);
    world.answer(Answer::Failed(Failure::retryable("ConnectFailed", "").with_not_sent()));
    world.pass(2_000);
    world.answer(Answer::Failed(Failure::retryable("Lost", "").with_outcome_unknown()));
    world.pass(2_000);
    // Whoever stands before the activity has answered, whatever is unknown of deliveries before.
    world.answer(Answer::Failed(Failure::retryable("Busy", "").with_status("429 RESOURCE_EXHAUSTED")));
    world.pass(2_000);
    let (id, _) = world.calls.pop_front().unwrap();
    world.tell_all([Event::Drain, Event::Withdrawn(id)]);
    world.crash();
    world.pass(1_000);
    let so_far = vec![(0, Orphaned), (1, NotSent), (1, Unanswered), (2, Failed), (3, NotSent)];
    assert_eq!(deliveries(&world), so_far);
    world.answer(Answer::Failed(Failure::retryable("Busy", "").with_status("500 INTERNAL")));
    world.pass(1_000);
    assert_eq!(world.status("a"), "Failed");
    assert_eq!(deliveries(&world), [&so_far[..], &[(3, Failed)]].concat());
    world.check();
}

#[test]
fn a_call_that_went_well_keeps_nothing_beyond_itself_and_one_that_is_tried_for_ever_the_last_deliveries() {
    let mut world = World::new();
    one(&world);
    world.start("one", "a");
    world.complete();
    assert_eq!(deliveries(&world), []);
    let mut world = World::new();
    let mut state = task("End");
    state["retryPolicy"] = json!({"maxAttempts": 50, "initialInterval": "PT1S", "maxInterval": "PT1S"});
    world.publish("one", &json!({"Start": state, "End": {"type": "succeed"}}));
    world.start("one", "a");
    for _ in 0..40 {
        world.answer(failure(true));
        world.pass(2_000);
    }
    world.complete();
    let kept: Vec<u32> = deliveries(&world).into_iter().map(|(attempt, _)| attempt).collect();
    assert_eq!(kept, (8..40).collect::<Vec<_>>());
    world.check();
}

//! Why calls are given up: the reason in the dead letter is the one for which there was no other delivery, whatever happened to the run meanwhile.

use abide_dispatch::{Answer, Failure};
use abide_store::tables::Table;
use abide_workflow::Message;
use serde_json::{Value, json};

use crate::calls::one_patient;
use crate::world::{World, task};

#[test]
fn a_code_that_the_policy_takes_for_final_is_given_up_as_final_and_not_as_worn_out() {
    for (code, reason) in [("Closed", "non_retryable"), ("Busy", "retry_exhausted")] {
        let mut world = World::new();
        let mut state = task("End");
        state["retryPolicy"] =
            json!({"maxAttempts": 1, "initialInterval": "PT1S", "nonRetryable": ["Closed"]});
        world.publish("one", &json!({"Start": state, "End": {"type": "succeed"}}));
        world.start("one", "a");
        world.answer(Answer::Failed(Failure::retryable(code, "")));
        world.pass(1_000);
        let letter: Value = serde_json::from_str(&world.dead_letters()[0].original_message).unwrap();
        assert_eq!(letter["terminalReason"], reason, "{code}");
        world.check();
    }
}

#[test]
fn an_activity_that_uses_our_codes_does_not_decide_why_it_is_given_up() {
    for code in ["Timeout", "Poison"] {
        for reloaded in [false, true] {
            let mut world = World::new();
            one_patient(&world);
            world.start("one", "a");
            world.order("a", Message::Suspend { reason: String::new() });
            world.answer(Answer::Failed(Failure::retryable(code, "").with_status("500 INTERNAL")));
            if reloaded {
                world.crash();
            }
            world.order("a", Message::Resume { reason: String::new() });
            world.pass(60_000);
            world.answer(Answer::Failed(Failure::for_good("Bad", "").with_status("400 INVALID_ARGUMENT")));
            world.pass(1_000);
            let letter: Value = serde_json::from_str(&world.dead_letters()[0].original_message).unwrap();
            let told = (&letter["terminalReason"], &letter["outcomeUnknown"], &letter["attempts"]);
            assert_eq!(told, (&json!("non_retryable"), &json!(false), &json!(2)), "{code} {reloaded}");
            world.check();
        }
    }
    // Held, final, in its own words, and loaded again.
    let mut world = World::new();
    let mut state = task("End");
    state["timeout"] = json!("PT1H");
    world.publish("one", &json!({"Start": state, "End": {"type": "succeed"}}));
    world.start("one", "a");
    world.order("a", Message::Suspend { reason: String::new() });
    world.answer(Answer::Failed(Failure::for_good("Timeout", "its own")));
    world.crash();
    world.order("a", Message::Resume { reason: String::new() });
    world.pass(1_000);
    assert!(world.dead_letters()[0].original_message.contains("\"non_retryable\""));
    // Held, and nothing left to try when it is resumed.
    let mut world = World::new();
    let mut state = task("End");
    state["timeout"] = json!("PT30S");
    state["retryPolicy"] = json!({"maxAttempts": 1, "initialInterval": "PT1S"});
    world.publish("one", &json!({"Start": state, "End": {"type": "succeed"}}));
    world.start("one", "a");
    world.order("a", Message::Suspend { reason: String::new() });
    world.answer(Answer::Failed(Failure::retryable("Timeout", "its own")));
    world.crash();
    world.order("a", Message::Resume { reason: String::new() });
    world.pass(1_000);
    assert!(world.dead_letters()[0].original_message.contains("\"retry_exhausted\""));
}

#[test]
fn a_deadline_that_passes_while_a_retry_waits_is_the_end_of_the_step() {
    type Meanwhile = fn(&mut World);
    let meanwhile: [(&str, Meanwhile); 3] = [
        ("nobody looked", |world| world.jump(31_000)),
        ("it was down", |world| {
            world.jump(31_000);
            world.crash();
        }),
        ("it was suspended", |world| {
            world.order("a", Message::Suspend { reason: String::new() });
            world.jump(31_000);
            world.crash();
            world.order("a", Message::Resume { reason: String::new() });
        }),
    ];
    for (what, meanwhile) in meanwhile {
        let mut world = World::new();
        let mut state = task("End");
        state["timeout"] = json!("PT30S");
        world.publish("one", &json!({"Start": state, "End": {"type": "succeed"}}));
        world.start("one", "a");
        world.answer(Answer::Failed(Failure::retryable("Busy", "").with_status("500 INTERNAL")));
        meanwhile(&mut world);
        world.pass(1_000);
        assert_eq!((world.status("a").as_str(), world.calls.len()), ("Failed", 0), "{what}");
        assert_eq!(world.keys(Table::Dispatch).len(), 0, "{what}");
        let letters = world.dead_letters();
        assert_eq!(letters.len(), 1, "{what}");
        let letter: Value = serde_json::from_str(&letters[0].original_message).unwrap();
        assert_eq!(letter["terminalReason"], "deadline_expired", "{what}");
        assert_eq!(letter["attempts"], 1, "{what}");
        assert_eq!(letter["lastStatus"], "500 INTERNAL", "{what}: what was answered last");
        world.check();
    }
}

#[test]
fn a_delivery_that_runs_into_the_deadline_has_one_reason_whether_its_run_was_suspended_or_reloaded() {
    let timed_out = || Answer::Failed(Failure::retryable("AttemptTimeout", "").with_outcome_unknown());
    for (suspended, reloaded) in [(false, false), (true, false), (true, true)] {
        let mut world = World::new();
        let mut state = task("End");
        state["timeout"] = json!("PT5S");
        world.publish("one", &json!({"Start": state, "End": {"type": "succeed"}}));
        world.start("one", "a");
        if suspended {
            world.order("a", Message::Suspend { reason: String::new() });
        }
        world.jump(5_000);
        world.answer(timed_out());
        if reloaded {
            world.crash();
        }
        if suspended {
            world.order("a", Message::Resume { reason: String::new() });
        }
        world.pass(1_000);
        assert_eq!(world.status("a"), "Failed");
        let letter: Value = serde_json::from_str(&world.dead_letters()[0].original_message).unwrap();
        let told = (&letter["terminalReason"], &letter["outcomeUnknown"], &letter["attempts"]);
        assert_eq!(told, (&json!("deadline_expired"), &json!(true), &json!(1)), "{suspended} {reloaded}");
        world.check();
    }
}

#[test]
fn a_call_that_did_not_leave_for_its_deadline_is_a_timeout_also_if_the_clock_was_set_back() {
    let mut world = World::new();
    let mut state = task("End");
    state["timeout"] = json!("PT5S");
    state["onError"] = json!([{"match": ["Timeout"], "next": "End"}]);
    world.publish("one", &json!({"Start": state, "End": {"type": "succeed"}}));
    world.start("one", "a");
    world.jump(5_000);
    world.ahead_ms = -60_000;
    let expired = Failure::for_good(abide_dispatch::transport::DEADLINE_EXCEEDED, "").with_not_sent();
    world.answer(Answer::Failed(expired));
    world.pass(1_000);
    assert_eq!(world.status("a"), "Completed", "caught as a timeout");
    let letter: Value = serde_json::from_str(&world.dead_letters()[0].original_message).unwrap();
    assert_eq!((&letter["terminalReason"], &letter["attempts"]), (&json!("deadline_expired"), &json!(0)));
    world.check();
}

#[test]
fn a_bare_number_says_nothing_of_earlier_deliveries() {
    for (status, unknown) in [("404", true), ("302", true), ("404 NOT_FOUND", false)] {
        let mut world = World::new();
        one_patient(&world);
        world.start("one", "a");
        world.answer(Answer::Failed(Failure::retryable("ConnectionLost", "").with_outcome_unknown()));
        world.pass(60_000);
        world.answer(Answer::Failed(Failure::for_good("No", "").with_status(status)));
        world.pass(1_000);
        let letter: Value = serde_json::from_str(&world.dead_letters()[0].original_message).unwrap();
        assert_eq!(letter["outcomeUnknown"], unknown, "{status}");
        world.check();
    }
}

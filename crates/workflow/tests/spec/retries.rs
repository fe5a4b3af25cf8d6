//! Retries: the policy that applies, the number of attempts, the waits between them, and the deadline.

use serde_json::{Value, json};

use crate::bench::{Case, case, check, definition, finds};

fn task(policy: Option<Value>) -> Value {
    let mut states = json!({
        "Work": {"type": "task", "activity": "Work", "next": "End"},
        "End": {"type": "succeed"},
    });
    if let Some(policy) = policy {
        states["Work"]["retryPolicy"] = policy;
    }
    states
}

fn flaky(times: usize) -> Value {
    let mut outcomes = vec![json!({"error": {"code": "Busy", "retryable": true}}); times];
    outcomes.push(json!({"result": 1}));
    Value::Array(outcomes)
}

fn attempts(case: &Case) -> usize {
    case.play(case.limits.turn, true).attempts.len()
}

#[test]
fn the_language_s_own_policy_is_three_attempts() {
    check(
        "third time lucky",
        &case("Work", task(None)).mock("Work", flaky(2)),
        &["Work", "Work(null)", "! Busy, again", "! Busy, again", "= 1", "End", "Completed null"],
    );
    check(
        "no fourth",
        &case("Work", task(None)).mock("Work", flaky(3)),
        &[
            "Work",
            "Work(null)",
            "! Busy, again",
            "! Busy, again",
            "! Busy",
            "Busy is not caught",
            "Failed Busy in Work",
        ],
    );
}

#[test]
fn the_policy_is_the_task_s_else_the_activity_s_else_the_configuration_s() {
    let never_done = || flaky(50);
    let activity = |attempts: u32| json!([{"name": "Work", "category": "other", "retryPolicy": {"maxAttempts": attempts}}]);
    let own = case("Work", task(Some(json!({"maxAttempts": 2}))))
        .registry(activity(4))
        .configuration(json!({"retryPolicy": {"maxAttempts": 6}}));
    assert_eq!(attempts(&own.mock("Work", never_done())), 2);
    let registered = case("Work", task(None))
        .registry(activity(4))
        .configuration(json!({"retryPolicy": {"maxAttempts": 6}}));
    assert_eq!(attempts(&registered.mock("Work", never_done())), 4);
    let configured = case("Work", task(None)).configuration(json!({"retryPolicy": {"maxAttempts": 6}}));
    assert_eq!(attempts(&configured.mock("Work", never_done())), 6);
}

#[test]
fn waits_grow_by_the_coefficient_up_to_the_cap_and_jitter_takes_at_most_half() {
    let policy = json!({"maxAttempts": 6, "initialInterval": "PT10S", "backoffCoefficient": 3.0, "maxInterval": "PT1M"});
    let case = case("Work", task(Some(policy))).mock("Work", flaky(5));
    let playback = case.play(case.limits.turn, false);
    let times: Vec<u64> = playback.attempts.windows(2).map(|pair| pair[1].at.since(pair[0].at).0).collect();
    for (wait, nominal) in times.iter().zip([10_000, 30_000, 60_000, 60_000, 60_000]) {
        assert!((nominal / 2..=nominal).contains(wait), "{times:?}");
    }
    assert_eq!(
        playback.attempts.iter().map(|attempt| attempt.attempt).collect::<Vec<_>>(),
        [0, 1, 2, 3, 4, 5]
    );
}

#[test]
fn jitter_comes_from_the_run_s_seed_and_nothing_else() {
    let case = case("Work", task(Some(json!({"maxAttempts": 5})))).mock("Work", flaky(4));
    let times =
        |reload| case.play(case.limits.turn, reload).attempts.iter().map(|d| d.at).collect::<Vec<_>>();
    assert_eq!(times(false), times(true));
}

#[test]
fn permanent_errors_and_named_codes_are_not_retried() {
    let permanent =
        case("Work", task(None)).mock("Work", json!({"error": {"code": "Bad", "retryable": false}}));
    check(
        "permanent",
        &permanent,
        &["Work", "Work(null)", "! Bad", "Bad is not caught", "Failed Bad in Work"],
    );
    let named = case("Work", task(Some(json!({"nonRetryable": ["Busy"]})))).mock("Work", flaky(1));
    check("named", &named, &["Work", "Work(null)", "! Busy", "Busy is not caught", "Failed Busy in Work"]);
}

#[test]
fn an_attempt_that_times_out_is_retried() {
    let mut states = task(None);
    states["Work"]["attemptTimeout"] = "PT2S".into();
    let case = case("Work", states)
        .mock("Work", json!([{"after": "PT3S", "result": 1}, {"after": "PT1S", "result": 2}]));
    check(
        "attemptTimeout",
        &case,
        &["Work", "Work(null)", "! AttemptTimeout, again", "= 2", "End", "Completed null"],
    );
}

#[test]
fn the_step_s_timeout_holds_over_all_its_retries() {
    let mut states =
        task(Some(json!({"maxAttempts": 100, "initialInterval": "PT10S", "backoffCoefficient": 1.0})));
    states["Work"]["timeout"] = "PT1M".into();
    states["Work"]["onError"] = json!([{"match": ["Timeout"], "next": "Late"}]);
    states["Late"] = json!({"type": "succeed", "output": "$.error.message"});
    let case = case("Work", states).mock("Work", flaky(99));
    let playback = case.play(case.limits.turn, true);
    assert!(playback.succeeded(), "{:?}", crate::bench::story(&playback));
    let last = playback.attempts.last().unwrap();
    assert!(last.at.since(playback.attempts[0].at).0 < 60_000, "nothing is sent at or after the deadline");
    let story = crate::bench::story(&playback).join("\n");
    assert!(story.contains("the last error was Busy"), "{story}");
}

#[test]
fn a_step_without_a_result_times_out_and_may_go_to_timeout_next() {
    let mut states = task(Some(json!({"maxAttempts": 1})));
    states["Work"]["timeout"] = "PT5S".into();
    states["Work"]["timeoutNext"] = "Late".into();
    states["Late"] = json!({"type": "succeed"});
    check(
        "timeoutNext",
        &case("Work", states).mock("Work", json!({"never": true})),
        &["Work", "Work(null)", "! Timeout", "Timeout -> Late", "Late", "Completed null"],
    );
}

#[test]
fn invalid_policies_are_findings() {
    let at = "/states/Work/retryPolicy";
    for (rule, policy, code, pointer) in [
        ("no attempts", json!({"maxAttempts": 0}), "invalid-value", format!("{at}/maxAttempts")),
        ("too many attempts", json!({"maxAttempts": 1001}), "invalid-value", format!("{at}/maxAttempts")),
        ("half an attempt", json!({"maxAttempts": 1.5}), "wrong-type", format!("{at}/maxAttempts")),
        (
            "shrinking waits",
            json!({"backoffCoefficient": 0.5}),
            "invalid-value",
            format!("{at}/backoffCoefficient"),
        ),
        ("no wait", json!({"initialInterval": "PT0S"}), "zero-timeout", format!("{at}/initialInterval")),
        ("an unknown field", json!({"attempts": 3}), "unknown-field", format!("{at}/attempts")),
    ] {
        finds(rule, &definition("Work", task(Some(policy))), None, &[(code, &pointer)]);
    }
    let mut tight = task(Some(json!({"maxAttempts": 10, "initialInterval": "PT1M"})));
    tight["Work"]["timeout"] = "PT5M".into();
    finds(
        "retries × back-off beyond the timeout",
        &definition("Work", tight),
        None,
        &[("retries-beyond-timeout", "/states/Work")],
    );
    let mut fits = task(Some(json!({"maxAttempts": 3, "initialInterval": "PT1M"})));
    fits["Work"]["timeout"] = "PT5M".into();
    finds("retries that fit", &definition("Work", fits), None, &[]);
}

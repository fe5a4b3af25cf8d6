//! One attempt in process: the checks before and after it, the ways it ends early, and the registry.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};

use abide_ids::Timestamp;
use serde_json::json;

use super::*;
use crate::declaration::ActivityCategory;
use crate::metadata::tests::metadata;

fn call(activity: &str, input: Value) -> CallAttempt {
    CallAttempt {
        activity: activity.to_owned(),
        input: Arc::new(input),
        metadata: metadata(),
        attempt_timeout_ms: 1_000,
        probe_first: false,
        secret_pointers: Vec::new(),
        elapsed_since_dispatch: std::time::Duration::ZERO,
    }
}

fn declared(name: &str) -> ActivityDeclaration {
    ActivityDeclaration::new(name, ActivityCategory::Other)
}

/// An activity that counts how often it ran and returns its input.
fn counting(declaration: ActivityDeclaration) -> (LocalActivities, Arc<AtomicUsize>) {
    let mut activities = LocalActivities::default();
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let handler = move |invocation: LocalInvocation| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move { Ok(invocation.input) }
    };
    activities.register(declaration, handler).unwrap();
    (activities, runs)
}

async fn failure(activities: &LocalActivities, call: CallAttempt) -> CallFailure {
    match activities.run_attempt(call).await {
        AttemptResult::Failed(failure) => failure,
        AttemptResult::Completed(output) => panic!("completed with {output}"),
    }
}

#[tokio::test]
async fn an_activity_gets_its_input_without_a_copy_and_its_metadata() {
    let mut activities = LocalActivities::default();
    let handler = |invocation: LocalInvocation| async move {
        assert_eq!(invocation.metadata, metadata());
        Ok(invocation.input)
    };
    activities.register(declared("echo"), handler).unwrap();
    let call = call("echo", json!({"a": 1}));
    let input = Arc::clone(&call.input);
    let AttemptResult::Completed(output) = activities.run_attempt(call).await else { panic!("failed") };
    assert!(Arc::ptr_eq(&input, &output));
}

#[tokio::test]
async fn a_name_that_is_not_registered_fails_permanently() {
    let failure = failure(&LocalActivities::default(), call("missing", json!(1))).await;
    assert_eq!(
        (failure.code.as_str(), failure.retryable, failure.not_sent),
        ("ActivityNotFound", false, true)
    );
}

#[tokio::test]
async fn an_input_that_does_not_match_fails_permanently_and_is_not_run() {
    let (activities, runs) = counting(declared("a").input(json!({"properties": {"n": {"type": "integer"}}})));
    let failure = failure(&activities, call("a", json!({"n": "s3cret"}))).await;
    assert_eq!(
        (failure.code.as_str(), failure.retryable, failure.outcome_unknown),
        ("InputInvalid", false, false)
    );
    assert!(failure.message.contains("/n") && !failure.message.contains("s3cret"), "{failure}");
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn an_output_that_does_not_match_fails_permanently() {
    let (activities, runs) = counting(declared("a").output(json!({"items": {"type": "integer"}})));
    let failure = failure(&activities, call("a", json!([1, null]))).await;
    assert_eq!((failure.code.as_str(), failure.retryable), ("OutputInvalid", false));
    assert!(failure.message.contains("/1"), "{failure}");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_call_past_its_deadline_fails_permanently_and_is_not_run() {
    let (activities, runs) = counting(declared("a"));
    for (deadline, runs_after) in
        [(Some(9_999), 0), (Some(10_000), 0), (Some(i64::MIN), 0), (Some(10_001), 1), (None, 2)]
    {
        let mut call = call("a", json!(1));
        call.metadata.deadline = deadline.map(Timestamp);
        let result = activities.run_attempt(call).await;
        assert_eq!(runs.load(Ordering::SeqCst), runs_after, "{deadline:?}");
        if let AttemptResult::Failed(failure) = result {
            assert_eq!((failure.code.as_str(), failure.retryable), ("DeadlineExceeded", false));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_times_out_drops_its_future() {
    let mut activities = LocalActivities::default();
    let running = Arc::new(());
    let watched = Arc::new(std::sync::Mutex::new(None));
    let seen = Arc::clone(&watched);
    let handler = move |_| {
        let running = Arc::clone(&running);
        *seen.lock().unwrap() = Some(Arc::downgrade(&running));
        async move {
            let _held = running;
            pending().await
        }
    };
    activities.register(declared("slow"), handler).unwrap();
    let start = tokio::time::Instant::now();
    let failed = failure(&activities, call("slow", json!(1))).await;
    assert_eq!(
        (failed.code.as_str(), failed.retryable, failed.outcome_unknown),
        ("AttemptTimeout", true, true)
    );
    assert_eq!(start.elapsed().as_millis(), 1_000);
    let holders = watched.lock().unwrap().as_ref().map(std::sync::Weak::strong_count);
    assert_eq!(holders, Some(1), "only the handler itself holds it, no future does");
}

#[tokio::test(start_paused = true)]
async fn an_attempt_does_not_outlive_its_call() {
    let mut activities = LocalActivities::default();
    activities.register(declared("slow"), |_| pending()).unwrap();
    let mut short = call("slow", json!(1));
    short.metadata.deadline = Some(Timestamp(short.metadata.dispatched_at.0 + 250));
    let start = tokio::time::Instant::now();
    assert_eq!(failure(&activities, short).await.code, "AttemptTimeout");
    assert_eq!(start.elapsed().as_millis(), 250);
}

#[tokio::test]
async fn a_panic_is_a_failure_of_unknown_outcome_and_the_next_call_runs() {
    let mut activities = LocalActivities::default();
    let at_once = |_| -> std::future::Ready<Result<Arc<Value>, CallFailure>> { panic!("s3cret") };
    activities.register(declared("at-once"), at_once).unwrap();
    let later = |invocation: LocalInvocation| async move {
        tokio::task::yield_now().await;
        assert!(invocation.input.is_null(), "s3cret");
        Ok(invocation.input)
    };
    activities.register(declared("later"), later).unwrap();
    for activity in ["at-once", "later"] {
        let failed = failure(&activities, call(activity, json!(1))).await;
        assert_eq!(
            (failed.code.as_str(), failed.retryable, failed.outcome_unknown),
            ("ActivityPanicked", true, true)
        );
        assert!(!failed.message.contains("s3cret"), "{failed}");
    }
    assert!(matches!(activities.run_attempt(call("later", json!(null))).await, AttemptResult::Completed(_)));
}

#[tokio::test]
async fn a_failure_of_the_activity_is_passed_on_unchanged() {
    let mut activities = LocalActivities::default();
    let declined = CallFailure::permanent("CardDeclined", "no").with_outcome_unknown();
    let returned = declined.clone();
    activities.register(declared("charge"), move |_| std::future::ready(Err(returned.clone()))).unwrap();
    assert_eq!(failure(&activities, call("charge", json!(1))).await, declined);
}

#[test]
fn an_invalid_registration_is_rejected_and_changes_nothing() {
    let (mut activities, _) = counting(declared("a"));
    let before = activities.registry_json();
    let mut refused = |declaration| activities.register(declaration, |_| pending()).unwrap_err();
    assert_eq!(
        refused(declared("a").compensation("b")),
        LocalRegisterError::Duplicate { activity: "a".to_owned() }
    );
    assert_eq!(refused(declared("")), ContractError::EmptyName.into());
    assert!(matches!(
        refused(declared("b").input(json!(7))),
        LocalRegisterError::Contract(ContractError::Schema { field: "input", .. })
    ));
    let outside = declared("b").output(json!({"$ref": "http://example.com/"}));
    assert!(matches!(
        refused(outside),
        LocalRegisterError::Contract(ContractError::Schema { field: "output", .. })
    ));
    assert!(matches!(
        refused(declared("b").attempt_timeout("10s")),
        LocalRegisterError::Contract(ContractError::AttemptTimeout { .. })
    ));
    assert_eq!(activities.registry_json(), before);
}

#[test]
fn the_registry_is_sorted_by_name_whatever_the_order_of_registration() {
    let registered = |names: [&str; 3]| {
        let mut activities = LocalActivities::default();
        for name in names {
            activities.register(declared(name), |_| pending()).unwrap();
        }
        activities.registry_json()
    };
    let text = registered(["b", "c", "a"]);
    assert_eq!(text, registered(["c", "a", "b"]));
    let entry = |name: &str| json!({"name": name, "category": "other"});
    let parsed: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(parsed, json!({"activities": [entry("a"), entry("b"), entry("c")]}));
}

#[test]
fn neither_inputs_nor_handlers_are_shown() {
    let (activities, _) = counting(declared("a"));
    assert_eq!(format!("{activities:?}"), "{\"a\"}");
    let invocation = LocalInvocation { input: Arc::new(json!("s3cret")), metadata: metadata() };
    assert!(!format!("{invocation:?}").contains("s3cret"));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_a_permit_until_its_deadline_is_not_run() {
    struct SlowPermits;
    impl crate::transport::PermitSource for SlowPermits {
        type Permit = ();

        async fn acquire(&self) -> Result<(), CallFailure> {
            tokio::time::sleep(std::time::Duration::from_secs(2)).await;
            Ok(())
        }
    }
    let (activities, runs) = counting(declared("echo"));
    let mut call = call("echo", json!(1));
    call.metadata.deadline = Some(Timestamp(call.metadata.dispatched_at.0 + 2_000));
    let AttemptResult::Failed(failure) = activities.run_attempt_with_permit(call, &SlowPermits).await else {
        panic!("it ran")
    };
    assert_eq!((failure.code.as_str(), failure.not_sent), ("DeadlineExceeded", true));
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

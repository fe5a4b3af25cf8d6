//! The built-in activities of every server: small ones to try out workflows, and `http.request`.
//!
//! | name | does |
//! |---|---|
//! | `core.echo` | returns its input |
//! | `core.fail` | fails a given number of times, then returns its input |
//! | `core.delay` | waits, then returns its input |
//! | `http.request` | calls a URL that the egress guard admits |
//!
//! They know nothing about workflows.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use super::activities::{LocalActivities, LocalInvocation, LocalRegisterError};
use super::http_request;
use crate::contract::input_invalid;
use crate::declaration::{ActivityCategory, ActivityDeclaration};
use crate::duration;
use crate::egress_guard::EgressGuard;
use crate::http::{OneShotClient, TlsRoots};
use crate::transport::CallFailure;

/// Calls whose failures are counted at the same time; beyond that the oldest is forgotten and starts to fail again.
const COUNTED_CALLS_MAX: usize = 100_000;
/// The longest delay: it holds a concurrency permit, and longer waits are what timers are for.
const DELAY_MAX: Duration = Duration::from_secs(24 * 3600);

impl LocalActivities {
    /// The built-in activities. `http.request` calls only targets that the guard admits.
    pub fn with_builtins(guard: EgressGuard) -> Result<Self, LocalRegisterError> {
        let mut activities = Self::default();
        activities.register(echo_declaration(), |invocation| async { Ok(invocation.input) })?;
        let failures = Arc::new(Mutex::new(FailureCounts::new(COUNTED_CALLS_MAX)));
        activities.register(fail_declaration(), move |invocation| {
            let result = fail(&failures, invocation);
            async { result }
        })?;
        activities.register(delay_declaration(), delay)?;
        let client = OneShotClient::new(guard, TlsRoots::web_pki())?;
        http_request::register(&mut activities, client)?;
        Ok(activities)
    }
}

fn echo_declaration() -> ActivityDeclaration {
    ActivityDeclaration::new("core.echo", ActivityCategory::Other).input(json!({})).output(json!({}))
}

fn fail_declaration() -> ActivityDeclaration {
    let properties = json!({
        "times": {"type": "integer", "minimum": 0, "maximum": u32::MAX},
        "code": {"type": "string", "minLength": 1, "maxLength": 128},
        "retryable": {"type": "boolean"},
    });
    ActivityDeclaration::new("core.fail", ActivityCategory::Other)
        .input(json!({"type": "object", "properties": properties}))
        .output(json!({"type": "object"}))
}

/// The attempt timeout is a minute longer than the longest delay, so that the two do not race.
fn delay_declaration() -> ActivityDeclaration {
    let properties = json!({"duration": {"type": "string"}});
    ActivityDeclaration::new("core.delay", ActivityCategory::Other)
        .input(json!({"type": "object", "required": ["duration"], "properties": properties}))
        .output(json!({"type": "object"}))
        .attempt_timeout("P1DT1M")
}

async fn delay(invocation: LocalInvocation) -> Result<Arc<Value>, CallFailure> {
    let text = invocation.input.get("duration").and_then(Value::as_str).unwrap_or_default();
    let duration = duration::parse(text).filter(|duration| *duration <= DELAY_MAX);
    let expected = "\"/duration\": expected an ISO-8601 duration up to P1D, such as PT5S";
    let duration = duration.ok_or_else(|| input_invalid(expected))?;
    tokio::time::sleep(duration).await;
    Ok(invocation.input)
}

fn fail(failures: &Mutex<FailureCounts>, invocation: LocalInvocation) -> Result<Arc<Value>, CallFailure> {
    let input = &invocation.input;
    let times = input.get("times").and_then(Value::as_u64).unwrap_or(1);
    let mut failures = failures.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(count) = failures.count_up(&invocation.metadata.idempotency_key, times) else {
        return Ok(invocation.input);
    };
    let code = input.get("code").and_then(Value::as_str).unwrap_or("Failed");
    let message = format!("failed as asked, {count} of {times}");
    match input.get("retryable").and_then(Value::as_bool).unwrap_or(true) {
        true => Err(CallFailure::retryable(code, message)),
        false => Err(CallFailure::permanent(code, message)),
    }
}

/// The number of failures of each call, for a bounded number of calls.
struct FailureCounts {
    by_key: HashMap<Arc<str>, u64>,
    oldest_first: VecDeque<Arc<str>>,
    keys_max: usize,
}

impl FailureCounts {
    fn new(keys_max: usize) -> Self {
        Self { by_key: HashMap::new(), oldest_first: VecDeque::new(), keys_max }
    }

    /// Counts one more failure of the call; none if it has failed `times` times already.
    fn count_up(&mut self, key: &str, times: u64) -> Option<u64> {
        if let Some(count) = self.by_key.get_mut(key) {
            return (*count < times).then(|| {
                *count += 1;
                *count
            });
        }
        if times == 0 {
            return None;
        }
        if self.oldest_first.len() >= self.keys_max
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.by_key.remove(&oldest);
        }
        let key: Arc<str> = key.into();
        self.by_key.insert(Arc::clone(&key), 1);
        self.oldest_first.push_back(key);
        Some(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::tests::metadata;
    use crate::transport::{ActivityTransport, AttemptResult, CallAttempt};

    async fn run_attempt(
        activities: &LocalActivities,
        activity: &str,
        input: &Value,
    ) -> Result<Value, CallFailure> {
        let metadata = crate::Metadata { deadline: None, ..metadata() };
        let input = Arc::new(input.clone());
        let call = CallAttempt {
            activity: activity.to_owned(),
            input,
            metadata,
            attempt_timeout_ms: 86_460_000,
            probe_first: false,
            secret_pointers: Vec::new(),
            elapsed_since_dispatch: Duration::ZERO,
        };
        match activities.run_attempt(call).await {
            AttemptResult::Completed(output) => Ok((*output).clone()),
            AttemptResult::Failed(failure) => Err(failure),
        }
    }

    #[tokio::test]
    async fn echo_returns_any_input() {
        let activities = LocalActivities::with_builtins(EgressGuard::default()).unwrap();
        for input in [json!(null), json!([1, "a"]), json!({"a": {"b": 1.5}})] {
            assert_eq!(run_attempt(&activities, "core.echo", &input).await, Ok(input));
        }
    }

    #[tokio::test]
    async fn fail_fails_the_given_number_of_times_and_then_echoes() {
        let activities = LocalActivities::with_builtins(EgressGuard::default()).unwrap();
        let input = json!({"times": 2, "code": "CardDeclined", "retryable": false, "order": 7});
        for _ in 0..2 {
            let failure = run_attempt(&activities, "core.fail", &input).await.unwrap_err();
            assert_eq!((failure.code.as_str(), failure.retryable), ("CardDeclined", false));
        }
        for _ in 0..2 {
            assert_eq!(run_attempt(&activities, "core.fail", &input).await, Ok(input.clone()));
        }
    }

    #[tokio::test]
    async fn fail_fails_once_and_retryably_by_default() {
        let activities = LocalActivities::with_builtins(EgressGuard::default()).unwrap();
        let failure = run_attempt(&activities, "core.fail", &json!({})).await.unwrap_err();
        assert_eq!((failure.code.as_str(), failure.retryable), ("Failed", true));
        assert_eq!(run_attempt(&activities, "core.fail", &json!({})).await, Ok(json!({})));
        let wrong = run_attempt(&activities, "core.fail", &json!({"times": -1})).await.unwrap_err();
        assert_eq!(wrong.code, "InputInvalid");
    }

    #[test]
    fn failures_are_counted_for_each_call_and_the_oldest_call_is_forgotten() {
        let mut counts = FailureCounts::new(2);
        assert_eq!(counts.count_up("never", 0), None);
        assert_eq!((counts.count_up("a", 1), counts.count_up("b", 1)), (Some(1), Some(1)));
        assert_eq!((counts.count_up("a", 1), counts.count_up("b", 2)), (None, Some(2)));
        assert_eq!(counts.count_up("c", 1), Some(1));
        assert_eq!(counts.count_up("a", 1), Some(1), "forgotten");
        assert_eq!((counts.by_key.len(), counts.oldest_first.len()), (2, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn delay_waits_for_the_given_duration_up_to_a_day() {
        let activities = LocalActivities::with_builtins(EgressGuard::default()).unwrap();
        for (text, duration) in [("PT5S", Duration::from_secs(5)), ("P1D", DELAY_MAX)] {
            let start = tokio::time::Instant::now();
            let input = json!({"duration": text, "n": 1});
            assert_eq!(run_attempt(&activities, "core.delay", &input).await, Ok(input));
            assert_eq!(start.elapsed().as_secs(), duration.as_secs());
        }
        for text in ["P1DT1S", "5s", ""] {
            let failure =
                run_attempt(&activities, "core.delay", &json!({"duration": text})).await.unwrap_err();
            assert_eq!((failure.code.as_str(), failure.retryable), ("InputInvalid", false), "{text}");
            assert!(failure.message.contains("/duration"));
        }
    }

    #[test]
    fn the_built_in_activities_are_declared_with_schemas() {
        let registry = LocalActivities::with_builtins(EgressGuard::default()).unwrap().registry_json();
        let registry: Value = serde_json::from_str(&registry).unwrap();
        let entries = registry["activities"].as_array().unwrap();
        let names: Vec<&str> = entries.iter().map(|entry| entry["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["core.delay", "core.echo", "core.fail", "http.request"]);
        assert!(entries.iter().all(|entry| entry["input"].is_object() && entry["output"].is_object()));
    }
}

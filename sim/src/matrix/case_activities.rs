//! The activities of a case. The run without a crash takes its results from the case's mocks and records them by
//! idempotency key. Every other run replays the recorded results, so that the same call gets the same result however
//! often it is attempted.

use std::collections::BTreeMap;
use std::sync::Arc;

use abide_dispatch::{AttemptResult, CallAttempt, CallFailure};
use abide_workflow::rehearse::{MockOutcome as Mocked, Mocks};
use serde_json::Value;

/// A result and its time in microseconds since the start of the case.
#[derive(Clone, Debug)]
pub(super) struct ScriptedResult {
    pub(super) at_us: u64,
    pub(super) result: AttemptResult,
}

/// The results of each call by idempotency key, in order.
pub(super) type ResultScript = BTreeMap<String, Vec<ScriptedResult>>;

/// One attempt as the receiver sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ReceivedAttempt {
    /// The idempotency key of the call.
    pub(super) key: String,
    pub(super) attempt: u32,
    pub(super) activity: String,
}

/// The activities of a running case.
#[derive(Debug)]
pub(super) struct CaseActivities {
    mocks: Mocks,
    attempts_by_activity: BTreeMap<String, usize>,
    /// The results of the run without a crash; `None` in that run itself.
    script: Option<Arc<ResultScript>>,
    /// The results recorded in the run without a crash.
    pub(super) recorded_script: ResultScript,
    /// All attempts, in order.
    pub(super) attempts: Vec<ReceivedAttempt>,
}

impl CaseActivities {
    /// Activities that answer from this script, or from the mocks if there is none.
    pub(super) fn new(mocks: Mocks, script: Option<Arc<ResultScript>>) -> Self {
        Self {
            mocks,
            attempts_by_activity: BTreeMap::new(),
            script,
            recorded_script: ResultScript::new(),
            attempts: Vec::new(),
        }
    }

    /// Takes an attempt. `results_applied` results of the same call are durable already. An attempt whose result was
    /// lost is repeated with the same result, and not before the time of the lost one.
    pub(super) fn on_attempt(
        &mut self,
        call: &CallAttempt,
        now_us: u64,
        results_applied: usize,
    ) -> Result<ScriptedResult, String> {
        let key = &call.metadata.idempotency_key;
        let attempt = call.metadata.retry_attempt;
        let activity = call.activity.clone();
        self.attempts.push(ReceivedAttempt { key: key.clone(), attempt, activity });
        let Some(script) = &self.script else {
            let scripted = self.mocked_result(call, now_us);
            self.recorded_script.entry(key.clone()).or_default().push(scripted.clone());
            return Ok(scripted);
        };
        let known = script.get(key).and_then(|results| results.get(results_applied));
        let Some(known) = known else {
            let times = script.get(key).map_or(0, Vec::len);
            return Err(format!(
                "{} got attempt {attempt} with {results_applied} results applied; without a crash it has {times} results",
                call.activity
            ));
        };
        Ok(ScriptedResult { at_us: known.at_us.max(now_us), result: known.result.clone() })
    }

    /// Answers like a rehearsal: each attempt of an activity takes the next mock, the last one is repeated, and the
    /// attempt timeout applies.
    fn mocked_result(&mut self, call: &CallAttempt, now_us: u64) -> ScriptedResult {
        let position = self.attempts_by_activity.entry(call.activity.clone()).or_insert(0);
        let results = self.mocks.activities.get(&call.activity);
        let mocked = results.and_then(|results| results.get(*position).or_else(|| results.last())).cloned();
        *position += 1;
        let limit_us = now_us + call.attempt_timeout_ms * 1_000;
        let (after, result) = match mocked.unwrap_or(Mocked::Result(Default::default(), Value::Null)) {
            Mocked::Result(after, value) => (Some(after), AttemptResult::Completed(Arc::new(value))),
            Mocked::Echo(after) => (Some(after), AttemptResult::Completed(Arc::clone(&call.input))),
            Mocked::Error(after, failure) => {
                let retryable = failure.retryable;
                let failure =
                    CallFailure { retryable, ..CallFailure::permanent(failure.code, failure.message) };
                (Some(after), AttemptResult::Failed(failure))
            }
            Mocked::Never => (None, AttemptResult::Completed(Arc::default())),
        };
        match after.map(|after| now_us + after.0 * 1_000) {
            Some(at_us) if at_us <= limit_us => ScriptedResult { at_us, result },
            _ => {
                let failure = CallFailure::retryable("AttemptTimeout", "the attempt timed out");
                ScriptedResult {
                    at_us: limit_us,
                    result: AttemptResult::Failed(failure.with_outcome_unknown()),
                }
            }
        }
    }
}

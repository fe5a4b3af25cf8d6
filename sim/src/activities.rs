//! Simulated activities: they record every attempt, recognise repeats, and at random fail or do not respond.

use std::collections::BTreeMap;
use std::sync::Arc;

use abide_dispatch::{AttemptResult, CallAttempt, CallFailure};
use abide_store::memory::SeededRng;

use crate::workload;

/// The ledger of all activities.
#[derive(Debug, Default)]
pub struct SimActivities {
    pub work: BTreeMap<String, ActivityWork>,
}

/// The work of one idempotency key.
#[derive(Debug, Default)]
pub struct ActivityWork {
    pub activity: String,
    /// The runs that used this key: more than one is a violation.
    pub executions: Vec<String>,
    /// The number of each attempt that arrived.
    pub attempts: Vec<u32>,
    /// How often the work took effect. The receiver recognises repeats.
    pub effects: u32,
    /// The distinct inputs of the attempts.
    pub inputs: Vec<String>,
}

impl SimActivities {
    /// Takes an attempt. Returns its result, or `None` if there will be none.
    pub fn on_attempt(
        &mut self,
        call: &CallAttempt,
        dice: &mut SeededRng,
        calm: bool,
    ) -> Option<AttemptResult> {
        let input = call.input.to_string();
        let key = &call.metadata.idempotency_key;
        // The same step of the same run under another key: the run was rewound.
        let again = |(other, work): (&String, &ActivityWork)| {
            other != key
                && work.activity == call.activity
                && work.executions.contains(&call.metadata.execution_id)
                && work.inputs.contains(&input)
        };
        let called_before = call.activity == "mend" && self.work.iter().any(again);
        let work = self.work.entry(key.clone()).or_default();
        call.activity.clone_into(&mut work.activity);
        work.attempts.push(call.metadata.retry_attempt);
        if !work.executions.contains(&call.metadata.execution_id) {
            work.executions.push(call.metadata.execution_id.clone());
        }
        if !work.inputs.contains(&input) {
            work.inputs.push(input);
        }
        let roll = if calm { 99 } else { dice.below(100) };
        if roll < 8 {
            return Some(AttemptResult::Failed(CallFailure::retryable("Unavailable", "by dice")));
        }
        if work.effects == 0 {
            work.effects = 1;
        }
        if roll < 12 {
            return None;
        }
        Some(match workload::activity_result(&call.activity, &call.input, called_before) {
            Ok(result) => AttemptResult::Completed(Arc::new(result)),
            Err(code) => AttemptResult::Failed(CallFailure::permanent(code, "it refuses")),
        })
    }
}

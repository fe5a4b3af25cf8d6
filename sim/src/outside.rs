//! The world outside: activities that remember every delivery, recognise repeats, fail and fall silent by dice.

use std::collections::BTreeMap;
use std::sync::Arc;

use abide_dispatch::{Answer, Call, Failure};
use abide_store::memory::Dice;

use crate::workload;

/// What activities saw.
#[derive(Debug, Default)]
pub struct Outside {
    /// By idempotency key.
    pub work: BTreeMap<String, Work>,
}

/// One piece of work.
#[derive(Debug, Default)]
pub struct Work {
    /// The activity.
    pub activity: String,
    /// The runs that named it: more than one is a mistake.
    pub executions: Vec<String>,
    /// The attempt of each delivery that arrived.
    pub attempts: Vec<u32>,
    /// How often it took effect, seen by the receiver, who recognises repeats.
    pub effects: u32,
    /// The inputs it came with.
    pub inputs: Vec<String>,
}

impl Outside {
    /// A delivery arrives. The answer, or `None` if there will be none.
    pub fn receive(&mut self, call: &Call, dice: &mut Dice, calm: bool) -> Option<Answer> {
        let input = call.input.to_string();
        let key = &call.metadata.idempotency_key;
        // The same step of the same run under another key: it was rewound.
        let again = |(other, work): (&String, &Work)| {
            other != key
                && work.activity == call.activity
                && work.executions.contains(&call.metadata.execution_id)
                && work.inputs.contains(&input)
        };
        let asked_before = call.activity == "mend" && self.work.iter().any(again);
        let work = self.work.entry(key.clone()).or_default();
        call.activity.clone_into(&mut work.activity);
        work.attempts.push(call.metadata.retry_attempt);
        if !work.executions.contains(&call.metadata.execution_id) {
            work.executions.push(call.metadata.execution_id.clone());
        }
        if !work.inputs.contains(&input) {
            work.inputs.push(input);
        }
        let fate = if calm { 99 } else { dice.below(100) };
        if fate < 8 {
            return Some(Answer::Failed(Failure::retryable("Unavailable", "by dice")));
        }
        if work.effects == 0 {
            work.effects = 1;
        }
        if fate < 12 {
            return None;
        }
        Some(match workload::answer(&call.activity, &call.input, asked_before) {
            Ok(result) => Answer::Completed(Arc::new(result)),
            Err(code) => Answer::Failed(Failure::for_good(code, "it refuses")),
        })
    }
}

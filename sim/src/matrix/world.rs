//! The activities of a case. The first run takes its answers from the case's mocks and writes them down by idempotency key; every other run
//! answers from what was written down, so that the same piece of work is answered alike however often it is delivered.

use std::collections::BTreeMap;
use std::sync::Arc;

use abide_dispatch::{Answer, Call, Failure};
use abide_workflow::rehearse::{Answer as Mocked, Mocks};
use serde_json::Value;

/// An answer and when it comes, in microseconds since the beginning.
#[derive(Clone, Debug)]
pub(super) struct Given {
    /// When.
    pub(super) at_us: u64,
    /// What.
    pub(super) answer: Answer,
}

/// The answers of each piece of work, in the order they are given.
pub(super) type Script = BTreeMap<String, Vec<Given>>;

/// One delivery, as the receiver sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Delivered {
    /// Which piece of work.
    pub(super) key: String,
    /// Which delivery of it.
    pub(super) attempt: u32,
    /// The activity.
    pub(super) activity: String,
}

/// A world at work.
#[derive(Debug)]
pub(super) struct World {
    mocks: Mocks,
    asked: BTreeMap<String, usize>,
    /// What the first run was answered; `None` in the first run itself.
    script: Option<Arc<Script>>,
    /// What is written down in the first run.
    pub(super) written: Script,
    /// All deliveries, in order.
    pub(super) deliveries: Vec<Delivered>,
}

impl World {
    /// A world that answers from this script, or else from the mocks.
    pub(super) fn new(mocks: Mocks, script: Option<Arc<Script>>) -> Self {
        Self { mocks, asked: BTreeMap::new(), script, written: Script::new(), deliveries: Vec::new() }
    }

    /// Takes a delivery. So many answers of the same piece of work are durable already: a delivery whose answer was lost is answered as the lost
    /// one was, and not before it would have been.
    pub(super) fn receive(
        &mut self,
        call: &Call,
        now_us: u64,
        answers_taken: usize,
    ) -> Result<Given, String> {
        let key = &call.metadata.idempotency_key;
        let (attempt, activity) = (call.metadata.retry_attempt, call.activity.clone());
        self.deliveries.push(Delivered { key: key.clone(), attempt, activity });
        let Some(script) = &self.script else {
            let given = self.mocked(call, now_us);
            self.written.entry(key.clone()).or_default().push(given.clone());
            return Ok(given);
        };
        let known = script.get(key).and_then(|answers| answers.get(answers_taken));
        let Some(known) = known else {
            let times = script.get(key).map_or(0, Vec::len);
            return Err(format!(
                "{} was delivered as attempt {attempt} with {answers_taken} answers taken; without a crash it has {times}",
                call.activity
            ));
        };
        Ok(Given { at_us: known.at_us.max(now_us), answer: known.answer.clone() })
    }

    /// As a rehearsal answers: each delivery of an activity takes the next answer, the last is repeated, within the delivery's time.
    fn mocked(&mut self, call: &Call, now_us: u64) -> Given {
        let position = self.asked.entry(call.activity.clone()).or_insert(0);
        let answers = self.mocks.activities.get(&call.activity);
        let mocked = answers.and_then(|answers| answers.get(*position).or_else(|| answers.last())).cloned();
        *position += 1;
        let limit_us = now_us + call.attempt_timeout_ms * 1_000;
        let (after, answer) = match mocked.unwrap_or(Mocked::Result(Default::default(), Value::Null)) {
            Mocked::Result(after, value) => (Some(after), Answer::Completed(Arc::new(value))),
            Mocked::Echo(after) => (Some(after), Answer::Completed(Arc::clone(&call.input))),
            Mocked::Error(after, failure) => {
                let retryable = failure.retryable;
                let told = Failure { retryable, ..Failure::for_good(failure.code, failure.message) };
                (Some(after), Answer::Failed(told))
            }
            Mocked::Never => (None, Answer::Completed(Arc::default())),
        };
        match after.map(|after| now_us + after.0 * 1_000) {
            Some(at_us) if at_us <= limit_us => Given { at_us, answer },
            _ => {
                let failure = Failure::retryable("AttemptTimeout", "the delivery took too long");
                Given { at_us: limit_us, answer: Answer::Failed(failure.with_outcome_unknown()) }
            }
        }
    }
}

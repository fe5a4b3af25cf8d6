//! Calls under way from one shard: each a task, bounded in number over the whole node, each answered exactly once unless it is cancelled.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use abide_dispatch::{Answer, Call, Failure, Transport};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;

use super::carrier::Incoming;
use super::metrics::Metrics;
use crate::crash;
use crate::event::{CallId, Event};

/// How long a call without a deadline may wait for a slot.
const WAIT_MAX: Duration = Duration::from_secs(24 * 3_600);

/// The calls of one shard.
#[derive(Debug)]
pub(super) struct Calls<T> {
    activities: Arc<T>,
    slots: Arc<Semaphore>,
    answers: mpsc::UnboundedSender<Incoming>,
    metrics: Arc<Metrics>,
    running: HashMap<CallId, AbortHandle>,
    /// Under which claim of the shard calls are made.
    pub(super) claim: u64,
}

impl<T: Transport + 'static> Calls<T> {
    pub(super) fn new(
        activities: Arc<T>,
        slots: Arc<Semaphore>,
        answers: mpsc::UnboundedSender<Incoming>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self { activities, slots, answers, metrics, running: HashMap::new(), claim: 0 }
    }

    /// Begins a call as soon as there is a slot.
    pub(super) fn begin(&mut self, id: CallId, call: Call) {
        crash::point("before-call");
        let (activities, slots) = (Arc::clone(&self.activities), Arc::clone(&self.slots));
        let (answers, metrics) = (self.answers.clone(), Arc::clone(&self.metrics));
        let (named, claim) = (id.clone(), self.claim);
        let task = tokio::spawn(async move {
            let answered = Answering { id: Some(named), claim, answers: &answers };
            let waiting = metrics.calls_waiting.hold();
            // Waiting for a slot is no delivery, but the step's deadline does not wait.
            let metadata = &call.metadata;
            let left = metadata.deadline_epoch_ms.map(|deadline| deadline - metadata.dispatched_at_epoch_ms);
            let left = left.map_or(WAIT_MAX, |ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0)));
            let Ok(Ok(_slot)) = tokio::time::timeout(left, slots.acquire_owned()).await else {
                return answered
                    .with(Answer::Failed(Failure::retryable("AttemptTimeout", "no slot was free in time")));
            };
            drop(waiting);
            let _running = metrics.calls_running.hold();
            let answer = activities.deliver(call).await;
            crash::point("after-call");
            answered.with(answer);
        });
        self.running.insert(id, task.abort_handle());
    }

    /// Stops a call.
    pub(super) fn cancel(&mut self, id: &CallId) {
        if let Some(task) = self.running.remove(id) {
            task.abort();
        }
    }

    /// A call was answered. False if it is none that is waited for.
    pub(super) fn ended(&mut self, id: &CallId) -> bool {
        self.running.remove(id).is_some()
    }

    /// Stops all calls.
    pub(super) fn cancel_all(&mut self) {
        for (_, task) in self.running.drain() {
            task.abort();
        }
    }
}

/// Makes sure that a call is answered, even if the transport panics. A cancelled one is not waited for.
struct Answering<'a> {
    id: Option<CallId>,
    claim: u64,
    answers: &'a mpsc::UnboundedSender<Incoming>,
}

impl Answering<'_> {
    fn with(mut self, answer: Answer) {
        if let Some(id) = self.id.take() {
            // A shard that is gone waits for no answer.
            drop(self.answers.send(Incoming::Event(self.claim, Event::Answered(id, answer))));
        }
    }
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            let failure =
                Failure::retryable("DeliveryAborted", "the delivery was cut short").with_outcome_unknown();
            drop(
                self.answers.send(Incoming::Event(self.claim, Event::Answered(id, Answer::Failed(failure)))),
            );
        }
    }
}

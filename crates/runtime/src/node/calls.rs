//! Calls under way from one shard: each a task, bounded in number over the whole node, each answered exactly once unless it is cancelled.

use std::collections::HashMap;
use std::sync::Arc;

use abide_dispatch::{Answer, Call, Failure, Transport};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;

use super::carrier::Incoming;
use super::metrics::Metrics;
use crate::crash;
use crate::event::{CallId, Event};

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
            let Ok(_slot) = slots.acquire_owned().await else { return };
            metrics.calls_running.add(1);
            let answered = Answering { metrics: &metrics, id: Some(named), claim, answers: &answers };
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

    /// A call was answered.
    pub(super) fn ended(&mut self, id: &CallId) {
        self.running.remove(id);
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
    metrics: &'a Metrics,
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
        self.metrics.calls_running.add(-1);
        if let Some(id) = self.id.take() {
            let failure = Failure {
                code: "DeliveryAborted".to_owned(),
                message: "the delivery was cut short".to_owned(),
                retryable: true,
                outcome_unknown: true,
            };
            drop(
                self.answers.send(Incoming::Event(self.claim, Event::Answered(id, Answer::Failed(failure)))),
            );
        }
    }
}

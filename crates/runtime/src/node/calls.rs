//! Calls under way from one shard: each a task, bounded in number over the whole node, each answered exactly once unless it is cancelled or taken back.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use abide_dispatch::{Answer, Call, Failure, Room, Transport};
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::carrier::Incoming;
use super::metrics::{Held, Metrics};
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
    running: HashMap<CallId, Running>,
    /// The node goes down: nothing new leaves.
    pub(super) draining: bool,
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
        Self { activities, slots, answers, metrics, running: HashMap::new(), draining: false, claim: 0 }
    }

    /// Begins a call as soon as there is a slot; gives it back if nothing leaves any more.
    pub(super) fn begin(&mut self, id: CallId, call: Call) -> Option<Event> {
        crash::point("before-call");
        if self.draining {
            return Some(Event::Withdrawn(id));
        }
        let leaving = Arc::new(Leaving::default());
        let own = Arc::clone(&leaving);
        let (activities, slots) = (Arc::clone(&self.activities), Arc::clone(&self.slots));
        let (answers, metrics) = (self.answers.clone(), Arc::clone(&self.metrics));
        let (named, claim) = (id.clone(), self.claim);
        let task = tokio::spawn(async move {
            let answered = Answering { id: Some(named), claim, answers: &answers };
            let slot = Slot {
                slots: &slots,
                until: Instant::now() + call.deadline_left().unwrap_or(WAIT_MAX).min(WAIT_MAX),
                waiting: Mutex::new(Some(metrics.calls_waiting.hold())),
                metrics: &metrics,
                leaving: &own,
            };
            let answer = activities.deliver_in(call, &slot).await;
            crash::point("after-call");
            answered.with(answer);
        });
        self.running.insert(id, Running { task: task.abort_handle(), leaving });
        None
    }

    /// Nothing new leaves from now on. Calls that wait for a place, a pace or a slot are taken back; those that may have left go on.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Event> {
        self.draining = true;
        self.running.extract_if(|_, running| running.leaving.withdraw()).map(|(id, running)| {
            running.task.abort();
            Event::Withdrawn(id)
        })
    }

    /// Stops a call.
    pub(super) fn cancel(&mut self, id: &CallId) {
        if let Some(running) = self.running.remove(id) {
            running.task.abort();
        }
    }

    /// A call was answered. False if it is none that is waited for.
    pub(super) fn ended(&mut self, id: &CallId) -> bool {
        self.running.remove(id).is_some()
    }

    /// Stops all calls.
    pub(super) fn cancel_all(&mut self) {
        for (_, running) in self.running.drain() {
            running.task.abort();
        }
    }
}

/// A call under way.
#[derive(Debug)]
struct Running {
    task: AbortHandle,
    leaving: Arc<Leaving>,
}

/// Whether a call may have left, decided once: by the call when it has its slot, or by whoever takes it back before that.
#[derive(Debug, Default)]
struct Leaving(AtomicU8);

impl Leaving {
    const WAITS: u8 = 0;
    const LEAVES: u8 = 1;
    const WITHDRAWN: u8 = 2;

    /// It may leave. False if it was taken back; a second question of the same call is no other decision.
    fn leave(&self) -> bool {
        self.decide(Self::LEAVES) != Err(Self::WITHDRAWN)
    }

    /// It has not left, and waits again.
    fn wait_again(&self) {
        // One that was taken back meanwhile stays so.
        let _ = self.0.compare_exchange(Self::LEAVES, Self::WAITS, Ordering::AcqRel, Ordering::Acquire);
    }

    /// It will not leave. False if it may have.
    fn withdraw(&self) -> bool {
        self.decide(Self::WITHDRAWN).is_ok()
    }

    fn decide(&self, as_what: u8) -> Result<u8, u8> {
        self.0.compare_exchange(Self::WAITS, as_what, Ordering::AcqRel, Ordering::Acquire)
    }
}

/// A slot of the node for one call, which counts as waiting until it has it. Who takes it is the transport's to say: a call that waits for a
/// place before its target needs none yet, or one dead target with enough calls would have them all.
struct Slot<'c> {
    slots: &'c Semaphore,
    until: Instant,
    waiting: Mutex<Option<Held<'c>>>,
    metrics: &'c Metrics,
    leaving: &'c Leaving,
}

impl<'c> Room for Slot<'c> {
    type Held = (SemaphorePermit<'c>, Held<'c>);

    async fn take(&self) -> Result<Self::Held, Failure> {
        // Waiting for a slot is no delivery, but the step's deadline does not wait.
        let Ok(Ok(slot)) = tokio::time::timeout_at(self.until, self.slots.acquire()).await else {
            return Err(Failure::retryable("AttemptTimeout", "no slot was free in time").with_not_sent());
        };
        if !self.leaving.leave() {
            return Err(Failure::retryable("Withdrawn", "the server goes down").with_not_sent());
        }
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok((slot, self.metrics.calls_running.hold()))
    }

    fn give_back(&self, held: Self::Held) {
        drop(held);
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(self.metrics.calls_waiting.hold());
        self.leaving.wait_again();
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

#[cfg(test)]
mod tests {
    use super::*;
    use abide_dispatch::Metadata;
    use abide_workflow::{CommandId, InstanceId};

    /// Calls of `stuck` wait for their target for ever and never ask for room.
    #[derive(Debug)]
    struct Stuck;

    impl Transport for Stuck {
        async fn deliver(&self, call: Call) -> Answer {
            Answer::Completed(call.input)
        }

        async fn deliver_in<R: Room>(&self, call: Call, room: &R) -> Answer {
            if call.activity == "stuck" {
                std::future::pending::<()>().await;
            }
            match room.take().await {
                Ok(_held) => self.deliver(call).await,
                Err(failure) => Answer::Failed(failure),
            }
        }
    }

    fn call(activity: &str, number: u64) -> (CallId, Call) {
        let metadata = Metadata {
            correlation_id: "c".to_owned(),
            execution_id: "i:1".to_owned(),
            idempotency_key: number.to_string(),
            retry_attempt: 0,
            deadline_epoch_ms: None,
            dispatched_at_epoch_ms: 0,
            parent_item_id: None,
        };
        let id = CallId {
            instance_id: InstanceId::new("i").unwrap(),
            run: 1,
            command: CommandId(number),
            attempt: 0,
        };
        let (activity, input) = (activity.to_owned(), Arc::new(serde_json::Value::Null));
        let secrets = Vec::new();
        (
            id,
            Call {
                activity,
                input,
                metadata,
                attempt_timeout_ms: 1_000,
                ask_first: false,
                secrets,
                waited: Duration::ZERO,
            },
        )
    }

    #[tokio::test]
    async fn calls_that_wait_for_their_target_leave_the_slots_to_others() {
        let (answers, mut answered) = mpsc::unbounded_channel();
        let metrics = Arc::new(Metrics::new(crate::placement::ShardCount::new(1).unwrap()));
        let slots = Arc::new(Semaphore::new(1));
        let mut calls = Calls::new(Arc::new(Stuck), slots, answers, Arc::clone(&metrics));
        for number in 0..5 {
            let (id, call) = call("stuck", number);
            assert!(calls.begin(id, call).is_none());
        }
        let (id, able) = call("able", 5);
        assert!(calls.begin(id.clone(), able).is_none());
        // There is one thread, so all get as far as they can.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let Ok(Incoming::Event(_, Event::Answered(answered, _))) = answered.try_recv() else {
            panic!("no answer")
        };
        assert_eq!(answered, id);
        assert_eq!((metrics.calls_waiting.get(), metrics.calls_running.get()), (5, 0));
    }

    /// Calls of `able` wait inside, too: they have their slot, and may have left.
    #[derive(Debug)]
    struct Hanging;

    impl Transport for Hanging {
        async fn deliver(&self, _call: Call) -> Answer {
            std::future::pending().await
        }

        async fn deliver_in<R: Room>(&self, call: Call, room: &R) -> Answer {
            if call.activity == "stuck" {
                std::future::pending::<()>().await;
            }
            let Ok(held) = room.take().await else { return self.deliver(call).await };
            if call.activity == "asks" {
                room.give_back(held);
                std::future::pending::<()>().await;
            }
            self.deliver(call).await
        }
    }

    #[tokio::test]
    async fn a_node_that_goes_down_takes_back_what_waits_and_leaves_alone_what_may_have_left() {
        let (answers, mut answered) = mpsc::unbounded_channel();
        let metrics = Arc::new(Metrics::new(crate::placement::ShardCount::new(1).unwrap()));
        let slots = Arc::new(Semaphore::new(1));
        let mut calls = Calls::new(Arc::new(Hanging), slots, answers, Arc::clone(&metrics));
        // One waits for its target; one has asked and waits again; one has the only slot; one waits for it.
        for (number, activity) in (0..).zip(["stuck", "asks", "able", "able"]) {
            let (id, call) = call(activity, number);
            assert!(calls.begin(id, call).is_none());
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        }
        let mut withdrawn: Vec<u64> = calls.drain().map(number).collect();
        withdrawn.sort_unstable();
        assert_eq!(withdrawn, [0, 1, 3]);
        let (late, call) = call("able", 4);
        assert_eq!(calls.begin(late, call).map(number), Some(4), "nothing new leaves");
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!((metrics.calls_waiting.get(), metrics.calls_running.get()), (0, 1));
        // What its task says when it is stopped is heard by nobody.
        while let Ok(Incoming::Event(_, Event::Answered(id, _))) = answered.try_recv() {
            assert!(!calls.ended(&id), "{id:?}");
        }
        assert_eq!(calls.drain().count(), 0);
    }

    fn number(event: Event) -> u64 {
        let Event::Withdrawn(id) = event else { panic!("{event:?}") };
        id.command.0
    }
}

//! The attempts of one shard that are in progress: each is a task, and the node's permits bound how many run at a time.
//!
//! The shard task starts an attempt when the commit that records it is durable, and gives its result to the shard.
//! Retries are not decided here. Every attempt gets exactly one result, unless it is cancelled or withdrawn; and
//! nothing is sent before an attempt has its permit.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use abide_dispatch::{ActivityTransport, CallAttempt, CallFailure, HoldNotice, HoldReason, PermitSource};
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::attempt_reports::{Reporter, ResultGuard};
use super::metrics::{GaugeGuard, Metrics};
use super::send_confirmation::Confirmation;
use super::shard_task::ShardTaskMessage;
use crate::crash_point::{self, CrashPoint};
use crate::event::{AttemptId, Event, SendTicket};

/// The time an attempt without a deadline may wait for a permit.
const PERMIT_WAIT_MAX: Duration = Duration::from_secs(24 * 3_600);

/// An attempt that waits longer for a permit is reported as held back.
const HOLD_REPORTED_AFTER: Duration = Duration::from_secs(1);
/// Why it is.
const NO_PERMIT: &str = "no concurrency permit of the node was free in time";

/// The attempts of one shard.
#[derive(Debug)]
pub(super) struct RunningAttempts<T> {
    transport: Arc<T>,
    permits: Arc<Semaphore>,
    task_sender: mpsc::UnboundedSender<ShardTaskMessage>,
    metrics: Arc<Metrics>,
    running: HashMap<AttemptId, RunningAttempt>,
    tickets_drawn: u64,
    /// The node is shutting down: no new attempt is started.
    pub(super) draining: bool,
    /// The ownership of the shard under which attempts are made.
    pub(super) ownership_epoch: u64,
}

impl<T: ActivityTransport + 'static> RunningAttempts<T> {
    pub(super) fn new(
        transport: Arc<T>,
        permits: Arc<Semaphore>,
        task_sender: mpsc::UnboundedSender<ShardTaskMessage>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            transport,
            permits,
            task_sender,
            metrics,
            running: HashMap::new(),
            tickets_drawn: 0,
            draining: false,
            ownership_epoch: 0,
        }
    }

    /// Starts an attempt, which is sent as soon as there is a permit. Its result comes as a message to the shard task.
    /// Returns its withdrawal at once if the node is draining.
    pub(super) fn start(&mut self, id: AttemptId, call: CallAttempt) -> Option<Event> {
        self.spawn(id, call, false)
    }

    /// Starts an attempt whose call is held back: it requests to be sent when it could be.
    pub(super) fn try_held(&mut self, id: AttemptId, call: CallAttempt) -> Option<Event> {
        self.spawn(id, call, true)
    }

    /// Lets an attempt go that has requested it with this ticket.
    pub(super) fn allow_send(&self, id: &AttemptId, ticket: SendTicket) {
        let running = self.running.get(id).filter(|running| running.confirmation.ticket == ticket);
        if let Some(running) = running {
            crash_point::reach(CrashPoint::BeforeCall);
            running.confirmation.allow();
        }
    }

    fn spawn(&mut self, id: AttemptId, call: CallAttempt, is_held: bool) -> Option<Event> {
        if !is_held {
            crash_point::reach(CrashPoint::BeforeCall);
        }
        self.tickets_drawn += 1;
        let confirmation = Confirmation::new(SendTicket(self.tickets_drawn), is_held);
        if self.draining {
            return Some(Event::AttemptWithdrawn(id));
        }
        let send_gate = Arc::new(SendGate::default());
        let task_gate = Arc::clone(&send_gate);
        let confirmation = Arc::new(confirmation);
        let task_confirmation = Arc::clone(&confirmation);
        let transport = Arc::clone(&self.transport);
        let permits = Arc::clone(&self.permits);
        let task_sender = self.task_sender.clone();
        let metrics = Arc::clone(&self.metrics);
        let attempt_id = id.clone();
        let ownership_epoch = self.ownership_epoch;
        let span = tracing::debug_span!(
            "attempt",
            instance_id = %id.instance_id,
            execution_id = call.metadata.execution_id,
            activity = call.activity,
            attempt = id.attempt
        );
        let attempt = async move {
            let reporter = Reporter { id: &attempt_id, ownership_epoch, task_sender: &task_sender };
            let result_guard = ResultGuard::new(reporter.clone());
            let permit_source = NodePermits {
                permits: &permits,
                deadline: Instant::now()
                    + call.time_to_deadline().unwrap_or(PERMIT_WAIT_MAX).min(PERMIT_WAIT_MAX),
                waiting_guard: Mutex::new(Some(metrics.calls_waiting.count_one())),
                metrics: &metrics,
                send_gate: &task_gate,
                confirmation: &task_confirmation,
                reporter,
            };
            let result = transport.run_attempt_with_permit(call, &permit_source).await;
            crash_point::reach(CrashPoint::AfterCall);
            result_guard.send(result);
        };
        let task = tokio::spawn(attempt.instrument(span));
        self.running.insert(id, RunningAttempt { task: task.abort_handle(), send_gate, confirmation });
        None
    }

    /// Starts nothing new from now on. Attempts that wait for a target limit, a rate limit or a permit are withdrawn;
    /// those that hold a permit go on, and one that is only probing may still send its work.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Event> {
        self.draining = true;
        self.running.extract_if(|_, running| running.send_gate.withdraw()).map(|(id, running)| {
            running.task.abort();
            Event::AttemptWithdrawn(id)
        })
    }

    /// Stops an attempt whose result the shard no longer wants. Work that was already sent may be done all the same.
    pub(super) fn cancel(&mut self, id: &AttemptId) {
        if let Some(running) = self.running.remove(id) {
            running.task.abort();
        }
    }

    /// Removes an attempt that has a result. False if it is not in progress: the result is not wanted.
    pub(super) fn finish(&mut self, id: &AttemptId) -> bool {
        self.running.remove(id).is_some()
    }

    /// Stops all attempts when an ownership ends. The next owner finds their calls in the store.
    pub(super) fn cancel_all(&mut self) {
        for (_, running) in self.running.drain() {
            running.task.abort();
        }
    }
}

#[derive(Debug)]
struct RunningAttempt {
    task: AbortHandle,
    send_gate: Arc<SendGate>,
    confirmation: Arc<Confirmation>,
}

/// Decides once if an attempt may be sent: the attempt itself decides when it has its permit, or the drain withdraws it
/// before that.
#[derive(Debug, Default)]
struct SendGate(AtomicU8);

impl SendGate {
    const WAITING: u8 = 0;
    const SENDING: u8 = 1;
    const WITHDRAWN: u8 = 2;

    /// The attempt is about to be sent. False if it was withdrawn. Asking again changes nothing.
    fn begin_send(&self) -> bool {
        self.decide(Self::SENDING) != Err(Self::WITHDRAWN)
    }

    /// The work was not sent, at most a probe for it, and the attempt waits for a permit again.
    fn return_to_waiting(&self) {
        // Cannot fail: a drain does not withdraw an attempt that holds a permit.
        let _ = self.0.compare_exchange(Self::SENDING, Self::WAITING, Ordering::AcqRel, Ordering::Acquire);
    }

    /// The attempt will not be sent. False if it may have been sent already.
    fn withdraw(&self) -> bool {
        self.decide(Self::WITHDRAWN).is_ok()
    }

    fn decide(&self, state: u8) -> Result<u8, u8> {
        self.0.compare_exchange(Self::WAITING, state, Ordering::AcqRel, Ordering::Acquire)
    }
}

/// Gives one attempt a permit of the node; until then it counts as waiting. The transport decides when to acquire the
/// permit: an attempt that waits for its target's limit must not hold one, or the calls of one dead target could take
/// all permits.
struct NodePermits<'c> {
    permits: &'c Semaphore,
    deadline: Instant,
    waiting_guard: Mutex<Option<GaugeGuard<'c>>>,
    metrics: &'c Metrics,
    send_gate: &'c SendGate,
    confirmation: &'c Confirmation,
    reporter: Reporter<'c>,
}

impl<'c> PermitSource for NodePermits<'c> {
    type Permit = (SemaphorePermit<'c>, GaugeGuard<'c>);

    /// Called by the transport just before it sends. After this succeeds, a drain lets the attempt go on.
    async fn acquire(&self) -> Result<Self::Permit, CallFailure> {
        // Waiting for a permit does not use up the attempt timeout, but the call's deadline goes on.
        let mut acquiring = pin!(self.permits.acquire());
        let reported_at = (Instant::now() + HOLD_REPORTED_AFTER).min(self.deadline);
        let acquired = match tokio::time::timeout_at(reported_at, acquiring.as_mut()).await {
            Ok(acquired) => Some(acquired),
            Err(_) => {
                let (reason, message) = (HoldReason::ConcurrencyLimit, NO_PERMIT.to_owned());
                self.hold_back(HoldNotice { reason, message, retry_in: HOLD_REPORTED_AFTER });
                tokio::time::timeout_at(self.deadline, acquiring).await.ok()
            }
        };
        let Some(Ok(permit)) = acquired else {
            return Err(CallFailure::held(HoldReason::ConcurrencyLimit, "AttemptTimeout", NO_PERMIT));
        };
        if !self.send_gate.begin_send() {
            return Err(CallFailure::retryable("Withdrawn", "the server is shutting down").with_not_sent());
        }
        self.waiting_guard.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok((permit, self.metrics.calls_running.count_one()))
    }

    /// Called by the transport after a probe if the work is not to be sent yet: a drain may withdraw the attempt again.
    fn return_unused(&self, permit: Self::Permit) {
        drop(permit);
        *self.waiting_guard.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(self.metrics.calls_waiting.count_one());
        self.send_gate.return_to_waiting();
    }

    /// Reports it to the shard, unless it knows already. The attempt waits as long as it may.
    fn hold_back(&self, notice: HoldNotice) -> bool {
        if self.confirmation.begin_hold(notice.reason) {
            self.reporter.report(|id| Event::AttemptHeld(id, notice));
        }
        true
    }

    async fn confirm_send(&self) -> Result<(), CallFailure> {
        if self.confirmation.must_request() {
            self.reporter.report(|id| Event::SendRequested(id, self.confirmation.ticket));
            self.confirmation.allowed().await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abide_dispatch::{AttemptResult, Metadata};
    use abide_workflow::{CommandId, InstanceId};

    /// Calls of `stuck` wait for their target forever and never acquire a permit.
    #[derive(Debug)]
    struct Stuck;

    impl ActivityTransport for Stuck {
        async fn run_attempt(&self, call: CallAttempt) -> AttemptResult {
            AttemptResult::Completed(call.input)
        }

        async fn run_attempt_with_permit<R: PermitSource>(
            &self,
            call: CallAttempt,
            permits: &R,
        ) -> AttemptResult {
            if call.activity == "stuck" {
                std::future::pending::<()>().await;
            }
            match permits.acquire().await {
                Ok(_permit) => self.run_attempt(call).await,
                Err(failure) => AttemptResult::Failed(failure),
            }
        }
    }

    fn call(activity: &str, number: u64) -> (AttemptId, CallAttempt) {
        let metadata = Metadata {
            correlation_id: "c".to_owned(),
            execution_id: "i:1".to_owned(),
            idempotency_key: number.to_string(),
            retry_attempt: 0,
            deadline: None,
            dispatched_at: abide_ids::Timestamp(0),
            parent_item_id: None,
        };
        let id = AttemptId {
            instance_id: InstanceId::new("i").unwrap(),
            run_id: abide_ids::RunId(1),
            command: CommandId(number),
            attempt: 0,
        };
        let activity = activity.to_owned();
        let input = Arc::new(serde_json::Value::Null);
        let secrets = Vec::new();
        (
            id,
            CallAttempt {
                activity,
                input,
                metadata,
                attempt_timeout_ms: 1_000,
                probe_first: false,
                secret_pointers: secrets,
                elapsed_since_dispatch: Duration::ZERO,
            },
        )
    }

    #[tokio::test]
    async fn calls_that_wait_for_their_target_leave_the_permits_to_others() {
        let (task_sender, mut task_messages) = mpsc::unbounded_channel();
        let metrics = Arc::new(Metrics::new(crate::placement::ShardCount::new(1).unwrap()));
        let permits = Arc::new(Semaphore::new(1));
        let mut attempts = RunningAttempts::new(Arc::new(Stuck), permits, task_sender, Arc::clone(&metrics));
        for number in 0..5 {
            let (id, call) = call("stuck", number);
            assert!(attempts.start(id, call).is_none());
        }
        let (id, able) = call("able", 5);
        assert!(attempts.start(id.clone(), able).is_none());
        // There is one thread, so every task gets as far as it can.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let Ok(ShardTaskMessage::Event(_, Event::AttemptFinished(finished, _))) = task_messages.try_recv()
        else {
            panic!("no result")
        };
        assert_eq!(finished, id);
        assert_eq!((metrics.calls_waiting.get(), metrics.calls_running.get()), (5, 0));
    }

    /// Calls of `able` never end, either: they have their permit and may have been sent. Calls of `asks` return their
    /// permit.
    #[derive(Debug)]
    struct Hanging;

    impl ActivityTransport for Hanging {
        async fn run_attempt(&self, _call: CallAttempt) -> AttemptResult {
            std::future::pending().await
        }

        async fn run_attempt_with_permit<R: PermitSource>(
            &self,
            call: CallAttempt,
            permits: &R,
        ) -> AttemptResult {
            if call.activity == "stuck" {
                std::future::pending::<()>().await;
            }
            let Ok(permit) = permits.acquire().await else { return self.run_attempt(call).await };
            if call.activity == "asks" {
                permits.return_unused(permit);
                std::future::pending::<()>().await;
            }
            self.run_attempt(call).await
        }
    }

    #[tokio::test]
    async fn a_drain_withdraws_waiting_attempts_and_leaves_alone_those_that_may_have_been_sent() {
        let (task_sender, mut task_messages) = mpsc::unbounded_channel();
        let metrics = Arc::new(Metrics::new(crate::placement::ShardCount::new(1).unwrap()));
        let permits = Arc::new(Semaphore::new(1));
        let mut attempts =
            RunningAttempts::new(Arc::new(Hanging), permits, task_sender, Arc::clone(&metrics));
        // One waits for its target; one returned its permit and waits again; one has the only permit; one waits for it.
        for (number, activity) in (0..).zip(["stuck", "asks", "able", "able"]) {
            let (id, call) = call(activity, number);
            assert!(attempts.start(id, call).is_none());
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        }
        let mut withdrawn: Vec<u64> = attempts.drain().map(number).collect();
        withdrawn.sort_unstable();
        assert_eq!(withdrawn, [0, 1, 3]);
        let (late, call) = call("able", 4);
        assert_eq!(attempts.start(late, call).map(number), Some(4), "nothing new is sent");
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!((metrics.calls_waiting.get(), metrics.calls_running.get()), (0, 1));
        // The result that an aborted task still sends is ignored.
        while let Ok(ShardTaskMessage::Event(_, Event::AttemptFinished(id, _))) = task_messages.try_recv() {
            assert!(!attempts.finish(&id), "{id:?}");
        }
        assert_eq!(attempts.drain().count(), 0);
    }

    fn number(event: Event) -> u64 {
        let Event::AttemptWithdrawn(id) = event else { panic!("{event:?}") };
        id.command.0
    }
}

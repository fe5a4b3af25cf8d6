//! The event loop of one shard: feeds it events, executes its effects, and acquires the shard again after it was lost.
//!
//! It decides nothing about runs. A result is delivered only to the ownership that asked for it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use abide_dispatch::ActivityTransport;
use tokio::sync::{mpsc, oneshot};
use tracing::Instrument as _;

use super::clock::NodeClock;
use super::lanes::LanePlace;
use super::metrics::Metrics;
use super::pending_replies::PendingReplies;
use super::running_attempts::RunningAttempts;
use crate::config::ShardConfig;
use crate::crash_point::{self, CrashPoint};
use crate::event::{Effect, Event, FailedCall, OperatorEvent, StopReason};
use crate::panics;
use crate::placement::ShardId;
use crate::request::{ShardReply, ShardRequest};
use crate::shard::Shard;
use crate::store_effects::StoreEffects;
use abide_store::Store;

/// A message to the shard task.
#[derive(Debug)]
pub(super) enum ShardTaskMessage {
    /// A client's request.
    Request {
        request: ShardRequest,
        reply: oneshot::Sender<ShardReply>,
        end: Option<oneshot::Sender<ShardReply>>,
        place: Option<LanePlace>,
    },
    /// Clients' requests that are accepted together in this order, or all refused.
    RequestGroup(Vec<(ShardRequest, oneshot::Sender<ShardReply>, Option<LanePlace>)>),
    /// The result of an effect, with the ownership epoch that asked for it. A later epoch would mistake it for its own.
    Event(u64, Event),
    /// A client waits until everything durable now is in the public table.
    AwaitPublicIndex(oneshot::Sender<()>),
    /// The task of another shard of this node has sent messages. Those of other nodes are found by polling.
    InboundHint,
    /// The node is shutting down.
    Drain,
}

/// The task of one shard, and everything it needs.
#[derive(Debug)]
pub(super) struct ShardTask<S> {
    pub(super) id: ShardId,
    pub(super) config: ShardConfig,
    pub(super) store_effects: Arc<StoreEffects<S>>,
    pub(super) shard_senders: Vec<mpsc::UnboundedSender<ShardTaskMessage>>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) clock: NodeClock,
}

/// The most events handled before effects are executed.
const EVENTS_PER_ROUND: usize = 512;
/// The interval at which disconnected clients are looked for.
const CLIENT_CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// The time to wait before a lost shard is acquired again.
const REACQUIRE_DELAY: Duration = Duration::from_millis(500);

impl<S: Store> ShardTask<S> {
    /// Runs until the node drains. Each ownership begins with a new [`Shard`], which has nothing in memory; requests
    /// and results that arrive in between are kept for it, but results of an earlier ownership are dropped.
    pub(super) async fn run<T: ActivityTransport + 'static>(
        self,
        mut incoming: mpsc::UnboundedReceiver<ShardTaskMessage>,
        mut attempts: RunningAttempts<T>,
    ) {
        loop {
            attempts.ownership_epoch += 1;
            let reason = catch_panic(self.run_ownership(&mut incoming, &mut attempts)).await;
            self.metrics.shard_stopped(self.id, stop_text(&reason));
            attempts.cancel_all();
            match reason {
                StopReason::Drained => return,
                StopReason::Lost => tracing::warn!(shard = %self.id, "shard ownership lost to another node"),
                StopReason::Broken(reason) => tracing::error!(shard = %self.id, reason, "shard stopped"),
            }
            // A node that is shutting down acquires no shard again.
            if attempts.draining {
                return;
            }
            tokio::time::sleep(REACQUIRE_DELAY).await;
        }
    }

    /// Drives the shard until this ownership of it ends. A client that got no reply learns it when its channel is
    /// dropped.
    async fn run_ownership<T: ActivityTransport + 'static>(
        &self,
        incoming: &mut mpsc::UnboundedReceiver<ShardTaskMessage>,
        attempts: &mut RunningAttempts<T>,
    ) -> StopReason {
        // The clocks are read once a round. A round is short; if one is not, the fence still protects the data.
        let mut now = self.clock.now();
        let mut shard = Shard::new(self.id, self.config.clone(), now);
        let mut replies = PendingReplies::default();
        let mut ready: Vec<Event> = vec![Event::Tick];
        let mut clients_checked_at = now;
        loop {
            if now.mono.0.saturating_sub(clients_checked_at.mono.0) > CLIENT_CHECK_INTERVAL {
                clients_checked_at = now;
                let abandoned = replies.take_abandoned();
                if !abandoned.is_empty() {
                    ready.push(Event::ClientsGone(abandoned));
                }
            }
            for event in ready.drain(..) {
                shard.handle(event, now);
            }
            let effects = shard.flush(now);
            self.metrics.record_shard(self.id, &shard);
            replies.reply_index_waiters(&shard);
            for effect in effects {
                if let Some(reason) = self.execute(effect, &mut ready, &mut replies, attempts) {
                    return reason;
                }
            }
            if !ready.is_empty() {
                // Immediate results may cause more immediate results: other messages are received in between.
                tokio::task::yield_now().await;
                now = self.clock.now();
                for _ in 0..EVENTS_PER_ROUND {
                    let Ok(next) = incoming.try_recv() else { break };
                    Self::receive(next, &mut shard, &mut replies, attempts, now);
                }
                continue;
            }
            let wake = Duration::from_millis(shard.next_wake_ms());
            let received = tokio::time::timeout(wake, incoming.recv()).await;
            now = self.clock.now();
            match received {
                Err(_) => ready.push(Event::Tick),
                Ok(None) => return StopReason::Drained,
                Ok(Some(first)) => {
                    Self::receive(first, &mut shard, &mut replies, attempts, now);
                    for _ in 1..EVENTS_PER_ROUND {
                        let Ok(next) = incoming.try_recv() else { break };
                        Self::receive(next, &mut shard, &mut replies, attempts, now);
                    }
                }
            }
        }
    }

    /// Hands a message to the shard; clients get an id for their reply. A result that an earlier ownership asked for is
    /// dropped. A drain also withdraws the attempts that wait.
    fn receive<T: ActivityTransport + 'static>(
        incoming: ShardTaskMessage,
        shard: &mut Shard,
        replies: &mut PendingReplies,
        attempts: &mut RunningAttempts<T>,
        now: crate::now::Now,
    ) {
        let event = match incoming {
            ShardTaskMessage::Request { mut request, reply, end, place } => {
                let id = replies.add(reply, place);
                if let (ShardRequest::Start(start), Some(end)) = (&mut request, end) {
                    start.await_end = Some(replies.add(end, None));
                }
                Event::RequestReceived(id, request)
            }
            ShardTaskMessage::RequestGroup(requests) => {
                let requests = requests.into_iter();
                let requests = requests.map(|(request, reply, place)| (replies.add(reply, place), request));
                Event::RequestGroupReceived(requests.collect())
            }
            ShardTaskMessage::Event(epoch, _) if epoch != attempts.ownership_epoch => return,
            ShardTaskMessage::Event(_, event) => event,
            ShardTaskMessage::AwaitPublicIndex(reply) => {
                replies.index_waiters.push((None, reply));
                Event::Tick
            }
            ShardTaskMessage::InboundHint => Event::InboundHinted,
            ShardTaskMessage::Drain => {
                shard.handle(Event::Drain, now);
                return attempts.drain().for_each(|withdrawn| shard.handle(withdrawn, now));
            }
        };
        // The result of a cancelled attempt is dropped.
        if let Event::AttemptFinished(id, _) = &event
            && !attempts.finish(id)
        {
            return;
        }
        if let Event::CommitFinished(..) = &event {
            crash_point::reach(CrashPoint::AfterCommit);
        }
        shard.handle(event, now);
    }

    /// Executes an effect, or starts to. Immediate results are put into `ready`. Returns the reason if the shard
    /// stopped.
    fn execute<T: ActivityTransport + 'static>(
        &self,
        effect: Effect,
        ready: &mut Vec<Event>,
        replies: &mut PendingReplies,
        attempts: &mut RunningAttempts<T>,
    ) -> Option<StopReason> {
        match effect {
            Effect::StartAttempt(id, mut call) => {
                // The commit before the attempt took some time.
                let elapsed = self.clock.now().wall.since(call.metadata.dispatched_at);
                call.elapsed_since_dispatch = Duration::from_millis(elapsed.0);
                ready.extend(attempts.start(id, *call));
            }
            Effect::TryHeldCall(id, mut call) => {
                let elapsed = self.clock.now().wall.since(call.metadata.dispatched_at);
                call.elapsed_since_dispatch = Duration::from_millis(elapsed.0);
                ready.extend(attempts.try_held(id, *call));
            }
            Effect::AllowSend(id, ticket, _) => attempts.allow_send(&id, ticket),
            Effect::CancelAttempt(id) => attempts.cancel(&id),
            Effect::Reply(id, reply) => {
                crash_point::reach(CrashPoint::BeforeReply);
                if let ShardReply::Refused(refusal) = &reply {
                    self.metrics.record_refusal(refusal);
                }
                replies.reply(id, reply);
            }
            Effect::Notify(event) => self.report(&event),
            Effect::Stopped(reason) => return Some(reason),
            other => self.start_store_io(other, ready, attempts.ownership_epoch),
        }
        None
    }

    /// Starts an effect that needs the store. Most reads complete at once, and then no task is needed. Otherwise the
    /// result comes as a message with this epoch. Messages to another shard are also announced to its task.
    fn start_store_io(&self, effect: Effect, ready: &mut Vec<Event>, epoch: u64) {
        match &effect {
            Effect::Commit(..) => crash_point::reach(CrashPoint::BeforeCommit),
            Effect::SendMessages(..) => crash_point::reach(CrashPoint::BeforeSend),
            Effect::WritePublicIndex(..) => crash_point::reach(CrashPoint::BeforeIndex),
            _ => {}
        }
        if let Effect::Commit(_, batch) = &effect {
            self.metrics.record_commit(self.id, batch);
        }
        let target = if let Effect::SendMessages(target, _) = &effect { Some(*target) } else { None };
        let span = match &effect {
            Effect::Commit(_, batch) => {
                tracing::debug_span!("commit", shard = %self.id, rows = batch.row_count())
            }
            _ => tracing::Span::none(),
        };
        let store_effects = Arc::clone(&self.store_effects);
        let id = self.id;
        let mut work: Pin<Box<dyn Future<Output = Result<Event, Effect>> + Send>> =
            Box::pin(async move { store_effects.execute(id, effect).await }.instrument(span));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let receiving_shard =
            target.and_then(|target| self.shard_senders.get(target.number() as usize).cloned());
        if let Poll::Ready(result) = work.as_mut().poll(&mut context) {
            ready.extend(result.ok());
            if let Some(receiving_shard) = receiving_shard {
                drop(receiving_shard.send(ShardTaskMessage::InboundHint));
            }
            return;
        }
        let own_sender = self.shard_senders.get(self.id.number() as usize).cloned();
        tokio::spawn(async move {
            let Ok(event) = work.await else { return };
            match &event {
                Event::MessagesSent(..) => crash_point::reach(CrashPoint::AfterSend),
                Event::PublicIndexWritten(_) => crash_point::reach(CrashPoint::AfterIndex),
                _ => {}
            }
            if let Some(receiving_shard) = receiving_shard {
                drop(receiving_shard.send(ShardTaskMessage::InboundHint));
            }
            if let Some(own_sender) = own_sender {
                drop(own_sender.send(ShardTaskMessage::Event(epoch, event)));
            }
        });
    }

    /// Counts an operator event, and logs it if an operator should know it.
    fn report(&self, event: &OperatorEvent) {
        self.metrics.record_event(event);
        match event {
            OperatorEvent::Owned { fencing_token, unclean_claims, carefully: false } => {
                tracing::info!(shard = %self.id, fencing_token, unclean_claims, "shard ownership acquired");
            }
            OperatorEvent::Owned { fencing_token, unclean_claims, carefully: true } => {
                tracing::warn!(
                    shard = %self.id, fencing_token, unclean_claims,
                    "shard ownership acquired; its owners ended uncleanly, so it recovers carefully"
                );
            }
            OperatorEvent::Stuck { instance_id, waiting_for } => {
                tracing::warn!(shard = %self.id, %instance_id, waiting_for, "run is stuck");
            }
            OperatorEvent::WorkflowTimedOut { instance_id, timeout, states } => {
                tracing::warn!(shard = %self.id, %instance_id, timeout, states, "workflow timed out");
            }
            OperatorEvent::Parked { instance_id, reason } => {
                tracing::error!(shard = %self.id, %instance_id, reason, "run parked")
            }
            OperatorEvent::CallFailed(failed) => {
                let FailedCall { instance_id, activity, step, attempt, terminal_reason, failure } = &**failed;
                tracing::warn!(
                    shard = %self.id, %instance_id, activity, step, attempt, terminal_reason, failure,
                    "call failed permanently"
                );
            }
            OperatorEvent::Unreadable { reason } => {
                tracing::error!(shard = %self.id, reason, "unreadable data in the store");
            }
            OperatorEvent::DeadLettered { engine, reason } => {
                tracing::warn!(shard = %self.id, engine, reason, "message dead-lettered");
            }
            OperatorEvent::RunEnded { .. }
            | OperatorEvent::RunStarted
            | OperatorEvent::CallRecovered
            | OperatorEvent::EntityChanged => {}
        }
    }
}

/// What readiness says of a shard that stopped for this reason; none for a shard that was to stop.
fn stop_text(reason: &StopReason) -> Option<String> {
    match reason {
        StopReason::Drained => None,
        StopReason::Lost => Some("another node took it over".to_owned()),
        StopReason::Broken(reason) => Some(reason.clone()),
    }
}

/// Turns a panic of the shard into a stop reason: the memory of the shard is dropped, and it is acquired again as it is
/// stored. The other shards of the node go on.
async fn catch_panic(driven: impl Future<Output = StopReason>) -> StopReason {
    let mut driven = pin!(driven);
    let polled = |context: &mut std::task::Context<'_>| {
        let polled = catch_unwind(AssertUnwindSafe(|| driven.as_mut().poll(context)));
        polled.unwrap_or_else(|panic| {
            Poll::Ready(StopReason::Broken(format!("shard task panicked: {}", panics::message_of(&*panic))))
        })
    };
    std::future::poll_fn(polled).await
}

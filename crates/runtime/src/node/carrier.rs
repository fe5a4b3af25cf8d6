//! The task that carries one shard: events in, effects out, a new claim when the shard was lost.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use abide_dispatch::Transport;
use tokio::sync::{mpsc, oneshot};

use super::calls::Calls;
use super::clock::Clock;
use super::metrics::Metrics;
use super::tickets::Tickets;
use crate::config::Config;
use crate::crash;
use crate::event::{Effect, Event, Notice, Stopped};
use crate::hands::{Hands, Store};
use crate::panicked;
use crate::placement::ShardId;
use crate::request::{Reply, Request};
use crate::shard::Shard;

/// What reaches the task.
#[derive(Debug)]
pub(super) enum Incoming {
    /// A client's request.
    Ask { request: Request, reply: oneshot::Sender<Reply>, end: Option<oneshot::Sender<Reply>> },
    /// A client's requests that are taken together, in this order.
    AskTogether(Vec<(Request, oneshot::Sender<Reply>)>),
    /// The result of an effect, wanted under this claim of the shard. Under another one it would be taken for something else.
    Event(u64, Event),
    /// Somebody waits until what is durable now is in the public table.
    Show(oneshot::Sender<()>),
    /// There may be messages from elsewhere.
    Hint,
    /// The node goes down.
    Drain,
}

/// All that the task needs.
#[derive(Debug)]
pub(super) struct Carrier<S> {
    pub(super) id: ShardId,
    pub(super) config: Config,
    pub(super) hands: Arc<Hands<S>>,
    pub(super) peers: Vec<mpsc::UnboundedSender<Incoming>>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) clock: Clock,
}

/// Events handled before effects are carried out.
const EVENTS_AT_ONCE: usize = 512;
/// How often to look for clients that have gone.
const LOOK_FOR_GONE: Duration = Duration::from_secs(5);
/// How long to wait before a shard that was lost is claimed again.
const CLAIM_AGAIN: Duration = Duration::from_millis(500);

impl<S: Store> Carrier<S> {
    pub(super) async fn run<T: Transport + 'static>(
        self,
        mut incoming: mpsc::UnboundedReceiver<Incoming>,
        mut calls: Calls<T>,
    ) {
        loop {
            calls.claim += 1;
            let stopped = caught(self.carry(&mut incoming, &mut calls)).await;
            self.metrics.shard_stopped(self.id);
            calls.cancel_all();
            match stopped {
                Stopped::Drained => return,
                Stopped::Lost => tracing::warn!(shard = %self.id, "lost to another node"),
                Stopped::Broken(reason) => tracing::error!(shard = %self.id, reason, "cannot go on"),
            }
            // Whoever goes down claims nothing again.
            if calls.draining {
                return;
            }
            tokio::time::sleep(CLAIM_AGAIN).await;
        }
    }

    /// Carries one claim of the shard to its end. Who waited for an answer and got none learns that by the end of the channel.
    async fn carry<T: Transport + 'static>(
        &self,
        incoming: &mut mpsc::UnboundedReceiver<Incoming>,
        calls: &mut Calls<T>,
    ) -> Stopped {
        let mut shard = Shard::new(self.id, self.config.clone(), self.clock.now());
        let mut tickets = Tickets::default();
        let mut ready: Vec<Event> = vec![Event::Tick];
        let mut looked = self.clock.now();
        loop {
            let now = self.clock.now();
            if now.mono.0.saturating_sub(looked.mono.0) > LOOK_FOR_GONE {
                looked = now;
                let gone = tickets.gone();
                if !gone.is_empty() {
                    ready.push(Event::Gone(gone));
                }
            }
            for event in ready.drain(..) {
                shard.handle(event, now);
            }
            let effects = shard.flush(self.clock.now());
            self.metrics.note(self.id, &shard);
            tickets.answer_shown(&shard);
            for effect in effects {
                if let Some(stopped) = self.carry_out(effect, &mut ready, &mut tickets, calls) {
                    return stopped;
                }
            }
            if !ready.is_empty() {
                // Results that were there at once may be followed by more of the same: others are heard in between.
                tokio::task::yield_now().await;
                let now = self.clock.now();
                for _ in 0..EVENTS_AT_ONCE {
                    let Ok(next) = incoming.try_recv() else { break };
                    Self::hear(next, &mut shard, &mut tickets, calls, now);
                }
                continue;
            }
            let wake = Duration::from_millis(shard.next_wake_ms());
            match tokio::time::timeout(wake, incoming.recv()).await {
                Err(_) => ready.push(Event::Tick),
                Ok(None) => return Stopped::Drained,
                Ok(Some(first)) => {
                    let now = self.clock.now();
                    Self::hear(first, &mut shard, &mut tickets, calls, now);
                    for _ in 1..EVENTS_AT_ONCE {
                        let Ok(next) = incoming.try_recv() else { break };
                        Self::hear(next, &mut shard, &mut tickets, calls, now);
                    }
                }
            }
        }
    }

    fn hear<T: Transport + 'static>(
        incoming: Incoming,
        shard: &mut Shard,
        tickets: &mut Tickets,
        calls: &mut Calls<T>,
        now: crate::moment::Moment,
    ) {
        let event = match incoming {
            Incoming::Ask { mut request, reply, end } => {
                let ticket = tickets.add(reply);
                if let (Request::Start(start), Some(end)) = (&mut request, end) {
                    start.await_end = Some(tickets.add(end));
                }
                Event::Asked(ticket, request)
            }
            Incoming::AskTogether(requests) => {
                let tickets = requests.into_iter().map(|(request, reply)| (tickets.add(reply), request));
                Event::AskedTogether(tickets.collect())
            }
            Incoming::Event(claim, _) if claim != calls.claim => return,
            Incoming::Event(_, event) => event,
            Incoming::Show(reply) => {
                tickets.showing.push((None, reply));
                Event::Tick
            }
            Incoming::Hint => Event::ArrivalsHinted,
            Incoming::Drain => {
                shard.handle(Event::Drain, now);
                return calls.drain().for_each(|withdrawn| shard.handle(withdrawn, now));
            }
        };
        // A call that was cancelled is not answered, whatever became of it.
        if let Event::Answered(id, _) = &event
            && !calls.ended(id)
        {
            return;
        }
        if let Event::CommitAnswered(..) = &event {
            crash::point("after-commit");
        }
        shard.handle(event, now);
    }

    /// Carries an effect out, or begins to. What is there at once is put into `ready`.
    fn carry_out<T: Transport + 'static>(
        &self,
        effect: Effect,
        ready: &mut Vec<Event>,
        tickets: &mut Tickets,
        calls: &mut Calls<T>,
    ) -> Option<Stopped> {
        match effect {
            Effect::Call(id, mut call) => {
                // The commit before it took its time.
                let since = self.clock.now().wall.0.saturating_sub(call.metadata.dispatched_at_epoch_ms);
                call.waited = Duration::from_millis(u64::try_from(since).unwrap_or(0));
                ready.extend(calls.begin(id, *call));
            }
            Effect::CancelCall(id) => calls.cancel(&id),
            Effect::Reply(ticket, reply) => {
                crash::point("before-reply");
                if let Some(waiting) = tickets.waiting.remove(&ticket) {
                    // A client that has gone does not wait.
                    drop(waiting.send(reply));
                }
            }
            Effect::Tell(notice) => self.told(&notice),
            Effect::Stopped(why) => return Some(why),
            other => self.begin(other, ready, calls.claim),
        }
        None
    }

    /// Begins something of the store's. Reads are mostly there at once; then no task is needed.
    fn begin(&self, effect: Effect, ready: &mut Vec<Event>, claim: u64) {
        crash::point(match &effect {
            Effect::Commit(..) => "before-commit",
            Effect::Post(..) => "before-post",
            Effect::Feed(..) => "before-feed",
            _ => "",
        });
        if let Effect::Commit(_, batch) = &effect {
            self.metrics.note_commit(self.id, batch);
        }
        let target = if let Effect::Post(target, _) = &effect { Some(*target) } else { None };
        let (hands, id) = (Arc::clone(&self.hands), self.id);
        let mut work: Pin<Box<dyn Future<Output = Result<Event, Effect>> + Send>> =
            Box::pin(async move { hands.carry_out(id, effect).await });
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let hinted = target.and_then(|target| self.peers.get(target.number() as usize).cloned());
        if let Poll::Ready(done) = work.as_mut().poll(&mut context) {
            ready.extend(done.ok());
            if let Some(hinted) = hinted {
                drop(hinted.send(Incoming::Hint));
            }
            return;
        }
        let own = self.peers.get(self.id.number() as usize).cloned();
        tokio::spawn(async move {
            let Ok(event) = work.await else { return };
            crash::point(match &event {
                Event::Posted(..) => "after-post",
                Event::Fed(_) => "after-feed",
                _ => "",
            });
            if let Some(hinted) = hinted {
                drop(hinted.send(Incoming::Hint));
            }
            if let Some(own) = own {
                drop(own.send(Incoming::Event(claim, event)));
            }
        });
    }

    fn told(&self, notice: &Notice) {
        self.metrics.told(notice);
        match notice {
            Notice::Owned { fencing_token } => tracing::debug!(shard = %self.id, fencing_token, "owned"),
            Notice::Stuck { instance_id, why } => tracing::warn!(%instance_id, why, "stuck"),
            Notice::Parked { instance_id, reason } => tracing::error!(%instance_id, reason, "parked"),
            Notice::CallFailed { instance_id, activity, attempt } => {
                tracing::warn!(%instance_id, activity, attempt, "a call failed for good");
            }
            Notice::Unreadable { reason } => {
                tracing::error!(shard = %self.id, reason, "something stored cannot be read");
            }
            Notice::DeadLettered { engine, reason } => {
                tracing::warn!(shard = %self.id, engine, reason, "dead-lettered");
            }
            Notice::Ended { .. } | Notice::Began | Notice::Redelivered | Notice::Operated => {}
        }
    }
}

/// Carries a claim to its end also if that is a panic: the shard is claimed again then, as it is stored. What it had in memory is dropped.
async fn caught(carried: impl Future<Output = Stopped>) -> Stopped {
    let mut carried = pin!(carried);
    let polled = |context: &mut std::task::Context<'_>| {
        let polled = catch_unwind(AssertUnwindSafe(|| carried.as_mut().poll(context)));
        polled.unwrap_or_else(|panic| {
            Poll::Ready(Stopped::Broken(format!("it panicked: {}", panicked::text(&*panic))))
        })
    };
    std::future::poll_fn(polled).await
}

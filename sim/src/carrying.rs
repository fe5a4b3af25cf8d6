//! Between the shards and the world: what they want reaches the store or an activity late, twice, or not at all, and so do the answers.

use std::sync::Arc;

use abide_dispatch::{Answer, Call, Failure};
use abide_runtime::event::CallId;
use abide_runtime::placement::ShardId;
use abide_runtime::planted::Bug;
use abide_runtime::{Effect, Event};
use abide_store::public::PublicWrite;
use abide_store::rows::{CommitOutcome, StoreError};
use abide_store::tables::{decode, heads};

use crate::cluster::{Cluster, ready};
use crate::happening::{At, Happening};

impl Cluster {
    /// How long a message takes; sometimes very long.
    pub(crate) fn delay(&mut self) -> u64 {
        match self.dice.below(100) {
            0 if self.stormy() => 1_000 + self.dice.below(15_000),
            1..=10 => 10 + self.dice.below(200),
            _ => 1 + self.dice.below(5),
        }
    }

    /// Something reaches the store.
    pub(crate) fn execute(&mut self, at: At, mut effect: Effect) {
        let fate = if self.stormy() { self.dice.below(1_000) } else { 999 };
        if fate < 40 {
            self.counts.faults += 1;
            self.counts.faults_in_flight += 1;
        }
        let wait = self.delay();
        if let Some(event) = refused(&effect, fate) {
            return self.later(wait, Happening::Deliver(at, event));
        }
        let shard = self.shard_id(at.shard);
        if let Effect::Commit(_, batch) = &mut effect
            && self.scenario.bug == Some(Bug::NoFence)
            && let (Some(fence), Some(own)) = (&mut Arc::make_mut(batch).fence, self.hands.partition(shard))
        {
            let head = self.store.read_now(own, &heads::key());
            fence.expect = head.ok().flatten().map(|row| row.version);
        }
        let commits = matches!(effect, Effect::Commit(..));
        let batch = if let Effect::Commit(_, batch) = &effect { Some(batch.clone()) } else { None };
        let posted = if let Effect::Post(target, _) = &effect { Some(*target) } else { None };
        if let Effect::Feed(_, writes) = &effect {
            self.watch_feed(at, shard, writes);
        }
        let Ok(mut event) = ready(self.hands.carry_out(shard, effect)) else { return };
        if let (Event::CommitAnswered(_, CommitOutcome::Committed(_)), Some(batch)) = (&event, &batch) {
            self.counts.commits += 1;
            crate::truth::watch(self, shard, batch);
        }
        // Done, and the answer is lost.
        if fate < 30 {
            match &mut event {
                Event::CommitAnswered(_, outcome) if commits => *outcome = unknown(),
                Event::Posted(_, outcome) | Event::ArrivalsDropped(outcome) => *outcome = unknown(),
                Event::Fed(result) => *result = Err("by dice".to_owned()),
                _ => {}
            }
        }
        self.later(wait, Happening::Deliver(at, event));
        if let Some(target) = posted {
            self.hint(target);
        }
    }

    /// What is shown is so; and whether it comes from somebody who should not show anything any more.
    fn watch_feed(&mut self, at: At, shard: ShardId, writes: &[PublicWrite]) {
        let head =
            self.hands.partition(shard).and_then(|own| self.store.read_now(own, &heads::key()).ok()?);
        let owner = head.and_then(|row| decode::<heads::Head>(&row.value).ok()).map(|head| head.owner);
        let late = owner != Some(format!("node-{}-{}", at.node, at.incarnation));
        for write in writes {
            self.tell(&write.key().partition, || format!("in public: {write:?}"));
            if let PublicWrite::Put(row) = write {
                self.seen.extend(self.truth.contradicts_row(row));
                if late {
                    self.late_rows.push(row.key.clone());
                }
            }
        }
    }

    /// Every node hears that there may be arrivals.
    fn hint(&mut self, target: ShardId) {
        let shard = target.number() as usize;
        for node in 0..self.nodes.len() {
            let claim = self.nodes[node].claims.get(shard).copied().unwrap_or(0);
            let hint = At { node, incarnation: self.nodes[node].incarnation, shard, claim };
            let wait = self.delay();
            self.later(wait, Happening::Deliver(hint, Event::ArrivalsHinted));
        }
    }

    pub(crate) fn shard_id(&self, shard: usize) -> ShardId {
        self.shards.shards().nth(shard).unwrap_or_else(|| unreachable!("shard {shard}"))
    }

    /// A call leaves its node, unless that is gone, or goes down and takes it back.
    pub(crate) fn leave(&mut self, at: At, id: CallId, call: Box<Call>) {
        let Some(node) = self.node(at) else { return };
        let goes_down = node.goes_down();
        let wait = self.delay();
        if goes_down {
            self.counts.withdrawn += 1;
            return self.later(wait, Happening::Deliver(at, Event::Withdrawn(id)));
        }
        self.later(wait, Happening::Receive(at, id, call));
    }

    /// A delivery reaches an activity.
    pub(crate) fn receive(&mut self, at: At, id: CallId, call: &Call) {
        // Some never leave, some are told to come back later: neither reaches the activity.
        let fate = if self.stormy() { self.dice.below(50) } else { u64::MAX };
        let failure = match fate {
            0 => Some(Failure::retryable("ConnectFailed", "by dice").with_not_sent()),
            1 => {
                let busy = Failure::retryable("Busy", "by dice").with_status("429 RESOURCE_EXHAUSTED");
                Some(Failure { retry_after_ms: Some(self.dice.below(2_000)), ..busy })
            }
            _ => None,
        };
        if let Some(failure) = failure {
            let wait = self.delay();
            return self.later(wait, Happening::Deliver(at, Event::Answered(id, Answer::Failed(failure))));
        }
        self.counts.deliveries += 1;
        let calm = !self.stormy();
        let answer = self.outside.receive(call, &mut self.dice, calm);
        let (wait, answer) = match answer {
            Some(answer) => (self.delay() + self.dice.below(200), answer),
            None => {
                let failure = Failure::retryable("AttemptTimeout", "nobody answered");
                (call.attempt_timeout_ms, Answer::Failed(failure.with_outcome_unknown()))
            }
        };
        self.later(wait, Happening::Deliver(at, Event::Answered(id, answer)));
    }
}

/// What is answered instead of doing it, if anything is.
fn refused(effect: &Effect, fate: u64) -> Option<Event> {
    let reason = || "by dice".to_owned();
    match effect {
        Effect::Commit(id, _) if fate < 10 => {
            Some(Event::CommitAnswered(*id, CommitOutcome::Unavailable { reason: reason() }))
        }
        Effect::Commit(id, _) if fate < 12 => Some(Event::CommitAnswered(*id, CommitOutcome::Fenced)),
        _ if fate >= 20 => None,
        Effect::Commit(id, _) => Some(Event::CommitAnswered(*id, unknown())),
        Effect::Post(target, _) => Some(Event::Posted(*target, unknown())),
        Effect::DropArrivals(_) => Some(Event::ArrivalsDropped(unknown())),
        Effect::ReadHead => Some(Event::HeadRead(Err(unavailable()))),
        Effect::Scan(purpose, _) => Some(Event::Scanned(*purpose, Err(unavailable()))),
        Effect::LookUp(id, _) => {
            let nothing = abide_runtime::LookedUp::Unavailable(reason());
            Some(Event::LookedUp(id.clone(), Box::new(nothing)))
        }
        Effect::FindPlan { instance_id, .. } => {
            let nothing = abide_runtime::PlanError::Unavailable(reason());
            Some(Event::PlanFound(instance_id.clone(), Err(nothing)))
        }
        Effect::Feed(..) => Some(Event::Fed(Err(reason()))),
        _ => None,
    }
}

fn unknown() -> CommitOutcome {
    CommitOutcome::Unknown { reason: "by dice".to_owned() }
}

fn unavailable() -> StoreError {
    StoreError::Unavailable { reason: "by dice".to_owned() }
}

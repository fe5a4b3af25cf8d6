//! Drives shards in virtual time: hands them events, wakes them when they ask for it, and executes their effects on the
//! store at once.
//!
//! It has no dice and no crash points, and knows neither clients nor activities: when an effect reaches the store, and
//! when its result reaches the shard, is for its users to decide. A shard has at most one wake that counts, the last.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use abide_runtime::placement::ShardId;
use abide_runtime::store_effects::StoreEffects;
use abide_runtime::{Effect, Event, Now, Shard};
use abide_store::memory::MemoryStore;
use abide_store::rows::{Batch, CommitOutcome};

use crate::virtual_time::VirtualTime;

/// A shard and its next wake.
#[derive(Debug)]
pub struct ShardDriver {
    shard: Shard,
    /// Of the last wake scheduled; zero before the first event.
    wake_stamp: u64,
}

impl ShardDriver {
    pub fn new(shard: Shard) -> Self {
        Self { shard, wake_stamp: 0 }
    }

    pub fn shard(&self) -> &Shard {
        &self.shard
    }

    /// Hands the shard an event and returns the effects to begin. Its next wake is scheduled as the event that `wake`
    /// makes of a stamp, which outdates the stamps of all earlier wakes.
    pub fn handle<E>(
        &mut self,
        event: Event,
        now: Now,
        time: &mut VirtualTime<E>,
        wake: impl FnOnce(u64) -> E,
    ) -> Vec<Effect> {
        self.shard.handle(event, now);
        let effects = self.shard.flush(now);
        self.wake_stamp = time.next_number();
        time.schedule_in(Duration::from_millis(self.next_wake_ms()), wake(self.wake_stamp));
        effects
    }

    /// How long after an event the shard wants to be woken. Never zero, or virtual time would stand still.
    pub fn next_wake_ms(&self) -> u64 {
        self.shard.next_wake_ms().max(1)
    }

    /// True if no event came after this wake was scheduled.
    pub fn is_next_wake(&self, stamp: u64) -> bool {
        self.wake_stamp == stamp
    }
}

/// The outcome of an effect that was executed on the store.
#[derive(Debug)]
pub struct EffectOutcome {
    /// The result, for the shard that had the effect.
    pub event: Event,
    /// The batch of a commit of the shard's own rows, if it was applied.
    pub committed: Option<Arc<Batch>>,
    /// The shard that messages were sent to, if any: whoever owns it should be told by [`Event::InboundHinted`].
    pub messages_to: Option<ShardId>,
}

/// Executes an effect of a shard on the store at once. Returns the effect itself if it does not concern the store.
pub fn execute_now(
    store_effects: &StoreEffects<MemoryStore>,
    shard: ShardId,
    effect: Effect,
) -> Result<EffectOutcome, Effect> {
    let batch = if let Effect::Commit(_, batch) = &effect { Some(Arc::clone(batch)) } else { None };
    let messages_to = if let Effect::SendMessages(target, _) = &effect { Some(*target) } else { None };
    let event = poll_ready(store_effects.execute(shard, effect))?;
    let applied = matches!(&event, Event::CommitFinished(_, CommitOutcome::Committed(_)));
    Ok(EffectOutcome { event, committed: batch.filter(|_| applied), messages_to })
}

/// The result of a future that never waits, because the reference store answers immediately.
pub fn poll_ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("the reference store answers immediately"),
    }
}

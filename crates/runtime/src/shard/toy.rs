//! A component as small as one can be, in test builds only. It proves that a component takes one file and one line in
//! the list of the root.
//!
//! Once a minute it writes how often it has done so. It knows nothing else of the shard.

use std::time::Duration;

use abide_store::rows::Key;

use crate::lease::Monotonic;
use crate::shard::backoff::later;
use crate::shard::component::Component;
use crate::shard::unit_of_work::UnitOfWork;

const INTERVAL: Duration = Duration::from_secs(60);
/// No table has this prefix.
pub(super) const KEY: [u8; 4] = *b"\xfftoy";

/// The toy; see above.
#[derive(Debug, Default)]
pub(super) struct Toy {
    count: u8,
    next_at: Option<Monotonic>,
}

impl Component for Toy {
    fn wake(&self) -> Option<Monotonic> {
        self.next_at
    }

    fn drive(&mut self, work: &mut UnitOfWork<'_>) {
        let now = work.ctx.now.mono;
        if now < *self.next_at.get_or_insert(later(now, INTERVAL)) {
            return;
        }
        self.next_at = Some(later(now, INTERVAL));
        self.count += 1;
        work.put(Key::new(KEY.to_vec()), vec![self.count]);
        work.mark_urgent();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    use abide_store::memory::{BackendProfile, MemoryStore};
    use abide_store::rows::PrivateRows;
    use abide_workflow::Timestamp;

    use super::*;
    use crate::definitions::Definitions;
    use crate::placement::ShardCount;
    use crate::store_effects::StoreEffects;
    use crate::{Event, Now, Shard, ShardConfig};

    fn ready<T>(future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => value,
            Poll::Pending => panic!("the reference store responds at once"),
        }
    }

    /// Ticks the shard and executes its effects until there are none.
    fn tick(shard: &mut Shard, store_effects: &StoreEffects<MemoryStore>, seconds: u64) {
        let (wall, mono) = (Timestamp(0), Monotonic(Duration::from_secs(seconds)));
        let now = Now { wall, mono };
        let mut events = vec![Event::Tick];
        while !events.is_empty() {
            events.drain(..).for_each(|event| shard.handle(event, now));
            let effects = shard.flush(now).into_iter();
            events.extend(effects.filter_map(|effect| ready(store_effects.execute(shard.id(), effect)).ok()));
        }
    }

    #[test]
    fn a_component_is_driven_when_it_asked_to_be_and_its_rows_are_committed() {
        let store = Arc::new(MemoryStore::new(BackendProfile::PLAIN));
        let shards = ShardCount::new(1).unwrap();
        let definitions = Arc::new(Definitions::new(Arc::clone(&store)).unwrap());
        let store_effects = StoreEffects::new(Arc::clone(&store), definitions, shards).unwrap();
        let mut config = ShardConfig::new("toy".to_owned(), 1, shards, &store.capabilities());
        config.exclusive = true;
        let id = shards.shards().next().unwrap();
        let start = Now { wall: Timestamp(0), mono: Monotonic(Duration::ZERO) };
        let mut shard = Shard::new(id, config, start);
        let stored = || {
            let partition = id.partition().unwrap();
            ready(store.read(&partition, &Key::new(KEY.to_vec()))).unwrap().map(|row| row.value)
        };
        tick(&mut shard, &store_effects, 0);
        assert!(shard.is_working());
        assert_eq!(stored(), None);
        assert!(shard.next_wake_ms() < 61_000, "it asked for {} ms", shard.next_wake_ms());
        for (seconds, count) in [(60, 1), (61, 1), (120, 2)] {
            tick(&mut shard, &store_effects, seconds);
            assert_eq!(stored(), Some(vec![count]), "after {seconds} s");
        }
    }
}

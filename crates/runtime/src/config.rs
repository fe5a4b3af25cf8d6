//! How a shard works, as data: times, limits and rates, each with its default and what it is for.

use std::fmt;
use std::sync::Arc;
use std::time::Duration as StdDuration;

use abide_store::rows::{Capabilities, Limits as StoreLimits};
use abide_workflow::{Duration, Limits, TurnLimits};

use crate::entity::Kinds;
use crate::lease::LeaseTimes;
use crate::placement::ShardCount;

/// What a shard is told once.
#[derive(Clone, Debug)]
pub struct Config {
    /// The name of this incarnation of the node; never used again.
    pub node: String,
    /// A number that is new in every incarnation: commit ids begin with it.
    pub incarnation: u64,
    /// How many shards the store has.
    pub shards: ShardCount,
    /// Whether no other process can use the store: then no lease has to run out.
    pub alone: bool,
    /// What a commit can hold.
    pub store: StoreLimits,
    /// How long a lease lasts.
    pub lease: LeaseTimes,
    /// What a run and a turn may be.
    pub run: Limits,
    /// How long an ended run is kept.
    pub retention: Duration,
    /// How long a repeat of a request is recognised, and a purged id remembered.
    pub repeat_window: Duration,
    /// Overdue work taken up per second after a restart, in this shard.
    pub overdue_per_second: u32,
    /// Requests and messages that may wait in this shard for something to be read.
    pub waiting_max: usize,
    /// Events an entity may hold.
    pub entity_events_max: u64,
    /// Kinds of entities with operations of their own.
    pub kinds: Kinds,
    /// Whether whoever delivers calls puts secrets in the place of references. Otherwise a call that needs one fails, and is not sent.
    pub resolves_secrets: bool,
    /// Bytes of runs kept in memory while they rest; 0 keeps none.
    pub resting_bytes_max: usize,
    /// How long a run may rest in memory.
    pub resting_max: StdDuration,
    /// How long public rows wait for newer states of the same runs.
    pub feed_linger: StdDuration,
    /// How long deletions that hurry nobody wait for another commit to ride in.
    pub lazy_linger: StdDuration,
    /// How often what has expired is looked for.
    pub sweep_every: StdDuration,
    /// How often the records of calls are held against what is under way.
    pub reconcile_every: StdDuration,
    /// Where activities are that are not in process.
    pub targets: Targets,
    /// Mistakes to make, for testing the tests.
    #[cfg(feature = "faults")]
    pub bug: Option<crate::planted::Bug>,
}

/// Where activities are, for the records of calls: a transport and an address, such as `rest https://devices.test/activities/register`.
#[derive(Clone, Default)]
pub struct Targets(Option<Arc<Look>>);

type Look = dyn Fn(&str) -> Option<String> + Send + Sync;

impl Targets {
    /// As this says; nothing for activities in process.
    pub fn new(of: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(of)))
    }

    /// Where an activity is now.
    pub(crate) fn of(&self, activity: &str) -> Option<String> {
        let mut target = self.0.as_ref().and_then(|of| of(activity))?;
        target.truncate(target.floor_char_boundary(Self::BYTES_MAX));
        Some(target)
    }

    /// Bytes of a target that are kept.
    pub(crate) const BYTES_MAX: usize = 512;
}

impl fmt::Debug for Targets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Targets")
    }
}

impl Config {
    /// One delivery's limit where neither the task nor the activity says otherwise.
    pub const ATTEMPT_TIMEOUT: Duration = Duration::seconds(10);

    /// The defaults for a node on a store.
    pub fn new(node: String, incarnation: u64, shards: ShardCount, capabilities: &Capabilities) -> Self {
        Self {
            node,
            incarnation,
            shards,
            alone: !capabilities.shared,
            store: capabilities.limits,
            lease: LeaseTimes::default(),
            run: fitting(&capabilities.limits),
            retention: Duration::hours(30 * 24),
            repeat_window: Duration::hours(7 * 24),
            overdue_per_second: 1_000,
            waiting_max: 10_000,
            entity_events_max: 1_000_000,
            kinds: Kinds::default(),
            resolves_secrets: false,
            resting_bytes_max: 4 * 1024 * 1024,
            resting_max: StdDuration::from_secs(10),
            feed_linger: StdDuration::from_millis(50),
            lazy_linger: StdDuration::from_secs(1),
            sweep_every: StdDuration::from_secs(60),
            reconcile_every: StdDuration::from_secs(30),
            targets: Targets::default(),
            #[cfg(feature = "faults")]
            bug: None,
        }
    }
}

/// Limits on runs and turns such that what one turn writes fits into a commit. Each message and each command touches at most one row of its own.
/// Of the bytes, in sixteenths: 2 come in and go out, written up to three times each, as history, as state, and in the row of a call or of the next
/// run; 4 are data that changed, and 4 are events that a next run is given.
fn fitting(store: &StoreLimits) -> Limits {
    let limits = Limits::default();
    let rows = store.commit_rows_max / 4;
    let (bytes, share) = (store.commit_bytes_max, (store.commit_bytes_max / 16) as u64);
    let turn = TurnLimits {
        messages_max: limits.turn.messages_max.min(rows).max(1),
        commands_max: limits.turn.commands_max.min(rows).max(TurnLimits::FLOOR.commands_max),
        bytes_max: limits.turn.bytes_max.min(share * 2),
        // A step is told in a few hundred bytes, unless names are long.
        steps_max: limits.turn.steps_max.min(bytes / (8 * 1024)).max(1),
    };
    Limits {
        turn,
        payload_bytes_max: limits.payload_bytes_max.min(share),
        data_bytes_max: limits.data_bytes_max.min(share * 4),
        buffered_bytes_max: limits.buffered_bytes_max.min(share * 4),
        buffered_max: limits.buffered_max.min(u32::try_from(bytes / 1024).unwrap_or(u32::MAX)),
        ..limits
    }
}

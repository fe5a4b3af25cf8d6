//! The configuration of a shard: times, limits and rates, each with its default and its purpose.
//!
//! No file is read here: the server maps its own configuration to these values.

use std::fmt;
use std::sync::Arc;
use std::time::Duration as StdDuration;

use abide_store::rows::{Capabilities, StoreLimits};
use abide_workflow::{Duration, Limits, TurnLimits};

use crate::entity::EntityKinds;
use crate::lease::LeaseTimes;
use crate::placement::ShardCount;
use crate::turnstile::Turnstile;

/// The same for all shards of a node, and for every ownership of a shard until the node ends.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    /// The name of this incarnation of the node; never reused.
    pub node_name: String,
    /// Different in every incarnation: commit ids start with it.
    pub incarnation: u64,
    pub shard_count: ShardCount,
    /// True if no other process can use the store: then a takeover need not wait for a lease to expire, an owner renews
    /// no lease, and no message comes from another node.
    pub exclusive: bool,
    /// The rows and bytes one commit can hold.
    pub store_limits: StoreLimits,
    pub lease_times: LeaseTimes,
    /// Limits of runs and turns.
    pub run_limits: Limits,
    /// The time an ended run is kept.
    pub retention: Duration,
    /// The time a repeated request is recognised, and a purged id is remembered.
    pub idempotency_window: Duration,
    /// Overdue work this shard starts per second, so that a restart causes no stampede.
    pub recovery_per_second: u32,
    /// Work items that may be queued for the instances and entities of this shard. Above it, requests are refused as
    /// busy; above half of it, due work waits.
    pub queued_max: usize,
    /// Requests of clients that this shard may owe a reply. The driver enforces it, and the next one.
    pub unanswered_max: usize,
    /// Bytes of these requests.
    pub unanswered_bytes_max: usize,
    /// The most events an entity may hold.
    pub entity_events_max: u64,
    /// Entity kinds with their own operations.
    pub entity_kinds: EntityKinds,
    /// True if the transport replaces secret references by secrets. Otherwise a call that needs a secret fails and is
    /// not sent.
    pub resolves_secrets: bool,
    /// Bytes of idle runs kept in memory; 0 keeps none.
    pub idle_bytes_max: usize,
    /// From this many unclean ends in a row on, stored work is recovered one instance at a time. After a single one
    /// recovery is as fast as ever: most processes that are killed are killed by something else than their work.
    pub careful_from: u32,
    /// The time an idle run may stay in memory.
    pub idle_max: StdDuration,
    /// The time public rows wait for newer states of the same runs.
    pub public_index_delay: StdDuration,
    /// The time deletions that are not urgent wait to join another commit.
    pub lazy_commit_delay: StdDuration,
    /// The interval at which expired rows are looked for.
    pub sweep_interval: StdDuration,
    /// The interval at which call records are compared with the attempts in flight.
    pub reconcile_interval: StdDuration,
    /// Of the process, shared by all its shards: one at a time does stored work under a mark.
    pub turnstile: Turnstile,
    /// Targets of remote activities.
    pub targets: ActivityTargets,
    /// A planted fault, for testing the tests.
    #[cfg(feature = "faults")]
    pub fault: Option<crate::fault_injection::Fault>,
    /// An instance whose turns are lethal, for testing what contains them.
    #[cfg(feature = "faults")]
    pub poison: Option<crate::fault_injection::Poison>,
}

/// The targets of activities, for call records: a transport and an address, such as
/// `rest https://devices.test/activities/register`.
#[derive(Clone, Default)]
pub struct ActivityTargets(Option<Arc<TargetLookup>>);

type TargetLookup = dyn Fn(&str) -> Option<String> + Send + Sync;

impl ActivityTargets {
    /// `of` returns the target of an activity, and none for activities in process.
    pub fn new(of: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(of)))
    }

    /// The current target of an activity, cut to [`Self::TARGET_BYTES_MAX`]. The shard asks before each attempt and
    /// stores the answer in the call record, only to show it: the transport finds the target by itself.
    pub(crate) fn target_of(&self, activity: &str) -> Option<String> {
        let mut target = self.0.as_ref().and_then(|of| of(activity))?;
        target.truncate(target.floor_char_boundary(Self::TARGET_BYTES_MAX));
        Some(target)
    }

    /// Bytes of a target that are stored.
    pub(crate) const TARGET_BYTES_MAX: usize = 512;
}

impl fmt::Debug for ActivityTargets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ActivityTargets")
    }
}

impl ShardConfig {
    /// The attempt timeout if neither the task nor the activity sets one.
    pub const ATTEMPT_TIMEOUT: Duration = Duration::seconds(10);

    /// The defaults for a store with these capabilities.
    pub fn new(
        node_name: String,
        incarnation: u64,
        shard_count: ShardCount,
        capabilities: &Capabilities,
    ) -> Self {
        Self {
            node_name,
            incarnation,
            shard_count,
            exclusive: !capabilities.shared,
            store_limits: capabilities.limits,
            lease_times: LeaseTimes::default(),
            run_limits: run_limits_for(&capabilities.limits),
            retention: Duration::hours(30 * 24),
            idempotency_window: Duration::hours(7 * 24),
            recovery_per_second: 1_000,
            queued_max: 10_000,
            unanswered_max: 10_000,
            unanswered_bytes_max: 64 * 1024 * 1024,
            entity_events_max: 1_000_000,
            entity_kinds: EntityKinds::default(),
            resolves_secrets: false,
            idle_bytes_max: 4 * 1024 * 1024,
            careful_from: 2,
            idle_max: StdDuration::from_secs(10),
            public_index_delay: StdDuration::from_millis(50),
            lazy_commit_delay: StdDuration::from_secs(1),
            sweep_interval: StdDuration::from_secs(60),
            reconcile_interval: StdDuration::from_secs(30),
            turnstile: Turnstile::default(),
            targets: ActivityTargets::default(),
            #[cfg(feature = "faults")]
            fault: None,
            #[cfg(feature = "faults")]
            poison: None,
        }
    }
}

/// Limits of runs and turns that let the rows of one turn nearly always fit into one commit; a turn that does not fit
/// parks its run. Each message and each command touches at most one row of its own. Of the bytes, in sixteenths: 2 come
/// in and go out, each written up to three times (in the history, in the state, and in the row of a call or of the next
/// run); 4 are changed data; 4 are events handed to a next run.
fn run_limits_for(store: &StoreLimits) -> Limits {
    let limits = Limits::default();
    let rows = store.commit_rows_max / 4;
    let bytes = store.commit_bytes_max;
    let share = (store.commit_bytes_max / 16) as u64;
    let turn = TurnLimits {
        messages_max: limits.turn.messages_max.min(rows).max(1),
        commands_max: limits.turn.commands_max.min(rows).max(TurnLimits::FLOOR.commands_max),
        bytes_max: limits.turn.bytes_max.min(share * 2),
        // The history of a step takes a few hundred bytes, unless names are long.
        steps_max: limits.turn.steps_max.min(bytes / (8 * 1024)).max(1),
        evaluation: limits.turn.evaluation,
    };
    Limits {
        turn,
        payload_bytes_max: limits.payload_bytes_max.min(share),
        call_bytes_max: limits.call_bytes_max.min(share * 7 / 2),
        data_bytes_max: limits.data_bytes_max.min(share * 4),
        buffered_bytes_max: limits.buffered_bytes_max.min(share * 4),
        buffered_max: limits.buffered_max.min(u32::try_from(bytes / 1024).unwrap_or(u32::MAX)),
        ..limits
    }
}

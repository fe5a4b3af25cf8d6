//! Counters and gauges of a node, by plain atomics: whoever serves them spells them.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};

use abide_store::rows::Batch;
use abide_workflow::Status;

use crate::event::Notice;
use crate::placement::{ShardCount, ShardId};
use crate::shard::Shard;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// So many more.
    pub fn add(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    /// Its value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// One more, until what is given back is dropped.
    pub(super) fn hold(&self) -> Held<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Held(self)
    }

    /// Its value.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One that a gauge counts.
#[derive(Debug)]
pub(super) struct Held<'a>(&'a Gauge);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How long runs took: counts up to each bound, in milliseconds.
#[derive(Debug, Default)]
pub struct Durations {
    counts: [Counter; 12],
    sum_ms: Counter,
    count: Counter,
}

impl Durations {
    /// The upper bounds, in milliseconds; what is above the last is only in the total.
    pub const BOUNDS_MS: [u64; 12] =
        [1, 5, 10, 50, 100, 500, 1_000, 10_000, 60_000, 600_000, 3_600_000, 86_400_000];

    fn note(&self, ms: u64) {
        self.sum_ms.add(ms);
        self.count.add(1);
        for (bound, count) in Self::BOUNDS_MS.iter().zip(&self.counts) {
            if ms <= *bound {
                count.add(1);
            }
        }
    }

    /// Bounds and how many were within each.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        Self::BOUNDS_MS.iter().copied().zip(self.counts.iter().map(Counter::get))
    }

    /// All of them: how many, and their sum in milliseconds.
    pub fn total(&self) -> (u64, u64) {
        (self.count.get(), self.sum_ms.get())
    }
}

/// What one shard shows.
#[derive(Debug, Default)]
pub struct ShardMetrics {
    working: AtomicBool,
    in_memory: AtomicUsize,
    waiting: AtomicUsize,
    /// Commits sent.
    pub commits: Counter,
}

impl ShardMetrics {
    /// Whether it is at work.
    pub fn working(&self) -> bool {
        self.working.load(Ordering::Relaxed)
    }

    /// Instances in memory.
    pub fn instances_in_memory(&self) -> usize {
        self.in_memory.load(Ordering::Relaxed)
    }

    /// Work that waits.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

/// What a node counts.
#[derive(Debug, Default)]
pub struct Metrics {
    shards: Vec<ShardMetrics>,
    /// Runs begun.
    pub began: Counter,
    /// Runs that ended well.
    pub completed: Counter,
    /// Runs that failed.
    pub failed: Counter,
    /// Runs that were terminated.
    pub terminated: Counter,
    /// Runs found stuck.
    pub stuck: Counter,
    /// Runs set aside.
    pub parked: Counter,
    /// Calls delivered again after their first owner stopped.
    pub redelivered: Counter,
    /// Calls that failed for good.
    pub calls_failed: Counter,
    /// Calls running now.
    pub calls_running: Gauge,
    /// Operations that changed an entity.
    pub operated: Counter,
    /// Messages that were given up.
    pub dead_lettered: Counter,
    /// Places in the store that cannot be read.
    pub unreadable: Counter,
    /// Calls that wait for a slot to run in.
    pub calls_waiting: Gauge,
    /// Commits sent.
    pub commits: Counter,
    /// Rows in them, heads included.
    pub rows: Counter,
    /// Bytes in them.
    pub bytes: Counter,
    /// How long runs took.
    pub durations: Durations,
}

impl Metrics {
    pub(super) fn new(shards: ShardCount) -> Self {
        Self { shards: shards.shards().map(|_| ShardMetrics::default()).collect(), ..Self::default() }
    }

    pub(super) fn note(&self, id: ShardId, shard: &Shard) {
        if let Some(metrics) = self.shards.get(id.number() as usize) {
            metrics.working.store(shard.is_working(), Ordering::Relaxed);
            metrics.in_memory.store(shard.instances_in_memory(), Ordering::Relaxed);
            metrics.waiting.store(shard.waiting(), Ordering::Relaxed);
        }
    }

    pub(super) fn shard_stopped(&self, id: ShardId) {
        if let Some(metrics) = self.shards.get(id.number() as usize) {
            metrics.working.store(false, Ordering::Relaxed);
            metrics.in_memory.store(0, Ordering::Relaxed);
            metrics.waiting.store(0, Ordering::Relaxed);
        }
    }

    pub(super) fn note_commit(&self, id: ShardId, batch: &Batch) {
        if let Some(metrics) = self.shards.get(id.number() as usize) {
            metrics.commits.add(1);
        }
        self.commits.add(1);
        self.rows.add(batch.rows() as u64);
        self.bytes.add(batch.bytes() as u64);
    }

    pub(super) fn told(&self, notice: &Notice) {
        match notice {
            Notice::Began => self.began.add(1),
            Notice::Ended { status, took_ms } => {
                self.durations.note(*took_ms);
                match status {
                    Status::Failed => self.failed.add(1),
                    Status::Terminated => self.terminated.add(1),
                    _ => self.completed.add(1),
                }
            }
            Notice::Stuck { .. } => self.stuck.add(1),
            Notice::Parked { .. } => self.parked.add(1),
            Notice::Redelivered => self.redelivered.add(1),
            Notice::CallFailed { .. } => self.calls_failed.add(1),
            Notice::Operated => self.operated.add(1),
            Notice::DeadLettered { .. } => self.dead_lettered.add(1),
            Notice::Unreadable { .. } => self.unreadable.add(1),
            Notice::Owned { .. } => {}
        }
    }

    /// Each shard's own, in their order.
    pub fn shards(&self) -> impl Iterator<Item = &ShardMetrics> {
        self.shards.iter()
    }

    /// Shards at work.
    pub fn shards_working(&self) -> usize {
        self.shards.iter().filter(|shard| shard.working()).count()
    }

    /// Instances in memory.
    pub fn instances_in_memory(&self) -> usize {
        self.shards.iter().map(ShardMetrics::instances_in_memory).sum()
    }
}

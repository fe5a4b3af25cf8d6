//! The counters and gauges of a node, as plain atomics.
//!
//! Metric names and output formats are not known here but in the server. The shard tasks and their attempts update
//! them.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use abide_dispatch::HoldReason;
use abide_store::rows::Batch;
use abide_workflow::Status;

use crate::event::OperatorEvent;
use crate::placement::{ShardCount, ShardId};
use crate::request::{QueueLimit, RequestError};
use crate::shard::Shard;

/// A number that only increases.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Adds one until the guard is dropped.
    pub(super) fn count_one(&self) -> GaugeGuard<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        GaugeGuard(self)
    }

    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts one in a gauge for as long as it exists.
#[derive(Debug)]
pub(super) struct GaugeGuard<'a>(&'a Gauge);

impl Drop for GaugeGuard<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A cumulative histogram of durations in milliseconds.
#[derive(Debug, Default)]
pub struct DurationHistogram {
    counts: [Counter; 12],
    sum_ms: Counter,
    count: Counter,
}

impl DurationHistogram {
    /// The upper bounds. Durations above the last one are only in the total.
    pub const BOUNDS_MS: [u64; 12] =
        [1, 5, 10, 50, 100, 500, 1_000, 10_000, 60_000, 600_000, 3_600_000, 86_400_000];

    /// Counts a duration in every bucket whose bound it does not exceed, and in the total.
    fn record(&self, ms: u64) {
        self.sum_ms.add(ms);
        self.count.add(1);
        for (bound, count) in Self::BOUNDS_MS.iter().zip(&self.counts) {
            if ms <= *bound {
                count.add(1);
            }
        }
    }

    /// Each bound, with the number of durations up to it.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        Self::BOUNDS_MS.iter().copied().zip(self.counts.iter().map(Counter::get))
    }

    /// The number of durations, and their sum in milliseconds.
    pub fn total(&self) -> (u64, u64) {
        (self.count.get(), self.sum_ms.get())
    }
}

/// The metrics of one shard.
#[derive(Debug, Default)]
pub struct ShardMetrics {
    is_working: AtomicBool,
    recovers_carefully: AtomicBool,
    /// Why it stopped the last time, until it works again.
    stop_reason: Mutex<Option<String>>,
    resident_instances: AtomicUsize,
    queued: AtomicUsize,
    /// In the order of [`HoldReason::ALL`].
    held_calls: [AtomicUsize; HoldReason::ALL.len()],
    pub commits: Counter,
}

impl ShardMetrics {
    /// True if this node owns the shard and accepts requests for it: not during recovery, nor while it drains.
    pub fn is_working(&self) -> bool {
        self.is_working.load(Ordering::Relaxed)
    }

    /// True if it does stored work one instance at a time, because its owners have ended uncleanly.
    pub fn recovers_carefully(&self) -> bool {
        self.recovers_carefully.load(Ordering::Relaxed)
    }

    /// Why the shard stopped, if it does not work since then.
    pub fn stop_reason(&self) -> Option<String> {
        self.stop_reason.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_stop_reason(&self, reason: Option<String>) {
        *self.stop_reason.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    /// Instances held in memory.
    pub fn resident_instances(&self) -> usize {
        self.resident_instances.load(Ordering::Relaxed)
    }

    /// Work items queued for instances and entities.
    pub fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }
}

/// The metrics of a node.
#[derive(Debug, Default)]
pub struct Metrics {
    shards: Vec<ShardMetrics>,
    pub runs_started: Counter,
    pub runs_completed: Counter,
    pub runs_failed: Counter,
    pub runs_terminated: Counter,
    pub runs_stuck: Counter,
    pub runs_parked: Counter,
    /// Calls attempted again because their last attempt was orphaned.
    pub calls_recovered: Counter,
    /// Calls that failed permanently.
    pub calls_failed: Counter,
    /// Attempts that hold a concurrency permit.
    pub calls_running: Gauge,
    /// Operations that changed an entity.
    pub entity_operations: Counter,
    /// External events put into the dead-letter queue, by a shard or by the server.
    pub dead_lettered: Counter,
    /// Places in the store that cannot be read.
    pub unreadable_places: Counter,
    /// Requests refused because too many wait in their shard, or too many bytes of them.
    pub requests_refused_items: Counter,
    pub requests_refused_bytes: Counter,
    /// Attempts that wait for a concurrency permit, or for their target.
    pub calls_waiting: Gauge,
    /// Commits sent to the store, whatever their outcome; a repeated one counts again.
    pub commits: Counter,
    /// Rows in these commits, heads included.
    pub commit_rows: Counter,
    pub commit_bytes: Counter,
    pub run_durations: DurationHistogram,
}

impl Metrics {
    pub(super) fn new(shards: ShardCount) -> Self {
        Self { shards: shards.shards().map(|_| ShardMetrics::default()).collect(), ..Self::default() }
    }

    /// Called by the shard task in every round: gauges show the shard as it was then.
    pub(super) fn record_shard(&self, id: ShardId, shard: &Shard) {
        if let Some(metrics) = self.shards.get(id.number() as usize) {
            let was_working = metrics.is_working.swap(shard.is_working(), Ordering::Relaxed);
            if shard.is_working() && !was_working {
                metrics.set_stop_reason(None);
            }
            metrics.recovers_carefully.store(shard.recovers_carefully(), Ordering::Relaxed);
            metrics.resident_instances.store(shard.resident_instances(), Ordering::Relaxed);
            metrics.queued.store(shard.queued_items(), Ordering::Relaxed);
            for (reason, held) in HoldReason::ALL.into_iter().zip(&metrics.held_calls) {
                held.store(shard.held_calls(reason), Ordering::Relaxed);
            }
        }
    }

    /// This ownership of the shard has ended, for this reason if it should not have; the shard task may acquire the
    /// shard again.
    pub(super) fn shard_stopped(&self, id: ShardId, reason: Option<String>) {
        if let Some(metrics) = self.shards.get(id.number() as usize) {
            metrics.is_working.store(false, Ordering::Relaxed);
            metrics.recovers_carefully.store(false, Ordering::Relaxed);
            metrics.set_stop_reason(reason);
            metrics.resident_instances.store(0, Ordering::Relaxed);
            metrics.queued.store(0, Ordering::Relaxed);
            metrics.held_calls.iter().for_each(|held| held.store(0, Ordering::Relaxed));
        }
    }

    /// Counts a refusal for lack of room.
    pub(super) fn record_refusal(&self, refusal: &RequestError) {
        match refusal {
            RequestError::Busy { limit: QueueLimit::Items, .. } => self.requests_refused_items.add(1),
            RequestError::Busy { limit: QueueLimit::Bytes, .. } => self.requests_refused_bytes.add(1),
            _ => {}
        }
    }

    /// Counts a commit when it is sent, before its outcome is known.
    pub(super) fn record_commit(&self, id: ShardId, batch: &Batch) {
        if let Some(metrics) = self.shards.get(id.number() as usize) {
            metrics.commits.add(1);
        }
        self.commits.add(1);
        self.commit_rows.add(batch.row_count() as u64);
        self.commit_bytes.add(batch.size_bytes() as u64);
    }

    pub(super) fn record_event(&self, event: &OperatorEvent) {
        match event {
            OperatorEvent::RunStarted => self.runs_started.add(1),
            OperatorEvent::RunEnded { status, duration_ms } => {
                self.run_durations.record(*duration_ms);
                match status {
                    Status::Failed => self.runs_failed.add(1),
                    Status::Terminated => self.runs_terminated.add(1),
                    _ => self.runs_completed.add(1),
                }
            }
            OperatorEvent::Stuck { .. } => self.runs_stuck.add(1),
            OperatorEvent::Parked { .. } => self.runs_parked.add(1),
            OperatorEvent::CallRecovered => self.calls_recovered.add(1),
            OperatorEvent::CallFailed(_) => self.calls_failed.add(1),
            OperatorEvent::EntityChanged => self.entity_operations.add(1),
            OperatorEvent::DeadLettered { .. } => self.dead_lettered.add(1),
            OperatorEvent::Unreadable { .. } => self.unreadable_places.add(1),
            OperatorEvent::Owned { .. } | OperatorEvent::WorkflowTimedOut { .. } => {}
        }
    }

    /// The metrics of all shards, in order.
    pub fn shards(&self) -> impl Iterator<Item = &ShardMetrics> {
        self.shards.iter()
    }

    pub fn working_shards(&self) -> usize {
        self.shards.iter().filter(|shard| shard.is_working()).count()
    }

    /// Shards that do stored work one instance at a time.
    pub fn careful_shards(&self) -> usize {
        self.shards.iter().filter(|shard| shard.recovers_carefully()).count()
    }

    /// Calls that are held back, by reason.
    pub fn held_calls(&self) -> impl Iterator<Item = (HoldReason, usize)> + '_ {
        HoldReason::ALL.into_iter().enumerate().map(|(place, reason)| {
            let of_shards = self.shards.iter().filter_map(|shard| shard.held_calls.get(place));
            (reason, of_shards.map(|held| held.load(Ordering::Relaxed)).sum())
        })
    }

    /// Instances held in memory.
    pub fn resident_instances(&self) -> usize {
        self.shards.iter().map(ShardMetrics::resident_instances).sum()
    }
}

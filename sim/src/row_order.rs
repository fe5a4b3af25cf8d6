//! The rows of a cluster without their batches: the order in which each run's rows were written, and the rows in the
//! store at the end.
//!
//! Two builds that only differ in which rows share a commit have equal digests here, while those of
//! [`mod@crate::digest`] differ. Heads are left out: every commit writes one.

use std::collections::BTreeMap;

use abide_runtime::Effect;
use abide_store::rows::{Batch, Key};
use abide_store::tables::TableId;
use abide_store::tables::timers::TimerKey;

use crate::cluster::Cluster;
use crate::digest::{OFFSET, mix};

/// How often a scan is repeated that a fault of the store made fail.
const SCANS_MAX: usize = 100;

/// One digest for each run, and for each row that belongs to no run.
#[derive(Default, Debug)]
pub(crate) struct RowOrder(BTreeMap<(usize, Vec<u8>), u64>);

impl RowOrder {
    /// Adds what this effect of this shard writes.
    pub(crate) fn add(&mut self, shard: usize, effect: &Effect) {
        match effect {
            Effect::Commit(_, batch) => self.add_batch(shard, batch),
            Effect::SendMessages(_, batch) | Effect::DeleteInbound(batch) => self.add_batch(shard, batch),
            _ => {}
        }
    }

    fn add_batch(&mut self, shard: usize, batch: &Batch) {
        for write in &batch.writes {
            let sum = self.0.entry((shard, group_of(&write.key))).or_insert(OFFSET);
            mix(sum, write.key.as_bytes());
            mix(sum, write.value.as_deref().unwrap_or(&[0]));
        }
    }

    /// One number for all runs and rows.
    pub(crate) fn digest(&self) -> u64 {
        let mut all = OFFSET;
        for ((shard, group), sum) in &self.0 {
            mix(&mut all, &shard.to_be_bytes());
            mix(&mut all, group);
            mix(&mut all, &sum.to_be_bytes());
        }
        all
    }
}

/// The run that the key names, or the whole key.
fn group_of(key: &Key) -> Vec<u8> {
    let bytes = key.as_bytes();
    let run_id = match TableId::of_key(key) {
        Some(TableId::Part | TableId::HistoryPage | TableId::Call | TableId::Payload) => bytes.get(1..9),
        _ => None,
    };
    match (run_id, TimerKey::from_key(key)) {
        (Some(run_id), _) => run_id.to_vec(),
        (None, Ok(timer)) => timer.run_id.0.to_be_bytes().to_vec(),
        (None, Err(_)) => bytes.to_vec(),
    }
}

/// A digest of all rows in the store but the heads.
pub(crate) fn final_rows(cluster: &Cluster) -> u64 {
    let mut all = OFFSET;
    for partition in cluster.shards.shards().filter_map(|shard| cluster.store_effects.partition(shard)) {
        let mut next = Some(abide_store::rows::Scan::all());
        while let Some(scan) = next {
            let page = (0..SCANS_MAX).find_map(|_| cluster.store.scan_now(partition, scan.clone()).ok());
            let Some(page) = page else { unreachable!("{partition:?} cannot be scanned") };
            for row in page.rows.iter().filter(|row| TableId::of_key(&row.key) != Some(TableId::Head)) {
                mix(&mut all, row.key.as_bytes());
                mix(&mut all, &row.value);
            }
            next = page.next;
        }
    }
    all
}

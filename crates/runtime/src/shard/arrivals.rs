//! Messages from other shards: taken over in order, each number once, then deleted where they lay.

use std::collections::HashMap;

use abide_store::rows::{Batch, CommitOutcome, Key, Scan, ScanPage, StoreError, Version};
use abide_store::tables::arrivals::{self, Arrival};
use abide_store::tables::sources::{self, Taken};
use abide_store::tables::{decode, encode};

use super::{Shard, planted};
use crate::event::{Effect, ScanPurpose};
use crate::lease::Monotonic;
use crate::post::{self, Letter};

/// Where taking over stands.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// There may be something.
    pub(super) hinted: bool,
    stage: Stage,
    /// What is left of the last look.
    rest: Option<Scan>,
    /// The last number taken from each source.
    pub(super) taken: HashMap<String, u64>,
    /// Some of those numbers cannot be read: from a source without one nothing is taken, it might be taken twice.
    pub(super) only_known: bool,
    looked: Option<Monotonic>,
    /// Something failed: not before this.
    pub(super) retry_at: Option<Monotonic>,
}

#[derive(Debug, Default)]
enum Stage {
    #[default]
    Idle,
    Scanning,
    /// Taken over, and durable with this gathering; then these are deleted.
    Taking(u64, Vec<(Key, Version)>),
    Dropping,
}

/// How often to look without being told, where others may write.
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_secs(1);

impl Shard {
    pub(super) fn keep_arrivals(&mut self) {
        if self.arrivals.retry_at.is_some_and(|at| at > self.now.mono) {
            return;
        }
        self.arrivals.retry_at = None;
        match &mut self.arrivals.stage {
            Stage::Idle => {
                let look = !self.config.alone
                    && self.arrivals.looked.is_none_or(|at| super::later(at, LOOK_EVERY) <= self.now.mono);
                let rest = self.arrivals.rest.take();
                if rest.is_none() && (self.arrivals.hinted || look) {
                    self.arrivals.hinted = false;
                    self.arrivals.looked = Some(self.now.mono);
                    return self.look_for_arrivals(arrivals::all());
                }
                if let Some(rest) = rest {
                    self.look_for_arrivals(rest);
                }
            }
            Stage::Taking(written, rows) if *written <= self.commits.durable => {
                let drop = |batch: Batch, (key, version): (Key, Version)| batch.delete_at(key, version);
                let batch = std::mem::take(rows).into_iter().fold(Batch::checked(), drop);
                self.arrivals.stage = Stage::Dropping;
                self.effects.push(Effect::DropArrivals(batch));
            }
            _ => {}
        }
    }

    fn look_for_arrivals(&mut self, scan: Scan) {
        self.arrivals.stage = Stage::Scanning;
        let at_once = self.config.store.commit_rows_max / 4;
        self.effects.push(Effect::Scan(ScanPurpose::Arrivals, scan.at_most(at_once)));
    }

    pub(super) fn on_arrivals(&mut self, result: Result<ScanPage, StoreError>) {
        let Ok(page) = result else {
            self.arrivals.stage = Stage::Idle;
            self.arrivals.hinted = true;
            self.arrivals.retry_at = Some(super::later(self.now.mono, super::back_off(4)));
            return;
        };
        self.arrivals.rest = page.next;
        let mut rows = Vec::new();
        let taken = self.commits.touched;
        for row in page.rows {
            match self.take_over(&row.key, &row.value) {
                Ok(()) => rows.push((row.key, row.version)),
                Err(reason) => self.found_unreadable(ScanPurpose::Arrivals, &row.key, reason),
            }
        }
        // Repeats alone have nothing to wait for.
        let written = if self.commits.touched > taken { self.commits.number() } else { self.commits.durable };
        self.arrivals.stage = if rows.is_empty() { Stage::Idle } else { Stage::Taking(written, rows) };
        self.serve_posted();
    }

    fn take_over(&mut self, key: &Key, value: &[u8]) -> Result<(), String> {
        let (source, number) = arrivals::read_key(key).map_err(|error| error.to_string())?;
        let arrival: Arrival = decode(value).map_err(|error| error.to_string())?;
        let letter: Letter = post::decode(&arrival.message).map_err(|error| error.to_string())?;
        let last = match self.arrivals.taken.get(&source) {
            Some(last) => *last,
            None if self.arrivals.only_known => {
                return Err(format!("it is not known what was taken from {source}"));
            }
            None => 0,
        };
        if number <= last && !planted!(self, DoubleDelivery) {
            return Ok(());
        }
        self.commits.make_room(4, arrival.message.len() * 2 + 1024);
        let taken = Taken { number, taken_at: self.now.wall.0 };
        self.commits.put(sources::key(&source), encode(&taken));
        self.arrivals.taken.insert(source, number);
        self.take_in(letter.instance_id, letter.post);
        Ok(())
    }

    pub(super) fn on_arrivals_dropped(&mut self, outcome: &CommitOutcome) {
        self.arrivals.stage = Stage::Idle;
        // Those that are still there are found again, known by their numbers, and deleted then.
        if !matches!(outcome, CommitOutcome::Committed(_)) {
            self.arrivals.hinted = true;
            self.arrivals.retry_at = Some(super::later(self.now.mono, super::back_off(4)));
        }
    }
}

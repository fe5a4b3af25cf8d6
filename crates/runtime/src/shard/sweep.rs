//! Deleting what has been kept long enough: ended runs, kept answers, and the rows of runs that no id leads to any more.
//!
//! A purge is one commit that forgets the run; its rows go in slices afterwards, and a sweep may stop anywhere and begin again.

use std::collections::{HashMap, VecDeque};

use abide_store::rows::{Key, Scan, ScanPage, StoreError};
use abide_store::tables::dedupe::{self, Answer};
use abide_store::tables::expiries::{self, EndedRun, Expired, Expiry};
use abide_store::tables::{decode, dispatches, earlier_runs, entity_events, pages, parts, payloads};
use abide_workflow::InstanceId;

use super::slot::Item;
use super::{Shard, later};
use crate::event::{Effect, ScanPurpose};
use crate::lease::Monotonic;

/// The row of an expiry.
pub(super) type ExpiryKey = Key;

/// How far sweeping has come.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    pub(super) next: Option<Monotonic>,
    scanning: bool,
    /// What is left of the last look.
    rest: Option<Scan>,
    queue: VecDeque<(Key, Expired)>,
    current: Option<Current>,
    /// What is left of that.
    left: Option<Scan>,
    /// Instances of an expiry that are still to be looked at.
    pub(super) open: HashMap<Key, usize>,
    /// The gathering that has the newest of what sweeping did: until it is durable the same would be found again.
    pub(super) written: u64,
}

/// What is being deleted.
#[derive(Debug)]
struct Current {
    expiry: Key,
    what: Swept,
}

#[derive(Debug)]
enum Swept {
    /// The rows of a run: which table, and what is left of it.
    Run {
        run: u64,
        table: usize,
    },
    Answer,
    /// Some of many kept answers: those that are left.
    Answers(Vec<(String, [u8; 32])>),
    /// Events of an entity below a position.
    Events,
    /// Earlier runs that were numbered before this.
    EarlierRuns {
        before: u64,
        revision: u64,
    },
}

/// Expiries looked at in one go, and rows deleted in one, at most.
const SLICE_MAX: usize = 100;
/// Rows that forgetting an earlier run writes, and bytes of them.
const RUN_ROWS: usize = 4;
const RUN_BYTES: usize = 4 * 1024;

impl Shard {
    pub(super) fn keep_sweep(&mut self) {
        let now = self.now.mono;
        if self.sweep.scanning || !self.commits.has_room() {
            return;
        }
        if let Some(scan) = self.sweep.left.take() {
            return self.effects.push(Effect::Scan(ScanPurpose::Remains, scan));
        }
        if self.sweep.current.is_some() {
            return;
        }
        if let Some((key, what)) = self.sweep.queue.pop_front() {
            return self.sweep_one(key, what);
        }
        let next = *self.sweep.next.get_or_insert(later(now, self.config.sweep_every));
        if !self.sweep.open.is_empty() || self.sweep.written > self.commits.durable {
            return;
        }
        let scan = match self.sweep.rest.take() {
            Some(rest) => rest,
            None if next <= now => {
                self.sweep.next = Some(later(now, self.config.sweep_every));
                expiries::due_before(self.now.wall.0.saturating_add(1)).at_most(self.slice())
            }
            None => return,
        };
        self.sweep.scanning = true;
        self.effects.push(Effect::Scan(ScanPurpose::Expiries, scan));
    }

    /// As many rows as fit into a commit beside others.
    fn slice(&self) -> usize {
        SLICE_MAX.min(self.config.store.commit_rows_max / 2)
    }

    pub(super) fn on_expiries(&mut self, result: Result<ScanPage, StoreError>) {
        self.sweep.scanning = false;
        // What could not be looked at is found with the next look.
        let Ok(page) = result else { return };
        self.sweep.rest = page.next;
        for row in page.rows {
            match decode::<Expiry>(&row.value) {
                Ok(expiry) => self.sweep.queue.push_back((row.key, expiry.what)),
                Err(error) => self.found_unreadable(ScanPurpose::Expiries, &row.key, error.to_string()),
            }
        }
    }

    fn sweep_one(&mut self, key: Key, what: Expired) {
        match what {
            Expired::EndedRuns(ended) => self.expire_runs(&key, ended),
            Expired::Ended(ended) => {
                let ended = ended.into_iter().map(|(instance_id, run)| EndedRun {
                    instance_id,
                    run,
                    run_number: 0,
                    revision: 0,
                });
                self.expire_runs(&key, ended.collect());
            }
            Expired::Run(run) => {
                self.sweep.current = Some(Current { expiry: key, what: Swept::Run { run, table: 0 } });
                self.effects.push(Effect::Scan(ScanPurpose::Remains, remains(run, 0, self.slice())));
            }
            Expired::Dedupe { scope, digest } => {
                let row = dedupe::key(&scope, &digest);
                self.sweep.current = Some(Current { expiry: key, what: Swept::Answer });
                self.effects
                    .push(Effect::Scan(ScanPurpose::Remains, Scan::prefix(row.as_bytes()).at_most(1)));
            }
            Expired::Answers(answers) => self.sweep_answers(key, answers),
            Expired::EntityEvents { generation, until } => {
                self.sweep.current = Some(Current { expiry: key, what: Swept::Events });
                let below =
                    Scan::range(entity_events::key(generation, 0), entity_events::key(generation, until));
                self.effects.push(Effect::Scan(ScanPurpose::Remains, below.at_most(self.slice())));
            }
            Expired::EarlierRuns { instance_id, before, revision } => {
                let what = Swept::EarlierRuns { before, revision };
                self.sweep.current = Some(Current { expiry: key, what });
                let earlier = earlier_runs::of_instance(&instance_id).at_most(self.slice() / RUN_ROWS);
                self.effects.push(Effect::Scan(ScanPurpose::Remains, earlier));
            }
            // Kinds that nothing writes yet.
            Expired::Payload { .. } | Expired::Source(_) => {}
        }
    }

    fn expire_runs(&mut self, expiry: &Key, ended: Vec<EndedRun>) {
        let known = |ended: EndedRun| Some((InstanceId::new(ended.instance_id.clone()).ok()?, ended));
        let ended: Vec<(InstanceId, EndedRun)> = ended.into_iter().filter_map(known).collect();
        if ended.is_empty() {
            self.commits.delete(expiry.clone());
            self.sweep.written = self.commits.number();
            return;
        }
        self.sweep.open.insert(expiry.clone(), ended.len());
        for (id, ended) in ended {
            self.offer(&id, Item::Expire { ended, expiry: expiry.clone() });
        }
    }

    pub(super) fn on_remains(&mut self, result: Result<ScanPage, StoreError>) {
        let Some(Current { expiry, what }) = self.sweep.current.take() else { return };
        // Found again with the next look at what is due.
        let Ok(page) = result else { return };
        let bytes = if let Swept::EarlierRuns { .. } = what { page.rows.len() * RUN_BYTES } else { 0 };
        self.commits.make_room(self.slice() + 1, bytes);
        match what {
            Swept::Events => {
                for row in page.rows {
                    self.commits.delete(row.key);
                }
                self.sweep_on(expiry, Swept::Events, page.next);
            }
            Swept::EarlierRuns { before, revision } => {
                for row in &page.rows {
                    self.forget_earlier_row(row, before, revision);
                }
                self.sweep_on(expiry, Swept::EarlierRuns { before, revision }, page.next);
            }
            Swept::Answers(left) => {
                self.delete_old_answers(page);
                self.sweep_answers(expiry, left);
            }
            Swept::Answer => {
                self.delete_old_answers(page);
                self.sweep_on(expiry, Swept::Answer, None);
            }
            Swept::Run { run, table } => {
                for row in page.rows {
                    self.commits.delete(row.key);
                }
                let (table, next) = match page.next {
                    Some(rest) => (table, Some(rest)),
                    None if table + 1 < TABLES => (table + 1, Some(remains(run, table + 1, self.slice()))),
                    None => (table, None),
                };
                self.sweep_on(expiry, Swept::Run { run, table }, next);
            }
        }
    }

    /// Goes on with what is left of it; or, if nothing is, the row that names it goes too.
    fn sweep_on(&mut self, expiry: Key, what: Swept, left: Option<Scan>) {
        match left {
            // When others have had their turn.
            Some(scan) => {
                self.sweep.current = Some(Current { expiry, what });
                self.sweep.left = Some(scan);
            }
            None => {
                self.commits.delete(expiry);
                self.sweep.written = self.commits.number();
            }
        }
    }

    /// One of many kept answers after the other, then the row that names them.
    fn sweep_answers(&mut self, expiry: Key, mut answers: Vec<(String, [u8; 32])>) {
        match answers.pop() {
            Some((scope, digest)) => {
                let row = dedupe::key(&scope, &digest);
                self.sweep.current = Some(Current { expiry, what: Swept::Answers(answers) });
                self.effects
                    .push(Effect::Scan(ScanPurpose::Remains, Scan::prefix(row.as_bytes()).at_most(1)));
            }
            None => self.sweep_on(expiry, Swept::Answers(answers), None),
        }
    }

    /// An answer may have been given anew since.
    fn delete_old_answers(&mut self, page: ScanPage) {
        for row in page.rows {
            let old = decode::<Answer>(&row.value).is_ok_and(|answer| answer.expires_at <= self.now.wall.0);
            if old {
                self.commits.delete(row.key);
            }
        }
    }
}

/// Tables that have rows of a run.
const TABLES: usize = 4;

fn remains(run: u64, table: usize, slice: usize) -> Scan {
    let scan = match table {
        0 => pages::of_run(run),
        1 => parts::of_run(run),
        2 => payloads::of_run(run),
        _ => dispatches::of_run(run),
    };
    scan.at_most(slice)
}

//! The public table of instances, fed after the truth: a marker per run that changed, the newest durable state of each, deleted when it is there.
//!
//! A state that was overtaken before it was sent is not sent, so short runs are written once. An ended run whose row is there gets its
//! expiry in the same commit that deletes the marker.

use std::collections::{BTreeMap, HashMap};

use abide_store::public::{PublicKey, PublicRow, PublicWrite, TableSchema};
use abide_store::tables::encode;
use abide_store::tables::engine_dlq::{self, DeadLetter};
use abide_store::tables::expiries::{self, Expired, Expiry};
use abide_store::tables::instances::{Instance as InstanceRow, RunStatus};
use abide_store::tables::outbox::{self, Outgoing, PUBLIC};
use abide_store::tables::public_instances::{self, PublicInstance};
use abide_workflow::{InstanceId, Status};
use serde::{Deserialize, Serialize};

use super::commits::After;
use super::slot::{Item, Known, Run, Slot, is_over};
use super::{Shard, back_off, later};
use crate::event::Effect;
use crate::lease::Monotonic;
use crate::post;

/// What a marker says. Stored by place: append only.
#[derive(Serialize, Deserialize)]
enum Marker {
    /// The run is its instance's current one: its row says how it stands.
    Current(String),
    /// The run is not the current one any more: this was its last state.
    Last(PublicRow, String),
    /// The run was purged.
    Gone(PublicKey),
    /// A message was given up.
    Dead(PublicRow),
}

/// A state for the public table.
#[derive(Clone, Debug)]
pub(super) struct FeedItem {
    table: &'static TableSchema,
    write: PublicWrite,
    revision: u64,
    /// The instance, if the run has ended.
    ended: Option<InstanceId>,
}

/// Public rows on their way.
#[derive(Debug, Default)]
pub(super) struct Feed {
    waiting: BTreeMap<u64, FeedItem>,
    since: Option<Monotonic>,
    out: BTreeMap<u64, FeedItem>,
    retry: Option<(Monotonic, u32)>,
    linger: std::time::Duration,
    /// Runs with a marker, and the revision of the newest state that was noted for each.
    newest: HashMap<u64, u64>,
}

/// States sent at once.
const FEED_MAX: usize = 256;

impl Feed {
    pub(super) fn ready(&mut self, run: u64, item: FeedItem, now: Monotonic) {
        self.waiting.insert(run, item);
        self.since.get_or_insert(now);
    }

    pub(super) fn wake(&self) -> Option<Monotonic> {
        if !self.out.is_empty() {
            return None;
        }
        let since = self.since.filter(|_| !self.waiting.is_empty())?;
        let due = later(since, self.linger);
        Some(self.retry.map_or(due, |(at, _)| at.max(due)))
    }
}

impl Shard {
    /// The run's state is to be seen in public.
    pub(super) fn mark_for_feed(&mut self, run: &Run) {
        let id = run.instance.origin().instance_id.clone();
        self.mark_row_for_feed(&id, &run.row);
    }

    pub(super) fn mark_row_for_feed(&mut self, id: &InstanceId, row: &InstanceRow) {
        if !self.feed.newest.contains_key(&row.run) {
            self.write_marker(row.run, &Marker::Current(id.as_str().to_owned()));
        }
        self.note_state(id, row, status_text(row.status));
    }

    /// Another run takes the id over: what this one came to must be known without its row.
    pub(super) fn feed_last(&mut self, run: &Run) {
        let id = run.instance.origin().instance_id.clone();
        let status = match run.instance.status() {
            Status::ContinuedAsNew => "ContinuedAsNew",
            _ => status_text(run.row.status),
        };
        let public = public_instance(&id, &run.row, status);
        let revision = self.sequence + 1;
        self.write_marker(run.row.run, &Marker::Last(public.to_row(revision), id.as_str().to_owned()));
        self.note_state(&id, &run.row, status);
    }

    /// As [`Self::feed_last`], for whatever is known of the run that was there, if its public row is still on its way.
    pub(super) fn feed_replaced(&mut self, id: &InstanceId, slot: &Slot) {
        let row = match &slot.known {
            Known::Run(run) => return self.feed_last(run),
            Known::Row(Some(row)) => row.clone(),
            Known::Unreadable { row: Some(row), .. } => (**row).clone(),
            _ => return,
        };
        if row.status == RunStatus::Purged || !self.feed.newest.contains_key(&row.run) {
            return;
        }
        let status = status_text(row.status);
        let public = public_instance(id, &row, status);
        let revision = self.sequence + 1;
        self.write_marker(row.run, &Marker::Last(public.to_row(revision), id.as_str().to_owned()));
        self.note_state(id, &row, status);
    }

    /// A purged run is not to be seen any more.
    pub(super) fn feed_gone(&mut self, id: &InstanceId, row: &InstanceRow) {
        let key = public_instances::key(id.as_str(), row.run_number);
        self.write_marker(row.run, &Marker::Gone(key.clone()));
        let revision = self.next_sequence();
        self.feed.newest.insert(row.run, revision);
        let item = FeedItem {
            table: &public_instances::SCHEMA,
            write: PublicWrite::Delete(key),
            revision,
            ended: None,
        };
        self.commits.then(After::Feed(row.run, item));
    }

    /// A message was given up: its row will be in the dead-letter queue, under a number that is no run's.
    pub(super) fn feed_dead_letter(&mut self, number: u64, letter: &DeadLetter) {
        let row = letter.to_row(1);
        self.write_marker(number, &Marker::Dead(row.clone()));
        let revision = self.next_sequence();
        self.feed.newest.insert(number, revision);
        let item =
            FeedItem { table: &engine_dlq::SCHEMA, write: PublicWrite::Put(row), revision, ended: None };
        self.commits.then(After::Feed(number, item));
    }

    fn write_marker(&mut self, run: u64, marker: &Marker) {
        let outgoing = Outgoing { created_at: self.now.wall.0, message: post::encode(marker) };
        self.commits.put(outbox::key(PUBLIC, run), encode(&outgoing));
    }

    fn note_state(&mut self, id: &InstanceId, row: &InstanceRow, status: &str) {
        let item = self.item(id, row, status);
        self.commits.then(After::Feed(row.run, item));
    }

    fn item(&mut self, id: &InstanceId, row: &InstanceRow, status: &str) -> FeedItem {
        let revision = self.next_sequence();
        self.feed.newest.insert(row.run, revision);
        let write = PublicWrite::Put(public_instance(id, row, status).to_row(revision));
        FeedItem {
            table: &public_instances::SCHEMA,
            write,
            revision,
            ended: is_over(row.status).then(|| id.clone()),
        }
    }

    /// A marker that a former owner left.
    pub(super) fn found_feed(&mut self, run: u64, message: &[u8]) -> Result<(), String> {
        let revision = self.next_sequence();
        self.feed.newest.insert(run, revision);
        match post::decode(message).map_err(|error| error.to_string())? {
            Marker::Current(id) => {
                let id = InstanceId::new(id).map_err(|error| error.to_string())?;
                self.posted.push_back((id, Item::Feed { run }));
            }
            Marker::Last(row, id) => {
                let ended = InstanceId::new(id).ok();
                let item = FeedItem {
                    table: &public_instances::SCHEMA,
                    write: PublicWrite::Put(row),
                    revision,
                    ended,
                };
                self.feed.ready(run, item, self.now.mono);
            }
            Marker::Gone(key) => {
                let item = FeedItem {
                    table: &public_instances::SCHEMA,
                    write: PublicWrite::Delete(key),
                    revision,
                    ended: None,
                };
                self.feed.ready(run, item, self.now.mono);
            }
            Marker::Dead(row) => {
                let write = PublicWrite::Put(row);
                let item = FeedItem { table: &engine_dlq::SCHEMA, write, revision, ended: None };
                self.feed.ready(run, item, self.now.mono);
            }
        }
        Ok(())
    }

    pub(super) fn serve_feed(&mut self, id: &InstanceId, slot: &Slot, run: u64) {
        let row = match &slot.known {
            Known::Row(Some(row)) => row.clone(),
            Known::Run(run) => run.row.clone(),
            Known::Unreadable { row: Some(row), .. } => (**row).clone(),
            _ => return,
        };
        if row.run == run {
            let written = match &slot.known {
                Known::Run(run) => run.written,
                _ => 0,
            };
            let item = self.item(id, &row, status_text(row.status));
            if let Some(after) = self.commits.when_durable(written, After::Feed(run, item)) {
                self.follow(after);
            }
            return;
        }
        // Another run has the id: this one's last state was lost on its way, and only its rows are left to be forgotten.
        self.feed.newest.remove(&run);
        self.commits.delete(outbox::key(PUBLIC, run));
        self.expire_later(vec![(id.as_str().to_owned(), run)]);
    }

    fn expire_later(&mut self, ended: Vec<(String, u64)>) {
        let at = self.now.wall.plus(self.config.retention).0;
        let sequence = self.next_sequence();
        let expiry = Expiry { what: Expired::Ended(ended) };
        self.commits.create(expiries::key(at, sequence), encode(&expiry));
    }

    /// Sends the newest states, when they have waited for newer ones long enough.
    pub(super) fn feed_public(&mut self) {
        self.feed.linger = self.config.feed_linger;
        if self.feed.wake().is_none_or(|at| at > self.now.mono) {
            return;
        }
        let at_once = FEED_MAX.min(self.config.store.commit_rows_max / 4);
        // One table at a time.
        let Some(table) = self.feed.waiting.first_key_value().map(|(_, item)| item.table) else { return };
        let some = self.feed.waiting.extract_if(.., |_, item| item.table.tag == table.tag);
        self.feed.out.extend(some.take(at_once));
        if self.feed.waiting.is_empty() {
            self.feed.since = None;
        }
        let writes = self.feed.out.values().map(|item| item.write.clone()).collect();
        self.effects.push(Effect::Feed(table, writes));
    }

    pub(super) fn on_fed(&mut self, result: &Result<(), String>) {
        let out = std::mem::take(&mut self.feed.out);
        if result.is_err() {
            let tries = self.feed.retry.map_or(1, |(_, tries)| tries + 1);
            self.feed.retry = Some((later(self.now.mono, back_off(tries)), tries));
            for (run, item) in out {
                self.feed.waiting.entry(run).or_insert(item);
            }
            self.feed.since.get_or_insert(self.now.mono);
            return;
        }
        self.feed.retry = None;
        self.commits.make_room(out.len() + 2, out.len() * 512);
        let mut ended = Vec::new();
        for (run, item) in out {
            if self.feed.newest.get(&run) == Some(&item.revision) {
                self.feed.newest.remove(&run);
                self.commits.delete(outbox::key(PUBLIC, run));
                ended.extend(item.ended.map(|id| (id.as_str().to_owned(), run)));
            }
        }
        if !ended.is_empty() {
            self.expire_later(ended);
        }
    }
}

fn public_instance(id: &InstanceId, row: &InstanceRow, status: &str) -> PublicInstance {
    PublicInstance {
        run_number: row.run_number,
        instance_id: id.as_str().to_owned(),
        execution_id: format!("{id}/{}", row.run_number),
        workflow: row.definition.clone(),
        version: row.version.clone(),
        status: status.to_owned(),
        correlation_id: row.correlation_id.clone(),
        entity_id: row.entity_id.clone(),
        created_at: row.created_at,
        updated_at: row.updated_at,
        input: None,
        output: None,
        error: None,
    }
}

fn status_text(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Pending => "Pending",
        RunStatus::Running => "Running",
        RunStatus::Suspended => "Suspended",
        RunStatus::Completed => "Completed",
        RunStatus::Failed => "Failed",
        RunStatus::Terminated => "Terminated",
        RunStatus::Parked => "Parked",
        RunStatus::Purged => "Purged",
    }
}

//! The public table of instances, fed after the truth: a marker per run that changed, the newest durable state of each, deleted when it is there.
//!
//! A state that was overtaken before it was sent is not sent, so short runs are written once. An ended run whose row is there gets its
//! expiry in the same commit that deletes the marker. A revision is a sequence number of the shard, and durable before it is used: the next
//! owner's are higher, so no state that this one sends can hide a later one.

mod recovered;
mod row;
mod shown;

use std::collections::{BTreeMap, HashMap};

use abide_store::public::{PublicKey, PublicRow, PublicWrite, TableSchema};
use abide_store::tables::encode;
use abide_store::tables::engine_dlq::{self, DeadLetter};
use abide_store::tables::expiries::{self, EndedRun, Expired, Expiry};
use abide_store::tables::instances::{Instance as InstanceRow, RunStatus};
use abide_store::tables::outbox::{self, Outgoing, PUBLIC};
use abide_store::tables::public_instances;
use abide_workflow::{InstanceId, Status, Timestamp};
use serde::{Deserialize, Serialize};

use super::commits::After;
use super::slot::{Known, Run, Slot, is_over};
use super::{Shard, back_off, later, planted};
use crate::event::Effect;
use crate::lease::Monotonic;
use crate::post;

pub(crate) use shown::Unshown;

use row::{error_of, public_instance, status_text};

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
    /// The run, if this is its last state: it is kept for a while from when its row is there.
    ended: Option<EndedRun>,
}

impl FeedItem {
    fn of_run(write: PublicWrite, revision: u64, ended: Option<EndedRun>) -> Self {
        Self { table: &public_instances::SCHEMA, write, revision, ended }
    }
}

/// Public rows on their way.
#[derive(Debug, Default)]
pub(super) struct Feed {
    waiting: BTreeMap<u64, FeedItem>,
    since: Option<Monotonic>,
    out: BTreeMap<u64, FeedItem>,
    retry: Option<(Monotonic, u32)>,
    linger: std::time::Duration,
    /// Runs with a marker, and what is the newest to be shown of each.
    newest: HashMap<u64, Newest>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Newest {
    revision: u64,
    /// The last one that this owner has shown since there is a marker; 0 if none.
    shown: u64,
    /// The run is to be hidden.
    gone: bool,
    /// Why it failed, which the row of its id does not say.
    error: Option<String>,
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

    fn has_marker(&self, run: u64) -> bool {
        self.newest.contains_key(&run)
    }

    /// Whether the run is to be shown in a state that may not be in public yet.
    pub(super) fn is_to_be_shown(&self, run: u64) -> bool {
        self.newest.get(&run).is_some_and(|newest| !newest.gone)
    }

    fn is_newest(&self, run: u64, item: &FeedItem) -> bool {
        self.newest.get(&run).is_some_and(|newest| newest.revision == item.revision)
    }
}

impl Shard {
    /// The run's state is to be seen in public.
    pub(super) fn mark_for_feed(&mut self, run: &Run) {
        let id = run.instance.origin().instance_id.clone();
        self.mark(&id, &run.row, status_text(run.row.status), error_of(run));
    }

    /// As [`Self::mark_for_feed`], for a run of which only the row is known.
    pub(super) fn mark_row_for_feed(&mut self, id: &InstanceId, row: &InstanceRow) {
        self.mark(id, row, status_text(row.status), None);
    }

    fn mark(&mut self, id: &InstanceId, row: &InstanceRow, status: &str, error: Option<String>) {
        if !self.feed.has_marker(row.run) {
            self.write_marker(row.run, &Marker::Current(id.as_str().to_owned()));
        }
        self.send_state(id, row, status, error);
    }

    /// Another run takes the id over: what this one came to must be known without its row.
    pub(super) fn feed_last(&mut self, run: &Run) {
        let id = run.instance.origin().instance_id.clone();
        let status = match run.instance.status() {
            Status::ContinuedAsNew => "ContinuedAsNew",
            _ => status_text(run.row.status),
        };
        let public = self.send_state(&id, &run.row, status, error_of(run));
        self.write_marker(run.row.run, &Marker::Last(public, id.as_str().to_owned()));
    }

    /// As [`Self::feed_last`], for whatever is known of the run that was there, if its public row is still on its way.
    pub(super) fn feed_replaced(&mut self, id: &InstanceId, slot: &Slot) {
        let row = match &slot.known {
            Known::Run(run) => return self.feed_last(run),
            Known::Row(Some(row)) => row.clone(),
            Known::Unreadable { row: Some(row), .. } => (**row).clone(),
            _ => return,
        };
        if row.status == RunStatus::Purged || !self.feed.has_marker(row.run) {
            return;
        }
        let error = self.feed.newest.get(&row.run).and_then(|newest| newest.error.clone());
        let public = self.send_state(id, &row, status_text(row.status), error);
        self.write_marker(row.run, &Marker::Last(public, id.as_str().to_owned()));
    }

    /// A run is not to be seen any more: not in this revision, nor in an older one.
    pub(super) fn feed_gone(&mut self, run: u64, key: PublicKey, revision: u64) {
        // Two expiries of one run may come at about the same time; the one of its later end says all.
        if self.feed.newest.get(&run).is_some_and(|newest| newest.gone && newest.revision >= revision) {
            return;
        }
        self.write_marker(run, &Marker::Gone(key.clone()));
        let item = FeedItem::of_run(PublicWrite::Delete { key, revision }, revision, None);
        self.send_durably(run, item);
    }

    /// A message was given up: its row will be in the dead-letter queue, under a number that is no run's.
    pub(super) fn feed_dead_letter(&mut self, number: u64, letter: &DeadLetter) {
        let row = letter.to_row(1);
        self.write_marker(number, &Marker::Dead(row.clone()));
        let (write, revision) = (PublicWrite::Put(row), self.next_sequence());
        self.send_durably(number, FeedItem { table: &engine_dlq::SCHEMA, write, revision, ended: None });
    }

    fn write_marker(&mut self, run: u64, marker: &Marker) {
        let outgoing = Outgoing { created_at: self.now.wall.0, message: post::encode(marker) };
        self.commits.put(outbox::key(PUBLIC, run), encode(&outgoing));
    }

    /// Sends a state of a run with a revision of its own.
    fn send_state(
        &mut self,
        id: &InstanceId,
        row: &InstanceRow,
        status: &str,
        error: Option<String>,
    ) -> PublicRow {
        let revision = self.next_sequence();
        let public = public_instance(id, row, status, error).to_row(revision);
        let ended = EndedRun {
            instance_id: id.as_str().to_owned(),
            run: row.run,
            run_number: row.run_number,
            revision,
        };
        let ended = is_over(row.status).then_some(ended);
        self.send_durably(row.run, FeedItem::of_run(PublicWrite::Put(public.clone()), revision, ended));
        public
    }

    /// Sends a state when what is gathered now is durable, and with it the shard's sequence, which has the revision.
    fn send_durably(&mut self, run: u64, item: FeedItem) {
        let (gone, error) = match &item.write {
            PublicWrite::Put(row) => (false, row.text("Error").map(str::to_owned)),
            PublicWrite::Delete { .. } => (true, None),
        };
        let shown = self.feed.newest.get(&run).map_or(0, |newest| newest.shown);
        self.feed.newest.insert(run, Newest { revision: item.revision, shown, gone, error });
        self.commits.then(After::Feed(run, item));
    }

    /// Runs that have ended are kept until then.
    pub(super) fn expire_at(&mut self, at: Timestamp, ended: Vec<EndedRun>) {
        let sequence = self.next_sequence();
        let expiry = Expiry { what: Expired::EndedRuns(ended) };
        self.commits.create(expiries::key(at.0, sequence), encode(&expiry));
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
        if result.is_err() && !planted!(self, PublicRowStale) {
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
            if self.feed.is_newest(run, &item) {
                self.feed.newest.remove(&run);
                self.commits.delete(outbox::key(PUBLIC, run));
                ended.extend(item.ended);
            } else if let Some(newest) = self.feed.newest.get_mut(&run) {
                newest.shown = item.revision;
            }
        }
        if !ended.is_empty() {
            self.expire_at(self.now.wall.plus(self.config.retention), ended);
        }
    }
}

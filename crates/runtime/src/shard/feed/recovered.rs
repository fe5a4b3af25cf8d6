//! Markers that a former owner left: what they stand for is sent again, as it is now.

use abide_store::public::PublicWrite;
use abide_store::tables::engine_dlq;
use abide_store::tables::expiries::EndedRun;
use abide_store::tables::instances::RunStatus;
use abide_store::tables::outbox::{self, PUBLIC};
use abide_store::tables::public_instances;
use abide_workflow::InstanceId;

use super::row::{error_of, status_text};
use super::{FeedItem, Marker, Newest};
use crate::post;
use crate::shard::Shard;
use crate::shard::slot::{Item, Known, Slot};

impl Shard {
    /// A marker that a former owner left.
    pub(in crate::shard) fn found_feed(&mut self, run: u64, message: &[u8]) -> Result<(), String> {
        let revision = self.next_sequence();
        match post::decode(message).map_err(|error| error.to_string())? {
            Marker::Current(id) => {
                let id = InstanceId::new(id).map_err(|error| error.to_string())?;
                self.feed.newest.insert(run, Newest { revision, shown: 0, gone: false, error: None });
                self.take_up_later(self.now.wall.0, run, id, Item::Feed { run, revision, whole: false });
            }
            Marker::Last(row, instance_id) => {
                let run_number = public_instances::run_number(&row.key).unwrap_or(0);
                let ended = Some(EndedRun { instance_id, run, run_number, revision: row.revision });
                self.send_durably(run, FeedItem::of_run(PublicWrite::Put(row), revision, ended));
            }
            Marker::Gone(key) => {
                let item = FeedItem::of_run(PublicWrite::Delete { key, revision }, revision, None);
                self.send_durably(run, item);
            }
            Marker::Dead(row) => {
                let write = PublicWrite::Put(row);
                self.send_durably(run, FeedItem { table: &engine_dlq::SCHEMA, write, revision, ended: None });
            }
        }
        Ok(())
    }

    /// Sends the state of a run whose marker was found. `whole` if the run was looked for, not only its row.
    pub(in crate::shard) fn serve_feed(
        &mut self,
        id: &InstanceId,
        slot: &mut Slot,
        (run, revision): (u64, u64),
        whole: bool,
    ) {
        // Whatever came first has sent a newer state: another run may have its id by now.
        if self.feed.newest.get(&run).is_none_or(|newest| newest.revision != revision) {
            return;
        }
        let (row, error) = match &slot.known {
            Known::Row(Some(row)) => (row.clone(), None),
            Known::Run(run) => (run.row.clone(), error_of(run)),
            Known::Unreadable { row: Some(row), .. } => ((**row).clone(), None),
            Known::Row(None) => return self.drop_marker(id, run),
            _ => return,
        };
        if row.run != run {
            return self.drop_marker(id, run);
        }
        // Why it failed is in the run, not in the row of its id.
        if row.status == RunStatus::Failed && matches!(slot.known, Known::Row(_)) && !whole {
            slot.items.push_front(Item::Feed { run, revision, whole: true });
            self.waiting += 1;
            return;
        }
        self.send_state(id, &row, status_text(row.status), error);
    }

    /// The marker of a run that its id does not lead to. Whatever replaces a run changes its marker too, so there should be none.
    fn drop_marker(&mut self, id: &InstanceId, run: u64) {
        self.feed.newest.remove(&run);
        self.commits.delete(outbox::key(PUBLIC, run));
        let instance_id = id.as_str().to_owned();
        let ended = EndedRun { instance_id, run, run_number: 0, revision: 0 };
        self.expire_at(self.now.wall.plus(self.config.retention), vec![ended]);
    }
}

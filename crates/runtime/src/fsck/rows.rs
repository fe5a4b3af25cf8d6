//! Every row by itself: it can be read, and it belongs to somebody.

use std::collections::BTreeSet;

use abide_store::rows::{Key, PrivateRows, Row};
use abide_store::tables::arrivals::Arrival;
use abide_store::tables::dispatches::{self, Dispatch};
use abide_store::tables::earlier_runs::{self, EarlierRun};
use abide_store::tables::expiries::{self, Expired, Expiry};
use abide_store::tables::instances::{self, RunStatus};
use abide_store::tables::timers::{Timer, TimerKey, TimerPurpose};
use abide_store::tables::{Table, decode, inbox, outbox, pages, parts, payloads};
use abide_workflow::InstanceId;

use super::{Check, FsckError, Known};
use crate::post::{self, Letter, Post};

impl<S: PrivateRows> Check<'_, S> {
    pub(super) async fn instance(&mut self, row: &Row) -> Result<(), FsckError> {
        self.report.instances += 1;
        let (id, decoded) = match (instances::read_key(&row.key), decode::<instances::Instance>(&row.value)) {
            (Ok(id), Ok(decoded)) => (id, decoded),
            (_, Err(error)) | (Err(error), _) => {
                self.find(None, format!("the row of an instance: {error}"));
                return Ok(());
            }
        };
        let Ok(name) = InstanceId::new(id.clone()) else {
            self.find(Some(&id), "its id is none");
            return Ok(());
        };
        let parked = decoded.status == RunStatus::Parked;
        self.report.parked += u64::from(parked);
        let stored = match decoded.status {
            RunStatus::Purged => None,
            _ => match self.reader.run(&self.partition, &name).await? {
                Ok(stored) => stored,
                Err(unreadable) => {
                    if parked {
                        self.children.live.insert(id.clone());
                    }
                    if !parked && decoded.status != RunStatus::Terminated {
                        self.find(Some(&id), format!("it cannot be read: {}", unreadable.reason));
                    }
                    None
                }
            },
        };
        let known = Known { id, stored, timers: BTreeSet::new(), notes: 0 };
        self.runs.insert(decoded.run, known);
        Ok(())
    }

    pub(super) fn expiry(&mut self, row: &Row) {
        match decode::<Expiry>(&row.value).map(|expiry| expiry.what) {
            Ok(Expired::Run(run)) => {
                self.deleting.insert(run);
            }
            Ok(Expired::Ended(ended)) => self.expiring.extend(ended.into_iter().map(|(_, run)| run)),
            Ok(Expired::EndedRuns(ended)) => self.expiring.extend(ended.into_iter().map(|ended| ended.run)),
            Ok(_) => {}
            Err(error) => self.find(None, format!("an expiry: {error}")),
        }
        if let Err(error) = expiries::read_key(&row.key) {
            self.find(None, format!("an expiry: {error}"));
        }
    }

    pub(super) fn marker(&mut self, row: &Row) {
        if let Ok((target, run)) = outbox::read_key(&row.key)
            && target == outbox::PUBLIC
        {
            self.marked.insert(run);
        }
    }

    /// A row that must belong to somebody.
    pub(super) fn row(&mut self, row: &Row) {
        let of_run = |key: &Key| match Table::of(key) {
            Some(Table::Page) => pages::read_key(key).ok().map(|(run, _)| run),
            Some(Table::Part) => {
                decode(&row.value).ok().and_then(|part| parts::read_key(key, &part).ok()).map(|(run, _)| run)
            }
            Some(Table::Payload) => payloads::read_key(key).ok().map(|(run, _)| run),
            _ => None,
        };
        match Table::of(&row.key) {
            Some(Table::Page | Table::Part | Table::Payload) => match of_run(&row.key) {
                None => self.find(None, format!("row {} cannot be read", row.key)),
                Some(run)
                    if !self.runs.contains_key(&run)
                        && !self.expiring.contains(&run)
                        && !self.deleting.contains(&run) =>
                {
                    // A run that was replaced and is not yet seen in public has no expiry yet.
                    if !self.marked.contains(&run) {
                        self.find(None, format!("row {} belongs to run {run}, which nobody knows", row.key));
                    }
                }
                Some(_) => {}
            },
            Some(Table::EarlierRun) => self.earlier(row),
            Some(Table::Timer) => self.timer(row),
            Some(Table::Dispatch) => self.dispatch(row),
            Some(Table::Inbox) => self.message(row),
            Some(Table::Outbox) => self.outgoing(row),
            Some(_) => {}
            None => self.find(None, format!("row {} is of no table", row.key)),
        }
    }

    /// A run that was replaced is kept for a while, or its last public row is still on its way. One that is being deleted is not found any more.
    fn earlier(&mut self, row: &Row) {
        let (id, number, run) = match (earlier_runs::read_key(&row.key), decode::<EarlierRun>(&row.value)) {
            (Ok(read), Ok(_)) => read,
            (_, Err(error)) | (Err(error), _) => return self.find(None, format!("an earlier run: {error}")),
        };
        let kept = self.expiring.contains(&run) || self.marked.contains(&run);
        if self.runs.contains_key(&run) || self.deleting.contains(&run) || !kept {
            self.find(
                Some(&id),
                format!("run {number} is found as an earlier one, and is none that is kept"),
            );
        }
    }

    fn timer(&mut self, row: &Row) {
        let (key, timer) = match (TimerKey::read(&row.key), decode::<Timer>(&row.value)) {
            (Ok(key), Ok(timer)) => (key, timer),
            (_, Err(error)) | (Err(error), _) => return self.find(None, format!("a timer: {error}")),
        };
        let wanted = self.runs.get(&key.run).and_then(|known| known.stored.as_ref()).is_some_and(|stored| {
            match key.purpose {
                TimerPurpose::StuckAfter => stored.book.stuck_at == Some(key.due_at),
                _ => stored.book.timers.get(&abide_workflow::CommandId(key.number)) == Some(&key.due_at),
            }
        });
        match self.runs.get_mut(&key.run) {
            Some(known) if wanted => {
                known.timers.insert(key);
            }
            // Nothing can be said of what cannot be read.
            Some(known) if known.stored.is_none() => {}
            _ => self.find(Some(&timer.instance_id), format!("timer {key:?} is waited for by nobody")),
        }
    }

    fn dispatch(&mut self, row: &Row) {
        let (run, call) = match (dispatches::read_key(&row.key), decode::<Dispatch>(&row.value)) {
            (Ok((run, _)), Ok(call)) => (run, call),
            (_, Err(error)) | (Err(error), _) => return self.find(None, format!("a call: {error}")),
        };
        let known = self.runs.get(&run);
        let stored = known.and_then(|known| known.stored.as_ref());
        let expected =
            stored.is_some_and(|stored| stored.instance.expects(abide_workflow::CommandId(call.command)));
        if !expected && known.is_none_or(|known| known.stored.is_some()) {
            self.find(
                Some(&call.instance_id),
                format!("call {} of {} is waited for by nobody", call.command, call.activity),
            );
        }
    }

    fn message(&mut self, row: &Row) {
        let waiting = match decode::<inbox::Waiting>(&row.value) {
            Ok(waiting) => waiting,
            Err(error) => return self.find(None, format!("a message: {error}")),
        };
        match post::decode::<Post>(&waiting.message) {
            Ok(post) => {
                self.children.note_post(&waiting.instance_id, &post);
                if let Post::Continue { run } = post
                    && let Some(known) = self.runs.get_mut(&run)
                {
                    known.notes += 1;
                }
            }
            Err(error) => self.find(Some(&waiting.instance_id), error.to_string()),
        }
    }

    fn outgoing(&mut self, row: &Row) {
        let (target, _) = match outbox::read_key(&row.key) {
            Ok(read) => read,
            Err(error) => return self.find(None, error.to_string()),
        };
        if target == outbox::PUBLIC {
            return;
        }
        let letter = decode::<outbox::Outgoing>(&row.value)
            .map_err(|error| error.to_string())
            .and_then(|out| post::decode::<Letter>(&out.message).map_err(|error| error.to_string()));
        match letter {
            Ok(letter) => self.children.note_post(letter.instance_id.as_str(), &letter.post),
            Err(reason) => self.find(None, reason),
        }
    }

    /// A message from elsewhere that nobody has taken over.
    pub(super) fn arrival(&mut self, row: &Row) {
        let letter = decode::<Arrival>(&row.value)
            .map_err(|error| error.to_string())
            .and_then(|arrival| post::decode::<Letter>(&arrival.message).map_err(|error| error.to_string()));
        match letter {
            Ok(letter) => self.children.note_post(letter.instance_id.as_str(), &letter.post),
            Err(reason) => self.find(None, format!("an arrival: {reason}")),
        }
    }
}

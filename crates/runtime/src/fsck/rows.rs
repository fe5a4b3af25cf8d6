//! Checks the rows of runs one by one: each is readable and belongs to a known run. Which runs are known is collected
//! first, from the instance, expiry and outbox rows.
//!
//! Other rows, such as those of entities and stored replies, are not decoded. Runs as a whole, and links between runs,
//! are checked elsewhere; for these checks, timers and messages are noted here.

use std::collections::BTreeSet;

use abide_ids::RunId;
use abide_store::rows::{Key, PrivateRows, Row};
use abide_store::tables::calls::{self, CallRow};
use abide_store::tables::earlier_runs::{self, EarlierRunRow};
use abide_store::tables::expiries::{self, ExpiryRow, ExpiryTarget};
use abide_store::tables::inbound::InboundRow;
use abide_store::tables::instances::{self, RunStatus};
use abide_store::tables::timers::{TimerKey, TimerPurpose, TimerRow};
use abide_store::tables::{TableId, decode, history_pages, inbox, outbox, parts, payloads};
use abide_workflow::InstanceId;

use super::{CheckedRun, FsckError, ShardCheck};
use crate::run::StuckWatch;
use crate::run_message::{self, AddressedMessage, RunMessage};

impl<S: PrivateRows> ShardCheck<'_, S> {
    /// Loads the current run of an instance, for the checks of other rows. An unreadable run is a finding, unless it is
    /// parked or was terminated.
    pub(super) async fn check_instance(&mut self, row: &Row) -> Result<(), FsckError> {
        let (id, decoded) =
            match (instances::read_key(&row.key), decode::<instances::InstanceRow>(&row.value)) {
                (Ok(id), Ok(decoded)) => (id, decoded),
                (_, Err(error)) | (Err(error), _) => {
                    self.report.instances += 1;
                    self.add_finding(None, format!("instance row: {error}"));
                    return Ok(());
                }
            };
        // What was purged is no instance any more, although its row stays for a time.
        self.report.instances += u64::from(decoded.status != RunStatus::Purged);
        let Ok(name) = InstanceId::new(id.clone()) else {
            self.add_finding(Some(&id), "invalid instance id");
            return Ok(());
        };
        let parked = decoded.status == RunStatus::Parked;
        self.report.parked += u64::from(parked);
        let stored = match decoded.status {
            RunStatus::Purged => None,
            _ => match self.reader.load_run(&self.partition, &name).await? {
                Ok(stored) => stored,
                Err(unreadable) => {
                    if parked {
                        self.children.live_instances.insert(id.clone());
                    }
                    if !parked && decoded.status != RunStatus::Terminated {
                        self.add_finding(Some(&id), format!("unreadable run: {}", unreadable.reason));
                    }
                    None
                }
            },
        };
        let run = CheckedRun { id, stored, timers: BTreeSet::new(), continue_messages: 0 };
        self.runs.insert(decoded.run_id, run);
        Ok(())
    }

    /// Collects the runs of an expiry row: ended runs, current or earlier, that are kept for a time, and runs whose
    /// rows are being deleted. The checks of other rows need those of all expiry rows.
    pub(super) fn collect_expiry(&mut self, row: &Row) {
        match decode::<ExpiryRow>(&row.value).map(|expiry| expiry.target) {
            Ok(ExpiryTarget::Run(run)) => {
                self.deleting.insert(run);
            }
            Ok(ExpiryTarget::EndedRunsUnnumbered(ended)) => {
                self.expiring.extend(ended.into_iter().map(|(_, run)| run))
            }
            Ok(ExpiryTarget::EndedRuns(ended) | ExpiryTarget::RetainedRuns { runs: ended, .. }) => {
                self.expiring.extend(ended.into_iter().map(|ended| ended.run_id))
            }
            Ok(_) => {}
            Err(error) => self.add_finding(None, format!("expiry row: {error}")),
        }
        if let Err(error) = expiries::read_key(&row.key) {
            self.add_finding(None, format!("expiry row: {error}"));
        }
    }

    /// Collects the run of an index marker: an earlier run may have no expiry row yet.
    pub(super) fn collect_index_marker(&mut self, row: &Row) {
        if let Ok((target, number)) = outbox::read_key(&row.key)
            && target == outbox::PUBLIC_INDEX_TARGET
        {
            self.index_pending.insert(RunId(number.0));
        }
    }

    /// Checks a row of the shard's own partition by its table, once all known runs are collected.
    pub(super) fn check_row(&mut self, row: &Row) {
        let of_run = |key: &Key| match TableId::of_key(key) {
            Some(TableId::HistoryPage) => history_pages::read_key(key).ok().map(|(run, _)| run),
            Some(TableId::Part) => {
                decode(&row.value).ok().and_then(|part| parts::read_key(key, &part).ok()).map(|(run, _)| run)
            }
            Some(TableId::Payload) => payloads::read_key(key).ok().map(|(run, _)| run),
            _ => None,
        };
        match TableId::of_key(&row.key) {
            Some(TableId::HistoryPage | TableId::Part | TableId::Payload) => match of_run(&row.key) {
                None => self.add_finding(None, format!("unreadable row {}", row.key)),
                Some(run)
                    if !self.runs.contains_key(&run)
                        && !self.expiring.contains(&run)
                        && !self.deleting.contains(&run) =>
                {
                    // A replaced run has no expiry row before its last public row is written.
                    if !self.index_pending.contains(&run) {
                        self.add_finding(None, format!("orphaned row {}: there is no run {run}", row.key));
                    }
                }
                Some(_) => {}
            },
            Some(TableId::EarlierRun) => self.check_earlier_run(row),
            Some(TableId::Timer) => self.check_timer(row),
            Some(TableId::Call) => self.check_call(row),
            Some(TableId::Inbox) => self.check_inbox_message(row),
            Some(TableId::Outbox) => self.check_outgoing(row),
            Some(_) => {}
            None => self.add_finding(None, format!("row {} belongs to no known table", row.key)),
        }
    }

    /// An earlier run has an expiry row, or its last public row is not yet written. A run that is being deleted must
    /// not have an earlier-run row any more.
    fn check_earlier_run(&mut self, row: &Row) {
        let (id, number, run) = match (earlier_runs::read_key(&row.key), decode::<EarlierRunRow>(&row.value))
        {
            (Ok(read), Ok(_)) => read,
            (_, Err(error)) | (Err(error), _) => {
                return self.add_finding(None, format!("earlier-run row: {error}"));
            }
        };
        let is_retained = self.expiring.contains(&run) || self.index_pending.contains(&run);
        if self.runs.contains_key(&run) || self.deleting.contains(&run) || !is_retained {
            self.add_finding(
                Some(&id),
                format!("earlier-run row of run {number}, which is not a retained earlier run"),
            );
        }
    }

    /// A current run must wait for the timer. Notes it in the run: [`Self::check_run`] looks for missing ones.
    fn check_timer(&mut self, row: &Row) {
        let (key, timer) = match (TimerKey::from_key(&row.key), decode::<TimerRow>(&row.value)) {
            (Ok(key), Ok(timer)) => (key, timer),
            (_, Err(error)) | (Err(error), _) => {
                return self.add_finding(None, format!("timer row: {error}"));
            }
        };
        let is_awaited =
            self.runs.get(&key.run_id).and_then(|run| run.stored.as_ref()).is_some_and(|stored| {
                match key.purpose {
                    TimerPurpose::StuckCheck => {
                        stored.bookkeeping.stuck_watch == Some(StuckWatch::Due(key.due_at))
                    }
                    _ => {
                        key.command.and_then(|command| stored.bookkeeping.timers.get(&command))
                            == Some(&key.due_at)
                    }
                }
            });
        match self.runs.get_mut(&key.run_id) {
            Some(run) if is_awaited => {
                run.timers.insert(key);
            }
            // The timers of an unreadable run are not known.
            Some(run) if run.stored.is_none() => {}
            _ => self.add_finding(
                Some(&timer.instance_id),
                format!(
                    "orphaned timer {:?} of run {}, due {}: no run waits for it",
                    key.purpose, key.run_id, key.due_at
                ),
            ),
        }
    }

    /// A current run must wait for the call. [`Self::check_run`] looks for missing ones.
    fn check_call(&mut self, row: &Row) {
        let (run_id, call) = match (calls::read_key(&row.key), decode::<CallRow<'_>>(&row.value)) {
            (Ok((run_id, _)), Ok(call)) => (run_id, call),
            (_, Err(error)) | (Err(error), _) => {
                return self.add_finding(None, format!("call record: {error}"));
            }
        };
        let run = self.runs.get(&run_id);
        let is_orphaned = match run.map(|run| &run.stored) {
            None => true,
            // The calls of an unreadable run are not known.
            Some(None) => false,
            Some(Some(stored)) => !stored.instance.awaits_command(call.command),
        };
        if is_orphaned {
            self.add_finding(
                Some(&call.instance_id),
                format!(
                    "orphaned call #{} of activity {:?}, run {run_id}: no run waits for it",
                    call.command, call.activity
                ),
            );
        }
    }

    /// Checks that a message can be read. Notes that it is in flight, or that it will continue its run.
    fn check_inbox_message(&mut self, row: &Row) {
        let inbox_row = match decode::<inbox::InboxRow>(&row.value) {
            Ok(inbox_row) => inbox_row,
            Err(error) => return self.add_finding(None, format!("inbox row: {error}")),
        };
        match run_message::decode::<RunMessage>(&inbox_row.message) {
            Ok(message) => {
                self.children.record_message(&inbox_row.instance_id, &message);
                if let RunMessage::Continue { run_id } = message
                    && let Some(run) = self.runs.get_mut(&run_id)
                {
                    run.continue_messages += 1;
                }
            }
            Err(error) => self.add_finding(Some(&inbox_row.instance_id), error.to_string()),
        }
    }

    /// Checks that a message to another shard can be read, and notes that it is in flight.
    fn check_outgoing(&mut self, row: &Row) {
        let (target, _) = match outbox::read_key(&row.key) {
            Ok(read) => read,
            Err(error) => return self.add_finding(None, error.to_string()),
        };
        if target == outbox::PUBLIC_INDEX_TARGET {
            return;
        }
        let addressed =
            decode::<outbox::OutboxRow>(&row.value).map_err(|error| error.to_string()).and_then(|out| {
                run_message::decode::<AddressedMessage>(&out.message).map_err(|error| error.to_string())
            });
        match addressed {
            Ok(addressed) => self.children.record_message(addressed.instance_id.as_str(), &addressed.message),
            Err(reason) => self.add_finding(None, reason),
        }
    }

    /// Checks a message from another shard that this shard has not accepted yet.
    pub(super) fn check_inbound(&mut self, row: &Row) {
        let addressed =
            decode::<InboundRow>(&row.value).map_err(|error| error.to_string()).and_then(|inbound| {
                run_message::decode::<AddressedMessage>(&inbound.message).map_err(|error| error.to_string())
            });
        match addressed {
            Ok(addressed) => self.children.record_message(addressed.instance_id.as_str(), &addressed.message),
            Err(reason) => self.add_finding(None, format!("inbound message: {reason}")),
        }
    }
}

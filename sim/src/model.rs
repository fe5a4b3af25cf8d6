//! The model: the state that the store has reached, commit by commit. It knows which runs began, how each ended and
//! what was deleted.
//!
//! No reply to a client and no public row may say anything that is not in the model yet.

use std::collections::{BTreeMap, BTreeSet};

use abide_ids::{RunId, RunNumber};
use abide_runtime::placement::ShardId;
use abide_runtime::request::{RequestError, ShardReply, ViewStatus};
use abide_store::public::PublicRow;
use abide_store::rows::{Batch, Partition};
use abide_store::tables::calls::{CallRow, CallRowState};
use abide_store::tables::expiries::{ExpiryRow, ExpiryTarget};
use abide_store::tables::instances::{self, InstanceRow, RunStatus};
use abide_store::tables::{TableId, calls, decode, public_instances};

use crate::clients::{ClientStep, is_ended_error};
use crate::cluster::Cluster;
use crate::run_history::{RunEnd, RunHistory};

/// Every instance that ever existed.
#[derive(Debug, Default)]
pub(crate) struct ClusterModel {
    pub(crate) instances: BTreeMap<String, ModelInstance>,
    /// By execution: the highest number of attempts of one call that were ever recorded. A node may record an attempt
    /// and crash before it sends it.
    pub(crate) recorded_attempts: BTreeMap<String, u32>,
    /// Instances that a head named when the owner of their shard ended uncleanly: they may be blamed for that.
    pub(crate) named_at_end: BTreeSet<String>,
}

#[derive(Debug, Default)]
pub(crate) struct ModelInstance {
    /// In the order in which they began.
    pub(crate) runs: Vec<ModelRun>,
    /// True if it was ever purged.
    pub(crate) purged: bool,
    /// True if its row is deleted: run numbers then start again at 1.
    pub(crate) deleted: bool,
    /// How often it was reported as stuck.
    pub(crate) stuck: usize,
    /// The instance that a client started; for a child, that of its parent.
    pub(crate) root_instance: String,
}

#[derive(Debug)]
pub(crate) struct ModelRun {
    pub(crate) run_id: RunId,
    pub(crate) number: RunNumber,
    /// The last status in its instance row.
    pub(crate) status: RunStatus,
    /// How it ended, and its history until then.
    pub(crate) outcome: Option<(RunEnd, RunHistory)>,
    /// True if it had failed and was rewound.
    pub(crate) rewound: bool,
}

impl ClusterModel {
    pub(crate) fn run(&self, id: &str, number: RunNumber) -> Option<&ModelRun> {
        self.instances.get(id)?.runs.iter().rev().find(|run| run.number == number)
    }

    pub(crate) fn all_ended(&self) -> bool {
        self.live().next().is_none()
    }

    /// Instances whose last run has not ended.
    pub(crate) fn live(&self) -> impl Iterator<Item = (&String, &ModelRun)> {
        let last = |(id, instance)| Some((id, ModelInstance::last(instance)?));
        self.instances.iter().filter_map(last).filter(|(_, run)| run.outcome.is_none())
    }

    /// Describes a reply that contradicts the model. `began`: an earlier reply said that the client's run began.
    pub(crate) fn contradiction_in_reply(&self, id: &str, reply: &ShardReply, began: bool) -> Option<String> {
        let instance = self.instances.get(id);
        let wrong = match reply {
            ShardReply::Started(started) => self.run(id, started.run_number).is_none(),
            ShardReply::Refused(RequestError::AlreadyRunning { run_number: run, .. }) => {
                self.run(id, *run).is_none()
            }
            ShardReply::Ended(view) => {
                let end = self.run(id, view.run_number).and_then(|run| run.outcome.as_ref());
                end.is_none_or(|(end, _)| view.status != ViewStatus::Run(end.status()))
            }
            ShardReply::Purged => instance.is_none_or(|instance| !instance.purged),
            ShardReply::Refused(RequestError::NotFound { .. }) => {
                began && instance.is_none_or(|instance| !instance.purged)
            }
            reply if is_ended_error(reply) => {
                instance.is_none_or(|instance| instance.runs.iter().all(|run| run.outcome.is_none()))
            }
            _ => false,
        };
        wrong.then(|| format!("{id}: its client got the reply {reply:?}, which contradicts the store"))
    }

    /// Describes a public row that contradicts the model.
    pub(crate) fn contradiction_in_row(&self, row: &PublicRow) -> Option<String> {
        let id = &row.key.partition;
        let number = public_instances::read_run_number(&row.key)?;
        let shown = row.text("Status").unwrap_or_default();
        let known = self.run(id, number);
        let over = matches!(shown, "Completed" | "Failed" | "Terminated" | "ContinuedAsNew");
        // The public row with the failure of a rewound run may still be in flight.
        let early =
            known.is_none_or(|run| over && run.outcome.is_none() && !(run.rewound && shown == "Failed"));
        early.then(|| format!("{id}/{number} is public as {shown}, which contradicts the store"))
    }
}

impl ModelInstance {
    pub(crate) fn last(&self) -> Option<&ModelRun> {
        self.runs.last()
    }

    /// Marks all its runs as purged, not only the last one.
    fn purge(&mut self) {
        self.purged = true;
        self.runs.iter_mut().for_each(|run| run.status = RunStatus::Purged);
    }
}

/// Updates the model with a commit that was applied.
pub(crate) fn on_commit(cluster: &mut Cluster, shard: ShardId, batch: &Batch) {
    let Ok(partition) = shard.partition() else { return };
    let swept = swept_runs(batch);
    for write in &batch.writes {
        if let (Some(TableId::Call), Some(value)) = (TableId::of_key(&write.key), &write.value)
            && let Ok(call) = decode::<CallRow>(value)
            && call.state == CallRowState::Sent
        {
            let execution = format!("{}/{}", call.instance_id, call.run_number);
            let recorded = cluster.model.recorded_attempts.entry(execution).or_default();
            *recorded = (*recorded).max(call.attempt + 1);
        }
        if TableId::of_key(&write.key) != Some(TableId::Instance) {
            continue;
        }
        let Ok(id) = instances::read_key(&write.key) else { continue };
        match &write.value {
            None => on_instance_deleted(cluster, &id),
            Some(value) => match decode::<InstanceRow>(value) {
                Ok(row) => {
                    let InstanceRow { run_id: run, run_number, status, .. } = &row;
                    cluster.trace_instance(&id, || {
                        format!("its row says: run {run_number} (run id {run}) is {status:?}")
                    });
                    on_instance_written(cluster, &partition, &id, &row, &swept);
                }
                Err(error) => cluster.violations.push(format!("{id}: {error}")),
            },
        }
    }
}

/// The ids of runs that this commit marks for deletion.
fn swept_runs(batch: &Batch) -> Vec<RunId> {
    let of_expiries =
        batch.writes.iter().filter(|write| TableId::of_key(&write.key) == Some(TableId::Expiry));
    let expiries = of_expiries.filter_map(|write| decode::<ExpiryRow>(write.value.as_ref()?).ok());
    let run = |expiry: ExpiryRow| if let ExpiryTarget::Run(run) = expiry.target { Some(run) } else { None };
    expiries.filter_map(run).collect()
}

fn on_instance_deleted(cluster: &mut Cluster, id: &str) {
    let instance = cluster.model.instances.entry(id.to_owned()).or_default();
    if instance.last().is_none_or(|run| run.status != RunStatus::Purged) {
        cluster.violations.push(format!("{id}: its row was deleted although it had not been purged"));
    }
    instance.deleted = true;
    cluster.counts.deleted_instances += 1;
    cluster.trace_instance(id, || "its row is deleted".to_owned());
}

fn on_instance_written(
    cluster: &mut Cluster,
    partition: &Partition,
    id: &str,
    row: &InstanceRow,
    swept: &[RunId],
) {
    let over = matches!(row.status, RunStatus::Completed | RunStatus::Failed | RunStatus::Terminated);
    let calls = cluster.store.scan_now(partition, calls::of_run(row.run_id));
    if over && calls.is_ok_and(|page| !page.rows.is_empty()) {
        cluster
            .violations
            .push(format!("{id}: run {} is {:?} and still has an open call", row.run_number, row.status));
    }
    let known = cluster.model.instances.get(id).and_then(ModelInstance::last);
    if known.is_none_or(|last| last.run_id != row.run_id) {
        // A purge and the next start may share a commit, which then only has the row of the start.
        if let Some(instance) = cluster.model.instances.get_mut(id)
            && instance.last().is_some_and(|last| swept.contains(&last.run_id))
        {
            instance.purge();
        }
        on_run_started(cluster, partition, id, row);
    }
    let rewinds =
        cluster.clients.iter().any(|client| client.id == id && client.script.contains(&ClientStep::Rewind));
    let ended = over.then(|| run_outcome(cluster, partition, id, row.run_id)).flatten();
    let Some(instance) = cluster.model.instances.get_mut(id) else { return };
    if row.status == RunStatus::Purged {
        instance.purge();
    }
    let Some(run) = instance.runs.last_mut() else { return };
    run.status = row.status;
    if over {
        if ended.is_none() {
            cluster
                .violations
                .push(format!("{id}: its row says {:?}, but its history does not end", row.status));
        }
        run.outcome = ended;
    } else if row.status != RunStatus::Purged && run.outcome.take().is_some() {
        run.rewound = rewinds;
        if !rewinds {
            cluster.violations.push(format!("{id}: run {} had ended and is running again", row.run_number));
        }
    }
}

/// A new run: the previous run has ended, perhaps in the same commit, and run numbers have no gap.
fn on_run_started(cluster: &mut Cluster, partition: &Partition, id: &str, row: &InstanceRow) {
    let last = cluster.model.instances.get(id).and_then(ModelInstance::last);
    let live = last.filter(|last| last.outcome.is_none() && last.status != RunStatus::Purged);
    let previous = live.map(|last| (last.run_id, last.number));
    if let Some((run, number)) = previous {
        let end = run_outcome(cluster, partition, id, run);
        if end.is_none() {
            cluster.violations.push(format!("{id}: a run began while run {number} was still running"));
        }
        let instance = cluster.model.instances.get_mut(id);
        if let Some(last) = instance.and_then(|instance| instance.runs.last_mut()) {
            last.outcome = end;
        }
    }
    let instance = cluster.model.instances.entry(id.to_owned()).or_default();
    let last = instance.last().filter(|_| !instance.deleted);
    let expected = last.map_or(RunNumber::FIRST, |last| last.number.next());
    if row.run_number != expected {
        cluster.violations.push(format!("{id}: run {} began; expected run {expected}", row.run_number));
    }
    instance.deleted = false;
    row.correlation_id.clone_into(&mut instance.root_instance);
    instance.runs.push(ModelRun {
        run_id: row.run_id,
        number: row.run_number,
        status: row.status,
        outcome: None,
        rewound: false,
    });
}

/// The outcome of a run according to its history; `None` if it has not ended.
fn run_outcome(
    cluster: &mut Cluster,
    partition: &Partition,
    id: &str,
    run: RunId,
) -> Option<(RunEnd, RunHistory)> {
    let history = RunHistory::load(&cluster.store, partition, run);
    cluster.violations.extend(history.check().into_iter().map(|violation| format!("{id}: {violation}")));
    Some((history.end.clone()?, history))
}

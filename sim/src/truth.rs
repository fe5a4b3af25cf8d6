//! What the store has come to, commit by commit: which runs began, how each ended, what was forgotten.
//!
//! Clients must not be told, and the public table must not show, what is not here yet.

use std::collections::BTreeMap;

use abide_runtime::placement::ShardId;
use abide_runtime::request::{Refused, Reply, ViewStatus};
use abide_store::public::PublicRow;
use abide_store::rows::{Batch, Partition};
use abide_store::tables::dispatches::{Dispatch, DispatchState};
use abide_store::tables::expiries::{Expired, Expiry};
use abide_store::tables::instances::{self, Instance as InstanceRow, RunStatus};
use abide_store::tables::{Table, decode, dispatches, public_instances};

use crate::clients::{Step, says_ended};
use crate::cluster::Cluster;
use crate::history::{Ending, Story};

/// Every instance there ever was.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    pub(crate) instances: BTreeMap<String, Instance>,
    /// Of each execution, how many deliveries of one call were ever recorded, at most: whoever records one may die before it leaves.
    pub(crate) recorded: BTreeMap<String, u32>,
}

/// An instance.
#[derive(Debug, Default)]
pub(crate) struct Instance {
    /// Its runs, in the order they began.
    pub(crate) runs: Vec<Run>,
    /// Whether it was purged, ever.
    pub(crate) purged: bool,
    /// Whether there is no row of it any more: from then on its runs are numbered anew.
    pub(crate) forgotten: bool,
    /// How often it was called stuck.
    pub(crate) stuck: usize,
    /// The instance whose client wanted it; children have their parent's.
    pub(crate) family: String,
}

/// A run.
#[derive(Debug)]
pub(crate) struct Run {
    /// The shard's number for it.
    pub(crate) run: u64,
    /// Which life of the instance it is.
    pub(crate) number: u32,
    /// What its row said last.
    pub(crate) status: RunStatus,
    /// How it ended, and its story until then.
    pub(crate) end: Option<(Ending, Story)>,
    /// Whether it had failed and was rewound.
    pub(crate) rewound: bool,
}

impl Truth {
    pub(crate) fn run(&self, id: &str, number: u32) -> Option<&Run> {
        self.instances.get(id)?.runs.iter().rev().find(|run| run.number == number)
    }

    /// Whether every run has ended.
    pub(crate) fn all_ended(&self) -> bool {
        self.live().next().is_none()
    }

    /// Instances whose last run has not ended.
    pub(crate) fn live(&self) -> impl Iterator<Item = (&String, &Run)> {
        let last = |(id, instance)| Some((id, Instance::last(instance)?));
        self.instances.iter().filter_map(last).filter(|(_, run)| run.end.is_none())
    }

    /// What a client is told of what is not so. `began` if it was told before that its run began.
    pub(crate) fn contradicts(&self, id: &str, reply: &Reply, began: bool) -> Option<String> {
        let instance = self.instances.get(id);
        let wrong = match reply {
            Reply::Started(started) => self.run(id, started.run.0).is_none(),
            Reply::Refused(Refused::Live { run, .. }) => self.run(id, run.0).is_none(),
            Reply::Ended(view) => {
                let end = self.run(id, view.run.0).and_then(|run| run.end.as_ref());
                end.is_none_or(|(end, _)| view.status != ViewStatus::Run(end.status()))
            }
            Reply::Purged => instance.is_none_or(|instance| !instance.purged),
            Reply::Refused(Refused::NotFound { .. }) => {
                began && instance.is_none_or(|instance| !instance.purged)
            }
            reply if says_ended(reply) => {
                instance.is_none_or(|instance| instance.runs.iter().all(|run| run.end.is_none()))
            }
            _ => false,
        };
        wrong.then(|| format!("{id}: its client was told {reply:?}, and that is not so"))
    }

    /// A row for the public table that shows what is not so.
    pub(crate) fn contradicts_row(&self, row: &PublicRow) -> Option<String> {
        let (id, number) = (&row.key.partition, public_instances::run_number(&row.key)?);
        let shown = row.text("Status").unwrap_or_default();
        let known = self.run(id, number);
        let over = matches!(shown, "Completed" | "Failed" | "Terminated" | "ContinuedAsNew");
        // Of a run that was rewound the row of its failure may still be on its way.
        let early = known.is_none_or(|run| over && run.end.is_none() && !(run.rewound && shown == "Failed"));
        early.then(|| format!("{id}/{number} is shown as {shown}, and that is not so"))
    }
}

impl Instance {
    pub(crate) fn last(&self) -> Option<&Run> {
        self.runs.last()
    }

    /// All its runs are to be forgotten, not only the last one.
    fn purge(&mut self) {
        self.purged = true;
        self.runs.iter_mut().for_each(|run| run.status = RunStatus::Purged);
    }
}

/// Looks at a commit as it is applied.
pub(crate) fn watch(cluster: &mut Cluster, shard: ShardId, batch: &Batch) {
    let Ok(partition) = shard.partition() else { return };
    let swept = swept(batch);
    for write in &batch.writes {
        if let (Some(Table::Dispatch), Some(value)) = (Table::of(&write.key), &write.value)
            && let Ok(call) = decode::<Dispatch>(value)
            && call.state == DispatchState::Sent
        {
            let execution = format!("{}/{}", call.instance_id, call.run_number);
            let recorded = cluster.truth.recorded.entry(execution).or_default();
            *recorded = (*recorded).max(call.attempt + 1);
        }
        if Table::of(&write.key) != Some(Table::Instance) {
            continue;
        }
        let Ok(id) = instances::read_key(&write.key) else { continue };
        match &write.value {
            None => forgotten(cluster, &id),
            Some(value) => match decode::<InstanceRow>(value) {
                Ok(row) => {
                    let InstanceRow { run, run_number, status, .. } = &row;
                    cluster.tell(&id, || format!("its row says that run {run_number} ({run}) is {status:?}"));
                    written(cluster, &partition, &id, &row, &swept);
                }
                Err(error) => cluster.seen.push(format!("{id}: {error}")),
            },
        }
    }
}

/// Runs whose rows are to go from this commit on.
fn swept(batch: &Batch) -> Vec<u64> {
    let of_expiries = batch.writes.iter().filter(|write| Table::of(&write.key) == Some(Table::Expiry));
    let expiries = of_expiries.filter_map(|write| decode::<Expiry>(write.value.as_ref()?).ok());
    let run = |expiry: Expiry| if let Expired::Run(run) = expiry.what { Some(run) } else { None };
    expiries.filter_map(run).collect()
}

fn forgotten(cluster: &mut Cluster, id: &str) {
    let instance = cluster.truth.instances.entry(id.to_owned()).or_default();
    if instance.last().is_none_or(|run| run.status != RunStatus::Purged) {
        cluster.seen.push(format!("{id}: it was forgotten and had not been purged"));
    }
    instance.forgotten = true;
    cluster.counts.forgotten += 1;
    cluster.tell(id, || "it is forgotten".to_owned());
}

fn written(cluster: &mut Cluster, partition: &Partition, id: &str, row: &InstanceRow, swept: &[u64]) {
    let over = matches!(row.status, RunStatus::Completed | RunStatus::Failed | RunStatus::Terminated);
    let calls = cluster.store.scan_now(partition, dispatches::of_run(row.run));
    if over && calls.is_ok_and(|page| !page.rows.is_empty()) {
        cluster.seen.push(format!("{id}: run {} is {:?} while a call is out", row.run_number, row.status));
    }
    let known = cluster.truth.instances.get(id).and_then(Instance::last);
    if known.is_none_or(|last| last.run != row.run) {
        // A purge and the next start may share a commit, which has the row of the start alone.
        if let Some(instance) = cluster.truth.instances.get_mut(id)
            && instance.last().is_some_and(|last| swept.contains(&last.run))
        {
            instance.purge();
        }
        begun(cluster, partition, id, row);
    }
    let rewinds =
        cluster.clients.iter().any(|client| client.id == id && client.script.contains(&Step::Rewind));
    let ended = over.then(|| ending(cluster, partition, id, row.run)).flatten();
    let Some(instance) = cluster.truth.instances.get_mut(id) else { return };
    if row.status == RunStatus::Purged {
        instance.purge();
    }
    let Some(run) = instance.runs.last_mut() else { return };
    run.status = row.status;
    if over {
        if ended.is_none() {
            cluster.seen.push(format!("{id}: its row says {:?}, and the run has not ended", row.status));
        }
        run.end = ended;
    } else if row.status != RunStatus::Purged && run.end.take().is_some() {
        run.rewound = rewinds;
        if !rewinds {
            cluster.seen.push(format!("{id}: run {} had ended and lives again", row.run_number));
        }
    }
}

/// A run that was not there before: the one before has ended, perhaps in the same commit, and the numbers go on.
fn begun(cluster: &mut Cluster, partition: &Partition, id: &str, row: &InstanceRow) {
    let last = cluster.truth.instances.get(id).and_then(Instance::last);
    let lives = last.filter(|last| last.end.is_none() && last.status != RunStatus::Purged);
    let lived = lives.map(|last| (last.run, last.number));
    if let Some((run, number)) = lived {
        let end = ending(cluster, partition, id, run);
        if end.is_none() {
            cluster.seen.push(format!("{id}: a run began while run {number} lived"));
        }
        let instance = cluster.truth.instances.get_mut(id);
        if let Some(last) = instance.and_then(|instance| instance.runs.last_mut()) {
            last.end = end;
        }
    }
    let instance = cluster.truth.instances.entry(id.to_owned()).or_default();
    let last = instance.last().filter(|_| !instance.forgotten);
    let expected = last.map_or(1, |last| last.number + 1);
    if row.run_number != expected {
        cluster.seen.push(format!("{id}: run {} began, not run {expected}", row.run_number));
    }
    instance.forgotten = false;
    row.correlation_id.clone_into(&mut instance.family);
    instance.runs.push(Run {
        run: row.run,
        number: row.run_number,
        status: row.status,
        end: None,
        rewound: false,
    });
}

/// How a run ended, as its history tells it, if it did.
fn ending(cluster: &mut Cluster, partition: &Partition, id: &str, run: u64) -> Option<(Ending, Story)> {
    let story = Story::of(&cluster.store, partition, run);
    cluster.seen.extend(story.check().into_iter().map(|wrong| format!("{id}: {wrong}")));
    Some((story.end.clone()?, story))
}

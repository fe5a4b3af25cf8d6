//! What outlives a process: the store with its definitions, and what can be read from it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use abide_dispatch::IdempotencyKey;
use abide_runtime::definitions::Definitions;
use abide_runtime::fsck;
use abide_runtime::hands::Hands;
use abide_runtime::placement::{ShardCount, ShardId};
use abide_runtime::run::RunReader;
use abide_store::memory::{MemoryStore, Personality};
use abide_store::public::{PublicKey, PublicTables, PublicWrite};
use abide_store::rows::{Batch, CommitOutcome, Partition, Row, Scan};
use abide_store::tables::dispatches::{self, Dispatch, DispatchState};
use abide_store::tables::instances::{self, Instance as InstanceRow};
use abide_store::tables::pages::{self, Page};
use abide_store::tables::timers::{self, TimerKey};
use abide_store::tables::{Table, decode, public_instances};
use abide_workflow::{InstanceId, Outcome, Plan, Timestamp};
use serde_json::Value;

use super::story::{RUN, Story};
use crate::cluster::ready;

/// When every case begins.
pub(super) const EPOCH_MS: i64 = 1_767_225_600_000;
/// How many shards the store has; with so many, a child with a name of its own is not on its parent's.
const SHARDS: u32 = 3;

/// A store and what it is read with.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) store: Arc<MemoryStore>,
    pub(super) definitions: Arc<Definitions<MemoryStore>>,
    pub(super) hands: Hands<MemoryStore>,
    pub(super) shards: ShardCount,
    /// The plan of the first definition.
    pub(super) plan: Arc<Plan>,
    /// Every run there has been: where it lies, and its name.
    runs: BTreeMap<(ShardId, u64), String>,
}

impl Stage {
    /// A new store with these definitions.
    pub(super) fn new(definitions: &[String], activities: &str) -> Result<Self, String> {
        let store = Arc::new(MemoryStore::new(Personality::PLAIN));
        let shards = ShardCount::new(SHARDS).ok_or("no shards")?;
        let published = Arc::new(Definitions::new(Arc::clone(&store)).map_err(|error| error.to_string())?);
        let mut first = None;
        for definition in definitions {
            let publication = ready(published.publish(definition, Some(activities), Timestamp(EPOCH_MS)));
            let (plan, _) = publication.map_err(|error| format!("{error:?}"))?;
            first.get_or_insert(plan);
        }
        let hands = Hands::new(Arc::clone(&store), Arc::clone(&published), shards)
            .map_err(|error| error.to_string())?;
        let plan = first.ok_or("no definition")?;
        Ok(Self { store, definitions: published, hands, shards, plan, runs: BTreeMap::new() })
    }

    /// Forgets everything but the definitions: the next run begins in an empty store, and nothing has to be compiled again.
    pub(super) fn clear(&mut self) -> Result<(), String> {
        for shard in self.shards.shards() {
            let partitions = [shard.partition(), shard.inbox()];
            for partition in partitions {
                let partition = partition.map_err(|error| error.to_string())?;
                loop {
                    let everything = Scan::between(Bound::Unbounded, Bound::Unbounded);
                    let page =
                        self.store.scan_now(&partition, everything).map_err(|error| error.to_string())?;
                    if page.rows.is_empty() {
                        break;
                    }
                    let some = page.rows.into_iter().take(100);
                    let batch =
                        some.fold(Batch::checked(), |batch, row| batch.delete_at(row.key, row.version));
                    let outcome = self.store.commit_now(&partition, &batch);
                    if !matches!(outcome, CommitOutcome::Committed(_)) {
                        return Err(format!("the store could not be emptied: {outcome:?}"));
                    }
                }
            }
        }
        let names = std::mem::take(&mut self.runs).into_values();
        let public =
            names.map(|name| PublicWrite::Delete { key: public_key(&name), revision: u64::MAX }).collect();
        ready(self.store.put(&public_instances::SCHEMA, public)).map_err(|error| error.to_string())
    }

    /// The shard of this number.
    pub(super) fn shard(&self, number: usize) -> ShardId {
        self.shards.shards().nth(number).unwrap_or_else(|| unreachable!("shard {number}"))
    }

    /// Takes note of the runs a commit that was applied writes of.
    pub(super) fn note_commit(&mut self, shard: ShardId, batch: &Batch) {
        for write in &batch.writes {
            if Table::of(&write.key) != Some(Table::Instance) {
                continue;
            }
            let row = write.value.as_ref().and_then(|value| decode::<InstanceRow>(value).ok());
            if let (Some(row), Ok(id)) = (row, instances::read_key(&write.key)) {
                self.runs.insert((shard, row.run), format!("{id}/{}", row.run_number));
            }
        }
    }

    fn partition(&self, shard: ShardId) -> &Partition {
        self.hands.partition(shard).unwrap_or_else(|| unreachable!("{shard}"))
    }

    fn rows(&self, shard: ShardId, scan: Scan) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut next = Some(scan);
        while let Some(scan) = next {
            let Ok(page) = self.store.scan_now(self.partition(shard), scan) else { break };
            rows.extend(page.rows);
            next = page.next;
        }
        rows
    }

    /// What history tells of a run.
    fn history(&self, shard: ShardId, run: u64) -> Vec<Value> {
        let pages = self.rows(shard, pages::of_run(run)).into_iter();
        let pages =
            pages.filter_map(|row| decode::<Page>(&row.value).ok()).filter(|page| page.events_count > 0);
        pages
            .flat_map(|page| serde_json::from_slice::<Vec<Value>>(&page.events).unwrap_or_default())
            .collect()
    }

    /// How many failed deliveries of a call history tells of.
    pub(super) fn answers_taken(&self, shard: ShardId, run: u64, command: u64) -> usize {
        let failed = |event: &&Value| {
            event.get("eventType").and_then(Value::as_str) == Some("TaskFailed")
                && event.get("command").and_then(Value::as_u64) == Some(command)
        };
        self.history(shard, run).iter().filter(failed).count()
    }

    /// How many events of all histories this is true of.
    pub(super) fn told(&self, of: impl Fn(&Value) -> bool) -> usize {
        let all = self.runs.keys().map(|(shard, run)| self.history(*shard, *run));
        all.map(|history| history.iter().filter(|event| of(event)).count()).sum()
    }

    fn calls(&self) -> Vec<(String, Dispatch)> {
        let rows = self.shards.shards().flat_map(|shard| self.rows(shard, dispatches::all()));
        let read = |row: Row| {
            let (_, key) = dispatches::read_key(&row.key).ok()?;
            Some((IdempotencyKey(key).to_string(), decode(&row.value).ok()?))
        };
        rows.filter_map(read).collect()
    }

    /// The calls that may have been delivered and have no durable answer.
    pub(super) fn calls_out(&self) -> BTreeSet<String> {
        let out = |(_, call): &(String, Dispatch)| call.state == DispatchState::Sent;
        self.calls().into_iter().filter(out).map(|(key, _)| key).collect()
    }

    /// Whether a call has a record.
    pub(super) fn has_call(&self, key: &str) -> bool {
        self.calls().iter().any(|(known, _)| known == key)
    }

    /// The deliveries of a call that were never answered, in a row, by its record.
    pub(super) fn unanswered(&self, key: &str) -> u32 {
        self.calls().iter().find(|(known, _)| known == key).map_or(0, |(_, call)| call.unanswered)
    }

    /// The earliest moment something stored is due, in milliseconds since the beginning.
    pub(super) fn next_due_ms(&self) -> Option<u64> {
        let timer = |shard| self.rows(shard, timers::due_before(i64::MAX)).into_iter().next();
        let timers = self.shards.shards().filter_map(timer).filter_map(|row| TimerKey::read(&row.key).ok());
        let calls = self.calls().into_iter().filter_map(|(_, call)| call.not_before);
        let due = timers.map(|timer| timer.due_at).chain(calls).min()?;
        Some(u64::try_from(due - EPOCH_MS).unwrap_or(0))
    }

    /// Whether a timer of this shard is due.
    pub(super) fn timer_is_due(&self, shard: ShardId, now: Timestamp) -> bool {
        !self.rows(shard, timers::due_before(now.0 + 1)).is_empty()
    }

    /// What happened, as the histories tell it.
    pub(super) fn told_story(&self) -> Story {
        let mut story = Story::default();
        for ((shard, run), name) in &self.runs {
            story.add(name, &self.history(*shard, *run));
        }
        story
    }

    /// What happened, and how everything stands.
    pub(super) fn story(&self, wrong: &mut Vec<String>) -> Story {
        let mut story = self.told_story();
        for name in self.runs.values() {
            let public = ready(self.store.get(&public_instances::SCHEMA, &public_key(name))).ok().flatten();
            let status = public.as_ref().and_then(|row| row.text("Status")).unwrap_or("not there").to_owned();
            story.note(name, RUN, format!("public status {status}"));
        }
        let ids: BTreeSet<&str> =
            self.runs.values().filter_map(|name| name.rsplit_once('/')).map(|(id, _)| id).collect();
        for id in ids {
            match self.stands(id) {
                Ok(stands) => story.note(id, RUN, stands),
                Err(reason) => wrong.push(reason),
            }
        }
        story
    }

    /// How an instance stands.
    fn stands(&self, id: &str) -> Result<String, String> {
        let name = InstanceId::new(id).map_err(|error| error.to_string())?;
        let reader = RunReader { store: &*self.store, definitions: &*self.definitions };
        let partition = self.partition(self.shards.shard_of_instance(&name));
        let read = ready(reader.run(partition, &name)).map_err(|error| error.to_string())?;
        let stored = read.map_err(|unreadable| unreadable.reason)?.ok_or_else(|| format!("{id} is gone"))?;
        let outcome = match stored.instance.outcome() {
            Some(Outcome::Completed(output)) => format!("output {output}"),
            Some(Outcome::Failed(failure)) => format!("error {}", failure.code),
            other => format!("{other:?}"),
        };
        let mut states: Vec<String> =
            stored.instance.current_states(&stored.plan).into_iter().map(|state| state.state).collect();
        states.sort();
        Ok(format!("run {} is {}: {outcome}; at {states:?}", stored.row.run_number, stored.instance.status()))
    }

    /// How the first instance ended: status, output, code of the error.
    pub(super) fn ending(&self, id: &InstanceId) -> Option<(String, Option<Value>, Option<String>)> {
        let reader = RunReader { store: &*self.store, definitions: &*self.definitions };
        let partition = self.partition(self.shards.shard_of_instance(id));
        let stored = ready(reader.run(partition, id)).ok()?.ok()??;
        let status = stored.instance.status().to_string();
        Some(match stored.instance.outcome() {
            Some(Outcome::Completed(output)) => (status, Some((**output).clone()), None),
            Some(Outcome::Failed(failure)) => (status, None, Some(failure.code.clone())),
            _ => (status, None, None),
        })
    }

    /// What is wrong with the store.
    pub(super) fn check(&self) -> Vec<String> {
        match ready(fsck::check(&*self.store, &self.definitions, self.shards)) {
            Ok(report) => report.findings.iter().map(|finding| format!("fsck: {finding:?}")).collect(),
            Err(error) => vec![format!("fsck: {error}")],
        }
    }
}

/// The public row of a run.
fn public_key(name: &str) -> PublicKey {
    let (id, number) = name.rsplit_once('/').unwrap_or((name, "0"));
    public_instances::key(id, number.parse().unwrap_or(0))
}

//! The store of a case, which outlives the process, and everything that is read from it. It does not execute effects.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use abide_ids::RunId;
use abide_runtime::definitions::Definitions;
use abide_runtime::fsck;
use abide_runtime::placement::{ShardCount, ShardId};
use abide_runtime::run::RunReader;
use abide_runtime::store_effects::StoreEffects;
use abide_store::memory::{BackendProfile, MemoryStore};
use abide_store::public::{PublicKey, PublicTables, PublicWrite};
use abide_store::rows::{Batch, CommitOutcome, Partition, Row, Scan};
use abide_store::tables::calls::{self, CallRow, CallRowState};
use abide_store::tables::history_pages::{self, HistoryPageRow};
use abide_store::tables::instances::{self, InstanceRow};
use abide_store::tables::timers::{self, TimerKey};
use abide_store::tables::{TableId, decode, public_instances};
use abide_testkit::shard_driver::poll_ready;
use abide_workflow::{CommandId, Duration, InstanceId, Outcome, Plan, RunNumber, Timestamp};
use serde_json::Value;

use super::normalised_history::{NormalisedHistory, RUN_SCOPE};

/// The wall clock at the start of every case.
pub(super) const EPOCH_MS: i64 = 1_767_225_600_000;
/// How many shards the store has: with three, a spread child is not on its parent's shard.
const SHARDS: u32 = 3;

/// A store, its definitions and the runs in it.
#[derive(Debug)]
pub(super) struct CaseStore {
    pub(super) store: Arc<MemoryStore>,
    pub(super) definitions: Arc<Definitions<MemoryStore>>,
    pub(super) store_effects: StoreEffects<MemoryStore>,
    pub(super) shards: ShardCount,
    /// The plan of the first definition.
    pub(super) plan: Arc<Plan>,
    /// Every run by shard and run id, with its name `INSTANCE/NUMBER`.
    runs: BTreeMap<(ShardId, RunId), String>,
}

impl CaseStore {
    /// A new store with these definitions.
    pub(super) fn new(definitions: &[String], activities: &str) -> Result<Self, String> {
        let store = Arc::new(MemoryStore::new(BackendProfile::PLAIN));
        let shards = ShardCount::new(SHARDS).ok_or("no shards")?;
        let published = Arc::new(Definitions::new(Arc::clone(&store)).map_err(|error| error.to_string())?);
        let mut first = None;
        for definition in definitions {
            let publication =
                poll_ready(published.publish(definition, Some(activities), Timestamp(EPOCH_MS)));
            let (plan, _) = publication.map_err(|error| format!("{error:?}"))?;
            first.get_or_insert(plan);
        }
        let store_effects = StoreEffects::new(Arc::clone(&store), Arc::clone(&published), shards)
            .map_err(|error| error.to_string())?;
        let plan = first.ok_or("no definition")?;
        Ok(Self { store, definitions: published, store_effects, shards, plan, runs: BTreeMap::new() })
    }

    /// Deletes everything but the definitions: the next run begins in an empty store, and nothing is compiled again.
    pub(super) fn clear(&mut self) -> Result<(), String> {
        for shard in self.shards.shards() {
            let partitions = [shard.partition(), shard.inbound_partition()];
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
                        some.fold(Batch::checked(), |batch, row| batch.delete_if_at(row.key, row.version));
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
        poll_ready(self.store.put(&public_instances::SCHEMA, public)).map_err(|error| error.to_string())
    }

    pub(super) fn shard(&self, number: usize) -> ShardId {
        self.shards.shards().nth(number).unwrap_or_else(|| unreachable!("shard {number}"))
    }

    /// Records the runs in a commit that was applied.
    pub(super) fn record_commit(&mut self, shard: ShardId, batch: &Batch) {
        for write in &batch.writes {
            if TableId::of_key(&write.key) != Some(TableId::Instance) {
                continue;
            }
            let row = write.value.as_ref().and_then(|value| decode::<InstanceRow>(value).ok());
            if let (Some(row), Ok(id)) = (row, instances::read_key(&write.key)) {
                self.runs.insert((shard, row.run_id), format!("{id}/{}", row.run_number));
            }
        }
    }

    fn partition(&self, shard: ShardId) -> &Partition {
        self.store_effects.partition(shard).unwrap_or_else(|| unreachable!("{shard}"))
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

    /// The events in the history of a run.
    fn history(&self, shard: ShardId, run: RunId) -> Vec<Value> {
        let pages = self.rows(shard, history_pages::of_run(run)).into_iter();
        let pages = pages
            .filter_map(|row| decode::<HistoryPageRow>(&row.value).ok())
            .filter(|page| page.event_count > 0);
        pages
            .flat_map(|page| serde_json::from_slice::<Vec<Value>>(&page.events).unwrap_or_default())
            .collect()
    }

    /// How many failed attempts of a call are in the history.
    pub(super) fn results_applied(&self, shard: ShardId, run: RunId, command: CommandId) -> usize {
        let failed = |event: &&Value| {
            event.get("eventType").and_then(Value::as_str) == Some("TaskFailed")
                && event.get("command").and_then(Value::as_u64) == Some(command.0)
        };
        self.history(shard, run).iter().filter(failed).count()
    }

    /// How many events in all histories match.
    pub(super) fn count_events(&self, matches: impl Fn(&Value) -> bool) -> usize {
        let all = self.runs.keys().map(|(shard, run)| self.history(*shard, *run));
        all.map(|history| history.iter().filter(|event| matches(event)).count()).sum()
    }

    fn calls(&self) -> Vec<(String, CallRow<'static>)> {
        let rows = self.shards.shards().flat_map(|shard| self.rows(shard, calls::all()));
        let read = |row: Row| {
            let (_, key) = calls::read_key(&row.key).ok()?;
            Some((key.to_string(), decode(&row.value).ok()?))
        };
        rows.filter_map(read).collect()
    }

    /// The keys of calls that may have been sent and have no durable result.
    pub(super) fn unsettled_calls(&self) -> BTreeSet<String> {
        let is_sent = |(_, call): &(String, CallRow<'_>)| call.state == CallRowState::Sent;
        self.calls().into_iter().filter(is_sent).map(|(key, _)| key).collect()
    }

    pub(super) fn has_call(&self, key: &str) -> bool {
        self.calls().iter().any(|(known, _)| known == key)
    }

    /// The number of consecutive attempts of a call without an answer, from its record.
    pub(super) fn unanswered_attempts(&self, key: &str) -> u32 {
        self.calls().iter().find(|(known, _)| known == key).map_or(0, |(_, call)| call.unanswered_attempts)
    }

    /// The earliest due time in the store, in milliseconds since the start of the case.
    pub(super) fn next_due_ms(&self) -> Option<u64> {
        let timer = |shard| self.rows(shard, timers::due_before(Timestamp::MAX)).into_iter().next();
        let timers =
            self.shards.shards().filter_map(timer).filter_map(|row| TimerKey::from_key(&row.key).ok());
        let calls = self.calls().into_iter().filter_map(|(_, call)| Some(call.not_before?.due_at()));
        let due = timers.map(|timer| timer.due_at).chain(calls).min()?;
        Some(due.since(Timestamp(EPOCH_MS)).0)
    }

    /// True if a timer of this shard is due.
    pub(super) fn timer_is_due(&self, shard: ShardId, now: Timestamp) -> bool {
        !self.rows(shard, timers::due_before(now.plus(Duration(1)))).is_empty()
    }

    /// The histories of all runs, normalised.
    pub(super) fn normalised_history(&self) -> NormalisedHistory {
        let mut history = NormalisedHistory::default();
        for ((shard, run), name) in &self.runs {
            history.add(name, &self.history(*shard, *run));
        }
        history
    }

    /// The normalised histories with the final state of every run and instance.
    pub(super) fn full_history(&self, violations: &mut Vec<String>) -> NormalisedHistory {
        let mut history = self.normalised_history();
        for name in self.runs.values() {
            let public =
                poll_ready(self.store.get(&public_instances::SCHEMA, &public_key(name))).ok().flatten();
            let status = public.as_ref().and_then(|row| row.text("Status")).unwrap_or("missing").to_owned();
            history.add_line(name, RUN_SCOPE, format!("public status {status}"));
        }
        let ids: BTreeSet<&str> =
            self.runs.values().filter_map(|name| name.rsplit_once('/')).map(|(id, _)| id).collect();
        for id in ids {
            match self.instance_status(id) {
                Ok(status) => history.add_line(id, RUN_SCOPE, status),
                Err(reason) => violations.push(reason),
            }
        }
        history
    }

    /// The final state of an instance as a line of text.
    fn instance_status(&self, id: &str) -> Result<String, String> {
        let name = InstanceId::new(id).map_err(|error| error.to_string())?;
        let reader = RunReader { store: &*self.store, definitions: &*self.definitions };
        let partition = self.partition(self.shards.shard_of_instance(&name));
        let read = poll_ready(reader.load_run(partition, &name)).map_err(|error| error.to_string())?;
        let stored =
            read.map_err(|unreadable| unreadable.reason)?.ok_or_else(|| format!("{id} does not exist"))?;
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

    /// How an instance ended: status, output, error code.
    pub(super) fn run_outcome(&self, id: &InstanceId) -> Option<(String, Option<Value>, Option<String>)> {
        let reader = RunReader { store: &*self.store, definitions: &*self.definitions };
        let partition = self.partition(self.shards.shard_of_instance(id));
        let stored = poll_ready(reader.load_run(partition, id)).ok()?.ok()??;
        let status = stored.instance.status().to_string();
        Some(match stored.instance.outcome() {
            Some(Outcome::Completed(output)) => (status, Some((**output).clone()), None),
            Some(Outcome::Failed(failure)) => (status, None, Some(failure.code.clone())),
            _ => (status, None, None),
        })
    }

    /// The findings of fsck.
    pub(super) fn check(&self) -> Vec<String> {
        match poll_ready(fsck::check(&*self.store, &self.definitions, self.shards)) {
            Ok(report) => report.findings.iter().map(|finding| format!("fsck: {finding:?}")).collect(),
            Err(error) => vec![format!("fsck: {error}")],
        }
    }
}

/// The public row of a run.
fn public_key(name: &str) -> PublicKey {
    let (id, number) = name.rsplit_once('/').unwrap_or((name, "0"));
    public_instances::key(id, RunNumber(number.parse().unwrap_or(0)))
}

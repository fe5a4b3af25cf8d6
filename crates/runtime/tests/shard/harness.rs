//! The test harness: a shard, its store, and a clock that only the test moves. Attempts wait until the test finishes
//! them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use abide_dispatch::{AttemptResult, CallAttempt, CallFailure};
use abide_ids::{Digest, KeyDigest};
use abide_runtime::definitions::Definitions;
use abide_runtime::event::AttemptId;
use abide_runtime::placement::ShardCount;
use abide_runtime::run::StoredRun;
use abide_runtime::store_effects::StoreEffects;
use abide_runtime::{
    Effect, Event, InstanceLookup, Now, OperatorEvent, PlanError, RequestId, RequestIdempotency, Shard,
    ShardConfig, ShardReply, ShardRequest, StartRequest, StopReason,
};
use abide_store::memory::{BackendProfile, MemoryStore};
use abide_store::public::{PublicQuery, PublicTables};
use abide_store::rows::{Batch, CommitOutcome, Key, Partition, PrivateRows, Scan, StoreLimits};
use abide_store::tables::dead_letters::{self, DeadLetterRow};
use abide_store::tables::heads::{self, HeadRow};
use abide_store::tables::history_pages::{self, HistoryPageRow, SettledCall};
use abide_store::tables::instances::RunStatus;
use abide_store::tables::{TableId, decode, encode};
use abide_testkit::shard_driver::{execute_now, poll_ready};
use abide_testkit::virtual_time::VirtualClock;
use abide_workflow::{InstanceId, Message, Timestamp};
use serde_json::{Value, json};

pub(crate) struct ShardHarness {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) definitions: Arc<Definitions<MemoryStore>>,
    store_effects: StoreEffects<MemoryStore>,
    pub(crate) shard: Shard,
    pub(crate) config: ShardConfig,
    now_ms: u64,
    /// How far the wall clock is ahead of the monotonic clock.
    pub(crate) wall_clock_ahead_ms: i64,
    last_request_id: u64,
    queue: VecDeque<Effect>,
    pub(crate) replies: Vec<(RequestId, ShardReply)>,
    pub(crate) calls: VecDeque<(AttemptId, CallAttempt)>,
    /// Held calls that the shard tries.
    pub(crate) held_tries: VecDeque<(AttemptId, CallAttempt)>,
    pub(crate) cancelled: Vec<AttemptId>,
    pub(crate) operator_events: Vec<OperatorEvent>,
    pub(crate) stopped: Option<StopReason>,
    /// Outcomes to report instead of executing the next commits; `None` executes one.
    pub(crate) outcomes: VecDeque<Option<CommitOutcome>>,
    /// Commits that are still under way, while the test holds them back.
    pub(crate) held_commits: Option<VecDeque<Effect>>,
    /// How many of the next plan lookups fail as unavailable.
    pub(crate) unavailable_plan_lookups: usize,
    /// Instances whose lookups fail as unavailable.
    pub(crate) unavailable_instances: Vec<InstanceId>,
    pub(crate) commits: usize,
    pub(crate) rows: usize,
    pub(crate) bytes: usize,
    /// The instance that the head of each commit names, and how many other rows the commit has.
    pub(crate) marks: Vec<(Option<String>, usize)>,
}

pub(crate) const EPOCH_MS: i64 = 1_800_000_000_000;

impl ShardHarness {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut ShardConfig)) -> Self {
        Self::with_limits(StoreLimits::LOCAL, change)
    }

    /// On a store with these limits.
    pub(crate) fn with_limits(limits: StoreLimits, change: impl FnOnce(&mut ShardConfig)) -> Self {
        let store = Arc::new(MemoryStore::new(BackendProfile { limits, ..BackendProfile::PLAIN }));
        let definitions = Arc::new(Definitions::new(Arc::clone(&store)).unwrap());
        let shards = ShardCount::new(1).unwrap();
        let mut config = ShardConfig::new("node-1".to_owned(), 1, shards, &store.capabilities());
        change(&mut config);
        let store_effects = StoreEffects::new(Arc::clone(&store), Arc::clone(&definitions), shards).unwrap();
        let now = VirtualClock { wall_at_start_ms: EPOCH_MS, ..VirtualClock::default() }.now(Duration::ZERO);
        let shard = Shard::new(shards.shards().next().unwrap(), config.clone(), now);
        let mut harness = Self {
            store,
            definitions,
            store_effects,
            shard,
            config,
            now_ms: 0,
            wall_clock_ahead_ms: 0,
            last_request_id: 0,
            queue: VecDeque::new(),
            replies: Vec::new(),
            calls: VecDeque::new(),
            held_tries: VecDeque::new(),
            cancelled: Vec::new(),
            operator_events: Vec::new(),
            stopped: None,
            outcomes: VecDeque::new(),
            held_commits: None,
            unavailable_plan_lookups: 0,
            unavailable_instances: Vec::new(),
            commits: 0,
            rows: 0,
            bytes: 0,
            marks: Vec::new(),
        };
        harness.send_event(Event::Tick);
        assert!(harness.shard.is_working());
        harness
    }

    pub(crate) fn now(&self) -> Now {
        let wall_at_start_ms = EPOCH_MS + self.wall_clock_ahead_ms;
        let clock = VirtualClock { wall_at_start_ms, booted_at: Duration::ZERO };
        clock.now(Duration::from_millis(self.now_ms))
    }

    /// Handles an event, and everything that follows from it at once.
    pub(crate) fn send_event(&mut self, event: Event) {
        let now = self.now();
        self.shard.handle(event, now);
        self.run_until_idle();
    }

    /// Handles several events before anything is committed.
    pub(crate) fn send_events(&mut self, events: impl IntoIterator<Item = Event>) {
        let now = self.now();
        for event in events {
            self.shard.handle(event, now);
        }
        self.run_until_idle();
    }

    fn run_until_idle(&mut self) {
        loop {
            self.queue.extend(self.shard.flush(self.now()));
            let Some(effect) = self.queue.pop_front() else { return };
            match effect {
                Effect::Reply(request_id, reply) => self.replies.push((request_id, reply)),
                Effect::StartAttempt(id, call) => self.calls.push_back((id, *call)),
                Effect::TryHeldCall(id, call) => self.held_tries.push_back((id, *call)),
                Effect::AllowSend(id, _, call) => self.calls.push_back((id, *call)),
                Effect::CancelAttempt(id) => self.cancelled.push(id),
                Effect::Notify(notice) => self.operator_events.push(notice),
                Effect::Stopped(reason) => self.stopped = Some(reason),
                Effect::Commit(id, batch) => {
                    if let Some(held) = &mut self.held_commits {
                        held.push_back(Effect::Commit(id, batch));
                        continue;
                    }
                    if let Some(Some(outcome)) = self.outcomes.pop_front() {
                        self.shard.handle(Event::CommitFinished(id, outcome), self.now());
                        continue;
                    }
                    self.commits += 1;
                    self.rows += batch.row_count();
                    self.bytes += batch.size_bytes();
                    let head: HeadRow = decode(&batch.fence.as_ref().unwrap().value).unwrap();
                    self.marks.push((head.marked_instance, batch.writes.len()));
                    self.execute_effect(Effect::Commit(id, batch));
                }
                Effect::FindPlan { instance_id, .. } if self.unavailable_plan_lookups > 0 => {
                    self.unavailable_plan_lookups -= 1;
                    let unavailable = PlanError::Unavailable("by hand".to_owned());
                    self.shard.handle(Event::PlanFound(instance_id, Err(unavailable)), self.now());
                }
                Effect::LookUpInstance(id, _) if self.unavailable_instances.contains(&id) => {
                    let unavailable = InstanceLookup::Unavailable("away".to_owned());
                    self.shard.handle(Event::InstanceLookedUp(id, Box::new(unavailable)), self.now());
                }
                other => self.execute_effect(other),
            }
        }
    }

    /// The commits that were held back reach the store.
    pub(crate) fn release_commits(&mut self) {
        self.queue.extend(self.held_commits.take().unwrap_or_default());
        self.run_until_idle();
    }

    fn execute_effect(&mut self, effect: Effect) {
        let outcome = execute_now(&self.store_effects, self.shard.id(), effect).unwrap();
        self.shard.handle(outcome.event, self.now());
    }

    /// Time passes, and the shard wakes whenever it asks to.
    pub(crate) fn advance_clock(&mut self, ms: u64) {
        let until = self.now_ms + ms;
        while self.now_ms < until {
            self.now_ms = (self.now_ms + self.shard.next_wake_ms().max(1)).min(until);
            self.send_event(Event::Tick);
        }
    }

    /// Time passes while no shard is running.
    pub(crate) fn jump_clock(&mut self, ms: u64) {
        self.now_ms += ms;
    }

    /// The process crashes, and another one takes over.
    pub(crate) fn crash(&mut self) {
        self.config.incarnation += 1;
        self.shard = Shard::new(self.shard.id(), self.config.clone(), self.now());
        self.queue.clear();
        self.calls.clear();
        self.held_tries.clear();
        self.send_event(Event::Tick);
        assert!(self.shard.is_working());
    }

    /// The process drains its shard and ends, and another one takes over.
    pub(crate) fn restart_cleanly(&mut self) {
        self.send_event(Event::Drain);
        assert_eq!(self.stopped.take(), Some(StopReason::Drained));
        self.crash();
    }

    /// The head of the shard as it is stored.
    pub(crate) fn head(&self) -> HeadRow {
        let row = self.store.read_now(&self.partition(), &heads::key()).unwrap().unwrap();
        decode(&row.value).unwrap()
    }

    /// Changes the head while no process runs.
    pub(crate) fn change_head(&self, change: impl FnOnce(&mut HeadRow)) {
        let version = self.store.read_now(&self.partition(), &heads::key()).unwrap().unwrap().version;
        let mut head = self.head();
        change(&mut head);
        let batch = Batch::fenced(heads::key(), Some(version), encode(&head));
        self.store.commit_now(&self.partition(), &batch);
    }

    pub(crate) fn publish(&self, id: &str, states: &Value) {
        self.publish_with(id, &json!({}), states);
    }

    pub(crate) fn publish_with(&self, id: &str, configuration: &Value, states: &Value) {
        let start = states.as_object().unwrap().keys().next().unwrap();
        let definition = json!({"$schema": "workflow-schema-v1.json", "id": id, "version": "1.0.0",
            "configuration": configuration,
            "startAt": states.get("Start").map_or(start.as_str(), |_| "Start"), "states": states});
        poll_ready(self.definitions.publish(&definition.to_string(), None, Timestamp(0))).unwrap();
    }

    /// As [`Self::start_request`], with an input.
    pub(crate) fn start_with(&mut self, workflow: &str, id: &str, input: Value) {
        let ShardRequest::Start(mut start) = self.start_request(workflow, id, None) else {
            panic!("a start")
        };
        start.input = input.into();
        let reply = self.request(ShardRequest::Start(start));
        assert!(matches!(reply, ShardReply::Started(_)), "{reply:?}");
    }

    pub(crate) fn start_request(
        &self,
        workflow: &str,
        id: &str,
        idempotency: Option<RequestIdempotency>,
    ) -> ShardRequest {
        ShardRequest::Start(Box::new(StartRequest {
            instance_id: instance_id(id),
            plan: poll_ready(self.definitions.resolve(workflow, None)).unwrap(),
            input: json!({"id": id}).into(),
            event: None,
            correlation_id: id.to_owned(),
            entity_id: None,
            entity_type: None,
            idempotency,
            await_end: None,
        }))
    }

    pub(crate) fn request(&mut self, request: ShardRequest) -> ShardReply {
        self.last_request_id += 1;
        let request_id = RequestId(self.last_request_id);
        self.send_event(Event::RequestReceived(request_id, request));
        self.reply_to(request_id).unwrap_or_else(|| panic!("no reply to {request_id:?}"))
    }

    /// Sends a request whose reply may come later.
    pub(crate) fn request_without_waiting(&mut self, request: ShardRequest) -> RequestId {
        self.last_request_id += 1;
        let request_id = RequestId(self.last_request_id);
        self.send_event(Event::RequestReceived(request_id, request));
        request_id
    }

    pub(crate) fn next_request_id(&mut self) -> RequestId {
        self.last_request_id += 1;
        RequestId(self.last_request_id)
    }

    pub(crate) fn reply_to(&mut self, request_id: RequestId) -> Option<ShardReply> {
        let at = self.replies.iter().position(|(to, _)| *to == request_id)?;
        Some(self.replies.remove(at).1)
    }

    pub(crate) fn start(&mut self, workflow: &str, id: &str) {
        let request = self.start_request(workflow, id, None);
        let reply = self.request(request);
        assert!(matches!(reply, ShardReply::Started(_)), "{reply:?}");
    }

    pub(crate) fn raise(&mut self, id: &str, event: &str) -> ShardReply {
        self.send_message(
            id,
            Message::EventRaised { name: event.to_owned(), payload: json!("payload").into() },
        )
    }

    pub(crate) fn send_message(&mut self, id: &str, message: Message) -> ShardReply {
        self.request(ShardRequest::SendMessage { instance_id: instance_id(id), message })
    }

    /// Raises an event with a payload of this size.
    pub(crate) fn raise_large(&mut self, id: &str, event: &str, bytes: usize) -> ShardReply {
        let payload = json!("x".repeat(bytes)).into();
        self.send_message(id, Message::EventRaised { name: event.to_owned(), payload })
    }

    /// The reason why an instance is parked.
    pub(crate) fn park_reason(&self, id: &str) -> Option<String> {
        let row =
            poll_ready(self.store_effects.run_reader().instance_row(&self.partition(), &instance_id(id)))
                .unwrap()
                .unwrap()?;
        row.park_reason.filter(|_| row.status == RunStatus::Parked)
    }

    /// Finishes the attempt that has waited longest.
    pub(crate) fn finish_attempt(&mut self, result: AttemptResult) -> CallAttempt {
        let (id, call) = self.calls.pop_front().unwrap();
        self.send_event(Event::AttemptFinished(id, result));
        call
    }

    pub(crate) fn complete_attempt(&mut self) -> CallAttempt {
        self.finish_attempt(AttemptResult::Completed(json!({"ok": true}).into()))
    }

    pub(crate) fn run(&self, id: &str) -> Option<StoredRun> {
        let partition = self.partition();
        poll_ready(self.store_effects.run_reader().load_run(&partition, &instance_id(id))).unwrap().unwrap()
    }

    pub(crate) fn status(&self, id: &str) -> String {
        self.run(id).map_or_else(|| "gone".to_owned(), |run| run.instance.status().to_string())
    }

    pub(crate) fn partition(&self) -> Partition {
        self.shard.id().partition().unwrap()
    }

    /// The keys of a table's rows.
    pub(crate) fn keys(&self, table: TableId) -> Vec<Key> {
        let mut keys = Vec::new();
        let mut next = Some(Scan::all());
        while let Some(scan) = next {
            let page = self.store.scan_now(&self.partition(), scan).unwrap();
            keys.extend(
                page.rows.into_iter().map(|row| row.key).filter(|key| TableId::of_key(key) == Some(table)),
            );
            next = page.next;
        }
        keys
    }

    pub(crate) fn dead_letters(&self) -> Vec<DeadLetterRow> {
        let page = poll_ready(self.store.query(&dead_letters::SCHEMA, &PublicQuery::default())).unwrap();
        page.rows.iter().map(|row| DeadLetterRow::from_public_row(row).unwrap()).collect()
    }

    /// The settled calls in the history of an instance's run, in order.
    pub(crate) fn settled_calls(&self, id: &str) -> Vec<SettledCall> {
        self.history_pages(id).into_iter().flat_map(|page| page.settled_calls).collect()
    }

    /// The pages of an instance's last run.
    pub(crate) fn history_pages(&self, id: &str) -> Vec<HistoryPageRow> {
        let run = self.run(id).unwrap().row.run_id;
        let page = self.store.scan_now(&self.partition(), history_pages::of_run(run)).unwrap();
        page.rows.iter().map(|row| decode(&row.value).unwrap()).collect()
    }

    /// Asserts that fsck finds nothing wrong in the store.
    pub(crate) fn check(&self) {
        let shards = self.config.shard_count;
        let report = poll_ready(abide_runtime::fsck::check(&*self.store, &self.definitions, shards)).unwrap();
        assert_eq!(report.findings, Vec::new());
    }
}

/// The idempotency of a request, from one byte of its key and one of its content.
pub(crate) fn request_idempotency(key: u8, payload: u8) -> RequestIdempotency {
    RequestIdempotency::new(KeyDigest(Digest([key; 32])), Digest([payload; 32]))
}

pub(crate) fn instance_id(id: &str) -> InstanceId {
    InstanceId::new(id).unwrap()
}

pub(crate) fn failure(retryable: bool) -> AttemptResult {
    AttemptResult::Failed(CallFailure { retryable, ..CallFailure::permanent("Broken", "it is") })
}

pub(crate) fn task_state(next: &str) -> Value {
    json!({"type": "task", "activity": "work", "input": {"id": "$.input.id"}, "output": "$.state.x", "next": next})
}

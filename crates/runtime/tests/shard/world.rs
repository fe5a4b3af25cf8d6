//! A shard, its store and a clock that moves when it is told to. Activities wait until the test answers them.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use abide_dispatch::{Answer, Call, Failure};
use abide_runtime::definitions::Definitions;
use abide_runtime::event::CallId;
use abide_runtime::hands::Hands;
use abide_runtime::lease::Monotonic;
use abide_runtime::placement::ShardCount;
use abide_runtime::run::StoredRun;
use abide_runtime::{
    Config, Effect, Event, LookedUp, Moment, Notice, PlanError, Repeat, Reply, Request, Shard, Start,
    Stopped, Ticket,
};
use abide_store::memory::{MemoryStore, Personality};
use abide_store::public::{PublicTables, Query};
use abide_store::rows::{CommitOutcome, Key, Limits, Partition, PrivateRows, Scan};
use abide_store::tables::engine_dlq::{self, DeadLetter};
use abide_store::tables::instances::RunStatus;
use abide_store::tables::pages::{self, Page, SettledCall};
use abide_store::tables::{Table, decode};
use abide_workflow::{InstanceId, Message, Timestamp};
use serde_json::{Value, json};

pub(crate) struct World {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) definitions: Arc<Definitions<MemoryStore>>,
    hands: Hands<MemoryStore>,
    pub(crate) shard: Shard,
    pub(crate) config: Config,
    now_ms: u64,
    /// How much the time of day is ahead.
    pub(crate) ahead_ms: i64,
    tickets: u64,
    queue: VecDeque<Effect>,
    pub(crate) replies: Vec<(Ticket, Reply)>,
    pub(crate) calls: VecDeque<(CallId, Call)>,
    pub(crate) cancelled: Vec<CallId>,
    pub(crate) notices: Vec<Notice>,
    pub(crate) stopped: Option<Stopped>,
    /// Answers to give instead of carrying out the next commits.
    pub(crate) outcomes: VecDeque<Option<CommitOutcome>>,
    /// How often a definition is not to be found for now.
    pub(crate) plans_refused: usize,
    /// Instances the store cannot tell of for now.
    pub(crate) away: Vec<InstanceId>,
    pub(crate) commits: usize,
    pub(crate) rows: usize,
    pub(crate) bytes: usize,
}

pub(crate) const EPOCH_MS: i64 = 1_800_000_000_000;

impl World {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Config)) -> Self {
        Self::on(Limits::LOCAL, change)
    }

    /// On a store that takes so much.
    pub(crate) fn on(limits: Limits, change: impl FnOnce(&mut Config)) -> Self {
        let store = Arc::new(MemoryStore::new(Personality { limits, ..Personality::PLAIN }));
        let definitions = Arc::new(Definitions::new(Arc::clone(&store)).unwrap());
        let shards = ShardCount::new(1).unwrap();
        let mut config = Config::new("node-1".to_owned(), 1, shards, &store.capabilities());
        change(&mut config);
        let hands = Hands::new(Arc::clone(&store), Arc::clone(&definitions), shards).unwrap();
        let now = Moment { wall: Timestamp(EPOCH_MS), mono: Monotonic(Duration::ZERO) };
        let shard = Shard::new(shards.shards().next().unwrap(), config.clone(), now);
        let mut world = Self {
            store,
            definitions,
            hands,
            shard,
            config,
            now_ms: 0,
            ahead_ms: 0,
            tickets: 0,
            queue: VecDeque::new(),
            replies: Vec::new(),
            calls: VecDeque::new(),
            cancelled: Vec::new(),
            notices: Vec::new(),
            stopped: None,
            outcomes: VecDeque::new(),
            plans_refused: 0,
            away: Vec::new(),
            commits: 0,
            rows: 0,
            bytes: 0,
        };
        world.tell(Event::Tick);
        assert!(world.shard.is_working());
        world
    }

    pub(crate) fn now(&self) -> Moment {
        let wall = Timestamp(EPOCH_MS + self.ahead_ms + i64::try_from(self.now_ms).unwrap());
        Moment { wall, mono: Monotonic(Duration::from_millis(self.now_ms)) }
    }

    /// An event, and everything that follows at once.
    pub(crate) fn tell(&mut self, event: Event) {
        let now = self.now();
        self.shard.handle(event, now);
        self.settle();
    }

    /// Several events before anything is committed.
    pub(crate) fn tell_all(&mut self, events: impl IntoIterator<Item = Event>) {
        let now = self.now();
        for event in events {
            self.shard.handle(event, now);
        }
        self.settle();
    }

    fn settle(&mut self) {
        loop {
            self.queue.extend(self.shard.flush(self.now()));
            let Some(effect) = self.queue.pop_front() else { return };
            match effect {
                Effect::Reply(ticket, reply) => self.replies.push((ticket, reply)),
                Effect::Call(id, call) => self.calls.push_back((id, *call)),
                Effect::CancelCall(id) => self.cancelled.push(id),
                Effect::Tell(notice) => self.notices.push(notice),
                Effect::Stopped(why) => self.stopped = Some(why),
                Effect::Commit(id, batch) => {
                    if let Some(Some(outcome)) = self.outcomes.pop_front() {
                        self.shard.handle(Event::CommitAnswered(id, outcome), self.now());
                        continue;
                    }
                    self.commits += 1;
                    self.rows += batch.rows();
                    self.bytes += batch.bytes();
                    self.carry_out(Effect::Commit(id, batch));
                }
                Effect::FindPlan { instance_id, .. } if self.plans_refused > 0 => {
                    self.plans_refused -= 1;
                    let nothing = PlanError::Unavailable("by hand".to_owned());
                    self.shard.handle(Event::PlanFound(instance_id, Err(nothing)), self.now());
                }
                Effect::LookUp(id, _) if self.away.contains(&id) => {
                    let nothing = LookedUp::Unavailable("away".to_owned());
                    self.shard.handle(Event::LookedUp(id, Box::new(nothing)), self.now());
                }
                other => self.carry_out(other),
            }
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        let event = ready(self.hands.carry_out(self.shard.id(), effect)).unwrap();
        self.shard.handle(event, self.now());
    }

    /// Time passes, with everything that happens meanwhile.
    pub(crate) fn pass(&mut self, ms: u64) {
        let until = self.now_ms + ms;
        while self.now_ms < until {
            self.now_ms = (self.now_ms + self.shard.next_wake_ms().max(1)).min(until);
            self.tell(Event::Tick);
        }
    }

    /// Time passes, and nobody is there.
    pub(crate) fn jump(&mut self, ms: u64) {
        self.now_ms += ms;
    }

    /// The process dies and another takes over.
    pub(crate) fn crash(&mut self) {
        self.config.incarnation += 1;
        self.shard = Shard::new(self.shard.id(), self.config.clone(), self.now());
        self.queue.clear();
        self.calls.clear();
        self.tell(Event::Tick);
        assert!(self.shard.is_working());
    }

    pub(crate) fn publish(&self, id: &str, states: &Value) {
        self.publish_with(id, &json!({}), states);
    }

    pub(crate) fn publish_with(&self, id: &str, configuration: &Value, states: &Value) {
        let start = states.as_object().unwrap().keys().next().unwrap();
        let definition = json!({"$schema": "workflow-schema-v1.json", "id": id, "version": "1.0.0",
            "configuration": configuration,
            "startAt": states.get("Start").map_or(start.as_str(), |_| "Start"), "states": states});
        ready(self.definitions.publish(&definition.to_string(), None, Timestamp(0))).unwrap();
    }

    /// As [`Self::start_request`], with an input.
    pub(crate) fn start_with(&mut self, workflow: &str, id: &str, input: Value) {
        let Request::Start(mut start) = self.start_request(workflow, id, None) else { panic!("a start") };
        start.input = input.into();
        let reply = self.ask(Request::Start(start));
        assert!(matches!(reply, Reply::Started(_)), "{reply:?}");
    }

    pub(crate) fn start_request(&self, workflow: &str, id: &str, repeat: Option<Repeat>) -> Request {
        Request::Start(Box::new(Start {
            instance_id: name(id),
            plan: ready(self.definitions.pick(workflow, None)).unwrap(),
            input: json!({"id": id}).into(),
            event: None,
            correlation_id: id.to_owned(),
            entity_id: None,
            repeat,
            await_end: None,
        }))
    }

    pub(crate) fn ask(&mut self, request: Request) -> Reply {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.tell(Event::Asked(ticket, request));
        self.reply_to(ticket).unwrap_or_else(|| panic!("no answer to {ticket:?}"))
    }

    /// Asks without expecting an answer now.
    pub(crate) fn ask_later(&mut self, request: Request) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.tell(Event::Asked(ticket, request));
        ticket
    }

    pub(crate) fn next_ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    pub(crate) fn reply_to(&mut self, ticket: Ticket) -> Option<Reply> {
        let at = self.replies.iter().position(|(to, _)| *to == ticket)?;
        Some(self.replies.remove(at).1)
    }

    pub(crate) fn start(&mut self, workflow: &str, id: &str) {
        let request = self.start_request(workflow, id, None);
        let reply = self.ask(request);
        assert!(matches!(reply, Reply::Started(_)), "{reply:?}");
    }

    pub(crate) fn raise(&mut self, id: &str, event: &str) -> Reply {
        self.order(id, Message::EventRaised { name: event.to_owned(), payload: json!("payload").into() })
    }

    pub(crate) fn order(&mut self, id: &str, message: Message) -> Reply {
        self.ask(Request::Deliver { instance_id: name(id), message })
    }

    /// Raises an event with so many bytes.
    pub(crate) fn raise_large(&mut self, id: &str, event: &str, bytes: usize) -> Reply {
        let payload = json!("x".repeat(bytes)).into();
        self.order(id, Message::EventRaised { name: event.to_owned(), payload })
    }

    /// What is told of an instance that is set aside.
    pub(crate) fn parked(&self, id: &str) -> Option<String> {
        let row = ready(self.hands.reader().row(&self.partition(), &name(id))).unwrap().unwrap()?;
        row.parked.filter(|_| row.status == RunStatus::Parked)
    }

    /// Answers the call that has waited longest.
    pub(crate) fn answer(&mut self, answer: Answer) -> Call {
        let (id, call) = self.calls.pop_front().unwrap();
        self.tell(Event::Answered(id, answer));
        call
    }

    pub(crate) fn complete(&mut self) -> Call {
        self.answer(Answer::Completed(json!({"ok": true}).into()))
    }

    pub(crate) fn run(&self, id: &str) -> Option<StoredRun> {
        let partition = self.partition();
        ready(self.hands.reader().run(&partition, &name(id))).unwrap().unwrap()
    }

    pub(crate) fn status(&self, id: &str) -> String {
        self.run(id).map_or_else(|| "gone".to_owned(), |run| run.instance.status().to_string())
    }

    pub(crate) fn partition(&self) -> Partition {
        self.shard.id().partition().unwrap()
    }

    /// The keys of a table's rows.
    pub(crate) fn keys(&self, table: Table) -> Vec<Key> {
        let mut keys = Vec::new();
        let mut next = Some(Scan::all());
        while let Some(scan) = next {
            let page = self.store.scan_now(&self.partition(), scan).unwrap();
            keys.extend(page.rows.into_iter().map(|row| row.key).filter(|key| Table::of(key) == Some(table)));
            next = page.next;
        }
        keys
    }

    /// What was given up.
    pub(crate) fn dead_letters(&self) -> Vec<DeadLetter> {
        let page = ready(self.store.query(&engine_dlq::SCHEMA, &Query::default())).unwrap();
        page.rows.iter().map(|row| DeadLetter::from_row(row).unwrap()).collect()
    }

    /// What is kept of the settled calls of an instance's run, in order.
    pub(crate) fn settled(&self, id: &str) -> Vec<SettledCall> {
        let run = self.run(id).unwrap().row.run;
        let page = self.store.scan_now(&self.partition(), pages::of_run(run)).unwrap();
        page.rows.iter().flat_map(|row| decode::<Page>(&row.value).unwrap().settled).collect()
    }

    /// Nothing is out of order in the store.
    pub(crate) fn check(&self) {
        let shards = self.config.shards;
        let report = ready(abide_runtime::fsck::check(&*self.store, &self.definitions, shards)).unwrap();
        assert_eq!(report.findings, Vec::new());
    }
}

pub(crate) fn name(id: &str) -> InstanceId {
    InstanceId::new(id).unwrap()
}

pub(crate) fn failure(retryable: bool) -> Answer {
    Answer::Failed(Failure { retryable, ..Failure::for_good("Broken", "it is") })
}

pub(crate) fn task(next: &str) -> Value {
    json!({"type": "task", "activity": "work", "input": {"id": "$.input.id"}, "output": "$.state.x", "next": next})
}

pub(crate) fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the reference store answers at once"),
    }
}

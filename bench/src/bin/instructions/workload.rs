//! The workloads whose instructions are counted: a node on the embedded store in this process, with one run or event in
//! flight and the same commits every time.
//!
//! The count must not depend on the speed of the machine. The node therefore has one thread and one shard, and
//! everything that happens after a delay is postponed past the end. Public rows are the exception, because every run
//! has one: the node writes all of them at the end, [`PUBLIC_INDEX_DELAY`] after the first run.

#![expect(clippy::expect_used, reason = "a workload that does not run is a bug in the benchmark")]

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use abide_dispatch::local::{ActivityCategory, ActivityDeclaration, LocalActivities, LocalInvocation};
use abide_ids::KeyDigest;
use abide_runtime::definitions::Definitions;
use abide_runtime::entity::{EntityId, EntityOperation, OperationRequest};
use abide_runtime::node::{Node, NodeOptions};
use abide_runtime::placement::ShardCount;
use abide_runtime::{RequestIdempotency, ShardConfig, ShardReply, ShardRequest, StartRequest};
use abide_store::rows::PrivateRows;
use abide_store::tables::event_routes::{EventRouteAction, EventRouteRow};
use abide_store::tables::idempotency::SCOPE_CLOUD_EVENT;
use abide_store_embedded::{EmbeddedOptions as StoreOptions, EmbeddedStore};
use abide_workflow::{InstanceId, Plan, Timestamp};
use clap::ValueEnum;
use serde_json::{Value, json};

/// The same as in `compare`.
const BRANCHES: usize = 100;
const KEYS: u64 = 200;
const EVENT: &str = "Go";
const ENTITY: &str = "log";

/// Longer than all runs of a workload take under valgrind, so that their public rows are written together.
const PUBLIC_INDEX_DELAY: Duration = Duration::from_secs(12);
/// Longer than any measurement.
const NEVER: Duration = Duration::from_secs(24 * 3_600);

/// The workloads, named as in `compare`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Workload {
    /// Three tasks, one after the other: start and wait.
    W1,
    /// Events for keyed state, each recorded under its key and acknowledged.
    W2,
    /// A hundred branches at once with one task each: start and wait.
    W4,
}

impl Workload {
    pub(crate) const ALL: [Self; 3] = [Self::W1, Self::W2, Self::W4];

    /// The number of steps of one run or event.
    pub(crate) fn steps(self) -> u64 {
        match self {
            Self::W1 => 3,
            Self::W2 => 1,
            Self::W4 => BRANCHES as u64,
        }
    }

    /// The runs or events of the shorter count. The longer one has three times as many.
    pub(crate) fn shorter(self) -> u64 {
        match self {
            Self::W1 => 200,
            // Every key has its first event by then.
            Self::W2 => 1_000,
            Self::W4 => 8,
        }
    }

    /// The name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::W1 => "w1",
            Self::W2 => "w2",
            Self::W4 => "w4",
        }
    }

    fn definition(self) -> Option<Value> {
        match self {
            Self::W1 => Some(abide_bench::three_tasks()),
            Self::W2 => None,
            Self::W4 => Some(abide_bench::parallel(BRANCHES)),
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::W1 => "W1 three sequential tasks",
            Self::W2 => "W2 events over 200 keys",
            Self::W4 => "W4 parallel of 100 branches",
        })
    }
}

/// The writes of a workload: equal in every repetition, unless something depended on the clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WriteCounts {
    pub(crate) commits: u64,
    pub(crate) rows: u64,
}

impl fmt::Display for WriteCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.commits, self.rows)
    }
}

impl FromStr for WriteCounts {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let (commits, rows) = text.split_once(' ').ok_or(())?;
        Ok(Self { commits: commits.parse().map_err(|_| ())?, rows: rows.parse().map_err(|_| ())? })
    }
}

/// Plays so many runs or events, one after the other, on an empty store.
pub(crate) fn run(workload: Workload, count: u64) -> WriteCounts {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(run_workload(workload, count))
}

async fn run_workload(workload: Workload, count: u64) -> WriteCounts {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Arc::new(EmbeddedStore::open(folder.path(), StoreOptions::default()).expect("a store"));
    let node = start_node(store);
    while node.readiness().is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    match workload.definition() {
        Some(definition) => runs(&node, &definition, count).await,
        None => events(&node, count).await,
    }
    node.drain().await;
    WriteCounts { commits: node.metrics().commits.get(), rows: node.metrics().commit_rows.get() }
}

fn start_node(store: Arc<EmbeddedStore>) -> Node<EmbeddedStore> {
    let definitions = Arc::new(Definitions::new(Arc::clone(&store)).expect("definitions"));
    let mut activities = LocalActivities::default();
    let work = |invocation: LocalInvocation| async move { Ok(invocation.input) };
    activities
        .register(ActivityDeclaration::new("Work", ActivityCategory::Other), work)
        .expect("an activity");
    let shards = ShardCount::new(1).expect("a number of shards");
    let mut shard = ShardConfig::new("bench".to_owned(), 1, shards, &store.capabilities());
    shard.public_index_delay = PUBLIC_INDEX_DELAY;
    shard.lazy_commit_delay = NEVER;
    shard.idle_max = NEVER;
    shard.sweep_interval = NEVER;
    shard.reconcile_interval = NEVER;
    let options = NodeOptions {
        shard_config: shard,
        concurrent_calls_max: 1_000,
        drain_grace: Duration::from_secs(60),
    };
    Node::start(store, definitions, &Arc::new(activities), options).expect("a node")
}

async fn runs(node: &Node<EmbeddedStore>, definition: &Value, count: u64) {
    let published = node.definitions().publish(&definition.to_string(), None, Timestamp(0)).await;
    let (plan, _) = published.expect("a definition");
    for number in 0..count {
        let begun = node.start_run(start(&plan, number)).await.expect("a reply");
        assert!(matches!(begun.reply, ShardReply::Started(_)), "{:?}", begun.reply);
        begun.end.await.expect("an end");
    }
    node.await_public_index().await.expect("all runs in the public table");
}

fn start(plan: &Arc<Plan>, number: u64) -> StartRequest {
    let id = InstanceId::new(format!("0198c2a4-7d31-7a52-9c6f-{number:012x}")).expect("an id");
    StartRequest {
        correlation_id: id.as_str().to_owned(),
        instance_id: id,
        plan: Arc::clone(plan),
        input: json!({"id": format!("dev-{number:08}")}).into(),
        event: None,
        entity_id: None,
        entity_type: None,
        idempotency: None,
        await_end: None,
    }
}

async fn events(node: &Node<EmbeddedStore>, count: u64) {
    let route = EventRouteRow {
        entity_type: ENTITY.to_owned(),
        workflow: None,
        version: None,
        action: EventRouteAction::Record,
        event_name: None,
        updated_at: Timestamp(0),
    };
    node.event_routes().set(EVENT, Some(&route)).await.expect("a route");
    for number in 0..count {
        let operate = record(node, number).await;
        let key = operate.entity.placement_key().into_owned();
        for reply in node.request_group(&key, vec![ShardRequest::Operate(Box::new(operate))]) {
            let reply = reply.await.expect("a reply");
            assert!(matches!(&reply, ShardReply::Operated(done) if !done.is_replay), "{reply:?}");
        }
    }
}

/// Builds the same operation as the API: the event route selects the entity that records the event, and a repeat is
/// recognised by source and id.
async fn record(node: &Node<EmbeddedStore>, number: u64) -> OperationRequest {
    let (id, session) = (format!("{number:08}"), format!("key-{:03}", number % KEYS));
    let route = node.event_routes().get(EVENT).await.expect("routes").expect("a route");
    let digest = KeyDigest::of_parts(&[b"/bench", id.as_bytes(), session.as_bytes()]);
    let event = json!({
        "specversion": "1.0", "source": "/bench", "id": id, "type": EVENT,
        "subject": session, "data": format!("event-{number:08}"),
    });
    OperationRequest {
        entity: EntityId::new(&route.entity_type, &session).expect("an entity"),
        operation: EntityOperation::RecordEvent { event: event.into() },
        idempotency: Some(RequestIdempotency::new(digest, digest.0)),
        idempotency_scope: SCOPE_CLOUD_EVENT,
        session_event: None,
    }
}

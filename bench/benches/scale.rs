//! Measures the runtime at scale, in process on the embedded store: memory of waiting runs, a restart with many due
//! timers, the cost of a long history and of a wide map. Run with `scripts/bench scale [waiting|timers|history|map]…`.

#![expect(clippy::expect_used, reason = "a workload that does not run is a bug in the benchmark")]
#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
#![expect(clippy::indexing_slicing, reason = "an index out of bounds is a bug in the benchmark")]
#![expect(clippy::cast_precision_loss, reason = "figures for people")]
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "figures for people")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use abide_dispatch::local::{ActivityCategory, ActivityDeclaration, LocalActivities};
use abide_runtime::definitions::Definitions;
use abide_runtime::node::{Node, NodeOptions};
use abide_runtime::placement::ShardCount;
use abide_runtime::{ShardConfig, ShardReply, ShardRequest, StartRequest};
use abide_store::rows::PrivateRows;
use abide_store_embedded::{EmbeddedOptions as StoreOptions, EmbeddedStore};
use abide_workflow::{InstanceId, Message, Plan, Timestamp};
use serde_json::{Value, json};

/// The allocator of the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    if is_wanted("waiting") {
        runtime.block_on(waiting());
    }
    if is_wanted("timers") {
        runtime.block_on(timers());
    }
    if is_wanted("history") {
        runtime.block_on(history());
    }
    if is_wanted("map") {
        runtime.block_on(map());
    }
}

struct BenchNode {
    node: Arc<Node<EmbeddedStore>>,
    definitions: Arc<Definitions<EmbeddedStore>>,
}

impl BenchNode {
    /// Opens a node on this folder.
    async fn open(folder: &Path) -> Self {
        let store = Arc::new(EmbeddedStore::open(folder, StoreOptions::default()).expect("a store"));
        let definitions = Arc::new(Definitions::new(Arc::clone(&store)).expect("definitions"));
        let mut activities = LocalActivities::default();
        let work = |invocation: abide_dispatch::local::LocalInvocation| async move { Ok(invocation.input) };
        activities
            .register(ActivityDeclaration::new("Work", ActivityCategory::Other), work)
            .expect("an activity");
        let shards = ShardCount::new(8).expect("a number of shards");
        let incarnation = u64::from(std::process::id()) + Instant::now().elapsed().as_nanos() as u64;
        let mut config = ShardConfig::new("bench".to_owned(), incarnation, shards, &store.capabilities());
        config.recovery_per_second = 6_000 / 8;
        let options = NodeOptions {
            shard_config: config,
            concurrent_calls_max: 1_000,
            drain_grace: Duration::from_secs(5),
        };
        let node =
            Node::start(store, Arc::clone(&definitions), &Arc::new(activities), options).expect("a node");
        Self { node: Arc::new(node), definitions }
    }

    async fn ready(&self) {
        while self.node.readiness().is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn publish(&self, definition: &Value) -> Arc<Plan> {
        self.definitions.publish(&definition.to_string(), None, Timestamp(0)).await.expect("a definition").0
    }

    /// Starts these runs, 256 at a time.
    async fn start(&self, plan: &Arc<Plan>, name: &str, numbers: std::ops::Range<u64>, input: &Value) {
        let mut tasks = tokio::task::JoinSet::new();
        for number in numbers {
            if tasks.len() >= 256 {
                tasks.join_next().await;
            }
            let (node, start) =
                (Arc::clone(&self.node), start(plan, &format!("{name}-{number:06}"), input.clone()));
            tasks.spawn(async move {
                let reply = node.request(ShardRequest::Start(Box::new(start))).await.expect("a reply");
                assert!(matches!(reply, ShardReply::Started(_)), "{reply:?}");
            });
        }
        while tasks.join_next().await.is_some() {}
    }

    async fn close(self) {
        self.node.drain().await;
    }
}

fn start(plan: &Arc<Plan>, id: &str, input: Value) -> StartRequest {
    StartRequest {
        instance_id: InstanceId::new(id).expect("an id"),
        plan: Arc::clone(plan),
        input: input.into(),
        event: None,
        correlation_id: id.to_owned(),
        entity_id: None,
        entity_type: None,
        idempotency: None,
        await_end: None,
    }
}

fn waits_for_event() -> Value {
    abide_bench::definition(
        "Wait",
        &json!({"Wait": {"type": "wait", "waitType": "externalEvent", "eventName": "go", "output": "$.state.e", "next": "End"},
                "End": {"type": "succeed"}}),
    )
}

/// Memory of waiting runs after they have been evicted.
async fn waiting() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = BenchNode::open(folder.path()).await;
    bench.ready().await;
    let plan = bench.publish(&waits_for_event()).await;
    let mut figures = Vec::new();
    for (from, until) in [(0, 10_000), (10_000, 100_000)] {
        let began = Instant::now();
        bench.start(&plan, "w", from..until, &json!({"id": "dev-1"})).await;
        let took = began.elapsed();
        tokio::time::sleep(Duration::from_secs(20)).await;
        let rss = rss_kib();
        println!(
            "waiting: {until} runs, started at {:.0}/s, RSS {} MiB, {} in memory",
            (until - from) as f64 / took.as_secs_f64(),
            rss / 1024,
            bench.node.metrics().resident_instances()
        );
        figures.push(rss);
    }
    if let [few, many] = figures.as_slice() {
        println!(
            "waiting: {:.2} KiB per run between 10,000 and 100,000",
            many.saturating_sub(*few) as f64 / 90_000.0
        );
    }
    bench.close().await;
}

/// A restart with many due timers.
async fn timers() {
    const TIMERS: u64 = 100_000;
    let folder = tempfile::tempdir().expect("a folder");
    let until = now_ms() + 75_000;
    let timer = abide_bench::definition(
        "Wait",
        &json!({"Wait": {"type": "wait", "waitType": "timestamp", "timestamp": "$.input.at", "next": "End"}, "End": {"type": "succeed"}}),
    );
    {
        let bench = BenchNode::open(folder.path()).await;
        bench.ready().await;
        let plan = bench.publish(&timer).await;
        let began = Instant::now();
        bench.start(&plan, "t", 0..TIMERS, &json!({"at": Timestamp(until).to_string()})).await;
        println!("timers: {TIMERS} set in {:.1} s", began.elapsed().as_secs_f64());
        bench.close().await;
    }
    let left = u64::try_from(until - now_ms()).unwrap_or(0);
    println!("timers: due {left} ms after everything was stopped");
    tokio::time::sleep(Duration::from_millis(left + 1_000)).await;
    let began = Instant::now();
    let bench = BenchNode::open(folder.path()).await;
    bench.ready().await;
    println!("timers: opened and ready after {:.2} s", began.elapsed().as_secs_f64());
    let plan = bench.publish(&three("during")).await;
    let mut first = None;
    let mut all = None;
    let during = latencies(&bench, &plan, "d", |node, fresh| {
        // Fresh runs also count as completed, and each client may have one that it has not counted yet.
        let fired = node.metrics().runs_completed.get().saturating_sub(fresh + FRESH_IN_FLIGHT);
        if first.is_none() && fired > 0 {
            first = Some(began.elapsed());
        }
        if fired >= TIMERS - FRESH_IN_FLIGHT && all.is_none() {
            all = Some(began.elapsed());
        }
        all.is_some() || began.elapsed() > Duration::from_secs(60)
    })
    .await;
    println!(
        "timers: first fired after {:.2} s, all after {:.1} s at no more than 6,000/s",
        first.unwrap_or_default().as_secs_f64(),
        all.unwrap_or_default().as_secs_f64()
    );
    tokio::time::sleep(Duration::from_secs(3)).await;
    let fired = bench.node.metrics().runs_completed.get() - during.len() as u64;
    println!("timers: {fired} runs ended by their timer, {} fresh runs at the same time", during.len());
    // As long as before, so that the store's background writes are in both.
    let quiet_from = Instant::now();
    let as_long = all.unwrap_or_default();
    let after = latencies(&bench, &plan, "q", |_, _| quiet_from.elapsed() > as_long).await;
    println!(
        "timers: fresh three-step runs, 8 in flight: p50/p99 {} ms during, {} ms afterwards",
        format_percentiles(&during),
        format_percentiles(&after)
    );
    bench.close().await;
}

fn three(id: &str) -> Value {
    let mut definition = abide_bench::three_tasks();
    definition["id"] = json!(id);
    definition
}

/// Fresh runs in flight while the timers fire.
const FRESH_IN_FLIGHT: u64 = 8;

/// Three-step runs, eight in flight, until `done` returns true. It gets the number of runs that have ended.
async fn latencies(
    bench: &BenchNode,
    plan: &Arc<Plan>,
    name: &str,
    mut done: impl FnMut(&Node<EmbeddedStore>, u64) -> bool,
) -> Vec<Duration> {
    let stop = Arc::new(AtomicBool::new(false));
    let ended = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..FRESH_IN_FLIGHT)
        .map(|client| {
            let node = Arc::clone(&bench.node);
            let plan = Arc::clone(plan);
            let stop = Arc::clone(&stop);
            let ended = Arc::clone(&ended);
            let name = name.to_owned();
            tokio::spawn(async move {
                let mut latencies = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let id = format!("{name}-{client}-{}", latencies.len());
                    let requested_at = Instant::now();
                    let begun = node.start_run(start(&plan, &id, json!({"id": "x"}))).await.expect("a reply");
                    assert!(matches!(begun.reply, ShardReply::Started(_)), "{:?}", begun.reply);
                    begun.end.await.expect("an end");
                    ended.fetch_add(1, Ordering::Relaxed);
                    latencies.push(requested_at.elapsed());
                }
                latencies
            })
        })
        .collect();
    while !done(&bench.node, ended.load(Ordering::Relaxed)) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.expect("a client"));
    }
    all.sort_unstable();
    all
}

fn format_percentiles(sorted: &[Duration]) -> String {
    let at = |share: f64| {
        sorted.get((sorted.len() as f64 * share) as usize).map_or(0.0, |d| d.as_secs_f64() * 1e3)
    };
    format!("{:.1}/{:.1}", at(0.5), at(0.99))
}

/// The cost of a turn of a run with a long history.
async fn history() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = BenchNode::open(folder.path()).await;
    bench.ready().await;
    let states = json!({
        "Wait": {"type": "wait", "waitType": "externalEvent", "eventName": "go", "output": "$.state.last", "next": "Again"},
        "Again": {"type": "choice", "choices": [{"when": {"path": "$.state.last", "op": "eq", "value": "end"}, "next": "End"}], "default": "Wait"},
        "End": {"type": "succeed"}});
    let plan = bench.publish(&abide_bench::definition("Wait", &states)).await;
    bench.start(&plan, "h", 0..1, &json!({})).await;
    let id = InstanceId::new("h-000000").expect("an id");
    let mut raised = 0u64;
    for length in [100u64, 10_000] {
        // A turn of this run writes about seven history events.
        while raised * 7 < length {
            raise(&bench, &id, raised).await;
            raised += 1;
        }
        let before = bench.node.metrics();
        let commits = before.commits.get();
        let rows = before.commit_rows.get();
        let bytes = before.commit_bytes.get();
        let began = Instant::now();
        let cpu = cpu_ticks();
        const SOME: u64 = 2_000;
        for _ in 0..SOME {
            raise(&bench, &id, raised).await;
            raised += 1;
        }
        let metrics = bench.node.metrics();
        println!(
            "history of {length} events: {:.0} µs per turn, CPU {:.0} µs, {:.2} commits, {:.2} rows, {:.0} bytes",
            began.elapsed().as_secs_f64() * 1e6 / SOME as f64,
            (cpu_ticks() - cpu) as f64 * 10_000.0 / SOME as f64,
            (metrics.commits.get() - commits) as f64 / SOME as f64,
            (metrics.commit_rows.get() - rows) as f64 / SOME as f64,
            (metrics.commit_bytes.get() - bytes) as f64 / SOME as f64,
        );
    }
    bench.close().await;
}

async fn raise(bench: &BenchNode, id: &InstanceId, number: u64) {
    let message = Message::EventRaised { name: "go".to_owned(), payload: json!({"number": number}).into() };
    let reply = bench
        .node
        .request(ShardRequest::SendMessage { instance_id: id.clone(), message })
        .await
        .expect("a reply");
    assert!(matches!(reply, ShardReply::Accepted), "{reply:?}");
}

/// Bytes and rows per item of maps of growing width.
async fn map() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = BenchNode::open(folder.path()).await;
    bench.ready().await;
    let plan = bench.publish(&abide_bench::map()).await;
    for items in [250u64, 500, 1_000, 2_000] {
        let metrics = bench.node.metrics();
        let rows = metrics.commit_rows.get();
        let bytes = metrics.commit_bytes.get();
        let input = json!({"items": (0..items).collect::<Vec<_>>()});
        let began = Instant::now();
        let begun = bench.node.start_run(start(&plan, &format!("m-{items}"), input)).await.expect("a reply");
        assert!(matches!(begun.reply, ShardReply::Started(_)));
        begun.end.await.expect("an end");
        println!(
            "map of {items}: {:.0} ms, {:.2} rows and {:.0} bytes per item",
            began.elapsed().as_secs_f64() * 1e3,
            (metrics.commit_rows.get() - rows) as f64 / items as f64,
            (metrics.commit_bytes.get() - bytes) as f64 / items as f64
        );
    }
    bench.close().await;
}

fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

fn cpu_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("proc");
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    number(11) + number(12)
}

fn rss_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("proc");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0)
}

//! Measures the runtime on the embedded store, in process: three sequential tasks, start and wait. There is no HTTP,
//! and activities run in process. Run with `scripts/bench runtime [IN_FLIGHT…]`.

#![expect(clippy::expect_used, reason = "a workload that does not run is a bug in the benchmark")]
#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
#![expect(clippy::cast_precision_loss, reason = "figures for people")]
#![expect(clippy::cast_possible_truncation, reason = "figures for people")]
#![expect(clippy::cast_sign_loss, reason = "figures for people")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use abide_dispatch::local::{ActivityCategory, ActivityDeclaration, LocalActivities};
use abide_runtime::definitions::Definitions;
use abide_runtime::node::{Node, NodeOptions};
use abide_runtime::placement::ShardCount;
use abide_runtime::{ShardConfig, ShardReply, StartRequest};
use abide_store::rows::PrivateRows;
use abide_store_embedded::{EmbeddedOptions as StoreOptions, EmbeddedStore};
use abide_workflow::{InstanceId, Timestamp};

/// The allocator of the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let arguments: Vec<usize> =
        std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let in_flight = if arguments.is_empty() { vec![1, 64, 512] } else { arguments };
    let shards = std::env::var("SHARDS").ok().and_then(|shards| shards.parse().ok()).unwrap_or(16);
    println!("{shards} shards; activities in process, no HTTP");
    println!(
        "in flight   runs/s   p50 ms   p99 ms   CPU µs/run   commits/run   rows/run   bytes/run   RSS MiB"
    );
    for in_flight in in_flight {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(measure(in_flight, shards));
    }
}

async fn measure(in_flight: usize, shards: u32) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Arc::new(EmbeddedStore::open(folder.path(), StoreOptions::default()).expect("a store"));
    let definitions = Arc::new(Definitions::new(Arc::clone(&store)).expect("definitions"));
    let text = abide_bench::three_tasks().to_string();
    let (plan, _) = definitions.publish(&text, None, Timestamp(0)).await.expect("a definition");
    let mut activities = LocalActivities::default();
    let work = |invocation: abide_dispatch::local::LocalInvocation| async move { Ok(invocation.input) };
    activities
        .register(ActivityDeclaration::new("Work", ActivityCategory::Other), work)
        .expect("an activity");
    let shards = ShardCount::new(shards).expect("a number of shards");
    let config = ShardConfig::new("bench".to_owned(), 1, shards, &store.capabilities());
    let options = NodeOptions {
        shard_config: config,
        concurrent_calls_max: 1_000,
        drain_grace: Duration::from_secs(5),
    };
    let node = Arc::new(Node::start(store, definitions, &Arc::new(activities), options).expect("a node"));
    while node.readiness().is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let next = Arc::new(AtomicU64::new(0));
    let began = Instant::now();
    let warm = Duration::from_secs(1);
    let until = Duration::from_secs(6);
    let mut tasks = Vec::new();
    let cpu = Arc::new(AtomicU64::new(0));
    for _ in 0..in_flight {
        let node = Arc::clone(&node);
        let plan = Arc::clone(&plan);
        let next = Arc::clone(&next);
        tasks.push(tokio::spawn(async move {
            let mut latencies = Vec::new();
            while began.elapsed() < until {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let id = InstanceId::new(format!("0198c2a4-7d31-7a52-9c6f-{number:012x}")).expect("an id");
                let start = StartRequest {
                    instance_id: id.clone(),
                    plan: Arc::clone(&plan),
                    input: serde_json::json!({"id": "dev-1"}).into(),
                    event: None,
                    correlation_id: id.as_str().to_owned(),
                    entity_id: None,
                    entity_type: None,
                    idempotency: None,
                    await_end: None,
                };
                let requested_at = Instant::now();
                let begun = node.start_run(start).await.expect("a reply");
                assert!(matches!(begun.reply, ShardReply::Started(_)), "{:?}", begun.reply);
                begun.end.await.expect("an end");
                if began.elapsed() > warm {
                    latencies.push(requested_at.elapsed());
                }
            }
            latencies
        }));
    }
    tokio::time::sleep(warm).await;
    let (commits, rows, bytes) = counters(&node);
    cpu.store(cpu_ticks(), Ordering::Relaxed);
    tokio::time::sleep(until - warm).await;
    let (commits_after, rows_after, bytes_after) = counters(&node);
    let cpu_used = (cpu_ticks() - cpu.load(Ordering::Relaxed)) as f64 * 10_000.0;
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(task.await.expect("a client"));
    }
    latencies.sort_unstable();
    let runs = latencies.len() as f64;
    let at = |share: f64| {
        latencies.get((runs * share) as usize).map_or(0.0, |latency| latency.as_secs_f64() * 1_000.0)
    };
    println!(
        "{in_flight:>9} {:>8.0} {:>8.2} {:>8.2} {:>12.1} {:>13.2} {:>10.2} {:>11.0} {:>9}",
        runs / (until - warm).as_secs_f64(),
        at(0.5),
        at(0.99),
        cpu_used / runs,
        (commits_after - commits) as f64 / runs,
        (rows_after - rows) as f64 / runs,
        (bytes_after - bytes) as f64 / runs,
        rss_mib(),
    );
    node.drain().await;
}

fn counters(node: &Node<EmbeddedStore>) -> (u64, u64, u64) {
    let metrics = node.metrics();
    (metrics.commits.get(), metrics.commit_rows.get(), metrics.commit_bytes.get())
}

/// User and system time of this process in hundredths of a second.
fn cpu_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("proc");
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    number(11) + number(12)
}

fn rss_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("proc");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1024
}

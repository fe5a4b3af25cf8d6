//! Measures dispatch alone: calls through the activity router to a process that returns its input, over all four wires.
//! There is no workflow, no store and no call record. Run with `scripts/bench dispatch [WIRE…] [IN_FLIGHT…]`;
//! `SECONDS=n` measures for longer.

#![expect(clippy::expect_used, reason = "a workload that does not run is a bug in the benchmark")]
#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
#![expect(clippy::cast_precision_loss, reason = "figures for people")]
#![expect(clippy::cast_possible_truncation, reason = "figures for people")]
#![expect(clippy::cast_sign_loss, reason = "figures for people")]

use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use abide_dispatch::remote::{
    BreakerConfig, Outbound, RemoteDeclaration, RemoteRegistry, SecretsConfig, SystemSecrets, WireFormat,
};
use abide_dispatch::{
    ActivityRouter, ActivityTransport, AttemptResult, CallAttempt, EgressGuard, EgressGuardConfig,
    LocalActivities, Metadata,
};
use abide_ids::Timestamp;
use abide_testkit::process::ProgramProcess;
use serde_json::json;

/// The allocator of the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const WARM_UP: Duration = Duration::from_secs(1);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let chosen = |wire: &WireFormat| arguments.iter().any(|argument| argument == wire.as_str());
    let mut wires: Vec<WireFormat> = WireFormat::ALL.into_iter().filter(chosen).collect();
    let mut in_flight: Vec<usize> = arguments.iter().filter_map(|argument| argument.parse().ok()).collect();
    if wires.is_empty() {
        wires = WireFormat::ALL.to_vec();
    }
    if in_flight.is_empty() {
        in_flight = vec![1, 64, 512];
    }
    let seconds = std::env::var("SECONDS").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(4);
    println!(
        "wire       in flight   calls/s   p50 µs   p99 µs CPU µs/call caller handler   stolen %   bytes of a future"
    );
    for wire in wires {
        for in_flight in &in_flight {
            let handlers = Handlers::start();
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(measure(wire, *in_flight, &handlers, Duration::from_secs(seconds)));
        }
    }
}

async fn measure(wire: WireFormat, in_flight: usize, handlers: &Handlers, span: Duration) {
    let transport = Arc::new(transport(wire, handlers.port));
    let call = Arc::new(call());
    let future_bytes = size_of_val(&transport.run_attempt((*call).clone()));
    while !matches!(transport.run_attempt((*call).clone()).await, AttemptResult::Completed(_)) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let began = Instant::now();
    let until = WARM_UP + span;
    let mut tasks = Vec::new();
    for _ in 0..in_flight {
        let transport = Arc::clone(&transport);
        let call = Arc::clone(&call);
        tasks.push(tokio::spawn(async move {
            let mut latencies = Vec::new();
            while began.elapsed() < until {
                let requested_at = Instant::now();
                // Each call is a separate task, as in a node.
                let transport = Arc::clone(&transport);
                let call = (*call).clone();
                let result = tokio::spawn(async move { transport.run_attempt(call).await }).await;
                assert!(matches!(result, Ok(AttemptResult::Completed(_))), "{result:?}");
                if began.elapsed() > WARM_UP {
                    latencies.push(requested_at.elapsed());
                }
            }
            latencies
        }));
    }
    tokio::time::sleep(WARM_UP).await;
    let here = cpu_ticks("self");
    let there = handlers.cpu_ticks();
    let stolen = stolen_ticks();
    tokio::time::sleep(span).await;
    let used = |before: u64, after: u64| (after - before) as f64 * 10_000.0;
    let here = used(here, cpu_ticks("self"));
    let there = used(there, handlers.cpu_ticks());
    let stolen = (stolen_ticks() - stolen) as f64 / span.as_secs_f64();
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(task.await.expect("a caller"));
    }
    latencies.sort_unstable();
    let calls = latencies.len() as f64;
    let at = |share: f64| latencies.get((calls * share) as usize).map_or(0, Duration::as_micros);
    println!(
        "{:<10} {in_flight:>9} {:>9.0} {:>8} {:>8} {:>18.1} {:>7.1} {stolen:>10.1} {future_bytes:>19}",
        wire.as_str(),
        calls / span.as_secs_f64(),
        at(0.5),
        at(0.99),
        here / calls,
        there / calls,
    );
}

fn transport(wire: WireFormat, port: u16) -> ActivityRouter {
    let allow = vec!["127.0.0.1".parse().expect("an address")];
    let guard = EgressGuard::new(EgressGuardConfig { allow, ..EgressGuardConfig::default() });
    let secrets = SystemSecrets::new(SecretsConfig::default());
    let outbound = Outbound::new(guard, secrets, BreakerConfig::default()).expect("an outbound client");
    let path = if wire == WireFormat::Grpc { "" } else { "/activities/bench.echo" };
    let declaration = json!({
        "name": "bench.echo", "category": "other", "transport": wire.as_str(), "concurrency": 1_000,
        "endpoint": format!("http://127.0.0.1:{port}{path}"),
    });
    let registry = RemoteRegistry::new(outbound);
    registry.put(RemoteDeclaration::read(&declaration).expect("a declaration")).expect("an activity");
    ActivityRouter::new(LocalActivities::default(), Arc::new(registry))
}

/// A call of the same size as those of three sequential tasks.
fn call() -> CallAttempt {
    let id = "0198c2a4-7d31-7a52-9c6f-2f3d8a1b4c5e";
    CallAttempt {
        activity: "bench.echo".to_owned(),
        input: Arc::new(json!({"id": "dev-123456", "before": {"id": "dev-123456", "before": null}})),
        metadata: Metadata {
            correlation_id: id.to_owned(),
            execution_id: format!("{id}:1"),
            idempotency_key: "97a03e98".repeat(8),
            retry_attempt: 0,
            deadline: None,
            dispatched_at: Timestamp(1_790_000_000_000),
            parent_item_id: None,
        },
        attempt_timeout_ms: 10_000,
        probe_first: false,
        secret_pointers: Vec::new(),
        elapsed_since_dispatch: Duration::ZERO,
    }
}

/// The process with the handlers. Dropping this ends it.
struct Handlers {
    process: ProgramProcess,
    port: u16,
}

impl Handlers {
    fn start() -> Self {
        // A free port: the listener is dropped at once.
        let port =
            TcpListener::bind(("127.0.0.1", 0)).and_then(|free| free.local_addr()).expect("a port").port();
        let mut program = Command::new(env!("CARGO_BIN_EXE_handlers"));
        program.arg(format!("127.0.0.1:{port}"));
        Self { process: ProgramProcess::spawn(program).expect("the handlers"), port }
    }

    fn cpu_ticks(&self) -> u64 {
        cpu_ticks(&self.process.id().to_string())
    }
}

/// User and system time of a process in hundredths of a second.
fn cpu_ticks(process: &str) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("proc");
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    number(11) + number(12)
}

/// Time that the host gave to other machines, in hundredths of a second.
fn stolen_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/stat").expect("proc");
    stat.lines().next().and_then(|line| line.split_whitespace().nth(8)?.parse().ok()).unwrap_or(0)
}

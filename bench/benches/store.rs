//! Measures the embedded store: commits, group commit, a three-step run, public queries, opening after a kill. Run with
//! `scripts/bench store [commits|groups|steps|queries|open]…`.

#![expect(clippy::expect_used, reason = "a workload that does not run is a bug in the benchmark")]
#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use abide_bench::three_steps;
use abide_ids::Timestamp;
use abide_store::memory::SeededRng;
use abide_store::public::{CellValue, PublicKey, PublicQuery, PublicRow, PublicTables, PublicWrite};
use abide_store::rows::{Batch, CommitOutcome, CommitReceipt, Key, Partition, PrivateRows};
use abide_store::tables::engine_history::SCHEMA;
use abide_store::tables::public_instances::SCHEMA as INSTANCES;
use abide_store_embedded::{EmbeddedOptions, EmbeddedStore, SyncMode};
use tokio::runtime::Runtime;

fn main() {
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let is_wanted =
        |name: &str| wanted.is_empty() && name != "open" || wanted.iter().any(|argument| argument == name);
    if let [fill, folder, gib] = wanted.as_slice()
        && fill == "fill"
    {
        return fill_and_die(Path::new(folder), gib.parse().expect("a number of GiB"));
    }
    println!("sync: {}", SyncMode::default().name());
    if is_wanted("commits") {
        commits();
    }
    if is_wanted("groups") {
        groups();
    }
    if is_wanted("steps") {
        steps();
    }
    if is_wanted("queries") {
        queries();
        churn();
    }
    if is_wanted("churn") && !wanted.is_empty() {
        churn();
    }
    if is_wanted("open") {
        open_after_a_kill();
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime")
}

fn shard(number: u64) -> Partition {
    Partition::new(&format!("shard/{number:04}")).expect("a name")
}

fn committed(outcome: CommitOutcome) -> CommitReceipt {
    match outcome {
        CommitOutcome::Committed(receipt) => receipt,
        other => unreachable!("{other:?}"),
    }
}

/// The cost of a load.
struct LoadResult {
    commits: u64,
    seconds: f64,
    cpu_seconds: f64,
    disk_bytes: u64,
}

/// Runs so many committers, each on its own partition, for this time.
fn load<F>(committers: u64, time: Duration, next: F) -> LoadResult
where
    F: Fn(u64, u64) -> Vec<(Key, Option<Vec<u8>>)> + Send + Sync + 'static,
{
    let folder = tempfile::tempdir().expect("a folder");
    let store = Arc::new(EmbeddedStore::open(folder.path(), EmbeddedOptions::default()).expect("a store"));
    let stop = Arc::new(AtomicBool::new(false));
    let count = Arc::new(AtomicU64::new(0));
    let next = Arc::new(next);
    let started = Instant::now();
    let cpu = cpu_seconds();
    let disk = disk_bytes();
    runtime().block_on(async {
        let tasks: Vec<_> = (0..committers)
            .map(|committer| {
                let store = store.clone();
                let stop = stop.clone();
                let count = count.clone();
                let next = next.clone();
                tokio::spawn(async move {
                    let mut version = None;
                    let partition = shard(committer);
                    let mut number = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let batch = three_steps::batch(next(committer, number), version, number);
                        version = committed(store.commit(&partition, batch).await).head_version;
                        number += 1;
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let timer = tokio::task::spawn_blocking(move || std::thread::sleep(time));
        timer.await.expect("a timer");
        stop.store(true, Ordering::Relaxed);
        for task in tasks {
            task.await.expect("a committer");
        }
    });
    LoadResult {
        commits: count.load(Ordering::Relaxed),
        seconds: started.elapsed().as_secs_f64(),
        cpu_seconds: cpu_seconds() - cpu,
        disk_bytes: disk_bytes() - disk,
    }
}

/// Rows with random keys, like most rows of runs.
fn random_rows(dice: &mut SeededRng, rows: u64, bytes: usize) -> Vec<(Key, Option<Vec<u8>>)> {
    let row = |dice: &mut SeededRng| {
        let mut value = Vec::with_capacity(bytes + 8);
        while value.len() < bytes {
            value.extend_from_slice(&dice.next_u64().to_be_bytes());
        }
        (Key::new(dice.next_u64().to_be_bytes()), Some(value))
    };
    (0..rows).map(|_| row(dice)).collect()
}

fn commits() {
    println!("\ncommits, 64 committers (rows besides the head, random keys)");
    println!(
        "rows  bytes each   commits/s    rows/s   CPU µs/commit   bytes to disk / bytes of rows     RSS"
    );
    for rows in [1u64, 3, 12] {
        for bytes in [100usize, 500, 2_000] {
            let result = load(64, Duration::from_secs(3), move |committer, number| {
                random_rows(&mut SeededRng::new((committer << 32) | number), rows, bytes)
            });
            let logical = result.commits * rows * (bytes as u64 + 8);
            println!(
                "{rows:>4}  {bytes:>10}  {:>10.0}  {:>8.0}  {:>14.1}  {:>30.2}  {:>4.0} MiB",
                result.commits as f64 / result.seconds,
                (result.commits * (rows + 1)) as f64 / result.seconds,
                result.cpu_seconds * 1e6 / result.commits as f64,
                result.disk_bytes as f64 / logical as f64,
                resident_mib(),
            );
        }
    }
}

fn groups() {
    println!("\ngroup commit, 4 rows of 250 bytes and a head");
    println!("committers   commits/s    rows/s   mean latency µs   CPU µs/commit");
    for committers in [1u64, 8, 64, 512] {
        let result = load(committers, Duration::from_secs(4), |committer, number| {
            random_rows(&mut SeededRng::new((committer << 32) | number), 4, 250)
        });
        println!(
            "{committers:>10}  {:>10.0}  {:>8.0}  {:>16.0}  {:>14.1}",
            result.commits as f64 / result.seconds,
            (result.commits * 5) as f64 / result.seconds,
            result.seconds * 1e6 * committers as f64 / result.commits as f64,
            result.cpu_seconds * 1e6 / result.commits as f64,
        );
    }
}

fn steps() {
    println!("\nthree-step runs as literal batches: 18 rows, 4 commits each");
    println!("shards busy at once   runs/s   mean µs/run   CPU µs/run");
    let template: Arc<Vec<three_steps::Rows>> = Arc::new(three_steps::commits(1));
    for committers in [1u64, 64] {
        let template = Arc::clone(&template);
        let result = load(committers, Duration::from_secs(4), move |_, number| {
            let rows = template.get(usize::try_from(number % 4).expect("small")).cloned().unwrap_or_default();
            // The same rows with the id of another run.
            let rename = |key: Key| {
                let mut bytes = key.as_bytes().to_vec();
                bytes.extend_from_slice(&(number / 4).to_be_bytes());
                Key::new(bytes)
            };
            rows.into_iter().map(|(key, value)| (rename(key), value)).collect()
        });
        let runs = result.commits as f64 / 4.0;
        println!(
            "{committers:>19}  {:>7.0}  {:>12.0}  {:>11.1}",
            runs / result.seconds,
            result.seconds * 1e6 * committers as f64 / runs,
            result.cpu_seconds * 1e6 / runs,
        );
    }
}

fn history_row(number: u64) -> PublicRow {
    let text = |text: String| CellValue::Text(text);
    let columns = BTreeMap::from([
        ("Engine".to_owned(), text(format!("engine-{}", number % 9))),
        ("InstanceId".to_owned(), text(format!("instance-{}", number / 20))),
        ("Operation".to_owned(), text(format!("operation-{}", number % 17))),
        (
            "Status".to_owned(),
            text(if number.is_multiple_of(50) { "Failed" } else { "Succeeded" }.to_owned()),
        ),
        ("DurationMs".to_owned(), CellValue::Integer(12)),
        ("Input".to_owned(), text("{\"key\":\"0198c2a4-7d31-7a52-9c6f-2f3d8a1b4c5e\"}".to_owned())),
        (
            "CreatedAtUtc".to_owned(),
            CellValue::Time(Timestamp(1_790_000_000_000).plus(abide_ids::Duration(number))),
        ),
        ("CorrelationId".to_owned(), text(format!("correlation-{}", number / 3))),
    ]);
    let key =
        PublicKey { partition: format!("engine-{}", number % 9), row: format!("correlation-{number:012}") };
    PublicRow { key, revision: 1, columns }
}

fn queries() {
    println!("\npublic queries, pages of 50, newest first, from a random time");
    println!("rows       filter                        p50 µs   p99 µs   max µs");
    for total in [10_000u64, 100_000, 1_000_000] {
        let folder = tempfile::tempdir().expect("a folder");
        let options = EmbeddedOptions { sync: SyncMode::OperatingSystem, ..EmbeddedOptions::default() };
        let store = EmbeddedStore::open(folder.path(), options).expect("a store");
        runtime().block_on(async {
            let started = Instant::now();
            for slice in 0..total / 1_000 {
                let rows =
                    (slice * 1_000..(slice + 1) * 1_000).map(|number| PublicWrite::Put(history_row(number)));
                store.put(&SCHEMA, rows.collect()).await.expect("rows are put");
            }
            println!("{total} rows put, {:.0}/s", total as f64 / started.elapsed().as_secs_f64());
            run_queries(&store, total).await;
        });
        println!("RSS {:.0} MiB", resident_mib());
    }
}

/// Many runs that completed: listing the few that still run must not scan all that do not.
fn churn() {
    println!("\nmany completed runs, then the list of the ten that still run");
    println!("finished      p50 µs   p99 µs");
    for total in [10_000u64, 100_000, 1_000_000] {
        let folder = tempfile::tempdir().expect("a folder");
        let options = EmbeddedOptions { sync: SyncMode::OperatingSystem, ..EmbeddedOptions::default() };
        let store = EmbeddedStore::open(folder.path(), options).expect("a store");
        runtime().block_on(async {
            for slice in 0..total / 500 {
                let numbers = slice * 500..(slice + 1) * 500;
                let running =
                    numbers.clone().map(|number| PublicWrite::Put(instance_row(number, 1, "Running")));
                store.put(&INSTANCES, running.collect()).await.expect("rows are put");
                let finished = numbers.filter(|number| number % (total / 10) != 7);
                let finished = finished.map(|number| PublicWrite::Put(instance_row(number, 2, "Completed")));
                store.put(&INSTANCES, finished.collect()).await.expect("rows are put");
            }
            let mut times = Vec::new();
            for _ in 0..200 {
                let started = Instant::now();
                let mut query = PublicQuery::default().filter("Status", "Running");
                let mut found = 0;
                loop {
                    let page = store.query(&INSTANCES, &query).await.expect("a page");
                    found += page.rows.len();
                    if page.continuation.is_none() {
                        break;
                    }
                    query = query.continue_from(page.continuation);
                }
                times.push(started.elapsed().as_micros());
                assert_eq!(found, 10);
            }
            times.sort_unstable();
            let at = |share: usize| times.get(times.len() * share / 100).copied().unwrap_or_default();
            println!("{total:>8}  {:>8}  {:>8}", at(50), at(99));
        });
    }
}

fn instance_row(number: u64, revision: u64, status: &str) -> PublicRow {
    let text = |text: String| CellValue::Text(text);
    let columns = BTreeMap::from([
        ("InstanceId".to_owned(), text(format!("instance-{number}"))),
        ("ExecutionId".to_owned(), text(format!("instance-{number}:1"))),
        ("Workflow".to_owned(), text("device-onboarding".to_owned())),
        ("Version".to_owned(), text("1.0.0".to_owned())),
        ("Status".to_owned(), text(status.to_owned())),
        ("CorrelationId".to_owned(), text(format!("correlation-{number}"))),
        (
            "CreatedAtUtc".to_owned(),
            CellValue::Time(Timestamp(1_790_000_000_000).plus(abide_ids::Duration(number))),
        ),
        (
            "LastUpdatedAtUtc".to_owned(),
            CellValue::Time(Timestamp(1_790_000_000_000).plus(abide_ids::Duration(number))),
        ),
    ]);
    let key = PublicKey { partition: format!("instance-{number}"), row: "0000000001".to_owned() };
    PublicRow { key, revision, columns }
}

async fn run_queries(store: &EmbeddedStore, total: u64) {
    type Filter = fn(&PublicRow) -> Vec<(&'static str, String)>;
    fn by(row: &PublicRow, columns: &[&'static str]) -> Vec<(&'static str, String)> {
        columns.iter().map(|column| (*column, row.text(column).unwrap_or_default().to_owned())).collect()
    }
    let filters: [(&str, Filter); 9] = [
        ("none", |_| Vec::new()),
        ("engine", |row| by(row, &["Engine"])),
        ("status", |row| by(row, &["Status"])),
        ("operation", |row| by(row, &["Operation"])),
        ("instanceId", |row| by(row, &["InstanceId"])),
        ("correlationId", |row| by(row, &["CorrelationId"])),
        ("engine + status", |row| by(row, &["Engine", "Status"])),
        ("engine + operation", |row| by(row, &["Engine", "Operation"])),
        ("status + operation", |row| by(row, &["Status", "Operation"])),
    ];
    for (name, filter) in filters {
        let mut dice = SeededRng::new(total);
        let mut times: Vec<u128> = Vec::new();
        for _ in 0..2_000 {
            let row = history_row(dice.below(total));
            let mut query = PublicQuery {
                until: row.order_time(&SCHEMA).map(|at| at.plus(abide_ids::Duration(1))),
                ..PublicQuery::default()
            };
            for (column, value) in filter(&row) {
                query = query.filter(column, &value);
            }
            let started = Instant::now();
            let page = store.query(&SCHEMA, &query).await.expect("a page");
            times.push(started.elapsed().as_micros());
            assert!(!page.rows.is_empty(), "the row itself is in the page");
        }
        times.sort_unstable();
        let at = |share: usize| times.get(times.len() * share / 100).copied().unwrap_or_default();
        println!(
            "{total:>9}  {name:<28}  {:>6}   {:>6}   {:>6}",
            at(50),
            at(99),
            times.last().copied().unwrap_or_default()
        );
    }
}

/// Opens a store of ten GiB whose process was killed while it wrote.
fn open_after_a_kill() {
    let gib = std::env::var("ABIDE_BENCH_GIB").unwrap_or_else(|_| "10".to_owned());
    let folder = tempfile::tempdir().expect("a folder");
    let program = std::env::current_exe().expect("this program");
    let started = Instant::now();
    let filler = std::process::Command::new(program).arg("fill").arg(folder.path()).arg(&gib).status();
    println!(
        "\n{gib} GiB written in {:.0} s, then {}",
        started.elapsed().as_secs_f64(),
        filler.expect("a filler")
    );
    for round in ["after the kill", "after a clean close"] {
        let started = Instant::now();
        let store = EmbeddedStore::open(folder.path(), EmbeddedOptions::default()).expect("the store opens");
        println!("open {round}: {:.2} s, RSS {:.0} MiB", started.elapsed().as_secs_f64(), resident_mib());
        drop(store);
    }
}

fn fill_and_die(folder: &Path, gib: u64) {
    let options = EmbeddedOptions { sync: SyncMode::OperatingSystem, ..EmbeddedOptions::default() };
    let store = EmbeddedStore::open(folder, options).expect("a store");
    let mut dice = SeededRng::new(1);
    let mut version = None;
    let mut written = 0;
    runtime().block_on(async {
        while written < gib << 30 {
            let rows = random_rows(&mut dice, 500, 2_000);
            let batch: Batch = three_steps::batch(rows, version, written);
            written += batch.size_bytes() as u64;
            version = committed(store.commit(&shard(0), batch).await).head_version;
        }
    });
    println!(
        "RSS while filling {:.0} MiB, {:.1} GiB on disk",
        resident_mib(),
        disk_bytes() as f64 / (1u64 << 30) as f64
    );
    // Like kill -9: nothing is closed or flushed.
    std::process::abort();
}

/// CPU time of this process, user and system.
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    ticks.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// Bytes that this process has written to disk.
fn disk_bytes() -> u64 {
    field("/proc/self/io", "write_bytes:")
}

fn resident_mib() -> f64 {
    field("/proc/self/status", "VmRSS:") as f64 / 1024.0
}

fn field(file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

//! Measures one run of one workload on one system, from an empty folder to figures.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use abide_testkit::http_client::HttpRequest;

use crate::figures::{Figure, Figures};
use crate::load::{self, BenchLoad, ClosedLoop, LoadTally};
use crate::process::{self, Machine, RunningSystem, Usage};
use crate::system::{self, System, Workload, accepted};
use crate::trace;

/// Connections that start, raise and poll in W3.
const W3_IN_FLIGHT: usize = 256;
/// How long all instances wait before memory is measured and they are raised.
const SETTLE: Duration = Duration::from_secs(2);
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// A workload and its size.
#[derive(Clone, Copy)]
pub(crate) struct WorkloadSize {
    pub(crate) workload: Workload,
    /// W3: how many instances wait. Otherwise: how many are in flight.
    pub(crate) count: usize,
}

/// The durations of a closed loop.
#[derive(Clone, Copy)]
pub(crate) struct Spans {
    pub(crate) warm_up: Duration,
    pub(crate) measured: Duration,
}

/// Measures one run.
pub(crate) async fn run(system: &Arc<dyn System>, cell: WorkloadSize, spans: Spans) -> io::Result<Figures> {
    let (running, ready_seconds) = system::start(system, cell.workload, false).await?;
    let mut figures = match cell.workload {
        Workload::W3 => waiting(system, &running, cell.count).await,
        Workload::W1 | Workload::W2 | Workload::W4 => closed_loop(system, &running, cell, spans).await,
    };
    figures.set(Figure::ReadySeconds, ready_seconds);
    let usage = running.usage();
    figures.set(Figure::PeakMib, usage.iter().map(|usage| usage.peak_mib).sum());
    if let [server, _, ..] = usage.as_slice() {
        figures.set(Figure::PeakServerMib, server.peak_mib);
    }
    Ok(figures)
}

/// Counts the syncs of a run, and nothing else: tracing costs time.
pub(crate) async fn syncs(system: &Arc<dyn System>, cell: WorkloadSize, spans: Spans) -> io::Result<Figures> {
    let (running, _) = system::start(system, cell.workload, true).await?;
    let load = looped(system, &running, cell);
    let closed_loop = ClosedLoop::start(&load);
    tokio::time::sleep(spans.warm_up).await;
    let from = trace::now_seconds();
    closed_loop.begin();
    tokio::time::sleep(spans.measured).await;
    let tally = closed_loop.end();
    let until = trace::now_seconds();
    let syncs = trace::syncs(running.place.folder(), from, until)? as f64;
    let mut figures = Figures::default();
    figures.set(Figure::SyncsPerSecond, syncs / (until - from));
    figures.set(Figure::SyncsPerWorkflow, syncs / finished(&tally));
    Ok(figures)
}

fn looped(system: &Arc<dyn System>, running: &RunningSystem, cell: WorkloadSize) -> BenchLoad {
    let make = Arc::clone(system);
    let judge = Arc::clone(system);
    BenchLoad {
        port: running.place.api,
        in_flight: cell.count,
        make: Arc::new(move |number| make.start_and_wait(cell.workload, number)),
        judge: Arc::new(move |response| judge.judge(response)),
    }
}

async fn closed_loop(
    system: &Arc<dyn System>,
    running: &RunningSystem,
    cell: WorkloadSize,
    spans: Spans,
) -> Figures {
    let nothing = |_: &RunningSystem| std::future::ready(());
    looped_beside(system, running, cell, spans, nothing).await.0
}

/// Measures a closed loop next to another load, which `begin` starts between warm-up and measurement. The figures
/// include the calls and counters of that load.
pub(crate) async fn beside<F: Future<Output = io::Result<()>>>(
    system: &Arc<dyn System>,
    running: &RunningSystem,
    cell: WorkloadSize,
    spans: Spans,
    begin: impl FnOnce(&RunningSystem) -> F,
) -> io::Result<Figures> {
    let (mut figures, begun) = looped_beside(system, running, cell, spans, begin).await;
    begun?;
    if let Some(metrics) = metrics(system, running).await {
        figures.set(Figure::CallsRunning, sum(&metrics, "abide_calls_running").unwrap_or(0.0));
        figures.set(Figure::CallsWaiting, sum(&metrics, "abide_calls_waiting").unwrap_or(0.0));
    }
    Ok(figures)
}

async fn looped_beside<F: Future>(
    system: &Arc<dyn System>,
    running: &RunningSystem,
    cell: WorkloadSize,
    spans: Spans,
    begin: impl FnOnce(&RunningSystem) -> F,
) -> (Figures, F::Output) {
    let closed_loop = ClosedLoop::start(&looped(system, running, cell));
    tokio::time::sleep(spans.warm_up).await;
    let begun = begin(running).await;
    let counters_before = counters(system, running).await;
    let calls_before = calls(system, running).await;
    let watch = UsageWatch::begin(running);
    closed_loop.begin();
    tokio::time::sleep(spans.measured).await;
    let mut tally = closed_loop.end();
    let workflows = finished(&tally);
    let mut figures = Figures::default();
    let seconds = watch.end(running, workflows, cell.workload.steps(), &mut figures);
    let counters_after = counters(system, running).await;
    let calls_after = calls(system, running).await;
    figures.set(Figure::WorkflowsPerSecond, workflows / seconds);
    if cell.workload == Workload::W4 {
        figures.set(Figure::StepsPerSecond, workflows * system::BRANCHES as f64 / seconds);
    }
    figures.set(Figure::P50Ms, tally.percentile_ms(0.50));
    figures.set(Figure::P99Ms, tally.percentile_ms(0.99));
    if let (Some(before), Some(after)) = (counters_before, counters_after) {
        figures.set(Figure::CommitsPerSecond, (after.commits - before.commits) / seconds);
        figures.set(Figure::CommitsPerWorkflow, (after.commits - before.commits) / workflows);
        figures.set(Figure::RowsPerWorkflow, (after.rows - before.rows) / workflows);
    }
    if let (Some(before), Some(after)) = (calls_before, calls_after) {
        figures.set(Figure::CallsPerStep, (after - before) / (workflows * cell.workload.steps() as f64));
    }
    errors(&mut figures, &tally);
    (figures, begun)
}

async fn waiting(system: &Arc<dyn System>, running: &RunningSystem, count: usize) -> Figures {
    let load = |make: load::Make, judge: load::Judge| BenchLoad {
        port: running.place.api,
        in_flight: W3_IN_FLIGHT,
        make,
        judge,
    };
    let [starting, raising, asking, judging] = std::array::from_fn(|_| Arc::clone(system));
    let start = load(Arc::new(move |number| starting.start_waiting(number)), Arc::new(accepted));
    let raise = load(Arc::new(move |number| raising.raise(number)), Arc::new(accepted));
    let ask = load(
        Arc::new(move |number| asking.outcome(number)),
        Arc::new(move |response| judging.judge(response)),
    );

    let resident =
        |running: &RunningSystem| running.usage().iter().map(|usage| usage.resident_mib).sum::<f64>();
    let watch = UsageWatch::begin(running);
    let resident_before = resident(running);
    let (start_seconds, mut tally) = load::each(&start, count as u64).await;
    tokio::time::sleep(SETTLE).await;
    let resident_waiting = resident(running);
    let (raise_seconds, raised) = load::each(&raise, count as u64).await;
    let (ask_seconds, asked) = load::each(&ask, count as u64).await;
    for other in [raised, asked] {
        tally.errors += other.errors;
        tally.first_error = tally.first_error.or(other.first_error);
    }
    let mut figures = Figures::default();
    figures.set(Figure::StartSeconds, start_seconds);
    figures.set(Figure::FinishSeconds, raise_seconds + ask_seconds);
    figures.set(Figure::WaitingGrownMib, resident_waiting - resident_before);
    watch.end(running, count as f64, 0, &mut figures);
    errors(&mut figures, &tally);
    figures
}

fn finished(tally: &LoadTally) -> f64 {
    tally.latencies_us.len() as f64
}

/// Measures CPU time and real time between `begin` and `end`.
struct UsageWatch {
    used: Vec<Usage>,
    machine: Machine,
    began: f64,
}

impl UsageWatch {
    fn begin(running: &RunningSystem) -> Self {
        Self { used: running.usage(), machine: process::machine(), began: trace::now_seconds() }
    }

    /// Sets the cost of a workflow and the CPU time of other processes. Returns the elapsed seconds.
    fn end(self, running: &RunningSystem, workflows: f64, steps: usize, figures: &mut Figures) -> f64 {
        let seconds = trace::now_seconds() - self.began;
        let machine = process::machine();
        let used = running.usage();
        let spent = self.used.iter().zip(used).map(|(before, after)| after.cpu_seconds - before.cpu_seconds);
        let spent: Vec<f64> = spent.collect();
        let total = spent.iter().sum::<f64>();
        figures.set(Figure::CpuMs, total * 1000.0 / workflows);
        // In most systems the server calls a separate process: the figures tell the two apart.
        let step_us = |seconds: f64| seconds * 1e6 / (workflows * steps as f64);
        if let [server, _, ..] = spent.as_slice() {
            figures.set(Figure::CpuServerMs, server * 1000.0 / workflows);
        }
        for (figure, spent) in [Figure::StepServerUs, Figure::StepServiceUs].into_iter().zip(&spent) {
            if steps > 0 {
                figures.set(figure, step_us(*spent));
            }
        }
        let client = machine.client_seconds - self.machine.client_seconds;
        let others = machine.busy_seconds - self.machine.busy_seconds - client - total;
        let stolen = machine.stolen_seconds - self.machine.stolen_seconds;
        figures.set(Figure::OthersPercent, (others - stolen).max(0.0) * 100.0 / seconds);
        figures.set(Figure::StolenPercent, stolen * 100.0 / seconds);
        seconds
    }
}

fn errors(figures: &mut Figures, tally: &LoadTally) {
    figures.set(Figure::Errors, tally.errors as f64);
    if let Some(error) = &tally.first_error {
        eprintln!("    {} errors; the first: {error}", tally.errors);
    }
}

struct Counters {
    commits: f64,
    rows: f64,
}

async fn metrics(system: &Arc<dyn System>, running: &RunningSystem) -> Option<String> {
    let request: HttpRequest = system.counters()?;
    let response = process::ask(running.place.api, &request, ANSWER_WITHIN).await.ok()?;
    String::from_utf8(response.body).ok()
}

async fn counters(system: &Arc<dyn System>, running: &RunningSystem) -> Option<Counters> {
    let text = metrics(system, running).await?;
    Some(Counters {
        commits: sum(&text, "abide_commits_total")?,
        rows: sum(&text, "abide_commit_rows_total")?,
    })
}

/// How many calls the separate process has received.
async fn calls(system: &Arc<dyn System>, running: &RunningSystem) -> Option<f64> {
    let response = process::ask(running.place.service, &system.calls()?, ANSWER_WITHIN).await.ok()?;
    serde_json::from_slice::<serde_json::Value>(&response.body).ok()?.get("calls")?.as_f64()
}

/// The sum over all labels of a counter in the text format of Prometheus.
fn sum(text: &str, name: &str) -> Option<f64> {
    let of_it = text.lines().filter_map(|line| line.strip_prefix(name));
    let values = of_it.filter(|rest| rest.starts_with(['{', ' '])).filter_map(|rest| {
        // The value is after the labels, or after the name; a timestamp may follow.
        let rest = rest.rsplit_once('}').map_or(rest, |(_, rest)| rest);
        rest.split_whitespace().next()?.parse::<f64>().ok()
    });
    values.reduce(|sum, value| sum + value)
}

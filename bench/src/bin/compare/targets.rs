//! `scripts/bench targets`: measures how much a slow or dead target reduces the throughput of other activities.
//!
//! Three sequential tasks over REST are measured alone, and then together with instances that keep calling one bad
//! target: a call, its failure, two seconds, the next call. The measurement begins as soon as they are started, so that
//! it includes the first attempts, which hang for the whole attempt timeout. Every run begins with an empty folder; the
//! kinds alternate.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use abide_bench::bad_target::BadTargetKind;
use abide_testkit::http_client::{HttpRequest, HttpResponse};
use clap::Args;
use serde_json::json;

use crate::abide::{AbideSystem, HandlerWire};
use crate::figures::{Figure, Runs, table};
use crate::load::{self, BenchLoad, ResponseVerdict};
use crate::measure::{self, Spans, WorkloadSize};
use crate::process::{Place, RunningSystem};
use crate::system::{self, System, Workload, accepted};

const BAD_TARGET_WORKFLOW: &str = "troubled";
/// Connections that start the instances.
const STARTING: usize = 16;

/// Measures how much a bad target reduces the throughput of other activities.
#[derive(Args)]
pub(crate) struct Options {
    /// Instances that keep calling the bad target.
    #[arg(long, default_value_t = 200)]
    instances: u64,
    /// Requests in flight of the measured workload.
    #[arg(long, default_value_t = 64)]
    in_flight: usize,
    #[arg(long, default_value_t = 12)]
    seconds: u64,
    #[arg(long, default_value_t = 3)]
    warm_up: u64,
    #[arg(long, default_value_t = 3)]
    runs: u32,
    /// Kinds of bad targets.
    #[arg(long, value_delimiter = ',', default_value = "unanswered,silent,trickle,reset,endless")]
    kinds: Vec<BadTargetKind>,
}

pub(crate) struct Programs {
    pub(crate) abide: PathBuf,
    pub(crate) handlers: PathBuf,
    pub(crate) bad_targets: PathBuf,
}

pub(crate) async fn run(options: &Options, programs: &Programs) -> io::Result<()> {
    let Options { instances, in_flight, seconds, warm_up, runs, kinds } = options;
    let cell = WorkloadSize { workload: Workload::W1, count: *in_flight };
    let spans = Spans { warm_up: Duration::from_secs(*warm_up), measured: Duration::from_secs(*seconds) };
    let alone = std::iter::once(None);
    let all: Vec<Option<BadTargetKind>> = alone.chain(kinds.iter().copied().map(Some)).collect();
    println!("{}, over REST, {in_flight} in flight, alone and together with", Workload::W1);
    println!(
        "{instances} instances that keep calling a bad target; {runs} runs each, alternating, {seconds} s from their start on"
    );
    let mut measured: Vec<Runs> = all.iter().map(|_| Runs::default()).collect();
    for run in 1..=*runs {
        for (kind, figures) in all.iter().zip(&mut measured) {
            eprintln!("  run {run}, {}", kind.map_or("alone", BadTargetKind::name));
            let system: Arc<dyn System> = Arc::new(AbideWithBadTarget::new(programs, *kind));
            let (running, _) = system::start(&system, cell.workload, false).await?;
            let count = if kind.is_some() { *instances } else { 0 };
            let starting = |running: &RunningSystem| start_all(running.place.api, count);
            figures.push(measure::beside(&system, &running, cell, spans, starting).await?);
        }
    }
    let names: Vec<&str> = all.iter().map(|kind| kind.map_or("alone", BadTargetKind::name)).collect();
    let columns: Vec<(&str, &Runs)> = names.iter().copied().zip(&measured).collect();
    println!("\n{}", table(&columns));
    let medians: Vec<f64> =
        measured.iter().map(|runs| runs.median(Figure::WorkflowsPerSecond).unwrap_or(0.0)).collect();
    let alone = medians.first().copied().unwrap_or(0.0);
    for (name, median) in names.iter().zip(&medians).skip(1) {
        println!("{name:<12} {:>5.1} % of the throughput alone", median * 100.0 / alone);
    }
    Ok(())
}

/// Starts this many instances that call the bad target.
async fn start_all(port: u16, count: u64) -> io::Result<()> {
    let make = |number: u64| {
        let body = json!({"workflow": BAD_TARGET_WORKFLOW, "input": {"id": number}});
        HttpRequest::post("/api/instances", &body)
    };
    let load = BenchLoad { port, in_flight: STARTING, make: Arc::new(make), judge: Arc::new(accepted) };
    let (_, tally) = load::each(&load, count).await;
    match tally.first_error {
        None => Ok(()),
        Some(error) => Err(io::Error::other(error)),
    }
}

/// Abide with a good target, and a bad one as well.
struct AbideWithBadTarget {
    abide: AbideSystem,
    bad: Option<(PathBuf, BadTargetKind)>,
}

impl AbideWithBadTarget {
    fn new(programs: &Programs, kind: Option<BadTargetKind>) -> Self {
        let Programs { abide, handlers, bad_targets } = programs;
        let abide = AbideSystem::with_external_handlers(abide.clone(), handlers.clone(), HandlerWire::Rest);
        Self { abide, bad: kind.map(|kind| (bad_targets.clone(), kind)) }
    }
}

impl System for AbideWithBadTarget {
    fn key(&self) -> &'static str {
        self.bad.as_ref().map_or("alone", |(_, kind)| kind.name())
    }

    fn label(&self) -> &str {
        self.key()
    }

    fn programs(&self, place: &Place) -> io::Result<Vec<Command>> {
        let mut programs = self.abide.programs(place)?;
        let Some((bad, kind)) = &self.bad else { return Ok(programs) };
        declare(&place.folder().join("abide.toml"), place.node)?;
        let mut bad = Command::new(bad);
        bad.arg(format!("127.0.0.1:{}", place.node)).arg(kind.name());
        programs.push(bad);
        Ok(programs)
    }

    fn preparations(&self, place: &Place, workload: Workload) -> Vec<(u16, HttpRequest)> {
        let mut preparations = self.abide.preparations(place, workload);
        if self.bad.is_some() {
            let again = json!({"type": "wait", "waitType": "duration", "duration": "PT2S", "next": "Call"});
            let call = json!({
                "type": "task", "activity": "bench.bad", "input": {"id": "$.input.id"},
                "retryPolicy": {"maxAttempts": 1}, "onError": "Pause", "next": "End",
            });
            let definition = json!({
                "$schema": "workflow-schema-v1.json", "id": BAD_TARGET_WORKFLOW, "version": "1.0.0", "startAt": "Call",
                "states": {"Call": call, "Pause": again, "End": {"type": "succeed"}},
            });
            preparations.push((place.api, HttpRequest::post("/api/workflows", &definition)));
        }
        preparations
    }

    fn start_and_wait(&self, workload: Workload, number: u64) -> HttpRequest {
        self.abide.start_and_wait(workload, number)
    }

    fn start_waiting(&self, number: u64) -> HttpRequest {
        self.abide.start_waiting(number)
    }

    fn raise(&self, number: u64) -> HttpRequest {
        self.abide.raise(number)
    }

    fn outcome(&self, number: u64) -> HttpRequest {
        self.abide.outcome(number)
    }

    fn judge(&self, response: &HttpResponse) -> ResponseVerdict {
        self.abide.judge(response)
    }

    fn counters(&self) -> Option<HttpRequest> {
        self.abide.counters()
    }
}

/// Adds the bad target to the configuration, with the default concurrency.
fn declare(config: &Path, port: u16) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().append(true).open(config)?;
    write!(
        file,
        "[[activities]]\n\
         name = \"bench.bad\"\n\
         category = \"other\"\n\
         transport = \"rest\"\n\
         endpoint = \"http://127.0.0.1:{port}/activities/bench.bad\"\n"
    )
}

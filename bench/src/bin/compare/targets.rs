//! `scripts/bench targets`: what a slow or dead target leaves of the throughput of other activities.
//!
//! Three sequential tasks over REST are measured alone, then each time with a number of instances that keep calling one bad target: a call, its failure,
//! two seconds, the next call. Measuring begins as soon as they are started, so that the first deliveries, which hang as long as an attempt may
//! take, are part of it. Every run begins with an empty folder; the kinds take turns.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use abide_bench::bad_target::Kind;
use clap::Args;
use serde_json::json;

use crate::abide::{Abide, Over};
use crate::figures::{Figure, Runs, table};
use crate::http::{Answer, Request};
use crate::load::{self, Load, Verdict};
use crate::measure::{self, Cell, Spans};
use crate::process::{Place, Running};
use crate::system::{self, System, Workload, accepted};

const TROUBLED: &str = "troubled";
/// Connections that start the instances.
const STARTING: usize = 16;

/// Measures what a bad target leaves of others' throughput.
#[derive(Args)]
pub(crate) struct Options {
    /// Instances that keep calling the bad target.
    #[arg(long, default_value_t = 200)]
    instances: u64,
    /// Of the good ones at once.
    #[arg(long, default_value_t = 64)]
    in_flight: usize,
    #[arg(long, default_value_t = 12)]
    seconds: u64,
    #[arg(long, default_value_t = 3)]
    warm_up: u64,
    #[arg(long, default_value_t = 3)]
    runs: u32,
    /// Kinds of trouble.
    #[arg(long, value_delimiter = ',', default_value = "unanswered,silent,trickle,reset,endless")]
    kinds: Vec<Kind>,
}

/// The programs.
pub(crate) struct Programs {
    pub(crate) abide: PathBuf,
    pub(crate) handlers: PathBuf,
    pub(crate) bad_targets: PathBuf,
}

pub(crate) async fn run(options: &Options, programs: &Programs) -> io::Result<()> {
    let Options { instances, in_flight, seconds, warm_up, runs, kinds } = options;
    let cell = Cell { workload: Workload::W1, count: *in_flight };
    let spans = Spans { warm_up: Duration::from_secs(*warm_up), measured: Duration::from_secs(*seconds) };
    let alone = std::iter::once(None);
    let all: Vec<Option<Kind>> = alone.chain(kinds.iter().copied().map(Some)).collect();
    println!("{}, over REST, {in_flight} in flight, alone and beside", Workload::W1);
    println!(
        "{instances} instances that keep calling a bad target; {runs} runs each, in turns, {seconds} s from their start on"
    );
    let mut measured: Vec<Runs> = all.iter().map(|_| Runs::default()).collect();
    for run in 1..=*runs {
        for (kind, figures) in all.iter().zip(&mut measured) {
            eprintln!("  run {run}, {}", kind.map_or("alone", Kind::name));
            let system: Arc<dyn System> = Arc::new(Troubled::new(programs, *kind));
            let (running, _) = system::start(&system, cell.workload, false).await?;
            let count = if kind.is_some() { *instances } else { 0 };
            let starting = |running: &Running| start_all(running.place.api, count);
            figures.push(measure::beside(&system, &running, cell, spans, starting).await?);
        }
    }
    let names: Vec<&str> = all.iter().map(|kind| kind.map_or("alone", Kind::name)).collect();
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
        let body = json!({"workflow": TROUBLED, "input": {"id": number}});
        Request::post("/api/instances", &body.to_string())
    };
    let load = Load { port, in_flight: STARTING, make: Arc::new(make), judge: Arc::new(accepted) };
    let (_, tally) = load::each(&load, count).await;
    match tally.first_error {
        None => Ok(()),
        Some(error) => Err(io::Error::other(error)),
    }
}

/// Abide with a good target, and a bad one beside it.
struct Troubled {
    abide: Abide,
    bad: Option<(PathBuf, Kind)>,
}

impl Troubled {
    fn new(programs: &Programs, kind: Option<Kind>) -> Self {
        let Programs { abide, handlers, bad_targets } = programs;
        let abide = Abide::calling(abide.clone(), handlers.clone(), Over::Rest);
        Self { abide, bad: kind.map(|kind| (bad_targets.clone(), kind)) }
    }
}

impl System for Troubled {
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

    fn preparations(&self, place: &Place, workload: Workload) -> Vec<(u16, Request)> {
        let mut preparations = self.abide.preparations(place, workload);
        if self.bad.is_some() {
            let again = json!({"type": "wait", "waitType": "duration", "duration": "PT2S", "next": "Call"});
            let call = json!({
                "type": "task", "activity": "bench.bad", "input": {"id": "$.input.id"},
                "retryPolicy": {"maxAttempts": 1}, "onError": "Pause", "next": "End",
            });
            let definition = json!({
                "$schema": "workflow-schema-v1.json", "id": TROUBLED, "version": "1.0.0", "startAt": "Call",
                "states": {"Call": call, "Pause": again, "End": {"type": "succeed"}},
            });
            preparations.push((place.api, Request::post("/api/workflows", &definition.to_string())));
        }
        preparations
    }

    fn start_and_wait(&self, workload: Workload, number: u64) -> Request {
        self.abide.start_and_wait(workload, number)
    }

    fn start_waiting(&self, number: u64) -> Request {
        self.abide.start_waiting(number)
    }

    fn raise(&self, number: u64) -> Request {
        self.abide.raise(number)
    }

    fn outcome(&self, number: u64) -> Request {
        self.abide.outcome(number)
    }

    fn judge(&self, answer: &Answer) -> Verdict {
        self.abide.judge(answer)
    }

    fn counters(&self) -> Option<Request> {
        self.abide.counters()
    }
}

/// Adds the bad target to the configuration, with as many places as an activity has if nothing is said.
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

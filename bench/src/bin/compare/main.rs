//! `compare`: Abide beside Restate, measured with the same client. Run by `scripts/bench compare`; asserts nothing.
//!
//! Every run begins with an empty folder and ends with its processes killed and the folder removed. The systems take turns, run
//! by run, so that a machine that grows slower or faster does so for both. Client, server and service share the machine, and all
//! listen on 127.0.0.1 only. Restate's service is a process of its own; Abide's activities run inside its server, and in a process of their
//! own as well, called over REST and over gRPC: the tables say which, because that is part of the difference.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
#![expect(clippy::cast_precision_loss, reason = "figures for people")]

mod abide;
mod figures;
mod http;
mod load;
mod measure;
mod process;
mod restate;
mod system;
mod targets;
mod trace;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use serde_json::{Map, Value, json};
use tokio::signal::unix::{SignalKind, signal};

use crate::figures::{Runs, table};
use crate::measure::{Cell, Spans};
use crate::system::{System, Workload};

/// Of W2 at once: more than keys, so that every key is busy.
const W2_IN_FLIGHT: usize = 512;
/// Of W4 at once: with 8 of them Restate is not busy yet.
const W4_IN_FLIGHT: usize = 32;
/// A traced run is short: its log has a line for every sync.
const TRACED: Spans = Spans { warm_up: Duration::from_secs(2), measured: Duration::from_secs(4) };

/// Measures Abide beside Restate.
#[derive(Parser)]
#[command(name = "scripts/bench compare", disable_version_flag = true, subcommand_negates_reqs = true)]
struct Options {
    #[command(subcommand)]
    other: Option<Other>,
    /// Only these workloads.
    #[arg(long, value_delimiter = ',', default_value = "w1,w2,w3,w4")]
    only: Vec<Workload>,
    /// W1: how many at once.
    #[arg(long, value_delimiter = ',', default_value = "1,64,512")]
    in_flight: Vec<usize>,
    /// W3: how many wait.
    #[arg(long, default_value_t = 10_000)]
    waiting: usize,
    /// How long W1 and W4 are measured.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// How long they run before that.
    #[arg(long, default_value_t = 4)]
    warm_up: u64,
    /// Runs of each workload on each system.
    #[arg(long, default_value_t = 3)]
    runs: u32,
    /// Where Abide's activities are: each is measured.
    #[arg(long, value_delimiter = ',', default_value = "in-process,rest,grpc")]
    activities: Vec<Activities>,
    /// Abide alone.
    #[arg(long)]
    skip_restate: bool,
    /// Restate alone.
    #[arg(long, conflicts_with = "skip_restate")]
    skip_abide: bool,
    /// No extra runs under strace.
    #[arg(long)]
    skip_strace: bool,
    /// Writes all figures to this file.
    #[arg(long)]
    json: Option<PathBuf>,
    /// The program of Abide.
    #[arg(long, hide = true, default_value = "target/release/abide")]
    abide: PathBuf,
    /// The program that serves activities beside it.
    #[arg(long, hide = true, default_value = "target/release/handlers")]
    handlers: PathBuf,
    /// The program of targets that nobody would want to call.
    #[arg(long, hide = true, default_value = "target/release/bad_targets")]
    bad_targets: PathBuf,
    /// The program of Restate's server.
    #[arg(long, hide = true, required_unless_present = "skip_restate")]
    restate_server: Option<PathBuf>,
    /// The program of the service it calls.
    #[arg(long, hide = true, required_unless_present = "skip_restate")]
    restate_service: Option<PathBuf>,
}

/// What else is measured with the same client.
#[derive(Subcommand)]
enum Other {
    Targets(targets::Options),
}

/// Where activities are.
#[derive(Clone, Copy, ValueEnum)]
enum Activities {
    InProcess,
    Rest,
    Grpc,
}

fn main() -> ExitCode {
    let options = Options::parse();
    // One thread: the client must not take more of the machine than it needs.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error),
    };
    let measured = async {
        match &options.other {
            None => compare(&options).await,
            Some(Other::Targets(others)) => targets::run(others, &programs(&options)?).await,
        }
    };
    match runtime.block_on(unless_interrupted(measured)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn failed(error: &io::Error) -> ExitCode {
    eprintln!("compare: {error}");
    ExitCode::FAILURE
}

/// Ctrl-C and a polite kill end the processes under measurement too, and their folder: what is dropped cleans up.
async fn unless_interrupted(work: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        done = work => done,
        _ = interrupt.recv() => Err(io::Error::other("interrupted")),
        _ = terminate.recv() => Err(io::Error::other("terminated")),
    }
}

async fn compare(options: &Options) -> io::Result<()> {
    let every_system = systems(options)?;
    let spans = Spans {
        warm_up: Duration::from_secs(options.warm_up),
        measured: Duration::from_secs(options.seconds),
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!("{cores} cores, shared by client, server and service; {} runs each, in turns", options.runs);
    println!("median (lowest–highest)");
    let can_trace = !options.skip_strace && trace::is_possible();
    if !can_trace {
        println!("syncs are not counted: strace is skipped, missing or not allowed");
    }
    let mut cells = Vec::new();
    for cell in plan(options) {
        let takes = |system: &&Arc<dyn System>| system.takes(cell.workload);
        let systems: Vec<Arc<dyn System>> = every_system.iter().filter(takes).cloned().collect();
        let mut all: Vec<Runs> = systems.iter().map(|_| Runs::default()).collect();
        for run in 1..=options.runs {
            for (system, runs) in systems.iter().zip(&mut all) {
                eprintln!("  {}, {}: run {run}, {}", cell.workload, cell.count, system.key());
                runs.push(measure::run(system, cell, spans).await?);
            }
        }
        if can_trace && cell.workload != Workload::W3 {
            for (system, runs) in systems.iter().zip(&mut all) {
                eprintln!("  {}, {}: traced, {}", cell.workload, cell.count, system.key());
                runs.push(measure::syncs(system, cell, TRACED).await?);
            }
        }
        print(cell, &systems, &all);
        cells.push(cell_json(cell, &systems, &all));
        // After every workload, so that what was measured is kept whatever comes next.
        if let Some(file) = &options.json {
            let labels: Map<String, Value> =
                every_system.iter().map(|system| (system.key().to_owned(), json!(system.label()))).collect();
            let document = json!({
                "cores": cores, "runs": options.runs, "seconds": options.seconds,
                "systems": labels, "workloads": cells,
            });
            std::fs::write(file, format!("{document:#}\n"))?;
        }
    }
    Ok(())
}

fn found(path: &Path) -> io::Result<PathBuf> {
    path.canonicalize().map_err(|error| io::Error::other(format!("{}: {error}", path.display())))
}

fn programs(options: &Options) -> io::Result<targets::Programs> {
    Ok(targets::Programs {
        abide: found(&options.abide)?,
        handlers: found(&options.handlers)?,
        bad_targets: found(&options.bad_targets)?,
    })
}

fn systems(options: &Options) -> io::Result<Vec<Arc<dyn System>>> {
    let mut systems: Vec<Arc<dyn System>> = Vec::new();
    if !options.skip_abide {
        let program = found(&options.abide)?;
        for activities in &options.activities {
            let over = match activities {
                Activities::InProcess => {
                    systems.push(Arc::new(abide::Abide::new(program.clone())));
                    continue;
                }
                Activities::Rest => abide::Over::Rest,
                Activities::Grpc => abide::Over::Grpc,
            };
            let beside = abide::Abide::calling(program.clone(), found(&options.handlers)?, over);
            systems.push(Arc::new(beside));
        }
    }
    if let (false, Some(server), Some(service)) =
        (options.skip_restate, &options.restate_server, &options.restate_service)
    {
        systems.push(Arc::new(restate::Restate::new(found(server)?, found(service)?)));
    }
    Ok(systems)
}

fn plan(options: &Options) -> Vec<Cell> {
    let mut cells = Vec::new();
    for workload in &options.only {
        let counts = match workload {
            Workload::W1 => options.in_flight.clone(),
            Workload::W2 => vec![W2_IN_FLIGHT],
            Workload::W3 => vec![options.waiting],
            Workload::W4 => vec![W4_IN_FLIGHT],
        };
        cells.extend(counts.into_iter().map(|count| Cell { workload: *workload, count }));
    }
    cells
}

fn print(cell: Cell, systems: &[Arc<dyn System>], all: &[Runs]) {
    let unit = if cell.workload == Workload::W3 { "of them" } else { "in flight" };
    let columns: Vec<(&str, &Runs)> = systems.iter().map(|system| system.label()).zip(all).collect();
    println!("\n{}, {} {unit}\n{}", cell.workload, cell.count, table(&columns));
}

fn cell_json(cell: Cell, systems: &[Arc<dyn System>], all: &[Runs]) -> Value {
    let figures: Map<String, Value> =
        systems.iter().zip(all).map(|(system, runs)| (system.key().to_owned(), runs.json())).collect();
    let count = if cell.workload == Workload::W3 { "waiting" } else { "inFlight" };
    json!({"workload": cell.workload.to_string(), count: cell.count, "figures": figures})
}

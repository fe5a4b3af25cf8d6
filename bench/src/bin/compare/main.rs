//! `compare`: measures Abide and Restate with the same client. `scripts/bench compare` runs it; it asserts nothing.
//!
//! Every run begins with an empty folder and ends with its processes killed and the folder removed. The systems
//! alternate, run by run, so that a machine that becomes slower or faster does so for both. Client, server and service
//! share the machine, and all listen on 127.0.0.1 only. Restate's service is a separate process. Abide's activities are
//! measured inside its server, and in a separate process over REST and over gRPC. The tables say which, because that is
//! part of the difference.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
#![expect(clippy::cast_precision_loss, reason = "figures for people")]

mod abide;
mod figures;
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
use crate::measure::{Spans, WorkloadSize};
use crate::system::{System, Workload};

/// W2 requests in flight: more than keys, so that every key is busy.
const W2_IN_FLIGHT: usize = 512;
/// W4 requests in flight: with 8, Restate is not busy yet.
const W4_IN_FLIGHT: usize = 32;
/// A traced run is short, because its log has a line for every sync.
const TRACED: Spans = Spans { warm_up: Duration::from_secs(2), measured: Duration::from_secs(4) };

/// Measures Abide and Restate with the same client.
#[derive(Parser)]
#[command(name = "scripts/bench compare", disable_version_flag = true, subcommand_negates_reqs = true)]
struct Options {
    #[command(subcommand)]
    other: Option<Other>,
    /// Measure only these workloads.
    #[arg(long, value_delimiter = ',', default_value = "w1,w2,w3,w4")]
    only: Vec<Workload>,
    /// W1: requests in flight.
    #[arg(long, value_delimiter = ',', default_value = "1,64,512")]
    in_flight: Vec<usize>,
    /// W3: how many instances wait.
    #[arg(long, default_value_t = 10_000)]
    waiting: usize,
    /// How long W1, W2 and W4 are measured.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// How long they warm up before that.
    #[arg(long, default_value_t = 4)]
    warm_up: u64,
    /// Runs of each workload on each system.
    #[arg(long, default_value_t = 3)]
    runs: u32,
    /// Where Abide's activities run; each is measured.
    #[arg(long, value_delimiter = ',', default_value = "in-process,rest,grpc")]
    activities: Vec<Activities>,
    /// Measure Abide alone.
    #[arg(long)]
    skip_restate: bool,
    /// Measure Restate alone.
    #[arg(long, conflicts_with = "skip_restate")]
    skip_abide: bool,
    /// Skip the extra runs under strace.
    #[arg(long)]
    skip_strace: bool,
    /// Write all figures to this file.
    #[arg(long)]
    json: Option<PathBuf>,
    /// The server program of Abide.
    #[arg(long, hide = true, default_value = "target/release/abide")]
    abide: PathBuf,
    /// The program that serves activities in a separate process.
    #[arg(long, hide = true, default_value = "target/release/handlers")]
    handlers: PathBuf,
    /// The program of the bad targets.
    #[arg(long, hide = true, default_value = "target/release/bad_targets")]
    bad_targets: PathBuf,
    /// The server program of Restate.
    #[arg(long, hide = true, required_unless_present = "skip_restate")]
    restate_server: Option<PathBuf>,
    /// The service program that Restate calls.
    #[arg(long, hide = true, required_unless_present = "skip_restate")]
    restate_service: Option<PathBuf>,
}

/// Other measurements with the same client.
#[derive(Subcommand)]
enum Other {
    Targets(targets::Options),
}

/// Where activities run.
#[derive(Clone, Copy, ValueEnum)]
enum Activities {
    InProcess,
    Rest,
    Grpc,
}

fn main() -> ExitCode {
    let options = Options::parse();
    // One thread: the client must not use more of the machine than it needs.
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

/// On SIGINT and SIGTERM, dropping the work kills the measured processes and removes their folder.
async fn unless_interrupted(work: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
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
    println!("{cores} cores, shared by client, server and service; {} runs each, alternating", options.runs);
    println!("median (lowest–highest)");
    let can_trace = !options.skip_strace && trace::is_possible();
    if !can_trace {
        println!("syncs are not counted: strace is skipped, not installed or not permitted");
    }
    let mut cells = Vec::new();
    for cell in plan(options) {
        let supports = |system: &&Arc<dyn System>| system.supports(cell.workload);
        let systems: Vec<Arc<dyn System>> = every_system.iter().filter(supports).cloned().collect();
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
        // Written after every workload, so that a later failure does not lose the figures.
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
            let wire = match activities {
                Activities::InProcess => {
                    systems.push(Arc::new(abide::AbideSystem::new(program.clone())));
                    continue;
                }
                Activities::Rest => abide::HandlerWire::Rest,
                Activities::Grpc => abide::HandlerWire::Grpc,
            };
            let external =
                abide::AbideSystem::with_external_handlers(program.clone(), found(&options.handlers)?, wire);
            systems.push(Arc::new(external));
        }
    }
    if let (false, Some(server), Some(service)) =
        (options.skip_restate, &options.restate_server, &options.restate_service)
    {
        systems.push(Arc::new(restate::Restate::new(found(server)?, found(service)?)));
    }
    Ok(systems)
}

fn plan(options: &Options) -> Vec<WorkloadSize> {
    let mut cells = Vec::new();
    for workload in &options.only {
        let counts = match workload {
            Workload::W1 => options.in_flight.clone(),
            Workload::W2 => vec![W2_IN_FLIGHT],
            Workload::W3 => vec![options.waiting],
            Workload::W4 => vec![W4_IN_FLIGHT],
        };
        cells.extend(counts.into_iter().map(|count| WorkloadSize { workload: *workload, count }));
    }
    cells
}

fn print(cell: WorkloadSize, systems: &[Arc<dyn System>], all: &[Runs]) {
    let unit = if cell.workload == Workload::W3 { "instances" } else { "in flight" };
    let columns: Vec<(&str, &Runs)> = systems.iter().map(|system| system.label()).zip(all).collect();
    println!("\n{}, {} {unit}\n{}", cell.workload, cell.count, table(&columns));
}

fn cell_json(cell: WorkloadSize, systems: &[Arc<dyn System>], all: &[Runs]) -> Value {
    let figures: Map<String, Value> =
        systems.iter().zip(all).map(|(system, runs)| (system.key().to_owned(), runs.json())).collect();
    let count = if cell.workload == Workload::W3 { "waiting" } else { "inFlight" };
    json!({"workload": cell.workload.to_string(), count: cell.count, "figures": figures})
}

//! Counts instructions per step with callgrind: `scripts/bench instructions [--record LABEL]`.
//!
//! The clock of a shared machine says little about a change of a few percent; the number of instructions says it
//! exactly. Each workload runs with N and with 3 N runs, twice. The difference of the two counts is the cost of 2 N
//! runs, without start and shutdown. The command fails if the two repetitions of a workload differ by more than
//! [`SPREAD_MAX`].
//!
//! HTTP is not included: the workloads drive a node in this process.

#![expect(clippy::cast_precision_loss, reason = "figures for people")]

mod callgrind;
mod record;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use callgrind::Measurement;
use workload::Workload;

/// The allocator of the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The largest difference between two repetitions, as a share of the smaller one.
const SPREAD_MAX: f64 = 0.005;
const REPETITIONS: usize = 2;

#[derive(Parser)]
#[command(about = "Counts instructions per step with callgrind")]
struct Options {
    /// Add a row with this label to the table of figures.
    #[arg(long, value_name = "LABEL", requires = "table")]
    record: Option<String>,
    /// The file with the table of figures.
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
    /// Run one workload in this process without counting; callgrind runs this.
    #[arg(long, num_args = 2, value_names = ["WORKLOAD", "RUNS"], hide = true)]
    run: Option<Vec<String>>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let done = match &options.run {
        Some(run) => run_once(run),
        None => measure_all(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("instructions: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn run_once(arguments: &[String]) -> Result<(), String> {
    let [workload, runs] = arguments else { return Err("--run takes a workload and a number".to_owned()) };
    let workload = clap::ValueEnum::from_str(workload, true)?;
    let runs = runs.parse().map_err(|error| format!("{runs:?}: {error}"))?;
    println!("{}", workload::run(workload, runs));
    Ok(())
}

fn measure_all(options: &Options) -> Result<(), String> {
    let mut medians = Vec::new();
    println!(
        "| workload | commits | rows | instructions per step | again | difference |\n|---|---|---|---|---|---|"
    );
    for workload in Workload::ALL {
        let repetitions: Vec<Measurement> =
            (0..REPETITIONS).map(|_| callgrind::measure(workload)).collect::<Result<_, _>>()?;
        let [first, second] = repetitions.as_slice() else {
            return Err(format!("{} repetitions instead of {REPETITIONS}", repetitions.len()));
        };
        let lower = first.per_step.min(second.per_step);
        let spread = (first.per_step - second.per_step).abs() / lower;
        println!(
            "| {workload} | {} | {} | {:.0} | {:.0} | {:.2} % |",
            first.written.commits,
            first.written.rows,
            first.per_step,
            second.per_step,
            spread * 100.0
        );
        if first.written != second.written {
            return Err(format!("{workload}: the repetitions did not write the same commits and rows"));
        }
        if spread > SPREAD_MAX {
            return Err(format!("{workload}: the repetitions differ by more than {} %", SPREAD_MAX * 100.0));
        }
        medians.push(f64::midpoint(first.per_step, second.per_step));
    }
    if let (Some(label), Some(table)) = (&options.record, &options.table) {
        record::add_row(table, label, &medians)?;
    }
    Ok(())
}

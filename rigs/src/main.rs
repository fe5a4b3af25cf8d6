//! `crash`: breaks the server and the store in every way a machine can, and compares what is left with what was acknowledged.
//!
//! The rigs on the whole server are in `server`, the one on the server and its receivers in `dispatch`. A rig on the store starts this same program as a *writer*, which commits as fast as it
//! can and says on its standard output what was acknowledged; does something terrible to it; opens what is left and *checks* it against a
//! model that knows what every commit wrote. Run by `scripts/crash`; figures go to docs/guides/crash.md.

mod check;
mod dispatch;
mod faults;
mod findings;
mod folders;
mod kill;
mod ledger;
mod power;
mod rot;
mod server;
mod workload;
mod writer;

use std::path::PathBuf;
use std::process::ExitCode;

use abide_store_embedded::SyncMode;
use clap::{Parser, Subcommand};

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    rig: Rig,
}

#[derive(Subcommand)]
enum Rig {
    /// kill -9 of the server under load, at random moments and at named points of its work.
    Kill {
        #[arg(long, default_value_t = 50)]
        cycles: u32,
        /// Where everything is kept; a new folder.
        #[arg(long)]
        folder: PathBuf,
        /// The server, built with the feature `faults`; the `abide` beside this program without it.
        #[arg(long)]
        abide: Option<PathBuf>,
        /// Acknowledge when the operating system has it: faster, and no kill may lose anything either.
        #[arg(long)]
        without_sync: bool,
    },
    /// Power cuts under the server: its file system is an image that is copied, and the copy is worked on. Needs root.
    Power {
        #[arg(long, default_value_t = 10)]
        cycles: u32,
        #[arg(long)]
        folder: PathBuf,
        #[arg(long)]
        abide: Option<PathBuf>,
        /// The control: acknowledge before the disk has it. The rig must find losses.
        #[arg(long)]
        without_sync: bool,
    },
    /// kill -9 of the server while many sessions send their events.
    Sessions {
        #[arg(long, default_value_t = 20)]
        cycles: u32,
        #[arg(long, default_value_t = 1_000)]
        sessions: u32,
        /// Events of each.
        #[arg(long, default_value_t = 200)]
        events: u32,
        #[arg(long)]
        folder: PathBuf,
        #[arg(long)]
        abide: Option<PathBuf>,
    },
    /// kill -9 of the server and of the receivers that it calls, some of them at a time.
    Dispatch {
        #[arg(long, default_value_t = 20)]
        cycles: u32,
        /// Where everything is kept; a new folder.
        #[arg(long)]
        folder: PathBuf,
        /// The server; `abide-receiver` is beside it. Those beside this program without it.
        #[arg(long)]
        abide: Option<PathBuf>,
        /// The example workers, installed and compiled.
        #[arg(long, default_value = "examples/workers")]
        workers: PathBuf,
        /// The control: one receiver forgets what it has done. The rig must find doubled effects.
        #[arg(long)]
        forget: bool,
    },
    /// The forgetful receiver of the rig before.
    #[command(hide = true)]
    ReceiveAndForget,
    /// kill -9 of a writer at full load.
    StoreKill {
        #[arg(long, default_value_t = 50)]
        cycles: u32,
        /// Where the store is made; a new folder.
        #[arg(long)]
        folder: PathBuf,
    },
    /// A power cut: the writer is stopped and the image of its file system is copied and mounted elsewhere. Needs root.
    StorePower {
        #[arg(long, default_value_t = 10)]
        cycles: u32,
        #[arg(long)]
        folder: PathBuf,
        /// The control: acknowledge before the disk has it. The rig must find losses.
        #[arg(long)]
        without_sync: bool,
    },
    /// Failing system calls by strace, and a disk that is really full. Needs strace and root.
    StoreFaults {
        #[arg(long)]
        folder: PathBuf,
    },
    /// One bit of a closed store is flipped, and everything is read.
    StoreRot {
        #[arg(long, default_value_t = 200)]
        flips: u32,
        #[arg(long)]
        folder: PathBuf,
    },
    /// The reader of the rig before.
    #[command(hide = true)]
    ReadRotten {
        #[arg(long)]
        folder: PathBuf,
    },
    /// The writer of the other rigs.
    #[command(hide = true)]
    Write(writer::Settings),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().rig {
        Rig::Kill { cycles, folder, abide, without_sync } => {
            server::kill::run(cycles, &folder, abide, without_sync)
        }
        Rig::Power { cycles, folder, abide, without_sync } => {
            server::power::run(cycles, &folder, abide, without_sync)
        }
        Rig::Sessions { cycles, sessions, events, folder, abide } => {
            server::sessions::run(server::sessions::Plan { cycles, sessions, events }, &folder, abide)
        }
        Rig::Dispatch { cycles, folder, abide, workers, forget } => {
            dispatch::run::run(cycles, &folder, dispatch::run::Programs { abide, workers, forget })
        }
        Rig::ReceiveAndForget => dispatch::forgetful::run(),
        Rig::StoreKill { cycles, folder } => kill::run(cycles, &folder),
        Rig::StorePower { cycles, folder, without_sync } => {
            let sync = if without_sync { SyncMode::OperatingSystem } else { SyncMode::EveryCommit };
            power::run(cycles, &folder, sync)
        }
        Rig::StoreFaults { folder } => faults::run(&folder),
        Rig::StoreRot { flips, folder } => rot::run(flips, &folder),
        Rig::ReadRotten { folder } => rot::read(&folder),
        Rig::Write(settings) => writer::run(&settings),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("crash: {problem}");
            ExitCode::FAILURE
        }
    }
}

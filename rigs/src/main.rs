//! `crash`: the command line of the crash rigs. A rig kills the server or the store, cuts its power or makes its system
//! calls fail, and then compares the data on disk with the acknowledgements.
//!
//! The rigs for the whole server are in `server`; the rig for the server and its receivers is in `dispatch`. A rig for
//! the store starts this same program as a *writer*, which commits as fast as it can and prints every acknowledgement.
//! The rig kills or disturbs the writer, opens the store and *checks* it against a model of every commit.
//!
//! `scripts/crash` runs the rigs; the figures are in docs/guides/crash.md.

mod bit_rot;
mod dispatch;
mod faults;
mod folders;
mod kill;
mod ledger;
mod power;
mod server;
mod store_check;
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
    /// kill -9 of the server under load, at random times and at named points in its code.
    Kill {
        #[arg(long, default_value_t = 50)]
        cycles: u32,
        /// A new folder for all data.
        #[arg(long)]
        folder: PathBuf,
        /// The server, built with the feature `faults`. Default: the `abide` next to this program.
        #[arg(long)]
        abide: Option<PathBuf>,
        /// Acknowledge as soon as the operating system has the data. Faster, and a kill must not lose anything either.
        #[arg(long)]
        without_sync: bool,
        /// The control: plant a fault that the rig must find.
        #[arg(long)]
        control: bool,
    },
    /// Power cuts under the server: its file system is an image; after a cut the server continues on a copy of it.
    /// Needs root.
    Power {
        #[arg(long, default_value_t = 10)]
        cycles: u32,
        #[arg(long)]
        folder: PathBuf,
        #[arg(long)]
        abide: Option<PathBuf>,
        /// The control: acknowledge before the disk has the data. The rig must find losses.
        #[arg(long)]
        without_sync: bool,
    },
    /// kill -9 of the server while many sessions send events.
    Sessions {
        #[arg(long, default_value_t = 20)]
        cycles: u32,
        #[arg(long, default_value_t = 1_000)]
        sessions: u32,
        /// Events of each session.
        #[arg(long, default_value_t = 200)]
        events: u32,
        #[arg(long)]
        folder: PathBuf,
        #[arg(long)]
        abide: Option<PathBuf>,
        /// The control: plant a fault that the rig must find.
        #[arg(long)]
        control: bool,
    },
    /// kill -9 of the server and of the receivers that it calls, one or several at a time.
    Dispatch {
        #[arg(long, default_value_t = 20)]
        cycles: u32,
        /// A new folder for all data.
        #[arg(long)]
        folder: PathBuf,
        /// The server, with `abide-receiver` next to it. Default: the programs next to this one.
        #[arg(long)]
        abide: Option<PathBuf>,
        /// The example workers, installed and compiled.
        #[arg(long, default_value = "examples/workers")]
        workers: PathBuf,
        /// The control: one receiver does not deduplicate. The rig must find duplicate effects.
        #[arg(long)]
        forget: bool,
    },
    /// The receiver without deduplication of the rig `dispatch`.
    #[command(hide = true)]
    ReceiveAndForget,
    /// kill -9 of a writer at full load.
    StoreKill {
        #[arg(long, default_value_t = 50)]
        cycles: u32,
        /// A new folder for the stores.
        #[arg(long)]
        folder: PathBuf,
        /// The control: plant a fault that the rig must find.
        #[arg(long)]
        control: bool,
    },
    /// Power cuts under a writer: it is frozen, and the image of its file system is copied and mounted. Needs root.
    StorePower {
        #[arg(long, default_value_t = 10)]
        cycles: u32,
        #[arg(long)]
        folder: PathBuf,
        /// The control: acknowledge before the disk has the data. The rig must find losses.
        #[arg(long)]
        without_sync: bool,
    },
    /// Failing system calls, injected by strace, and a full disk. Needs strace and root.
    StoreFaults {
        #[arg(long)]
        folder: PathBuf,
        /// Run only the case with this number, from 0.
        #[arg(long)]
        only: Option<usize>,
        /// The control: plant a fault that the rig must find.
        #[arg(long)]
        control: bool,
    },
    /// Flip one bit of a closed store, then read everything.
    StoreRot {
        #[arg(long, default_value_t = 200)]
        flips: u32,
        #[arg(long)]
        folder: PathBuf,
        /// The control: plant a fault that the rig must find.
        #[arg(long)]
        control: bool,
    },
    /// The reader of the rig `store-rot`.
    #[command(hide = true)]
    ReadRotten {
        #[arg(long)]
        folder: PathBuf,
    },
    /// The writer of the rigs for the store.
    #[command(hide = true)]
    Write(writer::WriterArgs),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().rig {
        Rig::Kill { cycles, folder, abide, without_sync, control } => {
            server::kill::run(cycles, &folder, abide, without_sync, control)
        }
        Rig::Power { cycles, folder, abide, without_sync } => {
            server::power::run(cycles, &folder, abide, without_sync)
        }
        Rig::Sessions { cycles, sessions, events, folder, abide, control } => {
            let plan = server::sessions::SessionsPlan { cycles, sessions, events, control };
            server::sessions::run(plan, &folder, abide)
        }
        Rig::Dispatch { cycles, folder, abide, workers, forget } => {
            dispatch::run::run(cycles, &folder, dispatch::run::Programs { abide, workers, forget })
        }
        Rig::ReceiveAndForget => dispatch::forgetful::run(),
        Rig::StoreKill { cycles, folder, control } => kill::run(cycles, &folder, control),
        Rig::StorePower { cycles, folder, without_sync } => {
            let sync = if without_sync { SyncMode::OperatingSystem } else { SyncMode::EveryCommit };
            power::run(cycles, &folder, sync)
        }
        Rig::StoreFaults { folder, only, control } => faults::run(&folder, only, control),
        Rig::StoreRot { flips, folder, control } => bit_rot::run(flips, &folder, control),
        Rig::ReadRotten { folder } => bit_rot::read(&folder),
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

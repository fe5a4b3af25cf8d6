//! The `abide` command line: the list of its commands. Each command has its own file in [`commands`].

mod commands;
mod confirm;
mod doctor;
mod errors;
mod files;
mod findings;
mod line_ids;
mod output;
mod playback;
mod progress;
#[cfg(test)]
mod reference;
mod render;
mod run_path;
mod server_args;
mod source_location;
mod styles;
mod table;
mod time_format;
mod timeline;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use rustix::fs::Mode;

/// Turns make many short-lived allocations on many threads, and the system allocator is slow at that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Durable orchestration in one binary.
#[derive(Parser)]
#[command(name = "abide", version, about, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check workflow definitions and show how to fix every finding
    Validate(commands::validate::Args),
    /// Draw a workflow definition as Mermaid text
    Graph(commands::graph::Args),
    /// Run a definition in memory, with mocked activities and skipped time
    Run(commands::run::Args),
    /// Run a demo server that onboards a fleet of simulated devices until you stop it, or kill it
    Demo(commands::demo::Args),
    /// Run the server
    Serve(commands::serve::Args),
    /// Publish workflow definitions
    Publish(commands::publish::Args),
    /// List, show and manage definitions and their versions
    #[command(subcommand)]
    Workflows(commands::workflows::Command),
    /// Start a run, and optionally wait for its end
    Start(commands::start::Args),
    /// List runs, newest first
    List(commands::list::Args),
    /// Show an instance and the path it has taken
    Show(commands::show::Args),
    /// Show the history of a run, event by event
    History(commands::history::Args),
    /// Raise an event in a run
    Raise(commands::control::RaiseArgs),
    /// Suspend a run; events and results that reach it meanwhile are kept
    Suspend(commands::control::ControlArgs),
    /// Resume a suspended or parked run
    Resume(commands::control::ControlArgs),
    /// Terminate a run
    Terminate(commands::control::TerminateArgs),
    /// Continue a failed run at the state that failed
    Rewind(commands::control::RewindArgs),
    /// Run the failed compensation steps of an ended run again
    Compensate(commands::control::ControlArgs),
    /// Start a new run with the input and the version of the last one
    Restart(commands::control::ControlArgs),
    /// Permanently delete ended runs: one instance, or all that match a filter
    Purge(commands::purge::Args),
    /// List runs that have not ended in the time they should, and what they wait for
    Stuck(commands::stuck::Args),
    /// Show the server's statistics
    Stats(commands::stats::Args),
    /// List and show entities, and call their operations
    #[command(subcommand)]
    Entity(commands::entity::Command),
    /// List, set and remove event routes
    #[command(subcommand)]
    Route(commands::route::Command),
    /// Send events
    Send(commands::send::Args),
    /// List and show calls of activities
    #[command(subcommand)]
    Dispatches(commands::dispatches::Command),
    /// Check that a service that runs activities keeps the dispatch contract
    Conform(commands::conform::Args),
    /// List and show dead letters
    #[command(subcommand)]
    Dlq(commands::dlq::Command),
    /// Copy the data folder of a stopped server, or the store of a running one
    Backup(commands::backup::BackupArgs),
    /// Restore a data folder from a copy
    Restore(commands::backup::RestoreArgs),
    /// Check the data folder of a stopped server
    Fsck(commands::fsck::Args),
    /// Check the data folder and the server, and say how to fix what is wrong
    Doctor(commands::doctor::Args),
    /// Print a shell's completion script
    Completions(commands::completions::Args),
}

/// Runs a command that writes a data folder: whatever creates a file in it, only its owner can read it.
fn with_private_files(command: impl FnOnce() -> ExitCode) -> ExitCode {
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    command()
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Validate(args) => commands::validate::run(&args),
        Command::Graph(args) => commands::graph::run(&args),
        Command::Run(args) => commands::run::run(&args),
        Command::Demo(args) => with_private_files(|| commands::demo::run(&args)),
        Command::Serve(args) => with_private_files(|| commands::serve::run(args)),
        Command::Publish(args) => commands::publish::run(&args),
        Command::Workflows(command) => commands::workflows::run(&command),
        Command::Start(args) => commands::start::run(&args),
        Command::List(args) => commands::list::run(&args),
        Command::Show(args) => commands::show::run(&args),
        Command::History(args) => commands::history::run(&args),
        Command::Raise(args) => commands::control::raise(&args),
        Command::Suspend(args) => commands::control::suspend(&args),
        Command::Resume(args) => commands::control::resume(&args),
        Command::Terminate(args) => commands::control::terminate(&args),
        Command::Rewind(args) => commands::control::rewind(&args),
        Command::Compensate(args) => commands::control::compensate(&args),
        Command::Restart(args) => commands::control::restart(&args),
        Command::Purge(args) => commands::purge::run(&args),
        Command::Stuck(args) => commands::stuck::run(&args),
        Command::Stats(args) => commands::stats::run(&args),
        Command::Entity(command) => commands::entity::run(&command),
        Command::Route(command) => commands::route::run(&command),
        Command::Send(args) => commands::send::run(&args),
        Command::Dispatches(command) => commands::dispatches::run(&command),
        Command::Conform(args) => commands::conform::run(&args),
        Command::Dlq(command) => commands::dlq::run(&command),
        Command::Backup(args) => with_private_files(|| commands::backup::backup(&args)),
        Command::Restore(args) => with_private_files(|| commands::backup::restore(&args)),
        Command::Fsck(args) => with_private_files(|| commands::fsck::run(&args)),
        Command::Doctor(args) => commands::doctor::run(&args),
        Command::Completions(args) => commands::completions::run(&args, Cli::command()),
    }
}

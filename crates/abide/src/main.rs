//! The `abide` command line. Each command is a file of its own; this one only says which there are.

mod checkup;
mod commands;
mod confirm;
mod drawing;
mod excerpt;
mod files;
mod findings;
mod line_ids;
mod path;
mod playback;
mod problem;
mod progress;
#[cfg(test)]
mod reference;
mod remote;
mod say;
mod styles;
mod table;
mod timeline;
mod times;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Turns allocate much and briefly, on many threads; the system's allocator is slow at that.
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
    /// Check workflow definitions and say what to do about every finding
    Validate(commands::validate::Args),
    /// Draw a workflow definition as Mermaid text
    Graph(commands::graph::Args),
    /// Run a definition in memory, with mocked activities and skipped time
    Run(commands::run::Args),
    /// Watch a server at work: a fleet of made-up devices is onboarded until you stop it, or kill it
    Demo(commands::demo::Args),
    /// Run the server
    Serve(commands::serve::Args),
    /// Publish workflow definitions
    Publish(commands::publish::Args),
    /// Which definitions there are, in which versions
    #[command(subcommand)]
    Workflows(commands::workflows::Command),
    /// Start a run, and wait for its end if asked to
    Start(commands::start::Args),
    /// List runs, newest first
    List(commands::list::Args),
    /// Show an instance and the path it has taken
    Show(commands::show::Args),
    /// Tell what happened to a run, event by event
    History(commands::history::Args),
    /// Raise an event to a run
    Raise(commands::orders::RaiseArgs),
    /// Stop a run where it is; it keeps what reaches it
    Suspend(commands::orders::OrderArgs),
    /// Let a suspended or parked run go on
    Resume(commands::orders::OrderArgs),
    /// End a run
    Terminate(commands::orders::OrderArgs),
    /// Let a failed run go on at the state that failed
    Rewind(commands::orders::OrderArgs),
    /// Begin a new run with the input and the version of the last one
    Restart(commands::orders::OrderArgs),
    /// Forget ended runs, one or by filter
    Purge(commands::purge::Args),
    /// Runs that have been alive for longer than they should be
    Stuck(commands::stuck::Args),
    /// What the server counts
    Stats(commands::stats::Args),
    /// Entities, their events and their operations
    #[command(subcommand)]
    Entity(commands::entity::Command),
    /// What events of a type are for
    #[command(subcommand)]
    Route(commands::route::Command),
    /// Send events
    Send(commands::send::Args),
    /// Calls of activities, where they stand and how they ended
    #[command(subcommand)]
    Dispatches(commands::dispatches::Command),
    /// Check whether a service that runs activities keeps the dispatch contract
    Conform(commands::conform::Args),
    /// What could not be delivered
    #[command(subcommand)]
    Dlq(commands::dlq::Command),
    /// Copy the data folder of a server that is not running
    Backup(commands::backup::BackupArgs),
    /// Put a copy of a data folder back
    Restore(commands::backup::RestoreArgs),
    /// Check the data folder of a server that is not running
    Fsck(commands::fsck::Args),
    /// Look at the data folder and the server, and say what to do
    Doctor(commands::doctor::Args),
    /// Print what a shell needs to complete commands
    Completions(commands::completions::Args),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Validate(args) => commands::validate::run(&args),
        Command::Graph(args) => commands::graph::run(&args),
        Command::Run(args) => commands::run::run(&args),
        Command::Demo(args) => commands::demo::run(&args),
        Command::Serve(args) => commands::serve::run(args),
        Command::Publish(args) => commands::publish::run(&args),
        Command::Workflows(command) => commands::workflows::run(&command),
        Command::Start(args) => commands::start::run(&args),
        Command::List(args) => commands::list::run(&args),
        Command::Show(args) => commands::show::run(&args),
        Command::History(args) => commands::history::run(&args),
        Command::Raise(args) => commands::orders::raise(&args),
        Command::Suspend(args) => commands::orders::suspend(&args),
        Command::Resume(args) => commands::orders::resume(&args),
        Command::Terminate(args) => commands::orders::terminate(&args),
        Command::Rewind(args) => commands::orders::rewind(&args),
        Command::Restart(args) => commands::orders::restart(&args),
        Command::Purge(args) => commands::purge::run(&args),
        Command::Stuck(args) => commands::stuck::run(&args),
        Command::Stats(args) => commands::stats::run(&args),
        Command::Entity(command) => commands::entity::run(&command),
        Command::Route(command) => commands::route::run(&command),
        Command::Send(args) => commands::send::run(&args),
        Command::Dispatches(command) => commands::dispatches::run(&command),
        Command::Conform(args) => commands::conform::run(&args),
        Command::Dlq(command) => commands::dlq::run(&command),
        Command::Backup(args) => commands::backup::backup(&args),
        Command::Restore(args) => commands::backup::restore(&args),
        Command::Fsck(args) => commands::fsck::run(&args),
        Command::Doctor(args) => commands::doctor::run(&args),
        Command::Completions(args) => commands::completions::run(&args, Cli::command()),
    }
}

//! The `abide` command line. Each command is a file of its own; this one only says which there are.

mod commands;
mod excerpt;
mod files;
mod findings;
mod say;
mod timeline;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
    /// Run the server
    Serve(commands::serve::Args),
    /// Check the data folder of a server that is not running
    Fsck(commands::fsck::Args),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Validate(args) => commands::validate::run(&args),
        Command::Graph(args) => commands::graph::run(&args),
        Command::Run(args) => commands::run::run(&args),
        Command::Serve(args) => commands::serve::run(args),
        Command::Fsck(args) => commands::fsck::run(&args),
    }
}

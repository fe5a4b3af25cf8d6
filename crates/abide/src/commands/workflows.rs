//! `abide workflows`: which definitions there are, in which versions, and which of them runs have.

use std::process::ExitCode;

use abide_client::{Version, Workflow};
use anstyle::AnsiColor;
use serde_json::Value;

use crate::problem::Sought;
use crate::remote::{Extent, Remote};
use crate::say::{pretty, say, visible};
use crate::table::{Cell, Table};
use crate::times;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// List definitions
    List {
        #[command(flatten)]
        extent: Extent,
        #[command(flatten)]
        remote: Remote,
    },
    /// Print a definition as it was published
    Show {
        /// The definition
        #[arg(value_name = "WORKFLOW")]
        id: String,
        /// The version; without it the default version
        #[arg(long, value_name = "VERSION")]
        version: Option<String>,
        #[command(flatten)]
        remote: Remote,
    },
    /// List the versions of a definition, and how many runs of each are alive
    Versions {
        /// The definition
        #[arg(value_name = "WORKFLOW")]
        id: String,
        #[command(flatten)]
        extent: Extent,
        #[command(flatten)]
        remote: Remote,
    },
    /// Make a version the one that runs have unless they ask for another
    Default {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        remote: Remote,
    },
    /// Take a version out of use; refused while it is the default or runs of it are alive
    Retire {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        remote: Remote,
    },
}

#[derive(clap::Args)]
pub(crate) struct Which {
    /// The definition
    #[arg(value_name = "WORKFLOW")]
    id: String,
    /// The version
    #[arg(value_name = "VERSION")]
    version: String,
}

pub(crate) fn run(command: &Command) -> ExitCode {
    match command {
        Command::List { extent, remote } => {
            remote.run(async |client| remote.list(client.workflows(), extent, print).await)
        }
        Command::Show { id, version, remote } => remote.run_on(Sought::Workflow, async |client| {
            let call = client.workflow(id, version.as_deref());
            remote
                .answer(call, |shown: &Value| say!("{}", pretty(shown.get("definition").unwrap_or(shown))))
                .await
        }),
        Command::Versions { id, extent, remote } => remote.run_on(Sought::Workflow, async |client| {
            remote.list(client.versions(id), extent, print_versions).await
        }),
        Command::Default { which: Which { id, version }, remote } => {
            remote.run_on(Sought::Workflow, async |client| {
                let told = |_: &Value| say!("{} runs {} from now on", visible(id), visible(version));
                remote.answer(client.set_default_version(id, version), told).await
            })
        }
        Command::Retire { which: Which { id, version }, remote } => {
            remote.run_on(Sought::Workflow, async |client| {
                let told = |_: &Value| say!("{} {} is retired", visible(id), visible(version));
                remote.answer(client.retire(id, version), told).await
            })
        }
    }
}

fn print(workflows: &[Workflow]) {
    let mut table = Table::new(["WORKFLOW", "DEFAULT VERSION"]);
    for workflow in workflows {
        table.row([(&workflow.id).into(), workflow.default_version.as_deref().unwrap_or("-").into()]);
    }
    table.print("workflows");
}

fn print_versions(versions: &[Version]) {
    let mut table = Table::new(["VERSION", "LIVE RUNS", "PUBLISHED", "HASH", "STATE"]);
    for version in versions {
        let state = match (version.default, version.retired) {
            (true, _) => Cell::styled("default", AnsiColor::Green.on_default()),
            (false, true) => Cell::styled("retired", AnsiColor::Yellow.on_default()),
            (false, false) => "".into(),
        };
        let hash: String = version.hash.chars().take(12).collect();
        table.row([
            (&version.version).into(),
            Cell::count(version.live),
            times::stamp(version.published_at_utc).into(),
            hash.into(),
            state,
        ]);
    }
    table.print("versions");
}

//! `abide workflows`: lists and shows definitions and their versions, sets default versions and retires versions.

use std::process::ExitCode;

use abide_client::{Workflow, WorkflowVersion};
use anstyle::AnsiColor;
use serde_json::Value;

use crate::errors::ResourceKind;
use crate::output::{escape_control_chars, outln, pretty_json};
use crate::server_args::{LimitArgs, ServerArgs};
use crate::table::{TextCell, TextTable};
use crate::time_format;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// List definitions
    List {
        #[command(flatten)]
        extent: LimitArgs,
        #[command(flatten)]
        remote: ServerArgs,
    },
    /// Print a published definition
    Show {
        /// The id of the definition
        #[arg(value_name = "WORKFLOW")]
        id: String,
        /// The version; without it the default version
        #[arg(long, value_name = "VERSION")]
        version: Option<String>,
        #[command(flatten)]
        remote: ServerArgs,
    },
    /// List the versions of a definition with their numbers of live runs
    Versions {
        /// The id of the definition
        #[arg(value_name = "WORKFLOW")]
        id: String,
        #[command(flatten)]
        extent: LimitArgs,
        #[command(flatten)]
        remote: ServerArgs,
    },
    /// Set the default version, which runs have unless they request another one
    Default {
        #[command(flatten)]
        which: VersionArgs,
        #[command(flatten)]
        remote: ServerArgs,
    },
    /// Retire a version; refused while it is the default or runs of it are live
    Retire {
        #[command(flatten)]
        which: VersionArgs,
        #[command(flatten)]
        remote: ServerArgs,
    },
}

#[derive(clap::Args)]
pub(crate) struct VersionArgs {
    /// The id of the definition
    #[arg(value_name = "WORKFLOW")]
    id: String,
    /// The version of the definition
    #[arg(value_name = "VERSION")]
    version: String,
}

pub(crate) fn run(command: &Command) -> ExitCode {
    match command {
        Command::List { extent, remote } => {
            remote.run(async |client| remote.print_list(client.workflows(), extent, print).await)
        }
        Command::Show { id, version, remote } => {
            remote.run_for_resource(ResourceKind::Workflow, async |client| {
                let request = client.workflow(id, version.as_deref());
                remote
                    .print_response(request, |shown: &Value| {
                        outln!("{}", pretty_json(shown.get("definition").unwrap_or(shown)))
                    })
                    .await
            })
        }
        Command::Versions { id, extent, remote } => remote
            .run_for_resource(ResourceKind::Workflow, async |client| {
                remote.print_list(client.workflow_versions(id), extent, print_versions).await
            }),
        Command::Default { which: VersionArgs { id, version }, remote } => {
            remote.run_for_resource(ResourceKind::Workflow, async |client| {
                let print = |_: &Value| {
                    outln!(
                        "{}: the default version is now {}",
                        escape_control_chars(id),
                        escape_control_chars(version)
                    )
                };
                remote.print_response(client.set_default_version(id, version), print).await
            })
        }
        Command::Retire { which: VersionArgs { id, version }, remote } => {
            remote.run_for_resource(ResourceKind::Workflow, async |client| {
                let print = |_: &Value| {
                    outln!("retired {} {}", escape_control_chars(id), escape_control_chars(version))
                };
                remote.print_response(client.retire_version(id, version), print).await
            })
        }
    }
}

fn print(workflows: &[Workflow]) {
    let mut table = TextTable::new(["WORKFLOW", "DEFAULT VERSION"]);
    for workflow in workflows {
        table.push_row([(&workflow.id).into(), workflow.default_version.as_deref().unwrap_or("-").into()]);
    }
    table.print("workflows");
}

fn print_versions(versions: &[WorkflowVersion]) {
    let mut table = TextTable::new(["VERSION", "LIVE RUNS", "PUBLISHED", "HASH", "STATE"]);
    for version in versions {
        let state = match (version.default, version.retired) {
            (true, _) => TextCell::styled("default", AnsiColor::Green.on_default()),
            (false, true) => TextCell::styled("retired", AnsiColor::Yellow.on_default()),
            (false, false) => "".into(),
        };
        let hash: String = version.hash.chars().take(12).collect();
        table.push_row([
            (&version.version).into(),
            TextCell::count(version.live),
            time_format::format_timestamp(version.published_at_utc).into(),
            hash.into(),
            state,
        ]);
    }
    table.print("versions");
}

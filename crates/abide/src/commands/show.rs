//! `abide show`: an instance as it is, and the path it has taken.

use std::process::ExitCode;

use abide_client::{Client, Instance};

use super::exit;
use super::start::ending;
use crate::drawing;
use crate::path::Path;
use crate::problem::{Problem, Sought};
use crate::remote::Remote;
use crate::say::{say, visible};
use crate::styles::{BOLD, FAINT};
use crate::table::grouped;
use crate::timeline::short;
use crate::times;

/// Events that a path is drawn from; what comes after them is told as missing.
const EVENTS_MAX: usize = 20_000;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The instance
    #[arg(value_name = "ID")]
    id: String,
    /// Leave out the path it has taken
    #[arg(long)]
    no_path: bool,
    #[command(flatten)]
    remote: Remote,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    args.remote.run_on(Sought::Instance, async |client| {
        if args.remote.json {
            say!("{}", client.instance(&args.id).raw().await?);
            return Ok(exit::OK);
        }
        let run = client.instance(&args.id).await?;
        head(&run);
        if !args.no_path {
            draw(client, &run).await?;
        }
        Ok(exit::OK)
    })
}

fn head(run: &Instance) {
    let field = |name: &str, value: &str| say!("  {FAINT}{name:<12}{FAINT:#} {value}");
    say!("{BOLD}{}{BOLD:#} {}", visible(&run.execution_id), ending(run));
    field("workflow", &format!("{} {}", visible(&run.workflow), visible(&run.version)));
    field(
        "created",
        &format!("{} ({} ago)", times::stamp(run.created_at_utc), times::ago(run.created_at_utc)),
    );
    let moved = run.last_updated_at_utc;
    field("moved", &format!("{} ({} ago)", times::stamp(moved), times::ago(moved)));
    if run.correlation_id != run.instance_id {
        field("correlation", &visible(&run.correlation_id));
    }
    if let Some(entity) = &run.entity_id {
        field("entity", &visible(entity));
    }
    field("input", &visible(&short(&run.input)));
    if let Some(reason) = &run.parked_reason {
        field(
            "parked",
            &format!("{}; `abide resume {}` tries again", visible(reason), visible(&run.instance_id)),
        );
    }
    say!("");
}

async fn draw(client: &Client, run: &Instance) -> Result<(), Problem> {
    let mut path = Path::default();
    let mut events = client.history(&run.instance_id).page_size(100);
    let mut followed = 0;
    while followed < EVENTS_MAX
        && let Some(event) = events.next().await?
    {
        path.follow(&event);
        followed += 1;
    }
    drawing::print(&path, &run.current_states);
    if followed == EVENTS_MAX && events.next().await?.is_some() {
        let told = grouped(followed as u64);
        say!(
            "  {FAINT}drawn from its first {told} events; `abide history {}` has all{FAINT:#}",
            run.instance_id
        );
    }
    Ok(())
}

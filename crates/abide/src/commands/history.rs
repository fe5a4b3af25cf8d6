//! `abide history`: prints the history of a run, event by event.

use std::process::ExitCode;

use super::exit;
use crate::errors::ResourceKind;
use crate::output::outln;
use crate::server_args::ServerArgs;
use crate::timeline::Timeline;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The instance id
    #[arg(value_name = "ID")]
    id: String,
    /// The run number; without it the current run. Earlier runs are shown until they are deleted
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    run: Option<u32>,
    /// Show when each event happened, instead of the time since the first
    #[arg(long)]
    absolute: bool,
    /// The maximum number of events to show
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    #[command(flatten)]
    remote: ServerArgs,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    args.remote.run_for_resource(ResourceKind::Instance, async |client| {
        let limit = args.limit.unwrap_or(usize::MAX);
        let events = match args.run {
            Some(run) => client.history_of_run(&args.id, run),
            None => client.history(&args.id),
        };
        let events = events.page_size(100);
        // Histories can be long, so each event is printed as it arrives.
        if args.remote.json {
            let mut events = events.raw();
            let mut printed = 0;
            while printed < limit
                && let Some(event) = events.next().await?
            {
                outln!("{event}");
                printed += 1;
            }
            return Ok(exit::OK);
        }
        let mut events = events;
        let mut timeline = Timeline::new(args.absolute);
        let mut printed = 0;
        while printed < limit
            && let Some(event) = events.next().await?
        {
            timeline.print_event(&args.id, &event);
            printed += 1;
        }
        Ok(exit::OK)
    })
}

//! `abide history`: what happened to a run, event by event.

use std::process::ExitCode;

use super::exit;
use crate::problem::Sought;
use crate::remote::Remote;
use crate::say::say;
use crate::timeline::Timeline;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The instance
    #[arg(value_name = "ID")]
    id: String,
    /// The number of the run, as long as it is kept; the current one by default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    run: Option<u32>,
    /// Show so many events at most
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    #[command(flatten)]
    remote: Remote,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    args.remote.run_on(Sought::Instance, async |client| {
        let limit = args.limit.unwrap_or(usize::MAX);
        let events = match args.run {
            Some(run) => client.history_of_run(&args.id, run),
            None => client.history(&args.id),
        };
        let events = events.page_size(100);
        // Histories can be long: each event is printed as it comes.
        if args.remote.json {
            let mut events = events.raw();
            let mut told = 0;
            while told < limit
                && let Some(event) = events.next().await?
            {
                say!("{event}");
                told += 1;
            }
            return Ok(exit::OK);
        }
        let (mut events, mut timeline, mut told) = (events, Timeline::default(), 0);
        while told < limit
            && let Some(event) = events.next().await?
        {
            timeline.tell(&args.id, &event);
            told += 1;
        }
        Ok(exit::OK)
    })
}

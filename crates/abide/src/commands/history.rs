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
    /// Show so many events at most
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    #[command(flatten)]
    remote: Remote,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    args.remote.run_on(Sought::Instance, async |client| {
        let limit = args.limit.unwrap_or(usize::MAX);
        let events = client.history(&args.id).page_size(100);
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

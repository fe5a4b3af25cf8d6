//! `abide stats`: what the server counts.

use std::process::ExitCode;
use std::time::Duration;

use abide_client::Stats;

use crate::remote::Remote;
use crate::say::{say, visible};
use crate::styles::FAINT;
use crate::table::{Cell, Table, grouped, status_style};
use crate::times;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Show every shard
    #[arg(long)]
    shards: bool,
    #[command(flatten)]
    remote: Remote,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    args.remote
        .run(async |client| args.remote.answer(client.stats(), |stats| print(stats, args.shards)).await)
}

fn print(stats: &Stats, shards: bool) {
    let field = |name: &str, value: &str| say!("{FAINT}{name:<12}{FAINT:#} {value}");
    let up = times::short(Duration::from_secs(stats.uptime_seconds));
    field("server", &format!("{}, up for {up}", visible(&stats.version)));
    field("store", &format!("{}, {}", visible(&stats.store.kind), visible(&stats.store.sync)));
    let runs = stats.instances.by_status.iter().filter(|(_, count)| **count > 0).map(|(status, count)| {
        let style = status_style(status);
        let more =
            if stats.instances.counted_up_to.is_some_and(|most| *count >= most) { " or more" } else { "" };
        format!("{}{more} {style}{}{style:#}", grouped(*count), visible(status))
    });
    let runs: Vec<String> = runs.collect();
    field("runs", &if runs.is_empty() { "none".to_owned() } else { runs.join(", ") });
    let calls = &stats.activities;
    field("activities", &format!("{} running, {} waiting", grouped(calls.running), grouped(calls.waiting)));
    field("entities", &format!("{} operations", grouped(stats.entities.operations)));
    let sum = |of: fn(&abide_client::ShardStats) -> u64| stats.shards.iter().map(of).sum::<u64>();
    let working = stats.shards.iter().filter(|shard| shard.working).count();
    let (memory, commits) = (sum(|shard| shard.instances_in_memory), sum(|shard| shard.commits));
    let (memory, commits, waiting) = (grouped(memory), grouped(commits), grouped(sum(|shard| shard.waiting)));
    let all = stats.shards.len();
    field(
        "shards",
        &format!(
            "{working} of {all} at work, {memory} instances in memory, {waiting} waiting, {commits} commits"
        ),
    );
    if shards {
        say!("");
        table(stats);
    }
}

fn table(stats: &Stats) {
    let mut table = Table::new(["SHARD", "IN MEMORY", "WAITING", "COMMITS", "STATE"]);
    for shard in &stats.shards {
        table.row([
            Cell::count(shard.shard.into()),
            Cell::count(shard.instances_in_memory),
            Cell::count(shard.waiting),
            Cell::count(shard.commits),
            if shard.working { "at work" } else { "not at work" }.into(),
        ]);
    }
    table.print("shards");
}

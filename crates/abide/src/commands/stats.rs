//! `abide stats`: prints the server's statistics.

use std::process::ExitCode;
use std::time::Duration;

use abide_client::NodeStats;

use crate::output::{escape_control_chars, outln};
use crate::server_args::ServerArgs;
use crate::styles::FAINT;
use crate::table::{TextCell, TextTable, group_digits, status_style};
use crate::time_format;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Show each shard
    #[arg(long)]
    shards: bool,
    #[command(flatten)]
    remote: ServerArgs,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    args.remote.run(async |client| {
        args.remote.print_response(client.stats(), |stats| print(stats, args.shards)).await
    })
}

fn print(stats: &NodeStats, shards: bool) {
    let field = |name: &str, value: &str| outln!("{FAINT}{name:<12}{FAINT:#} {value}");
    let up = time_format::format_duration(Duration::from_secs(stats.uptime_seconds));
    field("server", &format!("{}, up for {up}", escape_control_chars(&stats.version)));
    field(
        "store",
        &format!("{}, {}", escape_control_chars(&stats.store.kind), escape_control_chars(&stats.store.sync)),
    );
    let runs = stats.instances.by_status.iter().filter(|(_, count)| **count > 0).map(|(status, count)| {
        let style = status_style(status);
        let more =
            if stats.instances.counted_up_to.is_some_and(|most| *count >= most) { " or more" } else { "" };
        format!("{}{more} {style}{}{style:#}", group_digits(*count), escape_control_chars(status))
    });
    let runs: Vec<String> = runs.collect();
    field("runs", &if runs.is_empty() { "none".to_owned() } else { runs.join(", ") });
    let calls = &stats.activities;
    field(
        "activities",
        &format!("{} running, {} waiting", group_digits(calls.running), group_digits(calls.waiting)),
    );
    field("entities", &format!("{} operations", group_digits(stats.entities.operations)));
    let sum = |of: fn(&abide_client::ShardStats) -> u64| stats.shards.iter().map(of).sum::<u64>();
    let active = stats.shards.iter().filter(|shard| shard.working).count();
    let (memory, commits) = (sum(|shard| shard.instances_in_memory), sum(|shard| shard.commits));
    let (memory, commits, waiting) =
        (group_digits(memory), group_digits(commits), group_digits(sum(|shard| shard.waiting)));
    let all = stats.shards.len();
    field(
        "shards",
        &format!(
            "{active} of {all} active, {memory} instances in memory, {waiting} waiting, {commits} commits"
        ),
    );
    if shards {
        outln!("");
        print_shards(stats);
    }
}

fn print_shards(stats: &NodeStats) {
    let mut table = TextTable::new(["SHARD", "IN MEMORY", "WAITING", "COMMITS", "STATE"]);
    for shard in &stats.shards {
        table.push_row([
            TextCell::count(shard.shard.into()),
            TextCell::count(shard.instances_in_memory),
            TextCell::count(shard.waiting),
            TextCell::count(shard.commits),
            if shard.working { "active" } else { "inactive" }.into(),
        ]);
    }
    table.print("shards");
}

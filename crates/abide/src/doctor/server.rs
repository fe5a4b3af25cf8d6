//! Checks the server: that it responds, is ready, has this version and the right time, that its shards are active, and
//! that it has no parked runs, stuck runs or dead letters. It uses the API alone.

use std::time::Duration;

use abide_client::{Client, ClientError, DeadLetterFilter, NodeStats, Timestamp};

use super::DoctorFinding;
use crate::errors::error_chain;
use crate::table::group_digits;
use crate::time_format;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ServerReachability {
    Reachable,
    Unreachable,
}

/// The accepted difference between two clocks.
const SKEW_MAX: Duration = Duration::from_secs(5);
/// Stuck runs and dead letters are counted up to this number.
const COUNT_LIMIT: usize = 100;
/// 2026-01-01: a clock that shows an earlier time is wrong.
const EARLIEST_PLAUSIBLE_MS: i64 = 1_767_225_600_000;

pub(crate) async fn check_server(client: &Client) -> (ServerReachability, Vec<DoctorFinding>) {
    let mut findings = vec![check_local_clock(time_format::now())];
    let server_time = match client.server_time().await {
        Ok(server_time) => server_time,
        Err(error) => {
            let advice = "start one with `abide serve`, or give its address with --url or ABIDE_URL";
            findings.push(DoctorFinding::error("server", error_chain(&error), advice));
            return (ServerReachability::Unreachable, findings);
        }
    };
    findings.push(DoctorFinding::ok("server", format!("http://{} responds", client.server())));
    findings.push(check_clock_skew(time_format::now(), server_time));
    findings.push(match client.readiness().await {
        Ok(_) => DoctorFinding::ok("readiness", "ready"),
        Err(error) => DoctorFinding::error(
            "readiness",
            error_chain(&error),
            "if the server has just started, wait a moment and check again; otherwise its log has the reason",
        ),
    });
    match client.stats().await {
        Ok(stats) => findings.extend(check_stats(&stats)),
        Err(error) => findings.push(request_failed("stats", &error)),
    }
    findings.push(check_stuck_runs(client).await);
    findings.push(check_dead_letters(client).await);
    (ServerReachability::Reachable, findings)
}

fn check_local_clock(now: Timestamp) -> DoctorFinding {
    let shown = time_format::format_timestamp(now);
    if now.as_millisecond() < EARLIEST_PLAUSIBLE_MS {
        return DoctorFinding::error(
            "clock",
            format!("this machine's clock shows {shown}"),
            "set the clock, and synchronise it with NTP",
        );
    }
    DoctorFinding::ok("clock", shown)
}

fn check_clock_skew(local: Timestamp, server: Timestamp) -> DoctorFinding {
    let skew = time_format::duration_between(local, server).max(time_format::duration_between(server, local));
    let message = format!("the server's clock differs by {}", time_format::format_duration(skew));
    if skew > SKEW_MAX {
        return DoctorFinding::warning(
            "clocks",
            message,
            "synchronise both machines with NTP: timers follow the server's clock",
        );
    }
    DoctorFinding::ok("clocks", message)
}

fn check_stats(stats: &NodeStats) -> Vec<DoctorFinding> {
    let own = env!("CARGO_PKG_VERSION");
    let version = if stats.version == own {
        DoctorFinding::ok("versions", format!("both are {own}"))
    } else {
        let message = format!("the server has version {}, this command {own}", stats.version);
        DoctorFinding::warning(
            "versions",
            message,
            "use the command of the server's version: other versions may not understand each other",
        )
    };
    let inactive: Vec<String> =
        stats.shards.iter().filter(|shard| !shard.working).map(|shard| shard.shard.to_string()).collect();
    let shards = if inactive.is_empty() {
        DoctorFinding::ok("shards", format!("all {} are active", stats.shards.len()))
    } else {
        let message = format!("inactive: {}", inactive.join(", "));
        DoctorFinding::error(
            "shards",
            message,
            "if the server has just started, wait a moment and check again; otherwise its log has the reason",
        )
    };
    let parked = stats.instances.by_status.get("Parked").copied().unwrap_or(0);
    let parked = if parked == 0 {
        DoctorFinding::ok("parked runs", "none")
    } else {
        let advice = "`abide list --status Parked` lists them, `abide show ID` has the reason, `abide resume ID` tries again";
        DoctorFinding::warning("parked runs", format!("{} cannot continue", group_digits(parked)), advice)
    };
    vec![version, shards, parked]
}

async fn check_stuck_runs(client: &Client) -> DoctorFinding {
    match client.stuck_runs().page_size(100).take(COUNT_LIMIT).await {
        Ok(runs) if runs.is_empty() => DoctorFinding::ok("stuck runs", "none"),
        Ok(runs) => {
            let message = format!("{} are overdue", at_least(runs.len()));
            DoctorFinding::warning("stuck runs", message, "`abide stuck` shows what they wait for")
        }
        Err(error) => request_failed("stuck runs", &error),
    }
}

async fn check_dead_letters(client: &Client) -> DoctorFinding {
    let pending = DeadLetterFilter { status: Some("Pending".to_owned()), ..DeadLetterFilter::default() };
    match client.dead_letters(&pending).page_size(100).take(COUNT_LIMIT).await {
        Ok(letters) if letters.is_empty() => DoctorFinding::ok("dead letters", "none are pending"),
        Ok(letters) => {
            let message = format!("{} are pending", at_least(letters.len()));
            DoctorFinding::warning("dead letters", message, "`abide dlq list` has the reasons")
        }
        Err(error) => request_failed("dead letters", &error),
    }
}

fn at_least(count: usize) -> String {
    if count < COUNT_LIMIT { count.to_string() } else { format!("{COUNT_LIMIT} or more") }
}

fn request_failed(check: &'static str, error: &ClientError) -> DoctorFinding {
    DoctorFinding::warning(check, error_chain(error), "check that the server has the version of this command")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::CheckStatus;
    use abide_client::ShardStats;

    #[test]
    fn another_version_an_inactive_shard_and_parked_runs_are_reported() {
        let mut stats: NodeStats = serde_json::from_value(serde_json::json!({
            "instances": {"byStatus": {"Running": 7}}, "shards": [], "activities": {"running": 0, "waiting": 0},
            "entities": {"operations": 0}, "uptimeSeconds": 1, "version": env!("CARGO_PKG_VERSION"), "store": {"kind": "e", "sync": "s"},
        }))
        .unwrap();
        stats.shards.push(ShardStats { shard: 3, working: true, ..ShardStats::default() });
        assert!(check_stats(&stats).iter().all(|finding| finding.verdict == CheckStatus::Ok));
        stats.version = "9.9.9".to_owned();
        stats.shards[0].working = false;
        stats.instances.by_status.insert("Parked".to_owned(), 2);
        let verdicts: Vec<CheckStatus> = check_stats(&stats).iter().map(|finding| finding.verdict).collect();
        assert_eq!(verdicts, [CheckStatus::Warning, CheckStatus::Error, CheckStatus::Warning]);
    }

    #[test]
    fn a_large_clock_skew_is_a_warning_and_an_implausible_clock_is_an_error() {
        let at = |ms| Timestamp::from_millisecond(EARLIEST_PLAUSIBLE_MS + ms).unwrap();
        assert_eq!(check_clock_skew(at(0), at(4_000)).verdict, CheckStatus::Ok);
        assert_eq!(check_clock_skew(at(6_000), at(0)).verdict, CheckStatus::Warning);
        assert_eq!(check_clock_skew(at(0), at(6_000)).verdict, CheckStatus::Warning);
        assert_eq!(
            (check_local_clock(at(-1)).verdict, check_local_clock(at(0)).verdict),
            (CheckStatus::Error, CheckStatus::Ok)
        );
    }
}

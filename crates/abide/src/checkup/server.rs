//! The server: whether it answers, is ready, is of this version, agrees about the time, and what stands still in it.

use std::time::Duration;

use abide_client::{Client, ClientError, DeadLetterFilter, Stats, Timestamp};

use super::Finding;
use crate::problem::with_sources;
use crate::table::grouped;
use crate::times;

/// Whether a server answers at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    Answers,
    Silent,
}

/// Clocks may differ by so much.
const SKEW_MAX: Duration = Duration::from_secs(5);
/// Things are counted up to here.
const COUNTED_MAX: usize = 100;
/// No clock that is right shows less: this is 2026-01-01.
const EARLIEST_MS: i64 = 1_767_225_600_000;

pub(crate) async fn examine(client: &Client) -> (Seen, Vec<Finding>) {
    let mut findings = vec![own_clock(times::now())];
    let there = match client.server_time().await {
        Ok(there) => there,
        Err(error) => {
            let advice = "start one with `abide serve`, or say where it is with --url or ABIDE_URL";
            findings.push(Finding::bad("server", with_sources(&error), advice));
            return (Seen::Silent, findings);
        }
    };
    findings.push(Finding::fine("server", format!("http://{} answers", client.server())));
    findings.push(skew(times::now(), there));
    findings.push(match client.readiness().await {
        Ok(_) => Finding::fine("readiness", "ready"),
        Err(error) => Finding::bad(
            "readiness",
            with_sources(&error),
            "wait a moment after a start; else its log says more",
        ),
    });
    match client.stats().await {
        Ok(stats) => findings.extend(counted(&stats)),
        Err(error) => findings.push(unasked("stats", &error)),
    }
    findings.push(stuck(client).await);
    findings.push(dead(client).await);
    (Seen::Answers, findings)
}

fn own_clock(now: Timestamp) -> Finding {
    let told = times::stamp(now);
    if now.as_millisecond() < EARLIEST_MS {
        return Finding::bad(
            "clock",
            format!("this machine says {told}"),
            "set the clock, and keep it right with NTP",
        );
    }
    Finding::fine("clock", told)
}

fn skew(here: Timestamp, there: Timestamp) -> Finding {
    let skew = times::between(here, there).max(times::between(there, here));
    let told = format!("the server's clock differs by {}", times::short(skew));
    if skew > SKEW_MAX {
        return Finding::doubtful(
            "clocks",
            told,
            "keep both machines right with NTP: timers go by the server's clock",
        );
    }
    Finding::fine("clocks", told)
}

fn counted(stats: &Stats) -> Vec<Finding> {
    let mine = env!("CARGO_PKG_VERSION");
    let version = if stats.version == mine {
        Finding::fine("versions", format!("both are {mine}"))
    } else {
        let told = format!("the server is {}, this is {mine}", stats.version);
        Finding::doubtful(
            "versions",
            told,
            "use the command line of the server's version: what one says the other may not know",
        )
    };
    let idle: Vec<String> =
        stats.shards.iter().filter(|shard| !shard.working).map(|shard| shard.shard.to_string()).collect();
    let shards = if idle.is_empty() {
        Finding::fine("shards", format!("all {} are at work", stats.shards.len()))
    } else {
        let told = format!("not at work: {}", idle.join(", "));
        Finding::bad("shards", told, "wait a moment after a start; else the server's log says why")
    };
    let parked = stats.instances.by_status.get("Parked").copied().unwrap_or(0);
    let parked = if parked == 0 {
        Finding::fine("parked runs", "none")
    } else {
        let advice =
            "`abide list --status Parked`, then `abide show ID`: it says why; `abide resume ID` tries again";
        Finding::doubtful("parked runs", format!("{} cannot go on", grouped(parked)), advice)
    };
    vec![version, shards, parked]
}

async fn stuck(client: &Client) -> Finding {
    match client.stuck().page_size(100).take(COUNTED_MAX).await {
        Ok(runs) if runs.is_empty() => Finding::fine("stuck runs", "none"),
        Ok(runs) => {
            let told = format!("{} are past their time", at_least(runs.len()));
            Finding::doubtful("stuck runs", told, "`abide stuck` says what they wait for")
        }
        Err(error) => unasked("stuck runs", &error),
    }
}

async fn dead(client: &Client) -> Finding {
    let pending = DeadLetterFilter { status: Some("Pending".to_owned()), ..DeadLetterFilter::default() };
    match client.dead_letters(&pending).page_size(100).take(COUNTED_MAX).await {
        Ok(letters) if letters.is_empty() => Finding::fine("dead letters", "none are pending"),
        Ok(letters) => {
            let told = format!("{} are pending", at_least(letters.len()));
            Finding::doubtful("dead letters", told, "`abide dlq list` says why")
        }
        Err(error) => unasked("dead letters", &error),
    }
}

fn at_least(count: usize) -> String {
    if count < COUNTED_MAX { count.to_string() } else { format!("{COUNTED_MAX} or more") }
}

fn unasked(check: &'static str, error: &ClientError) -> Finding {
    Finding::doubtful(check, with_sources(error), "is the server of this version?")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkup::Verdict;
    use abide_client::ShardStats;

    #[test]
    fn what_the_server_counts_is_judged() {
        let mut stats: Stats = serde_json::from_value(serde_json::json!({
            "instances": {"byStatus": {"Running": 7}}, "shards": [], "activities": {"running": 0, "waiting": 0},
            "entities": {"operations": 0}, "uptimeSeconds": 1, "version": env!("CARGO_PKG_VERSION"), "store": {"kind": "e", "sync": "s"},
        }))
        .unwrap();
        stats.shards.push(ShardStats { shard: 3, working: true, ..ShardStats::default() });
        assert!(counted(&stats).iter().all(|finding| finding.verdict == Verdict::Fine));
        stats.version = "9.9.9".to_owned();
        stats.shards[0].working = false;
        stats.instances.by_status.insert("Parked".to_owned(), 2);
        let verdicts: Vec<Verdict> = counted(&stats).iter().map(|finding| finding.verdict).collect();
        assert_eq!(verdicts, [Verdict::Doubtful, Verdict::Bad, Verdict::Doubtful]);
    }

    #[test]
    fn clocks_are_judged_by_how_far_they_are_apart() {
        let at = |ms| Timestamp::from_millisecond(EARLIEST_MS + ms).unwrap();
        assert_eq!(skew(at(0), at(4_000)).verdict, Verdict::Fine);
        assert_eq!(skew(at(6_000), at(0)).verdict, Verdict::Doubtful);
        assert_eq!(skew(at(0), at(6_000)).verdict, Verdict::Doubtful);
        assert_eq!((own_clock(at(-1)).verdict, own_clock(at(0)).verdict), (Verdict::Bad, Verdict::Fine));
    }
}

//! Renders a node's counters and gauges in Prometheus's text format. Counts nothing itself.
//!
//! The metric names are a public interface: dashboards and alerts are built on them.

use std::fmt::Write;

use abide_runtime::node::{Metrics, ShardLanes};
use abide_store::Store;

use crate::app::App;

#[derive(Debug)]
struct Metric {
    name: &'static str,
    help: &'static str,
    kind: &'static str,
}

const fn counter(name: &'static str, help: &'static str) -> Metric {
    Metric { name, help, kind: "counter" }
}

const fn gauge(name: &'static str, help: &'static str) -> Metric {
    Metric { name, help, kind: "gauge" }
}

const STARTED: Metric = counter("abide_instances_started_total", "Runs started.");
const ENDED: Metric = counter("abide_instances_ended_total", "Runs ended, by final status.");
const STUCK: Metric =
    counter("abide_instances_stuck_total", "Runs found live for longer than their stuck-after time.");
const PARKED: Metric = counter("abide_instances_parked_total", "Runs parked because they cannot continue.");
const CALLS_RUNNING: Metric = gauge("abide_calls_running", "Activity calls running now.");
const CALLS_WAITING: Metric =
    gauge("abide_calls_waiting", "Activity calls waiting for a concurrency permit.");
const CALLS_HELD: Metric =
    gauge("abide_calls_held", "Activity calls that are held back: nothing was sent, by what holds them.");
const CALLS_FAILED: Metric = counter("abide_calls_failed_total", "Activity calls that failed permanently.");
const CALLS_RESENT: Metric = counter(
    "abide_calls_recovered_total",
    "Activity calls sent again because the node that sent them stopped before their result was known.",
);
const ENTITY_OPERATIONS: Metric =
    counter("abide_entity_operations_total", "Operations that changed an entity.");
const DEAD_LETTERS: Metric = counter("abide_dead_letters_total", "Messages dead-lettered.");
const UNREADABLE: Metric = counter("abide_unreadable_total", "Unreadable places found in the store.");
const COMMITS: Metric = counter("abide_commits_total", "Commits sent to the store.");
const COMMIT_ROWS: Metric = counter("abide_commit_rows_total", "Rows in those commits.");
const COMMIT_BYTES: Metric = counter("abide_commit_bytes_total", "Bytes in those commits.");
const SHARDS_WORKING: Metric =
    gauge("abide_shards_working", "Shards that this node owns and that accept requests.");
const SHARDS_CAREFUL: Metric = gauge(
    "abide_shards_recovering_carefully",
    "Shards whose owners ended uncleanly in a row, so that stored work is done for one instance at a time.",
);
const IN_MEMORY: Metric = gauge("abide_instances_in_memory", "Instances in this node's memory.");
const DURATION: Metric = Metric {
    name: "abide_instance_duration_seconds",
    help: "Duration of runs, from acceptance to end.",
    kind: "histogram",
};
const CONNECTIONS: Metric = gauge("abide_connections", "Open connections of clients.");
const STALLED: Metric = counter(
    "abide_connections_stalled_total",
    "Connections closed because their clients took nothing of a response.",
);
const REQUEST_BYTES: Metric =
    gauge("abide_request_bytes_held", "Bytes of large request bodies that are held.");
const RESPONSE_BYTES: Metric =
    gauge("abide_response_bytes_held", "Bytes of large responses that clients have not taken yet.");
const REFUSED: Metric =
    counter("abide_requests_refused_total", "Requests refused for the sake of the server, by reason.");
const SHARD_QUEUE: Metric = gauge("abide_shard_queue", "What waits in each shard, by lane.");
const SHARD_QUEUE_BYTES: Metric =
    gauge("abide_shard_queue_bytes", "Bytes of the requests in the client lane of each shard.");
const STORE_USABLE: Metric = gauge("abide_store_usable", "1 if the store accepts reads and commits, else 0.");

/// The values that are not in the metrics of the node.
#[derive(Debug, Default)]
pub(crate) struct ServerMetrics {
    connections: usize,
    stalled: u64,
    request_bytes: usize,
    response_bytes: usize,
    over_rate: u64,
    over_request_bytes: u64,
    over_response_bytes: u64,
    lanes: Vec<LaneMetrics>,
}

/// The lanes into one shard.
#[derive(Debug, Default)]
struct LaneMetrics {
    client_requests: usize,
    client_bytes: usize,
    control_requests: usize,
}

impl ServerMetrics {
    pub(crate) fn of<S: Store>(app: &App<S>) -> Self {
        Self {
            connections: app.load().connections(),
            stalled: app.load().stalled(),
            request_bytes: app.body_budget().reserved(),
            response_bytes: app.response_budget().reserved(),
            over_rate: app.load().over_rate(),
            over_request_bytes: app.body_budget().refused(),
            over_response_bytes: app.response_budget().refused(),
            lanes: app.node().lanes().map(LaneMetrics::of).collect(),
        }
    }
}

impl LaneMetrics {
    fn of(lanes: &ShardLanes) -> Self {
        Self {
            client_requests: lanes.client_requests(),
            client_bytes: lanes.client_bytes(),
            control_requests: lanes.control_requests(),
        }
    }
}

/// The text for `/metrics`. The values are read one after the other, so they may be of slightly different times.
pub(crate) fn render(metrics: &Metrics, server: &ServerMetrics, store_usable: bool) -> String {
    let mut text = MetricsText::default();
    text.sample(&STARTED, metrics.runs_started.get());
    text.header(&ENDED);
    for (status, count) in [
        ("Completed", metrics.runs_completed.get()),
        ("Failed", metrics.runs_failed.get()),
        ("Terminated", metrics.runs_terminated.get()),
    ] {
        text.line(format_args!("{}{{status=\"{status}\"}} {count}", ENDED.name));
    }
    text.sample(&STUCK, metrics.runs_stuck.get());
    text.sample(&PARKED, metrics.runs_parked.get());
    text.sample(&CALLS_RUNNING, metrics.calls_running.get());
    text.sample(&CALLS_WAITING, metrics.calls_waiting.get());
    text.header(&CALLS_HELD);
    for (reason, count) in metrics.held_calls() {
        text.line(format_args!("{}{{reason=\"{}\"}} {count}", CALLS_HELD.name, reason.as_str()));
    }
    text.sample(&CALLS_FAILED, metrics.calls_failed.get());
    text.sample(&CALLS_RESENT, metrics.calls_recovered.get());
    text.sample(&ENTITY_OPERATIONS, metrics.entity_operations.get());
    text.sample(&DEAD_LETTERS, metrics.dead_lettered.get());
    text.sample(&UNREADABLE, metrics.unreadable_places.get());
    text.sample(&COMMITS, metrics.commits.get());
    text.sample(&COMMIT_ROWS, metrics.commit_rows.get());
    text.sample(&COMMIT_BYTES, metrics.commit_bytes.get());
    text.sample(&SHARDS_WORKING, metrics.working_shards());
    text.sample(&SHARDS_CAREFUL, metrics.careful_shards());
    text.sample(&IN_MEMORY, metrics.resident_instances());
    text.histogram(&DURATION, metrics);
    text.sample(&CONNECTIONS, server.connections);
    text.sample(&STALLED, server.stalled);
    text.sample(&REQUEST_BYTES, server.request_bytes);
    text.sample(&RESPONSE_BYTES, server.response_bytes);
    text.header(&REFUSED);
    for (reason, count) in [
        ("rate", server.over_rate),
        ("requestBytes", server.over_request_bytes),
        ("responseBytes", server.over_response_bytes),
        ("shardItems", metrics.requests_refused_items.get()),
        ("shardBytes", metrics.requests_refused_bytes.get()),
    ] {
        text.line(format_args!("{}{{reason=\"{reason}\"}} {count}", REFUSED.name));
    }
    text.header(&SHARD_QUEUE);
    for (shard, (lanes, queues)) in server.lanes.iter().zip(metrics.shards()).enumerate() {
        for (lane, depth) in [
            ("clients", lanes.client_requests),
            ("control", lanes.control_requests),
            ("work", queues.queued()),
        ] {
            text.line(format_args!("{}{{shard=\"{shard}\",lane=\"{lane}\"}} {depth}", SHARD_QUEUE.name));
        }
    }
    text.header(&SHARD_QUEUE_BYTES);
    for (shard, lanes) in server.lanes.iter().enumerate() {
        text.line(format_args!("{}{{shard=\"{shard}\"}} {}", SHARD_QUEUE_BYTES.name, lanes.client_bytes));
    }
    text.sample(&STORE_USABLE, u8::from(store_usable));
    text.0
}

#[derive(Default)]
struct MetricsText(String);

impl MetricsText {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "{line}");
    }

    fn header(&mut self, metric: &Metric) {
        self.line(format_args!("# HELP {} {}", metric.name, metric.help));
        self.line(format_args!("# TYPE {} {}", metric.name, metric.kind));
    }

    fn sample(&mut self, metric: &Metric, value: impl std::fmt::Display) {
        self.header(metric);
        self.line(format_args!("{} {value}", metric.name));
    }

    fn histogram(&mut self, metric: &Metric, metrics: &Metrics) {
        self.header(metric);
        let name = metric.name;
        // The total is read first. A bucket may have counted further since, so it is capped at the total.
        let (count, sum_ms) = metrics.run_durations.total();
        for (bound_ms, within) in metrics.run_durations.buckets() {
            let within = within.min(count);
            self.line(format_args!("{name}_bucket{{le=\"{}\"}} {within}", Seconds(bound_ms)));
        }
        self.line(format_args!("{name}_bucket{{le=\"+Inf\"}} {count}"));
        self.line(format_args!("{name}_sum {}", Seconds(sum_ms)));
        self.line(format_args!("{name}_count {count}"));
    }
}

/// Milliseconds written as seconds, exactly.
struct Seconds(u64);

impl std::fmt::Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.0 / 1000;
        let ms = self.0 % 1000;
        if ms == 0 {
            return write!(f, "{seconds}");
        }
        let fraction = format!("{ms:03}");
        write!(f, "{seconds}.{}", fraction.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_belongs_to_a_metric_with_help_and_type() {
        let text = render(&Metrics::default(), &ServerMetrics::default(), true);
        let mut declared = Vec::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                declared.push(rest.split(' ').next().unwrap());
            } else if !line.starts_with('#') {
                let name = line.split(['{', ' ']).next().unwrap();
                let metric = declared.last().unwrap();
                assert!(name.starts_with(metric), "{line}");
                assert!(line.rsplit(' ').next().unwrap().parse::<f64>().is_ok(), "{line}");
            }
        }
        let helps = text.lines().filter(|line| line.starts_with("# HELP ")).count();
        assert_eq!(declared.len(), helps);
        let names: std::collections::BTreeSet<_> = declared.iter().collect();
        assert_eq!(names.len(), declared.len(), "each metric is rendered once: {declared:?}");
        assert!(text.contains("abide_store_usable 1\n") && text.ends_with('\n'));
        assert!(text.contains("abide_instances_ended_total{status=\"Failed\"} 0\n"));
    }

    #[test]
    fn every_metric_is_explained_in_the_reference() {
        let reference = include_str!("../../../docs/reference/metrics.md");
        let text = render(&Metrics::default(), &ServerMetrics::default(), true);
        for name in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()) {
            assert!(
                reference.contains(&format!("`{name}`")) || reference.contains(&format!("`{name}{{")),
                "{name}"
            );
        }
    }

    #[test]
    fn milliseconds_are_written_as_seconds_without_rounding() {
        for (ms, text) in [(0, "0"), (1, "0.001"), (50, "0.05"), (1_000, "1"), (86_400_001, "86400.001")] {
            assert_eq!(Seconds(ms).to_string(), text);
        }
    }
}

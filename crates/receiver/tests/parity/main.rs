//! Tests parity: an activity behaves the same over every transport.
//!
//! Every scenario is one function that runs for LOCAL and for each wire, with real components: a node of the runtime on
//! a store, the transports of the sending side, and a receiver on its own port. The result is a table, which
//! `scripts/parity` prints.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test"
)]

mod counting_handler;
mod crashing_store;
mod fixture;
mod node_process;
mod request_log;
mod scenario_table;
mod scenarios;
mod transport;

use scenario_table::{Scenario, ScenarioTable};
use scenarios::{crashes, deadlines, duplicates, failures, identity, probes, schemas, statuses};
use transport::ParityTransport;

const fn scenario(name: &'static str, play: fn(ParityTransport)) -> Scenario {
    Scenario { name, play, skip_reason: |_| None }
}

const SCENARIOS: [Scenario; 18] = [
    scenario("duplicate", duplicates::a_duplicate_gets_the_recorded_result),
    scenario("concurrent duplicate", duplicates::a_concurrent_duplicate_fails_as_retryable),
    scenario("crash at every commit", crashes::a_crash_at_any_commit_loses_and_repeats_nothing),
    scenario("crash while dead-lettering", crashes::a_crash_at_any_commit_dead_letters_once),
    scenario("crash while cancelling", crashes::a_crash_at_any_commit_cancels_and_expires_once),
    scenario("retry exhaustion", failures::exhausted_retries_end_in_a_dead_letter),
    scenario("retry after", failures::a_service_can_request_a_longer_wait),
    scenario("deadline passed before send", deadlines::a_late_call_is_not_sent),
    scenario("deadline passed at receiver", deadlines::a_call_that_arrives_late_is_not_run),
    scenario("no deadline", deadlines::without_a_deadline_no_call_is_late),
    scenario("slow handler", deadlines::a_slow_handler_is_not_waited_for_and_not_cut_short),
    scenario("all statuses", statuses::every_status_is_retried_or_permanent),
    scenario("cancellation", failures::a_cancelled_call_is_dropped),
    scenario("metadata, byte for byte", identity::the_same_bytes_arrive),
    scenario("second run", identity::a_second_run_makes_new_calls),
    scenario("rewind", identity::a_rewound_step_makes_a_new_call),
    scenario("schemas", schemas::a_schema_violation_is_permanent),
    Scenario {
        name: "probe",
        play: probes::an_attempt_without_a_response_is_probed_before_it_is_repeated,
        skip_reason: probes::cannot_be_probed,
    },
];

#[test]
fn every_scenario_ends_the_same_over_every_transport() {
    let table = ScenarioTable::play(&SCENARIOS);
    println!("{table}");
    assert!(table.is_clean(), "some scenarios failed: see the table");
}

//! Parity: whatever way an activity is reached, the same happens.
//!
//! Every scenario is one function that is run for LOCAL and for each wire, between real parts: a node of the runtime on a store, the
//! transports of the sending side, and a receiver behind a port of its own. What comes of it is a table. Print it with `scripts/parity`.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test"
)]

mod over;
mod process;
mod scenarios;
mod store;
mod table;
mod tap;
mod work;
mod world;

use over::Over;
use scenarios::{crashes, deadlines, duplicates, failures, identity, probes, schemas, statuses};
use table::{Scenario, Table};

const fn scenario(name: &'static str, play: fn(Over)) -> Scenario {
    Scenario { name, play, excused: |_| None }
}

const SCENARIOS: [Scenario; 17] = [
    scenario("duplicate", duplicates::a_duplicate_gets_the_recorded_answer),
    scenario("concurrent duplicate", duplicates::a_concurrent_duplicate_is_told_to_come_back),
    scenario("crash at every commit", crashes::a_process_that_dies_at_any_commit_loses_and_repeats_nothing),
    scenario("crash while giving up", crashes::a_process_that_dies_at_any_commit_gives_up_once),
    scenario(
        "crash while cutting short",
        crashes::a_process_that_dies_at_any_commit_cancels_and_expires_once,
    ),
    scenario("retry exhaustion", failures::retries_that_are_used_up_end_in_a_dead_letter),
    scenario("retry after", failures::a_service_may_ask_for_patience),
    scenario("deadline passed before send", deadlines::what_is_too_late_is_not_sent),
    scenario("deadline passed at receiver", deadlines::what_arrives_too_late_is_not_run),
    scenario("no deadline", deadlines::without_a_deadline_nothing_is_too_late),
    scenario("all statuses", statuses::every_status_is_tried_again_or_not),
    scenario("cancellation", failures::a_call_that_nobody_waits_for_is_dropped),
    scenario("metadata, byte for byte", identity::the_same_bytes_arrive),
    scenario("second run", identity::a_second_run_is_new_work),
    scenario("rewind", identity::what_is_rewound_is_new_work),
    scenario("schemas", schemas::what_does_not_fit_is_final),
    Scenario {
        name: "probe",
        play: probes::an_unanswered_delivery_is_asked_for_before_it_is_repeated,
        excused: probes::cannot_be_asked,
    },
];

#[test]
fn every_scenario_ends_the_same_over_every_transport() {
    let table = Table::play(&SCENARIOS);
    println!("{table}");
    assert!(table.is_clean(), "some of it differs: see the table");
}

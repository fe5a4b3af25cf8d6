//! Every planted fault is found by some seed: the checks of the simulator can fail.

use abide_runtime::fault_injection::Fault;
use abide_sim::{Scenario, play};

/// How many seeds are tried. The first few find most faults.
const SEEDS: u64 = 200;

fn found(faults: &[Fault]) {
    for fault in faults {
        let finds = |seed: &u64| {
            let verdict = play(Scenario::with_fault(*seed, *fault));
            !verdict.violations.is_empty()
        };
        assert!((0..SEEDS).any(|seed| finds(&seed)), "{fault:?} was not found");
    }
}

#[test]
fn a_missing_fence_and_early_replies_are_found() {
    found(&[Fault::NoFence, Fault::EarlyReply, Fault::UnknownOutcomeAsSuccess]);
}

#[test]
fn lost_and_doubled_messages_are_found() {
    found(&[
        Fault::MessageDeletedEarly,
        Fault::DuplicateMessage,
        Fault::ChildEndDoubled,
        Fault::EventLostAtContinue,
    ]);
}

#[test]
fn lost_timers_and_lost_or_miscounted_calls_are_found() {
    found(&[
        Fault::LostTimer,
        Fault::OrphanedCallsLost,
        Fault::StaleRecovery,
        Fault::AttemptNotPersisted,
        Fault::KeyWithoutRun,
        Fault::PermanentFailureRetried,
    ]);
}

#[test]
fn early_ends_reopened_runs_and_stale_rows_are_found() {
    found(&[Fault::EarlyCompletion, Fault::TerminalReopened, Fault::InstanceRowNotWritten]);
}

#[test]
fn dropped_controls_forgotten_orders_and_stale_public_rows_are_found() {
    found(&[Fault::TerminateDropped, Fault::TreeOrderForgotten, Fault::PublicRowStale]);
}

#[test]
fn lost_and_undeleted_earlier_runs_and_lost_withdrawn_attempts_are_found() {
    found(&[Fault::EarlierRunLost, Fault::EarlierRunKept, Fault::WithdrawnAttemptLost]);
}

#[test]
fn unwritten_marks_of_lethal_work_are_found() {
    found(&[Fault::MarkNotWritten]);
}

#[test]
fn every_fault_is_in_a_test() {
    assert_eq!(Fault::ALL.len(), 23);
}

//! Every mistake that can be planted is found by some seed: what the simulator checks can fail.

use abide_runtime::planted::Bug;
use abide_sim::{Scenario, play};

/// Seeds tried. Most mistakes are found by the first few.
const SEEDS: u64 = 200;

fn found(bugs: &[Bug]) {
    for bug in bugs {
        let finds = |seed: &u64| {
            let verdict = play(Scenario { bug: Some(*bug), ..Scenario::stormy(*seed) });
            !verdict.violations.is_empty()
        };
        assert!((0..SEEDS).any(|seed| finds(&seed)), "{bug:?} was not found");
    }
}

#[test]
fn a_missing_fence_and_early_answers_are_found() {
    found(&[Bug::NoFence, Bug::EarlyAcknowledgement, Bug::UnknownAssumedDone]);
}

#[test]
fn lost_and_doubled_messages_are_found() {
    found(&[Bug::EarlyDeletion, Bug::DoubleDelivery, Bug::ChildEndDoubled, Bug::EventLostAtContinue]);
}

#[test]
fn lost_timers_and_forgotten_or_miscounted_calls_are_found() {
    found(&[
        Bug::LostTimer,
        Bug::OrphansForgotten,
        Bug::StaleRecovery,
        Bug::AttemptNotPersisted,
        Bug::KeyWithoutRun,
        Bug::FinalRetried,
    ]);
}

#[test]
fn ends_that_are_none_and_statuses_that_lie_are_found() {
    found(&[Bug::EarlyCompletion, Bug::TerminalReopened, Bug::StatusApart]);
}

#[test]
fn orders_that_are_dropped_and_public_rows_that_stay_behind_are_found() {
    found(&[Bug::TerminateDropped, Bug::PublicRowStale]);
}

#[test]
fn runs_and_calls_that_are_lost_sight_of_are_found() {
    found(&[Bug::EarlierRunLost, Bug::EarlierRunKept, Bug::WithdrawnForgotten]);
}

#[test]
fn no_mistake_is_left_out() {
    assert_eq!(Bug::ALL.len(), 21);
}

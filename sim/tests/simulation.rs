//! Simulates clusters by seed. `ABIDE_SIM_SEEDS=1000` plays more of them.

use abide_sim::{Scenario, SimCounts, play};

#[test]
fn the_same_seed_gives_the_same_run() {
    let first = play(Scenario::stormy(7));
    let second = play(Scenario::stormy(7));
    assert_eq!(first, second);
    assert_ne!(first.trace, play(Scenario::stormy(8)).trace);
}

#[test]
fn without_faults_there_are_no_violations() {
    for seed in 0..6 {
        let verdict = play(Scenario { faults: false, ..Scenario::stormy(seed) });
        assert_eq!(verdict.violations, Vec::<String>::new(), "seed {seed}");
    }
}

#[test]
fn an_instance_whose_turns_end_the_process_never_stops_the_others() {
    let mut sum = SimCounts::default();
    for seed in 0..8 {
        let verdict = play(Scenario { poisoned: true, ..Scenario::stormy(seed) });
        assert_eq!(verdict.violations, Vec::<String>::new(), "seed {seed}");
        sum.add(&verdict.counts);
    }
    assert!(sum.deaths > 8 && sum.careful_recoveries > 0 && sum.blamed > 0, "{sum}");
}

#[test]
fn nothing_is_lost_doubled_or_stuck_in_a_storm() {
    let seeds = std::env::var("ABIDE_SIM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(12);
    let mut sum = SimCounts::default();
    for seed in 0..seeds {
        let verdict = play(Scenario::stormy(seed));
        assert_eq!(verdict.violations, Vec::<String>::new(), "seed {seed}");
        sum.add(&verdict.counts);
    }
    let SimCounts { drains, withdrawn_calls, races, stuck, controls, deleted_instances, .. } = sum;
    let all = [drains, withdrawn_calls, races, stuck, deleted_instances].into_iter().chain(controls);
    assert!(all.into_iter().all(|count| count > 0), "something never happened: {sum}");
}

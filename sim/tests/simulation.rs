//! Clusters by seed. `ABIDE_SIM_SEEDS=1000` plays more of them.

use abide_sim::{Counts, Scenario, play};

#[test]
fn the_same_seed_gives_the_same_run() {
    let (first, second) = (play(Scenario::stormy(7)), play(Scenario::stormy(7)));
    assert_eq!(first, second);
    assert_ne!(first.trace, play(Scenario::stormy(8)).trace);
}

#[test]
fn without_faults_everything_ends_as_it_should() {
    for seed in 0..6 {
        let verdict = play(Scenario { faults: false, ..Scenario::stormy(seed) });
        assert_eq!(verdict.violations, Vec::<String>::new(), "seed {seed}");
    }
}

#[test]
fn nothing_is_lost_doubled_or_stuck_in_a_storm() {
    let seeds = std::env::var("ABIDE_SIM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(12);
    let mut sum = Counts::default();
    for seed in 0..seeds {
        let verdict = play(Scenario::stormy(seed));
        assert_eq!(verdict.violations, Vec::<String>::new(), "seed {seed}");
        sum.add(&verdict.counts);
    }
    let Counts { drains, withdrawn, races, stuck, orders, forgotten, .. } = sum;
    let all = [drains, withdrawn, races, stuck, forgotten].into_iter().chain(orders);
    assert!(all.into_iter().all(|count| count > 0), "something never happened: {sum}");
}

//! The command line of the simulator: plays clusters by seed. It does not judge them: the checks are in the library's
//! `verdict`.
//!
//! - `storm [SECONDS] [FIRST_SEED]` plays seed after seed and fails on any violation.
//! - `faults [SEEDS]` plants every fault and fails if the seeds do not find one of them.
//! - `seed NUMBER [INSTANCE]` prints what happened in one cluster.
//! - `digest [SEEDS]` prints a line that is the same for two builds with the same commits and effects.

#![expect(clippy::disallowed_methods, reason = "the duration of a storm is real time")]

use std::time::{Duration, Instant};

use abide_runtime::fault_injection::Fault;
use abide_sim::{BehaviourDigest, Scenario, SimCounts, digest, play, play_traced};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |at: usize, default: u64| arguments.get(at).and_then(|text| text.parse().ok()).unwrap_or(default);
    match arguments.first().map(String::as_str) {
        Some("faults") => find_injected_faults(number(1, 200)),
        Some("seed") => {
            let instance = arguments.get(2).map_or("", String::as_str);
            let (trace, verdict) = play_traced(Scenario::stormy(number(1, 0)), instance);
            trace.iter().for_each(|line| println!("{line}"));
            println!("{verdict:#?}");
        }
        Some("digest") => digests(number(1, 200)),
        None | Some("storm") => storm(Duration::from_secs(number(1, 60)), number(2, 0)),
        Some(other) => {
            eprintln!("unknown command {other:?}; use storm, faults, seed or digest");
            std::process::exit(2);
        }
    }
}

/// Plays seed after seed until the time is up.
fn storm(duration: Duration, first: u64) {
    let began = Instant::now();
    let mut seeds = 0u64;
    let mut violations = 0;
    let mut sum = SimCounts::default();
    while began.elapsed() < duration {
        let verdict = play(Scenario::stormy(first + seeds));
        for violation in &verdict.violations {
            println!("seed {}: {violation}", first + seeds);
        }
        violations += verdict.violations.len();
        seeds += 1;
        sum.add(&verdict.counts);
    }
    println!("{seeds} seeds, {sum}: {violations} violations");
    std::process::exit(i32::from(violations > 0));
}

/// Plants every fault, each until a seed finds it.
fn find_injected_faults(seeds: u64) {
    let mut missed = 0;
    for fault in Fault::ALL {
        let first_found = (0..seeds).find_map(|seed| {
            let verdict = play(Scenario::with_fault(seed, fault));
            verdict.violations.into_iter().next().map(|violation| (seed, violation))
        });
        match first_found {
            Some((seed, violation)) => {
                let shown: String = violation.chars().take(110).collect();
                println!("{:<24} seed {seed:>3}: {shown}", format!("{fault:?}"));
            }
            None => {
                missed += 1;
                println!("{:<24} not found in {seeds} seeds", format!("{fault:?}"));
            }
        }
    }
    println!("{} faults planted, {missed} not found", Fault::ALL.len());
    std::process::exit(missed.min(1));
}

/// Prints the digest of each seed and a combined one.
fn digests(seeds: u64) {
    let mut all = BehaviourDigest::default();
    for seed in 0..seeds {
        let one = digest(Scenario::stormy(seed));
        println!("seed {seed:>3}  {one}");
        all.merge(&one);
    }
    println!("{seeds} seeds  {all}");
}

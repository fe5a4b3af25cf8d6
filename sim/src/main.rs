//! Plays clusters by seed from the command line: `storm [SECONDS]`, `bugs [SEEDS]`, `seed NUMBER [INSTANCE]`, which tells what happened
//! to it, and `digest [SEEDS]`, whose last line is the same for two builds that commit the same bytes and have the same effects.

#![expect(clippy::disallowed_methods, reason = "how long to play is real time")]

use std::time::{Duration, Instant};

use abide_runtime::planted::Bug;
use abide_sim::{Counts, Digest, Scenario, digest, play, tell};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |at: usize, default: u64| arguments.get(at).and_then(|text| text.parse().ok()).unwrap_or(default);
    match arguments.first().map(String::as_str) {
        Some("bugs") => bugs(number(1, 200)),
        Some("seed") => {
            let (told, verdict) =
                tell(Scenario::stormy(number(1, 0)), arguments.get(2).map_or("", String::as_str));
            told.iter().for_each(|line| println!("{line}"));
            println!("{verdict:#?}");
        }
        Some("digest") => digests(number(1, 200)),
        _ => storm(Duration::from_secs(number(1, 60)), number(2, 0)),
    }
}

/// Seed after seed until the time is over.
fn storm(for_long: Duration, first: u64) {
    let began = Instant::now();
    let (mut seeds, mut violations) = (0u64, 0);
    let mut sum = Counts::default();
    while began.elapsed() < for_long {
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

/// Every mistake, until a seed finds it.
fn bugs(seeds: u64) {
    let mut missed = 0;
    for bug in Bug::ALL {
        let found = (0..seeds).find_map(|seed| {
            let verdict = play(Scenario { bug: Some(bug), ..Scenario::stormy(seed) });
            verdict.violations.into_iter().next().map(|violation| (seed, violation))
        });
        match found {
            Some((seed, violation)) => {
                let shown: String = violation.chars().take(110).collect();
                println!("{:<22} seed {seed:>3}: {shown}", format!("{bug:?}"));
            }
            None => {
                missed += 1;
                println!("{:<22} not found in {seeds} seeds", format!("{bug:?}"));
            }
        }
    }
    std::process::exit(missed.min(1));
}

/// The digests of so many seeds, one by one and together.
fn digests(seeds: u64) {
    let mut all = Digest::default();
    for seed in 0..seeds {
        let one = digest(Scenario::stormy(seed));
        println!("seed {seed:>3}  {one}");
        all.merge(&one);
    }
    println!("{seeds} seeds  {all}");
}

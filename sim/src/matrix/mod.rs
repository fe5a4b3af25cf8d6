//! The crash matrix: every case of an example, the process stopped at every point at every time it comes to one, and the same story each time.
//!
//! A case is played once without a crash. That run writes down what every activity answers when, and how often each point is reached. Then it is
//! played once per point and time, and must end with the same normalised history, with no more deliveries than the crash explains, and with
//! a store in order.

pub mod cases;
mod client;
mod points;
mod process;
mod stage;
mod story;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use abide_runtime::planted::Bug;

pub use cases::{Case, Children, cases_of, folders};
pub use points::{Crash, Point};

use process::Process;
use stage::Stage;
use story::Story;
use world::{Delivered, Script};

/// What one case has come to.
#[derive(Clone, Debug)]
pub struct Line {
    /// The example.
    pub example: String,
    /// The case.
    pub case: String,
    /// How often each point was reached without a crash.
    pub reached: BTreeMap<Point, u64>,
    /// Runs with a crash.
    pub crash_runs: u64,
    /// Deliveries that there would not have been without the crashes.
    pub extra_deliveries: u64,
    /// Where the crash was, and what was other than it must be.
    pub differences: Vec<(Option<Crash>, String)>,
}

/// One run of a case.
struct Played {
    story: Story,
    script: Script,
    deliveries: Vec<Delivered>,
    replies: Vec<String>,
    reached: BTreeMap<Point, u64>,
    /// The calls that were out at the crash, if there was one.
    out_at_crash: Option<BTreeSet<String>>,
    wrong: Vec<String>,
}

/// Plays a case with every crash there can be. A mistake can be planted, to see that it is found.
pub fn try_case(case: &Case, bug: Option<Bug>) -> Line {
    let mut line = Line {
        example: case.example.clone(),
        case: case.name.clone(),
        reached: BTreeMap::new(),
        crash_runs: 0,
        extra_deliveries: 0,
        differences: Vec::new(),
    };
    let began = Stage::new(&case.definitions, &case.activities).and_then(|mut stage| {
        let whole = play(case, &mut stage, None, None, bug)?;
        Ok((stage, whole))
    });
    let (mut stage, whole) = match began {
        Ok(began) => began,
        Err(reason) => {
            line.differences.push((None, reason));
            return line;
        }
    };
    line.differences.extend(whole.wrong.iter().map(|what| (None, what.clone())));
    line.reached.clone_from(&whole.reached);
    let script = Arc::new(whole.script.clone());
    for (point, times) in &whole.reached {
        for time in 1..=*times {
            let crash = Crash { point: *point, time };
            line.crash_runs += 1;
            match play(case, &mut stage, Some(Arc::clone(&script)), Some(crash), bug) {
                Ok(played) => {
                    let (extra, found) = compare(&whole, &played);
                    line.extra_deliveries += extra;
                    line.differences.extend(found.into_iter().map(|what| (Some(crash), what)));
                }
                Err(reason) => line.differences.push((Some(crash), reason)),
            }
        }
    }
    line
}

fn play(
    case: &Case,
    stage: &mut Stage,
    script: Option<Arc<Script>>,
    crash: Option<Crash>,
    bug: Option<Bug>,
) -> Result<Played, String> {
    stage.clear()?;
    let mut process = Process::new(case, stage, script, crash, bug)?;
    process.run();
    let mut wrong = std::mem::take(&mut process.wrong);
    if process.client.wants().is_some() {
        wrong.push("its client never got through".to_owned());
    }
    let story = process.stage.story(&mut wrong);
    wrong.extend(process.stage.check());
    if crash.is_none() {
        wrong.extend(unexpected(case, &process));
    }
    Ok(Played {
        story,
        script: process.world.written,
        deliveries: process.world.deliveries,
        replies: process.client.replies,
        reached: process.reached,
        out_at_crash: process.out_at_crash,
        wrong,
    })
}

/// What is other than the author of the case says, without any crash.
fn unexpected(case: &Case, process: &Process<'_>) -> Vec<String> {
    let Some((status, output, error)) = process.stage.ending(process.instance()) else {
        return vec!["it was never there".to_owned()];
    };
    let mut found = Vec::new();
    let expected = |name: &str| case.expected.get(name);
    if expected("status").is_some_and(|expected| *expected != status) {
        found.push(format!("it is {status}"));
    }
    if expected("output").is_some() && expected("output") != output.as_ref() {
        found.push(format!("its output is {output:?}"));
    }
    if expected("error").is_some_and(|expected| expected.as_str() != error.as_deref()) {
        found.push(format!("its error is {error:?}"));
    }
    if let Some(activities) = expected("activities").and_then(serde_json::Value::as_array) {
        let mut called: Vec<&str> =
            process.world.deliveries.iter().map(|one| one.activity.as_str()).collect();
        let mut expected: Vec<&str> = activities.iter().filter_map(serde_json::Value::as_str).collect();
        // What happens at the same time in different branches has no order.
        called.sort_unstable();
        expected.sort_unstable();
        if called != expected {
            found.push(format!("it called {called:?}"));
        }
    }
    found
}

/// How many deliveries a run with a crash has more than one without, and what else is other than it must be.
fn compare(whole: &Played, played: &Played) -> (u64, Vec<String>) {
    let mut found = played.wrong.clone();
    found.extend(whole.story.differences(&played.story));
    if whole.replies != played.replies {
        found.push(format!("the client was told {:?}, not {:?}", played.replies, whole.replies));
    }
    let Some(out) = &played.out_at_crash else {
        found.push("it never came to the crash".to_owned());
        return (0, found);
    };
    let count = |deliveries: &[Delivered]| {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for delivery in deliveries {
            *counts.entry(delivery.key.clone()).or_default() += 1;
        }
        counts
    };
    let (before, mut extra) = (count(&whole.deliveries), 0);
    for (key, times) in count(&played.deliveries) {
        let more = times.saturating_sub(before.get(&key).copied().unwrap_or(0));
        if more > u64::from(out.contains(&key)) {
            found.push(format!("{key} was delivered {more} times more, and no crash explains that"));
        }
        extra += more;
    }
    let mut seen = BTreeSet::new();
    for Delivered { key, attempt, activity } in &played.deliveries {
        if !seen.insert((key, attempt)) {
            found.push(format!("{activity} was delivered as attempt {attempt} twice"));
        }
    }
    (extra, found)
}

impl Line {
    /// The head of the table.
    pub const HEAD: &str = "| example | case | commits | calls | crash runs | extra deliveries | differences |\n|---|---|--:|--:|--:|--:|--:|";

    /// How often a point was reached without a crash.
    pub fn times(&self, point: Point) -> u64 {
        self.reached.get(&point).copied().unwrap_or(0)
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { example, case, crash_runs, extra_deliveries, differences, .. } = self;
        let (commits, calls) = (self.times(Point::AfterCommit), self.times(Point::BeforeCall));
        let differences = differences.len();
        write!(
            f,
            "| {example} | {case} | {commits} | {calls} | {crash_runs} | {extra_deliveries} | {differences} |"
        )
    }
}

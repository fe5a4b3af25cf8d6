//! The crash matrix: every case of an example, the process stopped at every point every time it comes to one, and the same story each time.
//!
//! A case is played once without a crash. That run writes down what every activity answers when, and how often each point is reached. Then it
//! is played once per point and time, and must end with the same normalised history, with no attempt that no crash explains, and with a store
//! in order.

pub mod cases;
mod client;
mod effects;
mod judge;
mod points;
mod process;
mod stage;
mod story;
mod traffic;
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

/// How often a process is stopped in one run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Crashes {
    /// Once.
    One,
    /// Once, and again soon after it has come back.
    Two,
}

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
    /// Attempts that there would not have been without the crashes.
    pub extra_attempts: u64,
    /// What was other than it must be, after which crashes.
    pub differences: Vec<Difference>,
}

/// Something that is other than it must be.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Where the process was stopped.
    pub crashes: Vec<Crash>,
    /// What is other.
    pub what: String,
}

/// One run of a case.
struct Played {
    story: Story,
    script: Script,
    deliveries: Vec<Delivered>,
    replies: Vec<String>,
    /// How often each point was reached, in each life.
    reached: Vec<BTreeMap<Point, u64>>,
    /// The calls that were out at each crash there was.
    out_at_crash: Vec<BTreeSet<String>>,
    wrong: Vec<String>,
}

/// A second crash is tried at each of the first times a point is reached in the second life: taking the shards, recovering, going on.
const SECOND_TIMES: u64 = 8;

/// Plays a case with every crash there can be. A mistake can be planted, to see that it is found.
pub fn try_case(case: &Case, crashes: Crashes, bug: Option<Bug>) -> Line {
    let mut line = Line {
        example: case.example.clone(),
        case: case.name.clone(),
        reached: BTreeMap::new(),
        crash_runs: 0,
        extra_attempts: 0,
        differences: Vec::new(),
    };
    if let Err(what) = fill(&mut line, case, crashes, bug) {
        line.differences.push(Difference { crashes: Vec::new(), what });
    }
    line
}

fn fill(line: &mut Line, case: &Case, crashes: Crashes, bug: Option<Bug>) -> Result<(), String> {
    let mut stage = Stage::new(&case.definitions, &case.activities)?;
    let whole = play(case, &mut stage, None, &[], bug)?;
    line.note(&[], whole.wrong.clone());
    if !whole.wrong.is_empty() {
        return Ok(());
    }
    line.reached = whole.reached.first().cloned().unwrap_or_default();
    let script = Arc::new(whole.script.clone());
    let mut crash = |line: &mut Line, crashes: &[Crash]| {
        let played = play(case, &mut stage, Some(Arc::clone(&script)), crashes, bug)?;
        let (extra, found) = judge::compare(&whole, &played, crashes.len());
        line.crash_runs += 1;
        line.extra_attempts += extra;
        line.note(crashes, found);
        Ok::<_, String>(played)
    };
    for first in times(&line.reached.clone(), u64::MAX) {
        let played = crash(line, &[first])?;
        if crashes == Crashes::Two
            && let Some(reached) = played.reached.get(1)
        {
            for second in times(reached, SECOND_TIMES) {
                crash(line, &[first, second])?;
            }
        }
    }
    Ok(())
}

/// Every crash there can be in a life that reaches points so often.
fn times(reached: &BTreeMap<Point, u64>, most: u64) -> Vec<Crash> {
    let of_point = |(point, times): (&Point, &u64)| {
        let point = *point;
        (1..=(*times).min(most)).map(move |time| Crash { point, time })
    };
    reached.iter().flat_map(of_point).collect()
}

fn play(
    case: &Case,
    stage: &mut Stage,
    script: Option<Arc<Script>>,
    crashes: &[Crash],
    bug: Option<Bug>,
) -> Result<Played, String> {
    stage.clear()?;
    let mut process = Process::new(case, stage, script, crashes, bug)?;
    process.run();
    let mut wrong = std::mem::take(&mut process.wrong);
    if process.client.wants().is_some() {
        wrong.push("its client never got through".to_owned());
    }
    let story = process.stage.story(&mut wrong);
    wrong.extend(process.stage.check());
    wrong.extend(judge::doubled(&process.world.deliveries));
    if crashes.is_empty() {
        wrong.extend(judge::unexpected(case, &process));
        wrong.extend(judge::unlike_rehearsal(case, &process)?);
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

impl Line {
    /// The head of the table.
    pub const HEAD: &str = "| example | case | commits | calls | crash runs | extra attempts | differences |\n\
                            |---|---|--:|--:|--:|--:|--:|";

    /// How often a point was reached without a crash.
    pub fn times(&self, point: Point) -> u64 {
        self.reached.get(&point).copied().unwrap_or(0)
    }

    fn note(&mut self, crashes: &[Crash], found: Vec<String>) {
        let crashes = crashes.to_vec();
        self.differences.extend(found.into_iter().map(|what| Difference { crashes: crashes.clone(), what }));
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { example, case, crash_runs, extra_attempts, differences, .. } = self;
        let (commits, calls) = (self.times(Point::AfterCommit), self.times(Point::BeforeCall));
        let differences = differences.len();
        write!(
            f,
            "| {example} | {case} | {commits} | {calls} | {crash_runs} | {extra_attempts} | {differences} |"
        )
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.crashes.as_slice() {
            [] => write!(f, "without a crash")?,
            [first, rest @ ..] => {
                write!(f, "{first}")?;
                rest.iter().try_for_each(|crash| write!(f, ", then {crash}"))?;
            }
        }
        write!(f, ": {}", self.what)
    }
}

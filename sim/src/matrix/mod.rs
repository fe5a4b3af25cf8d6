//! The crash matrix: plays every case of an example, crashes the process every time it reaches a crash point, and
//! expects the same history each time.
//!
//! A case is first played without a crash. That run records the results of every activity with their times, and how
//! often each crash point is reached. The case is then played once for each time a point was reached. It must end with
//! the same normalised history, without attempts that no crash explains, and with a store in which fsck finds nothing.

mod case_activities;
pub mod case_files;
mod case_store;
mod client;
mod client_requests;
mod crash_points;
mod effects;
mod judge;
mod normalised_history;
mod process;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use abide_runtime::fault_injection::Fault;

pub use case_files::{Case, ChildPlacement, folders, load_cases};
pub use crash_points::{MatrixCrashPoint, PlannedCrash};

use case_activities::{ReceivedAttempt, ResultScript};
use case_store::CaseStore;
use normalised_history::NormalisedHistory;
use process::CaseProcess;

/// How often the process crashes in one run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CrashesPerRun {
    One,
    /// The second crash comes soon after the restart.
    Two,
}

/// The result of one case.
#[derive(Clone, Debug)]
pub struct CaseReport {
    pub example: String,
    pub case: String,
    /// How often each crash point was reached in the run without a crash.
    pub reached: BTreeMap<MatrixCrashPoint, u64>,
    /// How many runs had a crash.
    pub crash_runs: u64,
    /// Attempts that were made only because of the crashes.
    pub extra_attempts: u64,
    /// Differences from the expected result.
    pub differences: Vec<Difference>,
}

/// A difference from the expected result.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The crashes of the run.
    pub crashes: Vec<PlannedCrash>,
    /// A description of the difference.
    pub what: String,
}

/// One run of a case.
struct CaseRun {
    story: NormalisedHistory,
    result_script: ResultScript,
    attempts: Vec<ReceivedAttempt>,
    replies: Vec<String>,
    /// How often each crash point was reached, by incarnation.
    reached: Vec<BTreeMap<MatrixCrashPoint, u64>>,
    /// The keys of the unsettled calls at each crash.
    open_calls_at_crash: Vec<BTreeSet<String>>,
    violations: Vec<String>,
}

/// In the second incarnation, a crash is tried at the first so many times that each point is reached. That covers
/// taking the shards, recovering and continuing.
const SECOND_CRASH_TIMES: u64 = 8;

/// Plays a case with every possible crash. A fault can be planted, to prove that the matrix finds it.
pub fn try_case(case: &Case, crashes: CrashesPerRun, fault: Option<Fault>) -> CaseReport {
    let mut report = CaseReport {
        example: case.example.clone(),
        case: case.name.clone(),
        reached: BTreeMap::new(),
        crash_runs: 0,
        extra_attempts: 0,
        differences: Vec::new(),
    };
    if let Err(what) = run_crashes(&mut report, case, crashes, fault) {
        report.differences.push(Difference { crashes: Vec::new(), what });
    }
    report
}

fn run_crashes(
    report: &mut CaseReport,
    case: &Case,
    crashes: CrashesPerRun,
    fault: Option<Fault>,
) -> Result<(), String> {
    let mut case_store = CaseStore::new(&case.definitions, &case.activities)?;
    let crash_free = play(case, &mut case_store, None, &[], fault)?;
    report.add_differences(&[], crash_free.violations.clone());
    if !crash_free.violations.is_empty() {
        return Ok(());
    }
    report.reached = crash_free.reached.first().cloned().unwrap_or_default();
    let script = Arc::new(crash_free.result_script.clone());
    let mut crash = |report: &mut CaseReport, crashes: &[PlannedCrash]| {
        let played = play(case, &mut case_store, Some(Arc::clone(&script)), crashes, fault)?;
        let (extra, differences) = judge::compare_with_crash_free(&crash_free, &played, crashes.len());
        report.crash_runs += 1;
        report.extra_attempts += extra;
        report.add_differences(crashes, differences);
        Ok::<_, String>(played)
    };
    for first in crashes_in(&report.reached.clone(), u64::MAX) {
        let played = crash(report, &[first])?;
        if crashes == CrashesPerRun::Two
            && let Some(reached) = played.reached.get(1)
        {
            for second in crashes_in(reached, SECOND_CRASH_TIMES) {
                crash(report, &[first, second])?;
            }
        }
    }
    Ok(())
}

/// Every possible crash in an incarnation that reaches the points so often, at most `most` of each point.
fn crashes_in(reached: &BTreeMap<MatrixCrashPoint, u64>, most: u64) -> Vec<PlannedCrash> {
    let of_point = |(point, times): (&MatrixCrashPoint, &u64)| {
        let point = *point;
        (1..=(*times).min(most)).map(move |time| PlannedCrash { point, occurrence: time })
    };
    reached.iter().flat_map(of_point).collect()
}

fn play(
    case: &Case,
    case_store: &mut CaseStore,
    script: Option<Arc<ResultScript>>,
    crashes: &[PlannedCrash],
    fault: Option<Fault>,
) -> Result<CaseRun, String> {
    case_store.clear()?;
    let mut process = CaseProcess::new(case, case_store, script, crashes, fault)?;
    process.run();
    let mut violations = std::mem::take(&mut process.violations);
    if process.client.next_request().is_some() {
        violations.push("its client never finished its requests".to_owned());
    }
    let story = process.case_store.full_history(&mut violations);
    violations.extend(process.case_store.check());
    violations.extend(judge::duplicate_attempts(&process.activities.attempts));
    if crashes.is_empty() {
        violations.extend(judge::differences_from_expected(case, &process));
        violations.extend(judge::differences_from_rehearsal(case, &process)?);
    }
    Ok(CaseRun {
        story,
        result_script: process.activities.recorded_script,
        attempts: process.activities.attempts,
        replies: process.client.replies,
        reached: process.reached,
        open_calls_at_crash: process.open_calls_at_crash,
        violations,
    })
}

impl CaseReport {
    /// The header of the table of reports.
    pub const TABLE_HEADER: &str = "| example | case | commits | calls | crash runs | extra attempts | differences |\n\
                            |---|---|--:|--:|--:|--:|--:|";

    pub fn times_reached(&self, point: MatrixCrashPoint) -> u64 {
        self.reached.get(&point).copied().unwrap_or(0)
    }

    fn add_differences(&mut self, crashes: &[PlannedCrash], differences: Vec<String>) {
        let crashes = crashes.to_vec();
        self.differences
            .extend(differences.into_iter().map(|what| Difference { crashes: crashes.clone(), what }));
    }
}

impl fmt::Display for CaseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { example, case, crash_runs, extra_attempts, differences, .. } = self;
        let commits = self.times_reached(MatrixCrashPoint::AfterCommit);
        let calls = self.times_reached(MatrixCrashPoint::BeforeCall);
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

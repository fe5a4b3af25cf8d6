//! kill -9 of the whole server at random times, during startup and at named points in its code, again and again on the
//! same data.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use abide_runtime::crash_point::CrashPoint;
use abide_store::memory::SeededRng;
use abide_testkit::process::{ProgramProcess, signal_of};
use abide_testkit::verdict::{control_verdict, print_figure};
use rustix::process::Signal;

use super::load::ServerLoad;
use super::process::ServerSetup;
use super::rig::ServerRig;
use super::undisturbed;
use super::verdict;

/// After so many kills all runs are allowed to end, and are checked.
const CHECK_EVERY: u32 = 25;
/// At most so many servers in a row die at named points. A call without an answer in five consecutive attempts is
/// dead-lettered as poison, and correctly so.
const POINTS_IN_A_ROW_MAX: u32 = 2;
/// If no server dies at any of so many named points, the server was built without them.
const POINTS_MISSED_MAX: u64 = 20;

/// How often servers ended in each way.
#[derive(Default)]
struct KillCounts {
    at_random: u64,
    while_starting: u64,
    at_points: BTreeMap<&'static str, u64>,
    points_set: u64,
    points_in_a_row: u32,
    slowest_start: Duration,
}

/// How a server is to be killed.
enum KillPlan {
    /// After so much time ready.
    AtRandom(Duration),
    /// So much time after its process was started.
    WhileStarting(Duration),
    /// At the n-th pass of a named point, or after so much time if it does not get there.
    AtPoint(CrashPoint, u64, Duration),
}

/// How many findings are printed.
const FINDINGS_MAX: usize = 100;

/// The fault that the control plants: attempts are not counted before they are made, so that a number is used twice
/// after a kill.
const CONTROL_FAULT: &str = "AttemptNotPersisted";

pub(crate) fn run(
    cycles: u32,
    folder: &Path,
    program: Option<PathBuf>,
    without_sync: bool,
    control: bool,
) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(async {
        let rig = ServerRig::new(control).await?;
        let setup = ServerSetup::new(folder, folder.join("data"), program, without_sync)?
            .with_fault(control.then_some(CONTROL_FAULT));
        let mut kills = KillCounts::default();
        let started = now();
        let outcome = kill_all(cycles, &rig, &setup, &mut kills).await;
        kills.report(started.elapsed());
        rig.report(FINDINGS_MAX);
        if control {
            return control_verdict(rig.ledger().findings.len(), "found nothing");
        }
        outcome?;
        if kills.points_set >= POINTS_MISSED_MAX && kills.at_points.is_empty() {
            return Err("the server has no named points: build it with the feature `faults`".to_owned());
        }
        rig.verdict()
    })
}

async fn kill_all(
    cycles: u32,
    rig: &ServerRig,
    setup: &ServerSetup,
    kills: &mut KillCounts,
) -> Result<(), String> {
    let mut dice = SeededRng::new(u64::from(cycles));
    let server = undisturbed::begin(rig, setup).await?;
    undisturbed::publish(rig).await?;
    undisturbed::close(rig, setup, server).await?;
    let mut cycle = 0;
    while cycle < cycles {
        let load = ServerLoad::start(rig, u64::from(cycle));
        for _ in 0..CHECK_EVERY.min(cycles - cycle) {
            cycle += 1;
            let plan = kills.next_plan(&mut dice);
            kill_one(rig, setup, &plan, kills).await.map_err(|error| format!("cycle {cycle}: {error}"))?;
        }
        let server = undisturbed::begin(rig, setup).await?;
        undisturbed::finish(rig, load).await;
        if cycle == cycles {
            verdict::settle_all(rig).await;
        }
        undisturbed::close(rig, setup, server).await?;
        println!("{cycle} cycles: {}", rig.progress());
    }
    Ok(())
}

async fn kill_one(
    rig: &ServerRig,
    setup: &ServerSetup,
    plan: &KillPlan,
    kills: &mut KillCounts,
) -> Result<(), String> {
    let crash_at = match plan {
        KillPlan::AtPoint(point, count, _) => Some(format!("{}:{count}", point.as_str())),
        _ => None,
    };
    let started = now();
    let mut server = setup.start(crash_at.as_deref())?;
    match plan {
        KillPlan::WhileStarting(time) => tokio::time::sleep(*time).await,
        KillPlan::AtRandom(time) | KillPlan::AtPoint(_, _, time) => {
            if let Some(address) = server.ready().await? {
                kills.slowest_start = kills.slowest_start.max(started.elapsed());
                rig.set_up(Some(address));
                tokio::select! {
                    _ended = server.wait() => {}
                    () = tokio::time::sleep(*time) => {}
                }
            }
        }
    }
    let status = end(rig, server).await?;
    if !kills.record(plan, status) {
        return Err(format!("the server ended by itself: {status}: {}", setup.log_tail()));
    }
    Ok(())
}

/// Kills a server and takes its address away from the clients.
async fn end(rig: &ServerRig, server: ProgramProcess) -> Result<ExitStatus, String> {
    let ended = server.kill().await;
    rig.set_up(None);
    ended
}

impl KillCounts {
    /// Up to a third of the kills are at named points, a twelfth during startup, the others at random times.
    fn next_plan(&mut self, dice: &mut SeededRng) -> KillPlan {
        let time = Duration::from_millis(300 + dice.below(1_200));
        match dice.below(12) {
            0..4 if self.points_in_a_row < POINTS_IN_A_ROW_MAX => {
                self.points_in_a_row += 1;
                self.points_set += 1;
                let which = usize::try_from(dice.below(CrashPoint::ALL.len() as u64)).unwrap_or_default();
                let point = CrashPoint::ALL.get(which).copied().unwrap_or(CrashPoint::BeforeCommit);
                // Early passes are as likely as late ones: small numbers matter as much as large ones.
                let magnitude = dice.below(10);
                KillPlan::AtPoint(point, 1 + dice.below(1 << magnitude), time)
            }
            4 => KillPlan::WhileStarting(Duration::from_millis(dice.below(250))),
            _ => {
                self.points_in_a_row = 0;
                KillPlan::AtRandom(time)
            }
        }
    }

    /// Counts how a server ended. False if it was not killed and did not reach its point.
    fn record(&mut self, plan: &KillPlan, status: ExitStatus) -> bool {
        match (plan, signal_of(status)) {
            (KillPlan::AtPoint(point, ..), Some(Signal::ABORT)) => {
                *self.at_points.entry(point.as_str()).or_default() += 1
            }
            (KillPlan::WhileStarting(_), Some(Signal::KILL)) => self.while_starting += 1,
            (_, Some(Signal::KILL)) => self.at_random += 1,
            _ => return false,
        }
        true
    }

    fn report(&self, time: Duration) {
        let at_points: u64 = self.at_points.values().sum();
        let all = self.at_random + self.while_starting + at_points;
        println!(
            "{all} kills in {:.0} s: {} at random times, {} during startup, {at_points} at named points",
            time.as_secs_f64(),
            self.at_random,
            self.while_starting
        );
        for (point, count) in &self.at_points {
            print_figure(point, count);
        }
        print_figure("slowest start", format_args!("{:.3} s", self.slowest_start.as_secs_f64()));
    }
}

#[expect(clippy::disallowed_methods, reason = "a rig measures real time")]
fn now() -> Instant {
    Instant::now()
}

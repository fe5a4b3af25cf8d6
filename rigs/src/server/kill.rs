//! kill -9 of the whole server: at random moments, while it starts, and at named points of its work, on the same data again and again.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use abide_runtime::crash::POINTS;
use abide_store::memory::Dice;

use super::load::Load;
use super::process::{Server, Setup};
use super::undisturbed;
use super::verdict;
use super::world::World;

/// After so many kills everything is let come to its end and checked.
const CHECK_EVERY: u32 = 25;
/// Named points in a row: a call that was never answered five times in a row is given up as poison, and that would be right.
const POINTS_IN_A_ROW_MAX: u32 = 2;
/// So many named points that nobody died at mean that the server has none.
const POINTS_UNMET_MAX: u64 = 20;
const SIGABRT: i32 = 6;
const SIGKILL: i32 = 9;

/// How servers ended.
#[derive(Default)]
struct Kills {
    at_random: u64,
    while_starting: u64,
    at_points: BTreeMap<&'static str, u64>,
    points_set: u64,
    points_in_a_row: u32,
    slowest_start: Duration,
}

/// What a server is to die of.
enum Fate {
    /// After so long a time at work.
    AtRandom(Duration),
    /// So long after its process was started.
    WhileStarting(Duration),
    /// At a named point, or after so long a time if it does not come to it so often.
    AtPoint(&'static str, u64, Duration),
}

/// Findings that are told in full.
const FINDINGS_MAX: usize = 100;

pub(crate) fn run(
    cycles: u32,
    folder: &Path,
    program: Option<PathBuf>,
    without_sync: bool,
) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(async {
        let world = World::new().await?;
        let setup = Setup::new(folder, folder.join("data"), program, without_sync)?;
        let mut kills = Kills::default();
        let started = now();
        let outcome = kill_all(cycles, &world, &setup, &mut kills).await;
        kills.report(started.elapsed());
        world.report(FINDINGS_MAX);
        outcome?;
        if kills.points_set >= POINTS_UNMET_MAX && kills.at_points.is_empty() {
            return Err("the server has no named points: it was built without the feature faults".to_owned());
        }
        world.verdict()
    })
}

async fn kill_all(cycles: u32, world: &World, setup: &Setup, kills: &mut Kills) -> Result<(), String> {
    let mut dice = Dice::new(u64::from(cycles));
    let server = undisturbed::begin(world, setup).await?;
    undisturbed::publish(world).await?;
    undisturbed::close(world, setup, server).await?;
    let mut cycle = 0;
    while cycle < cycles {
        let load = Load::begin(world, u64::from(cycle));
        for _ in 0..CHECK_EVERY.min(cycles - cycle) {
            cycle += 1;
            let fate = kills.next_fate(&mut dice);
            kill_one(world, setup, &fate, kills).await.map_err(|error| format!("cycle {cycle}: {error}"))?;
        }
        let server = undisturbed::begin(world, setup).await?;
        undisturbed::finish(world, load).await;
        if cycle == cycles {
            verdict::settle_all(world).await;
        }
        undisturbed::close(world, setup, server).await?;
        println!("{cycle} cycles: {}", world.progress());
    }
    Ok(())
}

async fn kill_one(world: &World, setup: &Setup, fate: &Fate, kills: &mut Kills) -> Result<(), String> {
    let crash_at = match fate {
        Fate::AtPoint(point, count, _) => Some(format!("{point}:{count}")),
        _ => None,
    };
    let started = now();
    let mut server = setup.start(crash_at.as_deref())?;
    match fate {
        Fate::WhileStarting(time) => tokio::time::sleep(*time).await,
        Fate::AtRandom(time) | Fate::AtPoint(_, _, time) => {
            if let Some(address) = server.ready().await? {
                kills.slowest_start = kills.slowest_start.max(started.elapsed());
                world.set_up(Some(address));
                tokio::select! {
                    _ended = server.ended() => {}
                    () = tokio::time::sleep(*time) => {}
                }
            }
        }
    }
    let status = end(world, server).await?;
    if !kills.note(fate, status) {
        return Err(format!("the server ended by itself: {status}: {}", setup.last_words()));
    }
    Ok(())
}

/// Kills a server and tells the clients.
async fn end(world: &World, server: Server) -> Result<ExitStatus, String> {
    let ended = server.kill().await;
    world.set_up(None);
    ended
}

impl Kills {
    /// One third at named points, a twelfth while the server starts, the others at random moments.
    fn next_fate(&mut self, dice: &mut Dice) -> Fate {
        let time = Duration::from_millis(300 + dice.below(1_200));
        match dice.below(12) {
            0..4 if self.points_in_a_row < POINTS_IN_A_ROW_MAX => {
                self.points_in_a_row += 1;
                self.points_set += 1;
                let which = usize::try_from(dice.below(POINTS.len() as u64)).unwrap_or_default();
                let point = POINTS.get(which).copied().unwrap_or_default();
                // As often early as late: small numbers matter as much as large ones.
                let magnitude = dice.below(10);
                Fate::AtPoint(point, 1 + dice.below(1 << magnitude), time)
            }
            4 => Fate::WhileStarting(Duration::from_millis(dice.below(250))),
            _ => {
                self.points_in_a_row = 0;
                Fate::AtRandom(time)
            }
        }
    }

    /// Notes how a server ended. False if it was for no reason.
    fn note(&mut self, fate: &Fate, status: ExitStatus) -> bool {
        match (fate, status.signal()) {
            (Fate::AtPoint(point, ..), Some(SIGABRT)) => *self.at_points.entry(point).or_default() += 1,
            (Fate::WhileStarting(_), Some(SIGKILL)) => self.while_starting += 1,
            (_, Some(SIGKILL)) => self.at_random += 1,
            _ => return false,
        }
        true
    }

    fn report(&self, time: Duration) {
        let at_points: u64 = self.at_points.values().sum();
        let all = self.at_random + self.while_starting + at_points;
        println!(
            "{all} kills in {:.0} s: {} at random moments, {} while starting, {at_points} at named points",
            time.as_secs_f64(),
            self.at_random,
            self.while_starting
        );
        for (point, count) in &self.at_points {
            println!("  {point:<26}  {count}");
        }
        println!("  slowest start               {:.3} s", self.slowest_start.as_secs_f64());
    }
}

#[expect(clippy::disallowed_methods, reason = "a rig measures real time")]
fn now() -> Instant {
    Instant::now()
}

//! The kill cycles: each kills one to four of the four processes at a random time and restarts them after a random
//! pause. Sometimes they are killed again during startup. Up to a third of the servers die at a named point in their
//! code instead, if they reach it.

use std::time::Duration;

use abide_runtime::crash_point::CrashPoint;
use abide_store::memory::SeededRng;

use super::fleet::ProcessFleet;
use super::ledger::DispatchRig;
use super::receiver_wires::RigProcess;
use super::snapshots::Snapshots;

/// The shortest life of a server, unless it dies at its point or during startup.
const LIFE_MIN: Duration = Duration::from_millis(800);
/// A life that is long enough for every attempt to end or time out.
const LONG_LIFE: Duration = Duration::from_secs(3);
/// At most so many shorter lives in a row. A call in flight at five consecutive server deaths is dead-lettered as
/// poison, and correctly so.
const SHORT_LIVES_MAX: u32 = 3;
/// In one cycle of so many, processes are killed again during startup.
const KILL_AGAIN_ONE_IN: u64 = 10;
/// A line is printed after so many cycles.
const REPORT_EVERY: u32 = 25;

struct Killer<'r> {
    dice: SeededRng,
    fleet: &'r mut ProcessFleet,
    world: &'r DispatchRig,
    snapshots: &'r mut Snapshots,
    /// The number of consecutive short lives of servers.
    short_lives: u32,
}

/// Kills and restarts processes for so many cycles. At the end all processes are up, and none has a crash point.
pub(crate) async fn run(
    cycles: u32,
    fleet: &mut ProcessFleet,
    rig: &DispatchRig,
    snapshots: &mut Snapshots,
) -> Result<(), String> {
    let dice = SeededRng::new(u64::from(cycles));
    let mut killer = Killer { dice, fleet, world: rig, snapshots, short_lives: 0 };
    for cycle in 1..=cycles {
        killer.cycle().await.map_err(|problem| format!("cycle {cycle}: {problem}"))?;
        if cycle % REPORT_EVERY == 0 {
            let ledger = rig.ledger();
            println!(
                "{cycle} cycles: {} flows acknowledged, {} ended; {} findings",
                ledger.acknowledged().count(),
                ledger.flows.values().filter(|flow| flow.ended).count(),
                ledger.findings.len()
            );
        }
    }
    if killer.fleet.has_crash_point() {
        killer.fleet.kill(RigProcess::Server, rig).await?;
        killer.fleet.start(&[RigProcess::Server], None, rig).await?;
    }
    Ok(())
}

impl Killer<'_> {
    async fn cycle(&mut self) -> Result<(), String> {
        self.pause(200, 1_500).await;
        // One of the fifteen non-empty subsets of four. A server with a crash point is always included: it may be dead.
        let chosen = 1 + self.dice.below(15);
        let is_chosen = |n: usize, who: RigProcess| {
            chosen >> n & 1 == 1 || who == RigProcess::Server && self.fleet.has_crash_point()
        };
        let victims: Vec<RigProcess> = RigProcess::ALL
            .into_iter()
            .enumerate()
            .filter(|(n, who)| is_chosen(*n, *who))
            .map(|(_, who)| who)
            .collect();
        let server_too = victims.contains(&RigProcess::Server);
        if server_too {
            self.wait_until_killable().await;
        }
        for who in &victims {
            self.fleet.kill(*who, self.world).await?;
            if *who != RigProcess::Server {
                self.snapshots.take(*who, &self.fleet.store(*who))?;
            }
            self.pause(0, 40).await;
        }
        if self.dice.below(KILL_AGAIN_ONE_IN) == 0 && self.short_lives < SHORT_LIVES_MAX {
            self.short_lives += u32::from(server_too);
            let after = Duration::from_millis(self.dice.below(300));
            self.fleet.start_and_kill(&victims, after).await?;
        }
        self.pause(0, 400).await;
        let point = if server_too { self.point() } else { None };
        self.fleet.start(&victims, point, self.world).await
    }

    /// Waits until the server has lived long enough to be killed.
    async fn wait_until_killable(&mut self) {
        if !self.fleet.has_crash_point() {
            let at_least = if self.short_lives < SHORT_LIVES_MAX { LIFE_MIN } else { LONG_LIFE };
            tokio::time::sleep(at_least.saturating_sub(self.fleet.age(RigProcess::Server))).await;
            if self.fleet.age(RigProcess::Server) >= LONG_LIFE {
                self.short_lives = 0;
                return;
            }
        }
        self.short_lives += 1;
    }

    /// The named point and pass at which the next server dies, if any; early passes are as likely as late ones.
    fn point(&mut self) -> Option<String> {
        if self.dice.below(3) > 0 || self.short_lives >= SHORT_LIVES_MAX {
            return None;
        }
        let which = usize::try_from(self.dice.below(CrashPoint::ALL.len() as u64)).unwrap_or_default();
        let magnitude = self.dice.below(8);
        Some(format!("{}:{}", CrashPoint::ALL.get(which)?.as_str(), 1 + self.dice.below(1 << magnitude)))
    }

    async fn pause(&mut self, from_ms: u64, to_ms: u64) {
        tokio::time::sleep(Duration::from_millis(from_ms + self.dice.below(to_ms - from_ms))).await;
    }
}

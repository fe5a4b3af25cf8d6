//! The kills: some of the four processes at a time, at random moments, down for a random while, sometimes killed again while they start. A
//! third of the servers die at a named point of their work instead, if they come to it.

use std::time::Duration;

use abide_runtime::crash::POINTS;
use abide_store::memory::Dice;

use super::fleet::Fleet;
use super::ledger::World;
use super::lines::Who;
use super::snapshots::Snapshots;

/// How long a server lives at least, unless it dies at its point or while it starts.
const LIFE_MIN: Duration = Duration::from_millis(800);
/// A life in which every delivery is answered or given up.
const LONG_LIFE: Duration = Duration::from_secs(3);
/// Shorter lives in a row. A call that is under way at five deaths in a row is given up as poison, which would be right.
const SHORT_LIVES_MAX: u32 = 3;
/// How often processes are killed again while they start: one cycle of so many.
const IN_VAIN: u64 = 10;
/// A line is told after so many cycles.
const TELL_EVERY: u32 = 25;

struct Killer<'r> {
    dice: Dice,
    fleet: &'r mut Fleet,
    world: &'r World,
    snapshots: &'r mut Snapshots,
    /// Lives of servers in a row that were short.
    short_lives: u32,
}

/// Kills and starts until the cycles are over; everybody is up then, and stays so.
pub(crate) async fn run(
    cycles: u32,
    fleet: &mut Fleet,
    world: &World,
    snapshots: &mut Snapshots,
) -> Result<(), String> {
    let dice = Dice::new(u64::from(cycles));
    let mut killer = Killer { dice, fleet, world, snapshots, short_lives: 0 };
    for cycle in 1..=cycles {
        killer.cycle().await.map_err(|problem| format!("cycle {cycle}: {problem}"))?;
        if cycle % TELL_EVERY == 0 {
            let ledger = world.ledger();
            println!(
                "{cycle} cycles: {} flows acknowledged, {} seen through; {} findings",
                ledger.acknowledged().count(),
                ledger.flows.values().filter(|flow| flow.ended).count(),
                ledger.findings.len()
            );
        }
    }
    if killer.fleet.is_doomed() {
        killer.fleet.kill(Who::Server, world).await?;
        killer.fleet.start(&[Who::Server], None, world).await?;
    }
    Ok(())
}

impl Killer<'_> {
    async fn cycle(&mut self) -> Result<(), String> {
        self.pause(200, 1_500).await;
        // One of the fifteen ways to choose some of four; a server that may have died at its point must be seen to.
        let chosen = 1 + self.dice.below(15);
        let is_chosen =
            |n: usize, who: Who| chosen >> n & 1 == 1 || who == Who::Server && self.fleet.is_doomed();
        let victims: Vec<Who> = Who::ALL
            .into_iter()
            .enumerate()
            .filter(|(n, who)| is_chosen(*n, *who))
            .map(|(_, who)| who)
            .collect();
        let server_too = victims.contains(&Who::Server);
        if server_too {
            self.let_live().await;
        }
        for who in &victims {
            self.fleet.kill(*who, self.world).await?;
            if *who != Who::Server {
                self.snapshots.take(*who, &self.fleet.store(*who))?;
            }
            self.pause(0, 40).await;
        }
        if self.dice.below(IN_VAIN) == 0 && self.short_lives < SHORT_LIVES_MAX {
            self.short_lives += u32::from(server_too);
            let after = Duration::from_millis(self.dice.below(300));
            self.fleet.start_in_vain(&victims, after).await?;
        }
        self.pause(0, 400).await;
        let point = if server_too { self.point() } else { None };
        self.fleet.start(&victims, point, self.world).await
    }

    /// Waits until the server may be killed.
    async fn let_live(&mut self) {
        if !self.fleet.is_doomed() {
            let at_least = if self.short_lives < SHORT_LIVES_MAX { LIFE_MIN } else { LONG_LIFE };
            tokio::time::sleep(at_least.saturating_sub(self.fleet.age(Who::Server))).await;
            if self.fleet.age(Who::Server) >= LONG_LIFE {
                self.short_lives = 0;
                return;
            }
        }
        self.short_lives += 1;
    }

    /// Where the next server is to die, after how many times; early as often as late.
    fn point(&mut self) -> Option<String> {
        if self.dice.below(3) > 0 || self.short_lives >= SHORT_LIVES_MAX {
            return None;
        }
        let which = usize::try_from(self.dice.below(POINTS.len() as u64)).unwrap_or_default();
        let magnitude = self.dice.below(8);
        Some(format!("{}:{}", POINTS.get(which)?, 1 + self.dice.below(1 << magnitude)))
    }

    async fn pause(&mut self, from_ms: u64, to_ms: u64) {
        tokio::time::sleep(Duration::from_millis(from_ms + self.dice.below(to_ms - from_ms))).await;
    }
}

//! The kills: some of the four processes at a time, at random moments, down for a random while, sometimes killed again while they start.

use std::time::Duration;

use abide_store::memory::Dice;

use super::fleet::Fleet;
use super::ledger::World;
use super::lines::Who;
use super::snapshots::Snapshots;

/// How long a server lives at least. A call that is under way at five kills in a row is given up as poison, which would be right.
const SERVER_LIFE_MIN: Duration = Duration::from_millis(800);
/// How often processes are killed again while they start: one cycle of so many.
const IN_VAIN: u64 = 10;
/// A line is told after so many cycles.
const TELL_EVERY: u32 = 25;

/// Kills and starts until the cycles are over; everybody is up then.
pub(crate) async fn run(
    cycles: u32,
    fleet: &mut Fleet,
    world: &World,
    snapshots: &mut Snapshots,
) -> Result<(), String> {
    let mut dice = Dice::new(u64::from(cycles));
    for cycle in 1..=cycles {
        let outcome = one(&mut dice, fleet, world, snapshots).await;
        outcome.map_err(|problem| format!("cycle {cycle}: {problem}"))?;
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
    Ok(())
}

async fn one(
    dice: &mut Dice,
    fleet: &mut Fleet,
    world: &World,
    snapshots: &mut Snapshots,
) -> Result<(), String> {
    pause(dice, 200, 1_500).await;
    // One of the fifteen ways to choose some of four.
    let chosen = 1 + dice.below(15);
    let victims: Vec<Who> =
        Who::ALL.into_iter().enumerate().filter(|(n, _)| chosen >> n & 1 == 1).map(|(_, who)| who).collect();
    if victims.contains(&Who::Server) {
        tokio::time::sleep(SERVER_LIFE_MIN.saturating_sub(fleet.age(Who::Server))).await;
    }
    for who in &victims {
        fleet.kill(*who, world).await?;
        if *who != Who::Server {
            snapshots.take(*who, &fleet.store(*who))?;
        }
        pause(dice, 0, 40).await;
    }
    if dice.below(IN_VAIN) == 0 {
        fleet.start_in_vain(&victims, Duration::from_millis(dice.below(300))).await?;
    }
    pause(dice, 0, 400).await;
    fleet.start(&victims, world).await
}

async fn pause(dice: &mut Dice, from_ms: u64, to_ms: u64) {
    tokio::time::sleep(Duration::from_millis(from_ms + dice.below(to_ms - from_ms))).await;
}

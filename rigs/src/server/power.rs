//! Power cuts under the whole server: everything its file system had not yet given to its disk is gone.
//!
//! The server is stopped, the image of its file system is copied as its disk is at that moment, and the server is killed. The next one
//! works on the copy, so there is one line of history: what was acknowledged or delivered before the cut was so for it, too.

use std::path::{Path, PathBuf};
use std::time::Duration;

use abide_store::memory::Dice;

use super::ledger::Broken;
use super::load::Load;
use super::process::Setup;
use super::undisturbed;
use super::verdict;
use super::world::World;
use crate::power::{self, Disk};

const IMAGE_MIB: u64 = 768;
/// Findings that are told in full.
const FINDINGS_MAX: usize = 100;

pub(crate) fn run(
    cycles: u32,
    folder: &Path,
    program: Option<PathBuf>,
    without_sync: bool,
) -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("POWER CUTS WERE NOT TRIED: mounting an image needs root".to_owned());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(async {
        let world = World::new().await?;
        let disk = Disk::make(folder, IMAGE_MIB)?;
        let setup = Setup::new(folder, disk.store(), program, without_sync)?;
        let outcome = cut_all(cycles, &world, &setup, &disk).await;
        let unmounted = disk.unmount();
        println!("{cycles} power cuts{}", if without_sync { " without sync (the control)" } else { "" });
        world.report(if without_sync { 5 } else { FINDINGS_MAX });
        if without_sync {
            let lost = world.ledger().lost();
            return match lost {
                0 => Err("the control lost nothing, so the rig proves nothing".to_owned()),
                _ => unmounted,
            };
        }
        outcome.and(unmounted)?;
        world.verdict()
    })
}

async fn cut_all(cycles: u32, world: &World, setup: &Setup, disk: &Disk) -> Result<(), String> {
    let mut dice = Dice::new(u64::from(cycles) + 1);
    disk.mount()?;
    for cycle in 1..=cycles {
        let time = Duration::from_millis(300 + dice.below(1_200));
        let outcome = cut(world, setup, disk, u64::from(cycle), time).await;
        outcome.map_err(|error| format!("cycle {cycle}: {error}"))?;
        println!("{cycle} cuts: {}", world.progress());
    }
    Ok(())
}

async fn cut(world: &World, setup: &Setup, disk: &Disk, number: u64, time: Duration) -> Result<(), String> {
    let server = undisturbed::begin(world, setup).await?;
    undisturbed::publish(world).await?;
    let load = Load::begin(world, number);
    tokio::time::sleep(time).await;
    let process = server.process().ok_or("the server ended by itself")?;
    power::stop(process)?;
    world.set_up(None);
    disk.copy()?;
    server.kill().await?;
    disk.unmount()?;
    disk.take_copy()?;
    disk.mount()?;

    let server = undisturbed::begin(world, setup).await.inspect_err(|problem| {
        world.ledger().find(Broken::Wrong, format!("after a power cut: {problem}"));
    })?;
    // They were acknowledged, too.
    undisturbed::publish(world).await?;
    undisturbed::finish(world, load).await;
    verdict::settle_all(world).await;
    undisturbed::close(world, setup, server).await
}

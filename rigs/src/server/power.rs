//! Power cuts under the whole server: everything that its file system had not yet written to disk is lost.
//!
//! The server is frozen, the image of its file system is copied, and the server is killed. The next server works on the
//! copy. So there is a single timeline: everything that was acknowledged or sent to the receiver happened before the
//! cut.

use std::path::{Path, PathBuf};
use std::time::Duration;

use abide_store::memory::SeededRng;
use abide_testkit::verdict::control_verdict;

use super::ledger::BrokenPromise;
use super::load::ServerLoad;
use super::process::ServerSetup;
use super::rig::ServerRig;
use super::undisturbed;
use super::verdict;
use crate::power::{self, Disk};

const IMAGE_MIB: u64 = 768;
/// How many findings are printed.
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
        let rig = ServerRig::new(without_sync).await?;
        let disk = Disk::make(folder, IMAGE_MIB)?;
        let setup = ServerSetup::new(folder, disk.store(), program, without_sync)?;
        let outcome = cut_all(cycles, &rig, &setup, &disk).await;
        let unmounted = disk.unmount();
        println!("{cycles} power cuts{}", if without_sync { " without sync (the control)" } else { "" });
        rig.report(if without_sync { 5 } else { FINDINGS_MAX });
        if without_sync {
            control_verdict(rig.ledger().findings.count(&BrokenPromise::Lost), "lost nothing")?;
            return unmounted;
        }
        outcome.and(unmounted)?;
        rig.verdict()
    })
}

async fn cut_all(cycles: u32, rig: &ServerRig, setup: &ServerSetup, disk: &Disk) -> Result<(), String> {
    let mut dice = SeededRng::new(u64::from(cycles) + 1);
    disk.mount()?;
    for cycle in 1..=cycles {
        let time = Duration::from_millis(300 + dice.below(1_200));
        let outcome = cut(rig, setup, disk, u64::from(cycle), time).await;
        outcome.map_err(|error| format!("cycle {cycle}: {error}"))?;
        println!("{cycle} cuts: {}", rig.progress());
    }
    Ok(())
}

async fn cut(
    rig: &ServerRig,
    setup: &ServerSetup,
    disk: &Disk,
    number: u64,
    time: Duration,
) -> Result<(), String> {
    let mut server = undisturbed::begin(rig, setup).await?;
    undisturbed::publish(rig).await?;
    let load = ServerLoad::start(rig, number);
    tokio::time::sleep(time).await;
    let process = server.pid().ok_or("the server ended by itself")?;
    power::freeze(process)?;
    rig.set_up(None);
    disk.copy()?;
    server.kill().await?;
    disk.unmount()?;
    disk.adopt_copy()?;
    disk.mount()?;

    let server = undisturbed::begin(rig, setup).await.inspect_err(|problem| {
        rig.ledger().findings.add(BrokenPromise::Wrong, format!("after a power cut: {problem}"));
    })?;
    // Definitions were acknowledged before the cut: publishing them again must change nothing.
    undisturbed::publish(rig).await?;
    undisturbed::finish(rig, load).await;
    verdict::settle_all(rig).await;
    undisturbed::close(rig, setup, server).await
}

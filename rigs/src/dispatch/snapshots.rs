//! Snapshots of the stores of killed receivers: copied before the next start and read in the background.

use std::fs;
use std::path::{Path, PathBuf};

use tokio::task::JoinSet;

use super::ledger::{DispatchRig, DispatchViolation};
use super::receiver_stores;
use super::receiver_wires::RigProcess;
use crate::folders::copy_folder;

/// How many snapshots are read at the same time; during that, no others are taken.
const READING_MAX: usize = 1;

pub(crate) struct Snapshots {
    folder: PathBuf,
    world: DispatchRig,
    taken: u64,
    reading: JoinSet<()>,
}

impl Snapshots {
    pub(crate) fn new(folder: &Path, rig: &DispatchRig) -> Self {
        let folder = folder.join("snapshots");
        Self { folder, world: rig.clone(), taken: 0, reading: JoinSet::new() }
    }

    /// Takes a snapshot of a receiver that has just been killed, unless one is being read.
    pub(crate) fn take(&mut self, who: RigProcess, store: &Path) -> Result<(), String> {
        while self.reading.try_join_next().is_some() {}
        if self.reading.len() >= READING_MAX {
            return Ok(());
        }
        self.taken += 1;
        let copy = self.folder.join(format!("{}-{}", who.name(), self.taken));
        copy_folder(store, &copy).map_err(|error| format!("{}: {error}", copy.display()))?;
        let rig = self.world.clone();
        self.reading.spawn(async move {
            match receiver_stores::read(who, &copy).await {
                Ok(state) => {
                    let mut ledger = rig.ledger();
                    ledger.snapshots += 1;
                    for half_written in state.half_written {
                        ledger.findings.add(
                            DispatchViolation::Wrong,
                            format!("{} after a kill: {half_written}", who.name()),
                        );
                    }
                }
                Err(problem) => {
                    let what = format!("{} after a kill: its store cannot be read: {problem}", who.name());
                    rig.ledger().findings.add(DispatchViolation::Wrong, what);
                }
            }
            // A copy that cannot be removed is deleted with the rig's folder.
            drop(fs::remove_dir_all(&copy));
        });
        Ok(())
    }

    /// Waits until all snapshots are read.
    pub(crate) async fn finish(&mut self) {
        while self.reading.join_next().await.is_some() {}
    }
}

//! The stores of killed receivers as the kill left them: copied before the next start, and read beside the rig.

use std::fs;
use std::path::{Path, PathBuf};

use tokio::task::JoinSet;

use super::ledger::{Broken, World};
use super::lines::Who;
use super::stores;
use crate::folders::copy_folder;

/// How many are read at the same time; more kills are not looked at.
const READING_MAX: usize = 1;

pub(crate) struct Snapshots {
    folder: PathBuf,
    world: World,
    taken: u64,
    reading: JoinSet<()>,
}

impl Snapshots {
    pub(crate) fn new(folder: &Path, world: &World) -> Self {
        let folder = folder.join("snapshots");
        Self { folder, world: world.clone(), taken: 0, reading: JoinSet::new() }
    }

    /// Takes one of a receiver that has just been killed, if there is time for it.
    pub(crate) fn take(&mut self, who: Who, store: &Path) -> Result<(), String> {
        while self.reading.try_join_next().is_some() {}
        if self.reading.len() >= READING_MAX {
            return Ok(());
        }
        self.taken += 1;
        let copy = self.folder.join(format!("{}-{}", who.name(), self.taken));
        copy_folder(store, &copy).map_err(|error| format!("{}: {error}", copy.display()))?;
        let world = self.world.clone();
        self.reading.spawn(async move {
            match stores::read(who, &copy).await {
                Ok(done) => {
                    let mut ledger = world.ledger();
                    ledger.snapshots += 1;
                    for torn in done.torn {
                        ledger.find(Broken::Wrong, format!("{}, killed: {torn}", who.name()));
                    }
                }
                Err(problem) => {
                    let what = format!("{}, killed: its store cannot be read: {problem}", who.name());
                    world.ledger().find(Broken::Wrong, what);
                }
            }
            // What is not removed goes with the rig's folder.
            drop(fs::remove_dir_all(&copy));
        });
        Ok(())
    }

    /// Waits for what is being read.
    pub(crate) async fn finish(&mut self) {
        while self.reading.join_next().await.is_some() {}
    }
}

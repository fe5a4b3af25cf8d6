//! What the fleet was told, and what the activities did: one line each, in files beside the store, so that a restart can compare and go on.
//!
//! The ledger is the devices' memory, not the server's: it knows only acknowledgements and effects.

use std::collections::{BTreeMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The ledger.
#[derive(Debug)]
pub(super) struct Ledger {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    acknowledged: File,
    effects: File,
    /// Events that were acknowledged, by device.
    by_device: BTreeMap<String, u64>,
    done: HashSet<String>,
    repeated: u64,
}

/// Sums for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Sums {
    pub(super) devices: u64,
    pub(super) acknowledged: u64,
    pub(super) effects: u64,
    /// Deliveries of work that had been done already, and was not done again.
    pub(super) repeated: u64,
}

impl Ledger {
    /// The ledger in a folder; what an earlier life wrote is read.
    pub(super) fn open(folder: &Path) -> std::io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let file =
            |name: &str| OpenOptions::new().create(true).append(true).read(true).open(folder.join(name));
        let (acknowledged, effects) = (file("acknowledged.log")?, file("effects.log")?);
        let mut by_device = BTreeMap::new();
        for line in BufReader::new(&acknowledged).lines() {
            // A line that the kill cut off was not acknowledged yet: the device sends again.
            if let Some(device) = line?.strip_suffix(" ok") {
                *by_device.entry(device.to_owned()).or_insert(0) += 1;
            }
        }
        let mut done = HashSet::new();
        for line in BufReader::new(&effects).lines() {
            if let Some(key) = line?.strip_suffix(" ok") {
                done.insert(key.to_owned());
            }
        }
        let inner = Inner { acknowledged, effects, by_device, done, repeated: 0 };
        Ok(Self { inner: Mutex::new(inner) })
    }

    /// The server has said that it has the device's event.
    pub(super) fn acknowledged(&self, device: &str) {
        let mut inner = self.lock();
        // The file is for comparing after a kill; if it cannot be written the comparison is worth less, the demo is not.
        drop(writeln!(inner.acknowledged, "{device} ok"));
        *inner.by_device.entry(device.to_owned()).or_insert(0) += 1;
    }

    /// Does a piece of work unless it was done before: true if it was done now.
    pub(super) fn effect(&self, idempotency_key: &str) -> bool {
        let mut inner = self.lock();
        if !inner.done.insert(idempotency_key.to_owned()) {
            inner.repeated += 1;
            return false;
        }
        drop(writeln!(inner.effects, "{idempotency_key} ok"));
        true
    }

    /// How many events of each device were acknowledged.
    pub(super) fn by_device(&self) -> BTreeMap<String, u64> {
        self.lock().by_device.clone()
    }

    /// How many events of a device were acknowledged.
    pub(super) fn told(&self, device: &str) -> u64 {
        self.lock().by_device.get(device).copied().unwrap_or(0)
    }

    pub(super) fn sums(&self) -> Sums {
        let inner = self.lock();
        Sums {
            devices: inner.by_device.len() as u64,
            acknowledged: inner.by_device.values().sum(),
            effects: inner.done.len() as u64,
            repeated: inner.repeated,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_remembers_what_was_whole_and_forgets_a_line_that_was_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(folder.path()).unwrap();
        ledger.acknowledged("dev-1");
        ledger.acknowledged("dev-1");
        assert!(ledger.effect("key-1") && !ledger.effect("key-1"));
        drop(ledger);
        let mut file = OpenOptions::new().append(true).open(folder.path().join("acknowledged.log")).unwrap();
        write!(file, "dev-1 o").unwrap();
        let ledger = Ledger::open(folder.path()).unwrap();
        assert_eq!(ledger.by_device(), BTreeMap::from([("dev-1".to_owned(), 2)]));
        assert!(!ledger.effect("key-1"));
        assert_eq!(ledger.sums(), Sums { devices: 1, acknowledged: 2, effects: 1, repeated: 1 });
    }
}

//! What the fleet was told, and what the activities did: one line each, in files beside the store, so that a restart can compare and go on.
//!
//! The ledger is the devices' memory, not the server's: it knows only acknowledgements and effects. A line is written at once, and one that a
//! kill has cut off all the same is ended when the file is opened: nothing is ever appended to it.

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
    doubled: u64,
    repeated: u64,
}

/// Sums for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Sums {
    pub(super) devices: u64,
    pub(super) acknowledged: u64,
    pub(super) effects: u64,
    /// Effects that were noted again, though they had been noted before.
    pub(super) doubled: u64,
    /// Deliveries of work that had been done already, and was not done again.
    pub(super) repeated: u64,
}

impl Ledger {
    /// The ledger in a folder; what an earlier life wrote is read.
    pub(super) fn open(folder: &Path) -> std::io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let file =
            |name: &str| OpenOptions::new().create(true).append(true).read(true).open(folder.join(name));
        let (mut acknowledged, mut effects) = (file("acknowledged.log")?, file("effects.log")?);
        let mut by_device = BTreeMap::new();
        read(&mut acknowledged, |device| *by_device.entry(device.to_owned()).or_insert(0) += 1)?;
        let (mut done, mut doubled) = (HashSet::new(), 0);
        read(&mut effects, |key| doubled += u64::from(!done.insert(key.to_owned())))?;
        let inner = Inner { acknowledged, effects, by_device, done, doubled, repeated: 0 };
        Ok(Self { inner: Mutex::new(inner) })
    }

    /// The server has said that it has the device's event.
    pub(super) fn acknowledged(&self, device: &str) {
        let mut inner = self.lock();
        // The file is for comparing after a kill; if it cannot be written the comparison is worth less, the demo is not.
        drop(note(&mut inner.acknowledged, device));
        *inner.by_device.entry(device.to_owned()).or_insert(0) += 1;
    }

    /// Does a piece of work unless it was done before: true if it was done now.
    pub(super) fn effect(&self, idempotency_key: &str) -> bool {
        let mut inner = self.lock();
        if !inner.done.insert(idempotency_key.to_owned()) {
            inner.repeated += 1;
            return false;
        }
        drop(note(&mut inner.effects, idempotency_key));
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
            doubled: inner.doubled,
            repeated: inner.repeated,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a line ends that is whole.
const WHOLE: &str = " ok";

/// Notes something in a line of its own, with one write: a kill does not come between its parts.
fn note(file: &mut impl Write, what: &str) -> std::io::Result<()> {
    file.write_all(format!("{what}{WHOLE}\n").as_bytes())
}

/// Tells what a file notes, and ends its last line if that was cut off.
fn read(file: &mut File, mut noted: impl FnMut(&str)) -> std::io::Result<()> {
    let (mut reader, mut line) = (BufReader::new(&mut *file), Vec::new());
    let mut is_ended = true;
    while reader.read_until(b'\n', &mut line)? > 0 {
        is_ended = line.ends_with(b"\n");
        // A line that is whole but for its end is noted now as it will be when it has been ended. Of any other that was cut off, nobody knows
        // what it was to say: the device sends again.
        if let Some(what) = String::from_utf8_lossy(&line).trim_end_matches('\n').strip_suffix(WHOLE) {
            noted(what);
        }
        line.clear();
    }
    if is_ended { Ok(()) } else { file.write_all(b"\n") }
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
        assert_eq!(ledger.sums(), Sums { devices: 1, acknowledged: 2, effects: 1, doubled: 0, repeated: 1 });
    }

    #[test]
    fn nothing_is_appended_to_a_line_that_was_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let cut_off = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        cut_off("acknowledged.log", "dev-1 ok\ndev-1");
        cut_off("effects.log", "key-1 ok\nkey-2 o");
        for life in 1..=3 {
            let ledger = Ledger::open(folder.path()).unwrap();
            assert_eq!(ledger.by_device(), BTreeMap::from([("dev-1".to_owned(), life)]));
            ledger.acknowledged("dev-1");
            assert_eq!(ledger.effect("key-2"), life == 1);
            assert_eq!(ledger.sums().effects, 2);
        }
        let written = std::fs::read_to_string(folder.path().join("effects.log")).unwrap();
        assert_eq!(written, "key-1 ok\nkey-2 o\nkey-2 ok\n");
    }

    #[test]
    fn a_line_that_lacks_only_its_end_counts_the_same_in_every_life() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("acknowledged.log"), "dev-1 ok").unwrap();
        for _ in 0..2 {
            assert_eq!(Ledger::open(folder.path()).unwrap().told("dev-1"), 1);
        }
    }

    #[test]
    fn an_effect_that_was_noted_twice_is_doubled() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("effects.log"), "key-1 ok\nkey-2 ok\nkey-1 ok\n").unwrap();
        let sums = Ledger::open(folder.path()).unwrap().sums();
        assert_eq!((sums.effects, sums.doubled), (2, 1));
    }

    #[test]
    fn a_line_is_one_write() {
        struct Writes(Vec<Vec<u8>>);
        impl Write for Writes {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.push(bytes.to_vec());
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let mut writes = Writes(Vec::new());
        note(&mut writes, "dev-1").unwrap();
        assert_eq!(writes.0, [b"dev-1 ok\n"]);
    }
}
